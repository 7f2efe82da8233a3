/*
 * test_sums.c - the results of reductions: bit-identical to PyTorch, the same on all ranks, every
 * type and reduction, NaN, rounding of 16-bit floats.
 */
#include "ranks.h"
#include <math.h>
#include <zlib.h>

static const ranks_options tcp23 = {.dialect = TCP23};

/* Element i of rank r, as in the runs of PyTorch 2.15 that the checksums below come from. */
static uint32_t bits_of(int64_t i, int32_t r)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)(r + 1) * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

static uint16_t narrow(float f, bool brain)
{
    if (!brain) { /* these values are exact or need one rounding: by way of the nearest double grid */
        double a = fabs((double)f);
        int e;
        frexp(a, &e);
        if (a == 0) return 0;
        double unit = ldexp(1, e - 11 < -24 ? -24 : e - 11);
        double rounded = nearbyint(a / unit) * unit;
        frexp(rounded, &e);
        int exponent = e - 1 + 15;
        uint16_t h = exponent > 0 ? (uint16_t)((exponent << 10) + (int)((rounded / ldexp(1, e - 1) - 1) * 1024))
                                  : (uint16_t)(rounded / ldexp(1, -24));
        return (uint16_t)(h | (f < 0 ? 0x8000 : 0));
    }
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void fill(void *data, uint32_t dtype, int64_t count, int32_t rank)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t x = bits_of(i, rank);
        float f = ((float)(x & 0xffff) - 32768) / 4096;
        switch (dtype) {
        case NRL_DTYPE_F32:
            ((float *)data)[i] = f;
            break;
        case NRL_DTYPE_F64:
            ((double *)data)[i] = f;
            break;
        case NRL_DTYPE_F16:
            ((uint16_t *)data)[i] = narrow(f, false);
            break;
        case NRL_DTYPE_BF16:
            ((uint16_t *)data)[i] = narrow(f, true);
            break;
        case NRL_DTYPE_I64:
            ((int64_t *)data)[i] = (int64_t)(x % 2001) - 1000;
            break;
        case NRL_DTYPE_I32:
            ((int32_t *)data)[i] = (int32_t)x;
            break;
        default:
            ((uint8_t *)data)[i] = (uint8_t)x;
        }
    }
}

typedef struct {
    uint32_t dtype, reduce;
    int64_t count;
    uint32_t crc[2]; /* of 2 ranks, of 3 */
} sum_case;

static const sum_case pytorch[] = {
    {NRL_DTYPE_F32, NRL_REDUCE_OP_SUM, 7, {0xc5fce611, 0x66c0b23c}},
    {NRL_DTYPE_F32, NRL_REDUCE_OP_SUM, 1000, {0x71415984, 0x198817f2}},
    {NRL_DTYPE_F32, NRL_REDUCE_OP_SUM, 1000003, {0xd8770026, 0x2215c054}},
    {NRL_DTYPE_F16, NRL_REDUCE_OP_SUM, 1000, {0x8c9982a6, 0xe3c1ff0c}},
    {NRL_DTYPE_F16, NRL_REDUCE_OP_PRODUCT, 1000, {0xc45677e6, 0x4817ad48}},
    {NRL_DTYPE_BF16, NRL_REDUCE_OP_SUM, 1000, {0xbe755ffc, 0xd9b45273}},
    {NRL_DTYPE_BF16, NRL_REDUCE_OP_AVERAGE, 1000, {0x7417efff, 0x14ed048a}},
    {NRL_DTYPE_F64, NRL_REDUCE_OP_PRODUCT, 1000, {0x1efd2610, 0x9a128b58}},
    {NRL_DTYPE_I64, NRL_REDUCE_OP_SUM, 1000, {0xe11cf660, 0x0074a6e5}},
};

static void pytorch_body(ranks_one *r)
{
    for (size_t i = 0; i < sizeof pytorch / sizeof *pytorch; i++) {
        const sum_case *c = &pytorch[i];
        size_t bytes = (size_t)c->count * nrl_dtype_size((nrl_dtype)c->dtype);
        void *data = malloc(bytes);
        fill(data, c->dtype, c->count, r->rank);
        CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = c->dtype, .reduce = c->reduce, .receive = data,
                          .count = c->count) == NRL_OK);
        uint32_t crc = (uint32_t)crc32(0, data, (uInt)bytes);
        if (crc != c->crc[r->size - 2]) nrl_fail(NRL_ERR_BUG, "case %zu: %08x, not %08x", i, crc, c->crc[r->size - 2]);
        CHECK(r, crc == c->crc[r->size - 2]);
        free(data);
    }
}

static void results_are_pytorchs_to_the_bit(void **state)
{
    (void)state;
    assert_true(ranks_run(2, &tcp23, pytorch_body, NULL));
    assert_true(ranks_run(3, &tcp23, pytorch_body, NULL));
}

