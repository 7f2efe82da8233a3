/*
 * init.c - initial values from a counter, not from a stream: element i of a parameter depends on
 * (seed, name, i) alone, so any slice on any rank, in any order, gets the same numbers.
 *
 * key = seed and name through FNV-1a and a finaliser; word w of element pair j is
 * mix(key + (2j + w + 1) * golden), which is splitmix64 read at random (Steele et al. 2014). Two
 * words make two uniforms u, v of 53 bits; the pair's normals are r cos(2 pi v) and r sin(2 pi v)
 * with r = sqrt(-2 ln u) (Box and Muller 1958), in double, rounded once.
 */
#include "model/model.h"
#include <math.h>

static const uint64_t golden = 0x9E3779B97F4A7C15u;
static const double two_pi = 6.283185307179586476925;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t name_key(const char *name, uint64_t seed)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        h = (h ^ *c) * 0x100000001B3u;
    return mix(h ^ mix(seed + golden));
}

/* In (0, 1]: the logarithm is finite. */
static double uniform(uint64_t word)
{
    return ((double)(word >> 11) + 1) * 0x1p-53;
}

static void normal_pair(uint64_t key, uint64_t pair, double *even, double *odd)
{
    double r = sqrt(-2 * log(uniform(mix(key + (2 * pair + 1) * golden))));
    double angle = two_pi * uniform(mix(key + (2 * pair + 2) * golden));
    *even = r * cos(angle);
    *odd = r * sin(angle);
}

static void fill_normal(uint64_t key, double deviation, int64_t begin, int64_t n, float *out)
{
    double z[2];
    for (int64_t i = begin; i < begin + n; i++) {
        if (i == begin || !(i & 1)) normal_pair(key, (uint64_t)i / 2, &z[0], &z[1]);
        out[i - begin] = (float)(deviation * z[i & 1]);
    }
}

void model_init_values(const nrl_param *p, uint64_t seed, int64_t begin, int64_t n, float *out)
{
    if (p->init == NRL_INIT_NORMAL) {
        fill_normal(name_key(p->name, seed), p->init_scale, begin, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = p->init == NRL_INIT_ONES ? 1.0f : 0.0f;
}
