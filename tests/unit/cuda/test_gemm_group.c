/*
 * test_gemm_group.c - products of a group beside single ones. Their sums are exact in f32, so that the results have the
 * same bits in any order: layouts, dtypes, sizes that are not multiples of a tile, rows that cannot be read 16 bytes at
 * a time; what is left to single products; numbers of launches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cuda_backend.h"
#include "fake_driver.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 80 };

typedef enum { A_BT, A_B, AT_B, AT_BT } layout;

typedef struct {
    int64_t m, n, k, gap, offset; /* gap: numbers between rows; offset: numbers before the first */
    bool overwrite;
} shape;

typedef struct {
    nrl_gemm_args args, alone; /* alone: the same, with a c of its own */
    void *a, *b, *c, *c_alone;
    size_t c_bytes;
} product;

static cuda *gpu;
static product products[MOST];
static int n_products;
static uint32_t state_of_random;

static int open_gpu(void **state)
{
    static const cuda_options usual = {.memory_fraction = 1, .device = -1};
    (void)state;
    fake_reset();
    fake.properties.multiprocessors = 10;
    return cuda_open_driver(fake_driver(), &usual, 0, &gpu) != NRL_OK;
}

static void forget_products(void)
{
    for (product *p = products; p < products + n_products; p++) {
        free(p->a);
        free(p->b);
        free(p->c);
        free(p->c_alone);
    }
    n_products = 0;
}

static int close_gpu(void **state)
{
    (void)state;
    forget_products();
    cuda_close(gpu);
    return 0;
}

