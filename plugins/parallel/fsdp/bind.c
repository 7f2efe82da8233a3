/*
 * bind.c - creates every tensor of the strategy once: shards, slots, unsharded buffers, and views of
 * them. A step creates none.
 */
#include "fsdp.h"
#include <stdlib.h>

/* Records a tensor so that unbind frees it. */
static nrl_status keep(fsdp *s, nrl_tensor *t)
{
    if (s->n_tensors == s->tensors_capacity) {
        int64_t capacity = s->tensors_capacity ? 2 * s->tensors_capacity : 256;
        nrl_tensor **more = realloc(s->tensors, (size_t)capacity * sizeof(nrl_tensor *));
        if (!more) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
        s->tensors = more;
        s->tensors_capacity = capacity;
    }
    s->tensors[s->n_tensors++] = t;
    return NRL_OK;
}

static nrl_status make(fsdp *s, nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool leaves, nrl_tensor **out)
{
    *out = NULL;
    if (!n) return NRL_OK;
    bool fills = dtype != NRL_DTYPE_U16; /* lower halves: nothing reads the gaps between parameters */
    if (leaves && s->options.offload)
        NRL_TRY(nrl_tensor_elsewhere(ctx, dtype, n, s->options.offload == FSDP_ON_DISK, out));
    else
        NRL_TRY(nrl_comm_tensor(s->comm, ctx, dtype, n, fills, out));
    return keep(s, *out);
}

static nrl_status look(fsdp *s, nrl_ctx *ctx, nrl_tensor *t, int64_t begin, int64_t n, nrl_tensor **out)
{
    NRL_TRY(nrl_tensor_slice(ctx, t, begin, n, out));
    return keep(s, *out);
}

static nrl_status make_slots(fsdp *s, nrl_ctx *ctx, fsdp_slots *slots, nrl_dtype dtype)
{
    for (int32_t i = 0; i < slots->n; i++)
        NRL_TRY(make(s, ctx, dtype, slots->numel[i], false, &slots->buffers[i]));
    return NRL_OK;
}

/* ---- one buffer for all groups of a kind ---- */

typedef enum { SHARDS_TRAINED, SHARDS_FROZEN, WEIGHT_WHOLE, ACC_WHOLE, GRADS, LEVELS, LOWS, N_POOLS } pool_kind;

typedef struct {
    nrl_tensor *buffers[N_POOLS];
    int64_t at[N_POOLS]; /* elements handed out so far */
} pools;

/* Elements that a group takes from a pool. */
static int64_t wanted(const fsdp *s, const fsdp_group *g, pool_kind kind)
{
    bool full = s->options.shard == FSDP_FULL, sharded = full || fsdp_casts(s, g);
    switch (kind) {
    case SHARDS_TRAINED:
        return sharded && g->trained ? g->share : 0;
    case SHARDS_FROZEN:
        return sharded && !g->trained ? g->share : 0;
    case WEIGHT_WHOLE:
        return full ? 0 : g->padded;
    case ACC_WHOLE:
        return g->trained && fsdp_sums_whole(s) ? g->padded : 0;
    case LEVELS:
        return g->trained && s->options.reproducible ? (fsdp_tree_levels(s) - 1) * g->share : 0;
    case LOWS:
        return g->trained && s->plan.split16 ? g->share : 0;
    default:
        return g->trained && (s->options.shard != FSDP_OPTIMIZER || s->options.reproducible) ? g->share : 0;
    }
}

static nrl_dtype dtype_of(const fsdp *s, pool_kind kind)
{
    bool computes = kind == SHARDS_FROZEN || kind == WEIGHT_WHOLE || (kind == SHARDS_TRAINED && s->plan.split16);
    if (kind == GRADS) return fsdp_grad_dtype(s);
    return computes ? (nrl_dtype)s->plan.compute : kind == LOWS ? NRL_DTYPE_U16 : NRL_DTYPE_F32;
}

