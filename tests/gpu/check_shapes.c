/*
 * check_shapes.c - a backend's operations at the shapes of real models, against sums in double of
 * elements that are picked at random: check_shapes FILE.so SCALE [option=value ...] [--
 * option=value ...]
 *
 * SCALE is tiny (a dry run on any machine), 1b or 8b (Llama 3.2 and 3.1, 8,192 tokens, a
 * vocabulary of 128,256, and buffers of more than 2^31 elements). Options after `--` open the
 * backend a second time: attention of both is then compared element by element. Prints a line an
 * operation and exits 1 if one is off. `nrl plugins test` checks the same operations at small
 * shapes, everywhere and in every variant; what only size can break is looked for here.
 *
 * T tokens, D width, F feed-forward width, V vocabulary, H heads, G key/value heads, K head width
 */
#include "bench/plugin_options.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Buffers repeat a block of random values. Its length is prime, so rows of one matrix differ. */
enum { PERIOD = 1000003, SAMPLES = 64, EXPERTS = 8 };

typedef struct {
    const char *name;
    int64_t tokens, width, inner, vocabulary, heads, kv_heads, head_width, huge; /* huge: elements of a buffer */
} shapes;

static const shapes all_shapes[] = {
    {"tiny", 96, 64, 160, 1000, 4, 2, 32, 3 * PERIOD + 17},
    {"1b", 8192, 2048, 8192, 128256, 32, 8, 64, ((int64_t)1 << 31) + 4113},
    {"8b", 8192, 4096, 14336, 128256, 32, 8, 128, ((int64_t)1 << 31) + 4113},
};

typedef struct {
    const nrl_backend *table;
    void *self;
} device;

typedef struct {
    nrl_mat mat;
    uint64_t seed; /* of its block; 0: computed by an operation */
} buffer;

static float *block; /* [PERIOD] in [-0.5, 0.5), exact in bf16 */
static int failed;
static uint64_t picks = 1;

static void must(nrl_status st)
{
    if (st == NRL_OK) return;
    fprintf(stderr, "check_shapes: %s\n", nrl_error_text());
    exit(1);
}

static int64_t pick(int64_t below)
{
    picks = picks * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((picks >> 16) % (uint64_t)below);
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)(bits >> 16); /* exact: values of the block have 8 bits */
}

