/*
 * isa.h - lets a file of this directory be written once and compiled once per instruction set.
 *
 * ISA(name) adds the set's suffix to an external symbol; OP(name) opens the definition of one
 * member of nrl_ops. Everything else in these files is static. SIMD before a loop asserts that its
 * iterations are independent (operands are equal or disjoint, never shifted). UNROLL before a loop
 * of a few constant iterations unrolls it, so that arrays in it can be kept in registers.
 */
#ifndef CPU_OPS_ISA_H
#define CPU_OPS_ISA_H
#include "cpu.h"
#include <math.h>
#include <string.h>

#define ISA_PASTE(name, suffix) name##_##suffix
#define ISA_EXPAND(name, suffix) ISA_PASTE(name, suffix)
#define ISA(name) ISA_EXPAND(name, CPU_SUFFIX)

#define OP(name)                                                                                                       \
    nrl_status ISA(cpu_##name)(void *instance, __attribute__((unused)) nrl_stream *stream, const nrl_##name##_args *a)
#define OP_DECLARE(name, args) nrl_status ISA(cpu_##name)(void *, nrl_stream *, const args *);
NRL_OPS(OP_DECLARE)

nrl_status ISA(cpu_gemm_fp8)(cpu *self, const nrl_gemm_args *a);
nrl_status ISA(cpu_gemm_rows)(cpu *self, const nrl_gemm_args *a);
nrl_status ISA(cpu_gemm_small)(cpu *self, const nrl_gemm_args *a);

#define SIMD _Pragma("omp simd")
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Floats in a vector register. */
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

#endif
