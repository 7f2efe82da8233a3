/*
 * internal.h - the parts of a profile: marks and rows (profile.c), named regions (regions.c), events of a timeline
 * (trace.h), tensors in use (memory.h).
 */
#ifndef PROFILING_INTERNAL_H
#define PROFILING_INTERNAL_H
#include "profiling/memory.h"
#include "profiling/profile.h"
#include "profiling/trace.h"
#include "tensor/internal.h"

typedef struct {
    double host;      /* seconds */
    nrl_event *event; /* NULL: use the host's clock */
    int32_t row;      /* row of the operation after this mark, -1 = none */
    uint32_t phase;   /* phase after this mark */
    int32_t region;   /* likewise, the innermost region; -1 = none */
    const char *unit; /* likewise; NULL = none */
} mark;

/* What the timeline shows at the moment: each begins at a mark and ends at one. */
typedef struct {
    double step, phase, unit; /* when they began */
    double *regions;          /* [n_regions] likewise */
    int32_t region;
    uint32_t in_phase;
    const char *in_unit;
    double last; /* the time of the newest mark that was read, on the device's clock */
} open_slices;

struct profile {
    mark *marks;
    int64_t n_marks, marks_capacity;
    nrl_op_time *rows;
    int32_t *table; /* [table_size] 1 + row, 0 = empty; a power of two, at most half full */
    int32_t n_rows, table_size;
    int32_t row; /* row of the current operation */
    uint32_t phase;
    const char *unit; /* of the model; only in the phases that compute it */
    bool broken;      /* a mark could not be made: reported when marks are read */
    double host_in_ops;
    nrl_phase_times times;
    nrl_region_time *regions; /* parents before children */
    int32_t n_regions, region;
    open_slices open;
    double began;         /* clock_seconds */
    int64_t steps_before; /* the profile began after this step */
    uint64_t nvtx_step, nvtx_phase;
    arena names;
    trace *trace;       /* NULL = none */
    memory_log *memory; /* NULL = none */
};

/* ---- regions.c ---- */
/* From now on regions of the calling thread belong to the context, until profile_unbind. */
void profile_bind(nrl_ctx *ctx);
void profile_unbind(nrl_ctx *ctx);
/* Adds a region, or finds the child of `parent` (-1 = none) with this name. */
int32_t profile_region(profile *p, int32_t parent, const char *name);
/* Ends a range of NVTX (0 = none) and begins one of that name (NULL = none). */
void profile_nvtx(uint64_t *range, const char *name);

/* ---- profile.c ---- */
void profile_mark_region(nrl_ctx *ctx, int32_t region); /* the innermost region from now on */

#endif
