/*
 * program.h - a kernel that is ready to run: instructions whose operands are positions in the
 * registers of a warp.
 *
 * A register has 32 adjacent lanes (a predicate: 32 bits), so an operation is a loop over lanes.
 * Constants, addresses of variables and special registers are stored among the registers and are
 * filled in beforehand, so every operand is a byte offset, a multiple of 64.
 */
#ifndef SUPPORT_PTX_PROGRAM_H
#define SUPPORT_PTX_PROGRAM_H
#include "syntax.h"
#include <memory>

namespace ptx
{
struct warp;
struct instruction;
/* mask: the lanes that execute, never empty. */
typedef void (*handler)(warp &w, const instruction &in, uint32_t mask);

/* What the scheduler does with an instruction. MEET: executes when all lanes of its mask have
 * arrived. */
enum class flow : uint8_t { plain, branch, call, leave, meet, barrier };

enum : uint32_t { ALL_LANES = 0xffffffffu, NO_PLACE = 0xffffffffu };
enum : uint8_t { NO_OPERAND = 255 };

struct instruction {
    handler run = nullptr;
    handler inner = nullptr;      /* for handlers with rounding: the operation that runs under the rounding mode */
    const uint32_t *op = nullptr; /* positions: results, then sources */
    int64_t offset = 0;           /* of an address */
    uint32_t guard = NO_PLACE, target = 0, first_op = 0;
    int line = 0;
    flow how = flow::plain;
    bool guard_inverted = false, carries = false; /* carries: the result is undefined if a source is */
    uint8_t n_results = 0, n_sources = 0, mask_operand = NO_OPERAND;
    space where = space::generic;
    uint8_t small[8] = {}; /* parameters of the operation */
};

struct constant {
    uint32_t place;
    uint8_t bytes;
    bool dynamic; /* relative to the start of dynamic shared memory */
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
    std::vector<std::string> opcodes; /* parallel to the code, for messages */
    std::vector<uint32_t> operands;
    std::vector<constant> constants;
    std::vector<special> specials;
    std::vector<parameter> parameters;
    uint32_t register_bytes = 0, parameter_bytes = 0, local_bytes = 0;
    uint32_t shared_begin = 0, shared_end = 0, shared_dynamic = 0; /* of variables; the offset of dynamic memory */
    unsigned most_threads = 0, exact_threads[3] = {0, 0, 0};
};

std::unique_ptr<program> build_program(const module &m, const std::string &kernel);

/* Windows in the generic address space, at values that are not pointers of the process. PTX ISA,
 * "Generic addressing". */
enum : uint64_t {
    WINDOW_SHARED = (uint64_t)1 << 62,
    WINDOW_LOCAL = (uint64_t)1 << 61,
    WINDOW_PARAM = (uint64_t)1 << 60,
    WINDOW_BYTES = (uint64_t)1 << 32,
};
uint64_t window_of(space s);
} // namespace ptx

#endif
