/*
 * head_chunk.c - forward and backward of the head for one chunk of target positions.
 *
 * Complete logits [P,V] would be the largest tensor of a step by far, so R rows at a time are computed, used and
 * overwritten. The logits of the first chunks may be kept for the backward, up to a limit; the products of a chunk are
 * the same in both cases, so results do not depend on the limit. The head's scale needs no pass of its own, because
 * scale * cap' * tanh(z / cap') with cap' = cap / scale is cap * tanh(scale z / cap): it is part of cap and
 * temperature.
 */
#include "tensor/head/head.h"

enum {
    CHUNK_BYTES = 32 << 20, /* logits of a chunk, at least: large products, small compared to activations */
    CHUNK_MOST = 1 << 30,   /* at most */
    CHUNK_SHARE = 128,      /* a device with its own memory uses this fraction of it: each chunk reads and writes the */
                            /* whole gradient of the head, so chunks must be few */
    CHUNK_MIN_ROWS = 128,   /* with fewer rows the products are bound by reading the weight */
    CHUNK_STEP = 16,        /* rows of a tile */
    PITCH_STEP = 64         /* elements: aligns rows of odd vocabularies to 128 bytes */
};

nrl_dtype head_dtype(const nrl_ctx *ctx, const nrl_tensor *hidden)
{
    return ctx->settings.logits == hidden->dtype ? ctx->settings.logits : NRL_DTYPE_F32;
}

/* Divides the rows into equal chunks of at most the wanted size. */
static int64_t chunk_rows(const nrl_ctx *ctx, nrl_dtype dtype, int64_t n_rows, int64_t vocab)
{
    int64_t most = ctx->settings.head_chunk_rows;
    if (!most) {
        const nrl_device_info *info = &ctx->device->info;
        int64_t share = info->host_memory ? 0 : info->memory_bytes / CHUNK_SHARE;
        int64_t bytes = share < CHUNK_BYTES ? CHUNK_BYTES : share < CHUNK_MOST ? share : CHUNK_MOST;
        most = bytes / ((int64_t)nrl_dtype_size(dtype) * vocab) / CHUNK_STEP * CHUNK_STEP;
        if (most < CHUNK_MIN_ROWS) most = CHUNK_MIN_ROWS;
    }
    if (n_rows <= most) return n_rows;
    int64_t n_chunks = (n_rows + most - 1) / most;
    int64_t rows = (n_rows + n_chunks - 1) / n_chunks;
    rows = (rows + CHUNK_STEP - 1) / CHUNK_STEP * CHUNK_STEP;
    return rows < most ? rows : most;
}

int64_t head_pitch(const nrl_ctx *ctx, int64_t vocab)
{
    bool exact = ctx->device->info.host_memory || ctx->settings.head_chunk_rows;
    return exact ? vocab : (vocab + PITCH_STEP - 1) / PITCH_STEP * PITCH_STEP;
}

int64_t head_kept_rows(const nrl_ctx *ctx, nrl_dtype dtype, int64_t n_rows, int64_t vocab)
{
    int64_t rows = ctx->settings.head_keep_bytes / ((int64_t)nrl_dtype_size(dtype) * vocab);
    int64_t chunk = chunk_rows(ctx, dtype, n_rows, vocab);
    return rows >= n_rows ? n_rows : rows / chunk * chunk;
}

nrl_status head_open(nrl_ctx *ctx, const head_spec *spec, nrl_tensor *hidden, nrl_dtype dtype, const nrl_tensor *index,
                     const nrl_tensor *target, double temperature, nrl_tensor *kept, head_work *w)
{
    const nrl_param *weight = spec->weight, *bias = spec->bias;
    if (weight->n_dims != 2 || weight->dims[1] != hidden->cols)
        return nrl_fail(NRL_ERR_BUG, "head: hidden is %s, weight '%s' is %s", tensor_shape(hidden).text, weight->name,
                        dims_shape(weight->n_dims, weight->dims).text);
    if (bias && bias->numel != weight->dims[0])
        return nrl_fail(NRL_ERR_BUG, "head: weight '%s' is %s, bias '%s' is %s", weight->name,
                        dims_shape(weight->n_dims, weight->dims).text, bias->name,
                        dims_shape(bias->n_dims, bias->dims).text);
    double scale = spec->scale != 0 ? spec->scale : 1;
    if (temperature == 0) temperature = 1;
    *w = (head_work){.spec = spec,
                     .hidden = hidden,
                     .index = tensor_index(index),
                     .target = tensor_index(target),
                     .kept = kept,
                     .n_rows = index ? index->numel : 0,
                     .dtype = dtype,
                     .soft_cap = spec->soft_cap / scale,
                     .inverse_temperature = scale / temperature};
    int64_t vocab = spec->weight->dims[0];
    w->chunk = chunk_rows(ctx, dtype, w->n_rows, vocab);
    NRL_TRY(param_work(spec->weight, &w->weight));
    if (spec->bias) NRL_TRY(param_work(spec->bias, &w->bias));
    NRL_TRY(tensor_matrix(ctx, hidden->dtype, w->chunk, hidden->cols, &w->rows));
    if (kept && kept->rows == w->n_rows) return NRL_OK;
    return tensor_matrix(ctx, dtype, w->chunk, head_pitch(ctx, vocab), &w->logits);
}

