/*
 * test_rows.c - products with independent_rows, on every instruction set, with weights in f32, and in bf16 widened and
 * by bf16 instructions: each row has the same bits alone and among others, for all lengths around those of vectors and
 * tiles, and is as close to the exact sum as its operands allow.
 */
#include "support/backend.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MOST_M = 33, MOST_N = 29, MOST_K = 1100 };

static nrl_backend table;
static float a[MOST_M * MOST_K], b[MOST_N * MOST_K], bias[MOST_N], all[MOST_M * MOST_N], alone[MOST_M * MOST_N];
static uint16_t half[MOST_N * MOST_K];

static void set_option(char *options, const char *name, int64_t value)
{
    for (uint32_t i = 0; i < table.plugin.n_options; i++) {
        const nrl_option *o = &table.plugin.options[i];
        if (strcmp(o->name, name) != 0) continue;
        if (o->type == NRL_TYPE_BOOL)
            *(bool *)(options + o->offset) = value;
        else
            memcpy(options + o->offset, &value, sizeof value);
        return;
    }
    fail_msg("the backend has no option %s", name);
}

/* NULL: this CPU lacks the instructions. */
static void *open_rows(int64_t isa, int64_t bf16)
{
    char *options = calloc(1, table.plugin.options_size + 1);
    void *self;
    set_option(options, "isa", isa);
    set_option(options, "bf16", bf16);
    set_option(options, "independent_rows", true);
    set_option(options, "bf16_rows", true); /* does nothing where bf16 is widened */
    nrl_status st = table.open(options, 0, &self);
    free(options);
    return st == NRL_OK ? self : NULL;
}

static float bf16(float x, uint16_t *code)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u = (u + 0x7FFFu + (u >> 16 & 1)) & 0xFFFF0000u;
    *code = (uint16_t)(u >> 16);
    memcpy(&x, &u, sizeof x);
    return x;
}

static void multiply(void *self, bool is_half, int64_t begin, int64_t m, int64_t n, int64_t k, float *c)
{
    nrl_gemm_args g = {.size = sizeof g,
                       .transpose_b = true,
                       .overwrite = true,
                       .a = {.data = a + begin * k, .dtype = NRL_DTYPE_F32, .rows = m, .cols = k, .stride = k},
                       .b = {.data = is_half ? (void *)half : b,
                             .dtype = is_half ? NRL_DTYPE_BF16 : NRL_DTYPE_F32,
                             .rows = n,
                             .cols = k,
                             .stride = k},
                       .c = {.data = c, .dtype = NRL_DTYPE_F32, .rows = m, .cols = n, .stride = n},
                       .bias = {.data = bias, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = n, .stride = n},
                       .alpha = 0.5};
    assert_int_equal(table.ops->gemm(self, NULL, &g), NRL_OK);
}

/* The largest error of an element, as a share of the sum of the magnitudes that it adds. */
static double worst(bool is_half, bool rounds_a, int64_t m, int64_t n, int64_t k)
{
    double most = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = fabs((double)bias[j]);
            for (int64_t p = 0; p < k; p++) {
                uint16_t code;
                const float x = rounds_a ? bf16(a[i * k + p], &code) : a[i * k + p];
                const double y = is_half ? (double)bf16(b[j * k + p], &code) : (double)b[j * k + p];
                sum += (double)x * y / 2;
                size += fabs((double)x * y / 2);
            }
            const double error = fabs((double)all[i * n + j] - sum - (double)bias[j]) / size;
            if (!(error <= most)) most = error;
        }
    return most;
}

static void a_row_has_the_same_bits_alone_and_among_others(void **state)
{
    static const int64_t shapes[][3] = {{1, 8, 64},    {2, 7, 31},    {3, 13, 33},    {4, 6, 576},
                                        {5, 29, 1100}, {9, 11, 1025}, {33, 29, 1100}, {33, 12, 64}};
    uint64_t seed = 7;
    int n_native = 0;
    (void)state;
    for (int64_t i = 0; i < MOST_M * MOST_K; i++)
        a[i] = (float)test_uniform(&seed);
    for (int64_t i = 0; i < MOST_N * MOST_K; i++)
        b[i] = (float)test_uniform(&seed), bf16(b[i], &half[i]);
    for (int64_t i = 0; i < MOST_N; i++)
        bias[i] = (float)test_uniform(&seed);
    for (int64_t isa = 1; isa <= 3; isa++)
        for (int mode = 0; mode < 3; mode++) { /* f32, native, widened */
            const bool is_half = mode > 0, is_native = mode == 1;
            void *self = open_rows(isa, mode);
            if (!self) continue;
            n_native += is_native;
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                const int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
                multiply(self, is_half, 0, m, n, k, all);
                for (int64_t i = 0; i < m; i++)
                    multiply(self, is_half, i, 1, n, k, alone + i * n);
                assert_memory_equal(all, alone, (size_t)(m * n) * sizeof *all);
                const double error = worst(is_half, is_native, m, n, k);
                if (!(error < 2e-7))
                    fail_msg("isa %d, mode %d, %d x %d x %d: error %.2g", (int)isa, mode, (int)m, (int)n, (int)k,
                             error);
            }
            table.close(self);
        }
    if (!n_native) printf("skipped: products of bf16, which this CPU lacks\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_row_has_the_same_bits_alone_and_among_others)};
    if (!test_backend_table("cpu", &table)) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
