/*
 * codec.h - encodes an array of numbers as compressed byte planes, and decodes it: the chunks of checkpoints. Weights
 * and moments contain few repeated strings but uneven byte counts, so planes are entropy-coded without matches
 * (Huffman), as ordinary zstd frames that any zstd reads. A plane that would not get smaller is stored as it is. If the
 * signs are noise, the bits are rotated first (planes.h), so that the plane of exponents does not contain them.
 */
#ifndef BASE_CODEC_H
#define BASE_CODEC_H
#include <nrl/status.h>
#include <stdbool.h>

enum {
    CODEC_CHUNK = 256 << 10,             /* largest chunk, in uncompressed bytes */
    CODEC_MAX_WIDTH = 8,                 /* bytes of an element: 1, 2, 4 or 8 */
    CODEC_ROOM = CODEC_CHUNK + (8 << 10) /* size of the buffer that codec_encode needs */
};

typedef struct codec codec;           /* scratch memory; one thread at a time */
nrl_status codec_create(codec **out); /* NRL_ERR_MEMORY */
void codec_destroy(codec *c);         /* NULL is allowed */

/* Returns the rotation, in bits, that compresses floats best: 1 if a sample of them has many signs of both kinds,
 * else 0. */
int codec_rotation(const void *raw, size_t n, int width);

/* Encodes n elements of `width` bytes into `to`, plane after plane. Plane p has sizes[p] bytes: less than n for a zstd
 * frame, n for a plane stored as it is. `rotate` is 0 or 1, and 0 if width is 1. Returns the sum of the sizes, at most
 * n * width. */
size_t codec_encode(codec *c, const void *raw, size_t n, int width, int rotate, unsigned char *to, uint32_t *sizes);

/* Decodes n elements. Returns false if a frame is damaged or does not hold n bytes. `from` holds the sum of the sizes,
 * each at most n. Never writes more than n * width bytes. */
bool codec_decode(codec *c, const unsigned char *from, const uint32_t *sizes, size_t n, int width, int rotate,
                  void *raw);

#endif
