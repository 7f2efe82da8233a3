/*
 * backend.c - the suite for backends: every operation is compared with a plain double reference, in
 * each dtype, at odd sizes, with gaps between rows; results must be bit-identical for any number of
 * threads.
 */
#include "backend.h"
#include "base/arena.h"
#include "config/options.h"
#include "lives.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Members that the plugin was built without are NULL. */
static void known_ops(suite *s)
{
    size_t size = s->table->ops->size < sizeof s->ops ? s->table->ops->size : sizeof s->ops;
    memcpy(&s->ops, s->table->ops, size);
}

/* The options with `threads` set (0: as configured); malloc'd. NULL: the backend has no such
 * option. */
static void *options_with(const suite *s, int64_t threads)
{
    const nrl_plugin *p = &s->table->plugin;
    char *options = mem_alloc(p->options_size + 1);
    bool found = threads == 0;
    memcpy(options, s->options, p->options_size);
    for (uint32_t i = 0; !found && i < p->n_options; i++) {
        const nrl_option *o = option_row(p->options, i, p->option_size);
        found = o->type == NRL_TYPE_INT && !strcmp(o->name, "threads");
        if (found) memcpy(options + o->offset, &threads, sizeof threads);
    }
    if (found) return options;
    free(options);
    return NULL;
}

static bool open_with(suite *s, int64_t threads)
{
    void *options = options_with(s, threads);
    suite_case(s, "opening");
    bool open = suite_ok(s, s->table->open(options, 0, &s->self), "a backend opens");
    free(options);
    return open;
}

static void check_info(suite *s)
{
    nrl_device_info f;
    memset(&f, 0, sizeof f);
    f.size = sizeof f;
    suite_case(s, "info");
    s->n_dtypes = COUNT(suite_dtypes) - 1;
    if (!s->table->info || !suite_ok(s, s->table->info(s->self, &f), "info succeeds")) return;
    s->n_dtypes += f.has_f16;
    s->bf16_logits = f.bf16_logits;
    s->has_fp8 = f.has_fp8;
    s->has_fp8_blocks = f.has_fp8_blocks;
    if (!f.has_fp8_blocks) report_skip(s->report, "gemm rounds blocks of 128 to 8 bits", "info does not report them");
    if (!f.has_fp8) report_skip(s->report, "gemm rounds operands to 8 bits", "info does not report fp8");
    if (!f.bf16_logits) report_skip(s->report, "head takes logits in bf16", "info does not report bf16_logits");
    if (!f.has_f16) report_skip(s->report, "operations take f16", "info does not report f16");
    report_check(s->report, f.name[0] && memchr(f.name, 0, sizeof f.name) != NULL, "info names the device",
                 "the name is empty or has no NUL");
    report_check(s->report, f.memory_bytes > 0, "info gives the size of the memory", "%lld bytes",
                 (long long)f.memory_bytes);
}

static void check_memory(suite *s)
{
    void *memory = NULL;
    suite_case(s, "alloc");
    for (size_t bytes = 1; bytes < (size_t)64 << 20; bytes = bytes * 7 + 3) {
        if (!suite_ok(s, s->table->alloc(s->self, bytes, &memory), "alloc gives memory")) continue;
        report_check(s->report, (uintptr_t)memory % 64 == 0, "memory is 64-byte aligned", "%zu bytes at %p", bytes,
                     memory);
        s->table->free(s->self, memory);
    }
    nrl_status st = s->table->alloc(s->self, SIZE_MAX / 4, &memory);
    report_check(s->report, st == NRL_ERR_MEMORY, "too much memory is NRL_ERR_MEMORY", "error %d", (int)st);
}

