/*
 * tiny_llama.h - a decoder of two layers, written with operations only, for tests that need a whole
 * model (packing, shared prompts, recompute, the cache, precision, memory). N tokens, D width, H
 * heads, G key heads, K head width, F feed forward, V vocabulary (tied head).
 */
#ifndef SUPPORT_TINY_LLAMA_H
#define SUPPORT_TINY_LLAMA_H
#include "support/backend.h"
#include "tensor/param.h"

enum { TINY_D = 24, TINY_H = 4, TINY_G = 2, TINY_K = 6, TINY_F = 40, TINY_V = 53, TINY_LAYERS = 2 };
enum { TINY_N1, TINY_Q, TINY_KEY, TINY_VALUE, TINY_O, TINY_N2, TINY_GATE, TINY_UP, TINY_DOWN, TINY_PER_LAYER };
enum { TINY_EMBED = TINY_LAYERS * TINY_PER_LAYER, TINY_NORM, TINY_PARAMS };

typedef struct {
    nrl_ctx *ctx;
    nrl_dtype dtype;
    nrl_param params[TINY_PARAMS];
    nrl_part parts[TINY_PARAMS];
    nrl_tensor *work[TINY_PARAMS], *grad[TINY_PARAMS];
    nrl_rope rope;
    double inv_freq[TINY_K / 2];
} tiny_llama;

static inline nrl_status tiny_param(tiny_llama *m, int i, int64_t rows, int64_t cols, uint64_t *state)
{
    int n_dims = cols ? 2 : 1;
    int64_t dims[] = {rows, cols}, numel = rows * (cols ? cols : 1);
    nrl_tensor *exact;
    float *values = malloc((size_t)numel * sizeof *values);
    for (int64_t k = 0; k < numel; k++)
        values[k] = (float)(cols ? 0.3 * test_uniform(state) : 1 + 0.2 * test_uniform(state));
    param_init(&m->params[i], &m->parts[i], "p", n_dims, dims);
    NRL_TRY(tensor_persistent(m->ctx, m->dtype, n_dims, dims, false, &m->work[i]));
    NRL_TRY(tensor_persistent(m->ctx, NRL_DTYPE_F32, n_dims, dims, true, &m->grad[i]));
    ctx_scope_begin(m->ctx);
    NRL_TRY(nrl_tensor_from_host(m->ctx, NRL_DTYPE_F32, n_dims, dims, values, &exact));
    NRL_TRY(nrl_op_cast(m->ctx, exact, m->dtype, &exact));
    void *bytes = malloc((size_t)numel * nrl_dtype_size(m->dtype));
    NRL_TRY(tensor_read(m->ctx, exact, bytes));
    NRL_TRY(tensor_write(m->ctx, m->work[i], bytes));
    ctx_scope_end(m->ctx);
    free(bytes);
    free(values);
    nrl_param_bind(&m->params[i], NRL_SLOT_WEIGHT, m->work[i]);
    nrl_param_bind(&m->params[i], NRL_SLOT_GRAD, m->grad[i]);
    return NRL_OK;
}

static inline nrl_status tiny_open(tiny_llama *m, nrl_ctx *ctx, nrl_dtype dtype)
{
    static const int64_t shape[TINY_PER_LAYER][2] = {{TINY_D, 0},
                                                     {TINY_H * TINY_K, TINY_D},
                                                     {TINY_G * TINY_K, TINY_D},
                                                     {TINY_G * TINY_K, TINY_D},
                                                     {TINY_D, TINY_H * TINY_K},
                                                     {TINY_D, 0},
                                                     {TINY_F, TINY_D},
                                                     {TINY_F, TINY_D},
                                                     {TINY_D, TINY_F}};
    uint64_t state = 7;
    *m = (tiny_llama){.ctx = ctx, .dtype = dtype, .inv_freq = {1, 0.2, 0.03}};
    m->rope = (nrl_rope){m->inv_freq, TINY_K / 2, 1};
    for (int i = 0; i < TINY_EMBED; i++)
        NRL_TRY(tiny_param(m, i, shape[i % TINY_PER_LAYER][0], shape[i % TINY_PER_LAYER][1], &state));
    NRL_TRY(tiny_param(m, TINY_EMBED, TINY_V, TINY_D, &state));
    NRL_TRY(tiny_param(m, TINY_NORM, TINY_D, 0, &state));
    ctx_settings_of(ctx)->compute = dtype;
    return NRL_OK;
}

