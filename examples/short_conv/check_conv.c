/*
 * check_conv.c - the operation of conv.c on the CPU backend, without a run: its gradients are those of finite
 * differences, and two packed segments give what each gives alone.
 */
#include "conv.h"
#include <math.h>
#include <nrl/harness.h>
#include <stdio.h>

enum { N = 7, C = 5, K = 3, FIRST = 3 }; /* tokens, channels, taps; tokens of the first segment */

/* Central differences of a sum of about 10 in f32 over this step: rounding 1e-4, curvature below it. */
#define STEP 1e-2
#define TOLERANCE 2e-3

typedef struct {
    nrl_harness *h;
    float x[N * C], w[C * K], weight[N * C];
} fixture;

static nrl_status make_batch(int64_t n, int n_segments, const int32_t *cu, nrl_batch **out)
{
    const int32_t examples[] = {0, 1};
    const nrl_harness_batch spec = {.size = sizeof spec,
                                    .n_tokens = n,
                                    .n_segments = n_segments,
                                    .n_examples = n_segments,
                                    .cu_seqlens = cu,
                                    .segment_example = examples};
    return nrl_harness_batch_create(&spec, out);
}

/* sum of weight * y over rows [begin, begin + n), and d sum / d x, d sum / d w if dx is not NULL. */
static nrl_status run(const fixture *f, const int32_t *cu, int n_segments, int64_t begin, int64_t n, double *sum,
                      double *y_out, double *dx, double *dw)
{
    nrl_ctx *ctx = nrl_harness_ctx(f->h);
    nrl_tensor *x, *w, *k, *y, *s, *one, *grads[2] = {NULL, NULL};
    nrl_batch *batch;
    const float seed = 1;
    NRL_TRY(make_batch(n, n_segments, cu, &batch));
    NRL_TRY(nrl_harness_use_batch(f->h, batch));
    nrl_scope_begin(ctx);
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){n, C}, f->x + begin * C, &x));
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){C, K}, f->w, &w));
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){n, C}, f->weight + begin * C, &k));
    nrl_harness_leaf(x);
    nrl_harness_leaf(w);
    nrl_harness_record(f->h);
    NRL_TRY(short_conv(ctx, x, w, &y));
    if (y_out) NRL_TRY(nrl_tensor_fetch(ctx, y, y_out, n * C));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, y, k, &s));
    NRL_TRY(nrl_op_sum(ctx, s, &s));
    NRL_TRY(nrl_tensor_fetch(ctx, s, sum, 1));
    nrl_harness_stop(f->h);
    if (dx) {
        NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, (int64_t[]){1}, &seed, &one));
        NRL_TRY(nrl_harness_backward(f->h, &s, &one, 1, (nrl_tensor *[]){x, w}, grads, 2));
        NRL_TRY(nrl_tensor_fetch(ctx, grads[0], dx, n * C));
        NRL_TRY(nrl_tensor_fetch(ctx, grads[1], dw, C * K));
        nrl_tensor_free(ctx, grads[0]);
        nrl_tensor_free(ctx, grads[1]);
    }
    nrl_harness_forget(f->h);
    NRL_TRY(nrl_harness_use_batch(f->h, NULL));
    nrl_scope_end(ctx);
    nrl_harness_batch_free(batch);
    return NRL_OK;
}

static int differs(const char *what, int64_t i, double got, double want, double tolerance)
{
    if (fabs(got - want) <= tolerance * fmax(1, fabs(want))) return 0;
    printf("%s[%lld] is %.6g, expected %.6g\n", what, (long long)i, got, want);
    return 1;
}

static nrl_status check_gradient(fixture *f, float *values, int64_t n, const double *grad, const char *what, int *bad)
{
    const int32_t cu[] = {0, FIRST, N};
    for (int64_t i = 0; i < n; i++) {
        double sums[2];
        float was = values[i];
        for (int side = 0; side < 2; side++) {
            values[i] = was + (float)(side ? STEP : -STEP);
            NRL_TRY(run(f, cu, 2, 0, N, &sums[side], NULL, NULL, NULL));
        }
        values[i] = was;
        *bad += differs(what, i, grad[i], (sums[1] - sums[0]) / (2 * STEP), TOLERANCE);
    }
    return NRL_OK;
}

static nrl_status check(fixture *f, int *bad)
{
    const int32_t both[] = {0, FIRST, N}, first[] = {0, FIRST}, second[] = {0, N - FIRST};
    double sum, y[N * C], alone[N * C], dx[N * C], dw[C * K];
    for (int i = 0; i < N * C; i++) {
        f->x[i] = (float)sin(i * 1.7 + 1);
        f->weight[i] = (float)cos(i * 0.9);
    }
    for (int i = 0; i < C * K; i++)
        f->w[i] = (float)sin(i * 2.3);
    NRL_TRY(run(f, both, 2, 0, N, &sum, y, dx, dw));
    NRL_TRY(run(f, first, 1, 0, FIRST, &sum, alone, NULL, NULL));
    NRL_TRY(run(f, second, 1, FIRST, N - FIRST, &sum, alone + FIRST * C, NULL, NULL));
    for (int i = 0; i < N * C; i++)
        *bad += differs("y of packed segments", i, y[i], alone[i], 0);
    NRL_TRY(check_gradient(f, f->x, N * C, dx, "dx", bad));
    return check_gradient(f, f->w, C * K, dw, "dw", bad);
}

int main(void)
{
    fixture f = {0};
    int bad = 0;
    nrl_arena *memory = nrl_arena_create();
    const nrl_environment env = {.size = sizeof env};
    nrl_node *config = NULL;
    nrl_component *cpu = NULL;
    nrl_status st = nrl_yaml_value(memory, "check_conv", "{name: cpu, threads: 2}", &config);
    if (st == NRL_OK) st = nrl_component_open(&env, NRL_KIND_BACKEND, "backend", config, &cpu);
    if (st == NRL_OK)
        st = nrl_harness_open((const nrl_backend *)(const void *)nrl_component_table(cpu), nrl_component_options(cpu),
                              &f.h);
    if (st == NRL_OK) st = check(&f, &bad);
    if (st != NRL_OK) printf("error: %s\n", nrl_error_text());
    nrl_harness_close(f.h);
    nrl_component_close(cpu);
    nrl_arena_destroy(memory);
    return st != NRL_OK || bad;
}
