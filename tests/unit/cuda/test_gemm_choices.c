/*
 * test_gemm_choices.c - algorithms of products chosen by time: on the emulated device, whose library has a fast and
 * seven slow ones; and the file that keeps them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda_backend.h"
#include "fake_driver.h"
#include "fake_library.h"
#include "gemm_choices.h"
#include "support/folder.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FASTEST = 5, CHOICES = 8 };

static char folder[64], cache[80]; /* cache: in the folder, not made yet */
static cuda *gpu;

static void open_gpu(bool times, const char *product_cache)
{
    const cuda_options o = {
        .memory_fraction = 0.9, .device = -1, .timed_products = times, .product_cache = product_cache};
    assert_int_equal(cuda_open_driver(fake_driver(), &o, 0, &gpu), NRL_OK);
    gpu->relaxed = true;
    fake_library_products.n_asked = fake_library_products.n_plans = fake_library_products.n_questions = 0;
}

static int setup(void **state)
{
    (void)state;
    fake_reset();
    fake.seconds = 1;
    snprintf(folder, sizeof folder, "/tmp/nrl-choices-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    fake_library_products = (fake_products){.fastest = FASTEST, .version = 130100};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_library_products = (fake_products){.fastest = -1};
    test_folder_remove(folder);
    return fake.live_events != 0 || fake.live_bytes != 0;
}

static nrl_mat ones(int64_t rows, int64_t cols, uint32_t dtype)
{
    void *data = NULL;
    assert_int_equal(cuda_pool_take(gpu->pool, (size_t)(rows * cols) * 4, &data), NRL_OK);
    for (int64_t i = 0; i < rows * cols; i++)
        if (dtype == NRL_DTYPE_F32)
            ((float *)data)[i] = 1;
        else
            ((uint16_t *)data)[i] = 0x3f80; /* bf16 */
    return (nrl_mat){data, dtype, 0, rows, cols, cols};
}

/* c[rows, 4] = (c +) a b, of ones; returns how often the library was asked for choices. */
static int multiply(int64_t rows, bool accumulate)
{
    const uint32_t dtype = NRL_DTYPE_F32;
    nrl_mat a = ones(rows, 8, dtype), b = ones(8, 4, dtype), c = ones(rows, 4, dtype);
    const nrl_gemm_args g = {.size = sizeof g, .overwrite = !accumulate, .a = a, .b = b, .c = c, .alpha = 1};
    const int before = fake_library_products.n_asked;
    assert_int_equal(cuda_op_gemm(gpu, gpu->stream, &g), NRL_OK);
    for (int64_t i = 0; i < rows * 4; i++)
        assert_true(((float *)c.data)[i] == (accumulate ? 9 : 8));
    cuda_pool_give(gpu->pool, a.data);
    cuda_pool_give(gpu->pool, b.data);
    cuda_pool_give(gpu->pool, c.data);
    return fake_library_products.n_asked - before;
}

static void the_fastest_is_chosen_once_for_each_class(void **state)
{
    (void)state;
    open_gpu(true, "");
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        assert_int_equal(multiply(100, accumulate), 1);
        assert_int_equal(fake_library_products.last, FASTEST);
        assert_int_equal(fake_library_products.n_plans, (accumulate + 1) * (CHOICES + 1));
        assert_int_equal(multiply(100, accumulate), 0);
    }
    for (int64_t rows = 97; rows <= 104; rows++) /* up to 104 in steps of 8 */
        assert_int_equal(multiply(rows, false), 0);
    assert_int_equal(fake_library_products.last, FASTEST);
    assert_int_equal(multiply(96, false), 1);
    assert_int_equal(multiply(105, false), 1);
    cuda_close(gpu);
}

static void nothing_is_timed_where_results_must_repeat_or_the_option_is_off(void **state)
{
    (void)state;
    for (int off = 0; off < 2; off++) {
        open_gpu(!off, cache);
        gpu->relaxed = off;
        assert_int_equal(multiply(64, false), 1);
        assert_int_equal(fake_library_products.last, 0);
        assert_int_equal(fake_library_products.n_plans, 1);
        cuda_close(gpu);
        assert_int_not_equal(access(cache, F_OK), 0);
    }
}

enum { TOKENS = 512, WIDTH = 8 };

/* One of the products of a linear layer over n tokens, rows of matrices of one width: forward, of the input's gradient,
 * of the weight's gradient. */
static void layer(int way, int64_t n, nrl_mat x, nrl_mat w, nrl_mat y)
{
    x.rows = y.rows = n;
    nrl_gemm_args g = {
        .size = sizeof g, .overwrite = true, .a = x, .b = w, .c = y, .alpha = 1, .transpose_b = way == 0};
    if (way == 2) g = (nrl_gemm_args){.size = sizeof g, .a = y, .b = x, .c = w, .alpha = 1, .transpose_a = true};
    assert_int_equal(cuda_op_gemm(gpu, gpu->stream, &g), NRL_OK);
    assert_int_equal(fake_library_products.last, 0);
    if (way < 2) assert_true(((float *)y.data)[n * WIDTH - 1] == WIDTH);
}