static inline void tiny_close(tiny_llama *m)
{
    for (int i = 0; i < TINY_PARAMS; i++) {
        tensor_release(m->ctx, m->work[i]);
        tensor_release(m->ctx, m->grad[i]);
    }
    ctx_settings_of(m->ctx)->compute = NRL_DTYPE_F32;
}

static inline void tiny_zero_grad(tiny_llama *m)
{
    for (int i = 0; i < TINY_PARAMS; i++)
        nrl_param_set_grad_is_empty(&m->params[i], true);
}

static inline head_spec tiny_head(tiny_llama *m)
{
    return (head_spec){&m->params[TINY_EMBED], NULL, 1, 0};
}

static inline nrl_status tiny_attention(tiny_llama *m, int layer, nrl_tensor *x, nrl_tensor **y)
{
    nrl_ctx *ctx = m->ctx;
    nrl_param *p = m->params + layer * TINY_PER_LAYER;
    nrl_tensor *q, *k, *v;
    nrl_attention_spec spec = {TINY_H, TINY_G, TINY_K, 0, layer, 0.408};
    NRL_TRY(nrl_op_linear(ctx, x, p + TINY_Q, NULL, &q));
    NRL_TRY(nrl_op_linear(ctx, x, p + TINY_KEY, NULL, &k));
    NRL_TRY(nrl_op_linear(ctx, x, p + TINY_VALUE, NULL, &v));
    NRL_TRY(nrl_op_rope(ctx, q, TINY_H, &m->rope, &q));
    NRL_TRY(nrl_op_rope(ctx, k, TINY_G, &m->rope, &k));
    NRL_TRY(nrl_op_attention(ctx, q, k, v, &spec, y));
    return nrl_op_linear(ctx, *y, p + TINY_O, NULL, y);
}

/* Unit 0 embeds; the others are layers; the last layer also normalises. x is NULL for unit 0. */
static inline nrl_status tiny_unit(tiny_llama *m, int unit, nrl_tensor *x, nrl_tensor **y)
{
    nrl_ctx *ctx = m->ctx;
    nrl_tensor *n, *a, *sum, *gate, *up;
    if (!unit) return nrl_op_embedding(ctx, &m->params[TINY_EMBED], y);
    nrl_param *p = m->params + (unit - 1) * TINY_PER_LAYER;
    NRL_TRY(nrl_op_rms_norm(ctx, x, p + TINY_N1, 1e-5, &n));
    NRL_TRY(tiny_attention(m, unit - 1, n, &a));
    NRL_TRY(nrl_op_add_rms_norm(ctx, x, a, p + TINY_N2, 1e-5, &sum, &n));
    NRL_TRY(nrl_op_linear(ctx, n, p + TINY_GATE, NULL, &gate));
    NRL_TRY(nrl_op_linear(ctx, n, p + TINY_UP, NULL, &up));
    NRL_TRY(nrl_op_swiglu(ctx, gate, up, &n));
    NRL_TRY(nrl_op_linear(ctx, n, p + TINY_DOWN, NULL, &a));
    if (unit < TINY_LAYERS) return nrl_op_binary(ctx, NRL_BINARY_ADD, sum, a, y);
    return nrl_op_add_rms_norm(ctx, sum, a, &m->params[TINY_NORM], 1e-5, &x, y);
}

static inline nrl_status tiny_forward(tiny_llama *m, nrl_tensor **hidden)
{
    nrl_tensor *x = NULL;
    for (int unit = 0; unit <= TINY_LAYERS; unit++)
        NRL_TRY(tiny_unit(m, unit, x, &x));
    *hidden = x;
    return NRL_OK;
}

