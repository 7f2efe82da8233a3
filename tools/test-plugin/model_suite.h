/*
 * model_suite.h - a model with values and batches of its own, for the rules of model.c: its states
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
    compute compute;
    arena memory;
    model *m;
    nrl_tensor *work[MODEL_MAX_PARAMS], *grad[MODEL_MAX_PARAMS];
} model_suite;

/* Hidden states of a batch, segment by segment in the order of `first`. */
typedef struct {
    int64_t n_tokens, width;
    float states[MODEL_MAX_STATES];
    bool good;
} model_states;

nrl_status model_suite_config(model_suite *s); /* of the usual keys, where none is given */
nrl_status model_suite_bind(model_suite *s);   /* WEIGHT and GRAD of every parameter, with values */
void model_suite_free(model_suite *s);
/* The two segments, `first` in front; every token but the last of a segment is scored. */
nrl_batch *model_suite_batch(const model_suite *s, int64_t first);
/* All units; strict: only what a unit declared is bound while it runs. */
nrl_status model_suite_forward(model_suite *s, bool strict, nrl_tensor **hidden);
/* Hidden states, malloc'd; rule: what it means when this fails. */
model_states *model_suite_states(model_suite *s, nrl_batch *b, bool strict, const char *rule);

/* The rule "gradients are those of differences". */
void model_suite_gradients(model_suite *s);

#endif
