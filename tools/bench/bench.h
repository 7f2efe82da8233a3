/*
 * bench.h - the results of `nrl bench` and `nrl profile`, as a tree (bench_tree.c) and as a page
 * (bench_page.c).
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H
#include "base/node.h"
#include <nrl/profile.h>

/* Consecutive steps. */
typedef struct {
    int64_t n;
    double *seconds;                   /* [n] */
    double tokens, mfu, data_fraction; /* sums over the steps; mfu is NaN if the peak of the device is unknown */
    double last_loss;
} bench_steps;

typedef struct {
    double first_loss;    /* of the first warm-up step */
    bench_steps plain;    /* only the time of each step is measured; n is 0 for a profile */
    bench_steps profiled; /* with a time stamp at the start and end of each operation; n 0: the config had no steps
                           * left */
    nrl_value watched[NRL_MAX_WATCHED]; /* over the plain steps, or over the profiled ones if there are no plain ones */
    size_t n_watched;
    nrl_phase_times phases;
    nrl_run_info stats;
    int64_t top; /* shapes to list; 0 = none */
} bench_found;

/* The tree borrows from `r` and `found`. */
nrl_status bench_tree(arena *a, const nrl_run *r, const bench_found *found, nrl_node **out);
void bench_page(const nrl_node *tree);

/* The verb itself. argv: NAME FILE.yaml [key=value ...] [--steps N] [--top N] [--json]; only a
 * profile accepts --top. */
nrl_status bench_measure(int argc, char **argv, bool profile);

#endif
