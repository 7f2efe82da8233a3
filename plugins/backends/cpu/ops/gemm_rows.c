/*
 * gemm_rows.c - c = alpha a b^T (+ c) + bias for f32 rows of a and f32 or bf16 rows of b, where each element of c
 * depends only on its row of a and its row of b: not on the other rows, their number, or the number of threads. So a
 * text is generated with the same bits alone and among others. Made for few rows of a, where b is read from memory once
 * and sets the time. With bf16_rows, a is rounded to bf16 if b is bf16.
 *
 * An element is a sum of LANES partial sums over k, which are added at the end in a fixed order. A tile of TILE_M x
 * tile_n elements keeps its partial sums in registers.
 */
#include "half.h"
#include "span.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef float lanes __attribute__((vector_size(LANES * 4)));
typedef float loose_lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
#if !defined(__AVX2__)
typedef uint32_t word_lanes __attribute__((vector_size(LANES * 4)));
typedef uint16_t half_lanes __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
#endif

/* Registers for partial sums. TILE_M rows of a stay in the first-level cache while CHUNK_BYTES of b, which stay in the
 * second-level cache, pass; FEW_BYTES of a stay near while all of b passes once, from memory. */
enum { MAX_N = 8, TILE_M = 4, TILE_N = LANES == 16 ? 6 : LANES == 8 ? 3 : 2 };
enum { CHUNK_BYTES = 256 * 1024, FEW_BYTES = 64 * 1024, AHEAD = 8192 };

/* How operands are read: both are f32, b is bf16 and is widened, or both are bf16 for dot products of pairs. */
typedef enum { READ_F32, READ_WIDENED, READ_PAIRS } operand_form;

typedef struct {
    const nrl_gemm_args *a;
    nrl_mat left; /* a, or with READ_PAIRS a rounded to bf16 */
    int64_t k;
    operand_form form;
} rows_task;

ALWAYS_INLINE float sum_of_lanes(lanes x)
{
    float v[LANES];
    memcpy(v, &x, sizeof v);
    UNROLL
    for (int width = LANES / 2; width > 0; width /= 2)
        UNROLL
    for (int i = 0; i < width; i++)
        v[i] += v[i + width];
    return v[0];
}

/* The sums of four vectors, each added as in sum_of_lanes. */
ALWAYS_INLINE void sums_of_four(const lanes *x, float *sums)
{
#if defined(__AVX2__)
    __m128 q[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
#if defined(__AVX512F__)
        const __m512d wide = _mm512_castps_pd((__m512)x[i]);
        const __m256 half = _mm256_add_ps(_mm256_castpd_ps(_mm512_castpd512_pd256(wide)),
                                          _mm256_castpd_ps(_mm512_extractf64x4_pd(wide, 1)));
#else
        const __m256 half = (__m256)x[i];
#endif
        q[i] = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    }
    /* lanes 0 + 2 and 1 + 3 of two vectors, then of four */
    const __m128 a = _mm_add_ps(_mm_unpacklo_ps(q[0], q[1]), _mm_unpackhi_ps(q[0], q[1]));
    const __m128 b = _mm_add_ps(_mm_unpacklo_ps(q[2], q[3]), _mm_unpackhi_ps(q[2], q[3]));
    _mm_storeu_ps(sums, _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a)));
#else
    UNROLL
    for (int i = 0; i < 4; i++)
        sums[i] = sum_of_lanes(x[i]);
#endif
}

/* Elements of a vector of b, by intrinsics because compilers convert a vector of 16 bits in halves. */
ALWAYS_INLINE lanes load_b(const char *b, int64_t i, operand_form form)
{
    if (form == READ_F32) return *(const loose_lanes *)(const void *)(b + i * 4);
    if (form == READ_PAIRS) return *(const loose_lanes *)(const void *)(b + i * 2);
    const void *h = b + i * 2;
#if defined(__AVX512F__)
    return (lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(h)), 16);
#elif defined(__AVX2__)
    return (lanes)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(h)), 16);
#else
    return (lanes)(__builtin_convertvector(*(const half_lanes *)h, word_lanes) << 16);
