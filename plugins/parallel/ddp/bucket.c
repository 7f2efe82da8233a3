/*
 * bucket.c - assigns gradients to buckets. Slots are sorted by when the backward makes their gradients
 * final: the last unit's first, a tied embedding with unit 0, and parameters that no unit uses at the
 * very end. A bucket ends where the next slot would exceed its capacity; the first bucket is small, so
 * that communication begins early. The assignment follows from the model and the options, and the
 * ranks compare a hash of it.
 */
#include "ddp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64 };

/* ---- the order ---- */

static bool uses(const nrl_unit_uses *unit, const nrl_param *p)
{
    for (int32_t i = 0; i < unit->n_uses; i++)
        if (unit->uses[i] == p) return true;
    return false;
}

static bool used_before(const nrl_parallel_plan *plan, int32_t unit, const nrl_param *p)
{
    for (int32_t u = 0; u < unit; u++)
        if (uses(&plan->units[u], p)) return true;
    return false;
}

static void add_slot(ddp *d, nrl_param *p, bool reached)
{
    if (!nrl_param_trained(p) || ddp_slot_of(d, p)) return;
    d->slots[d->n_slots++] = (ddp_slot){
        .param = p, .reached = reached, .low_rank = d->o.compress == DDP_POWERSGD && ddp_is_low_rank(&d->o, p)};
}

static void order_slots(ddp *d, const nrl_parallel_plan *plan)
{
    for (int32_t u = plan->n_units - 1; u >= 0; u--)
        for (int32_t i = 0; i < plan->units[u].n_uses; i++)
            if (!used_before(plan, u, plan->units[u].uses[i])) add_slot(d, plan->units[u].uses[i], true);
    for (int32_t i = 0; i < plan->n_params; i++)
        add_slot(d, plan->params[i], false);
}

ddp_slot *ddp_slot_of(ddp *d, const nrl_param *p)
{
    for (int32_t i = 0; i < d->n_slots; i++)
        if (d->slots[i].param == p) return &d->slots[i];
    return NULL;
}

/* ---- the buckets ---- */

static int64_t room_of(const ddp *d, const ddp_slot *s)
{
    int64_t align = ALIGN_BYTES / (int64_t)nrl_dtype_size(d->gradients);
    return (nrl_param_numel(s->param) + align - 1) / align * align;
}

/* Low-rank matrices come first, so that the rest is one range. */
static void place_slots(ddp *d, ddp_bucket *b)
{
    for (int low_rank = 1; low_rank >= 0; low_rank--)
        for (int32_t i = b->first; i < b->first + b->n_slots; i++) {
            if (d->slots[i].low_rank != low_rank) continue;
            d->slots[i].begin = b->n;
            b->n += room_of(d, &d->slots[i]);
        }
    int64_t shares = d->o.reproducible ? ALIGN_BYTES / 4 * d->size : 1; /* equal ones */
    b->n = (b->n + shares - 1) / shares * shares;
}

/* How ranks of other axes divide the parameter: not at all, by key/value heads, which several ranks may share, or in
 * parts of which each rank has its own. */
static int kind_of_division(nrl_param *p)
{
    bool divides = false;
    for (int k = 0; k < nrl_param_n_parts(p); k++)
        divides |= nrl_param_part(p, k)->layout.n_placements > 0;
    return !divides ? 0 : nrl_param_tp(p) == NRL_TP_KEY_VALUE ? 1 : 2;
}

/* Ranks that have the same gradient of a parameter must send the same elements of it. What topk and threshold select
 * depends on the rest of the bucket, so that must be the same on these ranks too. */
static bool must_part(const ddp *d, int32_t i)
{
    const bool selects = d->o.compress == DDP_TOPK || d->o.compress == DDP_THRESHOLD;
    return selects && i && kind_of_division(d->slots[i].param) != kind_of_division(d->slots[i - 1].param);
}

static void cut_buckets(ddp *d)
{
    double bytes = 0;
    ddp_bucket *b = NULL;
    for (int32_t i = 0; i < d->n_slots; i++) {
        double first = d->o.first_bucket_mb * MIB;
        double cap = d->n_buckets > 1 || first > d->bucket_bytes ? d->bucket_bytes : first;
        double more = (double)room_of(d, &d->slots[i]) * (double)nrl_dtype_size(d->gradients);
        bool last_of_reached = i && d->slots[i - 1].reached && !d->slots[i].reached;
        if (!b || last_of_reached || must_part(d, i) || bytes + more > cap) {
            b = &d->buckets[d->n_buckets];
            *b = (ddp_bucket){.first = i};
            snprintf(b->what, sizeof b->what, "bucket %d", d->n_buckets++);
            bytes = 0;
        }
        d->slots[i].bucket = d->n_buckets - 1;
        b->n_slots++;
        bytes += more;
    }
    for (int32_t k = 0; k < d->n_buckets; k++) {
        d->buckets[k].n_pending = d->buckets[k].n_slots;
        place_slots(d, &d->buckets[k]);
    }
}

nrl_status ddp_bucket_plan(ddp *d, const nrl_parallel_plan *plan)
{
    size_t n = plan->n_params > 0 ? (size_t)plan->n_params : 1;
    d->slots = calloc(n, sizeof *d->slots);
    d->buckets = calloc(n, sizeof *d->buckets);
    if (!d->slots || !d->buckets) return nrl_fail(NRL_ERR_MEMORY, "out of memory for %zu slots", n);
    order_slots(d, plan);
    cut_buckets(d);
    return NRL_OK;
}

