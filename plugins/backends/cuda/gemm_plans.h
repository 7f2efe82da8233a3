/*
 * gemm_plans.h - plans by product. Packed batches have ever new numbers of tokens, so a full table replaces the plan
 * that was used least recently; the plans of products that every step repeats stay.
 */
#ifndef CUDA_GEMM_PLANS_H
#define CUDA_GEMM_PLANS_H
#include "gemm_library.h"

enum { GEMM_PLANS_MOST = 3072 };

typedef struct {
    const gemm_library *table;
    void *library;
    struct gemm_entry *entries;         /* [GEMM_PLANS_MOST] */
    struct gemm_entry **chains;         /* entries by the hash of their product */
    struct gemm_entry *newest, *oldest; /* ends of the list in order of use */
    int n;
} gemm_plans;

nrl_status gemm_plans_open(gemm_plans *p, const gemm_library *table, void *library);
void gemm_plans_close(gemm_plans *p);
/* Chooses the algorithm of a product that has no plan yet; *found false: the library's first for this product. */
typedef nrl_status (*gemm_chooser)(void *user, const gemm_product *product, gemm_choice *choice, bool *found);
/* *plan is NULL if the library has none; this is remembered too. Valid until the next call. `choose` may be NULL. */
nrl_status gemm_plans_find(gemm_plans *p, const gemm_product *product, size_t workspace_bytes, gemm_chooser choose,
                           void *user, void **plan);

#endif
