/*
 * planes.h - splits arrays of numbers into byte planes and joins them. Plane p holds byte p of every element, lowest
 * byte first. Bytes of the same significance are similar (signs and exponents), so they compress well together. The
 * bits of each element can be rotated left by one first: the highest byte of a float is then its whole exponent, and
 * its sign is the lowest bit. For bf16 and f32, with s sign, e exponent and m mantissa:
 *   original  seeeeeee emmmmmmm ...        rotated  eeeeeeee mmmmmmm. ... s
 */
#ifndef BASE_PLANES_H
#define BASE_PLANES_H
#include <stddef.h>
#include <stdint.h>

/* Splits n elements of `width` bytes (1, 2, 4 or 8), rotated by `rotate` bits (0 or 1; 0 if width is 1). Plane p begins
 * at planes + p * n. The buffers must not overlap. */
void planes_split(const void *raw, size_t n, int width, int rotate, unsigned char *planes);
/* Joins the planes; planes[p] is the address of plane p. */
void planes_join(const unsigned char *const *planes, size_t n, int width, int rotate, void *raw);

#endif
