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
    double cpu_begin, cpu_seconds;     /* processor time of the process before the first of them, and during all */
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
    double cpu_seconds, most_used_peak_bytes; /* of a step, the mean of the ranks; of the rank that used most */
    int64_t top;                              /* shapes to list; 0 = none */
    bool has_memory;                          /* the profile recorded tensors */
    int64_t n_dropped;                        /* events that a timeline had no room for */
} bench_found;

typedef struct {
    bool is_profile, json;
    bool memory; /* --memory */
    bool output; /* --output: the run writes its output directory as `nrl run` does */
    int64_t steps, top;
    const char *trace; /* the file of --trace; NULL = none */
} bench_options;
enum { BENCH_WARM_UP = 2 };

/* The tree borrows from `r` and `found`. */
nrl_status bench_tree(arena *a, const nrl_run *r, const bench_found *found, nrl_node **out);
void bench_page(const nrl_node *tree);

/* Before the first of `steps` steps; the list lives in the arena. */
void bench_begin_steps(bench_steps *s, arena *a, int64_t steps);
/* Adds an event to the sums of its steps. */
void bench_add_step(bench_steps *s, const nrl_run_event *e);
unsigned bench_what(const bench_options *o); /* NRL_PROFILE_* */
/* After the last profiled step: phases, sizes of the run, numbers of all ranks, and the file of a timeline. All ranks
 * call it. */
nrl_status bench_collect(arena *a, nrl_run *r, const bench_options *o, bench_found *f);
/* Profiles the first run that a script opens, from its third step on, and stops that run behind the last step. The tree
 * is NULL on ranks other than 0, and if the run had too few steps. */
nrl_status bench_script(arena *a, int argc, char **argv, const nrl_environment *env, const bench_options *o,
                        nrl_node **tree);

/* The verb itself. argv: NAME FILE [key=value ...] [--steps N] [--json], and of a profile [--top N] [--memory]
 * [--trace FILE] [--output]. */
nrl_status bench_measure(int argc, char **argv, bool profile);

#endif