static float from_bf16(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void make_block(void)
{
    block = malloc(PERIOD * sizeof *block);
    if (!block) exit(1);
    for (int64_t i = 0; i < PERIOD; i++) {
        uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        block[i] = (float)((double)((x ^ x >> 27) & 0xff) / 256 - 0.5);
    }
}

/* Element (r, c) of a buffer that was filled from the block. */
static double input(const buffer *b, int64_t r, int64_t c)
{
    return block[((uint64_t)(r * b->mat.cols + c) + b->seed) % PERIOD];
}

/* ---- memory ---- */

static void *allocate(const device *d, int64_t n, uint32_t dtype)
{
    void *memory;
    must(d->table->alloc(d->self, (size_t)n * nrl_dtype_size(dtype), &memory));
    return memory;
}

static buffer empty(const device *d, uint32_t dtype, int64_t rows, int64_t cols)
{
    return (buffer){
        .mat = {.data = allocate(d, rows * cols, dtype), .dtype = dtype, .rows = rows, .cols = cols, .stride = cols}};
}

/* The first period comes from the host, the rest is doubled on the device. */
static buffer filled(const device *d, uint32_t dtype, int64_t rows, int64_t cols, uint64_t seed)
{
    buffer b = empty(d, dtype, rows, cols);
    const size_t size = nrl_dtype_size(dtype);
    const int64_t n = rows * cols, first = n < PERIOD ? n : PERIOD;
    char *host = malloc((size_t)first * size);
    if (!host) exit(1);
    b.seed = seed;
    for (int64_t i = 0; i < first; i++) {
        const float x = block[((uint64_t)i + seed) % PERIOD];
        const uint16_t low = to_bf16(x);
        memcpy(host + (size_t)i * size, dtype == NRL_DTYPE_F32 ? (const void *)&x : (const void *)&low, size);
    }
    must(d->table->copy(d->self, NULL, b.mat.data, host, (size_t)first * size, NRL_COPY_TO_DEVICE));
    if (d->table->stream_wait) must(d->table->stream_wait(d->self, NULL));
    free(host);
    for (int64_t done = first; done < n;) {
        const int64_t more = done < n - done ? done : n - done; /* done is a multiple of PERIOD */
        must(d->table->copy(d->self, NULL, (char *)b.mat.data + (size_t)done * size, b.mat.data, (size_t)more * size,
                            NRL_COPY_ON_DEVICE));
        done += more;
    }
    return b;
}

static void drop(const device *d, const buffer *b)
{
    d->table->free(d->self, b->mat.data);
}

/* `n` elements from (r, c) on, as doubles. */
static void fetch(const device *d, const nrl_mat *m, int64_t r, int64_t c, int64_t n, double *out)
{
    const size_t size = nrl_dtype_size(m->dtype);
    char *host = malloc((size_t)n * size);
    if (!host) exit(1);
    must(d->table->copy(d->self, NULL, host, (const char *)m->data + (size_t)(r * m->stride + c) * size,
                        (size_t)n * size, NRL_COPY_TO_HOST));
    if (d->table->stream_wait) must(d->table->stream_wait(d->self, NULL));
    for (int64_t i = 0; i < n; i++)
        if (m->dtype == NRL_DTYPE_F32)
            out[i] = ((const float *)(const void *)host)[i];
        else
            out[i] = from_bf16(((const uint16_t *)(const void *)host)[i]);
    free(host);
}

static double element(const device *d, const nrl_mat *m, int64_t r, int64_t c)
{
    double value;
    fetch(d, m, r, c, 1, &value);
    return value;
}

/* ---- failures ---- */

typedef struct {
    const char *name;
    double worst; /* error over what is allowed */
    int64_t n;
} check;

/* `scale` is the sum of the absolute values that were added: f32 sums of n terms in any order stay
 * within sqrt(n) 2^-23 of it with a wide margin; a result in bf16 is rounded by 2^-8 of itself. */
static void compare(check *k, uint32_t dtype, double got, double want, double scale, double terms)
{
    const double rounding = dtype == NRL_DTYPE_F32 ? 0x1p-23 : 0x1p-8;
    const double allowed = scale * 0x1p-22 * sqrt(terms + 1) + fabs(want) * rounding + 1e-30;
    const double off = fabs(got - want) / allowed;
    if (!(off <= k->worst)) k->worst = isnan(off) ? INFINITY : off;
    k->n++;
}

static void verdict(const check *k)
{
    const int bad = !(k->worst <= 1);
    printf("%-6s %-28s %" PRId64 " elements, the worst at %.2f of what rounding allows\n", bad ? "FAILED" : "ok",
           k->name, k->n, k->worst);
    failed |= bad;
}

/* ---- products ---- */

static double product(const buffer *a, bool ta, const buffer *b, bool tb, int64_t r, int64_t c, int64_t depth,
                      double *scale)
{
    double sum = 0;
    *scale = 0;
    for (int64_t k = 0; k < depth; k++) {
        const double x = (ta ? input(a, k, r) : input(a, r, k)) * (tb ? input(b, c, k) : input(b, k, c));
        sum += x;
        *scale += fabs(x);
    }
    return sum;
}

static void gemm(const device *d, const char *name, const buffer *a, bool ta, const buffer *b, bool tb, uint32_t out)
{
    const int64_t rows = ta ? a->mat.cols : a->mat.rows, depth = ta ? a->mat.rows : a->mat.cols;
    const int64_t cols = tb ? b->mat.rows : b->mat.cols;
    const buffer c = empty(d, out, rows, cols);
    const nrl_gemm_args args = {.size = sizeof args,
                                .transpose_a = ta,
                                .transpose_b = tb,
                                .overwrite = true,
                                .a = a->mat,
                                .b = b->mat,
                                .c = c.mat,
                                .alpha = 1};
    check k = {.name = name};
    must(d->table->ops->gemm(d->self, NULL, &args));
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t r = i ? pick(rows) : rows - 1, col = i ? pick(cols) : cols - 1;
        double scale, want = product(a, ta, b, tb, r, col, depth, &scale);
        compare(&k, out, element(d, &c.mat, r, col), want, scale, (double)depth);
    }
    verdict(&k);
    drop(d, &c);
}

/* What expert e of a mixture has of a buffer: rows of tokens, more for later experts, or of all experts' weights. */
static buffer part_of(const buffer *b, bool has_tokens, int e)
{
    const int64_t n = b->mat.rows, begin = has_tokens ? n * e * e / (EXPERTS * EXPERTS) : n * e / EXPERTS;
    const int64_t end = has_tokens ? n * (e + 1) * (e + 1) / (EXPERTS * EXPERTS) : n * (e + 1) / EXPERTS;
    buffer part = *b;
    part.seed += (uint64_t)(begin * b->mat.cols);
    part.mat.data = (char *)b->mat.data + (size_t)(begin * b->mat.stride) * nrl_dtype_size(b->mat.dtype);
    part.mat.rows = end - begin;
    return part;
}

