/*
 * test_quantize.c - codes, scales and values of quantized weights are those of bitsandbytes (make_quantize.py); ranges
 * of a matrix, and shares of it as a device keeps them, have the values of the whole.
 */
#include "base/quantize.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 128, COLUMNS = 192, N = ROWS * COLUMNS, SHOWN = 16 };
/* The mean of scales is rounded after a sum in another order; int8 has its factor 1 / 127 in the scale. */
#define TOLERANCE 1e-6

typedef struct {
    const char *kind;
    uint32_t q, nested_q; /* sum of code times its number from 1 */
    float offset, nested[2], values[SHOWN];
} golden;
#include "quantize_golden.h"

static float weights[N];

static nrl_status give(void *user, const nrl_param *asked, int64_t begin, int64_t n, float *out)
{
    (void)user, (void)asked;
    memcpy(out, weights + begin, (size_t)n * sizeof *out);
    return NRL_OK;
}

static int fill(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        float u = (float)((i + 1) * 2654435761U % 4294967296U >> 8) / 16777216.0F - 0.5F;
        weights[i] = u * fabsf(u) * (float)(i / 64 % 7 + 1);
    }
    return 0;
}

static uint32_t checksum(const uint8_t *q, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += q[i] * (uint64_t)(i + 1);
    return (uint32_t)sum;
}

static void assert_near(double x, double want)
{
    if (!(fabs(x - want) <= TOLERANCE * (1e-3 + fabs(want)))) fail_msg("%.9g, expected %.9g", x, want);
}

static void the_dynamic_map_is_that_of_bitsandbytes_to_the_bit(void **state)
{
    float codes[QUANTIZE_CODES];
    (void)state;
    for (int has_sign = 0; has_sign < 2; has_sign++) {
        quantize_dynamic_map(has_sign, codes);
        assert_int_equal(checksum((const uint8_t *)codes, sizeof codes), golden_maps[has_sign]);
    }
}

static void values_are_those_of_bitsandbytes(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++) {
        const golden *g = &goldens[k];
        quantize_kind kind = quantize_kind_of(g->kind);
        quantized_matrix v;
        assert_string_equal(quantize_name(kind), g->kind);
        assert_int_equal(quantized_read(kind, N, COLUMNS, give, NULL, NULL, &v), NRL_OK);
        assert_int_equal(checksum(v.q, quantize_bytes(kind, N)), g->q);
        if (kind != QUANTIZE_INT8) {
            assert_int_equal(v.n_scales, N / 64);
            assert_int_equal(checksum(v.nested_q, v.n_scales), g->nested_q);
            assert_near(v.offset, g->offset);
            assert_near(v.nested[0], g->nested[0]);
            assert_near(v.nested[1], g->nested[1]);
        }
        for (int i = 0; i < SHOWN; i++) {
            float x;
            quantized_decode(&v, (int64_t)i * (N / SHOWN + 1), 1, &x);
            assert_near(x, g->values[i]);
        }
        quantized_free(&v);
    }
}

static void blocks_of_zeros_and_short_ones_keep_their_values(void **state)
{
    const float x[70] = {[64] = 2, [65] = -2, [69] = 1};
    (void)state;
    for (int kind = QUANTIZE_NF4; kind <= QUANTIZE_FP4; kind++) {
        float scales[2], back[70];
        uint8_t q[35];
        quantize_encode((quantize_kind)kind, QUANTIZE_BLOCK, x, 70, scales, q);
        const quantized_matrix v = {
            .kind = (quantize_kind)kind, .block = QUANTIZE_BLOCK, .n = 70, .q = q, .scales = scales};
        quantized_decode(&v, 0, 70, back);
        for (int i = 0; i < 69; i++)
            assert_true(fabsf(back[i] - x[i]) < 1e-6F);
        assert_true(fabsf(back[69] - 1) < 0.15F);
    }
}

/* What an operation computes from the memory of a device. */
static float value_in(const char *bytes, const quantized_layout *at, int64_t i)
{
    const float *codes = (const void *)(bytes + at->codes), *scales = (const void *)(bytes + at->scales);
    const uint8_t *q = (const void *)(bytes + at->q), *nested_q = (const void *)(bytes + at->scales);
    int code = at->n_codes == 16 ? q[i / 2] >> (i % 2 ? 0 : 4) & 15 : q[i];
    int64_t block = i / at->block;
    if (!at->nested) return codes[code] * scales[block];
    const float *nested = (const void *)(bytes + at->nests), *nested_codes = (const void *)(bytes + at->nested_codes);
    return codes[code] * (nested_codes[nested_q[block]] * nested[block / QUANTIZE_NESTED] +
                          *(const float *)(const void *)(bytes + at->offset));
}

/* Columns [begin, begin + n) of every row. */
static void check_share(const quantized_matrix *v, int64_t begin, int64_t n)
{
    const quantized_layout at = quantize_layout(v->kind, ROWS * n, n, n == COLUMNS);
    char *bytes = aligned_alloc(64, (size_t)at.bytes);
    quantized_store(v, &at, bytes);
    for (int64_t row = 0; row < ROWS; row++)
        quantized_store_range(v, &at, row * n, row * COLUMNS + begin, n, bytes);
    for (int64_t i = 0; i < ROWS * n; i++) {
        float want;
        quantized_decode(v, i / n * COLUMNS + begin + i % n, 1, &want);
        assert_near(value_in(bytes, &at, i), want);
    }
    free(bytes);
}

static void shares_have_the_values_of_the_whole(void **state)
{
    (void)state;
    for (int kind = QUANTIZE_NF4; kind <= QUANTIZE_INT8; kind++) {
        quantized_matrix v;
        assert_int_equal(quantized_read((quantize_kind)kind, N, COLUMNS, give, NULL, NULL, &v), NRL_OK);
        check_share(&v, 0, COLUMNS);
        check_share(&v, 64, 64);
        check_share(&v, 128, 64);
        quantized_free(&v);
    }
}

static nrl_status refuse(void *user, const nrl_param *asked, int64_t begin, int64_t n, float *out)
{
    (void)user, (void)asked, (void)begin, (void)n, (void)out;
    return NRL_ERR_DATA;
}

static void an_error_of_the_source_is_returned(void **state)
{
    quantized_matrix v;
    (void)state;
    assert_int_equal(quantized_read(QUANTIZE_NF4, N, COLUMNS, refuse, NULL, NULL, &v), NRL_ERR_DATA);
    assert_null(v.q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dynamic_map_is_that_of_bitsandbytes_to_the_bit),
        cmocka_unit_test(values_are_those_of_bitsandbytes),
        cmocka_unit_test(blocks_of_zeros_and_short_ones_keep_their_values),
        cmocka_unit_test(shares_have_the_values_of_the_whole),
        cmocka_unit_test(an_error_of_the_source_is_returned),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
