/*
 * op_work.h - how much one call of an operation has to do: multiply-adds, the bytes that it reads and writes
 * at least once, and the shape that tells calls of different sizes apart. For nrl bench and nrl profile.
 */
#ifndef TENSOR_OP_WORK_H
#define TENSOR_OP_WORK_H
#include "tensor/backend_call.h"

typedef struct {
    double flops, bytes; /* flops: products and attention alone */
    int64_t dims[3];     /* gemm: rows, columns, inner; attention: queries, heads, head width; else rows, columns, 0 */
} op_work;

#define OP_WORK_DECLARE(name, args) op_work op_work_##name(const args *a);
BACKEND_OPS(OP_WORK_DECLARE)
#undef OP_WORK_DECLARE

#endif
