/*
 * attention.c - checks attention's operands and chooses kernels: tensor cores for bf16 and f16
 * (ops/flash_*.cu, or a library through dnn.c), plain kernels for f32 (ops/attention_plain.cu), with ALiBi and sinks
 * too (nrl.biased_attention of nrl/operations.h).
 */
#include "custom_ops.h"
#include "ops/flash.h"

enum { WINDOW_MOST = 1 << 30 }; /* equivalent to no window, and sums with positions do not overflow */

static bool is_even(const nrl_mat *m)
{
    return !m->data || (((uintptr_t)m->data & 15) == 0 && m->stride % 8 == 0);
}

static flash_matrix matrix_of(const nrl_mat *m)
{
    return (flash_matrix){m->data, m->stride};
}

static nrl_status check_shapes(const nrl_attention_args *a)
{
    bool right = a->n_kv_heads > 0 && a->n_heads % a->n_kv_heads == 0 && a->head_dim > 0 &&
                 a->q.cols == a->n_heads * a->head_dim && a->k.cols == a->n_kv_heads * a->head_dim &&
                 a->v.cols == a->k.cols && a->y.cols == a->q.cols;
    if (!right)
        return nrl_fail(NRL_ERR_BUG, "attention of %lld heads, %lld kv heads, width %lld: q has %lld columns, k %lld",
                        (long long)a->n_heads, (long long)a->n_kv_heads, (long long)a->head_dim, (long long)a->q.cols,
                        (long long)a->k.cols);
    if (a->head_dim > FLASH_MOST_WIDTH)
        return nrl_fail(NRL_ERR_PLUGIN,
                        "backend 'cuda' has no op 'attention' for heads of width %lld, "
                        "at most %d",
                        (long long)a->head_dim, FLASH_MOST_WIDTH);
    if (a->q.rows >= WINDOW_MOST || a->k.rows >= WINDOW_MOST)
        return nrl_fail(NRL_ERR_BUG, "attention of %lld queries and %lld keys", (long long)a->q.rows,
                        (long long)a->k.rows);
    return NRL_OK;
}

static nrl_status check_dtypes(const nrl_attention_args *a)
{
    uint32_t t = a->q.dtype;
    if (a->merge && (!a->lse.data || !a->host_cu_q || !a->host_cu_k))
        return nrl_fail(NRL_ERR_BUG, "attention of a part without a log-sum-exp, or without segments on the host");
    if (t != NRL_DTYPE_F32 && t != NRL_DTYPE_BF16 && t != NRL_DTYPE_F16) return cuda_no_dtype("attention", t);
    if (a->k.dtype == t && a->v.dtype == t && (a->y.dtype == t || a->merge)) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cuda' has no op 'attention' of %s q with %s k, %s v to %s",
                    nrl_dtype_name((nrl_dtype)t), nrl_dtype_name((nrl_dtype)a->k.dtype),
                    nrl_dtype_name((nrl_dtype)a->v.dtype), nrl_dtype_name((nrl_dtype)a->y.dtype));
}

static flash_params forward_params(const nrl_attention_args *a)
{
    flash_params p = {
        .q = matrix_of(&a->q),
        .k = matrix_of(&a->k),
        .v = matrix_of(&a->v),
        .y = matrix_of(&a->y),
        .lse = a->lse.data,
        .lse_stride = a->lse.stride,
        .n_rows = a->q.rows,
        .n_key_rows = a->k.rows,
        .n_counted = a->q.rows,
        .n_counted_keys = a->k.rows,
        .part = {{0, INT32_MAX}, {0, INT32_MAX}},
        .cu_q = a->cu_q,
        .cu_k = a->cu_k,
        .prefix = a->prefix,
        .n_segments = (int32_t)a->n_segments,
        .n_heads = (int32_t)a->n_heads,
        .n_kv_heads = (int32_t)a->n_kv_heads,
        .head_dim = (int32_t)a->head_dim,
        .window = (int32_t)(a->window < WINDOW_MOST ? a->window : WINDOW_MOST),
        .scale = (float)a->scale,
        .soft_cap = (float)a->soft_cap,
        .sinks = a->sinks,
        .vectors = a->head_dim % 8 == 0 && is_even(&a->q) && is_even(&a->k) && is_even(&a->v) && is_even(&a->y),
    };
    if (!a->merge) return p;
    p.n_counted = a->host_cu_q[a->n_segments];
    p.n_counted_keys = a->host_cu_k[a->n_segments];
    p.part.queries = (flash_range){(int32_t)a->q_begin, (int32_t)(a->q_begin + a->q.rows)};
    p.part.keys = (flash_range){(int32_t)a->k_begin, (int32_t)(a->k_begin + a->k.rows)};
    return p;
}

