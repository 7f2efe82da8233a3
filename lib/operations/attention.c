/*
 * attention.c - causal attention with ALiBi and sinks: a plain kernel, which stores scores of one query at a time.
 * i query, j key, h query head, g key/value head.
 */
#include "kernel.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The rows of the keys that query i sees, in two ranges: of its prompt and of its own segment. */
typedef struct {
    int64_t begin[2], end[2];
} key_ranges;

static key_ranges keys_of(const nrl_packing *p, int64_t window, int64_t i)
{
    const int32_t s = p->host_segments[i], prefix = p->host_prefix[s];
    key_ranges k = {{0, p->host_cu_seqlens[s]}, {0, i + 1}};
    if (prefix >= 0) {
        k.begin[0] = p->host_cu_seqlens[prefix];
        k.end[0] = p->host_cu_seqlens[prefix + 1];
    }
    for (int r = 0; r < 2 && window > 0; r++)
        while (k.begin[r] < k.end[r] && p->host_positions[i] - p->host_positions[k.begin[r]] >= window)
            k.begin[r]++;
    return k;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

static double score(const nrl_kernel_args *a, int64_t h, int64_t i, int64_t j)
{
    const nrl_biased_attention_attributes *at = a->attributes;
    const int64_t width = at->spec.head_dim, g = h * at->spec.n_kv_heads / at->spec.n_heads;
    const int32_t *positions = a->packing->host_positions;
    double s = dot(kernel_row(&a->inputs[0], i) + h * width, kernel_row(&a->inputs[1], j) + g * width, width);
    s *= at->spec.scale;
    return at->slopes ? s - at->slopes[h] * (positions[i] - positions[j]) : s;
}

static bool has_sinks(const nrl_kernel_args *a)
{
    return a->n_inputs > 3;
}

static double sink_of(const nrl_kernel_args *a, int64_t h)
{
    return has_sinks(a) ? (double)((const float *)a->inputs[3].data)[h] : -INFINITY;
}

/* One query of one head: lse, then the weighted sum of values. */
static void attend(const nrl_kernel_args *a, int64_t h, int64_t i)
{
    const nrl_biased_attention_attributes *at = a->attributes;
    const int64_t width = at->spec.head_dim, g = h * at->spec.n_kv_heads / at->spec.n_heads;
    const key_ranges k = keys_of(a->packing, at->spec.window, i);
    float *y = kernel_row(&a->outputs[0], i) + h * width;
    double most = sink_of(a, h), sum = 0;
    for (int r = 0; r < 2; r++)
        for (int64_t j = k.begin[r]; j < k.end[r]; j++)
            most = fmax(most, score(a, h, i, j));
    if (has_sinks(a)) sum = exp(sink_of(a, h) - most);
    memset(y, 0, (size_t)width * sizeof *y);
    for (int r = 0; r < 2; r++)
        for (int64_t j = k.begin[r]; j < k.end[r]; j++) {
            const double p = exp(score(a, h, i, j) - most);
            const float *v = kernel_row(&a->inputs[2], j) + g * width;
            sum += p;
            for (int64_t c = 0; c < width; c++)
                y[c] += (float)p * v[c];
        }
    for (int64_t c = 0; c < width; c++)
        y[c] /= (float)sum;
    kernel_row(&a->outputs[1], h)[i] = (float)(most + log(sum));
}

static void attend_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_kernel_args *a = arg;
    const nrl_biased_attention_attributes *at = a->attributes;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        for (int64_t h = 0; h < at->spec.n_heads; h++)
            attend(a, h, i);
}

static nrl_status attention_forward(const nrl_kernel_args *a)
{
    nrl_host_split(a->ctx, a->inputs[0].rows, 1, attend_rows, (void *)a);
    return NRL_OK;
}

static void add_scaled(float *to, const float *x, double factor, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c] += (float)factor * x[c];
}

/* With D = dy . y: dv_j += p dy, ds = p (dy . v_j - D), dq += scale ds k_j, dk_j += scale ds q, and of the sink, whose
 * value is 0, ds = -p D. Absent gradients have a temporary place. */
static void unattend(const nrl_kernel_args *a, int64_t h, int64_t i)
{
    const nrl_biased_attention_attributes *at = a->attributes;
    const int64_t width = at->spec.head_dim, g = h * at->spec.n_kv_heads / at->spec.n_heads;
    const key_ranges k = keys_of(a->packing, at->spec.window, i);
    const float *dy = kernel_row(&a->output_grads[0], i) + h * width, *q = kernel_row(&a->inputs[0], i) + h * width;
    const double lse = (double)kernel_row(&a->outputs[1], h)[i];
    const double d = dot(dy, kernel_row(&a->outputs[0], i) + h * width, width);
    float *dq = kernel_row(&a->input_grads[0], i) + h * width;
    for (int r = 0; r < 2; r++)
        for (int64_t j = k.begin[r]; j < k.end[r]; j++) {
            const float *key = kernel_row(&a->inputs[1], j) + g * width, *v = kernel_row(&a->inputs[2], j) + g * width;
            const double p = exp(score(a, h, i, j) - lse), ds = p * (dot(dy, v, width) - d) * at->spec.scale;
            add_scaled(dq, key, ds, width);
            add_scaled(kernel_row(&a->input_grads[1], j) + g * width, q, ds, width);
            add_scaled(kernel_row(&a->input_grads[2], j) + g * width, dy, p, width);
        }
    if (has_sinks(a)) ((float *)a->input_grads[3].data)[h] -= (float)(exp(sink_of(a, h) - lse) * d);
}

