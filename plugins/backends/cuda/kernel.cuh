/*
 * kernel.cuh - what kernels are written in: launches, warps, number types and tensor core
 * instructions, behind names of our own.
 *
 * With NRL_CUDA_ON_HOST the same kernels compile as C++ for the CPU: tests/kernels/host_cuda.h
 * then gives these names, with a fibre a thread, so that kernels are tested without a GPU. What
 * such tests do not see is exactly what stands between here and the end of this file.
 */
#ifndef CUDA_KERNEL_CUH
#define CUDA_KERNEL_CUH
#include <stdint.h>

#ifdef NRL_CUDA_ON_HOST
#include "host_cuda.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define SHARED_BYTES(name) extern __shared__ __align__(16) char name[]
/* Kernels take one struct by value. Gives a cudaError_t. */
#define LAUNCH(kernel, grid, block, shared, stream, params)                                        \
    (kernel<<<grid, block, shared, (cudaStream_t)(stream)>>>(params), (int)cudaGetLastError())

/* More than 48 KiB of shared memory a block must be asked for, once a kernel. */
template <typename K> static int allow_shared(K kernel, int bytes)
{
    if (bytes <= 48 << 10) return 0;
    return (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

typedef __nv_bfloat16 bf16;
typedef __half f16;

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(bf16 x)
{
    return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(f16 x)
{
    return __half2float(x);
}
__device__ __forceinline__ void store(float *p, float x)
{
    *p = x;
}
__device__ __forceinline__ void store(bf16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void store(f16 *p, float x)
{
    *p = __float2half_rn(x);
}

/* Two numbers in a register, the first in the lower half. */
template <typename T> __device__ __forceinline__ uint32_t pack2(float low, float high);
template <> __device__ __forceinline__ uint32_t pack2<bf16>(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&v);
}
template <> __device__ __forceinline__ uint32_t pack2<f16>(float low, float high)
{
    __half2 v = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&v);
}

__device__ __forceinline__ float shuffle_xor(float x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ int shuffle_xor(int x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ float shuffle(float x, int lane)
{
    return __shfl_sync(0xffffffffu, x, lane);
}

/* Four 8 x 8 matrices of 16-bit numbers from shared memory: lane 8 i + r gives the address of row
 * r of matrix i. */
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/* c[16,8] += a[16,16] b[16,8]; lane l holds of c: rows l/4 and l/4 + 8, columns 2 (l%4) and + 1. */
template <typename T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<bf16>(float (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<f16>(float (&c)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 16 bytes from global to shared memory without passing registers; `bytes` 0 writes zeros. */
__device__ __forceinline__ void copy_16(void *to, const void *from, int bytes)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* All but the last N groups of this thread have arrived. */
template <int N> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif
#endif