/* a has tokens; so have c and, of the weight's gradient, b instead. */
static void gemm_all(const device *d, const char *name, const buffer *a, bool ta, const buffer *b, bool tb,
                     uint32_t out, int64_t rows, int64_t cols)
{
    const buffer c = empty(d, out, rows, cols);
    nrl_gemm_args calls[EXPERTS];
    check k = {.name = name};
    for (int e = 0; e < EXPERTS; e++)
        calls[e] = (nrl_gemm_args){.size = sizeof *calls,
                                   .transpose_a = ta,
                                   .transpose_b = tb,
                                   .overwrite = true,
                                   .a = part_of(a, true, e).mat,
                                   .b = part_of(b, ta, e).mat,
                                   .c = part_of(&c, !ta, e).mat,
                                   .alpha = 1};
    must(d->table->gemm_all(d->self, NULL, calls, EXPERTS));
    for (int i = 0; i < SAMPLES; i++) {
        const int e = i % EXPERTS;
        const nrl_mat *to = &calls[e].c;
        const buffer left = part_of(a, true, e), right = part_of(b, ta, e);
        const int64_t depth = ta ? left.mat.rows : left.mat.cols;
        const int64_t r = i < EXPERTS ? to->rows - 1 : pick(to->rows),
                      col = i < EXPERTS ? to->cols - 1 : pick(to->cols);
        double scale, want = product(&left, ta, &right, tb, r, col, depth, &scale);
        compare(&k, out, element(d, to, r, col), want, scale, (double)depth);
    }
    verdict(&k);
    drop(d, &c);
}

static void experts(const device *d, const shapes *s)
{
    const int64_t inner = s->inner / EXPERTS;
    const buffer x = filled(d, NRL_DTYPE_BF16, s->tokens, s->width, 1),
                 w = filled(d, NRL_DTYPE_BF16, s->inner, s->width, 2),
                 y = filled(d, NRL_DTYPE_BF16, s->tokens, inner, 3);
    gemm_all(d, "experts forward bf16", &x, false, &w, true, NRL_DTYPE_BF16, s->tokens, inner);
    gemm_all(d, "experts dx bf16", &y, false, &w, false, NRL_DTYPE_BF16, s->tokens, s->width);
    gemm_all(d, "experts dw bf16 to f32", &y, true, &x, false, NRL_DTYPE_F32, s->inner, s->width);
    drop(d, &x), drop(d, &w), drop(d, &y);
}

static void products(const device *d, const shapes *s)
{
    const buffer x = filled(d, NRL_DTYPE_BF16, s->tokens, s->width, 1),
                 w = filled(d, NRL_DTYPE_BF16, s->inner, s->width, 2);
    const buffer y = filled(d, NRL_DTYPE_BF16, s->tokens, s->inner, 3),
                 e = filled(d, NRL_DTYPE_BF16, s->vocabulary, s->width, 4);
    gemm(d, "gemm forward bf16", &x, false, &w, true, NRL_DTYPE_BF16);
    gemm(d, "gemm dx bf16", &y, false, &w, false, NRL_DTYPE_BF16);
    gemm(d, "gemm dw bf16 to f32", &y, true, &x, false, NRL_DTYPE_F32);
    gemm(d, "gemm logits bf16 to f32", &x, false, &e, true, NRL_DTYPE_F32);
    drop(d, &x), drop(d, &w), drop(d, &y), drop(d, &e);
    const buffer a = filled(d, NRL_DTYPE_F32, s->tokens, s->width, 5),
                 b = filled(d, NRL_DTYPE_F32, s->inner, s->width, 6);
    gemm(d, "gemm forward f32", &a, false, &b, true, NRL_DTYPE_F32);
    drop(d, &a), drop(d, &b);
}

/* ---- rows ---- */