#endif
}

ALWAYS_INLINE float load_one(const char *x, int64_t i, bool is_half)
{
    return is_half ? bf16_widen(((const uint16_t *)(const void *)x)[i]) : ((const float *)(const void *)x)[i];
}

/* sum + left * right; with READ_PAIRS each lane has two bf16 numbers. By assembly, because these files are compiled for
 * a set of instructions without that one. */
ALWAYS_INLINE lanes add_product(lanes sum, lanes left, lanes right, operand_form form)
{
#if defined(__AVX512F__)
    if (form == READ_PAIRS) {
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
        return sum;
    }
#else
    (void)form;
#endif
    return sum + left * right;
}

/* m x n elements of c, from row i and column j on; m, n and form are constants. */
ALWAYS_INLINE void tile(const rows_task *t, int64_t i, int64_t j, int m, int n, operand_form form)
{
    const nrl_gemm_args *g = t->a;
    const size_t size_a = form == READ_PAIRS ? 2 : 4, size_b = form == READ_F32 ? 4 : 2;
    const int64_t k = t->k, step = form == READ_PAIRS ? 2 * LANES : LANES, whole = k / step * step;
    const char *a[TILE_M], *b[MAX_N];
    lanes sum[TILE_M * MAX_N]; /* m x n of them, in registers */
    float total[TILE_M * MAX_N];
    UNROLL
    for (int x = 0; x < m; x++)
        a[x] = mat_at(&t->left, i + x, 0, size_a);
    UNROLL
    for (int y = 0; y < n; y++)
        b[y] = mat_at(&g->b, j + y, 0, size_b);
    UNROLL
    for (int z = 0; z < m * n; z++)
        sum[z] = (lanes){0};
    for (int64_t at = 0; at < whole; at += step) {
        lanes right[MAX_N];
        UNROLL
        for (int y = 0; y < n; y++)
            right[y] = load_b(b[y], at, form);
        UNROLL
        for (int y = 0; y < n; y++) /* the rows of a tile are short, and the next ones are behind them */
            __builtin_prefetch(b[y] + (size_t)at * size_b + AHEAD);
        UNROLL
        for (int x = 0; x < m; x++) {
            const lanes left = *(const loose_lanes *)(const void *)(a[x] + (size_t)at * size_a);
            UNROLL
            for (int y = 0; y < n; y++)
                sum[x * n + y] = add_product(sum[x * n + y], left, right[y], form);
        }
    }
    UNROLL
    for (int z = 0; z + 4 <= m * n; z += 4)
        sums_of_four(sum + z, total + z);
    UNROLL
    for (int z = m * n / 4 * 4; z < m * n; z++)
        total[z] = sum_of_lanes(sum[z]);
    UNROLL
    for (int x = 0; x < m; x++)
        UNROLL
    for (int y = 0; y < n; y++) {
        float s = total[x * n + y];
        for (int64_t at = whole; at < k; at++)
            s += load_one(a[x], at, form == READ_PAIRS) * load_one(b[y], at, form != READ_F32);
        float *c = mat_at(&g->c, i + x, j + y, 4), value = (float)g->alpha * s;
        if (g->bias.data) value += vector_get(&g->bias, j + y);
        *c = g->overwrite ? value : *c + value;
    }
}

/* Columns [j, j + n) of rows [i, end). */
ALWAYS_INLINE void tiles_of_rows(const rows_task *t, int64_t i, int64_t end, int64_t j, int n, operand_form form)
{
    for (; i + TILE_M <= end; i += TILE_M)
        tile(t, i, j, TILE_M, n, form);
    if (i + 2 <= end) {
        tile(t, i, j, 2, n, form);
        i += 2;
    }
    if (i < end) tile(t, i, j, 1, n, form);
}

