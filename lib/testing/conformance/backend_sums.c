/*
 * backend_sums.c - operations that add many values, run with several numbers of threads: all bits
 * must be equal. Matrix products are skipped because the table allows them to differ.
 */
#include "backend.h"
#include <math.h>
#include <string.h>

typedef struct {
    unsigned char *out;
    size_t used, size;
} sink;

static void keep_bytes(suite *s, sink *k, const void *device, size_t bytes)
{
    if (k->used + bytes > k->size) return;
    suite_read(s, k->out + k->used, device, bytes);
    k->used += bytes;
}

static void keep(suite *s, sink *k, const mat *m)
{
    keep_bytes(s, k, m->device, (size_t)((m->rows + 1) * m->stride) * (m->dtype == NRL_DTYPE_F32 ? 4 : 2));
}

static void run_reductions(suite *s, sink *k)
{
    mat *x = mat_random(s, NRL_DTYPE_F32, 403, 1031, 0, -3, 3);
    for (uint32_t op = 1; s->ops.reduce && op <= NRL_REDUCTION_LOG_SUM_EXP; op++)
        for (uint32_t axis = 1; axis <= NRL_AXIS_COLUMNS; axis++) {
            mat *y = mat_new(s, NRL_DTYPE_F32, axis == NRL_AXIS_COLUMNS ? 403 : 1, axis == NRL_AXIS_ROWS ? 1031 : 1, 0);
            nrl_reduce_args a = {
                .size = sizeof a, .op = op, .axis = axis, .overwrite = true, .x = mat_args(x), .y = mat_args(y)};
            suite_ok(s, s->ops.reduce(s->self, NULL, &a), "reduce runs");
            keep(s, k, y);
        }
    double zero = 0, *out = suite_array(s, &zero, sizeof zero);
    nrl_square_sum_args q = {.size = sizeof q, .overwrite = true, .x = mat_args(x), .out = out};
    if (!s->ops.square_sum) return;
    suite_ok(s, s->ops.square_sum(s->self, NULL, &q), "square_sum runs");
    keep_bytes(s, k, out, sizeof *out);
}

static void run_scatter(suite *s, sink *k)
{
    int32_t index[500];
    for (int i = 0; i < 500; i++)
        index[i] = (i * i) % 37;
    mat *dx = mat_new(s, NRL_DTYPE_F32, 37, 257, 0);
    mat *dy = mat_random(s, NRL_DTYPE_F32, 500, 257, 0, -3, 3);
    nrl_scatter_args a = {.size = sizeof a,
                          .overwrite = true,
                          .dy = mat_args(dy),
                          .dx = mat_args(dx),
                          .index = suite_array(s, index, sizeof index)};
    if (!s->ops.scatter) return;
    suite_ok(s, s->ops.scatter(s->self, NULL, &a), "scatter runs");
    keep(s, k, dx);
}

static void run_norm_grad(suite *s, sink *k)
{
    mat *x = mat_random(s, NRL_DTYPE_F32, 700, 129, 0, -3, 3);
    mat *dy = mat_random(s, NRL_DTYPE_F32, 700, 129, 0, -3, 3), *dx = mat_new(s, NRL_DTYPE_F32, 700, 129, 0);
    mat *weight = mat_random(s, NRL_DTYPE_F32, 1, 129, 0, 0.5, 2);
    mat *rstd = mat_random(s, NRL_DTYPE_F32, 1, 700, 0, 0.5, 2), *dweight = mat_new(s, NRL_DTYPE_F32, 1, 129, 0);
    nrl_norm_grad_args a = {.size = sizeof a,
                            .rms = true,
                            .overwrite_weight = true,
                            .x = mat_args(x),
                            .weight = mat_args(weight),
                            .rstd = mat_args(rstd),
                            .dy = mat_args(dy),
                            .dx = mat_args(dx),
                            .dweight = mat_args(dweight)};
    if (!s->ops.norm_grad) return;
    suite_ok(s, s->ops.norm_grad(s->self, NULL, &a), "norm_grad runs");
    keep(s, k, dweight);
    keep(s, k, dx);
}

