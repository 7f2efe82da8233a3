/*
 * gradient.h - compares the gradient of any composition of operations with central differences.
 *
 * A case names up to 4 inputs and 4 parameters by shape; `build` computes one output from them. The
 * loss is sum_i c_i out_i with fixed pseudo-random c, summed in double on the host. Every element
 * of inputs and parameters is moved by +-STEP. Values are f32, so the tolerance is the error of a
 * difference quotient in f32.
 */
#ifndef SUPPORT_GRADIENT_H
#define SUPPORT_GRADIENT_H
#include "support/backend.h"
#include "tensor/param.h"
#include <math.h>

enum { GRADIENT_MAX = 4 };

/* Shapes of a case: SHAPE(3, 5) has values in [-1, 1), RANGE(m, r, 3, 5) in [m - r, m + r). */
#define SHAPE(...)                                                                                                     \
    {                                                                                                                  \
        .n_dims = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = { __VA_ARGS__ }                          \
    }
#define RANGE(middle, granularity, ...)                                                                                \
    {                                                                                                                  \
        .n_dims = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = {__VA_ARGS__}, .offset = (middle),       \
        .scale = (granularity)                                                                                         \
    }
#define GRADIENT_STEP 1e-2
/* Rounding: 2^-24 |loss| / STEP, near 1e-4; curvature: STEP^2/6 f''', near 1e-4 for smooth f of
 * size 1. */
#define GRADIENT_TOLERANCE 3e-3

typedef struct gradient_case gradient_case;
struct gradient_case {
    const char *name; /* "group: variant" */
    int n_inputs, n_params;
    struct {
        int n_dims;
        int64_t dims[NRL_MAX_DIMS];
        double offset, scale; /* values are offset + scale * uniform(-1, 1); scale 0 means 1 */
    } inputs[GRADIENT_MAX], params[GRADIENT_MAX];
    nrl_status (*build)(const gradient_case *c, nrl_ctx *ctx, nrl_tensor **x, nrl_param **p, nrl_tensor **y);
    int batch;         /* 0 none, 1 separate segments, 2 with a shared prompt */
    int64_t number[6]; /* parameters of build */
    double real[2];
};

typedef struct {
    nrl_ctx *ctx;
    const gradient_case *c;
    float *values[2 * GRADIENT_MAX]; /* inputs, then parameters */
    double *grads[2 * GRADIENT_MAX];
    int64_t numel[2 * GRADIENT_MAX];
    nrl_param params[GRADIENT_MAX];
    nrl_part parts[GRADIENT_MAX];
    nrl_tensor *work[GRADIENT_MAX], *grad_acc[GRADIENT_MAX];
    nrl_batch *batch;
    double *output; /* of the recorded forward */
    int64_t n_output;
} gradient_run;

static inline double gradient_weight(int64_t i)
{
    uint64_t state = (uint64_t)i * 77 + 5;
    test_uniform(&state);
    return test_uniform(&state);
}

static inline nrl_status gradient_forward(gradient_run *g, nrl_tensor **x, nrl_tensor **y)
{
    nrl_param *p[GRADIENT_MAX];
    for (int i = 0; i < g->c->n_params; i++) {
        p[i] = &g->params[i];
        NRL_TRY(tensor_write(g->ctx, g->work[i], g->values[g->c->n_inputs + i]));
        nrl_param_touch(p[i]);
    }
    for (int i = 0; i < g->c->n_inputs; i++) {
        NRL_TRY(nrl_tensor_from_host(g->ctx, NRL_DTYPE_F32, g->c->inputs[i].n_dims, g->c->inputs[i].dims, g->values[i],
                                     &x[i]));
        tensor_set_leaf(x[i]);
    }
    return g->c->build(g->c, g->ctx, x, p, y);
}

static inline nrl_status gradient_loss(gradient_run *g, double *loss)
{
    nrl_tensor *x[GRADIENT_MAX], *y;
    ctx_scope_begin(g->ctx);
    nrl_status st = gradient_forward(g, x, &y);
    int64_t n = st ? 0 : nrl_tensor_numel(y);
    double *values = calloc((size_t)n + 1, sizeof *values);
    if (!st) st = nrl_tensor_fetch(g->ctx, y, values, n);
    *loss = 0;
    for (int64_t i = 0; i < n; i++)
        *loss += gradient_weight(i) * values[i];
    free(values);
    ctx_scope_end(g->ctx);
    return st;
}

