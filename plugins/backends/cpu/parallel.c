/*
 * parallel.c - the only file that starts threads. Parallel regions set their own number of threads, so
 * several instances with different numbers can share OpenMP's one pool.
 */
#include "cpu.h"
#include <omp.h>

/* libgomp is not instrumented. The thread sanitizer learns from these annotations, on the address of the
 * argument, that a region runs after its caller's earlier accesses and before its later ones, and checks
 * only the bodies. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HAND_OVER(arg) __tsan_release(arg)
#define TAKE_OVER(arg) __tsan_acquire(arg)
#define UNSEEN __attribute__((no_sanitize("thread")))
#else
#define HAND_OVER(arg) (void)(arg)
#define TAKE_OVER(arg) (void)(arg)
#define UNSEEN
#endif

UNSEEN void cpu_split(const cpu *self, int64_t n, int64_t grain, cpu_body body, void *arg)
{
    if (n <= 0) return;
    int64_t parts = grain > 0 ? n / grain : n;
    if (parts > self->n_threads) parts = self->n_threads;
    if (parts <= 1) {
        body(arg, 0, n, 0);
        return;
    }
    HAND_OVER(arg);
#pragma omp parallel num_threads((int)parts)
    {
        TAKE_OVER(arg);
        /* OpenMP may start fewer threads than requested: then each processes several parts */
        for (int64_t part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) {
            int64_t begin = n * part / parts, end = n * (part + 1) / parts;
            body(arg, begin, end, omp_get_thread_num());
        }
        HAND_OVER(arg);
    }
    TAKE_OVER(arg);
}

UNSEEN void cpu_tasks(const cpu *self, int64_t n, cpu_body body, void *arg)
{
    int64_t parts = n < self->n_threads ? n : self->n_threads;
    if (parts <= 1) {
        for (int64_t i = 0; i < n; i++)
            body(arg, i, i + 1, 0);
        return;
    }
    HAND_OVER(arg);
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)parts)
    for (int64_t i = 0; i < n; i++) {
        TAKE_OVER(arg);
        body(arg, i, i + 1, omp_get_thread_num());
        HAND_OVER(arg);
    }
    TAKE_OVER(arg);
}
