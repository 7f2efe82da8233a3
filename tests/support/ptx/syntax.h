/*
 * syntax.h - a PTX text as functions of statements, with names resolved to registers and variables.
 */
#ifndef SUPPORT_PTX_SYNTAX_H
#define SUPPORT_PTX_SYNTAX_H
#include "token.h"
#include <map>
#include <stdint.h>

namespace ptx
{
/* kind: u s b f; h is bf16, 4 is e4m3, 5 is e5m2, p a predicate. */
struct type {
    char kind = 0;
    uint8_t bytes = 0;
    uint8_t lanes = 1; /* 2: f16x2, bf16x2, e4m3x2, e5m2x2 */
};
bool type_named(std::string_view name, type *out); /* without the dot */

enum class space : uint8_t { generic, param, local, shared, global, constant };

struct variable {
    std::string name;
    space where;
    uint32_t align;
    uint64_t bytes;
    bool external; /* dynamic shared memory */
};

struct operand {
    enum kind { REGISTER, SPECIAL, NUMBER, VARIABLE, NAME, ADDRESS, VECTOR, LIST, SINK } is = SINK;
    bool inverted = false;      /* !p */
    char literal = 'i';         /* of a number: i integer, f bits of f32, d bits of f64 */
    int index = -1;             /* of a register or variable of the function */
    int second = -1;            /* register q of p|q */
    uint64_t bits = 0;          /* of a number */
    int64_t offset = 0;         /* of an address */
    std::string name;           /* name of a special register, a label, a function or a module's variable */
    std::vector<operand> parts; /* of a vector or list; of an address: the base */
};

struct statement {
    std::string opcode;
    std::vector<operand> operands;
    int guard = -1; /* register */
    bool guard_inverted = false;
    int line = 0;
};

struct function {
    std::string name;
    bool is_entry = false;
    int n_returns = 0, n_params = 0; /* the first variables are results and parameters */
    std::vector<variable> variables;
    std::vector<type> registers;
    std::vector<statement> body;
    std::map<std::string, size_t> labels;                    /* index into body */
    unsigned most_threads = 0, exact_threads[3] = {0, 0, 0}; /* .maxntid, .reqntid; 0 = not given */
};

struct module {
    std::vector<token> tokens;
    std::vector<variable> variables;
    std::map<std::string, size_t> functions; /* with a body: index of the token .entry or .func */
};

module parse_module(std::string_view text); /* text must outlive the module */
function parse_function(const module &m, const std::string &name);
} // namespace ptx

#endif
