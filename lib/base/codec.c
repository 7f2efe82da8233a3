/*
 * codec.c - compresses planes with zstd in one of three ways, chosen by a sample of the plane. Noise is stored. A plane
 * that is mostly one byte (moments of rows without a gradient) has runs, which level -50 matches. All other planes are
 * only Huffman-coded: the lowest level searches for no matches, and ZSTD_c_literalCompressionMode compresses the
 * literals all the same. That parameter is experimental; if a zstd refuses it, level 1 gives about the same size, more
 * slowly. Matches found by chance in such planes would cost space and half the speed.
 */
#define ZSTD_STATIC_LINKING_ONLY
#include "base/codec.h"
#include "base/planes.h"
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { RUNS_LEVEL = -50, PLAIN_LEVEL = 1 };

struct codec {
    ZSTD_CCtx *bytes, *runs; /* Huffman only; with matches */
    ZSTD_DCtx *decoder;
    unsigned char planes[CODEC_CHUNK];
};

static bool codec_set_level(ZSTD_CCtx *c, int level)
{
    size_t st = ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, level);
    if (!ZSTD_isError(st)) st = ZSTD_CCtx_setParameter(c, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
    if (!ZSTD_isError(st)) return true;
    return !ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, PLAIN_LEVEL));
}

nrl_status codec_create(codec **out)
{
    codec *c = mem_try_grow(NULL, sizeof *c, "the codec of a checkpoint");
    if (!c) return NRL_ERR_MEMORY;
    c->bytes = ZSTD_createCCtx();
    c->runs = ZSTD_createCCtx();
    c->decoder = ZSTD_createDCtx();
    if (c->bytes && c->runs && c->decoder && codec_set_level(c->bytes, ZSTD_minCLevel()) &&
        codec_set_level(c->runs, RUNS_LEVEL)) {
        *out = c;
        return NRL_OK;
    }
    codec_destroy(c);
    return nrl_fail(NRL_ERR_MEMORY, "out of memory for the codec of a checkpoint");
}

void codec_destroy(codec *c)
{
    if (!c) return;
    ZSTD_freeCCtx(c->bytes);
    ZSTD_freeCCtx(c->runs);
    ZSTD_freeDCtx(c->decoder);
    free(c);
}

enum { SAMPLES = 2048 };

/* Counts each byte value among SAMPLES bytes spread over the plane and returns the sum of the squared counts. */
static uint32_t sample_squares(const unsigned char *plane, size_t n)
{
    uint16_t counts[4][256] = {{0}};
    size_t step = n / SAMPLES;
    uint32_t squares = 0;
    for (size_t i = 0; i < SAMPLES; i++)
        counts[i & 3][plane[i * step]]++;
    for (int b = 0; b < 256; b++) {
        uint32_t sum = (uint32_t)counts[0][b] + counts[1][b] + counts[2][b] + counts[3][b];
        squares += sum * sum;
    }
    return squares;
}

/* The low bytes of mantissas are noise: coding them takes most of the time and saves nothing. For noise the squares add
 * up to SAMPLES^2 / 256 + SAMPLES, within 1 % of the first term; a plane that Huffman coding makes 0.5 % smaller
 * exceeds this by 5 %. If the sum is at least half of SAMPLES^2, one byte value makes up at least half of the plane,
 * and Huffman coding would spend a whole bit on each occurrence. */
static size_t encode_plane(codec *c, const unsigned char *plane, size_t n, unsigned char *to, size_t room)
{
    enum { ALL = SAMPLES * SAMPLES, NOISE = ALL / 256 + SAMPLES + ALL / 256 / 20, RUNS = ALL / 2 };
    uint32_t squares = n < 4 * SAMPLES ? RUNS : sample_squares(plane, n);
    size_t size = n;
    if (squares >= NOISE) size = ZSTD_compress2(squares < RUNS ? c->bytes : c->runs, to, room, plane, n);
    if (!ZSTD_isError(size) && size < n) return size;
    memcpy(to, plane, n);
    return n;
}

int codec_rotation(const void *raw, size_t n, int width)
{
    size_t negative = 0, n_seen = n < SAMPLES ? n : SAMPLES;
    if (width == 1 || n == 0) return 0;
    const unsigned char *top = (const unsigned char *)raw + width - 1;
    for (size_t i = 0; i < n_seen; i++)
        negative += top[i * (n / n_seen) * (size_t)width] >> 7;
    return 4 * negative > n_seen && 4 * negative < 3 * n_seen;
}

size_t codec_encode(codec *c, const void *raw, size_t n, int width, int rotate, unsigned char *to, uint32_t *sizes)
{
    size_t used = 0;
    NRL_ASSERT(n * (size_t)width, <=, CODEC_CHUNK);
    planes_split(raw, n, width, rotate, c->planes);
    /* Each zstd block has its own Huffman table and is at most as long as the window. The rows of a tensor differ in
     * scale, so blocks of 8 KiB make moments 0.5 % smaller than one block per plane, and take 10 % more time. Of 2-byte
     * elements half of the bytes are coded, of 4-byte elements a quarter: for 2-byte elements the time is not worth it.
     */
    enum { SHORT = 13, LONGEST = 17 }; /* log2 of bytes */
    ZSTD_CCtx_setParameter(c->bytes, ZSTD_c_windowLog, width == 2 ? LONGEST : SHORT);
    for (int p = 0; p < width; p++) {
        sizes[p] = (uint32_t)encode_plane(c, c->planes + (size_t)p * n, n, to + used, CODEC_ROOM - used);
        used += sizes[p];
    }
    return used;
}

static bool decode_plane(codec *c, const unsigned char *from, size_t size, unsigned char *to, size_t n)
{
    if (ZSTD_getFrameContentSize(from, size) != n || ZSTD_findFrameCompressedSize(from, size) != size) return false;
    return ZSTD_decompressDCtx(c->decoder, to, n, from, size) == n;
}

bool codec_decode(codec *c, const unsigned char *from, const uint32_t *sizes, size_t n, int width, int rotate,
                  void *raw)
{
    const unsigned char *planes[CODEC_MAX_WIDTH];
    NRL_ASSERT(n * (size_t)width, <=, CODEC_CHUNK);
    for (int p = 0; p < width; p++) {
        unsigned char *to = c->planes + (size_t)p * n;
        planes[p] = sizes[p] == n ? from : to;
        if (sizes[p] != n && !decode_plane(c, from, sizes[p], to, n)) return false;
        from += sizes[p];
    }
    planes_join(planes, n, width, rotate, raw);
    return true;
}
