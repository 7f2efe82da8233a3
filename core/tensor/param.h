/*
 * param.h - the struct nrl_param; created by core/model, read by ops, run, optim and checkpoint.
 */
#ifndef TENSOR_PARAM_H
#define TENSOR_PARAM_H
#include <nrl/model.h>
#include <nrl/param.h>

struct nrl_param {
    const char *name;
    int n_dims;
    int64_t dims[NRL_MAX_DIMS];
    int64_t numel;               /* elements of dims, which operations see on this rank; parts have unsharded dims */
    int64_t whole;               /* elements of the unsharded parameter */
    int64_t first[NRL_MAX_DIMS]; /* where dims begin in the unsharded parameter (in its first part) */
    int n_parts;
    nrl_part *parts;
    bool trained, decay, grad_is_empty;
    bool saved_whole;  /* in the files of adapters: added by an algorithm, or in a module of modules_to_save */
    bool may_be_new;   /* an added one that weights need not have */
    bool of_algorithm; /* added by an algorithm */
    bool of_adapter;   /* the linear of its weight combines the ranks' parts */
    bool unadapted, unquantized; /* of nrl_param_spec */
    uint32_t init;               /* nrl_init of model.h */
    double init_scale;
    double lr_ratio; /* of optimizer.lr_ratios; 1 = none */
    uint32_t tp;
    int32_t expert;                         /* from 1; 0 = none */
    int32_t index;                          /* in the model's list */
    int32_t fp8;                            /* from 1: see ctx_set_fp8; 0 = none */
    uint64_t key;                           /* unique in the process, never 0 */
    uint64_t version;                       /* starts at 1; increases when WEIGHT changes */
    const struct param_packing *packing;    /* of a frozen weight without slots, stored in another, see packed.h */
    const nrl_param *adapts;                /* of an adapter's parameter: its weight */
    nrl_param *packs;                       /* the weight that is stored in this parameter; NULL = none */
    const struct nrl_adapter_site *adapter; /* the adapter of a linear weight, see tensor/ops/adapter.h; NULL = none */
    nrl_tensor *slots[NRL_SLOT_COUNT];      /* borrowed */
};

/* The elements of the unsharded part. */
static inline int64_t part_numel(const nrl_part *part)
{
    int64_t n = 1;
    for (int d = 0; d < part->n_dims; d++)
        n *= part->dims[d];
    return n;
}

/* Whether products with it may be of 8 bits. Routers, heads and embeddings are divided in another way, or not at all.
 */
static inline bool param_may_be_fp8(const nrl_param *p)
{
    return p->n_dims == 2 && !p->adapts &&
           (p->tp == NRL_TP_COLUMN || p->tp == NRL_TP_ROW || p->tp == NRL_TP_KEY_VALUE || p->tp == NRL_TP_WHOLE);
}

/* Initialises a parameter with one part of the same name and empty slots. */
void param_init(nrl_param *p, nrl_part *part, const char *name, int n_dims, const int64_t *dims);

#endif
