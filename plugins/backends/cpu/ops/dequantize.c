/*
 * dequantize.c - values of a weight that is stored in codes of 4 or 8 bits, a span of one block at a time: the table of
 * 16 numbers fits into vector registers, the one of 256 into the first-level cache.
 */
#include "span.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

enum { FOUR_BITS = 16, NESTED_BLOCK = 256 };

/* Values of the two codes in each byte; returns how many elements are done, an even number. */
static inline int64_t fours_in_vectors(const float *code, float scale, const uint8_t *q, int64_t n, float *x)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    const __m512 table = _mm512_mul_ps(_mm512_loadu_ps(code), _mm512_set1_ps(scale));
    for (; i + 32 <= n; i += 32) {
        __m128i bytes = _mm_loadu_si128((const void *)(q + i / 2)), low = _mm_set1_epi8(15);
        __m128i first = _mm_and_si128(_mm_srli_epi16(bytes, 4), low), second = _mm_and_si128(bytes, low);
        __m512i a = _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(first, second));
        __m512i b = _mm512_cvtepu8_epi32(_mm_unpackhi_epi8(first, second));
        _mm512_storeu_ps(x + i, _mm512_permutexvar_ps(a, table));
        _mm512_storeu_ps(x + i + 16, _mm512_permutexvar_ps(b, table));
    }
#elif defined(__AVX2__)
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256 lower = _mm256_mul_ps(_mm256_loadu_ps(code), factor);
    const __m256 upper = _mm256_mul_ps(_mm256_loadu_ps(code + 8), factor);
    for (; i + 16 <= n; i += 16) {
        __m128i bytes = _mm_loadl_epi64((const void *)(q + i / 2)), low = _mm_set1_epi8(15);
        __m128i first = _mm_and_si128(_mm_srli_epi16(bytes, 4), low), second = _mm_and_si128(bytes, low);
        __m128i both = _mm_unpacklo_epi8(first, second);
        for (int k = 0; k < 2; k++) {
            __m256i index = _mm256_cvtepu8_epi32(k ? _mm_srli_si128(both, 8) : both);
            __m256 a = _mm256_permutevar8x32_ps(lower, index), b = _mm256_permutevar8x32_ps(upper, index);
            /* bit 3 of the code chooses the table: it becomes the sign */
            _mm256_storeu_ps(x + i + 8 * k, _mm256_blendv_ps(a, b, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28))));
        }
    }
#else
    (void)code, (void)scale, (void)q, (void)n, (void)x;
#endif
    return i;
}

static void fours(const float *code, float scale, const uint8_t *q, int64_t n, float *x)
{
    for (int64_t i = fours_in_vectors(code, scale, q, n, x); i < n; i++)
        x[i] = code[i % 2 ? q[i / 2] & 15 : q[i / 2] >> 4] * scale;
}

static float scale_of(const nrl_dequantize_args *a, int64_t block)
{
    if (a->scale.dtype == NRL_DTYPE_F32) return ((const float *)a->scale.data)[block];
    const float *nested = a->nested.data, *code = a->nested_code.data, *offset = a->offset.data;
    return code[((const uint8_t *)a->scale.data)[block]] * nested[block / NESTED_BLOCK] + *offset;
}

static void dequantize_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_dequantize_args *a = arg;
    const float *code = a->code.data;
    const uint8_t *q = a->q.data;
    float buffer[SPAN];
    (void)thread;
    for (int64_t block = begin; block < end; block++) {
        const float scale = scale_of(a, block);
        int64_t last = (block + 1) * a->block < a->x.cols ? (block + 1) * a->block : a->x.cols;
        for (int64_t at = block * a->block, n; at < last; at += n) {
            n = last - at < SPAN ? last - at : SPAN;
            float *x = span_target(&a->x, 0, at, buffer);
            if (a->code.cols == FOUR_BITS)
                fours(code, scale, q + at / 2, n, x);
            else
                for (int64_t i = 0; i < n; i++)
                    x[i] = code[q[at + i]] * scale;
            span_write(&a->x, 0, at, n, x);
        }
    }
}

OP(dequantize)
{
    nrl_dequantize_args k = *a;
    cpu_split(instance, k.scale.cols, row_grain(k.block), dequantize_blocks, &k);
    return NRL_OK;
}
