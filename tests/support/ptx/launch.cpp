/*
 * launch.cpp - checks the requirements of a GPU on a launch, then runs its blocks; see ptx.h.
 * Limits: CUDA programming guide, "Technical specifications per compute capability".
 */
#include "fault.h"
#include "memory.h"
#include "warp.h"
#include <stdarg.h>
#include <stdio.h>

namespace ptx
{
void fail(ptx_kind kind, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    throw fault{kind, text};
}

enum : size_t { USUAL_SHARED = 48 << 10, MOST_SHARED = 227 << 10 };

static void check_sizes(const ptx_launch &l)
{
    const ptx_dims &t = l.threads, &g = l.blocks;
    if (!t.x || !t.y || !t.z || t.x > 1024 || t.y > 1024 || t.z > 64 || t.x * t.y * t.z > 1024)
        fail(PTX_LAUNCH, "a block of %u x %u x %u threads: 1 to 1024, z at most 64", t.x, t.y, t.z);
    if (!g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535)
        fail(PTX_LAUNCH, "a grid of %u x %u x %u blocks: y and z at most 65535, none 0", g.x, g.y, g.z);
}

static void check_promises(const program &p, const ptx_launch &l)
{
    const ptx_dims &t = l.threads;
    const unsigned *exact = p.exact_threads;
    if (p.most_threads && t.x * t.y * t.z > p.most_threads)
        fail(PTX_LAUNCH, "%u threads a block, and the kernel is compiled for at most %u", t.x * t.y * t.z,
             p.most_threads);
    if (exact[0] && (t.x != exact[0] || t.y != exact[1] || t.z != exact[2]))
        fail(PTX_LAUNCH, "%u x %u x %u threads, and the kernel is compiled for %u x %u x %u", t.x, t.y, t.z, exact[0],
             exact[1], exact[2]);
    size_t fixed = p.shared_end - p.shared_begin, all = fixed + l.shared_bytes;
    if (all > MOST_SHARED || (all > USUAL_SHARED && l.shared_bytes > l.shared_allowed))
        fail(PTX_LAUNCH,
             "%zu bytes of shared memory (%zu of them variables); %zu were allowed, and 49152 need no asking", all,
             fixed, l.shared_allowed);
    if ((size_t)l.n_args != p.parameters.size())
        fail(PTX_LAUNCH, "%d arguments for %zu parameters", l.n_args, p.parameters.size());
    for (int i = 0; i < l.n_args; i++)
        if (l.arg_bytes[i] != p.parameters[(size_t)i].bytes)
            fail(PTX_LAUNCH, "argument %d has %zu bytes, the kernel's parameter %u", i, l.arg_bytes[i],
                 p.parameters[(size_t)i].bytes);
}

static void run_blocks(block &b)
{
    const ptx_dims &g = b.launch->blocks;
    bool back = b.launch->backwards;
    b.launch_began = next_epoch();
    for (unsigned z = 0; z < g.z; z++)
        for (unsigned y = 0; y < g.y; y++)
            for (unsigned x = 0; x < g.x; x++) {
                begin_block(b, {back ? g.x - 1 - x : x, back ? g.y - 1 - y : y, back ? g.z - 1 - z : z});
                run_block(b);
            }
}

/* The instruction and block of a fault: those of the current warp. */
static std::string place_of(const program &p, const block &b)
{
    char text[400];
    const warp *w = b.at_work;
    int n =
        snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u)", p.kernel.c_str(), b.index.x, b.index.y, b.index.z);
    if (w && w->now && n < (int)sizeof text)
        snprintf(text + n, sizeof text - (size_t)n, ", warp %u, lanes %08x, line %d, %s", w->index, w->now_mask,
                 w->now->line, p.opcodes[(size_t)(w->now - p.code.data())].c_str());
    return text;
}

static void report_fault(ptx_report *report, const fault &f, const std::string &where)
{
    report->kind = f.kind;
    snprintf(report->text, sizeof report->text, "%s%s%s", where.c_str(), where.empty() ? "" : ": ", f.text.c_str());
}
} // namespace ptx

using namespace ptx;

struct ptx_program {
    std::unique_ptr<program> p;
    block b;
};

ptx_program *ptx_load(const char *text, const char *kernel, ptx_report *report)
{
    try {
        module m = parse_module(text);
        auto out = std::make_unique<ptx_program>();
        out->p = build_program(m, kernel);
        return out.release();
    } catch (const fault &f) {
        report_fault(report, f, "");
        return nullptr;
    }
}

void ptx_free(ptx_program *p)
{
    delete p;
}

ptx_kind ptx_run(ptx_program *p, const ptx_launch *launch, ptx_report *report)
{
    block &b = p->b;
    b.at_work = nullptr;
    report->kind = PTX_FINE;
    memory_lock();
    try {
        check_sizes(*launch);
        check_promises(*p->p, *launch);
        open_block(b, p->p.get(), launch);
        run_blocks(b);
    } catch (const fault &f) {
        report_fault(report, f, place_of(*p->p, b));
    }
    memory_unlock();
    return report->kind;
}
