/*
 * split16.h - packs of f32 as two matrices of halves (split16 in nrl/param.h), or rounded to the first
 * half only.
 */
#ifndef CUDA_OPS_SPLIT16_H
#define CUDA_OPS_SPLIT16_H
#include "each.h"

/* Eight 16-bit values. */
typedef struct {
    uint16_t v[PACK];
} halves;

BOTH uint16_t *halves_at(const nrl_mat &m, place p)
{
    return (uint16_t *)m.data + p.row * m.stride + p.col;
}

BOTH halves halves_load(const nrl_mat &m, place p)
{
    halves h;
    const uint16_t *at = halves_at(m, p);
    if (p.n == PACK && is_aligned(at)) {
        words w = *(const words *)at;
        for (int k = 0; k < PACK; k++)
            h.v[k] = (uint16_t)(w.w[k / 2] >> k % 2 * 16);
        return h;
    }
    for (int k = 0; k < PACK; k++)
        h.v[k] = k < p.n ? at[k] : (uint16_t)0;
    return h;
}

BOTH void halves_store(const nrl_mat &m, place p, const halves &h)
{
    uint16_t *at = halves_at(m, p);
    if (p.n == PACK && is_aligned(at)) {
        words w;
        for (int k = 0; k < PACK / 2; k++)
            w.w[k] = h.v[2 * k] | (uint32_t)h.v[2 * k + 1] << 16;
        *(words *)at = w;
        return;
    }
    for (int k = 0; k < p.n; k++)
        at[k] = h.v[k];
}

BOTH pack split16_load(const nrl_mat &high, const nrl_mat &low, place p)
{
    halves h = halves_load(high, p), l = halves_load(low, p);
    pack wide;
    for (int k = 0; k < PACK; k++)
        wide.v[k] = split16_join(h.v[k], l.v[k]);
    return wide;
}

/* low may be NULL: then high is only a rounded copy. */
BOTH void split16_store(const nrl_mat &high, const nrl_mat &low, place p, const pack &wide)
{
    halves h, l;
    for (int k = 0; k < PACK; k++) {
        uint32_t bits = split16_bits(wide.v[k]);
        h.v[k] = split16_high(bits);
        l.v[k] = (uint16_t)bits;
    }
    halves_store(high, p, h);
    if (low.data) halves_store(low, p, l);
}

#endif
