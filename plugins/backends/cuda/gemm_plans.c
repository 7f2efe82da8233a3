/*
 * gemm_plans.c - a hash table of products.
 */
#include "gemm_plans.h"
#include <stdlib.h>
#include <string.h>

struct gemm_entry {
    gemm_product product;
    bool used;
    void *plan;
};

nrl_status gemm_plans_open(gemm_plans *p, const gemm_library *table, void *library)
{
    *p = (gemm_plans){.table = table, .library = library};
    p->entries = calloc(GEMM_PLANS_MOST, sizeof *p->entries);
    return p->entries ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "no memory for plans of matrix products");
}

static void empty(gemm_plans *p)
{
    for (int i = 0; p->entries && i < GEMM_PLANS_MOST; i++) {
        if (p->entries[i].plan) p->table->plan_free(p->library, p->entries[i].plan);
        p->entries[i].used = false;
        p->entries[i].plan = NULL;
    }
    p->n = 0;
}

void gemm_plans_close(gemm_plans *p)
{
    empty(p);
    free(p->entries);
    p->entries = NULL;
}

/* FNV-1a over the product's words. */
static uint32_t hash(const gemm_product *product)
{
    const unsigned char *bytes = (const unsigned char *)product;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *product; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return (uint32_t)(h ^ h >> 32);
}

nrl_status gemm_plans_find(gemm_plans *p, const gemm_product *product, size_t workspace_bytes, void **plan)
{
    if (p->n >= GEMM_PLANS_MOST / 4 * 3) empty(p);
    uint32_t i = hash(product) % GEMM_PLANS_MOST;
    while (p->entries[i].used && memcmp(&p->entries[i].product, product, sizeof *product) != 0)
        i = (i + 1) % GEMM_PLANS_MOST;
    struct gemm_entry *e = &p->entries[i];
    if (!e->used) {
        NRL_TRY(p->table->plan(p->library, product, workspace_bytes, &e->plan));
        e->product = *product;
        e->used = true;
        p->n++;
    }
    *plan = e->plan;
    return NRL_OK;
}
