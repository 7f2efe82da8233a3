/*
 * encode.c - see encode.h. Scales and minima of Q4_K are found by weighted least squares over several ranges of the
 * integers, as in ggml: a small step more or less than (max - min) / 15 often fits the values better.
 */
#include "encode.h"
#include "base/convert.h"
#include <math.h>
#include <string.h>
#include <strings.h>

enum { SUPER = 256, SUB4 = 32, SUB6 = 16, TRIALS = 20 };

static const gguf_encoding encodings[] = {
    {GGUF_F32, "F32", NRL_DTYPE_F32, 0, 1, 4},           {GGUF_F16, "F16", NRL_DTYPE_F16, 1, 1, 2},
    {GGUF_BF16, "BF16", NRL_DTYPE_BF16, 32, 1, 2},       {GGUF_Q8_0, "Q8_0", NRL_DTYPE_NONE, 7, 32, 34},
    {GGUF_Q4_K, "Q4_K", NRL_DTYPE_NONE, 14, SUPER, 144}, {GGUF_Q6_K, "Q6_K", NRL_DTYPE_NONE, 18, SUPER, 210},
};

enum { N_ENCODINGS = sizeof encodings / sizeof *encodings };

const gguf_encoding *gguf_encoding_of(uint32_t type)
{
    for (int i = 0; i < N_ENCODINGS; i++)
        if ((uint32_t)encodings[i].type == type) return &encodings[i];
    return NULL;
}

const gguf_encoding *gguf_encoding_named(const char *name)
{
    for (int i = 0; i < N_ENCODINGS; i++)
        if (!strcasecmp(encodings[i].name, name)) return &encodings[i];
    return NULL;
}

const gguf_encoding *gguf_encoding_next(const gguf_encoding *e)
{
    e = e ? e + 1 : encodings;
    return e < encodings + N_ENCODINGS ? e : NULL;
}

static float read_f16(const unsigned char *p)
{
    float x;
    convert_to_f32(NRL_DTYPE_F16, p, 1, &x);
    return x;
}

/* Writes x rounded to f16 and returns the rounded value. */
static float write_f16(float x, unsigned char *p)
{
    convert_from_f32(NRL_DTYPE_F16, &x, 1, p);
    return read_f16(p);
}

static int clamped(float x, int low, int high)
{
    long n = lrintf(x);
    return n < low ? low : n > high ? high : (int)n;
}

/* ---- Q8_0: f16 d, then 32 signed bytes ---- */

static void encode_q8_0(const float *x, unsigned char *out)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(x[i]));
    float d = most / 127, inverse = d > 0 ? 1 / d : 0;
    write_f16(d, out);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (unsigned char)(signed char)clamped(roundf(x[i] * inverse), -127, 127);
}

static void decode_q8_0(const unsigned char *in, float *out)
{
    float d = read_f16(in);
    for (int i = 0; i < 32; i++)
        out[i] = d * (float)(signed char)in[2 + i];
}

/* ---- Q4_K: f16 d, f16 dmin, 12 bytes with eight 6-bit scales and minima, 128 bytes of 4-bit integers ---- */

/* Finds scale >= 0 and low >= 0 that minimise the sum of weight * (scale * q - low - x)^2 with integers q in [0, 15].
 * Larger values and those near the root mean square weigh more, because products with them matter more. */
