/*
 * kernel.h - what kernels are written with.
 *
 * nvcc compiles them for the GPU. Tests compile the same files with a C++ compiler and
 * tests/support/cuda/emulator.h on the include path, where a kernel's threads run one after another
 * on the CPU and meet at barriers; so every kernel is checked without a GPU. Therefore:
 * - launches are CUDA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, arguments...);
 * - dynamic shared memory is declared by CUDA_SHARED(type, name);
 * - what is the GPU's own (PTX, tensor cores) stands under #ifdef __CUDA_ARCH__, beside plain C++.
 *
 * BOTH marks the maths of one element, which host and GPU share.
 */
#ifndef CUDA_OPS_KERNEL_H
#define CUDA_OPS_KERNEL_H
#include "cuda_backend.h"
#include <math.h>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define BOTH __host__ __device__ __forceinline__
#define BOTH_CALL inline __host__ __device__ __noinline__ /* keeps rare code out of others' registers */
#define CUDA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                \
    kernel<<<(blocks), (threads), (shared_bytes), (cudaStream_t)(stream)>>>(__VA_ARGS__)
#define CUDA_SHARED(type, name)                                                                                        \
    extern __shared__ __align__(16) unsigned char cuda_shared_bytes[];                                                 \
    type *name = (type *)cuda_shared_bytes
#else
#include "emulator.h"
#define BOTH inline
#define BOTH_CALL inline __attribute__((noinline))
#endif

/* Blocks that fill the device a few times over: kernels loop, in steps of the whole grid. */
static inline unsigned cuda_blocks(const cuda *self, int64_t wanted)
{
    int64_t most = (int64_t)self->properties.multiprocessors * 16;
    return (unsigned)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

#endif
