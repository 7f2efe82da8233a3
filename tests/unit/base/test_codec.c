/*
 * test_codec.c - chunks encode and decode, in every width and kind; frames with false sizes.
 */
#include "base/codec.h"
#include "base/planes.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

static codec *c;
static unsigned char raw[CODEC_CHUNK], back[CODEC_CHUNK + 64], stored[CODEC_ROOM];

static uint32_t random_bits(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

/* Normal numbers of the size of weights, in as many bytes as asked for. */
static void fill_weights(size_t n, int width)
{
    uint64_t seed = 7;
    for (size_t i = 0; i < n; i++) {
        double u = (random_bits(&seed) + 1.0) / 4294967297.0, v = random_bits(&seed) / 4294967296.0;
        float f = (float)(0.02 * sqrt(-2 * log(u)) * cos(6.283185307 * v));
        uint64_t bits = 0;
        memcpy(&bits, &f, sizeof f);
        bits = width == 2 ? bits >> 16 : width == 8 ? bits << 32 : bits;
        memcpy(raw + i * (size_t)width, &bits, (size_t)width);
    }
}

static size_t rotated_there_and_back(size_t n, int width, int rotate)
{
    uint32_t sizes[CODEC_MAX_WIDTH];
    size_t size = n * (size_t)width, used = codec_encode(c, raw, n, width, rotate, stored, sizes), sum = 0;
    for (int p = 0; p < width; p++) {
        assert_true(sizes[p] <= n);
        sum += sizes[p];
    }
    assert_int_equal(sum, used);
    memset(back, 0xA5, sizeof back);
    assert_true(codec_decode(c, stored, sizes, n, width, rotate, back));
    assert_memory_equal(back, raw, size);
    for (size_t i = size; i < size + 64 && i < sizeof back; i++)
        assert_int_equal(back[i], 0xA5);
    return used;
}

/* Both ways; the size of what codec_rotation chooses. */
static size_t there_and_back(size_t n, int width)
{
    size_t used[2];
    for (int rotate = 0; rotate < 2; rotate++)
        used[rotate] = rotated_there_and_back(n, width, width > 1 ? rotate : 0);
    return used[codec_rotation(raw, n, width)];
}

static void every_width_and_length_comes_back(void **state)
{
    static const size_t lengths[] = {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 1000, 8192, 32768};
    (void)state;
    for (int width = 1; width <= 8; width *= 2)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            fill_weights(lengths[i], width == 1 ? 1 : width);
            there_and_back(lengths[i], width);
            memset(raw, 0, sizeof raw);
            there_and_back(lengths[i], width);
            memset(raw, 0xFF, sizeof raw);
            there_and_back(lengths[i], width);
        }
}

static void noise_grows_by_nothing(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (unsigned char)(random_bits(&seed) >> 24);
    for (int width = 1; width <= 8; width *= 2)
        assert_int_equal(there_and_back(CODEC_CHUNK / (size_t)width, width), CODEC_CHUNK);
}

static void zeros_are_nearly_nothing(void **state)
{
    (void)state;
    memset(raw, 0, sizeof raw);
    assert_true(there_and_back(CODEC_CHUNK / 4, 4) < 512);
}

/* The sign of what is as often negative as not leaves the exponents; a sign that is always the same stays. */
static void signs_that_are_noise_are_rotated_away(void **state)
{
    size_t n = CODEC_CHUNK / 4;
    (void)state;
    fill_weights(n, 4);
    assert_int_equal(codec_rotation(raw, n, 4), 1);
    assert_true(rotated_there_and_back(n, 4, 1) < rotated_there_and_back(n, 4, 0));
    for (size_t i = 0; i < n; i++)
        raw[4 * i + 3] &= 0x7F;
    assert_int_equal(codec_rotation(raw, n, 4), 0);
    assert_true((double)rotated_there_and_back(n, 4, 0) < 0.83 * CODEC_CHUNK);
    for (size_t i = 0; i < n; i++)
        raw[4 * i + 3] |= 0x80;
    assert_int_equal(codec_rotation(raw, n, 4), 0);
    assert_int_equal(codec_rotation(raw, 0, 4), 0);
    assert_int_equal(codec_rotation(raw, n, 1), 0);
}

/* Rows of very different scale: blocks of a frame have tables of their own. */
static void a_chunk_of_many_scales_is_as_small_as_its_rows(void **state)
{
    size_t n = CODEC_CHUNK / 4, row = n / 8;
    (void)state;
    fill_weights(n, 4);
    size_t one = there_and_back(n, 4);
    for (size_t i = 0; i < n; i++) {
        float f;
        memcpy(&f, raw + 4 * i, sizeof f);
        f = ldexpf(f, (int)(i / row) * 3);
        memcpy(raw + 4 * i, &f, sizeof f);
    }
    assert_true(there_and_back(n, 4) < one + CODEC_CHUNK / 500);
}

