/*
 * record.h - the last calls of a rank, on all axes: what stands in errors, and what all ranks show
 * when a call never ends. One rank's step thread writes, any thread reads.
 */
#ifndef MESH_RECORD_H
#define MESH_RECORD_H
#include "base/buffer.h"
#include <nrl/tensor.h>
#include <pthread.h>

enum { RECORD_CALLS = 64, RECORD_WHAT = 40 };

typedef struct {
    const char *axis, *op; /* the mesh's, static */
    char what[RECORD_WHAT];
    uint64_t number; /* of the axis, from 1 */
    int64_t count, step;
    nrl_dtype dtype;
    int32_t peer;         /* of send and recv, -1 = none */
    double entered, done; /* clock_seconds; done 0 = under way */
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
/* A line for the last call of each axis ("axis NAME: ..."), an empty one, then all calls there are. */
void record_print(record *r, buffer *text);

/* Ranks by what they entered last on an axis, from everybody's record_print (NULL = did not come):
 * "  ranks 0 2: all_reduce ..." lines. */
void record_compare(char *const *records, int32_t world, const char *axis, buffer *text);

#endif
