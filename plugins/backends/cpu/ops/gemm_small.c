/*
 * gemm_small.c - c = alpha op(a) op(b) (+ c) + bias in f32 for small matrices, by the tiles of tile.h. oneDNN generates
 * the code of all its f32 products at the first one, which takes some 40 ms, longer than most commands on a tiny model;
 * its products of this size are not faster.
 *
 * An element is one sum in the order of k, so it depends neither on the other elements nor on the number of threads.
 * Columns of b are copied to a panel of PANEL_K x PANEL_N floats, which stays in the caches while the rows of a pass.
 */
#include "span.h"
#include "tile.h"

enum { PANEL_N = VECS * LANES, PANEL_K = 256 };
enum { FEW = 8 };         /* rows of a that do not repay the copy of b */
enum { LEAST = 1 << 18 }; /* multiplications that are worth waking a thread for */

typedef struct {
    cpu *self;
    const nrl_gemm_args *a;
    int64_t m, k;
    bool by_columns; /* threads divide the panels, not the rows */
} small_task;

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/* 4 x 4 elements of b, transposed into the panel, times alpha. */
static void small_transpose(const float *b, int64_t stride, float alpha, float *panel)
{
    const four r0 = *(const four *)b, r1 = *(const four *)(b + stride), r2 = *(const four *)(b + 2 * stride),
               r3 = *(const four *)(b + 3 * stride);
    const four low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5),
               high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7),
               low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5),
               high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    *(four *)panel = alpha * __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    *(four *)(panel + PANEL_N) = alpha * __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    *(four *)(panel + 2 * PANEL_N) = alpha * __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    *(four *)(panel + 3 * PANEL_N) = alpha * __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/* k rows from row p and n columns from column j of alpha op(b). Columns up to the next multiple of LANES become 0. */
static void small_pack(const nrl_gemm_args *g, int64_t p, int64_t k, int64_t j, int64_t n, float *panel)
{
    const float alpha = (float)g->alpha, *b = g->transpose_b ? mat_at(&g->b, j, p, 4) : mat_at(&g->b, p, j, 4);
    const int64_t stride = g->b.stride, fours = n / 4 * 4;
    int64_t x = 0;
    if (n % LANES) memset(panel, 0, (size_t)k * PANEL_N * sizeof(float));
    if (!g->transpose_b) {
        for (; x < k; x++)
            SIMD
        for (int64_t y = 0; y < n; y++)
            panel[x * PANEL_N + y] = alpha * b[x * stride + y];
        return;
    }
    for (; x + 4 <= k; x += 4) {
        for (int64_t y = 0; y < fours; y += 4)
            small_transpose(b + y * stride + x, stride, alpha, panel + x * PANEL_N + y);
        for (int64_t y = fours; y < n; y++)
            for (int64_t z = x; z < x + 4; z++)
                panel[z * PANEL_N + y] = alpha * b[y * stride + z];
    }
    for (; x < k; x++)
        for (int64_t y = 0; y < n; y++)
            panel[x * PANEL_N + y] = alpha * b[y * stride + x];
}

/* Adds the product of k columns of op(a) from column p and of a panel to rows [i, end) of c. */
static void small_rows(const small_task *t, int64_t i, int64_t end, int64_t p, int64_t k, int64_t j, int64_t n,
                       const float *panel, int64_t panel_stride)
{
    const nrl_gemm_args *g = t->a;
    const bool aside = n % LANES != 0; /* rows of c end within a vector */
    float rows_aside[ROWS * PANEL_N];
    tile_args x = {.a_row = g->transpose_a ? 1 : g->a.stride,
                   .a_col = g->transpose_a ? g->a.stride : 1,
                   .b = panel,
                   .b_row = panel_stride,
                   .c = rows_aside,
                   .c_row = aside ? PANEL_N : g->c.stride,
                   .k = k,
                   .add = p > 0 || !g->overwrite};
    for (; i < end; i += ROWS) {
        const int64_t rows = end - i < ROWS ? end - i : ROWS;
        float *c = mat_at(&g->c, i, j, 4);
        x.a = (const float *)g->a.data + i * x.a_row + p * x.a_col;
        if (!aside) x.c = c;
        for (int64_t r = 0; aside && x.add && r < rows; r++)
            memcpy(rows_aside + r * PANEL_N, c + r * g->c.stride, (size_t)n * sizeof(float));
        ISA(cpu_tile_product)(&x, rows, (n + LANES - 1) / LANES * LANES);
        for (int64_t r = 0; aside && r < rows; r++)
            memcpy(c + r * g->c.stride, rows_aside + r * PANEL_N, (size_t)n * sizeof(float));
        for (int64_t r = 0; g->bias.data && p + k == t->k && r < rows; r++)
            for (int64_t y = 0; y < n; y++)
                c[r * g->c.stride + y] += vector_get(&g->bias, j + y);
    }
}

static void small_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const small_task *t = arg;
    const nrl_gemm_args *g = t->a;
    const int64_t row = t->by_columns ? 0 : begin, last_row = t->by_columns ? t->m : end;
    const int64_t column = t->by_columns ? begin * PANEL_N : 0, last_column = t->by_columns ? end * PANEL_N : g->c.cols;
    float *panel = cpu_scratch_at(t->self, thread);
    for (int64_t j = column; j < last_column && j < g->c.cols; j += PANEL_N) {
        const int64_t n = g->c.cols - j < PANEL_N ? g->c.cols - j : PANEL_N;
        const bool in_place = t->m <= FEW && !g->transpose_b && g->alpha == 1 && n % LANES == 0;
        for (int64_t p = 0; p < t->k; p += PANEL_K) {
            const int64_t k = t->k - p < PANEL_K ? t->k - p : PANEL_K;
            if (!in_place) small_pack(g, p, k, j, n, panel);
            small_rows(t, row, last_row, p, k, j, n, in_place ? mat_at(&g->b, p, j, 4) : panel,
                       in_place ? g->b.stride : PANEL_N);
        }
    }
}

nrl_status ISA(cpu_gemm_small)(cpu *self, const nrl_gemm_args *a)
{
    small_task t = {self, a, a->c.rows, a->transpose_a ? a->a.rows : a->a.cols, false};
    const int64_t panels = (a->c.cols + PANEL_N - 1) / PANEL_N;
    if (t.m <= FEW && !a->transpose_a && a->transpose_b) return ISA(cpu_gemm_rows)(self, a);
    NRL_TRY(cpu_scratch(self, sizeof(float) * PANEL_K * PANEL_N));
    t.by_columns = panels >= 4 * self->n_threads || t.m < 4 * ROWS * self->n_threads;
    const int64_t length = t.by_columns ? panels : t.m, least = LEAST * length / (t.m * t.k * a->c.cols);
    cpu_split(self, length, least > 1 ? least : 1, small_range, &t);
    return NRL_OK;
}
