/*
 * backend.c - the suite for backends: every operation against a plain double reference, in each
 * dtype, at odd sizes, with gaps between rows; and the same bits under any number of threads.
 */
#include "backend.h"
#include <stdlib.h>
#include <string.h>

/* Members that the plugin was built without are NULL. */
static void known_ops(suite *s)
{
    size_t size = s->table->ops->size < sizeof s->ops ? s->table->ops->size : sizeof s->ops;
    memcpy(&s->ops, s->table->ops, size);
}

static bool open_with(suite *s, int64_t threads)
{
    void *options = plugin_options(s->report, &s->table->plugin);
    if (!options) return false;
    if (threads > 0) set_int_option(&s->table->plugin, options, "threads", threads);
    suite_case(s, "opening");
    nrl_status st = s->table->open(options, 0, &s->self);
    bool open = suite_ok(s, st, "a backend opens");
    free(options);
    return open;
}

static void check_facts(suite *s)
{
    nrl_device_facts f;
    memset(&f, 0, sizeof f);
    f.size = sizeof f;
    suite_case(s, "facts");
    if (!s->table->facts || !suite_ok(s, s->table->facts(s->self, &f), "facts can be asked")) return;
    report_check(s->report, f.name[0] && memchr(f.name, 0, sizeof f.name) != NULL,
                 "facts name the device", "empty or endless name");
    report_check(s->report, f.memory_bytes > 0, "facts give the memory", "%lld bytes",
                 (long long)f.memory_bytes);
}

static void check_memory(suite *s)
{
    void *memory = NULL;
    suite_case(s, "alloc");
    for (size_t bytes = 1; bytes < (size_t)64 << 20; bytes = bytes * 7 + 3) {
        if (!suite_ok(s, s->table->alloc(s->self, bytes, &memory), "alloc gives memory")) continue;
        report_check(s->report, (uintptr_t)memory % 64 == 0, "memory is 64-byte aligned",
                     "%zu bytes at %p", bytes, memory);
        s->table->free(s->self, memory);
    }
    nrl_status st = s->table->alloc(s->self, SIZE_MAX / 4, &memory);
    report_check(s->report, st == NRL_ERR_MEMORY, "too much memory is NRL_ERR_MEMORY", "error %d",
                 (int)st);
}

static void run_operations(suite *s)
{
    suite_elementwise(s);
    suite_reductions(s);
    suite_moves(s);
    suite_gemm(s);
    suite_norms(s);
    suite_layers(s);
    suite_head(s);
    suite_attention(s);
    suite_updates(s);
}

enum { SUMS_BYTES = 8 << 20 };

/* Two instances are open at once: one must not disturb the other. */
static void check_threads(suite *s)
{
    static const char rule[] = "sums do not depend on the number of threads";
    void *first_self = s->self;
    unsigned char *want = malloc(SUMS_BYTES), *got = malloc(SUMS_BYTES);
    if (!want || !got) abort();
    void *options = plugin_options(s->report, &s->table->plugin);
    if (!options || !set_int_option(&s->table->plugin, options, "threads", 1)) {
        report_skip(s->report, rule, "the backend has no option 'threads'");
    } else {
        size_t n = 0;
        for (int64_t threads = 1; threads <= 3; threads++) {
            if (!open_with(s, threads)) break;
            size_t m = suite_sums(s, threads == 1 ? want : got, SUMS_BYTES);
            if (threads == 1) n = m;
            else report_check(s->report, m == n && memcmp(want, got, n) == 0, rule,
                              "%lld threads differ from one", (long long)threads);
            s->table->close(s->self);
        }
    }
    free(options);
    free(want);
    free(got);
    s->self = first_self;
}

int conformance_backend(const nrl_backend *table, conformance_report *report)
{
    suite s = {.table = table, .report = report, .random = 1};
    suite_case(&s, "probe");
    if (table->probe && !suite_ok(&s, table->probe(), "probe says that it can run"))
        return report->failed;
    known_ops(&s);
    if (!open_with(&s, 0)) return report->failed;
    check_facts(&s);
    check_memory(&s);
    run_operations(&s);
    check_threads(&s);
    table->close(s.self);
    return report->failed;
}