/* The scope of the forward ends before the backward, as in a run: only the tape keeps tensors. */
static inline nrl_status gradient_record(gradient_run *g, tape *t, nrl_tensor **x, nrl_tensor **y)
{
    ctx_scope_begin(g->ctx);
    ctx_tape_begin(g->ctx, t);
    nrl_status st = gradient_forward(g, x, y);
    ctx_tape_end(g->ctx);
    for (int i = 0; i < g->c->n_inputs && !st; i++)
        tensor_retain(x[i]);
    if (!st) {
        tensor_retain(*y);
        g->n_output = nrl_tensor_numel(*y);
        g->output = calloc((size_t)g->n_output, sizeof *g->output);
        st = nrl_tensor_fetch(g->ctx, *y, g->output, g->n_output);
    }
    ctx_scope_end(g->ctx);
    return st;
}

static inline nrl_status gradient_seed(gradient_run *g, const nrl_tensor *y, nrl_tensor **seed)
{
    int64_t dims[NRL_MAX_DIMS];
    float *weights = calloc((size_t)g->n_output, sizeof *weights);
    for (int64_t i = 0; i < g->n_output; i++)
        weights[i] = (float)gradient_weight(i);
    for (int i = 0; i < nrl_tensor_n_dims(y); i++)
        dims[i] = nrl_tensor_dim(y, i);
    nrl_status st = nrl_tensor_from_host(g->ctx, NRL_DTYPE_F32, nrl_tensor_n_dims(y), dims, weights, seed);
    free(weights);
    return st;
}

static inline nrl_status gradient_fetch(gradient_run *g, nrl_tensor **dx)
{
    int n = g->c->n_inputs;
    for (int i = 0; i < n; i++) {
        if (dx[i]) NRL_TRY(nrl_tensor_fetch(g->ctx, dx[i], g->grads[i], g->numel[i]));
        tensor_release(g->ctx, dx[i]);
    }
    for (int i = 0; i < g->c->n_params; i++)
        NRL_TRY(nrl_tensor_fetch(g->ctx, g->grad_acc[i], g->grads[n + i], g->numel[n + i]));
    return NRL_OK;
}

/* `split`: gradients of the parameters of linear operations come afterwards. */
static inline nrl_status gradient_backward(gradient_run *g, bool split)
{
    nrl_tensor *x[GRADIENT_MAX], *y, *seed, *dx[GRADIENT_MAX];
    tape *t = tape_create(), *later = tape_create();
    nrl_status st = gradient_record(g, t, x, &y);
    ctx_scope_begin(g->ctx);
    if (!st) {
        st = gradient_seed(g, y, &seed);
        ctx_settings_of(g->ctx)->deferred = split ? later : NULL;
        if (!st) st = tape_backward(g->ctx, t, &y, &seed, 1, x, dx, g->c->n_inputs);
        ctx_settings_of(g->ctx)->deferred = NULL;
        if (!st) st = tape_backward(g->ctx, later, NULL, NULL, 0, NULL, NULL, 0);
        if (!st) st = gradient_fetch(g, dx);
        for (int i = 0; i < g->c->n_inputs; i++)
            tensor_release(g->ctx, x[i]);
        tensor_release(g->ctx, y);
    }
    tape_destroy(g->ctx, t);
    tape_destroy(g->ctx, later);
    ctx_scope_end(g->ctx);
    return st;
}

/* A split backward gives the same bits. */
static inline nrl_status gradient_check_split(gradient_run *g)
{
    double *whole[2 * GRADIENT_MAX];
    const int n = g->c->n_inputs + g->c->n_params;
    for (int i = 0; i < n; i++) {
        whole[i] = g->grads[i];
        g->grads[i] = calloc((size_t)g->numel[i], sizeof **g->grads);
    }
    for (int i = 0; i < g->c->n_params; i++)
        NRL_TRY(nrl_tensor_fill(g->ctx, g->grad_acc[i], 0));
    free(g->output);
    nrl_status st = gradient_backward(g, true);
    for (int i = 0; i < n; i++) {
        if (!st && memcmp(whole[i], g->grads[i], (size_t)g->numel[i] * sizeof **whole))
            st = nrl_fail(NRL_ERR_BUG, "%s: operand %d: a split backward gives another gradient", g->c->name, i);
        free(whole[i]);
    }
    return st;
}

