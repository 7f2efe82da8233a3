/*
 * op_work.h - the cost of one call of an operation: FLOPs, the bytes that it must read and write, and a shape that
 * distinguishes calls of different sizes. For nrl bench and nrl profile.
 */
#ifndef TENSOR_OP_WORK_H
#define TENSOR_OP_WORK_H
#include "tensor/device/backend_call.h"

typedef struct {
    double flops, bytes; /* flops: only of products and attention */
    int64_t dims[3];     /* gemm: rows, columns, inner; attention: queries, heads, head width; else rows, columns, 0 */
} op_work;

#define OP_WORK_DECLARE(name, args) op_work op_work_##name(const args *a);
NRL_OPS(OP_WORK_DECLARE)
#undef OP_WORK_DECLARE

#endif
