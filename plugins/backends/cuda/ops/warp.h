/*
 * warp.h - 16-bit number types, tensor core instructions and asynchronous copies, wrapped in
 * functions. Tests compile the kernels as C++: there tests/support/cuda/emulator_tensor.h replaces
 * what is under __CUDACC__ here, which is therefore all that such tests do not cover.
 */
#ifndef CUDA_OPS_WARP_H
#define CUDA_OPS_WARP_H
#include "scalar.h"

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(bf16 x)
{
    return bf16_widen(x.bits);
}
__device__ __forceinline__ float to_float(f16 x)
{
    return f16_widen(x.bits);
}
__device__ __forceinline__ void store(float *p, float x)
{
    *p = x;
}
__device__ __forceinline__ void store(bf16 *p, float x)
{
    p->bits = bf16_round(x);
}
__device__ __forceinline__ void store(f16 *p, float x)
{
    p->bits = f16_round(x);
}

__device__ __forceinline__ float shuffle_xor(float x, int mask)
{
    return __shfl_xor_sync(0xffffffffu, x, mask);
}
__device__ __forceinline__ float warp_sum(float x)
{
    for (int mask = 16; mask > 0; mask >>= 1)
        x += shuffle_xor(x, mask);
    return x;
}
__device__ __forceinline__ float warp_max(float x)
{
    for (int mask = 16; mask > 0; mask >>= 1)
        x = fmaxf(x, shuffle_xor(x, mask));
    return x;
}

/* Bytes of shared memory that a block may have on sm_86, 89 and 120; others have more. */
enum { LEAST_SHARED = 99 << 10 };

#if defined(__CUDACC__)
/* A block needs permission for more than 48 KiB of shared memory. Returns a code of the runtime. */
template <typename K> static int allow_shared(K kernel, int bytes)
{
    if (bytes <= 48 << 10) return 0;
    return (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

/* Within 2 units in the last place; results below 2^-126 are 0. */
__device__ __forceinline__ float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float fast_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Packs two values into a register, the first in the lower half. */
template <typename T> __device__ __forceinline__ uint32_t pack2(float low, float high);
template <> __device__ __forceinline__ uint32_t pack2<bf16>(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
template <> __device__ __forceinline__ uint32_t pack2<f16>(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

/* Loads four 8 x 8 matrices of 16-bit values from shared memory: lane 8 i + r passes the address of row r
 * of matrix i; lane l gets from each matrix the values 2 (l%4) and + 1 of row l/4. */
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}
/* The same, with each matrix transposed. */
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/* c[16,8] += a[16,16] b[16,8]; lane l holds of c: rows l/4 and l/4 + 8, columns 2 (l%4) and + 1. */
#define CUDA_MULTIPLY_ADD(type, name)                                                                                  \
    template <>                                                                                                        \
    __device__ __forceinline__ void multiply_add<type>(float(&c)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1)  \
    {                                                                                                                  \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "                                    \
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                           \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                  \
    }
template <typename T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
CUDA_MULTIPLY_ADD(bf16, "bf16")
CUDA_MULTIPLY_ADD(f16, "f16")

/* Copies 16 bytes from global to shared memory without registers; `bytes` 0 writes zeros. */
__device__ __forceinline__ void copy_16(void *to, const void *from, int bytes)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until all but the last N groups of this thread have arrived. */
template <int N> __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#else
#include "emulator_tensor.h"
#endif
#endif