static void norms(const device *d, const shapes *s, uint32_t dtype)
{
    const buffer x = filled(d, dtype, s->tokens, s->width, 7), w = filled(d, dtype, 1, s->width, 8);
    const buffer dy = filled(d, dtype, s->tokens, s->width, 9), y = empty(d, dtype, s->tokens, s->width);
    const buffer dx = empty(d, dtype, s->tokens, s->width), dw = empty(d, NRL_DTYPE_F32, 1, s->width);
    const buffer rstd = empty(d, NRL_DTYPE_F32, 1, s->tokens);
    const nrl_norm_args args = {
        .size = sizeof args, .rms = true, .x = x.mat, .weight = w.mat, .y = y.mat, .rstd = rstd.mat, .eps = 1e-5};
    const nrl_norm_grad_args grad = {.size = sizeof grad,
                                     .rms = true,
                                     .overwrite_weight = true,
                                     .x = x.mat,
                                     .weight = w.mat,
                                     .rstd = rstd.mat,
                                     .dy = dy.mat,
                                     .dx = dx.mat,
                                     .dweight = dw.mat};
    double *scales = malloc((size_t)s->tokens * sizeof *scales);
    if (!scales) exit(1);
    must(d->table->ops->norm(d->self, NULL, &args));
    must(d->table->ops->norm_grad(d->self, NULL, &grad));
    for (int64_t r = 0; r < s->tokens; r++) {
        double sum = 0;
        for (int64_t c = 0; c < s->width; c++)
            sum += input(&x, r, c) * input(&x, r, c);
        scales[r] = 1 / sqrt(sum / (double)s->width + 1e-5);
    }
    check forward = {.name = dtype == NRL_DTYPE_F32 ? "rms_norm f32" : "rms_norm bf16"};
    check backward = {.name = dtype == NRL_DTYPE_F32 ? "rms_norm_grad dx f32" : "rms_norm_grad dx bf16"};
    check weights = {.name = dtype == NRL_DTYPE_F32 ? "rms_norm_grad dweight f32" : "rms_norm_grad dweight bf16"};
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t r = i ? pick(s->tokens) : s->tokens - 1, c = i ? pick(s->width) : s->width - 1;
        double dot = 0, size = 0, sum = 0, total = 0;
        for (int64_t j = 0; j < s->width; j++) {
            const double term = input(&dy, r, j) * input(&w, 0, j) * input(&x, r, j) * scales[r];
            dot += term;
            size += fabs(term);
        }
        const double n = (double)s->width, hat = input(&x, r, c) * scales[r];
        const double want = scales[r] * (input(&dy, r, c) * input(&w, 0, c) - hat * dot / n);
        compare(&forward, dtype, element(d, &y.mat, r, c), hat * input(&w, 0, c), fabs(hat), 4);
        compare(&backward, dtype, element(d, &dx.mat, r, c), want, scales[r] * (1 + fabs(hat) * size / n), n);
        for (int64_t t = 0; t < s->tokens; t++) {
            const double term = input(&dy, t, c) * input(&x, t, c) * scales[t];
            sum += term;
            total += fabs(term);
        }
        compare(&weights, NRL_DTYPE_F32, element(d, &dw.mat, 0, c), sum, total, (double)s->tokens);
    }
    verdict(&forward), verdict(&backward), verdict(&weights);
    free(scales);
    drop(d, &x), drop(d, &w), drop(d, &dy), drop(d, &y), drop(d, &dx), drop(d, &dw), drop(d, &rstd);
}

/* Logits [T,V] f32: log-probs, log-sum-exps, and the gradient in bf16. */
static void head(const device *d, const shapes *s)
{
    const buffer z = filled(d, NRL_DTYPE_F32, s->tokens, s->vocabulary, 10),
                 dz = empty(d, NRL_DTYPE_BF16, s->tokens, s->vocabulary);
    const buffer logp = empty(d, NRL_DTYPE_F32, 1, s->tokens), lse = empty(d, NRL_DTYPE_F32, 1, s->tokens);
    const buffer g = filled(d, NRL_DTYPE_F32, 1, s->tokens, 11);
    int32_t *target = malloc((size_t)s->tokens * sizeof *target);
    if (!target) exit(1);
    for (int64_t r = 0; r < s->tokens; r++)
        target[r] = (int32_t)pick(s->vocabulary);
    const buffer on_device = empty(d, NRL_DTYPE_F32, 1, s->tokens); /* as many bytes */
    must(d->table->copy(d->self, NULL, on_device.mat.data, target, (size_t)s->tokens * 4, NRL_COPY_TO_DEVICE));
    const nrl_head_args args = {.size = sizeof args,
                                .logits = z.mat,
                                .target = on_device.mat.data,
                                .inverse_temperature = 1,
                                .logp = logp.mat.data,
                                .lse = lse.mat.data};
    const nrl_head_grad_args grad = {.size = sizeof grad,
                                     .logits = z.mat,
                                     .dlogits = dz.mat,
                                     .target = on_device.mat.data,
                                     .inverse_temperature = 1,
                                     .lse = lse.mat.data,
                                     .dlogp = g.mat.data};
    must(d->table->ops->head(d->self, NULL, &args));
    must(d->table->ops->head_grad(d->self, NULL, &grad));
    check forward = {.name = "head logp"}, backward = {.name = "head_grad"};
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t r = i ? pick(s->tokens) : s->tokens - 1, c = i % 2 ? target[r] : pick(s->vocabulary);
        double sum = 0;
        for (int64_t v = 0; v < s->vocabulary; v++)
            sum += exp(input(&z, r, v));
        const double want = input(&z, r, target[r]) - log(sum), p = exp(input(&z, r, c)) / sum;
        compare(&forward, NRL_DTYPE_F32, element(d, &logp.mat, 0, r), want, fabs(want) + 1, (double)s->vocabulary);
        const double slope = input(&g, 0, r) * ((c == target[r] ? 1 : 0) - p);
        compare(&backward, NRL_DTYPE_BF16, element(d, &dz.mat, r, c), slope, fabs(slope), 64);
    }
    verdict(&forward), verdict(&backward);
    free(target);
    drop(d, &z), drop(d, &dz), drop(d, &logp), drop(d, &lse), drop(d, &g), drop(d, &on_device);
}

