/*
 * algorithm_call.h - one call of a loss on a batch built for it; the rules are in algorithm.c.
 */
#ifndef CONFORMANCE_ALGORITHM_CALL_H
#define CONFORMANCE_ALGORITHM_CALL_H
#include "base/arena.h"
#include "compute.h"

/* A loss that couples groups of examples gets two groups. */
enum {
    ALGORITHM_MAX_GROUP = 16,
    ALGORITHM_MAX_BLOCKS = 2 * ALGORITHM_MAX_GROUP,
    ALGORITHM_MAX_SEGMENTS = 2 * ALGORITHM_MAX_BLOCKS,
    ALGORITHM_MAX_ROWS = 1024,
    ALGORITHM_MAX_METRICS = 64, /* that are compared */
    ALGORITHM_MAX_PARAMS = 8
};

typedef struct {
    const nrl_algorithm *table;
    conformance_report *report;
    compute compute;
    const void *options;
    void *self;
    bool pairs, prompt_targets, logps;
    nrl_param *params[ALGORITHM_MAX_PARAMS]; /* that instances declared, which share the tensors */
    nrl_tensor *values[2 * ALGORITHM_MAX_PARAMS];
    int32_t n_params;
    arena memory;
    int64_t group, n_examples;
    bool agree;    /* log-probs of the policy equal those of the reference */
    bool certain;  /* log-probs of both are 0 */
    bool light;    /* the last target position of each segment weighs a quarter, not a half */
    int64_t moved; /* a target position whose log-prob is larger by `by`; */
    double by;     /* 0 = none */
} algorithm_suite;

/* The results of a loss on one batch. */
typedef struct {
    double sums[NRL_MAX_TERMS], weights[NRL_MAX_TERMS];
    double grad[ALGORITHM_MAX_ROWS]; /* d (sum of the terms) / d logps */
    int64_t n_rows;
    struct {
        double value, weight;
        bool any;
    } metrics[ALGORITHM_MAX_METRICS]; /* sums of what was reported; the last value of a max or min */
} algorithm_outcome;

extern const char *const algorithm_columns_known[]; /* columns over target positions that the core fills;
                                                     * NULL-terminated */
const char *const *algorithm_needs(const algorithm_suite *s);
bool algorithm_is_word(const char *word, const char *const *words);

/* The listed examples, packed (nrl_harness_batch_free). The number of an example determines all of
 * its values, so an example is the same at any position. */
nrl_batch *algorithm_batch(const algorithm_suite *s, const int32_t *examples, int64_t n);
/* Sets the columns that the loss needs for these examples, with log-probs in [-scale, 0). */
nrl_status algorithm_columns(algorithm_suite *s, nrl_batch *b, const int32_t *examples, double scale,
                             nrl_tensor **logps);
/* Gives an instance the parameters that it declares for a model of width 8. */
nrl_status algorithm_bind(algorithm_suite *s, void *self);
void algorithm_unbind(algorithm_suite *s);
nrl_status algorithm_loss(algorithm_suite *s, void *self, nrl_batch *b, nrl_tensor *logps, algorithm_outcome *o);
/* Runs all of it on these examples. */
algorithm_outcome algorithm_run(algorithm_suite *s, void *self, const int32_t *examples, int64_t n, double scale);

#endif
