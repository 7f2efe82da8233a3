/*
 * init.c - initial values from a counter-based generator: element i of a parameter depends only on (seed, name, i), so
 * every slice on every rank gets the same numbers, in any order.
 *
 * The key is a hash of seed and name (FNV-1a and a finaliser). Word w of element pair j is
 * mix(key + (2j + w + 1) * MIX_GOLDEN), which is splitmix64 with random access (Steele et al. 2014). Two
 * words give two uniforms u, v of 53 bits; the pair's normals are r cos(2 pi v) and r sin(2 pi v)
 * with r = sqrt(-2 ln u) (Box and Muller 1958), in double, rounded once.
 *
 * Logarithm, sine and cosine are polynomials without branches, so that compilers vectorise them; their error is below
 * 3e-16. The file is built without contraction to fused multiply-adds (CMakeLists.txt), so every CPU gives the same
 * bits.
 */
#include "model/model.h"
#include "base/mix.h"
#include <math.h>
#include <string.h>

enum { PAIRS = 512 }; /* the normals of a block fit into the L1 cache */

/* Not with the thread sanitizer: the resolver of clones runs before the sanitizer's functions are relocated. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTORISED
#endif
#define INLINE static inline __attribute__((always_inline))

static uint64_t name_key(const char *name, uint64_t seed)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        h = (h ^ *c) * 0x100000001B3u;
    return mix64(h ^ mix64(seed + MIX_GOLDEN));
}

INLINE uint64_t bits_of(double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

INLINE double from_bits(uint64_t b)
{
    double x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* n < 2^53 as a double, exact. Converts the two 32-bit halves, because few CPUs convert vectors of 64-bit integers. */
INLINE double exact(uint64_t n)
{
    double high = from_bits(n >> 32 | 0x4530000000000000u) - 0x1p84;
    double low = from_bits((n & 0xFFFFFFFFu) | 0x4330000000000000u) - 0x1p52;
    return high + low;
}

/* In (0, 1], so that its logarithm is finite. */
INLINE double uniform(uint64_t word)
{
    return (exact(word >> 11) + 1) * 0x1p-53;
}

/* ln u of a positive normal number: u = 2^e m with m in [sqrt(1/2), sqrt(2)), and with
 * s = (m - 1) / (m + 1): ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| < 0.172. */
INLINE double logarithm(double u)
{
    const uint64_t root_half = 0x3FE6A09E667F3BCDu;
    uint64_t b = bits_of(u) - root_half;
    double e = exact((b + (1023ull << 52)) >> 52) - 1023; /* floor, for exponents above -1023 */
    double m = from_bits((b & 0x000FFFFFFFFFFFFFu) + root_half);
    double s = (m - 1) / (m + 1), q = s * s;
    double p = 1.0 / 19;
    p = p * q + 1.0 / 17;
    p = p * q + 1.0 / 15;
    p = p * q + 1.0 / 13;
    p = p * q + 1.0 / 11;
    p = p * q + 1.0 / 9;
    p = p * q + 1.0 / 7;
    p = p * q + 1.0 / 5;
    p = p * q + 1.0 / 3;
    return e * 0.693147180559945309417 + (2 * s + 2 * s * (q * p));
}

/* Cosine and sine of v turns, v in (0, 1]: the nearest quarter turn, plus a remainder of at most an eighth of a turn by
 * Taylor series. */
INLINE void turn(double v, double *cosine, double *sine)
{
    double shifted = v * 4 + 0x1.8p52; /* rounds to an integer; the low bits are the quarter */
    uint64_t quarter = bits_of(shifted);
    double x = (v * 4 - (shifted - 0x1.8p52)) * 1.57079632679489661923, q = x * x;
    double s = -1.0 / 1307674368000, c = 1.0 / 20922789888000;
    s = s * q + 1.0 / 6227020800;
    s = s * q - 1.0 / 39916800;
    s = s * q + 1.0 / 362880;
    s = s * q - 1.0 / 5040;
    s = s * q + 1.0 / 120;
    s = s * q - 1.0 / 6;
    s = x + x * (q * s);
    c = c * q - 1.0 / 87178291200;
    c = c * q + 1.0 / 479001600;
    c = c * q - 1.0 / 3628800;
    c = c * q + 1.0 / 40320;
    c = c * q - 1.0 / 720;
    c = c * q + 1.0 / 24;
    c = 1 - q * (0.5 - q * c);
    /* quarters 1 and 3 swap the two; 1 and 2 negate the cosine, 2 and 3 the sine */
    uint64_t swap = 0 - (quarter & 1), a = bits_of(c), b = bits_of(s), both = (a ^ b) & swap;
    *cosine = from_bits(a ^ both ^ ((quarter + 1) >> 1 & 1) << 63);
    *sine = from_bits(b ^ both ^ (quarter >> 1 & 1) << 63);
}

/* out[2n]: the normals of pairs [pair, pair + n), n at most PAIRS. */
VECTORISED static void normal_pairs(uint64_t key, double deviation, uint64_t pair, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = key + (2 * (pair + (uint64_t)i) + 1) * MIX_GOLDEN;
        double r = sqrt(-2 * logarithm(uniform(mix64(at)))), cosine, sine;
        turn(uniform(mix64(at + MIX_GOLDEN)), &cosine, &sine);
        out[2 * i] = (float)(deviation * (r * cosine));
        out[2 * i + 1] = (float)(deviation * (r * sine));
    }
}

static void fill_normal(uint64_t key, double deviation, int64_t begin, int64_t n, float *out)
{
    float block[2 * PAIRS];
    for (int64_t end = begin + n, at = begin; at < end;) {
        int64_t first = at & ~(int64_t)1, odd = at - first;
        int64_t pairs = (end - first + 1) / 2 < PAIRS ? (end - first + 1) / 2 : PAIRS;
        int64_t take = 2 * pairs - odd < end - at ? 2 * pairs - odd : end - at;
        normal_pairs(key, deviation, (uint64_t)first / 2, pairs, block);
        memcpy(out, block + odd, (size_t)take * sizeof *out);
        out += take;
        at += take;
    }
}

static void fill_uniform(uint64_t key, double bound, int64_t begin, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        double u = uniform(mix64(key + ((uint64_t)(begin + i) + 1) * MIX_GOLDEN));
        out[i] = (float)(bound * (2 * u - 1));
    }
}

void model_init_values(const nrl_param *p, uint64_t seed, int64_t begin, int64_t n, float *out)
{
    if (p->init == NRL_INIT_UNIFORM) {
        fill_uniform(name_key(p->name, seed), p->init_scale, begin, n, out);
        return;
    }
    if (p->init == NRL_INIT_NORMAL) {
        fill_normal(name_key(p->name, seed), p->init_scale, begin, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = p->init == NRL_INIT_ONES ? 1.0f : 0.0f;
}