static void fit_q4(const float *x, float *scale, float *low)
{
    float weight[SUB4], least = x[0], most = x[0], squares = 0;
    for (int i = 0; i < SUB4; i++) {
        squares += x[i] * x[i];
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
    }
    for (int i = 0; i < SUB4; i++)
        weight[i] = sqrtf(squares / SUB4) + fabsf(x[i]);
    least = fminf(least, 0); /* low cannot be negative */
    *scale = 0;
    *low = -least;
    if (most <= least) return;
    float best = INFINITY;
    for (int trial = -1; trial <= TRIALS; trial++) {
        /* trial -1: the plain range; then 14, 14.1, ..., 16 steps between the least and the largest value */
        float steps = trial < 0 ? 15 : 14 + 0.1F * (float)trial, inverse = steps / (most - least);
        double w = 0, wx = 0, wq = 0, wqq = 0, wxq = 0;
        int q[SUB4];
        for (int i = 0; i < SUB4; i++) {
            q[i] = clamped(inverse * (x[i] - least), 0, 15);
            w += weight[i];
            wx += weight[i] * x[i];
            wq += weight[i] * (float)q[i];
            wqq += weight[i] * (float)(q[i] * q[i]);
            wxq += weight[i] * x[i] * (float)q[i];
        }
        double determinant = w * wqq - wq * wq, s = 1 / inverse, m = least;
        if (trial >= 0 && determinant <= 0) continue;
        if (trial >= 0) {
            s = (w * wxq - wx * wq) / determinant;
            m = (wqq * wx - wq * wxq) / determinant;
            if (m > 0) {
                m = 0;
                s = wxq / wqq;
            }
        }
        float error = 0;
        for (int i = 0; i < SUB4; i++) {
            float r = (float)s * (float)q[i] + (float)m - x[i];
            error += weight[i] * r * r;
        }
        if (s < 0 || error >= best) continue;
        best = error;
        *scale = (float)s;
        *low = (float)-m;
    }
}

/* The 6-bit scale and minimum of sub-block k: the first four are in the low bits of bytes 0 to 7; of the others, bytes
 * 8 to 11 have the low four bits, and the upper two are the top bits of bytes 0 to 7. */
static void put_scale(unsigned char *p, int k, int scale, int low)
{
    if (k < 4) {
        p[k] = (unsigned char)scale;
        p[k + 4] = (unsigned char)low;
    } else {
        p[k + 4] = (unsigned char)((scale & 15) | (low & 15) << 4);
        p[k - 4] |= (unsigned char)(scale >> 4 << 6);
        p[k] |= (unsigned char)(low >> 4 << 6);
    }
}

static void get_scale(const unsigned char *p, int k, int *scale, int *low)
{
    *scale = k < 4 ? p[k] & 63 : (p[k + 4] & 15) | p[k - 4] >> 6 << 4;
    *low = k < 4 ? p[k + 4] & 63 : p[k + 4] >> 4 | p[k] >> 6 << 4;
}

static void encode_q4_k(const float *x, unsigned char *out)
{
    float scale[8], low[8], most_scale = 0, most_low = 0;
    unsigned char *scales = out + 4, *values = out + 16;
    for (int k = 0; k < 8; k++) {
        fit_q4(x + k * SUB4, &scale[k], &low[k]);
        most_scale = fmaxf(most_scale, scale[k]);
        most_low = fmaxf(most_low, low[k]);
    }
    float d = write_f16(most_scale / 63, out), dmin = write_f16(most_low / 63, out + 2);
    memset(scales, 0, 12);
    for (int k = 0; k < 8; k++)
        put_scale(scales, k, most_scale > 0 ? clamped(63 * scale[k] / most_scale, 0, 63) : 0,
                  most_low > 0 ? clamped(63 * low[k] / most_low, 0, 63) : 0);
    for (int k = 0; k < 8; k++) {
        int s, m;
        get_scale(scales, k, &s, &m);
        float step = d * (float)s, offset = dmin * (float)m;
        for (int i = 0; i < SUB4; i++) {
            int q = step > 0 ? clamped((x[k * SUB4 + i] + offset) / step, 0, 15) : 0;
            unsigned char *byte = &values[k / 2 * SUB4 + i];
            *byte = (unsigned char)(k % 2 ? *byte | q << 4 : q);
        }
    }
}

static void decode_q4_k(const unsigned char *in, float *out)
{
    float d = read_f16(in), dmin = read_f16(in + 2);
    for (int k = 0; k < 8; k++) {
        int s, m;
        get_scale(in + 4, k, &s, &m);
        for (int i = 0; i < SUB4; i++) {
            int byte = in[16 + k / 2 * SUB4 + i];
            out[k * SUB4 + i] = d * (float)s * (float)(k % 2 ? byte >> 4 : byte & 15) - dmin * (float)m;
        }
    }
}

