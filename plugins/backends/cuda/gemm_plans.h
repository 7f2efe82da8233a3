/*
 * gemm_plans.h - plans by product: cuBLASLt is queried once per product (the cost of a query was not
 * measured). Packed batches have ever new numbers of tokens, so a full table is emptied.
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
/* *plan is NULL if the library has none; this is remembered too. */
nrl_status gemm_plans_find(gemm_plans *p, const gemm_product *product, size_t workspace_bytes, void **plan);

#endif