static nrl_status make_pools(fsdp *s, nrl_ctx *ctx, pools *p)
{
    for (int kind = 0; kind < N_POOLS; kind++) {
        int64_t n = 0;
        for (int32_t g = 0; g < s->n_groups; g++)
            n += wanted(s, &s->groups[g], (pool_kind)kind);
        NRL_TRY(make(s, ctx, dtype_of(s, (pool_kind)kind), n, kind != WEIGHT_WHOLE, &p->buffers[kind]));
    }
    return NRL_OK;
}

/* The group's part of a pool; stays NULL if the group has none. */
static nrl_status part_of(fsdp *s, nrl_ctx *ctx, pools *p, const fsdp_group *g, pool_kind kind, nrl_tensor **out)
{
    int64_t n = wanted(s, g, kind);
    if (!n) return NRL_OK;
    p->at[kind] += n;
    return look(s, ctx, p->buffers[kind], p->at[kind] - n, n, out);
}

static nrl_status part_of_slot(fsdp *s, nrl_ctx *ctx, const fsdp_slots *slots, int32_t slot, const fsdp_group *g,
                               nrl_tensor **out)
{
    return slot < 0 ? NRL_OK : look(s, ctx, slots->buffers[slot], 0, g->padded, out);
}

/* ---- a group's views ---- */

static nrl_status own_of(fsdp *s, nrl_ctx *ctx, const fsdp_group *g, nrl_tensor *whole, nrl_tensor **own)
{
    return whole ? look(s, ctx, whole, s->rank * g->share, g->share, own) : NRL_OK;
}

/* The shares that are received, and the levels of the tree. */
static nrl_status view_tree(fsdp *s, nrl_ctx *ctx, pools *p, fsdp_group *g)
{
    const int n_levels = fsdp_tree_levels(s);
    nrl_tensor *levels = NULL;
    g->parts = calloc((size_t)s->n_ranks, sizeof(nrl_tensor *));
    g->levels = calloc((size_t)n_levels, sizeof(nrl_tensor *));
    if (!g->parts || !g->levels) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
    for (int32_t r = 0; r < s->n_ranks; r++)
        NRL_TRY(look(s, ctx, g->wire, r * g->share, g->share, &g->parts[r]));
    NRL_TRY(part_of(s, ctx, p, g, LEVELS, &levels));
    g->levels[0] = g->grad;
    for (int i = 1; i < n_levels; i++)
        NRL_TRY(look(s, ctx, levels, (i - 1) * g->share, g->share, &g->levels[i]));
    return NRL_OK;
}

static nrl_status view_group(fsdp *s, nrl_ctx *ctx, pools *p, fsdp_group *g)
{
    NRL_TRY(part_of(s, ctx, p, g, g->trained ? SHARDS_TRAINED : SHARDS_FROZEN, &g->shard));
    NRL_TRY(part_of(s, ctx, p, g, WEIGHT_WHOLE, &g->work));
    NRL_TRY(part_of(s, ctx, p, g, ACC_WHOLE, &g->acc));
    NRL_TRY(part_of(s, ctx, p, g, GRADS, &g->grad));
    NRL_TRY(part_of(s, ctx, p, g, LOWS, &g->low));
    NRL_TRY(part_of_slot(s, ctx, &s->work_slots, g->work_slot, g, &g->work));
    NRL_TRY(part_of_slot(s, ctx, &s->acc_slots, g->acc_slot, g, &g->acc));
    NRL_TRY(part_of_slot(s, ctx, &s->wire_slots, g->wire_slot, g, &g->wire));
    NRL_TRY(own_of(s, ctx, g, g->work, &g->work_own));
    NRL_TRY(own_of(s, ctx, g, g->acc, &g->acc_own));
    NRL_TRY(own_of(s, ctx, g, g->wire, &g->wire_own));
    if (!g->shard)
        g->shard = g->work_own; /* WEIGHT of the same dtype and unsharded: MASTER, or HI16, is a range of
                                 * it */
    if (g->trained && !g->grad) g->grad = g->acc_own;
    return g->trained && s->options.reproducible ? view_tree(s, ctx, p, g) : NRL_OK;
}