static void ok(nrl_status st)
{
    if (st) print_error("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
}

/* ---- operands ---- */

/* A number that every dtype holds. */
static void put(void *data, uint32_t dtype, int64_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (dtype == NRL_DTYPE_F32) {
        ((float *)data)[i] = x;
        return;
    }
    if (dtype == NRL_DTYPE_F16 && x != 0) bits = (bits & 0x80000000) | ((bits & 0x7fffffff) - (112u << 23)) << 3;
    ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
}

/* Multiples of 1/2 from -3/2 to 3/2, and NaN between rows; without values NaN everywhere. The block ends with the last
 * row, where the executor of PTX sees reads beyond it. */
static void *matrix(uint32_t dtype, int64_t rows, int64_t cols, const shape *s, bool has_values, nrl_mat *fill,
                    size_t *bytes)
{
    const size_t each = nrl_dtype_size((nrl_dtype)dtype);
    const int64_t stride = cols + s->gap, length = s->offset + (rows && cols ? (rows - 1) * stride + cols : 1);
    *bytes = (size_t)length * each;
    char *block = malloc(*bytes);
    memset(block, 0xff, *bytes);
    *fill = (nrl_mat){block + (size_t)s->offset * each, dtype, 0, rows, cols, stride};
    for (int64_t i = 0; i < rows * cols && has_values; i++) {
        state_of_random = state_of_random * 1664525u + 1013904223u;
        put(fill->data, dtype, i / cols * stride + i % cols, (float)((int)(state_of_random >> 24) % 7 - 3) / 2);
    }
    return block;
}

static nrl_gemm_args *add(layout way, uint32_t type, uint32_t out, const shape *s)
{
    const bool ta = way == AT_B || way == AT_BT, tb = way == A_BT || way == AT_BT;
    size_t bytes;
    assert_true(n_products < MOST);
    product *p = &products[n_products++];
    *p = (product){.args = {.size = sizeof p->args, .transpose_a = ta, .transpose_b = tb, .overwrite = s->overwrite}};
    p->a = matrix(type, ta ? s->k : s->m, ta ? s->m : s->k, s, true, &p->args.a, &bytes);
    p->b = matrix(type, tb ? s->n : s->k, tb ? s->k : s->n, s, true, &p->args.b, &bytes);
    p->c = matrix(out, s->m, s->n, s, !s->overwrite, &p->args.c, &p->c_bytes);
    p->args.alpha = 0.5;
    p->alone = p->args;
    p->c_alone = matrix(out, s->m, s->n, s, false, &p->alone.c, &bytes);
    memcpy(p->c_alone, p->c, p->c_bytes);
    return &p->args;
}

/* ---- comparing ---- */

static int64_t launches(void)
{
    nrl_value values[64];
    size_t n;
    ok(cuda_watch_end(gpu, values, 64, &n));
    assert_true(n > 0);
    assert_string_equal(values[0].name, "launches");
    return (int64_t)values[0].value;
}

/* What the products add to the launches of those that are left to single products, the last `n_left`. */
static int64_t launches_of_group(int n_left)
{
    nrl_gemm_args calls[MOST];
    int64_t left = 0;
    for (int i = 0; i < n_products; i++) {
        calls[i] = products[i].args;
        ok(cuda_watch_begin(gpu));
        ok(cuda_op_gemm(gpu, gpu->stream, &products[i].alone));
        const int64_t alone = launches();
        if (i >= n_products - n_left) left += alone;
    }
    ok(cuda_watch_begin(gpu));
    ok(cuda_gemm_all(gpu, gpu->stream, calls, n_products));
    const int64_t all = launches();
    for (int i = 0; i < n_products; i++)
        if (memcmp(products[i].c, products[i].c_alone, products[i].c_bytes))
            fail_msg("product %d, %lld x %lld x %lld, has other bits", i, (long long)calls[i].c.rows,
                     (long long)calls[i].c.cols, (long long)calls[i].a.cols);
    forget_products();
    return all - left;
}

static void groups_have_the_bits_of_single_products(void **state)
{
    static const shape shapes[] = {{1, 1, 1, 0, 0, true},      {130, 7, 33, 1, 1, false},  {128, 128, 32, 0, 0, true},
                                   {64, 264, 96, 8, 0, false}, {37, 300, 65, 3, 0, true},  {20, 24, 0, 0, 0, true},
                                   {9, 8, 0, 0, 0, false},     {129, 136, 40, 0, 8, true}, {0, 16, 8, 0, 0, true},
                                   {16, 0, 8, 0, 0, true},     {8, 16, 200, 8, 8, false},  {136, 72, 104, 8, 8, true},
                                   {5, 7, 16, 1, 0, true},     {8, 24, 16, 4, 0, false},   {40, 16, 16, 8, 4, false}};
    static const uint32_t types[] = {NRL_DTYPE_BF16, NRL_DTYPE_F16};
    (void)state;
    for (layout way = A_BT; way <= AT_B; way++)
        for (int t = 0; t < 2; t++)
            for (int wide = 0; wide < 2; wide++) {
                for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                    add(way, types[t], wide ? NRL_DTYPE_F32 : types[t], &shapes[i]);
                assert_int_equal(launches_of_group(0), 1);
            }
}

static void a_launch_takes_64_products(void **state)
{
    static const shape small = {3, 5, 8, 0, 0, true};
    (void)state;
    for (int n = 64; n <= 66; n++) {
        for (int i = 0; i < n; i++)
            add(A_B, NRL_DTYPE_BF16, NRL_DTYPE_BF16, &small);
        assert_int_equal(launches_of_group(n == 65), n == 66 ? 2 : 1); /* the last alone is a single product */
    }
    assert_int_equal(launches_of_group(0), 0);
}

/* A launch for each layout, in any order of calls, and one more where dtypes or alpha change. */
static void kinds_of_products_share_launches(void **state)
{
    static const shape s = {17, 24, 40, 0, 0, true}, added = {17, 24, 40, 0, 0, false};
    const uint32_t f32 = NRL_DTYPE_F32, bf16 = NRL_DTYPE_BF16, f16 = NRL_DTYPE_F16;
    (void)state;
    for (int i = 0; i < 9; i++)
        add((layout)(i % 3), bf16, i % 3 == AT_B ? f32 : bf16, i % 2 ? &added : &s);
    assert_int_equal(launches_of_group(0), 3);
    for (int i = 0; i < 8; i++)
        add(A_BT, i < 4 ? bf16 : f16, i < 2 ? f32 : i < 4 ? bf16 : f16, &s)->alpha = i < 6 ? 1 : -2;
    for (int i = 0; i < 8; i++)
        products[i].alone.alpha = products[i].args.alpha;
    assert_int_equal(launches_of_group(0), 4);
}

static void other_products_are_computed_one_by_one(void **state)
{
    static const shape s = {17, 24, 40, 0, 0, true}, added = {17, 24, 40, 0, 0, false};
    static const shape fills = {1000, 8, 16, 0, 0, true};      /* 8 tiles on 10 multiprocessors */
    static const shape half_fills = {1500, 8, 16, 0, 0, true}; /* 12 tiles, in two turns */
    const uint32_t f32 = NRL_DTYPE_F32, bf16 = NRL_DTYPE_BF16, f16 = NRL_DTYPE_F16;
    uint16_t bias[24];
    float amax[2] = {0, 0};
    (void)state;
    for (int i = 0; i < 24; i++)
        put(bias, bf16, i, (float)(i % 3));
    add(A_BT, bf16, bf16, &half_fills);
    add(A_BT, bf16, bf16, &s);
    const int n_grouped = n_products;
    add(A_BT, bf16, bf16, &s)->bias = (nrl_mat){bias, bf16, 0, 1, 24, 24};
    add(AT_BT, bf16, bf16, &added);
    add(A_BT, f32, f32, &s);
    add(A_B, f16, bf16, &s);
    add(AT_B, bf16, bf16, &s)->b = add(AT_B, f32, f32, &added)->b;
    nrl_gemm_args *rounded = add(A_BT, bf16, f32, &s);
    rounded->fp8_a = (nrl_gemm_fp8){.format = NRL_FP8_E4M3, .amax = &amax[0]};
    rounded->fp8_b = (nrl_gemm_fp8){.format = NRL_FP8_E4M3, .amax = &amax[1]};
    add(A_BT, bf16, bf16, &fills);
    for (int i = n_grouped; i < n_products; i++) {
        const nrl_mat c = products[i].alone.c;
        products[i].alone = products[i].args;
        products[i].alone.c = c;
    }
    assert_int_equal(launches_of_group(n_products - n_grouped), 1);
    gpu->properties.multiprocessors = 132;
    add(A_BT, bf16, bf16, &fills);
    add(A_BT, bf16, bf16, &fills);
    assert_int_equal(launches_of_group(0), 1);
}

static void a_wrong_shape_is_refused(void **state)
{
    static const shape s = {17, 24, 40, 0, 0, true};
    (void)state;
    add(A_BT, NRL_DTYPE_BF16, NRL_DTYPE_BF16, &s)->c.cols--;
    assert_int_equal(cuda_gemm_all(gpu, gpu->stream, &products[0].args, 1), NRL_ERR_BUG);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_gpu, close_gpu)
    const struct CMUnitTest tests[] = {
        TEST(groups_have_the_bits_of_single_products),
        TEST(a_launch_takes_64_products),
        TEST(kinds_of_products_share_launches),
        TEST(other_products_are_computed_one_by_one),
        TEST(a_wrong_shape_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