/* The first n rows of a chunk buffer. */
static nrl_mat top(const nrl_tensor *t, int64_t n)
{
    nrl_mat m = tensor_mat(t);
    m.rows = n;
    return m;
}

/* The same for logits, whose pitch may be larger than their row length. */
static nrl_mat top_logits(const head_work *w, const nrl_tensor *t, int64_t n)
{
    nrl_mat m = top(t, n);
    m.cols = w->spec->weight->dims[0];
    return m;
}

static bool is_kept(const head_work *w, int64_t begin)
{
    return w->kept && begin < w->kept->rows;
}

/* The logits of rows [begin, begin + n): in the kept logits or in the chunk's buffer. */
static nrl_mat logits_of(const head_work *w, int64_t begin, int64_t n)
{
    if (!is_kept(w, begin)) return top_logits(w, w->logits, n);
    nrl_mat m = top_logits(w, w->kept, n);
    m.data = (char *)m.data + (size_t)(begin * m.stride) * nrl_dtype_size(w->dtype);
    return m;
}

static nrl_status gather_rows(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n)
{
    nrl_gather_args a = {.size = sizeof a, .x = tensor_mat(w->hidden), .y = top(w->rows, n), .index = w->index + begin};
    return backend_gather(ctx, &a);
}

nrl_status head_chunk_product(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n)
{
    NRL_TRY(gather_rows(ctx, w, begin, n));
    nrl_gemm_args g = {.size = sizeof g,
                       .transpose_b = true,
                       .overwrite = true,
                       .a = top(w->rows, n),
                       .b = w->weight,
                       .c = logits_of(w, begin, n),
                       .bias = w->bias,
                       .alpha = 1,
                       .weight_key = w->spec->weight->key,
                       .weight_version = w->spec->weight->version};
    return backend_gemm(ctx, &g);
}

nrl_status head_chunk_again(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n)
{
    double flops = ctx_settings_of(ctx)->flops;
    if (is_kept(w, begin)) return gather_rows(ctx, w, begin, n);
    NRL_TRY(head_chunk_product(ctx, w, begin, n));
    ctx_settings_of(ctx)->flops = flops; /* the forward has counted this product */
    return head_is_plain(w) ? NRL_OK : head_chunk_values(ctx, w, begin, n, (head_values){0});
}

static float *at(float *values, int64_t begin)
{
    return values ? values + begin : NULL;
}

static const float *at_const(const float *values, int64_t begin)
{
    return values ? values + begin : NULL;
}

nrl_status head_chunk_values(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n, head_values v)
{
    nrl_head_args a = {.size = sizeof a,
                       .logits = logits_of(w, begin, n),
                       .target = w->target ? w->target + begin : NULL,
                       .soft_cap = w->soft_cap,
                       .inverse_temperature = w->inverse_temperature,
                       .logp = at(v.logp, begin),
                       .lse = at(v.lse, begin),
                       .entropy = at(v.entropy, begin),
                       .log_sum_p2 = at(v.log_sum_p2, begin)};
    return backend_head(ctx, &a);
}

/* dHidden[index] += dLogits[R,V] W[V,D] */
static nrl_status hidden_grad(nrl_ctx *ctx, head_work *w, nrl_mat dlogits, int64_t begin, int64_t n)
{
    nrl_gemm_args g = {.size = sizeof g,
                       .overwrite = true,
                       .a = dlogits,
                       .b = w->weight,
                       .c = top(w->drows, n),
                       .alpha = 1,
                       .weight_key = w->spec->weight->key,
                       .weight_version = w->spec->weight->version};
    NRL_TRY(backend_gemm(ctx, &g));
    nrl_scatter_args s = {.size = sizeof s,
                          .overwrite = w->overwrite_dhidden,
                          .dy = g.c,
                          .dx = tensor_mat(w->dhidden),
                          .index = w->index + begin};
    w->overwrite_dhidden = false;
    return backend_scatter(ctx, &s);
}

