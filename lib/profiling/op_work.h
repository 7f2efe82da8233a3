/*
 * op_work.h - the cost of one call of an operation: FLOPs, the bytes that it must read and write, and a shape that
 * distinguishes calls of different sizes. For nrl bench and nrl profile.
 */
#ifndef PROFILING_OP_WORK_H
#define PROFILING_OP_WORK_H
#include "tensor/device/backend_call.h"

typedef struct {
    const char *name;    /* a literal */
    double flops, bytes; /* flops: only of products and attention */
    int64_t dims[3];     /* gemm: rows, columns, inner; attention: queries, heads, head width; else rows, columns, 0 */
} op_work;

/* `args` are those of the operation, `flops` what a context counts for it. */
op_work op_work_of(backend_op op, const void *args, double flops);

#endif