/* ---- parts: kernels write dense results to scratch memory, which are then merged or added ---- */

static size_t dense_bytes(int64_t rows, int64_t cols, uint32_t dtype)
{
    return ((size_t)(rows * cols) * nrl_dtype_size((nrl_dtype)dtype) + 255) / 256 * 256;
}

static nrl_mat take_dense(char **room, int64_t rows, int64_t cols, uint32_t dtype)
{
    nrl_mat m = {.data = *room, .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
    *room += dense_bytes(rows, cols, dtype);
    return m;
}

static nrl_status run_forward(cuda *self, void *stream, const flash_params *p, uint32_t dtype)
{
    int code = 0;
    if (dtype == NRL_DTYPE_F32)
        plain_forward(p, stream);
    else
        code = flash_forward(p, dtype, stream);
    NRL_TRY(cuda_check(self->driver, code, "attention"));
    return cuda_launched(self, "attention");
}

static nrl_status merge_part(cuda *self, void *stream, const nrl_attention_args *a)
{
    const uint32_t t = a->q.dtype;
    const flash_matrix to = matrix_of(&a->y);
    nrl_attention_args part = *a;
    void *memory;
    if (a->y.dtype != NRL_DTYPE_F32) return cuda_no_dtype("attention of a part", a->y.dtype);
    NRL_TRY(cuda_scratch(self, stream,
                         dense_bytes(a->q.rows, a->q.cols, t) + dense_bytes(a->n_heads, a->q.rows, NRL_DTYPE_F32),
                         &memory));
    char *room = memory;
    part.y = take_dense(&room, a->q.rows, a->q.cols, t);
    part.lse = take_dense(&room, a->n_heads, a->q.rows, NRL_DTYPE_F32);
    const flash_params p = forward_params(&part);
    NRL_TRY(run_forward(self, stream, &p, t));
    attention_merge(&p, t, &to, a->lse.data, a->lse.stride, stream);
    return cuda_launched(self, "attention");
}

nrl_status cuda_op_attention(cuda *self, void *stream, const nrl_attention_args *a)
{
    NRL_TRY(check_shapes(a));
    NRL_TRY(check_dtypes(a));
    if (!a->n_segments || !a->q.rows) return NRL_OK;
    if (a->merge) return merge_part(self, stream, a);
    bool done = false;
    if (self->wants_dnn) NRL_TRY(cuda_dnn_attention(self, stream, a, &done));
    if (done) return NRL_OK;
    const flash_params p = forward_params(a);
    NRL_TRY(run_forward(self, stream, &p, a->q.dtype));
    return cuda_dnn_judge(self, stream, (nrl_mat[]){a->y, a->lse}, a->lse.data ? 2 : 1);
}

static nrl_status check_gradients(const nrl_attention_grad_args *a)
{
    const nrl_attention_args *f = a->forward;
    const nrl_mat *m[] = {&f->y, &a->dy, &a->dq, &a->dk, &a->dv};
    for (int i = 0; i < 5; i++) {
        const uint32_t wanted = f->merge && i > 1 ? NRL_DTYPE_F32 : f->q.dtype;
        if (m[i]->dtype != wanted) return cuda_no_dtype("attention_grad", m[i]->dtype);
    }
    if (f->lse.data) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "attention_grad without the log-sum-exp of attention");
}

