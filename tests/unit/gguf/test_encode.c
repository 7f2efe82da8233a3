/*
 * test_encode.c - the encodings of GGUF: decoding against gguf-py (tests/data/gguf_blocks.json), and how close encoded
 * values are.
 */
#include "base/arena.h"
#include "base/json.h"
#include "encode.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void blocks_decode_as_in_gguf_py(void **state)
{
    arena a = {0};
    nrl_node *list;
    (void)state;
    const char *path = arena_printf(&a, "%s/tests/data/gguf_blocks.json", getenv("NRL_TEST_SOURCE"));
    assert_int_equal(json_read_file(&a, path, 1 << 20, &list), NRL_OK);
    assert_int_equal(nrl_node_size(list), 3);
    for (size_t i = 0; i < 3; i++) {
        const nrl_node *item = nrl_node_at(list, i), *values = nrl_node_find(item, "values");
        const gguf_encoding *e = gguf_encoding_named(nrl_node_string(nrl_node_find(item, "type"), ""));
        const char *hex = nrl_node_string(nrl_node_find(item, "bytes"), "");
        unsigned char bytes[256];
        float decoded[256];
        assert_non_null(e);
        assert_int_equal(nrl_node_size(values), e->block);
        for (size_t k = 0; k < e->bytes; k++) {
            unsigned byte;
            assert_int_equal(sscanf(hex + 2 * k, "%2x", &byte), 1);
            bytes[k] = (unsigned char)byte;
        }
        gguf_decode(e, bytes, e->block, decoded);
        for (size_t k = 0; k < (size_t)e->block; k++)
            assert_true((double)decoded[k] == nrl_node_f64(nrl_node_at(values, k), NAN));
    }
    arena_free(&a);
}

/* Sums of four uniform numbers are nearly normal, as weights are. */
static void fill(float *x, int n, float scale)
{
    unsigned long long state = 1;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (double)(state >> 40) / (1 << 24) - 0.5;
        }
        x[i] = scale * (float)sum;
    }
}

static double relative_error(const gguf_encoding *e, const float *x, int n)
{
    static unsigned char bytes[1 << 14];
    static float decoded[4096];
    double difference = 0, square = 0;
    gguf_encode(e, x, n, bytes);
    gguf_decode(e, bytes, n, decoded);
    for (int i = 0; i < n; i++) {
        difference += pow((double)decoded[i] - (double)x[i], 2);
        square += pow((double)x[i], 2);
    }
    return square > 0 ? sqrt(difference / square) : difference;
}

/* Root mean square errors as a share of the values'. A plain range of 4 bits without the search has 0.083 here. */
static void encoded_values_are_close(void **state)
{
    static float x[4096];
    (void)state;
    fill(x, 4096, 0.02F);
    assert_true(relative_error(gguf_encoding_named("f32"), x, 4096) == 0);
    assert_true(relative_error(gguf_encoding_named("bf16"), x, 4096) < 0.002);
    assert_true(relative_error(gguf_encoding_named("Q8_0"), x, 4096) < 0.006);
    assert_true(relative_error(gguf_encoding_named("q6_k"), x, 4096) < 0.02);
    assert_true(relative_error(gguf_encoding_named("Q4_K"), x, 4096) < 0.075);
    for (int i = 0; i < 4096; i++)
        x[i] = 0;
    for (const gguf_encoding *e = gguf_encoding_next(NULL); e; e = gguf_encoding_next(e))
        assert_true(relative_error(e, x, 4096) == 0);
    for (int i = 0; i < 4096; i++)
        x[i] = i % 256 == 7 ? -3.5F : 0; /* one value in a block */
    for (const gguf_encoding *e = gguf_encoding_next(NULL); e; e = gguf_encoding_next(e))
        assert_true(relative_error(e, x, 4096) < 0.01);
    assert_null(gguf_encoding_named("q5_k"));
    assert_null(gguf_encoding_of(99));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_decode_as_in_gguf_py),
        cmocka_unit_test(encoded_values_are_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
