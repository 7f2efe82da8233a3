/*
 * hold.c - while texts are generated, groups that share a slot get buffers of their own, so that each
 * is gathered once and not for every token. The largest group of a slot keeps it.
 */
#include "fsdp.h"

enum { LEAST_ROOM = 256 << 20 }; /* bytes */

/* Exchanges the buffer of a group's WEIGHT with the other one, between two uses. */
static void swap(fsdp_group *g)
{
    nrl_tensor *work = g->work, *own = g->work_own;
    g->work = g->other_work;
    g->work_own = g->other_own;
    g->other_work = work;
    g->other_own = own;
    for (int32_t i = 0; i < g->n_params; i++) {
        fsdp_param *p = &g->params[i];
        nrl_tensor *view = p->work;
        p->work = p->other_work;
        p->other_work = view;
    }
}

static bool keeps_slot(const fsdp *s, const fsdp_group *g)
{
    for (const fsdp_group *other = s->groups; other < s->groups + s->n_groups; other++) {
        if (other->work_slot != g->work_slot || other == g) continue;
        if (other->padded > g->padded || (other->padded == g->padded && other < g)) return false;
    }
    return true;
}

static nrl_status make_buffer(const fsdp *s, nrl_ctx *ctx, fsdp_group *g)
{
    NRL_TRY(nrl_tensor_persistent(ctx, (nrl_dtype)s->plan.compute, g->padded, true, &g->other_work));
    NRL_TRY(nrl_tensor_slice(ctx, g->other_work, s->rank * g->share, g->share, &g->other_own));
    for (int32_t i = 0; i < g->n_params; i++) {
        fsdp_param *p = &g->params[i];
        NRL_TRY(nrl_tensor_slice(ctx, g->other_work, p->offset, nrl_param_numel(p->param), &p->other_work));
    }
    return NRL_OK;
}

static void free_buffer(nrl_ctx *ctx, fsdp_group *g)
{
    for (int32_t i = 0; i < g->n_params; i++) {
        nrl_tensor_free(ctx, g->params[i].other_work);
        g->params[i].other_work = NULL;
    }
    nrl_tensor_free(ctx, g->other_own);
    nrl_tensor_free(ctx, g->other_work);
    g->other_own = g->other_work = NULL;
}

/* NRL_ERR_MEMORY unless as much again as these n elements, and no less than LEAST_ROOM, is free for what is generated.
 * A host may promise more memory than it has, so its free memory is compared first, for all of its ranks. */
static nrl_status make_buffers(const fsdp *s, nrl_ctx *ctx, int64_t n)
{
    const int64_t size = (int64_t)nrl_dtype_size((nrl_dtype)s->plan.compute), least = LEAST_ROOM / size;
    const int64_t n_room = n > least ? n : least;
    int64_t total, left = -1;
    nrl_tensor *room;
    if (nrl_ctx_host_memory(ctx)) nrl_host_memory(&total, &left);
    if (left >= 0 && (n + n_room) * size > left / nrl_mesh_local_world(s->mesh)) return NRL_ERR_MEMORY;
    for (int32_t k = 0; k < s->n_groups; k++)
        if (!keeps_slot(s, &s->groups[k])) NRL_TRY(make_buffer(s, ctx, &s->groups[k]));
    NRL_TRY(nrl_tensor_persistent(ctx, (nrl_dtype)s->plan.compute, n_room, false, &room));
    nrl_tensor_free(ctx, room);
    return NRL_OK;
}

/* Whether every rank of a copy of the model has made its buffers: all of them gather together. */
static nrl_status agree(const fsdp *s, nrl_ctx *ctx, bool mine, bool *all)
{
    const float ready = mine;
    double least;
    nrl_tensor *t;
    nrl_work *work;
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, (int64_t[]){1}, &ready, &t));
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_MIN, .receive = t, .what = "room for weights"};
    NRL_TRY(nrl_comm_all_reduce(s->comm, ctx, &call, &work));
    NRL_TRY(nrl_work_wait(&work, ctx));
    NRL_TRY(nrl_tensor_fetch(ctx, t, &least, 1));
    *all = least > 0;
    return NRL_OK;
}

static nrl_status begin_hold(fsdp *s, nrl_ctx *ctx)
{
    int64_t n = 0;
    for (int32_t k = 0; k < s->n_groups; k++)
        n += keeps_slot(s, &s->groups[k]) ? 0 : s->groups[k].padded;
    if (!n) return NRL_OK; /* everything stays in the slots as it is */
    nrl_status made = make_buffers(s, ctx, n);
    if (made != NRL_OK && made != NRL_ERR_MEMORY) return made;
    nrl_scope_begin(ctx);
    nrl_status st = agree(s, ctx, made == NRL_OK, &s->holds);
    nrl_scope_end(ctx);
    NRL_TRY(st);
    if (s->holds) {
        NRL_TRY(fsdp_gather_drop(s, ctx));
        for (int32_t k = 0; k < s->n_groups; k++)
            if (s->groups[k].other_work) swap(&s->groups[k]);
        return NRL_OK;
    }
    if (!s->plan.quiet && !s->is_reported)
        nrl_warn("fsdp: generation gathers each unit for each token, because a rank does not have the memory to keep "
                 "the gathered weights: %.1f MiB, and at least %d MiB for the texts",
                 (double)(n * (int64_t)nrl_dtype_size((nrl_dtype)s->plan.compute)) / (1 << 20), LEAST_ROOM >> 20);
    s->is_reported = true;
    return NRL_OK;
}

nrl_status fsdp_hold(void *self, nrl_ctx *ctx, bool begin)
{
    fsdp *s = self;
    if (s->idle || s->options.shard != FSDP_FULL) return NRL_OK;
    if (begin) {
        nrl_status st = begin_hold(s, ctx);
        if (st == NRL_OK && s->holds) return NRL_OK;
        for (int32_t k = 0; k < s->n_groups && !s->holds; k++)
            free_buffer(ctx, &s->groups[k]);
        return st;
    }
    if (!s->holds) return NRL_OK;
    nrl_status st = fsdp_gather_drop(s, ctx);
    if (st != NRL_OK) (void)fsdp_gather_settle(s, ctx); /* buffers outlive exchanges in flight */
    for (int32_t k = 0; k < s->n_groups; k++)
        if (s->groups[k].other_work) {
            swap(&s->groups[k]);
            free_buffer(ctx, &s->groups[k]);
        }
    s->holds = false;
    return st;
}
