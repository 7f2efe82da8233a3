/*
 * model_suite.h - a model with values and batches for the rules of model.c: its states
 * (model_forward.c) and its gradients (model_gradient.c).
 */
#ifndef CONFORMANCE_MODEL_SUITE_H
#define CONFORMANCE_MODEL_SUITE_H
#include "compute.h"
#include "model/model.h"
#include "tensor/ctx.h"

enum { MODEL_N_SEGMENTS = 2, MODEL_MAX_PARAMS = 256, MODEL_MAX_STATES = 65536 };
static const int64_t model_lengths[MODEL_N_SEGMENTS] = {5, 4}; /* of the two segments of a batch */

typedef struct {
    const nrl_model *table;
    const nrl_node *config;
    conformance_report *report;
    const conformance_setup *setup;
    compute compute;
    arena memory;
    model *m;
    int64_t carry_rows; /* of a rank with a part of the tokens; 0: a row for each token */
    nrl_tensor *work[MODEL_MAX_PARAMS], *grad[MODEL_MAX_PARAMS];
} model_suite;

/* Hidden states of a batch, by segment, in the order given by `first`. */
typedef struct {
    int64_t n_tokens, width;
    float states[MODEL_MAX_STATES];
    bool good;
} model_states;

nrl_status model_suite_config(model_suite *s); /* with common keys, if no config was given */
nrl_status model_suite_bind(model_suite *s);   /* WEIGHT and GRAD of every parameter, with values */
void model_suite_free(model_suite *s);
/* The two segments, `first` in front; every token but the last one of a segment is a target
 * position. */
nrl_batch *model_suite_batch(const model_suite *s, int64_t first);
/* Runs all units; strict: only the parameters that a unit declared are bound while it runs. */
nrl_status model_suite_forward(model_suite *s, bool strict, nrl_tensor **hidden);
/* Hidden states, malloc'd; rule: the rule that a failure breaks. */
model_states *model_suite_states(model_suite *s, nrl_batch *b, bool strict, const char *rule);

/* The weighted log-probs of all target positions, and their gradients in GRAD. */
nrl_status model_suite_loss(model_suite *s, nrl_batch *b, bool with_gradient, double *loss);
/* The rules of two ranks that share each layer. */
void model_suite_divided(model_suite *s);
/* The rule "gradients agree with finite differences". */
void model_suite_gradients(model_suite *s);

#endif