/* ---- Q6_K: 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 signed scales, f16 d ---- */

/* The scale that minimises the sum of x^2 * (scale * q - x)^2 with integers q in [-32, 31]. */
static float fit_q6(const float *x)
{
    float most = 0;
    for (int i = 0; i < SUB6; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    if (most == 0) return 0;
    double best = -1, found = 0;
    for (int trial = -9; trial <= 9; trial++) {
        float inverse = -(32 + 0.1F * (float)trial) / most; /* the largest value becomes -32 */
        double xq = 0, qq = 0;
        for (int i = 0; i < SUB6; i++) {
            double q = clamped(inverse * x[i], -32, 31), w = (double)x[i] * x[i];
            xq += w * x[i] * q;
            qq += w * q * q;
        }
        /* the error is constant - xq^2 / qq */
        if (qq <= 0 || xq * xq / qq <= best) continue;
        best = xq * xq / qq;
        found = xq / qq;
    }
    return (float)found;
}

/* Element i of a half of 128: 32 columns of four, whose low bits share bytes by twos and high bits by fours. */
static void q6_place(int i, int *low, int *low_shift, int *high, int *high_shift)
{
    int half = i / 128, row = i % 128 / 32, column = i % 32;
    *low = half * 64 + row % 2 * 32 + column;
    *low_shift = row / 2 * 4;
    *high = 128 + half * 32 + column;
    *high_shift = row * 2;
}

static void encode_q6_k(const float *x, unsigned char *out)
{
    float scale[SUPER / SUB6], most = 0;
    for (int k = 0; k < SUPER / SUB6; k++) {
        scale[k] = fit_q6(x + k * SUB6);
        if (fabsf(scale[k]) > fabsf(most)) most = scale[k];
    }
    memset(out, 0, 210);
    float d = write_f16(most / -128, out + 208);
    for (int k = 0; k < SUPER / SUB6; k++) {
        int s = d != 0 ? clamped(scale[k] / d, -128, 127) : 0;
        out[192 + k] = (unsigned char)(signed char)s;
        for (int i = k * SUB6; i < (k + 1) * SUB6; i++) {
            int low, low_shift, high, high_shift;
            int q = 32 + (s && d != 0 ? clamped(x[i] / (d * (float)s), -32, 31) : 0);
            q6_place(i, &low, &low_shift, &high, &high_shift);
            out[low] |= (unsigned char)((q & 15) << low_shift);
            out[high] |= (unsigned char)(q >> 4 << high_shift);
        }
    }
}

static void decode_q6_k(const unsigned char *in, float *out)
{
    float d = read_f16(in + 208);
    for (int i = 0; i < SUPER; i++) {
        int low, low_shift, high, high_shift;
        q6_place(i, &low, &low_shift, &high, &high_shift);
        int q = (in[low] >> low_shift & 15) | (in[high] >> high_shift & 3) << 4;
        out[i] = d * (float)(signed char)in[192 + i / SUB6] * (float)(q - 32);
    }
}

/* ---- any of them ---- */

void gguf_encode(const gguf_encoding *e, const float *x, int64_t n, unsigned char *out)
{
    if (e->dtype != NRL_DTYPE_NONE) {
        convert_from_f32(e->dtype, x, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i += e->block, out += e->bytes) {
        if (e->type == GGUF_Q8_0) encode_q8_0(x + i, out);
        if (e->type == GGUF_Q4_K) encode_q4_k(x + i, out);
        if (e->type == GGUF_Q6_K) encode_q6_k(x + i, out);
    }
}

void gguf_decode(const gguf_encoding *e, const unsigned char *in, int64_t n, float *out)
{
    if (e->dtype != NRL_DTYPE_NONE) {
        convert_to_f32(e->dtype, in, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i += e->block, in += e->bytes) {
        if (e->type == GGUF_Q8_0) decode_q8_0(in, out + i);
        if (e->type == GGUF_Q4_K) decode_q4_k(in, out + i);
        if (e->type == GGUF_Q6_K) decode_q6_k(in, out + i);
    }
}