/* Segments of 3, 1 and 4 tokens; `shared`: the first is the prompt of the others. */
static inline nrl_batch *gradient_batch(bool shared)
{
    static const int32_t cu[] = {0, 3, 4, 8}, tokens[] = {2, 0, 2, 4, 1, 1, 3, 0}, prefix[] = {-1, 0, 0};
    static const int32_t row_token[] = {0, 1, 3, 4, 5, 6}, row_segment[] = {0, 0, 1, 2, 2, 2};
    static const int32_t row_target[] = {0, 2, 1, 1, 3, 0};
    nrl_batch *b = batch_new(8, 6, 3);
    b->n_examples = 3;
    memcpy(b->cu_seqlens, cu, sizeof cu);
    memcpy(b->tokens, tokens, sizeof tokens);
    memcpy(b->row_token, row_token, sizeof row_token);
    memcpy(b->row_segment, row_segment, sizeof row_segment);
    memcpy(b->row_target, row_target, sizeof row_target);
    if (shared) {
        b->prefix = memcpy(arena_alloc(&b->memory, sizeof prefix), prefix, sizeof prefix);
        b->row_token[2] = b->row_token[3] = 2; /* both continuations start after the prompt */
    }
    for (int32_t s = 0; s < 3; s++) {
        b->segment_example[s] = s;
        for (int32_t i = cu[s]; i < cu[s + 1]; i++)
            b->positions[i] = i - cu[s] + (shared && s ? cu[1] : 0);
    }
    for (int i = 0; i < 6; i++)
        b->row_weight[i] = 1;
    return b;
}

static inline nrl_status gradient_open(gradient_run *g, nrl_ctx *ctx, const gradient_case *c)
{
    uint64_t state = 42;
    *g = (gradient_run){.ctx = ctx, .c = c};
    for (int i = 0; i < c->n_inputs + c->n_params; i++) {
        bool input = i < c->n_inputs;
        int k = input ? i : i - c->n_inputs, n_dims = input ? c->inputs[k].n_dims : c->params[k].n_dims;
        const int64_t *dims = input ? c->inputs[k].dims : c->params[k].dims;
        double offset = input ? c->inputs[k].offset : c->params[k].offset;
        double scale = input ? c->inputs[k].scale : c->params[k].scale;
        g->numel[i] = 1;
        for (int d = 0; d < n_dims; d++)
            g->numel[i] *= dims[d];
        g->values[i] = calloc((size_t)g->numel[i], sizeof **g->values);
        g->grads[i] = calloc((size_t)g->numel[i], sizeof **g->grads);
        for (int64_t j = 0; j < g->numel[i]; j++)
            g->values[i][j] = (float)(offset + (scale != 0 ? scale : 1) * test_uniform(&state));
        if (input) continue;
        param_init(&g->params[k], &g->parts[k], "w", n_dims, dims);
        NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, n_dims, dims, true, &g->work[k]));
        NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, n_dims, dims, true, &g->grad_acc[k]));
        nrl_param_bind(&g->params[k], NRL_SLOT_WEIGHT, g->work[k]);
        nrl_param_bind(&g->params[k], NRL_SLOT_GRAD, g->grad_acc[k]);
    }
    if (c->batch) g->batch = gradient_batch(c->batch == 2);
    return ctx_set_batch(ctx, g->batch);
}

static inline void gradient_close(gradient_run *g)
{
    for (int i = 0; i < g->c->n_params; i++) {
        tensor_release(g->ctx, g->work[i]);
        tensor_release(g->ctx, g->grad_acc[i]);
    }
    for (int i = 0; i < 2 * GRADIENT_MAX; i++) {
        free(g->values[i]);
        free(g->grads[i]);
    }
    free(g->output);
    (void)ctx_set_batch(g->ctx, NULL);
    batch_free(g->batch);
}

static inline nrl_status gradient_compare(gradient_run *g, double *worst)
{
    for (int i = 0; i < g->c->n_inputs + g->c->n_params; i++) {
        for (int64_t j = 0; j < g->numel[i]; j++) {
            float old = g->values[i][j];
            double up, down;
            g->values[i][j] = old + (float)GRADIENT_STEP;
            double moved = (double)g->values[i][j];
            NRL_TRY(gradient_loss(g, &up));
            g->values[i][j] = old - (float)GRADIENT_STEP;
            moved -= (double)g->values[i][j];
            NRL_TRY(gradient_loss(g, &down));
            g->values[i][j] = old;
            double expected = (up - down) / moved, error = fabs(expected - g->grads[i][j]) / (1 + fabs(expected));
            if (error > *worst || isnan(error)) *worst = isnan(error) ? INFINITY : error;
            if (!(error <= GRADIENT_TOLERANCE))
                return nrl_fail(NRL_ERR_BUG, "%s: operand %d element %lld: gradient %g, difference quotient %g",
                                g->c->name, i, (long long)j, g->grads[i][j], expected);
        }
    }
    return NRL_OK;
}

/* Checks one case; *worst collects the largest relative error seen. */
static inline nrl_status gradient_check(nrl_ctx *ctx, const gradient_case *c, double *worst)
{
    gradient_run g;
    nrl_status st = gradient_open(&g, ctx, c);
    if (!st) st = gradient_backward(&g, false);
    if (!st) st = gradient_check_split(&g);
    if (!st) st = gradient_compare(&g, worst);
    gradient_close(&g);
    return st;
}

#endif
