/*
 * record.h - the last calls of a rank on all axes, for error messages and for the report of all ranks when a call times
 * out. The step thread writes, any thread reads.
 */
#ifndef MESH_RECORD_H
#define MESH_RECORD_H
#include "base/buffer.h"
#include <nrl/tensor.h>
#include <pthread.h>

enum { RECORD_CALLS = 64, RECORD_WHAT = 40 };

typedef struct {
    const char *axis, *op; /* owned by the mesh; static */
    char what[RECORD_WHAT];
    uint64_t number; /* of the axis, from 1 */
    int64_t count, step;
    nrl_dtype dtype;
    int32_t peer;         /* of send and recv, -1 = none */
    double entered, done; /* clock_seconds; done is 0 until the call has ended */
} record_call;

typedef struct {
    pthread_mutex_t lock;
    record_call ring[RECORD_CALLS];
    uint64_t n; /* calls so far; call i is at i % RECORD_CALLS */
} record;

void record_open(record *r);
void record_close(record *r);
uint64_t record_enter(record *r, const record_call *call); /* a handle */
void record_done(record *r, uint64_t handle);
bool record_find(record *r, uint64_t handle, record_call *fill); /* false: overwritten since */
/* "all_reduce 'bucket 3' of axis NAME (8192 f32, call 17)" */
void record_describe(const record_call *call, buffer *text);
/* Prints a line for the last call of each axis ("axis NAME: ..."), an empty line, and then all recorded calls. */
void record_print(record *r, buffer *text);

/* Groups the ranks by the last call that they entered on an axis, from the record_print of all ranks (NULL: missing),
 * as lines "  ranks 0 2: all_reduce ...". */
void record_compare(char *const *records, int32_t world, const char *axis, buffer *text);

#endif