/* What Huffman alone can give: bf16 69 %, fp32 84.5 %. */
static void weights_get_as_small_as_they_can(void **state)
{
    (void)state;
    fill_weights(CODEC_CHUNK / 4, 4);
    assert_true((double)there_and_back(CODEC_CHUNK / 4, 4) < 0.845 * CODEC_CHUNK);
    fill_weights(CODEC_CHUNK / 2, 2);
    assert_true((double)there_and_back(CODEC_CHUNK / 2, 2) < 0.69 * CODEC_CHUNK);
}

static void planes_are_frames_that_any_zstd_reads(void **state)
{
    uint32_t sizes[CODEC_MAX_WIDTH];
    size_t n = CODEC_CHUNK / 4;
    (void)state;
    fill_weights(n, 4);
    for (int rotate = 0; rotate < 2; rotate++) {
        codec_encode(c, raw, n, 4, rotate, stored, sizes);
        const unsigned char *last = stored + sizes[0] + sizes[1] + sizes[2];
        assert_true(sizes[3] < n);
        assert_int_equal(ZSTD_decompress(back, sizeof back, last, sizes[3]), n);
        for (size_t i = 0; i < n; i++) {
            unsigned top = raw[4 * i + 3], next = raw[4 * i + 2];
            assert_int_equal(back[i], rotate ? (top << 1 | next >> 7) & 0xFF : top);
        }
    }
}

/* One plane of n bytes made by hand. */
static bool decodes(const unsigned char *frame, size_t size, size_t n)
{
    uint32_t sizes[CODEC_MAX_WIDTH] = {(uint32_t)size};
    return codec_decode(c, frame, sizes, n, 1, 0, back);
}

static void a_frame_of_another_size_is_refused(void **state)
{
    size_t n = 50000;
    (void)state;
    memset(raw, 1, sizeof raw);
    size_t size = ZSTD_compress(stored, sizeof stored, raw, n, 1);
    assert_true(decodes(stored, size, n));
    assert_false(decodes(stored, size, n - 1));
    assert_false(decodes(stored, size, n + 1));
    assert_false(decodes(stored, size - 1, n));
    stored[size] = 0;
    assert_false(decodes(stored, size + 1, n));
    size_t two = ZSTD_compress(stored + size, sizeof stored - size, raw, n, 1);
    assert_false(decodes(stored, size + two, n));
    assert_false(decodes(stored, size + two, 2 * n));
}

static void a_frame_that_does_not_say_its_size_is_refused(void **state)
{
    ZSTD_CCtx *z = ZSTD_createCCtx();
    (void)state;
    ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, 0);
    size_t size = ZSTD_compress2(z, stored, sizeof stored, raw, 50000);
    ZSTD_freeCCtx(z);
    assert_false(decodes(stored, size, 50000));
}

static void damaged_frames_are_refused_or_give_no_more_than_asked(void **state)
{
    uint64_t seed = 11;
    size_t n = 4096;
    (void)state;
    fill_weights(n, 1);
    memset(raw, 3, n / 2);
    size_t size = ZSTD_compress(stored, sizeof stored, raw, n, 1);
    for (int t = 0; t < 20000; t++) {
        size_t at = random_bits(&seed) % size;
        unsigned char was = stored[at];
        stored[at] ^= (unsigned char)(1u << random_bits(&seed) % 8);
        memset(back + n, 0xA5, 64);
        decodes(stored, size, n);
        for (size_t i = n; i < n + 64; i++)
            assert_int_equal(back[i], 0xA5);
        stored[at] = was;
    }
}

int main(void)
{
    if (codec_create(&c) != NRL_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_and_length_comes_back),
        cmocka_unit_test(noise_grows_by_nothing),
        cmocka_unit_test(zeros_are_nearly_nothing),
        cmocka_unit_test(signs_that_are_noise_are_rotated_away),
        cmocka_unit_test(a_chunk_of_many_scales_is_as_small_as_its_rows),
        cmocka_unit_test(weights_get_as_small_as_they_can),
        cmocka_unit_test(planes_are_frames_that_any_zstd_reads),
        cmocka_unit_test(a_frame_of_another_size_is_refused),
        cmocka_unit_test(a_frame_that_does_not_say_its_size_is_refused),
        cmocka_unit_test(damaged_frames_are_refused_or_give_no_more_than_asked),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    codec_destroy(c);
    return failed;
}