/* Numbers of tokens as packed batches have them: always others, below the same limit. */
static void the_library_is_asked_once_for_tokens_of_one_class(void **state)
{
    (void)state;
    open_gpu(false, "");
    gpu->relaxed = false;
    const nrl_mat x = ones(TOKENS, WIDTH, NRL_DTYPE_F32), w = ones(WIDTH, WIDTH, NRL_DTYPE_F32);
    const nrl_mat y = ones(TOKENS, WIDTH, NRL_DTYPE_F32);
    for (int64_t n = TOKENS - 100; n <= TOKENS; n++) /* 416, 448, 480, 512 */
        for (int way = 0; way < 2; way++)
            layer(way, n, x, w, y);
    const gemm_product forward = fake_library_products.asked;
    assert_int_equal(forward.cols, TOKENS);
    assert_int_equal(forward.rows, WIDTH);
    assert_int_equal(forward.depth, WIDTH);
    for (int64_t n = TOKENS; n >= TOKENS - 100; n--)
        layer(2, n, x, w, y);
    assert_int_equal(fake_library_products.asked.depth, 416);
    print_message("%d products of a layer over %d numbers of tokens: %d questions\n", fake_library_products.n_plans,
                  101, fake_library_products.n_questions);
    assert_int_equal(fake_library_products.n_plans, 3 * 101);
    assert_int_equal(fake_library_products.n_questions, 3 * 4);
    cuda_pool_give(gpu->pool, x.data);
    cuda_pool_give(gpu->pool, w.data);
    cuda_pool_give(gpu->pool, y.data);
    cuda_close(gpu);
}

/* Widths are not rounded: strides limit them. */
static void only_numbers_of_tokens_are_rounded(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        const gemm_product p = {
            .rows = 1001, .cols = 1003, .depth = 1007, .transpose_left = way & 1, .transpose_right = way >> 1};
        const gemm_product q = gemm_largest(&p);
        assert_int_equal(q.rows, 1001);
        assert_int_equal(q.cols, way < 2 ? 1024 : 1003);
        assert_int_equal(q.depth, way == 2 ? 1024 : 1007);
    }
}

/* It is remembered like one that was timed. */
static void a_single_choice_is_not_timed(void **state)
{
    (void)state;
    open_gpu(true, "");
    fake_library_products.n_choices = 1;
    assert_int_equal(multiply(100, false), 1);
    assert_int_equal(fake_library_products.n_plans, 1);
    assert_int_equal(multiply(101, false), 0);
    assert_int_equal(fake_library_products.n_questions, 1);
    cuda_close(gpu);
}