/* Key/value heads are independent of each other. */
static void unattend_heads(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_kernel_args *a = arg;
    const nrl_biased_attention_attributes *at = a->attributes;
    const int64_t group = at->spec.n_heads / at->spec.n_kv_heads;
    (void)thread;
    for (int64_t h = begin * group; h < end * group; h++)
        for (int64_t i = 0; i < a->inputs[0].rows; i++)
            unattend(a, h, i);
}

static nrl_status attention_backward(const nrl_kernel_args *a)
{
    const nrl_biased_attention_attributes *at = a->attributes;
    nrl_kernel_args all = *a;
    for (int i = 0; i < (int)a->n_inputs; i++) {
        nrl_tensor *t;
        if (!all.input_grads[i].data) {
            NRL_TRY(kernel_matrix(a->ctx, NRL_DTYPE_F32, a->inputs[i].rows, a->inputs[i].cols, &t));
            all.input_grads[i] = nrl_tensor_mat(t);
        }
        for (int64_t r = 0; r < all.input_grads[i].rows; r++)
            memset(kernel_row(&all.input_grads[i], r), 0, (size_t)all.input_grads[i].cols * sizeof(float));
    }
    nrl_host_split(a->ctx, at->spec.n_kv_heads, 1, unattend_heads, &all);
    return NRL_OK;
}

static const nrl_kernel kernels[] = {{"cpu", attention_forward, attention_backward}, {NULL, NULL, NULL}};
static const nrl_custom_op attention = {.size = sizeof attention,
                                        .kernel_size = sizeof *kernels,
                                        .name = "nrl.biased_attention",
                                        .kernels = kernels,
                                        .saved_inputs = 15,
                                        .saved_outputs = 3};
/* The same without sinks, whose list of inputs is shorter. */
static const nrl_custom_op attention_plain = {.size = sizeof attention_plain,
                                              .kernel_size = sizeof *kernels,
                                              .name = "nrl.biased_attention",
                                              .kernels = kernels,
                                              .saved_inputs = 7,
                                              .saved_outputs = 3};

nrl_status nrl_op_biased_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                   const nrl_biased_attention *spec, nrl_tensor **y)
{
    const nrl_attention_spec *s = &spec->attention;
    const nrl_mat mq = nrl_tensor_mat(q), mk = nrl_tensor_mat(k), mv = nrl_tensor_mat(v);
    const nrl_biased_attention_attributes at = {.size = sizeof at, .spec = *s, .slopes = spec->slopes};
    nrl_tensor *in[4], *out[2];
    nrl_packing packing;
    NRL_TRY(nrl_ctx_packing(ctx, &packing));
    if (s->n_kv_heads < 1 || s->n_heads % s->n_kv_heads || mq.cols != s->n_heads * s->head_dim ||
        mk.cols != s->n_kv_heads * s->head_dim || mv.cols != mk.cols || mq.rows != packing.n_tokens ||
        (spec->sinks && nrl_tensor_numel(spec->sinks) != s->n_heads))
        return nrl_fail(NRL_ERR_BUG,
                        "biased attention: q is [%lld,%lld], k has %lld columns, v has %lld, for %lld tokens, %lld "
                        "heads, %lld key heads of %lld",
                        (long long)mq.rows, (long long)mq.cols, (long long)mk.cols, (long long)mv.cols,
                        (long long)packing.n_tokens, (long long)s->n_heads, (long long)s->n_kv_heads,
                        (long long)s->head_dim);
    NRL_TRY(kernel_f32(ctx, q, &in[0]));
    NRL_TRY(kernel_f32(ctx, k, &in[1]));
    NRL_TRY(kernel_f32(ctx, v, &in[2]));
    if (spec->sinks) NRL_TRY(kernel_f32(ctx, spec->sinks, &in[3]));
    NRL_TRY(kernel_matrix(ctx, NRL_DTYPE_F32, mq.rows, mq.cols, &out[0]));
    NRL_TRY(kernel_matrix(ctx, NRL_DTYPE_F32, s->n_heads, mq.rows, &out[1]));
    NRL_TRY(nrl_op_custom(ctx, spec->sinks ? &attention : &attention_plain, in, spec->sinks ? 4 : 3, out, 2, &at,
                          sizeof at));
    *y = out[0];
    return kernel_back(ctx, q, y);
}

/* For a power of two, slope h is 2^(-8 (h+1) / n); otherwise those of the next lower power of two come first, and then
 * every second one of the next higher. */
void nrl_op_alibi_slopes(int64_t n_heads, double *slopes)
{
    int64_t power = 1;
    while (2 * power <= n_heads)
        power *= 2;
    for (int64_t h = 0; h < n_heads; h++)
        slopes[h] = h < power ? exp2(-8.0 * (double)(h + 1) / (double)power)
                              : exp2(-4.0 * (double)(2 * (h - power) + 1) / (double)power);
}
