/*
 * program.h - a kernel made ready to run: instructions whose operands are places in a warp's
 * registers.
 *
 * A register is 32 lanes side by side (a predicate: 32 bits), so an operation is a loop over lanes.
 * Constants, addresses of variables and special registers lie among the registers, filled in
 * beforehand; every operand is thus one byte offset, a multiple of 64.
 */
#ifndef SUPPORT_PTX_PROGRAM_H
#define SUPPORT_PTX_PROGRAM_H
#include "syntax.h"
#include <memory>

namespace ptx
{
struct warp;
struct instruction;
/* mask: lanes that take part, never empty. */
typedef void (*handler)(warp &w, const instruction &in, uint32_t mask);

/* What the scheduler does with an instruction. MEET: executes when all lanes of its mask are there. */
enum class flow : uint8_t { plain, branch, call, leave, meet, barrier };

enum : uint32_t { ALL_LANES = 0xffffffffu, NO_PLACE = 0xffffffffu };
enum : uint8_t { NO_OPERAND = 255 };

struct instruction {
    handler run = nullptr;
    handler inner = nullptr;      /* of rounding handlers: what is done under the rounding mode */
    const uint32_t *op = nullptr; /* places: results, then sources */
    int64_t offset = 0;           /* of an address */
    uint32_t guard = NO_PLACE, target = 0, first_op = 0;
    int line = 0;
    flow how = flow::plain;
    bool guard_inverted = false, carries = false; /* carries: an undefined source makes the result so */
    uint8_t n_results = 0, n_sources = 0, mask_operand = NO_OPERAND;
    space where = space::generic;
    uint8_t small[8] = {}; /* what each operation says of itself */
};

struct constant {
    uint32_t place;
    uint8_t bytes;
    bool dynamic; /* from where dynamic shared memory begins */
    uint64_t bits;
};
struct special {
    uint32_t place;
    std::string name;
};
struct parameter {
    uint32_t at, bytes;
};

struct program {
    std::string kernel;
    std::vector<instruction> code;
    std::vector<std::string> opcodes; /* beside code, for messages */
    std::vector<uint32_t> operands;
    std::vector<constant> constants;
    std::vector<special> specials;
    std::vector<parameter> parameters;
    uint32_t register_bytes = 0, parameter_bytes = 0, local_bytes = 0;
    uint32_t shared_begin = 0, shared_end = 0, shared_dynamic = 0; /* of variables; what a launch adds */
    unsigned most_threads = 0, exact_threads[3] = {0, 0, 0};
};

std::unique_ptr<program> build_program(const module &m, const std::string &kernel);

/* Where windows lie in generic addresses: no pointer of the process looks so. PTX ISA, "Generic
 * addressing". */
enum : uint64_t {
    WINDOW_SHARED = (uint64_t)1 << 62,
    WINDOW_LOCAL = (uint64_t)1 << 61,
    WINDOW_PARAM = (uint64_t)1 << 60,
    WINDOW_BYTES = (uint64_t)1 << 32,
};
uint64_t window_of(space s);
} // namespace ptx

#endif
