/*
 * fragments.h - executes one tensor core instruction on one warp of the emulator, with registers
 * that a test sets and reads lane by lane.
 */
#ifndef SUPPORT_CUDA_FRAGMENTS_H
#define SUPPORT_CUDA_FRAGMENTS_H
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* mma.m16n8k16: c += a b. Registers of 32 lanes; dtype is NRL_DTYPE_BF16 or F16. */
void fragment_multiply(uint32_t dtype, float c[32][4], uint32_t a[32][4], uint32_t b[32][2]);

/* ldmatrix.x4 (.trans): lane l names row l of 8 numbers. */
void fragment_load(uint32_t to[32][4], uint16_t rows[32][8], bool transposed);

#ifdef __cplusplus
}
#endif
#endif
