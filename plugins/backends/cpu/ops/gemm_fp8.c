/*
 * gemm_fp8.c - products whose operands are rounded to 8 bits: the reference of what GPUs compute with instructions for
 * fp8. A rounded number times a power of two is a bf16 number, so that the product itself is one of the operands'
 * dtypes, with sums in f32.
 */
#include "fp8.h"
#include "span.h"

typedef struct {
    const fp8_format *format;
    nrl_mat x, y;
    float scale, inverse;
    uint32_t magnitude; /* the largest of |x| */
} fp8_task;

static void magnitude_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    fp8_task *t = (fp8_task *)(uintptr_t)args;
    float buf[SPAN];
    const float *x = span_read(&t->x, row, col, n, buf);
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fp8_magnitude(x[i]) > most ? fp8_magnitude(x[i]) : most;
    uint32_t old = __atomic_load_n(&t->magnitude, __ATOMIC_RELAXED);
    while (most > old &&
           !__atomic_compare_exchange_n(&t->magnitude, &old, most, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

static void round_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const fp8_task *t = args;
    const fp8_format f = *t->format;
    float buf[SPAN], rounded[SPAN];
    const float *x = span_read(&t->x, row, col, n, buf);
    float *y = span_target(&t->y, row, col, rounded);
    SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = fp8_round(&f, x[i], t->scale, t->inverse);
    span_write(&t->y, row, col, n, y);
}

/* ---- a scale for each block ---- */

enum { BLOCK = NRL_FP8_BLOCK };

typedef struct {
    const fp8_format *format;
    nrl_mat x, y;
    uint32_t blocks; /* nrl_fp8_blocks */
    bool down;       /* ROWS: blocks are parts of x's columns, and not of its rows */
} block_task;

/* most[0] of a tile, or most[i] of its row or column i: the largest of |x|. */
static void block_magnitudes(const block_task *t, int64_t row, int64_t rows, int64_t col, int64_t cols, uint32_t *most)
{
    float buf[BLOCK];
    for (int64_t r = 0; r < rows; r++) {
        const float *x = span_read(&t->x, row + r, col, cols, buf);
        uint32_t of_row = 0;
        if (t->down) {
            SIMD
            for (int64_t i = 0; i < cols; i++)
                most[i] = fp8_magnitude(x[i]) > most[i] ? fp8_magnitude(x[i]) : most[i];
            continue;
        }
        for (int64_t i = 0; i < cols; i++)
            of_row = fp8_magnitude(x[i]) > of_row ? fp8_magnitude(x[i]) : of_row;
        uint32_t *at = &most[t->blocks == NRL_FP8_TILES ? 0 : r];
        *at = of_row > *at ? of_row : *at;
    }
}

static void round_tile(const block_task *t, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    const fp8_format f = *t->format;
    uint32_t most[BLOCK] = {0};
    float buf[BLOCK], rounded[BLOCK], scale[BLOCK], inverse[BLOCK];
    block_magnitudes(t, row, rows, col, cols, most);
    for (int i = 0; i < BLOCK; i++) {
        scale[i] = fp8_scale(&f, most[i]);
        inverse[i] = 1 / scale[i];
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *x = span_read(&t->x, row + r, col, cols, buf);
        float *y = span_target(&t->y, row + r, col, rounded);
        const int64_t at = t->blocks == NRL_FP8_TILES ? 0 : r;
        if (t->down) {
            SIMD
            for (int64_t i = 0; i < cols; i++)
                y[i] = fp8_round(&f, x[i], scale[i], inverse[i]);
        } else {
            SIMD
            for (int64_t i = 0; i < cols; i++)
                y[i] = fp8_round(&f, x[i], scale[at], inverse[at]);
        }
        span_write(&t->y, row + r, col, cols, y);
    }
}

/* Bands of BLOCK rows. */
static void round_bands(void *arg, int64_t begin, int64_t end, int thread)
{
    const block_task *t = arg;
    (void)thread;
    for (int64_t row = begin * BLOCK; row < end * BLOCK && row < t->x.rows; row += BLOCK)
        for (int64_t col = 0; col < t->x.cols; col += BLOCK)
            round_tile(t, row, t->x.rows - row < BLOCK ? t->x.rows - row : BLOCK, col,
                       t->x.cols - col < BLOCK ? t->x.cols - col : BLOCK);
}

/* *x: the operand, and afterwards the rounded one, without gaps at `room`. depth_in_rows: the product sums over the
 * rows of x. */
static void round_operand(const cpu *self, const nrl_gemm_fp8 *how, bool depth_in_rows, nrl_mat *x, void *room)
{
    fp8_task t = {.format = &fp8_formats[how->format], .x = *x, .y = *x};
    t.y.data = room;
    t.y.stride = x->cols;
    if (how->blocks) {
        block_task b = {t.format, t.x, t.y, how->blocks, depth_in_rows && how->blocks == NRL_FP8_ROWS};
        cpu_split(self, (x->rows + BLOCK - 1) / BLOCK, 1, round_bands, &b);
        *x = t.y;
        return;
    }
    t.scale = how->scale ? *how->scale : 0;
    if (how->amax || t.scale == 0) each_span(self, x->rows, x->cols, magnitude_span, &t);
    if (how->amax && t.magnitude > to_bits(*how->amax)) *how->amax = from_bits(t.magnitude);
    if (t.scale == 0) t.scale = fp8_scale(t.format, t.magnitude);
    t.inverse = 1 / t.scale;
    each_span(self, x->rows, x->cols, round_span, &t);
    *x = t.y;
}

nrl_status ISA(cpu_gemm_fp8)(cpu *self, const nrl_gemm_args *a)
{
    nrl_gemm_args g = *a;
    const size_t bytes_a = (size_t)(a->a.rows * a->a.cols) * nrl_dtype_size((nrl_dtype)a->a.dtype);
    const size_t bytes_b = (size_t)(a->b.rows * a->b.cols) * nrl_dtype_size((nrl_dtype)a->b.dtype);
    const size_t begin_b = (bytes_a + 63) / 64 * 64;
    void *room;
    if (a->fp8_a.format < NRL_FP8_E4M3 || a->fp8_a.format > NRL_FP8_E5M2 || a->fp8_b.format < NRL_FP8_E4M3 ||
        a->fp8_b.format > NRL_FP8_E5M2 || a->fp8_a.blocks > NRL_FP8_TILES || a->fp8_b.blocks > NRL_FP8_TILES ||
        a->a.dtype == NRL_DTYPE_F16 || a->b.dtype == NRL_DTYPE_F16)
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op 'gemm' for fp8 formats %u of %s and %u of %s",
                        a->fp8_a.format, nrl_dtype_name((nrl_dtype)a->a.dtype), a->fp8_b.format,
                        nrl_dtype_name((nrl_dtype)a->b.dtype));
    NRL_TRY(cpu_rounded(self, begin_b + bytes_b, &room));
    round_operand(self, &a->fp8_a, a->transpose_a, &g.a, room);
    round_operand(self, &a->fp8_b, !a->transpose_b, &g.b, (char *)room + begin_b);
    g.fp8_a = g.fp8_b = (nrl_gemm_fp8){0};
    g.weight_key = 0; /* the parameter's values are others */
    return ISA(cpu_gemm)(self, NULL, &g);
}