/* Adds a loss's own gradient of the logits z, through cap and temperature. dz/d(raw) = k (1 - (z / (cap k))^2) with the
 * inverse temperature k. `others`: the logits have been replaced by the rest of their gradient already. Afterwards
 * *dlogits is the sum in the compute dtype. */
static nrl_status add_logits_grad(nrl_ctx *ctx, head_work *w, int64_t n, nrl_tensor *slope, nrl_tensor *g, bool others,
                                  nrl_mat *dlogits)
{
    const nrl_param *weight = w->spec->weight;
    int64_t vocab = weight->dims[0], shape[] = {n, vocab};
    if (head_is_sharded(w->spec)) NRL_TRY(nrl_op_slice_columns(ctx, g, weight->first[0], weight->first[0] + vocab, &g));
    if (slope)
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, g, slope, &g));
    else if (w->inverse_temperature != 1)
        NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, g, w->inverse_temperature, 0, &g));
    if (others)
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, g, tensor_view(ctx, w->logits, 0, 2, shape, w->logits->stride), &g));
    if (w->hidden->dtype != NRL_DTYPE_F32) NRL_TRY(nrl_op_cast(ctx, g, w->hidden->dtype, &g));
    *dlogits = tensor_mat(g);
    return NRL_OK;
}

static nrl_status cap_slope(nrl_ctx *ctx, head_work *w, int64_t n, nrl_tensor **slope)
{
    double k = w->inverse_temperature;
    int64_t shape[] = {n, w->spec->weight->dims[0]};
    nrl_tensor *u, *z = tensor_view(ctx, w->logits, 0, 2, shape, w->logits->stride);
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, z, 1 / (w->soft_cap * k), 0, &u));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, u, 0, 0, &u));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, u, -k, k, slope);
}

nrl_status head_chunk_backward(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n, head_grads grads)
{
    /* Allocates buffers of the backward. The gradient overwrites logits of its dtype. */
    if (!w->dlogits && w->hidden->dtype != w->dtype && !grads.dlogits)
        NRL_TRY(tensor_matrix(ctx, w->hidden->dtype, w->chunk, head_pitch(ctx, w->spec->weight->dims[0]), &w->dlogits));
    if (!w->drows && w->dhidden) NRL_TRY(tensor_like(ctx, w->rows, &w->drows));
    bool others = grads.dlogp || grads.dentropy || grads.dlse;
    nrl_tensor *slope = NULL;
    if (grads.dlogits && w->soft_cap != 0) NRL_TRY(cap_slope(ctx, w, n, &slope));
    nrl_mat logits = logits_of(w, begin, n);
    nrl_head_grad_args a = {.size = sizeof a,
                            .logits = logits,
                            .dlogits = w->dlogits && !grads.dlogits ? top_logits(w, w->dlogits, n) : logits,
                            .target = w->target + begin,
                            .soft_cap = w->soft_cap,
                            .inverse_temperature = w->inverse_temperature,
                            .lse = grads.lse + begin,
                            .entropy = at_const(grads.entropy, begin),
                            .dlogp = at_const(grads.dlogp, begin),
                            .dentropy = at_const(grads.dentropy, begin),
                            .dlse = at_const(grads.dlse, begin)};
    if (others) NRL_TRY(backend_head_grad(ctx, &a));
    if (grads.dlogits) NRL_TRY(add_logits_grad(ctx, w, n, slope, grads.dlogits, others, &a.dlogits));
    if (w->dhidden) NRL_TRY(hidden_grad(ctx, w, a.dlogits, begin, n));
    /* dW[V,D] += dLogits^T Rows, db[V] += column sums of dLogits */
    nrl_gemm_args g = {.size = sizeof g, .transpose_a = true, .a = a.dlogits, .b = top(w->rows, n), .alpha = 1};
    NRL_TRY(param_grad(w->spec->weight, &g.c, &g.overwrite));
    if (g.c.data) NRL_TRY(backend_gemm(ctx, &g));
    nrl_reduce_args r = {.size = sizeof r, .op = NRL_REDUCTION_SUM, .axis = NRL_AXIS_ROWS, .x = a.dlogits};
    NRL_TRY(param_grad(w->spec->bias, &r.y, &r.overwrite));
    return r.y.data ? backend_reduce(ctx, &r) : NRL_OK;
}
