/*
 * parallel.c - the one place where threads start. Regions name their number of threads themselves,
 * so several instances with different numbers live side by side in OpenMP's one pool.
 */
#include "cpu.h"
#include <omp.h>

void cpu_split(const cpu *self, int64_t n, int64_t grain, cpu_body body, void *arg)
{
    if (n <= 0) return;
    int64_t parts = grain > 0 ? n / grain : n;
    if (parts > self->n_threads) parts = self->n_threads;
    if (parts <= 1) {
        body(arg, 0, n, 0);
        return;
    }
#pragma omp parallel num_threads((int)parts)
    {
        /* fewer threads than asked for may come: then each takes several parts */
        for (int64_t part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) {
            int64_t begin = n * part / parts, end = n * (part + 1) / parts;
            body(arg, begin, end, omp_get_thread_num());
        }
    }
}

void cpu_tasks(const cpu *self, int64_t n, cpu_body body, void *arg)
{
    int64_t parts = n < self->n_threads ? n : self->n_threads;
    if (parts <= 1) {
        for (int64_t i = 0; i < n; i++)
            body(arg, i, i + 1, 0);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)parts)
    for (int64_t i = 0; i < n; i++)
        body(arg, i, i + 1, omp_get_thread_num());
}