static void every_body(ranks_one *r)
{
    enum { COUNT = 4099 };
    static const uint32_t dtypes[] = {NRL_DTYPE_F32, NRL_DTYPE_F64, NRL_DTYPE_F16, NRL_DTYPE_BF16,
                                      NRL_DTYPE_I32, NRL_DTYPE_I64, NRL_DTYPE_U8};
    uint8_t *crcs = r->shared; /* [rank][case] as 4 bytes */
    for (uint32_t d = 0; d < 7; d++) {
        for (uint32_t reduce = NRL_REDUCE_OP_SUM; reduce <= NRL_REDUCE_OP_PRODUCT; reduce++) {
            bool average_of_integers = reduce == NRL_REDUCE_OP_AVERAGE && d > 3;
            uint64_t data[COUNT];
            fill(data, dtypes[d], COUNT, r->rank);
            nrl_status st =
                RANKS_DO(r->self, all_reduce, .dtype = dtypes[d], .reduce = reduce, .receive = data, .count = COUNT);
            CHECK(r, st == (average_of_integers ? NRL_ERR_CONFIG : NRL_OK));
            uint32_t crc = (uint32_t)crc32(0, (void *)data, COUNT * (uInt)nrl_dtype_size((nrl_dtype)dtypes[d]));
            if (!average_of_integers) memcpy(crcs + 4 * (64 * r->rank + (int32_t)(8 * d + reduce)), &crc, 4);
        }
    }
}

static void all_ranks_get_the_same_bits_of_every_type_and_reduction(void **state)
{
    (void)state;
    for (int32_t ranks = 2; ranks <= 5; ranks++) {
        uint8_t crcs[RANKS_MAX][256] = {{0}};
        assert_true(ranks_run(ranks, &tcp23, every_body, crcs));
        for (int32_t k = 1; k < ranks; k++)
            assert_memory_equal(crcs[0], crcs[k], 256);
    }
}

static void nan_body(ranks_one *r)
{
    float data[3] = {r->rank ? NAN : 1, r->rank ? 1 : NAN, -INFINITY};
    CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .receive = data,
                      .count = 3) == NRL_OK);
    CHECK(r, isnan(data[0]) && isnan(data[1]) && data[2] == -INFINITY);
    uint16_t half[4] = {0x7bff, 0x0001, (uint16_t)(r->rank ? 0x7c00 : 0xfc00), 0x3c01};
    CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = NRL_DTYPE_F16, .reduce = NRL_REDUCE_OP_SUM, .receive = half,
                      .count = 4) == NRL_OK);
    CHECK(r, half[0] == 0x7c00 && half[1] == 0x0002 && (half[2] & 0x7fff) == 0x7e00 && half[3] == 0x4001);
    uint16_t brain[3] = {0x7f7f, 0x0001, 0x7fc1};
    CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = NRL_DTYPE_BF16, .reduce = NRL_REDUCE_OP_SUM, .receive = brain,
                      .count = 3) == NRL_OK);
    CHECK(r, brain[0] == 0x7f80 && brain[1] == 0x0002 && brain[2] == 0x7fc0);
}

static void infinities_nan_and_denormals_go_through(void **state)
{
    (void)state;
    assert_true(ranks_run(2, &tcp23, nan_body, NULL));
}

/* Shares of many segments, some empty, in place: all ranks send one before any passes one on. */
static void long_shares_body(ranks_one *r)
{
    enum { MOST = 10 << 18 }; /* of f32: ten segments */
    const int64_t all[] = {MOST, 0, 4 << 18, MOST - 5, 1}, *counts = all;
    int64_t total = 0, before = 0;
    for (int32_t k = 0; k < r->size; k++) {
        if (k == r->rank) before = total;
        total += counts[k];
    }
    float *data = malloc((size_t)total * sizeof *data);
    for (int64_t i = 0; i < total; i++)
        data[i] = (float)(i % 7 + r->rank);
    CHECK(r, RANKS_DO(r->self, reduce_scatter, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .send = data,
                      .receive = data + before, .counts = counts) == NRL_OK);
    int64_t wrong = 0;
    for (int64_t i = before; i < before + counts[r->rank]; i++)
        wrong += data[i] != (float)(i % 7 * r->size + r->size * (r->size - 1) / 2);
    free(data);
    CHECK(r, wrong == 0);
}

static void shares_of_many_segments_are_summed_by_any_number_of_ranks(void **state)
{
    (void)state;
    for (int32_t ranks = 2; ranks <= 5; ranks++)
        assert_true(ranks_run(ranks, &tcp23, long_shares_body, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_pytorchs_to_the_bit),
        cmocka_unit_test(all_ranks_get_the_same_bits_of_every_type_and_reduction),
        cmocka_unit_test(shares_of_many_segments_are_summed_by_any_number_of_ranks),
        cmocka_unit_test(infinities_nan_and_denormals_go_through),
    };
    return cmocka_run_group_tests(tests, ranks_load, NULL);
}