/* ---- the same on all ranks ---- */

static uint64_t mix(uint64_t h, const void *bytes, size_t n) /* FNV-1a */
{
    for (size_t i = 0; i < n; i++)
        /* The analyzer does not follow the bytes of numbers. NOLINTNEXTLINE(clang-analyzer-core.*) */
        h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return h;
}

/* 53 bits: the hash is compared as a double. Options are hashed field by field because padding bytes are undefined. */
static int64_t hash_of(const ddp *d)
{
    const ddp_options *o = &d->o;
    uint64_t h = 14695981039346656037u;
    double words[] = {(double)o->compress,
                      (double)o->error_feedback,
                      (double)o->powersgd_rank,
                      (double)o->start_step,
                      (double)o->powersgd_warm_start,
                      o->topk_ratio,
                      o->threshold_value,
                      (double)o->unused,
                      (double)o->reproducible};
    h = mix(h, words, sizeof words);
    for (int32_t i = 0; i < d->n_slots; i++) {
        const ddp_slot *s = &d->slots[i];
        const int64_t place[] = {nrl_param_numel(s->param), s->begin, s->bucket, s->low_rank};
        h = mix(h, nrl_param_name(s->param), strlen(nrl_param_name(s->param)));
        h = mix(h, place, sizeof place);
    }
    return (int64_t)(h & ((UINT64_C(1) << 53) - 1));
}

static nrl_status gather_hashes(ddp *d, nrl_ctx *ctx, double *all)
{
    const int64_t one = 1, size = d->size, mine = hash_of(d);
    nrl_tensor *send, *receive;
    nrl_work *work = NULL;
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_I64, 1, &one, &mine, &send));
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_I64, 1, &size, &receive));
    nrl_comm_call call = {.size = sizeof call, .send = send, .receive = receive, .what = "order of buckets"};
    NRL_TRY(nrl_comm_all_gather(d->comm, ctx, &call, &work));
    NRL_TRY(nrl_work_wait(&work, ctx));
    return nrl_tensor_fetch(ctx, receive, all, size);
}

static nrl_status agree(ddp *d, nrl_ctx *ctx)
{
    double *all = calloc((size_t)d->size, sizeof *all);
    if (!all) return nrl_fail(NRL_ERR_MEMORY, "out of memory for %d ranks", d->size);
    nrl_scope_begin(ctx);
    nrl_status st = gather_hashes(d, ctx, all);
    nrl_scope_end(ctx);
    for (int32_t r = 1; r < d->size && st == NRL_OK; r++)
        if (all[r] != all[0])
            st = nrl_fail(NRL_ERR_CONFIG,
                          "ranks 0 and %d differ in the order of gradients or in the options of 'ddp'; expected "
                          "the same model and config everywhere",
                          r);
    free(all);
    return st;
}

/* ---- memory ---- */

nrl_status ddp_tensor(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, nrl_tensor **out)
{
    bool fills = dtype == NRL_DTYPE_F32 || dtype == NRL_DTYPE_BF16; /* a backend need not support fill for other
                                                                     * dtypes */
    NRL_TRY(nrl_tensor_persistent(ctx, dtype, n, fills, out));
    if (!fills && nrl_ctx_host_memory(ctx)) memset(nrl_tensor_mat(*out).data, 0, (size_t)n * nrl_dtype_size(dtype));
    return NRL_OK;
}

static nrl_status bind_bucket(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    NRL_TRY(nrl_comm_tensor(d->comm, ctx, d->gradients, b->n, true, &b->grads));
    for (int32_t i = b->first; i < b->first + b->n_slots; i++) {
        ddp_slot *s = &d->slots[i];
        NRL_TRY(nrl_tensor_slice(ctx, b->grads, s->begin, nrl_param_numel(s->param), &s->view));
        if (d->gradients == NRL_DTYPE_F32) nrl_param_bind(s->param, NRL_SLOT_GRAD, s->view);
        nrl_param_bind(s->param, NRL_SLOT_GRAD_SHARD, s->view);
        nrl_param_set_grad_is_empty(s->param, true);
    }
    return d->codec->bind ? d->codec->bind(d, ctx, b) : NRL_OK;
}

nrl_status ddp_bucket_bind(ddp *d, nrl_ctx *ctx)
{
    NRL_TRY(agree(d, ctx));
    for (int32_t k = 0; k < d->n_buckets; k++)
        NRL_TRY(bind_bucket(d, ctx, &d->buckets[k]));
    return NRL_OK;
}

void ddp_bucket_unbind(ddp *d, nrl_ctx *ctx)
{
    for (int32_t k = 0; k < d->n_buckets; k++) {
        ddp_bucket *b = &d->buckets[k];
        for (int w = 0; w < 2; w++)
            (void)nrl_work_wait(&b->work[w], ctx); /* the buffers must stay alive until then */
        if (d->codec->unbind) d->codec->unbind(d, ctx, b);
        for (int32_t i = b->first; i < b->first + b->n_slots; i++) {
            ddp_slot *s = &d->slots[i];
            if (!s->view) continue;
            nrl_param_bind(s->param, NRL_SLOT_GRAD, NULL);
            nrl_param_bind(s->param, NRL_SLOT_GRAD_SHARD, NULL);
            nrl_tensor_free(ctx, s->view);
            s->view = NULL;
        }
        nrl_tensor_free(ctx, b->grads);
        b->grads = NULL;
    }
}
