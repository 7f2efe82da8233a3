/*
 * pack.h - eight neighbouring elements of a row in registers, as f32: 16 bytes of bf16, or two times
 * 16 bytes of f32, in one load or store if aligned, else element by element. A thread processes packs.
 * The dtype is tested at run time and is the same for all threads, so that an operation is written
 * once.
 */
#ifndef CUDA_OPS_PACK_H
#define CUDA_OPS_PACK_H
#include "scalar.h"

enum { PACK = 8 };

typedef struct {
    float v[PACK];
} pack;

typedef struct alignas(16) {
    uint32_t w[4];
} words; /* 16 bytes */

BOTH bool is_aligned(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

BOTH char *element_at(void *data, uint32_t dtype, int64_t i)
{
    return (char *)data + i * (dtype == NRL_DTYPE_F32 ? 4 : 2);
}

/* Elements [i, i+n), n <= PACK; the rest of the pack is `other`. */
BOTH pack pack_load(const void *data, uint32_t dtype, int64_t i, int n, float other = 0)
{
    pack p;
    const char *at = element_at((void *)data, dtype, i);
    if (n < PACK || !is_aligned(at)) {
        for (int k = 0; k < PACK; k++)
            p.v[k] = k < n ? scalar_load(data, dtype, i + k) : other;
        return p;
    }
    words w = *(const words *)at;
    if (dtype == NRL_DTYPE_F32) {
        words high = *(const words *)(at + 16);
        for (int k = 0; k < 4; k++) {
            p.v[k] = float_of_bits(w.w[k]);
            p.v[4 + k] = float_of_bits(high.w[k]);
        }
        return p;
    }
    for (int k = 0; k < 4; k++) {
        uint16_t low = (uint16_t)w.w[k], high = (uint16_t)(w.w[k] >> 16);
        p.v[2 * k] = dtype == NRL_DTYPE_BF16 ? bf16_widen(low) : f16_widen(low);
        p.v[2 * k + 1] = dtype == NRL_DTYPE_BF16 ? bf16_widen(high) : f16_widen(high);
    }
    return p;
}

BOTH uint32_t half_round(uint32_t dtype, float x)
{
    return dtype == NRL_DTYPE_BF16 ? bf16_round(x) : f16_round(x);
}

BOTH void pack_store(void *data, uint32_t dtype, int64_t i, int n, const pack &p)
{
    char *at = element_at(data, dtype, i);
    if (n < PACK || !is_aligned(at)) {
        for (int k = 0; k < n && k < PACK; k++)
            scalar_store(data, dtype, i + k, p.v[k]);
        return;
    }
    words w, high;
    if (dtype == NRL_DTYPE_F32) {
        for (int k = 0; k < 4; k++) {
            w.w[k] = bits_of_float(p.v[k]);
            high.w[k] = bits_of_float(p.v[4 + k]);
        }
        *(words *)(at + 16) = high;
    } else {
        for (int k = 0; k < 4; k++)
            w.w[k] = half_round(dtype, p.v[2 * k]) | half_round(dtype, p.v[2 * k + 1]) << 16;
    }
    *(words *)at = w;
}

/* The same for a matrix, at a row and column. */
BOTH pack mat_load(const nrl_mat &m, int64_t row, int64_t col, int n, float other = 0)
{
    return pack_load(m.data, m.dtype, row * m.stride + col, n, other);
}

BOTH void mat_store(const nrl_mat &m, int64_t row, int64_t col, int n, const pack &p)
{
    pack_store(m.data, m.dtype, row * m.stride + col, n, p);
}

/* Index of element i of a vector (one row, or one column). */
BOTH int64_t vector_place(const nrl_mat &m, int64_t i)
{
    return m.cols == 1 && m.rows != 1 ? i * m.stride : i;
}

BOTH float vector_load(const nrl_mat &m, int64_t i)
{
    return scalar_load(m.data, m.dtype, vector_place(m, i));
}

BOTH void vector_store(const nrl_mat &m, int64_t i, float value)
{
    scalar_store(m.data, m.dtype, vector_place(m, i), value);
}

#endif
