/*
 * quantize.c - see quantize.h.
 */
#include "base/quantize.h"
#include "base/arena.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {[QUANTIZE_NF4] = "nf4", [QUANTIZE_FP4] = "fp4", [QUANTIZE_INT8] = "int8"};

const char *quantize_name(quantize_kind kind)
{
    return kind ? names[kind] : "";
}

quantize_kind quantize_kind_of(const char *name)
{
    for (int k = QUANTIZE_NF4; k <= QUANTIZE_INT8; k++)
        if (!strcmp(names[k], name)) return (quantize_kind)k;
    return QUANTIZE_NONE;
}

/* ---- codes ---- */

/* Quantiles of a normal distribution, appendix E of the paper on QLoRA. */
static const float nf4[16] = {-1.0F,
                              -0.6961928009986877F,
                              -0.5250730514526367F,
                              -0.39491748809814453F,
                              -0.28444138169288635F,
                              -0.18477343022823334F,
                              -0.09105003625154495F,
                              0.0F,
                              0.07958029955625534F,
                              0.16093020141124725F,
                              0.24611230194568634F,
                              0.33791524171829224F,
                              0.44070982933044434F,
                              0.5626170039176941F,
                              0.7229568362236023F,
                              1.0F};
/* A sign and three bits, as bitsandbytes numbers them. */
static const float fp4[8] = {0, 0.005208333333F, 0.66666667F, 1, 0.33333333F, 0.5F, 0.16666667F, 0.25F};

int quantize_codes(quantize_kind kind, float codes[QUANTIZE_CODES])
{
    if (kind == QUANTIZE_NF4) memcpy(codes, nf4, sizeof nf4);
    for (int i = 0; i < 8 && kind == QUANTIZE_FP4; i++) {
        codes[i] = fp4[i];
        codes[8 + i] = -fp4[i];
    }
    for (int i = 0; i < QUANTIZE_CODES && kind == QUANTIZE_INT8; i++)
        codes[i] = (float)(int8_t)(uint8_t)i;
    return kind == QUANTIZE_INT8 ? QUANTIZE_CODES : 16;
}

static int by_size(const void *x, const void *y)
{
    const float a = *(const float *)x, b = *(const float *)y;
    return (a > b) - (a < b);
}

/* For exponent i = 0 .. 6 the middles of 2^i (without a sign 2^(i+1)) equal parts of [0.1, 1], times 10^(i-6), rounded
 * as torch.linspace and bitsandbytes round them: borders are counted from the nearer end. */
static float border(int k, int parts)
{
    const float step = (1 - 0.1F) / (float)parts;
    return k < (parts + 1) / 2 ? fmaf(step, (float)k, 0.1F) : fmaf(-step, (float)(parts - k), 1);
}

void quantize_dynamic_map(bool has_sign, float codes[QUANTIZE_CODES])
{
    enum { EXPONENTS = 7 };
    int n = 0;
    for (int i = 0; i < EXPONENTS; i++) {
        int parts = 1 << (has_sign ? i : i + 1);
        for (int k = 0; k < parts; k++) {
            const float middle = (border(k, parts) + border(k + 1, parts)) / 2 * (float)pow(10, i - (EXPONENTS - 1));
            codes[n++] = middle;
            if (has_sign) codes[n++] = -middle;
        }
    }
    codes[n++] = 0;
    codes[n++] = 1;
    qsort(codes, QUANTIZE_CODES, sizeof *codes, by_size);
}

/* ---- blocks ---- */

int64_t quantize_block(quantize_kind kind, int64_t columns)
{
    return kind == QUANTIZE_INT8 ? columns : QUANTIZE_BLOCK;
}

int64_t quantize_bytes(quantize_kind kind, int64_t n)
{
    return kind == QUANTIZE_INT8 ? n : (n + 1) / 2;
}

static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* A number belongs to the nearest code, and the middle of two to the lower one: it has the rank of the number of
 * middles below it. */
typedef struct {
    float middles[15];
    uint8_t order[16]; /* codes by size */
} ladder;

