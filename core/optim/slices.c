/*
 * slices.c - builds the slices of nrl/optimizer.h from the parameters' slots, and updates them. For an optimizer that
 * supports f32 only, other encodings are converted to f32 and back.
 */
#include "optim/slices.h"
#include "tensor/ctx.h"
#include "tensor/device/backend_call.h"
#include "tensor/split16.h"
#include <math.h>

static nrl_tensor *first_bound(const nrl_param *p, nrl_slot wanted, nrl_slot otherwise)
{
    nrl_tensor *t = nrl_param_tensor(p, wanted);
    return t ? t : nrl_param_tensor(p, otherwise);
}

static nrl_status check_operand(const nrl_slice *s, const char *slot, const nrl_tensor *t)
{
    if (!t) return nrl_fail(NRL_ERR_BUG, "parameter '%s' is trained but has no %s", nrl_param_name(s->param), slot);
    if (nrl_tensor_numel(t) != s->n)
        return nrl_fail(NRL_ERR_BUG, "%s of parameter '%s' has %lld elements, expected %lld", slot,
                        nrl_param_name(s->param), (long long)nrl_tensor_numel(t), (long long)s->n);
    return NRL_OK;
}

nrl_status slices_fill(nrl_param *p, uint32_t n_states, nrl_slice *s)
{
    static const char *const names[] = {"first state", "second state", "third state", "fourth state"};
    *s = (nrl_slice){.param = p, .decay = nrl_param_decays(p)};
    nrl_tensor *work = nrl_param_tensor(p, NRL_SLOT_WEIGHT);
    s->low = nrl_param_tensor(p, NRL_SLOT_LO16);
    s->master = s->low ? NULL : first_bound(p, NRL_SLOT_MASTER, NRL_SLOT_WEIGHT);
    s->grad = first_bound(p, NRL_SLOT_GRAD_SHARD, NRL_SLOT_GRAD);
    s->n = param_exact_numel(p);
    NRL_TRY(check_operand(s, "master", s->low ? s->low : s->master));
    NRL_TRY(check_operand(s, "gradient", s->grad));
    for (uint32_t k = 0; k < n_states; k++) {
        s->states[k] = nrl_param_tensor(p, (nrl_slot)(NRL_SLOT_STATE0 + k));
        NRL_TRY(check_operand(s, names[k], s->states[k]));
    }
    if (s->low) {
        s->work = nrl_param_tensor(p, NRL_SLOT_HI16);
        return check_operand(s, "upper halves", s->work);
    }
    /* The update writes an unsharded WEIGHT of another dtype; a strategy that shards MASTER gathers WEIGHT itself. */
    if (work && work != s->master && nrl_tensor_numel(work) == s->n &&
        nrl_tensor_mat(work).data != nrl_tensor_mat(s->master).data)
        s->work = work;
    return NRL_OK;
}

nrl_status slices_build(const model *m, const nrl_mesh *mesh, uint32_t n_states, arena *a, nrl_slice **out, int64_t *n)
{
    NRL_ASSERT(n_states, <=, NRL_MAX_STATES);
    *out = arena_alloc(a, (size_t)(m->n_params > 0 ? m->n_params : 1) * sizeof **out);
    *n = 0;
    for (int32_t i = 0; i < m->n_params; i++) {
        if (!nrl_param_trained(m->params[i]) || !layout_local_numel(mesh, m->params[i])) continue;
        NRL_TRY(slices_fill(m->params[i], n_states, &(*out)[*n]));
        (*n)++;
    }
    return NRL_OK;
}

/* ---- updates ---- */

static bool is_encoded(const nrl_slice *s)
{
    return s->low || nrl_tensor_dtype(s->grad) != NRL_DTYPE_F32;
}

/* Copies the slice with f32 tensors in place of encoded ones, allocated in the current scope. */
static nrl_status widen(nrl_ctx *ctx, const nrl_slice *from, nrl_slice *wide)
{
    *wide = *from;
    if (nrl_tensor_dtype(from->grad) != NRL_DTYPE_F32) {
        NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &from->n, &wide->grad));
        NRL_TRY(nrl_tensor_copy(ctx, from->grad, wide->grad));
    }
    if (!from->low) return NRL_OK;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &from->n, &wide->master));
    wide->work = wide->low = NULL;
    return split16_join(ctx, from->work, from->low, wide->master);
}

