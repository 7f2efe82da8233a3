/*
 * run_ptx.h - small kernels in PTX with one parameter: a pointer to words that they read and write.
 */
#ifndef UNIT_PTX_RUN_PTX_H
#define UNIT_PTX_RUN_PTX_H
#include "ptx.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Registers that every kernel has: %out is the words, %tid the thread, %mine the thread's own word
 * (or 8 bytes: %mine8). */
#define PTX_HEAD                                                                                                       \
    ".version 9.0\n.target sm_90\n.address_size 64\n"                                                                  \
    ".extern .shared .align 16 .b8 dynamic[];\n"
#define PTX_ENTRY                                                                                                      \
    ".visible .entry k(.param .u64 k_param_0)\n{\n"                                                                    \
    ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<33>; .reg .f32 %f<9>; .reg .b64 %d<9>;\n"                         \
    ".reg .f64 %g<9>; .reg .b64 %out, %mine, %mine8; .reg .b32 %tid;\n"                                                \
    "ld.param.u64 %out, [k_param_0]; cvta.to.global.u64 %out, %out; mov.u32 %tid, %tid.x;\n"                           \
    "mul.wide.u32 %mine, %tid, 4; add.s64 %mine8, %mine, %mine; add.s64 %mine, %mine, %out;\n"                         \
    "add.s64 %mine8, %mine8, %out;\n"
#define PTX_KERNEL(body) PTX_HEAD PTX_ENTRY body "\nret;\n}\n"

enum { WORDS = 1024, SHARED_BYTES = 4096 };

static uint32_t words[WORDS];
static ptx_report report;

static unsigned n_blocks = 1;

static inline ptx_kind run_text(const char *text, unsigned threads, size_t shared_bytes)
{
    const void *pointer = words;
    const void *args[] = {&pointer};
    const size_t bytes[] = {sizeof pointer};
    ptx_launch launch = {.blocks = {n_blocks, 1, 1},
                         .threads = {threads, 1, 1},
                         .shared_bytes = shared_bytes,
                         .n_args = 1,
                         .args = args,
                         .arg_bytes = bytes};
    memset(&report, 0, sizeof report);
    ptx_memory_add(words, sizeof words, false);
    ptx_program *p = ptx_load(text, "k", &report);
    if (!p) return report.kind;
    ptx_kind kind = ptx_run(p, &launch, &report);
    ptx_free(p);
    return kind;
}

static inline void must_run(const char *text, unsigned threads)
{
    if (run_text(text, threads, SHARED_BYTES) != PTX_FINE) fail_msg("%s", report.text);
}

/* The fault is found, and told with some words. */
static inline void must_fail(const char *text, unsigned threads, ptx_kind kind, const char *say)
{
    ptx_kind found = run_text(text, threads, SHARED_BYTES);
    if (found != kind) fail_msg("found kind %d, expected %d: %s", found, kind, report.text);
    if (!strstr(report.text, say)) fail_msg("'%s' is not in: %s", say, report.text);
}

#endif
