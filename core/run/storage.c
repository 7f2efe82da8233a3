/*
 * storage.c - whole tensors for one rank. A strategy that shards binds its own slices instead and
 * uses none of this but the sources.
 */
#include "run/storage.h"
#include <stdlib.h>

enum {
    CHUNK = 1 << 20,    /* f32 elements moved at a time */
    ALIGN_ELEMENTS = 32 /* 64 bytes of bf16 */
};

/* Parameters begin at multiples of 64 bytes of the narrowest dtype inside a slot's buffer. */
static int64_t room_of(const nrl_param *p)
{
    return (p->numel + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

static void keep(storage *s, nrl_tensor *t)
{
    s->tensors = mem_realloc(s->tensors, (s->n + 1) * sizeof *s->tensors);
    s->tensors[s->n++] = t;
}

/* One buffer for a slot of all parameters (or the trained ones), and a flat view of it a parameter:
 * a buffer each would round every matrix up to whole huge pages. */
static nrl_status bind_slot(nrl_ctx *ctx, model *m, nrl_slot slot, nrl_dtype dtype, bool trained_only,
                            bool zero, storage *s)
{
    int64_t total = 0, at = 0;
    nrl_tensor *buffer, *view;
    for (int32_t i = 0; i < m->n_params; i++)
        if (m->params[i]->trained || !trained_only) total += room_of(m->params[i]);
    if (!total) return NRL_OK;
    NRL_TRY(tensor_persistent(ctx, dtype, 1, &total, zero, &buffer));
    keep(s, buffer);
    for (int32_t i = 0; i < m->n_params; i++) {
        nrl_param *p = m->params[i];
        if (!p->trained && trained_only) continue;
        NRL_TRY(tensor_flat_view(ctx, buffer, at, p->numel, &view));
        keep(s, view);
        nrl_param_bind(p, slot, view);
        at += room_of(p);
    }
    return NRL_OK;
}

static nrl_status bind_trained(nrl_ctx *ctx, model *m, nrl_dtype compute, uint32_t n_states, storage *s)
{
    NRL_TRY(bind_slot(ctx, m, NRL_SLOT_GRAD_ACC, NRL_DTYPE_F32, true, false, s));
    if (compute != NRL_DTYPE_F32) NRL_TRY(bind_slot(ctx, m, NRL_SLOT_MASTER, NRL_DTYPE_F32, true, false, s));
    for (uint32_t k = 0; k < n_states; k++)
        NRL_TRY(bind_slot(ctx, m, (nrl_slot)(NRL_SLOT_STATE0 + k), NRL_DTYPE_F32, true, true, s));
    for (int32_t i = 0; i < m->n_params; i++) {
        nrl_param *p = m->params[i];
        if (!p->trained) continue;
        nrl_param_bind(p, NRL_SLOT_GRAD, nrl_param_tensor(p, NRL_SLOT_GRAD_ACC));
        nrl_param_set_fresh(p, true);
        if (compute == NRL_DTYPE_F32) nrl_param_bind(p, NRL_SLOT_MASTER, nrl_param_tensor(p, NRL_SLOT_WORK));
    }
    return NRL_OK;
}

nrl_status storage_bind(nrl_ctx *ctx, model *m, nrl_dtype compute, bool train, uint32_t n_states,
                        storage *out)
{
    storage_plan(m, compute, train, n_states, out);
    nrl_status st = bind_slot(ctx, m, NRL_SLOT_WORK, compute, false, false, out);
    if (st == NRL_OK && train) st = bind_trained(ctx, m, compute, n_states, out);
    if (st != NRL_OK) nrl_note("memory of '%s'", m->type);
    return st;
}

void storage_plan(const model *m, nrl_dtype compute, bool train, uint32_t n_states, storage *out)
{
    const int64_t full = (int64_t)sizeof(float);
    out->work_bytes = out->master_bytes = out->gradient_bytes = out->state_bytes = 0;
    for (int32_t i = 0; i < m->n_params; i++) {
        int64_t n = m->params[i]->numel;
        out->work_bytes += n * (int64_t)nrl_dtype_size(compute);
        if (!train || !m->params[i]->trained) continue;
        out->gradient_bytes += n * full;
        if (compute != NRL_DTYPE_F32) out->master_bytes += n * full;
        out->state_bytes += n_states * n * full;
    }
}

void storage_free(nrl_ctx *ctx, model *m, storage *s)
{
    for (int32_t i = 0; m && i < m->n_params; i++)
        for (int slot = NRL_SLOT_WORK; slot < NRL_SLOT_COUNT; slot++)
            nrl_param_bind(m->params[i], (nrl_slot)slot, NULL);
    for (size_t i = 0; i < s->n; i++) tensor_release(ctx, s->tensors[i]);
    free(s->tensors);
    *s = (storage){0};
}

static nrl_tensor *full_precision(const nrl_param *p)
{
    nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER);
    return master ? master : nrl_param_tensor(p, NRL_SLOT_WORK);
}

/* Elements [begin, begin+n) of a contiguous tensor as one row. */
static nrl_mat stretch(const nrl_tensor *t, int64_t begin, int64_t n)
{
    nrl_mat m = nrl_tensor_mat(t);
    m.data = (char *)m.data + begin * (int64_t)nrl_dtype_size(m.dtype);
    m.rows = 1;
    m.cols = m.stride = n;
    return m;
}

/* f32 values to a tensor of any dtype, through `scratch` on the device where they must be rounded. */
static nrl_status put(nrl_ctx *ctx, nrl_tensor *t, int64_t begin, int64_t n, const float *values,
                      nrl_tensor *scratch)
{
    device *d = ctx_device(ctx);
    bool direct = nrl_tensor_dtype(t) == NRL_DTYPE_F32;
    nrl_mat to = stretch(t, begin, n), at = direct ? to : stretch(scratch, 0, n);
    NRL_TRY(d->table.copy(d->self, NULL, at.data, values, (size_t)n * sizeof(float),
                          NRL_COPY_TO_DEVICE));
    if (direct) return NRL_OK;
    nrl_copy_args a = {.size = sizeof a, .x = at, .y = to, .alpha = 1};
    return d->ops.copy(d->self, NULL, &a);
}

nrl_status storage_refresh(nrl_ctx *ctx, nrl_param *p)
{
    nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER), *work = nrl_param_tensor(p, NRL_SLOT_WORK);
    device *d = ctx_device(ctx);
    nrl_param_touch(p);
    if (!master || master == work) return NRL_OK;
    nrl_copy_args a = {.size = sizeof a,
                       .x = stretch(master, 0, p->numel),
                       .y = stretch(work, 0, p->numel),
                       .alpha = 1};
    return d->ops.copy(d->self, NULL, &a);
}

