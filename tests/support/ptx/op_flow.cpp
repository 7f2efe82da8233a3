/*
 * op_flow.cpp - branches, the end of threads, fences: PTX ISA, "Control flow", "membar". Fences
 * have no effect here, because every access is performed at once.
 */
#include "fault.h"
#include "ops.h"

namespace ptx
{
void simple_nothing(warp &w, const instruction &in, uint32_t mask)
{
    (void)w, (void)in, (void)mask;
}

static void trap(warp &w, const instruction &in, uint32_t mask)
{
    (void)in;
    fail(PTX_TRAP, "thread %u gives up", w.thread(__builtin_ctz(mask)));
}

static void build_branch(builder &b)
{
    b.take("uni");
    b.jump(b.label(b.at(0)));
    b.in.how = flow::branch;
    b.in.run = simple_nothing;
}

/* ret of a kernel ends the thread; so does exit everywhere, although only kernels may use it here. */
static void build_leave(builder &b)
{
    b.take("uni");
    b.in.how = flow::leave;
    b.in.run = simple_nothing;
}

static void build_fence(builder &b)
{
    b.drop({"cta", "gl", "gpu", "sys", "sc", "acq_rel"});
    b.in.run = simple_nothing;
}

static void build_trap(builder &b)
{
    b.in.run = trap;
}

const build_row build_flow[] = {
    {"bra", build_branch},  {"ret", build_leave}, {"exit", build_leave}, {"membar", build_fence},
    {"fence", build_fence}, {"trap", build_trap}, {nullptr, nullptr},
};
} // namespace ptx
