/*
 * memory.h - tensors that are in use during a profile: by the place that made them, at the peak, and by micro-batch.
 *
 * A place is an operation with its phase, unit and region. A tensor is made before the operation that writes it is
 * called, so its operation is the first one that gets its address.
 */
#ifndef PROFILING_MEMORY_H
#define PROFILING_MEMORY_H
#include "tensor/batch.h"
#include "tensor/memory/pool.h"
#include <nrl/profile.h>

typedef struct memory_log memory_log;

/* `live`: bytes that are in use already, and stay the profile's `held` bytes while they are. */
memory_log *memory_create(int64_t live);
void memory_destroy(memory_log *m); /* NULL is allowed */
/* Where the next tensors are made. Texts are borrowed, as long as the profile. */
void memory_at(memory_log *m, nrl_phase phase, const char *unit, int32_t region);
void memory_batch(memory_log *m, int64_t step, const nrl_batch *batch); /* the current micro-batch; NULL = none */
void memory_take(memory_log *m, const pool_block *b);
void memory_release(memory_log *m, const pool_block *b);
/* An operation begins; `args` are its arguments, whose first member is their size. */
void memory_operation(memory_log *m, const char *name, const void *args);
void memory_end_step(memory_log *m);

int64_t memory_live(const memory_log *m);
/* Fills what was in use at the peak; rows are malloc'd, largest first. */
void memory_sites(memory_log *m, nrl_memory_site **rows, size_t *n);
void memory_batches(const memory_log *m, nrl_memory_batch **rows, size_t *n);
void memory_peak(const memory_log *m, int64_t *held, int64_t *peak);

#endif