/* dq, dk and dv: where to write them. rotates: dq and dk are rotated back. */
static nrl_status run_backward(cuda *self, void *stream, const nrl_attention_grad_args *a, const nrl_mat *d,
                               bool rotates, float *delta)
{
    const nrl_attention_args *f = a->forward;
    flash_params p = forward_params(f);
    p.dy = matrix_of(&a->dy);
    p.dq = matrix_of(&d[0]);
    p.dk = matrix_of(&d[1]);
    p.dv = matrix_of(&d[2]);
    p.delta = delta;
    if (rotates) p.cos = a->cos;
    if (rotates) p.sin = a->sin;
    p.vectors = p.vectors && is_even(&a->dy) && is_even(&d[0]) && is_even(&d[1]) && is_even(&d[2]);
    int code = 0;
    attention_delta(&p, f->q.dtype, stream);
    if (a->dsinks) sinks_backward(&p, a->dsinks, stream);
    if (f->q.dtype == NRL_DTYPE_F32)
        plain_backward(&p, stream);
    else
        code = flash_backward(&p, f->q.dtype, stream);
    NRL_TRY(cuda_check(self->driver, code, "attention_grad"));
    cuda_watch_count(self->watch, a->dsinks ? 3 : 2); /* delta, sinks, keys and queries: they are counted below */
    return cuda_launched(self, "attention_grad");
}

static nrl_status rotate_back(cuda *self, void *stream, const nrl_attention_grad_args *a)
{
    nrl_rope_args r = {.size = sizeof r, .inverse = true, .cos = a->cos, .sin = a->sin, .half = a->half};
    r.x = r.y = a->dq;
    r.n_heads = a->forward->n_heads;
    NRL_TRY(cuda_op_rope(self, stream, &r));
    r.x = r.y = a->dk;
    r.n_heads = a->forward->n_kv_heads;
    return cuda_op_rope(self, stream, &r);
}

nrl_status cuda_op_attention_grad(cuda *self, void *stream, const nrl_attention_grad_args *a)
{
    nrl_attention_args forward;
    nrl_attention_grad_args whole = *a;
    if (a->forward->size != sizeof forward) {
        NRL_TRY(cuda_known_args("attention", a->forward, a->forward->size, &forward, sizeof forward));
        whole.forward = &forward;
        a = &whole;
    }
    const nrl_attention_args *f = a->forward;
    const nrl_mat to[] = {a->dq, a->dk, a->dv};
    nrl_mat d[] = {a->dq, a->dk, a->dv};
    size_t bytes = dense_bytes(f->n_heads, f->q.rows, NRL_DTYPE_F32);
    void *memory;
    NRL_TRY(check_shapes(f));
    NRL_TRY(check_dtypes(f));
    NRL_TRY(check_gradients(a));
    if (!f->n_segments || !f->q.rows) return NRL_OK;
    bool done = false;
    if (self->wants_dnn) NRL_TRY(cuda_dnn_attention_grad(self, stream, a, &done));
    if (done) return a->cos ? rotate_back(self, stream, a) : NRL_OK;
    /* Compared with the library's, which are not rotated, they are rotated afterwards. */
    const bool rotates = a->cos && f->q.dtype != NRL_DTYPE_F32 && 2 * a->half == f->head_dim &&
                         flash_rotates(f->head_dim) && !cuda_dnn_is_trying(self);
    for (int i = 0; i < 3 && f->merge; i++)
        bytes += dense_bytes(to[i].rows, to[i].cols, f->q.dtype);
    NRL_TRY(cuda_scratch(self, stream, bytes, &memory));
    char *room = memory;
    float *delta = take_dense(&room, f->n_heads, f->q.rows, NRL_DTYPE_F32).data;
    for (int i = 0; i < 3 && f->merge; i++)
        d[i] = take_dense(&room, to[i].rows, to[i].cols, f->q.dtype);
    NRL_TRY(run_backward(self, stream, a, d, rotates, delta));
    for (int i = 0; i < 3 && f->merge; i++) {
        const nrl_copy_args add = {.size = sizeof add, .x = d[i], .y = to[i], .alpha = 1, .accumulate = true};
        NRL_TRY(cuda_op_copy(self, stream, &add));
    }
    if (f->merge) return NRL_OK;
    NRL_TRY(cuda_dnn_judge(self, stream, to, 3));
    return a->cos && !rotates ? rotate_back(self, stream, a) : NRL_OK;
}

