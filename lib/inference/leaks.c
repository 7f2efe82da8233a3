/*
 * leaks.c - see leaks.h. Two kinds are watched: bytes of tensors in use, and bytes that the process has from malloc
 * without the memory of tensors. Both are what remains between two steps; peaks do not count. Growth counts if it
 * continues, not if its reason occurs only a few times: the first steps, a step that needed more memory than all before
 * it (longer samples: work space and caches of kernels grow with them), the first saves and evaluations.
 */
#include "inference/leaks.h"
#include "inference/measures.h"
#include "base/units.h"
#include "run/internal.h"
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    WARM_UP = 10,    /* steps before the baseline */
    FAST_STEPS = 4,  /* in a row that each leave much behind */
    FIRST_TIMES = 3, /* saves and evaluations whose growth is not counted */
    MIB = 1 << 20
};

static const struct {
    const char *name;
    double window, step; /* growth of the mean of a window, and of each of FAST_STEPS steps, that is a leak */
    double share;        /* of the baseline, where that is more */
} kinds[LEAK_KINDS] = {
    {"tensors", 2.0 * MIB, 8.0 * MIB, 0.01},
    {"host heap", 24.0 * MIB, 32.0 * MIB, 0.05},
};

/* Bytes from malloc, without those of tensors; 0 if malloc does not count them (sanitizers). */
static double heap_bytes(const session *se, const ctx_memory *tensors)
{
    const struct mallinfo2 m = mallinfo2();
    const double all = (double)m.uordblks + (double)m.hblkhd;
    return se->device.info.host_memory ? fmax(0, all - (double)tensors->reserved_bytes) : all;
}

static bool is_excused(run *r, const ctx_memory *now)
{
    measures *l = measures_of(r);
    const session *se = &r->session;
    const double transient = (double)now->peak_bytes - (double)now->live_bytes; /* above what is left */
    const bool is_largest = transient > l->most_transient;
    const int64_t every = se->config.eval.every, before = r->trainer.progress.step - 1;
    bool is_early = l->leak_steps < WARM_UP;
    if (is_largest) l->most_transient = transient;
    if (r->saver.last_saved != l->last_saved) is_early |= l->n_saves++ < FIRST_TIMES;
    l->last_saved = r->saver.last_saved;
    if (every && before % every == 0) is_early |= l->n_evals++ < FIRST_TIMES;
    return is_early || is_largest;
}

/* Weights and other parts of a run, for the message. */
static void describe(const run *r, const ctx_memory *now, double heap, char *text, size_t room)
{
    const storage *s = &r->session.storage;
    char size[6][SIZE_TEXT];
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    snprintf(text, room, "tensors %s (weights %s, gradients %s, optimizer %s), host heap %s, peak resident %s",
             size_text((double)now->live_bytes, size[0]), size_text((double)(s->work_bytes + s->master_bytes), size[1]),
             size_text((double)s->gradient_bytes, size[2]), size_text((double)s->state_bytes, size[3]),
             size_text(heap, size[4]), size_text(1024.0 * (double)usage.ru_maxrss, size[5]));
}

/* Takes the bytes after a step; *growth is per step, if they leak. */
static bool leaks(leak_state *k, int kind, double bytes, bool excused, int64_t n, double *growth)
{
    const double step = bytes - k->last;
    k->last = bytes;
    if (excused && step > 0) k->excused += step;
    const double counted = bytes - k->excused;
    const int at = (int)(n % LEAK_WINDOW);
    k->window[at] = counted;
    if (n < WARM_UP + LEAK_WINDOW) {
        if (n >= WARM_UP) k->baseline += counted / LEAK_WINDOW;
        k->largest = 0;
        k->n_fast = 0;
        return false;
    }
    const double allowed = kinds[kind].share * k->baseline;
    double mean = 0;
    for (int i = 0; i < LEAK_WINDOW; i++)
        mean += k->window[i] / LEAK_WINDOW;
    if (!excused) k->largest = fmax(k->largest, step);
    if (!excused) k->n_fast = step > fmax(kinds[kind].step, allowed) ? k->n_fast + 1 : 0;
    *growth = (mean - k->baseline) / (double)(n - WARM_UP - LEAK_WINDOW + 1);
    if (k->n_fast >= FAST_STEPS) *growth = step;
    /* One large step is an allocation, not a leak. */
    return k->n_fast >= FAST_STEPS ||
           (mean - k->baseline > fmax(kinds[kind].window, allowed) && k->largest < 0.5 * (mean - k->baseline));
}

nrl_status leaks_look(nrl_run *r, const nrl_run_event *e)
{
    measures *l = measures_of(r);
    const int64_t policy = r->session.config.train.leak_check;
    ctx_memory now;
    char rate[SIZE_TEXT], all[512];
    ctx_memory_use(r->session.ctx, &now);
    const double bytes[LEAK_KINDS] = {(double)now.live_bytes, heap_bytes(&r->session, &now)};
    values_add(&r->trainer.values, "tensor_mem_bytes", "bytes", bytes[0]);
    values_add(&r->trainer.values, "heap_mem_bytes", "bytes", bytes[1]);
    if (policy == CONFIG_LEAK_OFF) return NRL_OK;
    const bool excused = is_excused(r, &now);
    const int64_t n = l->leak_steps++;
    for (int k = 0; k < LEAK_KINDS; k++) {
        double growth;
        if (!leaks(&l->leaks[k], k, bytes[k], excused, n, &growth) || l->leaks[k].is_reported) continue;
        l->leaks[k].is_reported = true;
        describe(r, &now, bytes[1], all, sizeof all);
        const char *text =
            arena_printf(&r->session.memory,
                         "memory leak: %s in use after a step grow by %s per step; now %s\n"
                         "hint: check for a script that keeps tensors or fills a table, or a plugin that does not "
                         "free memory; `nrl profile --memory` lists tensors by origin; train.leak_check: off disables "
                         "this check",
                         kinds[k].name, size_text(growth, rate), all);
        if (policy == CONFIG_LEAK_STOP) return nrl_fail(NRL_ERR_MEMORY, "%s", text);
        nrl_warn("step %lld: %s", (long long)e->step, text);
    }
    return NRL_OK;
}
