/*
 * kernel.h - the macros and helpers of kernels.
 *
 * nvcc compiles kernels for the GPU. Tests compile the same files with a C++ compiler and
 * tests/support/cuda/emulator.h on the include path, where a kernel's threads run one after another
 * on the CPU and meet at barriers, so that every kernel is checked without a GPU. Therefore:
 * - launches are CUDA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, arguments...);
 * - dynamic shared memory is declared by CUDA_SHARED(type, name);
 * - code for the GPU only (PTX, tensor cores) is under #ifdef __CUDA_ARCH__, next to a plain C++ version.
 *
 * BOTH marks per-element functions that are compiled for host and GPU.
 */
#ifndef CUDA_OPS_KERNEL_H
#define CUDA_OPS_KERNEL_H
#include "cuda_backend.h"
#include <math.h>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define BOTH __host__ __device__ __forceinline__
#define BOTH_CALL inline __host__ __device__ __noinline__ /* keeps rare code out of the callers' registers */
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

/* Enough blocks to fill the device a few times; kernels loop with the stride of the whole grid. */
static inline unsigned cuda_blocks(const cuda *self, int64_t wanted)
{
    int64_t most = (int64_t)self->properties.multiprocessors * 16;
    return (unsigned)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

#endif
