/*
 * bench.h - what `nrl bench` and `nrl profile` found, as a tree (bench_tree.c) and as a page (bench_page.c).
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H
#include "base/node.h"
#include <nrl/run.h>

/* Steps that were taken one after another. */
typedef struct {
    int64_t n;
    double *seconds;                   /* [n] */
    double tokens, mfu, data_fraction; /* sums over the steps; mfu is NaN where the device's peak is unknown */
    double last_loss;
} bench_steps;

typedef struct {
    double first_loss;    /* of the first step that warmed up */
    bench_steps plain;    /* nothing is measured but each step's time; n 0 for a profile */
    bench_steps profiled; /* with a mark at each border of an operation; n 0: the config had no steps left */
    nrl_value watched[NRL_MAX_WATCHED]; /* over the plain steps, or the profiled ones where there are no others */
    size_t n_watched;
    nrl_phase_times phases;
    nrl_run_info stats;
    int64_t top; /* shapes to list; 0 = none */
} bench_found;

/* Borrows from `r` and `found`. */
nrl_status bench_tree(arena *a, const nrl_run *r, const bench_found *found, nrl_node **out);
void bench_page(const nrl_node *tree);

/* The verb itself. argv: NAME FILE.yaml [key=value ...] [--steps N] [--top N] [--json]; --top of a profile alone. */
nrl_status bench_measure(int argc, char **argv, bool profile);

#endif