static nrl_status load_param(nrl_ctx *ctx, nrl_param *p, hf_source source, void *user, float *buffer,
                             nrl_tensor *scratch)
{
    for (int64_t begin = 0; begin < p->numel; begin += CHUNK) {
        int64_t n = p->numel - begin < CHUNK ? p->numel - begin : CHUNK;
        NRL_TRY(source(user, p, begin, n, buffer));
        NRL_TRY(put(ctx, full_precision(p), begin, n, buffer, scratch));
    }
    return storage_refresh(ctx, p);
}

static int64_t largest(const model *m)
{
    int64_t n = 1;
    for (int32_t i = 0; i < m->n_params; i++)
        if (m->params[i]->numel > n) n = m->params[i]->numel;
    return n < CHUNK ? n : CHUNK;
}

nrl_status storage_load(nrl_ctx *ctx, model *m, hf_source source, void *user)
{
    nrl_tensor *scratch;
    int64_t room = largest(m);
    NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, 1, &room, false, &scratch));
    float *buffer = mem_alloc((size_t)room * sizeof *buffer);
    nrl_status st = NRL_OK;
    for (int32_t i = 0; i < m->n_params && st == NRL_OK; i++)
        st = load_param(ctx, m->params[i], source, user, buffer, scratch);
    free(buffer);
    tensor_release(ctx, scratch);
    return st;
}

nrl_status storage_source(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    nrl_ctx *ctx = user;
    device *d = ctx_device(ctx);
    nrl_mat from = stretch(full_precision(p), begin, n);
    if (from.dtype == NRL_DTYPE_F32)
        return d->table.copy(d->self, NULL, out, from.data, (size_t)n * sizeof *out, NRL_COPY_TO_HOST);
    nrl_tensor *wide;
    NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, 1, &n, false, &wide));
    nrl_mat to = stretch(wide, 0, n);
    nrl_copy_args a = {.size = sizeof a, .x = from, .y = to, .alpha = 1};
    nrl_status st = d->ops.copy(d->self, NULL, &a);
    if (st == NRL_OK)
        st = d->table.copy(d->self, NULL, out, to.data, (size_t)n * sizeof *out, NRL_COPY_TO_HOST);
    tensor_release(ctx, wide);
    return st;
}

nrl_status storage_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    const storage_origin *o = user;
    if (o->weights) return hf_weights_read(o->weights, o->m, p, begin, n, out);
    model_init_values(p, o->seed, begin, n, out);
    return NRL_OK;
}