/* Rows of the embedding, and their gradients: many tokens share a row. */
static void embedding(const device *d, const shapes *s)
{
    const buffer e = filled(d, NRL_DTYPE_BF16, s->vocabulary, s->width, 12),
                 y = empty(d, NRL_DTYPE_BF16, s->tokens, s->width);
    const buffer dy = filled(d, NRL_DTYPE_BF16, s->tokens, s->width, 13),
                 de = empty(d, NRL_DTYPE_F32, s->vocabulary, s->width);
    const buffer on_device = empty(d, NRL_DTYPE_F32, 1, s->tokens);
    int32_t *index = malloc((size_t)s->tokens * sizeof *index);
    if (!index) exit(1);
    for (int64_t t = 0; t < s->tokens; t++)
        index[t] = (int32_t)(t % 3 ? pick(s->vocabulary) : s->vocabulary - 1);
    must(d->table->copy(d->self, NULL, on_device.mat.data, index, (size_t)s->tokens * 4, NRL_COPY_TO_DEVICE));
    const nrl_gather_args args = {.size = sizeof args, .x = e.mat, .y = y.mat, .index = on_device.mat.data};
    const nrl_scatter_args grad = {
        .size = sizeof grad, .overwrite = true, .dy = dy.mat, .dx = de.mat, .index = on_device.mat.data};
    must(d->table->ops->gather(d->self, NULL, &args));
    must(d->table->ops->scatter(d->self, NULL, &grad));
    check forward = {.name = "gather"}, backward = {.name = "scatter"};
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t t = i ? pick(s->tokens) : 0, c = pick(s->width), row = index[t];
        double sum = 0, total = 0;
        compare(&forward, NRL_DTYPE_BF16, element(d, &y.mat, t, c), input(&e, row, c), 0, 0);
        for (int64_t j = 0; j < s->tokens; j++)
            if (index[j] == row) sum += input(&dy, j, c), total += fabs(input(&dy, j, c));
        compare(&backward, NRL_DTYPE_F32, element(d, &de.mat, row, c), sum, total, (double)s->tokens);
    }
    verdict(&forward), verdict(&backward);
    free(index);
    drop(d, &e), drop(d, &y), drop(d, &dy), drop(d, &de), drop(d, &on_device);
}

/* ---- attention: three packed segments of unequal lengths, causal ---- */

typedef struct {
    buffer q, k, v, dy, y, lse, dq, dk, dv;
    int32_t cu[4];
    void *device_cu;
    nrl_attention_args forward;
    nrl_attention_grad_args args;
} attention;

static void attention_run(const device *d, const shapes *s, attention *a)
{
    const int64_t t = s->tokens, wide = s->heads * s->head_width, narrow = s->kv_heads * s->head_width;
    const uint32_t b = NRL_DTYPE_BF16;
    *a = (attention){.q = filled(d, b, t, wide, 14),
                     .k = filled(d, b, t, narrow, 15),
                     .v = filled(d, b, t, narrow, 16),
                     .dy = filled(d, b, t, wide, 17),
                     .y = empty(d, b, t, wide),
                     .lse = empty(d, NRL_DTYPE_F32, s->heads, t),
                     .dq = empty(d, b, t, wide),
                     .dk = empty(d, b, t, narrow),
                     .dv = empty(d, b, t, narrow)};
    a->cu[1] = (int32_t)(t / 2 + 3), a->cu[2] = (int32_t)(t - 5), a->cu[3] = (int32_t)t;
    a->device_cu = allocate(d, 4, NRL_DTYPE_F32);
    must(d->table->copy(d->self, NULL, a->device_cu, a->cu, sizeof a->cu, NRL_COPY_TO_DEVICE));
    a->forward = (nrl_attention_args){.size = sizeof a->forward,
                                      .n_segments = 3,
                                      .q = a->q.mat,
                                      .k = a->k.mat,
                                      .v = a->v.mat,
                                      .y = a->y.mat,
                                      .lse = a->lse.mat,
                                      .cu_q = a->device_cu,
                                      .cu_k = a->device_cu,
                                      .host_cu_q = a->cu,
                                      .host_cu_k = a->cu,
                                      .n_heads = s->heads,
                                      .n_kv_heads = s->kv_heads,
                                      .head_dim = s->head_width,
                                      .scale = 1 / sqrt((double)s->head_width)};
    a->args = (nrl_attention_grad_args){.size = sizeof a->args,
                                        .forward = &a->forward,
                                        .dy = a->dy.mat,
                                        .dq = a->dq.mat,
                                        .dk = a->dk.mat,
                                        .dv = a->dv.mat};
    must(d->table->ops->attention(d->self, NULL, &a->forward));
    must(d->table->ops->attention_grad(d->self, NULL, &a->args));
}

