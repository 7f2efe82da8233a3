/*
 * codec.h - one chunk of a checkpoint: numbers to compressed byte planes and back. Weights and moments
 * have little to match and much to count: planes are entropy-coded alone (Huffman), as ordinary zstd
 * frames that any zstd reads; a plane that would not get smaller is kept as it is. Where signs are noise,
 * bits are rotated first (planes.h), so that a plane of exponents has no share of it.
 */
#ifndef CHECKPOINT_CODEC_H
#define CHECKPOINT_CODEC_H
#include <nrl/status.h>
#include <stdbool.h>

enum {
    CODEC_CHUNK = 256 << 10,             /* bytes of numbers at most */
    CODEC_MAX_WIDTH = 8,                 /* bytes of an element: 1, 2, 4 or 8 */
    CODEC_ROOM = CODEC_CHUNK + (8 << 10) /* bytes that codec_encode may write to */
};

typedef struct codec codec;           /* scratch memory; one thread at a time */
nrl_status codec_create(codec **out); /* NRL_ERR_MEMORY */
void codec_destroy(codec *c);         /* NULL is fine */

/* By how many bits floats get smallest: 1 where a sample of them has many signs of both kinds,
 * else 0. */
int codec_rotation(const void *raw, size_t n, int width);

/* n elements of `width` bytes into `to`, plane after plane; sizes[p] bytes each: less than n for a
 * frame, n for a plane kept as it is. `rotate`: 0 or 1, 0 where width is 1. Returns the sum, never more
 * than n * width. */
size_t codec_encode(codec *c, const void *raw, size_t n, int width, int rotate, unsigned char *to, uint32_t *sizes);

/* The way back; false where a frame is damaged or holds anything but n bytes. `from` holds the sum of
 * sizes, which are at most n each. Writes nothing beyond n * width bytes. */
bool codec_decode(codec *c, const unsigned char *from, const uint32_t *sizes, size_t n, int width, int rotate,
                  void *raw);

#endif
