/*
 * tile.h - the small matrix product of attention: C[m,n] (+)= A[m,k] B[k,n] in f32.
 *
 * B and C are row-major with n a multiple of LANES; A is read one element at a time, with any
 * strides, so it needs neither packing nor transposing. ROWS x VECS vectors of C stay in registers
 * over all of k: 6 x 4 of the 32 registers of AVX-512, 6 x 2 of the 16 of AVX2.
 */
#ifndef CPU_OPS_TILE_H
#define CPU_OPS_TILE_H
#include "isa.h"

#if defined(__AVX512F__)
enum { VECS = 4 };
#else
enum { VECS = 2 };
#endif
enum { ROWS = 6 };

typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

typedef struct {
    const float *a;
    int64_t a_row, a_col; /* element (i, p) of A at a[i * a_row + p * a_col] */
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    int64_t k;
    bool add;
} tile_args;

/* m x v vectors at column 0; both are constants where this is inlined. */
ALWAYS_INLINE void tile_block(const tile_args *t, const int m, const int v)
{
    vec acc[ROWS][VECS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < v; j++)
        acc[i][j] = t->add ? *(const vec *)(t->c + i * t->c_row + j * LANES) : (vec){0};
    const float *a = t->a, *b = t->b;
    for (int64_t p = 0; p < t->k; p++) {
        vec x[VECS];
        UNROLL
        for (int j = 0; j < v; j++)
            x[j] = *(const vec *)(b + j * LANES);
        UNROLL
        for (int i = 0; i < m; i++) {
            float s = a[i * t->a_row];
            UNROLL
            for (int j = 0; j < v; j++)
                acc[i][j] += s * x[j];
        }
        a += t->a_col;
        b += t->b_row;
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int j = 0; j < v; j++)
        *(vec *)(t->c + i * t->c_row + j * LANES) = acc[i][j];
}

/* m and v become constants. */
#define TILE_ROWS(v)                                                                                                   \
    switch (m) {                                                                                                       \
    case 6:                                                                                                            \
        tile_block(t, 6, v);                                                                                           \
        break;                                                                                                         \
    case 5:                                                                                                            \
        tile_block(t, 5, v);                                                                                           \
        break;                                                                                                         \
    case 4:                                                                                                            \
        tile_block(t, 4, v);                                                                                           \
        break;                                                                                                         \
    case 3:                                                                                                            \
        tile_block(t, 3, v);                                                                                           \
        break;                                                                                                         \
    case 2:                                                                                                            \
        tile_block(t, 2, v);                                                                                           \
        break;                                                                                                         \
    default:                                                                                                           \
        tile_block(t, 1, v);                                                                                           \
        break;                                                                                                         \
    }                                                                                                                  \
    break

static void tile_rows(const tile_args *t, int64_t m, int64_t v)
{
    switch (v) {
#if defined(__AVX512F__)
    case 4:
        TILE_ROWS(4);
    case 3:
        TILE_ROWS(3);
#endif
    case 2:
        TILE_ROWS(2);
    default:
        TILE_ROWS(1);
    }
}
#undef TILE_ROWS

/* The whole product; n is rounded up to LANES by the caller. */
static void tile_product(const tile_args *whole, int64_t m, int64_t n)
{
    for (int64_t col = 0; col < n; col += VECS * LANES) {
        int64_t vecs = n - col < VECS * LANES ? (n - col) / LANES : VECS;
        tile_args t = *whole;
        t.b += col;
        t.c += col;
        for (int64_t row = 0; row < m; row += ROWS) {
            tile_rows(&t, m - row < ROWS ? m - row : ROWS, vecs);
            t.a += ROWS * t.a_row;
            t.c += ROWS * t.c_row;
        }
    }
}

#endif