static void attention_drop(const device *d, const attention *a)
{
    const buffer *const all[] = {&a->q, &a->k, &a->v, &a->dy, &a->y, &a->lse, &a->dq, &a->dk, &a->dv};
    for (int i = 0; i < 9; i++)
        drop(d, all[i]);
    d->table->free(d->self, a->device_cu);
}

/* Probabilities p[j] of query t of head h over the keys from `first` on, and dp[j] = dy . v[j]; sum
 * of p dp returned. */
static double attention_row(const shapes *s, const attention *a, int64_t h, int64_t t, int64_t first, double *p,
                            double *dp)
{
    const int64_t width = s->head_width, g = h / (s->heads / s->kv_heads);
    double sum = 0, dot = 0;
    for (int64_t j = first; j <= t; j++) {
        double score = 0;
        dp[j - first] = 0;
        for (int64_t c = 0; c < width; c++) {
            score += input(&a->q, t, h * width + c) * input(&a->k, j, g * width + c);
            dp[j - first] += input(&a->dy, t, h * width + c) * input(&a->v, j, g * width + c);
        }
        p[j - first] = exp(score * a->forward.scale);
        sum += p[j - first];
    }
    for (int64_t j = first; j <= t; j++) {
        p[j - first] /= sum;
        dot += p[j - first] * dp[j - first];
    }
    return dot;
}

static int64_t segment_first(const attention *a, int64_t t)
{
    return t >= a->cu[2] ? a->cu[2] : t >= a->cu[1] ? a->cu[1] : 0;
}

static void attention_check(const device *d, const shapes *s)
{
    attention a;
    const int64_t width = s->head_width, group = s->heads / s->kv_heads;
    double *p = malloc((size_t)s->tokens * sizeof *p), *dp = malloc((size_t)s->tokens * sizeof *dp);
    if (!p || !dp) exit(1);
    attention_run(d, s, &a);
    /* Probabilities and their gradients are rounded to bf16 before they are multiplied: 2^-8 of
     * each term, not of the sum, so a result is allowed two such roundings of the sum of absolute
     * terms: 2^15 2^-22. */
    check y = {.name = "attention y"}, dq = {.name = "attention dq"}, dk = {.name = "attention dk"},
          dv = {.name = "attention dv"};
    for (int i = 0; i < SAMPLES / 4; i++) {
        const int64_t h = pick(s->heads), t = i ? pick(s->tokens) : s->tokens - 1, c = pick(width),
                      first = segment_first(&a, t);
        const int64_t g = h / group;
        const double dot = attention_row(s, &a, h, t, first, p, dp);
        double sum = 0, total = 0, slope = 0, slopes = 0;
        for (int64_t j = first; j <= t; j++) {
            const double ds = p[j - first] * (dp[j - first] - dot) * a.forward.scale;
            sum += p[j - first] * input(&a.v, j, g * width + c);
            total += fabs(p[j - first] * input(&a.v, j, g * width + c));
            slope += ds * input(&a.k, j, g * width + c);
            slopes += p[j - first] * (fabs(dp[j - first]) + fabs(dot)) * a.forward.scale *
                      fabs(input(&a.k, j, g * width + c));
        }
        compare(&y, NRL_DTYPE_BF16, element(d, &a.y.mat, t, h * width + c), sum, total * 0x1p15, 0);
        compare(&dq, NRL_DTYPE_BF16, element(d, &a.dq.mat, t, h * width + c), slope, slopes * 0x1p15, 0);
    }
    for (int i = 0; i < SAMPLES / 16; i++) { /* a key is seen by the queries behind it in its segment */
        const int64_t last = i ? s->tokens : a.cu[1], reach = s->tokens < 256 ? s->tokens : 256;
        const int64_t j = (last < reach ? 0 : last - reach) + pick(last < reach ? last : reach),
                      first = segment_first(&a, j), g = pick(s->kv_heads), c = pick(width);
        double sum = 0, total = 0, slope = 0, slopes = 0;
        for (int64_t t = j; t < s->tokens && segment_first(&a, t) == first; t++)
            for (int64_t h = g * group; h < (g + 1) * group; h++) {
                const double dot = attention_row(s, &a, h, t, first, p, dp), one = p[j - first], x = dp[j - first];
                sum += one * input(&a.dy, t, h * width + c);
                total += fabs(one * input(&a.dy, t, h * width + c));
                slope += one * (x - dot) * a.forward.scale * input(&a.q, t, h * width + c);
                slopes += one * (fabs(x) + fabs(dot)) * a.forward.scale * fabs(input(&a.q, t, h * width + c));
            }
        compare(&dv, NRL_DTYPE_BF16, element(d, &a.dv.mat, j, g * width + c), sum, total * 0x1p15, 0);
        compare(&dk, NRL_DTYPE_BF16, element(d, &a.dk.mat, j, g * width + c), slope, slopes * 0x1p15, 0);
    }
    verdict(&y), verdict(&dq), verdict(&dk), verdict(&dv);
    free(p), free(dp);
    attention_drop(d, &a);
}