/* ---- nrl.biased_attention: f32 ---- */

static nrl_attention_args args_of(const nrl_kernel_args *a)
{
    const nrl_biased_attention_attributes *at = a->attributes;
    const nrl_packing *b = a->packing;
    return (nrl_attention_args){.size = sizeof(nrl_attention_args),
                                .n_segments = (uint32_t)b->n_segments,
                                .q = a->inputs[0],
                                .k = a->inputs[1],
                                .v = a->inputs[2],
                                .y = a->outputs[0],
                                .lse = a->outputs[1],
                                .cu_q = b->cu_seqlens,
                                .cu_k = b->cu_seqlens,
                                .prefix = cuda_has_prompts(b) ? b->prefix : NULL,
                                .n_heads = at->spec.n_heads,
                                .n_kv_heads = at->spec.n_kv_heads,
                                .head_dim = at->spec.head_dim,
                                .window = at->spec.window,
                                .scale = at->spec.scale};
}

/* In scratch memory: a copy of the slopes, then delta, which the gradient alone needs. */
static nrl_status biased_params(cuda *self, void *stream, const nrl_kernel_args *a, bool grad, flash_params *p)
{
    const nrl_biased_attention_attributes *at = a->attributes;
    const nrl_attention_args forward = args_of(a);
    const size_t slopes = at->slopes ? (size_t)at->spec.n_heads * sizeof *at->slopes : 0;
    const size_t delta = grad ? (size_t)(at->spec.n_heads * a->inputs[0].rows) * sizeof(float) : 0;
    void *memory = NULL;
    NRL_TRY(check_shapes(&forward));
    *p = forward_params(&forward);
    if (slopes + delta) NRL_TRY(cuda_scratch(self, stream, slopes + delta, &memory));
    if (slopes) NRL_TRY(cuda_copy_bytes(self, stream, memory, at->slopes, slopes, NRL_COPY_TO_DEVICE));
    if (slopes) p->slopes = memory;
    if (delta) p->delta = (float *)((char *)memory + slopes);
    if (a->n_inputs > 3) p->sinks = a->inputs[3].data;
    return NRL_OK;
}

nrl_status cuda_custom_biased_attention(cuda *self, void *stream, const nrl_kernel_args *a)
{
    flash_params p;
    if (!a->packing->n_tokens) return NRL_OK;
    NRL_TRY(biased_params(self, stream, a, false, &p));
    plain_forward(&p, stream);
    return cuda_launched(self, "nrl.biased_attention");
}

nrl_status cuda_custom_biased_attention_grad(cuda *self, void *stream, const nrl_kernel_args *a)
{
    float *dsinks = a->n_inputs > 3 ? a->input_grads[3].data : NULL;
    flash_params p;
    if (!a->packing->n_tokens) return NRL_OK;
    NRL_TRY(biased_params(self, stream, a, true, &p));
    p.dy = matrix_of(&a->output_grads[0]);
    p.dq = matrix_of(&a->input_grads[0]);
    p.dk = matrix_of(&a->input_grads[1]);
    p.dv = matrix_of(&a->input_grads[2]);
    attention_delta(&p, NRL_DTYPE_F32, stream);
    plain_backward(&p, stream);
    if (dsinks) sinks_backward(&p, dsinks, stream);
    cuda_watch_count(self->watch, 1 + (p.dk.data || p.dv.data) + (p.dq.data != NULL) + (dsinks != NULL));
    return cuda_launch_error(self, "nrl.biased_attention");
}
