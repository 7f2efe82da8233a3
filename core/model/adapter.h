/*
 * adapter.h - which linear weights of a model carry adapters (tensor/adapter.h), and attaching them. Models
 * declare nothing for it. Module names are those of Hugging Face: a weight's name without ".weight".
 */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H
#include "base/node.h"
#include "tensor/adapter.h"

struct model;

typedef struct {
    const char *module;
    int64_t rank;
    double alpha;
} adapter_entry;

typedef struct {
    bool rslora; /* scale is alpha / sqrt(rank) instead of alpha / rank (Kalajdzievski 2023) */
    double dropout;
    int32_t n;
    adapter_entry *entries;
} adapter_set;

double adapter_scale(const adapter_set *s, const adapter_entry *e);

/* Whether `linear` multiplies by p: a matrix named *.weight that is neither looked up in (those of the first
 * unit) nor the head, which is not `linear`'s. */
bool adapter_fits(const struct model *m, const nrl_param *p);
/* The module of a weight, in `a`. */
const char *adapter_module(arena *a, const nrl_param *p);
/* The adapter's parameters as peft names them on disk: which is 'A' or 'B'. */
const char *adapter_name(arena *a, const char *module, char which);

/* Freezes what the model has and attaches the set: A [r,K] uniform within 1/sqrt(K) (as peft: kaiming_uniform
 * with a = sqrt 5), B [M,r] zero, behind the model's own parameters and in the uses of every unit that uses the
 * weight. NRL_ERR_CONFIG: no module of that name, and which there are; one that is named twice. Once a model,
 * before anything is planned. [main] */
nrl_status model_adapt(struct model *m, const adapter_set *set);

/* out[n] += elements [begin, begin + n) of scale B A, [M,K] row by row; whole a [r,K] and b [M,r]. [any] */
void adapter_add_product(const float *a, const float *b, int64_t rank, int64_t k, double scale, int64_t begin,
                         int64_t n, float *out);

/* {rslora, dropout, modules: [{module, rank, alpha}]}, as checkpoints keep it, and back. NRL_ERR_CORRUPT. */
nrl_node *adapter_set_node(arena *a, const adapter_set *s);
nrl_status adapter_set_read(arena *a, const nrl_node *node, adapter_set *out);

#endif