/* The same operation by two devices, or one device with other options: every row of a sample of
 * tokens. */
static void beside(const device *d, const device *other, const shapes *s)
{
    attention a, b;
    attention_run(d, s, &a);
    attention_run(other, s, &b);
    const struct {
        const char *name;
        const nrl_mat *one, *two;
    } pairs[] = {{"attention y, both ways", &a.y.mat, &b.y.mat},
                 {"attention dq, both ways", &a.dq.mat, &b.dq.mat},
                 {"attention dk, both ways", &a.dk.mat, &b.dk.mat},
                 {"attention dv, both ways", &a.dv.mat, &b.dv.mat}};
    for (int i = 0; i < 4; i++) {
        const int64_t n = pairs[i].one->cols;
        double *one = malloc((size_t)n * sizeof *one), *two = malloc((size_t)n * sizeof *two);
        if (!one || !two) exit(1);
        check k = {.name = pairs[i].name};
        for (int j = 0; j < SAMPLES; j++) {
            const int64_t t = j ? pick(s->tokens) : s->tokens - 1;
            double size = 0;
            fetch(d, pairs[i].one, t, 0, n, one);
            fetch(other, pairs[i].two, t, 0, n, two);
            for (int64_t c = 0; c < n; c++)
                size += one[c] * one[c] / (double)n;
            for (int64_t c = 0; c < n; c++) /* both round probabilities to bf16, each in its own way */
                compare(&k, NRL_DTYPE_BF16, one[c], two[c], (sqrt(size) + fabs(two[c])) * 0x1p15, 0);
        }
        verdict(&k);
        free(one), free(two);
    }
    attention_drop(d, &a);
    attention_drop(other, &b);
}

/* ---- buffers of more than 2^31 elements ---- */

static void huge(const device *d, const shapes *s)
{
    const buffer x = filled(d, NRL_DTYPE_BF16, 1, s->huge, 18), wide = empty(d, NRL_DTYPE_F32, 1, s->huge);
    const nrl_copy_args copy = {.size = sizeof copy, .x = x.mat, .y = wide.mat, .alpha = 2};
    must(d->table->ops->copy(d->self, NULL, &copy));
    check k = {.name = "copy of a huge buffer"}, u = {.name = "unary on a huge buffer"},
          sq = {.name = "square_sum, huge"};
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t c = i < 2 ? s->huge - 1 - i : pick(s->huge);
        compare(&k, NRL_DTYPE_F32, element(d, &wide.mat, 0, c), 2 * input(&x, 0, c), 0, 0);
    }
    verdict(&k);
    const nrl_unary_args unary = {.size = sizeof unary, .op = NRL_UNARY_SQUARE, .x = wide.mat, .y = wide.mat};
    must(d->table->ops->unary(d->self, NULL, &unary));
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t c = i < 2 ? s->huge - 1 - i : pick(s->huge);
        compare(&u, NRL_DTYPE_F32, element(d, &wide.mat, 0, c), 4 * input(&x, 0, c) * input(&x, 0, c), 0, 0);
    }
    verdict(&u);
    double *out = allocate(d, 2, NRL_DTYPE_F32), got, sum = 0, rest = 0;
    const nrl_square_sum_args square = {.size = sizeof square, .overwrite = true, .x = x.mat, .out = out};
    must(d->table->ops->square_sum(d->self, NULL, &square));
    must(d->table->copy(d->self, NULL, &got, out, sizeof got, NRL_COPY_TO_HOST));
    if (d->table->stream_wait) must(d->table->stream_wait(d->self, NULL));
    for (int64_t i = 0; i < PERIOD; i++) {
        const double value = block[((uint64_t)i + x.seed) % PERIOD];
        sum += value * value;
        if (i < s->huge % PERIOD) rest += value * value;
    }
    sum = sum * (double)(s->huge / PERIOD) + rest;
    compare(&sq, NRL_DTYPE_F32, got, sum, sum, 1);
    verdict(&sq);
    d->table->free(d->self, out);
    drop(d, &x), drop(d, &wide);
}

