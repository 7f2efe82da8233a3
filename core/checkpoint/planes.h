/*
 * planes.h - arrays of numbers as byte planes and back: plane p holds byte p of every element, lowest
 * first. Bytes of one significance are alike (signs and exponents), so they compress together. Before
 * that an element's bits may be rotated left by one: a float's highest byte is its whole exponent then,
 * and its sign the lowest bit of all. bf16 and f32, s sign, e exponent, m mantissa:
 *   as they are  seeeeeee emmmmmmm ...        rotated  eeeeeeee mmmmmmm. ... s
 */
#ifndef CHECKPOINT_PLANES_H
#define CHECKPOINT_PLANES_H
#include <stddef.h>
#include <stdint.h>

/* n elements of `width` bytes (1, 2, 4 or 8), rotated by `rotate` bits (0 or 1; 0 where width is 1);
 * plane p begins at planes + p * n. No overlap. */
void planes_split(const void *raw, size_t n, int width, int rotate, unsigned char *planes);
/* planes[p] is where plane p lies. */
void planes_join(const unsigned char *const *planes, size_t n, int width, int rotate, void *raw);

#endif
