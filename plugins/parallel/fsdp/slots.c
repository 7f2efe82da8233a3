/*
 * slots.c - few buffers for many groups. Runs follow each other as 0 1 .. n-1 .. 1 0 1 ..: forward and
 * backward. Two groups that may be needed at the same moment of that walk get different slots. The
 * largest group chooses first, so that a slot is as large as its first member. Any other order of
 * actions works too, with less prefetching.
 */
#include "fsdp.h"
#include <stdlib.h>

/* What a kind of buffer is needed for, and the slots chosen. */
typedef struct {
    const fsdp *s;
    bool *used;       /* [n_runs, n_groups] */
    bool *member;     /* [n_groups] */
    bool *live;       /* [n_groups] at the current moment */
    bool *conflict;   /* [n_groups, n_groups] */
    int32_t *slot_of; /* [n_groups], -1 = none */
} needs;

static void needs_close(needs *w)
{
    free(w->used);
    free(w->member);
    free(w->live);
    free(w->conflict);
    free(w->slot_of);
}

static nrl_status needs_open(const fsdp *s, needs *w)
{
    size_t n = (size_t)s->n_groups + 1;
    *w = (needs){.s = s,
                 .used = calloc(n * ((size_t)s->n_runs + 1), sizeof *w->used),
                 .member = calloc(n, sizeof *w->member),
                 .live = calloc(n, sizeof *w->live),
                 .conflict = calloc(n * n, sizeof *w->conflict),
                 .slot_of = calloc(n, sizeof *w->slot_of)};
    if (!w->used || !w->member || !w->live || !w->conflict || !w->slot_of) {
        needs_close(w);
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
    }
    for (int32_t g = 0; g < s->n_groups; g++)
        w->slot_of[g] = -1;
    for (int32_t u = 0; u < s->plan.n_units; u++)
        for (int32_t i = 0; i < s->uses[u].n; i++)
            w->used[s->run_of[u] * s->n_groups + (s->uses[u].groups[i] - s->groups)] = true;
    return NRL_OK;
}

/* All groups in `live` are needed at the same time. */
static void together(needs *w)
{
    int32_t n = w->s->n_groups;
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = 0; b < n; b++)
            if (a != b && w->live[a] && w->live[b]) w->conflict[a * n + b] = true;
}

/* ---- choosing slots ---- */

static bool is_free(const needs *w, int32_t group, int32_t slot)
{
    for (int32_t other = 0; other < w->s->n_groups; other++)
        if (w->slot_of[other] == slot && w->conflict[group * w->s->n_groups + other]) return false;
    return true;
}

static int32_t largest_left(const needs *w)
{
    int32_t best = -1;
    for (int32_t g = 0; g < w->s->n_groups; g++)
        if (w->member[g] && w->slot_of[g] < 0 && (best < 0 || w->s->groups[g].padded > w->s->groups[best].padded))
            best = g;
    return best;
}

static nrl_status choose(needs *w, fsdp_slots *out)
{
    size_t n = (size_t)w->s->n_groups + 1;
    out->numel = calloc(n, sizeof *out->numel);
    out->buffers = calloc(n, sizeof(nrl_tensor *));
    out->occupant = calloc(n, sizeof(fsdp_group *));
    if (!out->numel || !out->buffers || !out->occupant)
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
    for (int32_t g = largest_left(w); g >= 0; g = largest_left(w)) {
        int32_t slot = 0;
        while (slot < out->n && !is_free(w, g, slot))
            slot++;
        if (slot == out->n) out->numel[out->n++] = w->s->groups[g].padded;
        w->slot_of[g] = slot;
    }
    return NRL_OK;
}

/* ---- which groups are needed when ---- */

/* Run at position t of the walk 0 1 .. n-1 .. 1, repeated. */
static int32_t run_at(int32_t n, int32_t t)
{
    if (n == 1) return 0;
    t %= 2 * n - 2;
    return t < n ? t : 2 * n - 2 - t;
}

/* WEIGHT: while a run computes, its groups and those of the next `prefetch` runs. */
static void work_needs(needs *w)
{
    const fsdp *s = w->s;
    for (int32_t g = 0; g < s->n_groups; g++)
        w->member[g] = true;
    for (int32_t t = 0; t < 2 * s->n_runs; t++) {
        for (int32_t g = 0; g < s->n_groups; g++) {
            w->live[g] = false;
            for (int64_t k = 0; k <= s->options.prefetch && !w->live[g]; k++)
                w->live[g] = w->used[run_at(s->n_runs, t + (int32_t)k) * s->n_groups + g];
        }
        together(w);
    }
}

/* Gradients: from the backward of the last run that uses a group to that of the first and, if the buffer
 * itself is exchanged, while the next run computes. Exchange buffers: from the first run on, and one run
 * more. */
static void gradient_needs(needs *w, bool from_last, bool travels)
{
    const fsdp *s = w->s;
    for (int32_t g = 0; g < s->n_groups; g++)
        w->member[g] = s->groups[g].trained;
    for (int32_t run = s->n_runs - 1; run >= 0; run--) {
        for (int32_t i = 0; i < s->n_groups; i++) {
            const fsdp_group *g = &s->groups[i];
            int32_t begin = from_last ? g->last_run : g->first_run, end = g->first_run - (travels ? 1 : 0);
            w->live[i] = g->trained && run <= begin && run >= end;
        }
        together(w);
    }
}

typedef enum { KIND_WORK, KIND_ACC, KIND_WIRE } slot_kind;

static nrl_status assign(fsdp *s, slot_kind kind, fsdp_slots *out)
{
    bool travels = kind == KIND_WIRE || !s->options.reduce_dtype;
    needs w;
    NRL_TRY(needs_open(s, &w));
    if (kind == KIND_WORK)
        work_needs(&w);
    else
        gradient_needs(&w, kind == KIND_ACC, travels);
    nrl_status st = choose(&w, out);
    for (int32_t g = 0; g < s->n_groups; g++) {
        int32_t *place[] = {&s->groups[g].work_slot, &s->groups[g].acc_slot, &s->groups[g].wire_slot};
        *place[kind] = w.slot_of[g];
    }
    needs_close(&w);
    return st;
}

nrl_status fsdp_assign_slots(fsdp *s)
{
    if (s->options.shard == FSDP_FULL) NRL_TRY(assign(s, KIND_WORK, &s->work_slots));
    if (!s->plan.train) return NRL_OK;
    if (!fsdp_sums_whole(s)) NRL_TRY(assign(s, KIND_ACC, &s->acc_slots));
    return s->options.reduce_dtype || s->options.reproducible ? assign(s, KIND_WIRE, &s->wire_slots) : NRL_OK;
}

void fsdp_free_slots(fsdp_slots *slots)
{
    free(slots->numel);
    free(slots->buffers);
    free(slots->occupant);
}
