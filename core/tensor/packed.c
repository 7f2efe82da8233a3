/*
 * packed.c - see packed.h.
 */
#include "tensor/packed.h"
#include "tensor/internal.h"

quantized_layout param_packed_layout(const nrl_param *w)
{
    return quantize_layout(w->packing->kind, w->numel, w->dims[1], w->numel == w->whole);
}

static nrl_mat array(const nrl_tensor *store, int64_t at, nrl_dtype dtype, int64_t n)
{
    return (nrl_mat){n ? (char *)store->data + at : NULL, (uint32_t)dtype, 0, 1, n, n};
}

nrl_status param_unpack(nrl_ctx *ctx, const nrl_param *w, nrl_tensor **temporary, nrl_mat *mat)
{
    *temporary = NULL;
    if (!w->packing) return param_work(w, mat);
    const nrl_tensor *store = w->packing->store->slots[NRL_SLOT_WEIGHT];
    const quantized_layout p = param_packed_layout(w);
    if (!store || !store->data) return nrl_fail(NRL_ERR_BUG, "parameter '%s' has no storage", w->name);
    NRL_TRY(tensor_persistent(ctx, ctx->settings.compute, 2, w->dims, false, temporary));
    *mat = tensor_mat(*temporary);
    nrl_dequantize_args a = {.size = sizeof a,
                             .x = {mat->data, mat->dtype, 0, 1, w->numel, w->numel},
                             .q = array(store, p.q, NRL_DTYPE_U8, quantize_bytes(w->packing->kind, w->numel)),
                             .scale = array(store, p.scales, p.nested ? NRL_DTYPE_U8 : NRL_DTYPE_F32, p.n_scales),
                             .code = array(store, p.codes, NRL_DTYPE_F32, p.n_codes),
                             .nested = array(store, p.nests, NRL_DTYPE_F32, p.n_nested),
                             .nested_code = array(store, p.nested_codes, NRL_DTYPE_F32, p.nested ? QUANTIZE_CODES : 0),
                             .offset = array(store, p.offset, NRL_DTYPE_F32, p.nested),
                             .block = p.block};
    nrl_status st = backend_dequantize(ctx, &a);
    if (st != NRL_OK) tensor_release(ctx, *temporary);
    return st;
}