/* The only file of the folder. */
static const char *file_in(const char *in)
{
    static char path[4096];
    glob_t found;
    snprintf(path, sizeof path, "%s/*", in);
    assert_int_equal(glob(path, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    globfree(&found);
    return path;
}

static void choices_are_kept_for_the_same_device_driver_and_library(void **state)
{
    (void)state;
    open_gpu(true, cache);
    assert_int_equal(multiply(100, false) + multiply(200, true), 2);
    cuda_close(gpu);
    const char *path = file_in(cache);
    assert_non_null(strstr(path, "-driver-"));
    assert_non_null(strstr(path, "-cublaslt-130100.txt"));
    assert_null(strchr(path + strlen(cache) + 1, ' '));

    open_gpu(true, cache);
    fake_library_products.fastest = 2; /* by now another one would be faster */
    assert_int_equal(multiply(100, false) + multiply(200, true), 0);
    assert_int_equal(fake_library_products.last, FASTEST);
    cuda_close(gpu);

    const int driver = fake.driver_version;
    for (int other = 0; other < 2; other++) {
        if (other)
            fake_library_products.version++;
        else
            fake.driver_version += 10;
        open_gpu(true, cache);
        assert_int_equal(multiply(100, false), 1);
        assert_int_equal(fake_library_products.last, 2);
        cuda_close(gpu);
    }
    fake.driver_version = driver;
}

static void a_choice_that_does_not_fit_is_replaced_by_the_first(void **state)
{
    (void)state;
    open_gpu(true, "");
    assert_int_equal(multiply(100, false), 1);
    fake_library_products.refused = FASTEST;
    assert_int_equal(multiply(101, false), 0);
    assert_int_equal(fake_library_products.last, 0);
    cuda_close(gpu);
}

static void without_memory_for_a_trial_the_first_is_used(void **state)
{
    (void)state;
    open_gpu(true, "");
    assert_int_equal(multiply(8, false), 1); /* the workspace is there */
    nrl_mat a = ones(64, 8, NRL_DTYPE_F32), b = ones(8, 4, NRL_DTYPE_F32), c = ones(64, 4, NRL_DTYPE_F32);
    const nrl_gemm_args g = {.size = sizeof g, .a = a, .b = b, .c = c, .alpha = 1};
    void *rest = NULL, *more[64];
    int n = 0;
    for (size_t bytes = (size_t)1 << 40; bytes >= 256; bytes /= 2) /* all that is left */
        while (n < 64 && cuda_pool_take(gpu->pool, bytes, &rest) == NRL_OK)
            more[n++] = rest;
    assert_int_equal(cuda_op_gemm(gpu, gpu->stream, &g), NRL_OK);
    assert_int_equal(fake_library_products.last, 0);
    assert_true(((float *)c.data)[0] == 9);
    while (n)
        cuda_pool_give(gpu->pool, more[--n]);
    cuda_pool_give(gpu->pool, a.data);
    cuda_pool_give(gpu->pool, b.data);
    cuda_pool_give(gpu->pool, c.data);
    cuda_close(gpu);
}

static gemm_product product(int64_t rows)
{
    return (gemm_product){.rows = rows,
                          .cols = 33,
                          .depth = 5000,
                          .left_stride = 5000,
                          .right_stride = 5000,
                          .out_stride = rows,
                          .type = NRL_DTYPE_BF16,
                          .out_type = NRL_DTYPE_F32,
                          .left_alignment = 16,
                          .right_alignment = 16,
                          .out_alignment = 16,
                          .transpose_left = 1,
                          .relaxed = 1};
}

static void a_file_that_is_wrong_or_cannot_be_written_is_not_an_error(void **state)
{
    gemm_choices c;
    gemm_choice out, bytes;
    const gemm_product p = product(512), q = product(1024);
    (void)state;
    for (size_t i = 0; i < sizeof bytes.bytes; i++)
        bytes.bytes[i] = (unsigned char)(i * 37);
    gemm_choices_open(&c, folder, "NVIDIA H100 80GB HBM3", 13000, 130100);
    gemm_choices_add(&c, &p, &bytes);
    gemm_choices_close(&c);
    FILE *f = fopen(file_in(folder), "a");
    fputs("512 half a line\n1 2 3\n", f);
    fclose(f);
    gemm_choices_open(&c, folder, "NVIDIA H100 80GB HBM3", 13000, 130100);
    assert_int_equal(c.n, 1);
    assert_true(gemm_choices_find(&c, &p, &out));
    assert_memory_equal(&out, &bytes, sizeof out);
    assert_false(gemm_choices_find(&c, &q, &out));
    gemm_choices_add(&c, &q, &bytes); /* behind the wrong lines */
    gemm_choices_close(&c);
    gemm_choices_open(&c, folder, "NVIDIA H100 80GB HBM3", 13000, 130100);
    assert_int_equal(c.n, 2);
    gemm_choices_close(&c);

    const char *no_folder = file_in(folder);
    gemm_choices_open(&c, no_folder, "GPU", 1, 1);
    gemm_choices_add(&c, &p, &bytes);
    assert_true(gemm_choices_find(&c, &p, &out)); /* in this run */
    gemm_choices_close(&c);
}

static void rows_that_are_not_aligned_are_a_class_of_their_own(void **state)
{
    gemm_choices c;
    gemm_choice out, first = {{1}};
    gemm_product p = product(512);
    (void)state;
    gemm_choices_open(&c, "", "GPU", 1, 1);
    gemm_choices_add(&c, &p, &first);
    p.left_stride = 5008;
    assert_true(gemm_choices_find(&c, &p, &out));
    p.left_stride = 5001;
    assert_false(gemm_choices_find(&c, &p, &out));
    p = product(512);
    p.right_alignment = 8;
    assert_false(gemm_choices_find(&c, &p, &out));
    gemm_choices_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_fastest_is_chosen_once_for_each_class, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_timed_where_results_must_repeat_or_the_option_is_off, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_library_is_asked_once_for_tokens_of_one_class, setup, teardown),
        cmocka_unit_test(only_numbers_of_tokens_are_rounded),
        cmocka_unit_test_setup_teardown(a_single_choice_is_not_timed, setup, teardown),
        cmocka_unit_test_setup_teardown(choices_are_kept_for_the_same_device_driver_and_library, setup, teardown),
        cmocka_unit_test_setup_teardown(a_choice_that_does_not_fit_is_replaced_by_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(without_memory_for_a_trial_the_first_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_is_wrong_or_cannot_be_written_is_not_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_that_are_not_aligned_are_a_class_of_their_own, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