static void run_operations(suite *s)
{
    REPORT_CASE(s->report, "operations: elementwise") suite_elementwise(s);
    REPORT_CASE(s->report, "operations: reductions") suite_reductions(s);
    REPORT_CASE(s->report, "operations: moves") suite_moves(s);
    REPORT_CASE(s->report, "operations: gemm") suite_gemm(s);
    REPORT_CASE(s->report, "operations: norms") suite_norms(s);
    REPORT_CASE(s->report, "operations: layers") suite_layers(s);
    REPORT_CASE(s->report, "operations: head") suite_head(s);
    REPORT_CASE(s->report, "operations: attention") suite_attention(s);
    REPORT_CASE(s->report, "operations: attention with rotation") suite_attention_rotated(s);
    REPORT_CASE(s->report, "operations: updates") suite_updates(s);
}

enum { SUMS_BYTES = 8 << 20 };

/* Two instances are open at once: one must not disturb the other. */
static void check_threads(suite *s)
{
    static const char rule[] = "sums do not depend on the number of threads";
    void *first_self = s->self, *options = options_with(s, 1);
    free(options);
    if (!options) {
        report_skip(s->report, rule, "the backend has no option 'threads'");
        return;
    }
    unsigned char *want = mem_alloc(SUMS_BYTES), *got = mem_alloc(SUMS_BYTES);
    size_t n = 0;
    for (int64_t threads = 1; threads <= 3; threads++) {
        if (!open_with(s, threads)) break;
        size_t m = suite_sums(s, threads == 1 ? want : got, SUMS_BYTES);
        if (threads == 1)
            n = m;
        else
            report_check(s->report, m == n && memcmp(want, got, n) == 0, rule, "%lld threads differ from one",
                         (long long)threads);
        s->table->close(s->self);
    }
    free(want);
    free(got);
    s->self = first_self;
}

static bool open_once(void *user)
{
    const suite *s = user;
    void *self, *memory;
    if (s->table->open(s->options, 0, &self) != NRL_OK) return false;
    nrl_status st = s->table->alloc(self, 4096, &memory);
    if (st == NRL_OK) s->table->free(self, memory);
    s->table->close(self);
    return st == NRL_OK;
}

/* The operations that models of the common families, losses and the norm of gradients call; a backend may delegate
 * them. What only some runs need is reported, not required. */
static void check_complete(suite *s)
{
    static const char needed[] = " fill copy unary unary_grad binary binary_grad where reduce gemm gather scatter norm "
                                 "norm_grad rope attention attention_grad glu glu_grad head head_grad square_sum ";
    char absent[2][400] = {"it has no", "it has no"};
    const size_t none = strlen(absent[0]);
#define ASK(op, args)                                                                                                  \
    if (!s->ops.op) {                                                                                                  \
        char *to = absent[strstr(needed, " " #op " ") != NULL];                                                        \
        snprintf(to + strlen(to), sizeof absent[0] - strlen(to), "%s " #op, strlen(to) > none ? "," : "");             \
    }
    NRL_OPS(ASK)
#undef ASK
    report_check(s->report, strlen(absent[1]) == none || s->table->delegate, "a backend has what every run needs", "%s",
                 absent[1]);
    if (strlen(absent[0]) > none && !s->table->delegate)
        report_skip(s->report, "a backend has what only some runs need", absent[0]);
}

void conformance_backend(const nrl_backend *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.table = table, .options = setup->options, .report = report, .random = 1};
    suite_case(&s, "probe");
    if (table->probe && !suite_ok(&s, table->probe(), "probe says that it can run")) return;
    known_ops(&s);
    check_complete(&s);
    REPORT_CASE(report, "instances come and go") lives_check(report, open_once, &s); /* before threads exist */
    if (!open_with(&s, 0)) return;
    check_info(&s);
    REPORT_CASE(report, "memory is 64-byte aligned") check_memory(&s);
    run_operations(&s);
    REPORT_CASE(report, "a watch begins and ends") suite_measure(&s);
    REPORT_CASE(report, "sums do not depend on the number of threads") check_threads(&s);
    table->close(s.self);
}
