/*
 * harness.h - a model on the CPU with batches from lists of ids, for the parity tests: the same
 * storage, walk and head as a run, with a plain sum of -log p as the loss.
 */
#ifndef PARITY_HARNESS_H
#define PARITY_HARNESS_H
#include "base/json.h"
#include "model/find.h"
#include "support/weights.h"
#include "run/walk/storage.h"
#include "run/walk/work.h"
#include <nrl/optimizer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ASSERT_OK(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != NRL_OK) fail_msg("%s", nrl_error_text());                                                        \
    } while (0)

typedef struct {
    arena a;
    plugin_host *host;
    device dev;
    nrl_ctx *ctx;
    const char *dir;
    model *m;
    weight_files *weights;
    const test_adapter *adapter; /* NULL = none */
    storage store;
    work walk;
    nrl_algorithm loss;
    const nrl_node *golden; /* golden.json beside the weights, NULL = none */
} parity;

typedef enum { SCORE_ALL, SCORE_LABELS } score;

/* Opens DIR with its config under the given file name; weights in `dtype`, which is also the
 * compute dtype. States for AdamW are there. */
void parity_open(parity *p, const char *dir, const char *config, nrl_dtype dtype);
/* The same with a peft adapter's values; what it stands on is frozen. The adapter outlives p. */
void parity_open_adapted(parity *p, const char *dir, const test_adapter *start, nrl_dtype dtype);
void parity_close(parity *p);

/* Rows [first, end) of golden input_ids, packed; scored are all predictable tokens, or those with a
 * label. Free it. */
nrl_batch *parity_golden_batch(const parity *p, int first, int end, score what);
/* n sequences of ids; every token but the first of each is scored. */
nrl_batch *parity_batch(int n, const int32_t *const *ids, const int32_t *lengths);

/* Log-probs of the batch's target positions, malloc'd doubles. */
double *parity_logps(parity *p, nrl_batch *batch);
/* Logits [n, V] of token rows, malloc'd doubles. */
double *parity_logits(parity *p, nrl_batch *batch, const int32_t *rows, int64_t n);

/* Forward and backward of sum(-logp) / weight; gradients are in GRAD afterwards. Returns the
 * sum. */
double parity_train(parity *p, nrl_batch *batch, double weight);
/* One AdamW update of every parameter from GRAD * scale; step counts from 1. */
void parity_adamw(parity *p, const nrl_adamw *adamw, double lr, double scale, int64_t step);
/* One parameter's gradient or values, malloc'd doubles. */
double *parity_tensor(parity *p, const nrl_param *param, nrl_slot slot);
double parity_l2(const double *x, int64_t n);

/* tests/data/models/<name>, living as long as p. */
const char *parity_model_dir(arena *a, const char *name);

/* ---- golden.json ---- */
double parity_number(const nrl_node *map, const char *key);
double parity_item(const nrl_node *list, size_t i);

#endif
