/*
 * gemm_plans.h - plans by product: cuBLASLt is asked once a product (what asking costs was not measured).
 * Packed batches bring ever new numbers of tokens, so when the table is full it starts anew.
 */
#ifndef CUDA_GEMM_PLANS_H
#define CUDA_GEMM_PLANS_H
#include "gemm_library.h"

enum { GEMM_PLANS_MOST = 4096 }; /* a power of two; three quarters are used */

typedef struct {
    const gemm_library *table;
    void *library;
    struct gemm_entry *entries; /* [GEMM_PLANS_MOST], open addressing */
    int n;
} gemm_plans;

nrl_status gemm_plans_open(gemm_plans *p, const gemm_library *table, void *library);
void gemm_plans_close(gemm_plans *p);
/* *plan is NULL where the library has none; that is remembered too. */
nrl_status gemm_plans_find(gemm_plans *p, const gemm_product *product, size_t workspace_bytes, void **plan);

#endif