/* Segments of the given lengths; each token but the last of a segment is a target position. */
static inline nrl_batch *tiny_batch(const int *lengths, int n_segments, uint64_t seed)
{
    int64_t n = 0, n_rows = 0, row = 0, at = 0;
    for (int s = 0; s < n_segments; s++) {
        n += lengths[s];
        n_rows += lengths[s] > 0 ? lengths[s] - 1 : 0;
    }
    nrl_batch *b = batch_new(n, n_rows, n_segments);
    b->n_examples = n_segments;
    for (int s = 0; s < n_segments; s++) {
        uint64_t state = seed + (uint64_t)s * 1000;
        b->segment_example[s] = s;
        for (int i = 0; i < lengths[s]; i++, at++) {
            b->tokens[at] = (int32_t)((test_uniform(&state) + 1) / 2 * TINY_V);
            b->positions[at] = i;
            if (!i) continue;
            b->row_token[row] = (int32_t)at - 1;
            b->row_target[row] = b->tokens[at];
            b->row_segment[row] = s;
            b->row_weight[row++] = 1;
        }
        b->cu_seqlens[s + 1] = (int32_t)at;
    }
    return b;
}

/* d loss / d logp of the loss of the tests: minus the sum of weighted log-probs. */
static inline nrl_status tiny_seed(nrl_ctx *ctx, const nrl_batch *b, nrl_tensor **seed)
{
    NRL_TRY(nrl_batch_column(ctx, b, "weights", seed));
    return nrl_op_unary(ctx, NRL_UNARY_NEG, *seed, 0, 0, seed);
}

/* Records the forward on t; hidden (refcounted) is all that is kept besides the tape. */
static inline nrl_status tiny_record(tiny_llama *m, tape *t, nrl_tensor **hidden)
{
    ctx_scope_begin(m->ctx);
    ctx_tape_begin(m->ctx, t);
    nrl_status st = tiny_forward(m, hidden);
    ctx_tape_end(m->ctx);
    if (!st) tensor_retain(*hidden);
    ctx_scope_end(m->ctx);
    return st;
}

/* Forward and backward of a batch: log-probs to `logps` (may be NULL), gradients to GRAD. */
static inline nrl_status tiny_step(tiny_llama *m, nrl_batch *b, double *logps)
{
    nrl_ctx *ctx = m->ctx;
    nrl_tensor *hidden, *seed;
    head_tensors v;
    head_spec head = tiny_head(m);
    tape *t = tape_create();
    NRL_TRY(ctx_set_batch(ctx, b));
    NRL_TRY(tiny_record(m, t, &hidden));
    ctx_scope_begin(ctx);
    ctx_tape_begin(ctx, t);
    NRL_TRY(head_columns(ctx, &head, hidden, HEAD_LOGP, 1, &v));
    ctx_tape_end(ctx);
    tensor_release(ctx, hidden);
    NRL_TRY(tiny_seed(ctx, b, &seed));
    NRL_TRY(tape_backward(ctx, t, &v.logps, &seed, 1, NULL, NULL, 0));
    if (logps) NRL_TRY(nrl_tensor_fetch(ctx, v.logps, logps, b->n_rows));
    ctx_scope_end(ctx);
    tape_destroy(ctx, t);
    return ctx_set_batch(ctx, NULL);
}

/* All gradients, concatenated; malloc'd. */
static inline double *tiny_grads(tiny_llama *m, int64_t *n)
{
    *n = 0;
    for (int i = 0; i < TINY_PARAMS; i++)
        *n += m->params[i].numel;
    double *all = malloc((size_t)*n * sizeof *all), *at = all;
    for (int i = 0; i < TINY_PARAMS; at += m->params[i++].numel)
        if (nrl_tensor_fetch(m->ctx, m->grad[i], at, m->params[i].numel)) abort();
    return all;
}

#endif