static void update(const device *d, const shapes *s)
{
    const int64_t n = s->vocabulary * s->width;
    const buffer w = filled(d, NRL_DTYPE_F32, 1, n, 19), g = filled(d, NRL_DTYPE_F32, 1, n, 20),
                 m = filled(d, NRL_DTYPE_F32, 1, n, 21), low = empty(d, NRL_DTYPE_BF16, 1, n);
    const buffer v = filled(d, NRL_DTYPE_F32, 1, n, 22);
    const nrl_unary_args positive = {.size = sizeof positive, .op = NRL_UNARY_SQUARE, .x = v.mat, .y = v.mat};
    must(d->table->ops->unary(d->self, NULL, &positive));
    const nrl_adamw_args args = {.size = sizeof args,
                                 .master = w.mat,
                                 .grad = g.mat,
                                 .m = m.mat,
                                 .v = v.mat,
                                 .work = low.mat,
                                 .lr = 1e-2,
                                 .grad_scale = 0.5,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .correction1 = 0.1,
                                 .correction2 = 0.05};
    must(d->table->ops->adamw(d->self, NULL, &args));
    check k = {.name = "adamw of an embedding"};
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t c = i ? pick(n) : n - 1;
        const double grad = 0.5 * input(&g, 0, c), m1 = 0.9 * input(&m, 0, c) + 0.1 * grad;
        const double v1 = 0.95 * input(&v, 0, c) * input(&v, 0, c) + 0.05 * grad * grad, old = input(&w, 0, c);
        const double step = 1e-2 * (m1 / 0.1) / (sqrt(v1 / 0.05) + 1e-8), want = old - 1e-3 * old - step;
        compare(&k, NRL_DTYPE_F32, element(d, &w.mat, 0, c), want, fabs(old) + fabs(step), 16);
    }
    verdict(&k);
    drop(d, &w), drop(d, &g), drop(d, &m), drop(d, &v), drop(d, &low);
}

/* Opens the backend with the words up to `--` or the end; returns how many there were. */
static int open_device(const nrl_backend *table, char **words, int n, device *fill)
{
    int used = 0;
    while (used < n && strcmp(words[used], "--"))
        used++;
    void *options = plugin_options(&table->plugin, (const char *const *)words, used);
    if (!options) {
        fprintf(stderr, "check_shapes: a word that is not an option\n");
        exit(2);
    }
    fill->table = table;
    must(table->open(options, 0, &fill->self));
    return used;
}

int main(int argc, char **argv)
{
    const nrl_plugin *(*entry)(void) = NULL;
    const shapes *s = NULL;
    void *so = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (so) *(void **)&entry = dlsym(so, "nrl_plugin_entry");
    for (size_t i = 0; entry && i < sizeof all_shapes / sizeof *all_shapes; i++)
        if (!strcmp(all_shapes[i].name, argv[2])) s = &all_shapes[i];
    if (!s || entry()->kind != NRL_KIND_BACKEND) {
        fprintf(stderr, "usage: check_shapes BACKEND.so tiny|1b|8b [option=value ...] [-- option=value ...]\n");
        return 2;
    }
    const nrl_backend *table = (const nrl_backend *)(const void *)entry();
    device d, other;
    make_block();
    const int used = 3 + open_device(table, argv + 3, argc - 3, &d);
    if (used < argc) {
        open_device(table, argv + used + 1, argc - used - 1, &other);
        beside(&d, &other, s);
        table->close(other.self);
    } else {
        products(&d, s);
        if (d.table->gemm_all) experts(&d, s);
        norms(&d, s, NRL_DTYPE_F32);
        norms(&d, s, NRL_DTYPE_BF16);
        head(&d, s);
        embedding(&d, s);
        attention_check(&d, s);
        update(&d, s);
        huge(&d, s);
    }
    table->close(d.self);
    free(block);
    return failed;
}
