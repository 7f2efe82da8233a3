/*
 * planes.h - arrays of numbers as byte planes and back: plane p holds byte p of every element, lowest
 * first. Bytes of one significance are alike (signs and exponents), so they compress together.
 */
#ifndef CHECKPOINT_PLANES_H
#define CHECKPOINT_PLANES_H
#include <stddef.h>
#include <stdint.h>

/* n elements of `width` bytes (1, 2, 4 or 8); plane p begins at planes + p * n. No overlap. */
void planes_split(const void *raw, size_t n, int width, unsigned char *planes);
/* planes[p] is where plane p lies. */
void planes_join(const unsigned char *const *planes, size_t n, int width, void *raw);

#endif