ALWAYS_INLINE void columns(const rows_task *t, int64_t i, int64_t end, int64_t j, int64_t last, operand_form form)
{
    if (end - i == 1) /* one row: more columns at once, so that there are enough independent sums */
        for (; j + MAX_N <= last; j += MAX_N)
            tile(t, i, j, 1, MAX_N, form);
    for (; j + TILE_N <= last; j += TILE_N)
        tiles_of_rows(t, i, end, j, TILE_N, form);
    for (; j < last; j++)
        tiles_of_rows(t, i, end, j, 1, form);
}

typedef void (*columns_of_form)(const rows_task *t, int64_t i, int64_t end, int64_t j, int64_t last);

static void columns_f32(const rows_task *t, int64_t i, int64_t end, int64_t j, int64_t last)
{
    columns(t, i, end, j, last, READ_F32);
}

static void columns_widened(const rows_task *t, int64_t i, int64_t end, int64_t j, int64_t last)
{
    columns(t, i, end, j, last, READ_WIDENED);
}

#if defined(__AVX512F__)
static void columns_pairs(const rows_task *t, int64_t i, int64_t end, int64_t j, int64_t last)
{
    columns(t, i, end, j, last, READ_PAIRS);
}
#endif

static void column_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_task *t = arg;
    columns_of_form run = t->form == READ_F32 ? columns_f32 : columns_widened;
#if defined(__AVX512F__) /* no CPU without it has products of pairs */
    if (t->form == READ_PAIRS) run = columns_pairs;
#endif
    const int64_t m = t->a->c.rows;
    const int64_t row_a = t->k * (t->form == READ_PAIRS ? 2 : 4), row_b = t->k * (t->form == READ_F32 ? 4 : 2);
    const int64_t width = CHUNK_BYTES / row_b / TILE_N * TILE_N;
    const bool few = m * row_a <= FEW_BYTES;
    const int64_t rows = few ? m : TILE_M, step = few || !width ? end - begin : width;
    (void)thread;
    for (int64_t j = begin; j < end; j += step)
        for (int64_t i = 0; i < m; i += rows)
            run(t, i, m - i < rows ? m : i + rows, j, end - j < step ? end : j + step);
}

static void round_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rows_task *t = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        f32_to_half(NRL_DTYPE_BF16, mat_at(&t->a->a, i, 0, 4), mat_at(&t->left, i, 0, 2), t->k);
}

/* Rounds a to bf16 for products of pairs. */
static nrl_status read_pairs(cpu *self, rows_task *t)
{
    void *room;
    NRL_TRY(cpu_rounded(self, (size_t)(t->left.rows * t->k) * 2, &room));
    t->left = (nrl_mat){.data = room, .dtype = NRL_DTYPE_BF16, .rows = t->left.rows, .cols = t->k, .stride = t->k};
    t->form = READ_PAIRS;
    cpu_split(self, t->left.rows, row_grain(t->k), round_rows, t);
    return NRL_OK;
}

nrl_status ISA(cpu_gemm_rows)(cpu *self, const nrl_gemm_args *a)
{
    rows_task t = {a, a->a, a->a.cols, a->b.dtype == NRL_DTYPE_BF16 ? READ_WIDENED : READ_F32};
    if (t.form == READ_WIDENED && self->bf16_rows) NRL_TRY(read_pairs(self, &t));
    cpu_split(self, a->c.cols, row_grain(a->a.cols * a->c.rows), column_range, &t);
    return NRL_OK;
}

OP(gemm)
{
    cpu *self = instance;
    if (a->fp8_a.format || a->fp8_b.format) return ISA(cpu_gemm_fp8)(self, a);
    const bool plain = !a->transpose_a && a->transpose_b && a->a.dtype == NRL_DTYPE_F32 &&
                       a->c.dtype == NRL_DTYPE_F32 && (a->b.dtype == NRL_DTYPE_F32 || a->b.dtype == NRL_DTYPE_BF16);
    const bool fits = a->a.cols > 0 && a->a.cols == a->b.cols && a->c.rows == a->a.rows && a->c.cols == a->b.rows &&
                      (!a->bias.data || a->bias.cols == a->c.cols);
    return self->independent_rows && plain && fits ? ISA(cpu_gemm_rows)(self, a) : cpu_gemm(self, stream, a);
}
