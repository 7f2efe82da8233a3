/*
 * gemm_all.c - products that do not depend on each other: each thread computes whole ones. That is faster than dividing
 * products with few rows among all threads, one after another.
 */
#include "gemm_dnnl.h"
#include <stdlib.h>
#include <string.h>

static double flops_of(const nrl_gemm_args *a)
{
    return 2.0 * (double)a->c.rows * (double)a->c.cols * (double)(a->transpose_a ? a->a.rows : a->a.cols);
}

static int larger_first(const void *a, const void *b)
{
    const double x = flops_of(*(const nrl_gemm_args *const *)a), y = flops_of(*(const nrl_gemm_args *const *)b);
    return (x < y) - (x > y);
}

typedef struct {
    cpu *self;
    const nrl_gemm_args **calls;
    nrl_status *results;
} products_task;

static void run_products(void *arg, int64_t begin, int64_t end, int thread)
{
    const products_task *t = arg;
    cpu *worker = &t->self->workers[thread];
    for (int64_t i = begin; i < end; i++)
        t->results[i] = worker->ops->gemm(worker, NULL, t->calls[i]);
}

void cpu_gemm_all_close(cpu *self)
{
    for (int i = 0; self->workers && i < self->n_threads; i++)
        cpu_close_parts(&self->workers[i]);
    free(self->workers);
    self->workers = NULL;
}

/* CPUs of one thread each, which share the memory of `self`. */
static nrl_status workers_open(cpu *self)
{
    if (self->workers) return NRL_OK;
    self->workers = calloc((size_t)self->n_threads, sizeof *self->workers);
    if (!self->workers) return nrl_fail(NRL_ERR_MEMORY, "no memory for products on %d threads", self->n_threads);
    for (int i = 0; i < self->n_threads; i++) {
        cpu *w = &self->workers[i];
        *w = (cpu){.ops = self->ops,
                   .gemm_small = self->gemm_small,
                   .isa = self->isa,
                   .n_threads = 1,
                   .native_bf16 = self->native_bf16,
                   .memory = self->memory};
        const nrl_status st = gemm_engine_create(self->isa, self->memory, &w->engine);
        if (st == NRL_OK) continue;
        cpu_gemm_all_close(self);
        return st;
    }
    return NRL_OK;
}

/* Products that are larger than a thread's share of what is left are divided among all threads; the others are given to
 * idle threads, the largest first. A product that fails on a thread is repeated here, which reports why. */
static nrl_status run_all(cpu *self, const nrl_gemm_args **calls, nrl_status *results, int64_t n)
{
    double left = 0;
    int64_t first = 0;
    for (int64_t i = 0; i < n; i++)
        left += flops_of(calls[i]);
    qsort(calls, (size_t)n, sizeof *calls, larger_first);
    while (first < n && flops_of(calls[first]) * self->n_threads > left) {
        left -= flops_of(calls[first]);
        NRL_TRY(self->ops->gemm(self, NULL, calls[first++]));
    }
    if (first == n) return NRL_OK;
    NRL_TRY(workers_open(self));
    products_task t = {self, calls + first, results + first};
    cpu_tasks(self, n - first, run_products, &t);
    for (int64_t i = first; i < n; i++)
        if (results[i] != NRL_OK) NRL_TRY(self->ops->gemm(self, NULL, calls[i]));
    return NRL_OK;
}

nrl_status cpu_gemm_all(cpu *self, const nrl_gemm_args *calls, int64_t n)
{
    if (self->n_threads == 1 || self->independent_rows || n == 1) {
        for (int64_t i = 0; i < n; i++)
            NRL_TRY(self->ops->gemm(self, NULL, &calls[i]));
        return NRL_OK;
    }
    const nrl_gemm_args **order = malloc((size_t)n * sizeof *order);
    nrl_status *results = calloc((size_t)n, sizeof *results);
    nrl_status st = NRL_OK;
    if (!order || !results) st = nrl_fail(NRL_ERR_MEMORY, "no memory for %lld products", (long long)n);
    for (int64_t i = 0; i < n && st == NRL_OK; i++)
        order[i] = &calls[i];
    if (st == NRL_OK) st = run_all(self, order, results, n);
    free(order);
    free(results);
    return st;
}