static nrl_status view_param(fsdp *s, nrl_ctx *ctx, const fsdp_group *g, fsdp_param *p)
{
    int64_t n = nrl_param_numel(p->param), held = p->end - p->begin;
    int64_t at = held ? p->offset + p->begin - s->rank * g->share : 0;
    NRL_TRY(look(s, ctx, g->work, p->offset, n, &p->work));
    NRL_TRY(look(s, ctx, g->shard, at, held, &p->master));
    nrl_param_bind(p->param, g->low ? NRL_SLOT_HI16 : NRL_SLOT_MASTER, p->master);
    if (g->low) NRL_TRY(look(s, ctx, g->low, at, held, &p->low));
    if (g->low) nrl_param_bind(p->param, NRL_SLOT_LO16, p->low);
    if (g->work_slot < 0) nrl_param_bind(p->param, NRL_SLOT_WEIGHT, p->work);
    if (!g->trained) return NRL_OK;
    NRL_TRY(look(s, ctx, g->acc, p->offset, n, &p->acc));
    NRL_TRY(look(s, ctx, g->grad, at, held, &p->grad));
    nrl_param_bind(p->param, NRL_SLOT_GRAD_SHARD, p->grad);
    if (g->acc_slot < 0) nrl_param_bind(p->param, NRL_SLOT_GRAD, p->acc);
    nrl_param_set_grad_is_empty(p->param, true);
    return NRL_OK;
}

nrl_status fsdp_bind(void *self, nrl_ctx *ctx)
{
    fsdp *s = self;
    pools p = {0};
    if (s->idle) return NRL_OK;
    if (s->plan.train && s->options.reproducible && !nrl_ctx_host_memory(ctx))
        return nrl_fail(NRL_ERR_CONFIG, "reproducible: the host computes the norm of sharded gradients; expected a "
                                        "backend whose memory it can read, or parallel: ddp");
    NRL_TRY(make_slots(s, ctx, &s->work_slots, (nrl_dtype)s->plan.compute));
    NRL_TRY(make_slots(s, ctx, &s->acc_slots, NRL_DTYPE_F32));
    NRL_TRY(make_slots(s, ctx, &s->wire_slots, fsdp_wire_dtype(s)));
    NRL_TRY(make_pools(s, ctx, &p));
    for (int32_t g = 0; g < s->n_groups; g++) {
        NRL_TRY(view_group(s, ctx, &p, &s->groups[g]));
        for (int32_t i = 0; i < s->groups[g].n_params; i++)
            NRL_TRY(view_param(s, ctx, &s->groups[g], &s->groups[g].params[i]));
    }
    return NRL_OK;
}

static void forget(const fsdp_group *g)
{
    static const nrl_slot slots[] = {NRL_SLOT_WEIGHT,     NRL_SLOT_GRAD, NRL_SLOT_MASTER,
                                     NRL_SLOT_GRAD_SHARD, NRL_SLOT_HI16, NRL_SLOT_LO16};
    for (int32_t i = 0; i < g->n_params; i++)
        for (size_t k = 0; k < sizeof slots / sizeof *slots; k++)
            nrl_param_bind(g->params[i].param, slots[k], NULL);
}

/* Buffers outlive exchanges in flight, also after an error; the code that waited for the exchange reported the
 * error. */
void fsdp_unbind(void *self, nrl_ctx *ctx)
{
    fsdp *s = self;
    if (s->idle) return;
    (void)fsdp_gather_settle(s, ctx);
    (void)fsdp_reduce_settle(s, ctx);
    for (int32_t g = 0; g < s->n_groups; g++) {
        forget(&s->groups[g]);
        free(s->groups[g].parts);
        free(s->groups[g].levels);
        s->groups[g].parts = s->groups[g].levels = NULL;
    }
    for (int64_t i = s->n_tensors - 1; i >= 0; i--)
        nrl_tensor_free(ctx, s->tensors[i]);
    s->n_tensors = 0;
}
