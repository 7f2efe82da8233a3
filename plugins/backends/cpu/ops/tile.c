/*
 * tile.c - see tile.h. ROWS x VECS vectors of C stay in registers over all of k.
 */
#include "tile.h"

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

void ISA(cpu_tile_product)(const tile_args *whole, int64_t m, int64_t n)
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