static void run_attention(suite *s, sink *k, const int32_t *cu, int n_segments)
{
    int64_t n = cu[n_segments];
    mat *q = mat_random(s, NRL_DTYPE_F32, n, 96, 0, -2, 2), *y = mat_new(s, NRL_DTYPE_F32, n, 96, 0);
    mat *kk = mat_random(s, NRL_DTYPE_F32, n, 32, 0, -2, 2), *v = mat_random(s, NRL_DTYPE_F32, n, 32, 0, -2, 2);
    mat *dy = mat_random(s, NRL_DTYPE_F32, n, 96, 0, -2, 2), *dq = mat_new(s, NRL_DTYPE_F32, n, 96, 0);
    mat *dk = mat_new(s, NRL_DTYPE_F32, n, 32, 0), *dv = mat_new(s, NRL_DTYPE_F32, n, 32, 0);
    mat *lse = mat_new(s, NRL_DTYPE_F32, 6, n, 0);
    int32_t *device_cu = suite_array(s, cu, ((size_t)n_segments + 1) * sizeof *cu);
    nrl_attention_grad_args g = {.size = sizeof g,
                                 .forward = &(nrl_attention_args){.size = sizeof(nrl_attention_args),
                                                                  .n_segments = (uint32_t)n_segments,
                                                                  .q = mat_args(q),
                                                                  .k = mat_args(kk),
                                                                  .v = mat_args(v),
                                                                  .y = mat_args(y),
                                                                  .lse = mat_args(lse),
                                                                  .cu_q = device_cu,
                                                                  .cu_k = device_cu,
                                                                  .host_cu_q = cu,
                                                                  .host_cu_k = cu,
                                                                  .n_heads = 6,
                                                                  .n_kv_heads = 2,
                                                                  .head_dim = 16,
                                                                  .scale = 0.25},
                                 .dy = mat_args(dy),
                                 .dq = mat_args(dq),
                                 .dk = mat_args(dk),
                                 .dv = mat_args(dv)};
    if (!s->ops.attention || !s->ops.attention_grad) return;
    suite_ok(s, s->ops.attention(s->self, NULL, g.forward), "attention runs");
    suite_ok(s, s->ops.attention_grad(s->self, NULL, &g), "attention_grad runs");
    mat *const all[] = {y, dq, dk, dv};
    for (int i = 0; i < COUNT(all); i++)
        keep(s, k, all[i]);
}

static void run_head(suite *s, sink *k)
{
    mat *z = mat_random(s, NRL_DTYPE_F32, 50, 3001, 0, -5, 5), *logp = mat_new(s, NRL_DTYPE_F32, 1, 50, 0);
    mat *lse = mat_new(s, NRL_DTYPE_F32, 1, 50, 0);
    int32_t target[50];
    for (int i = 0; i < 50; i++)
        target[i] = i * 50;
    nrl_head_args a = {.size = sizeof a,
                       .logits = mat_args(z),
                       .inverse_temperature = 1,
                       .target = suite_array(s, target, sizeof target),
                       .logp = logp->device,
                       .lse = lse->device};
    if (!s->ops.head) return;
    suite_ok(s, s->ops.head(s->self, NULL, &a), "head runs");
    keep(s, k, logp);
    keep(s, k, lse);
}

size_t suite_sums(suite *s, unsigned char *out, size_t size)
{
    static const int32_t many[] = {0, 100, 130, 231}, one[] = {0, 300};
    sink k = {out, 0, size};
    s->random = 11;
    suite_case(s, "sums");
    run_reductions(s, &k);
    run_scatter(s, &k);
    run_norm_grad(s, &k);
    run_attention(s, &k, many, 3);
    run_attention(s, &k, one, 1);
    run_head(s, &k);
    suite_clear(s);
    return k.used;
}