static ladder ladder_of(quantize_kind kind)
{
    static const uint8_t ascending[16] = {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3}; /* of fp4 */
    float codes[QUANTIZE_CODES];
    ladder l;
    (void)quantize_codes(kind, codes);
    for (int i = 0; i < 16; i++)
        l.order[i] = kind == QUANTIZE_FP4 ? ascending[i] : (uint8_t)i;
    for (int i = 0; i < 15; i++)
        l.middles[i] = (codes[l.order[i]] + codes[l.order[i + 1]]) / 2;
    return l;
}

static void encode_four_bits(const ladder *l, const float *x, int64_t n, float *scale, uint8_t *q)
{
    uint8_t ranks[QUANTIZE_BLOCK] = {0};
    *scale = largest(x, n);
    const float factor = 1.0F / (*scale > 1e-38F ? *scale : 1e-38F);
    for (int k = 0; k < 15; k++)
        for (int64_t i = 0; i < n; i++)
            ranks[i] = (uint8_t)(ranks[i] + (x[i] * factor > l->middles[k]));
    for (int64_t i = 0; i < n; i += 2)
        q[i / 2] = (uint8_t)(l->order[ranks[i]] << 4 | (i + 1 < n ? l->order[ranks[i + 1]] : 0));
}

/* The factor 1 / 127 is part of the scale. */
static void encode_int8(const float *x, int64_t n, float *scale, uint8_t *q)
{
    const float most = largest(x, n), factor = most > 0 ? 1.0F / most * 127.0F : 0;
    *scale = most * (1 / 127.0F);
    for (int64_t i = 0; i < n; i++)
        q[i] = (uint8_t)(int8_t)lrintf(x[i] * factor);
}

void quantize_encode(quantize_kind kind, int64_t block, const float *x, int64_t n, float *scale, uint8_t *q)
{
    const ladder l = ladder_of(kind == QUANTIZE_INT8 ? QUANTIZE_NF4 : kind);
    for (int64_t at = 0; at < n; at += block, scale++) {
        int64_t size = n - at < block ? n - at : block;
        if (kind == QUANTIZE_INT8)
            encode_int8(x + at, size, scale, q + at);
        else
            encode_four_bits(&l, x + at, size, scale, q + at / 2);
    }
}

/* ---- scales ---- */