typedef nrl_status slices_member(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step);

static nrl_status call_wide(nrl_ctx *ctx, slices_member *call, void *self, nrl_slice *slice,
                            const nrl_step_params *step)
{
    nrl_slice wide;
    if (!is_encoded(slice)) return call(self, ctx, slice, 1, step);
    NRL_TRY(widen(ctx, slice, &wide));
    NRL_TRY(call(self, ctx, &wide, 1, step));
    return slice->low ? split16_split(ctx, wide.master, slice->work, slice->low) : NRL_OK;
}

nrl_status slices_update(nrl_ctx *ctx, const nrl_optimizer *table, void *self, nrl_slice *slice,
                         const nrl_step_params *block)
{
    return table->encoded ? table->update(self, ctx, slice, 1, block)
                          : call_wide(ctx, table->update, self, slice, block);
}

nrl_status slices_perturb(nrl_ctx *ctx, const nrl_optimizer *table, void *self, nrl_slice *slices, int64_t n,
                          const nrl_step_params *step, nrl_tensor **kept)
{
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < n && st == NRL_OK; i++) {
        nrl_slice *s = &slices[i];
        NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, 1, &s->n, false, &kept[i]));
        st = s->low ? split16_join(ctx, s->work, s->low, kept[i]) : nrl_tensor_copy(ctx, s->master, kept[i]);
        ctx_scope_begin(ctx); /* temporaries of one slice at a time */
        if (st == NRL_OK) st = call_wide(ctx, table->perturb, self, s, step);
        ctx_scope_end(ctx);
    }
    slices_touch(slices, n);
    return st;
}

nrl_status slices_copy(nrl_ctx *ctx, const nrl_slice *s, nrl_tensor **before)
{
    *before = NULL;
    nrl_status st = nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &s->n, before);
    if (st == NRL_ERR_MEMORY) return NRL_OK;
    if (st == NRL_OK)
        st = s->low ? split16_join(ctx, s->work, s->low, *before) : nrl_tensor_copy(ctx, s->master, *before);
    return st;
}

nrl_status slices_moved(nrl_ctx *ctx, const nrl_slice *s, nrl_tensor *before, double *square_sum)
{
    nrl_tensor *now = s->master, *sum;
    double value = NAN;
    const int64_t one = 1, n = s->n;
    if (before && s->low) NRL_TRY(slices_copy(ctx, s, &now));
    if (before && now) {
        const nrl_mat difference = {nrl_tensor_mat(before).data, NRL_DTYPE_F32, 0, 1, n, n};
        const nrl_mat master = {nrl_tensor_mat(now).data, nrl_tensor_dtype(now), 0, 1, n, n};
        NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F64, 1, &one, &sum));
        NRL_TRY(backend_copy(
            ctx, &(nrl_copy_args){
                     .size = sizeof(nrl_copy_args), .accumulate = true, .x = master, .y = difference, .alpha = -1}));
        NRL_TRY(backend_square_sum(ctx, &(nrl_square_sum_args){.size = sizeof(nrl_square_sum_args),
                                                               .overwrite = true,
                                                               .out = nrl_tensor_mat(sum).data,
                                                               .x = difference}));
        NRL_TRY(nrl_tensor_fetch(ctx, sum, &value, 1));
    }
    *square_sum += value;
    return NRL_OK;
}

nrl_status slices_restore(nrl_ctx *ctx, nrl_slice *slices, int64_t n, nrl_tensor **kept)
{
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < n; i++) {
        nrl_slice *s = &slices[i];
        if (kept[i] && st == NRL_OK)
            st = s->low ? split16_split(ctx, kept[i], s->work, s->low) : nrl_tensor_copy(ctx, kept[i], s->master);
        if (kept[i] && st == NRL_OK && !s->low && s->work) st = nrl_master_round(ctx, s->master, s->work);
        tensor_release(ctx, kept[i]);
    }
    slices_touch(slices, n);
    return st;
}

void slices_touch(nrl_slice *slices, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        nrl_param_touch(slices[i].param);
}
