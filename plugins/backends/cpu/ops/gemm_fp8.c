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

/* *x: the operand, and afterwards the rounded one, without gaps at `room`. */
static void round_operand(const cpu *self, const nrl_gemm_fp8 *how, nrl_mat *x, void *room)
{
    fp8_task t = {.format = &fp8_formats[how->format], .x = *x, .y = *x};
    t.y.data = room;
    t.y.stride = x->cols;
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
        a->fp8_b.format > NRL_FP8_E5M2 || a->a.dtype == NRL_DTYPE_F16 || a->b.dtype == NRL_DTYPE_F16)
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op 'gemm' for fp8 formats %u of %s and %u of %s",
                        a->fp8_a.format, nrl_dtype_name((nrl_dtype)a->a.dtype), a->fp8_b.format,
                        nrl_dtype_name((nrl_dtype)a->b.dtype));
    NRL_TRY(cpu_rounded(self, begin_b + bytes_b, &room));
    round_operand(self, &a->fp8_a, &g.a, room);
    round_operand(self, &a->fp8_b, &g.b, (char *)room + begin_b);
    g.fp8_a = g.fp8_b = (nrl_gemm_fp8){0};
    g.weight_key = 0; /* the parameter's values are others */
    return ISA(cpu_gemm)(self, NULL, &g);
}
