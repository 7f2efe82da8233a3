/*
 * gemm_plans.c - a hash table of products with chains, whose entries are also a list in order of use.
 */
#include "gemm_plans.h"
#include <stdlib.h>
#include <string.h>

enum { CHAINS = 4096 }; /* a power of two */

struct gemm_entry {
    gemm_product product;
    void *plan;
    struct gemm_entry *next;          /* of the same chain */
    struct gemm_entry *newer, *older; /* in order of use */
};

nrl_status gemm_plans_open(gemm_plans *p, const gemm_library *table, void *library)
{
    *p = (gemm_plans){.table = table, .library = library};
    p->entries = calloc(GEMM_PLANS_MOST, sizeof *p->entries);
    p->chains = calloc(CHAINS, sizeof *p->chains);
    if (p->entries && p->chains) return NRL_OK;
    gemm_plans_close(p);
    return nrl_fail(NRL_ERR_MEMORY, "no memory for plans of matrix products");
}

void gemm_plans_close(gemm_plans *p)
{
    for (int i = 0; p->entries && i < p->n; i++)
        if (p->entries[i].plan) p->table->plan_free(p->library, p->entries[i].plan);
    free(p->entries);
    free(p->chains);
    *p = (gemm_plans){0};
}

/* FNV-1a over the product's bytes. */
static struct gemm_entry **chain_of(const gemm_plans *p, const gemm_product *product)
{
    const unsigned char *bytes = (const unsigned char *)product;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *product; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return &p->chains[(h ^ h >> 32) % CHAINS];
}

static void take_out(gemm_plans *p, struct gemm_entry *e)
{
    *(e->newer ? &e->newer->older : &p->newest) = e->older;
    *(e->older ? &e->older->newer : &p->oldest) = e->newer;
}

static void put_first(gemm_plans *p, struct gemm_entry *e)
{
    e->newer = NULL;
    e->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = e;
    p->newest = e;
}

/* An entry in no list: one that was never used, or the one that was used least recently, without its plan. */
static struct gemm_entry *vacant(gemm_plans *p)
{
    if (p->n < GEMM_PLANS_MOST) return &p->entries[p->n++];
    struct gemm_entry *e = p->oldest, **at = chain_of(p, &e->product);
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    take_out(p, e);
    if (e->plan) p->table->plan_free(p->library, e->plan);
    return e;
}

/* An algorithm that another product of its class has may not support this one. */
static nrl_status make_plan(const gemm_plans *p, const gemm_product *product, size_t workspace_bytes,
                            gemm_chooser choose, void *user, void **plan)
{
    gemm_choice choice;
    bool found = false;
    *plan = NULL;
    if (choose) NRL_TRY(choose(user, product, &choice, &found));
    if (found) NRL_TRY(p->table->plan(p->library, product, workspace_bytes, &choice, plan));
    return *plan ? NRL_OK : p->table->plan(p->library, product, workspace_bytes, NULL, plan);
}

nrl_status gemm_plans_find(gemm_plans *p, const gemm_product *product, size_t workspace_bytes, gemm_chooser choose,
                           void *user, void **plan)
{
    struct gemm_entry **chain = chain_of(p, product), *e = *chain;
    while (e && memcmp(&e->product, product, sizeof *product) != 0)
        e = e->next;
    if (e) {
        take_out(p, e);
    } else {
        NRL_TRY(make_plan(p, product, workspace_bytes, choose, user, plan));
        e = vacant(p);
        *e = (struct gemm_entry){.product = *product, .plan = *plan, .next = *chain};
        *chain = e;
    }
    put_first(p, e);
    *plan = e->plan;
    return NRL_OK;
}