static uint8_t nearest(const float *codes, float x)
{
    int low = 0, high = QUANTIZE_CODES - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (codes[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t)(x - codes[low] <= codes[high] - x ? low : high);
}

void quantize_scales(float *scale, int64_t n, uint8_t *q, float *nested, float *offset)
{
    float codes[QUANTIZE_CODES];
    double sum = 0;
    quantize_dynamic_map(true, codes);
    for (int64_t i = 0; i < n; i++)
        sum += scale[i];
    *offset = n ? (float)(sum / (double)n) : 0;
    for (int64_t i = 0; i < n; i++)
        scale[i] -= *offset;
    for (int64_t at = 0; at < n; at += QUANTIZE_NESTED, nested++) {
        int64_t end = at + QUANTIZE_NESTED < n ? at + QUANTIZE_NESTED : n;
        *nested = largest(scale + at, end - at);
        const float factor = *nested > 0 ? 1.0F / *nested : 0;
        for (int64_t i = at; i < end; i++) {
            q[i] = nearest(codes, scale[i] * factor);
            scale[i] = codes[q[i]] * *nested + *offset;
        }
    }
}

/* ---- matrices ---- */

static nrl_status read_ranges(const quantized_matrix *v, quantized_source source, void *user, const nrl_param *asked,
                              int64_t room, float *x)
{
    for (int64_t at = 0; at < v->n; at += room) {
        int64_t n = v->n - at < room ? v->n - at : room;
        NRL_TRY(source(user, asked, at, n, x));
        quantize_encode(v->kind, v->block, x, n, v->scales + at / v->block, v->q + quantize_bytes(v->kind, at));
    }
    return NRL_OK;
}

nrl_status quantized_read(quantize_kind kind, int64_t n, int64_t columns, quantized_source source, void *user,
                          const nrl_param *asked, quantized_matrix *out)
{
    enum { CHUNK = 1 << 20 }; /* elements */
    static const char what[] = "a weight that is quantized";
    const int64_t block = quantize_block(kind, columns), room = block > CHUNK ? block : CHUNK / block * block;
    float *x = mem_try((size_t)room * sizeof *x, what);
    *out = (quantized_matrix){.kind = kind, .block = block, .n = n, .n_scales = (n + block - 1) / block};
    out->q = mem_try((size_t)quantize_bytes(kind, n), what);
    out->scales = mem_try((size_t)out->n_scales * sizeof(float), what);
    out->nested_q = mem_try((size_t)out->n_scales, what);
    out->nested = mem_try((size_t)out->n_scales * sizeof(float), what);
    bool there = x && out->q && out->scales && out->nested_q && out->nested;
    nrl_status st = there ? read_ranges(out, source, user, asked, room, x) : NRL_ERR_MEMORY;
    if (st == NRL_OK && kind != QUANTIZE_INT8)
        quantize_scales(out->scales, out->n_scales, out->nested_q, out->nested, &out->offset);
    free(x);
    if (st != NRL_OK) quantized_free(out);
    return st;
}

void quantized_decode(const quantized_matrix *v, int64_t begin, int64_t n, float *out)
{
    float codes[QUANTIZE_CODES];
    const bool small = quantize_codes(v->kind, codes) == 16;
    for (int64_t i = begin; i < begin + n; i++) {
        int code = small ? v->q[i / 2] >> (i % 2 ? 0 : 4) & 15 : v->q[i];
        *out++ = codes[code] * v->scales[i / v->block];
    }
}

void quantized_free(quantized_matrix *v)
{
    free(v->q);
    free(v->scales);
    free(v->nested_q);
    free(v->nested);
    *v = (quantized_matrix){0};
}

/* ---- on a device ---- */

static int64_t take(int64_t *at, int64_t bytes)
{
    enum { ALIGN = 64 };
    int64_t begin = *at;
    *at = (begin + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return begin;
}

quantized_layout quantize_layout(quantize_kind kind, int64_t n, int64_t columns, bool is_whole)
{
    const int64_t f32 = sizeof(float), block = quantize_block(kind, columns);
    quantized_layout p = {.nested = kind != QUANTIZE_INT8 && is_whole,
                          .n_codes = kind == QUANTIZE_INT8 ? QUANTIZE_CODES : 16,
                          .block = block,
                          .n_scales = (n + block - 1) / block};
    p.n_nested = p.nested ? (p.n_scales + QUANTIZE_NESTED - 1) / QUANTIZE_NESTED : 0;
    p.codes = take(&p.bytes, p.n_codes * f32);
    p.nested_codes = take(&p.bytes, p.nested ? QUANTIZE_CODES * f32 : 0);
    p.offset = take(&p.bytes, p.nested ? f32 : 0);
    p.nests = take(&p.bytes, p.n_nested * f32);
    p.scales = take(&p.bytes, p.n_scales * (p.nested ? 1 : f32));
    p.q = take(&p.bytes, quantize_bytes(kind, n));
    return p;
}

void quantized_store(const quantized_matrix *v, const quantized_layout *at, void *bytes)
{
    char *to = bytes;
    float codes[QUANTIZE_CODES];
    memset(bytes, 0, (size_t)at->bytes);
    memcpy(to + at->codes, codes, (size_t)quantize_codes(v->kind, codes) * sizeof *codes);
    if (!at->nested) return;
    quantize_dynamic_map(true, codes);
    memcpy(to + at->nested_codes, codes, sizeof codes);
    memcpy(to + at->offset, &v->offset, sizeof v->offset);
    memcpy(to + at->nests, v->nested, (size_t)at->n_nested * sizeof *v->nested);
    memcpy(to + at->scales, v->nested_q, (size_t)at->n_scales);
}

void quantized_store_range(const quantized_matrix *v, const quantized_layout *at, int64_t local, int64_t begin,
                           int64_t n, void *bytes)
{
    char *to = bytes;
    memcpy(to + at->q + quantize_bytes(v->kind, local), v->q + quantize_bytes(v->kind, begin),
           (size_t)quantize_bytes(v->kind, n));
    for (int64_t i = 0; i < n && !at->nested; i += at->block)
        memcpy(to + at->scales + (local + i) / at->block * (int64_t)sizeof(float), &v->scales[(begin + i) / v->block],
               sizeof(float));
}
