/*
 * profile.h - for programs that measure an open run: its time by phase and operation, its memory, and what its device
 * reports. The functions are in libnrl-profiling (pkg-config nrl-profiling, CMake nrl::libnrl-profiling), which `nrl
 * bench` and `nrl profile` use. Threads, ownership, errors and growth are those of nrl/run.h.
 */
#ifndef NRL_PROFILE_H
#define NRL_PROFILE_H
#include <nrl/run.h>
#ifdef __cplusplus
extern "C" {
#endif

NRL_API const char *nrl_phase_name(nrl_phase phase); /* "forward" [any] */

/* One operation, in total over the profiled steps. */
typedef struct {
    const char *name;
    nrl_phase phase;     /* NONE if phases are merged */
    int64_t dims[3];     /* of a matrix product: rows, columns, depth; zero if shapes are merged */
    double seconds;      /* on the device */
    double host_seconds; /* duration of the calls on the host; equal to `seconds` if the host computes */
    double flops, bytes;
    int64_t calls;
    bool on_host; /* not an operation, but other work of the host, during which the device may be busy */
} nrl_op_time;
enum { NRL_BY_PHASE = 1, NRL_BY_SHAPE = 2 };

/* Starts profiling operations and phases with the next step, or stops; clears earlier results. */
NRL_API nrl_status nrl_run_profile(nrl_run *run, bool on);
/* Operations by descending time; `by` selects properties that separate rows (NRL_BY_*). *rows is allocated. *stride is
 * the distance between rows in bytes, which may exceed the caller's sizeof(nrl_op_time); stride may be NULL. */
NRL_API nrl_status nrl_run_op_times(const nrl_run *run, unsigned by, nrl_op_time **rows, size_t *n, size_t *stride);

/* ---- regions (nrl/region.h), the timeline, memory by place ---- */

/* What a profile also records. */
enum {
    NRL_PROFILE_TRACE = 1, /* a timeline, for nrl_run_trace_write */
    NRL_PROFILE_MEMORY = 2 /* each tensor, for the functions nrl_run_memory_* */
};
/* nrl_run_profile(run, true) with `what`, NRL_PROFILE_* or 0. Regions that its thread begins belong to the run. */
NRL_API nrl_status nrl_run_profile_begin(nrl_run *run, unsigned what);
/* Ends the current step for the profile; later parts of the step are not measured. For services, which are called
 * inside of a step. */
NRL_API nrl_status nrl_run_profile_end_step(nrl_run *run);

/* A region of the run's thread, in total over the profile. The same name inside two regions makes two rows. */
typedef struct {
    const char *name; /* borrowed until the profile ends */
    int32_t parent;   /* index of the row of the region around this one, -1 = none; parents come first */
    int32_t depth;    /* from 0 */
    int64_t calls;
    double seconds; /* on the device, from begin to end, with regions inside */
    double busy;    /* the part of `seconds` inside operations and copies */
} nrl_region_time;
/* *rows is allocated; stride as for nrl_run_op_times. */
NRL_API nrl_status nrl_run_region_times(const nrl_run *run, nrl_region_time **rows, size_t *n, size_t *stride);

/* Writes the timeline of all ranks to a file in the Trace Event Format (JSON), which Perfetto opens: one process for
 * each rank, with the times of rank 0's clock. Clocks are compared through the store where ranks meet. Collective;
 * *n_dropped (may be NULL): events of this rank for which there was no room. NRL_ERR_IO, NRL_ERR_MEMORY,
 * NRL_ERR_CONFIG: no timeline was recorded. */
NRL_API nrl_status nrl_run_trace_write(nrl_run *run, const char *path, int64_t *n_dropped);

/* Tensors that one place has made during the profile. */
typedef struct {
    nrl_phase phase;
    const char *operation; /* that wrote them first; NULL = unknown */
    const char *unit;      /* of the model; NULL = none */
    int32_t region;        /* row of nrl_run_region_times, -1 = none */
    int64_t calls;         /* tensors */
    int64_t total_bytes;   /* of all of them */
    int64_t peak_bytes;    /* of those in use at the peak of the profile */
} nrl_memory_site;
/* By descending bytes at the peak. *rows is allocated. *peak_bytes was in use at the peak, of which *held_bytes were
 * already in use when the profile began (weights, states). */
NRL_API nrl_status nrl_run_memory_sites(const nrl_run *run, nrl_memory_site **rows, size_t *n, size_t *stride,
                                        int64_t *peak_bytes, int64_t *held_bytes);

/* One micro-batch of a profiled step, and the memory that it needed. */
typedef struct {
    int64_t step, micro_batch;        /* from 1; from 0 */
    int64_t tokens, samples, longest; /* `longest`: tokens of its longest sample */
    int64_t begin_bytes, peak_bytes;  /* in use when it began; most in use until the next one */
} nrl_memory_batch;
NRL_API nrl_status nrl_run_memory_batches(const nrl_run *run, nrl_memory_batch **rows, size_t *n, size_t *stride);

enum { NRL_MAX_PHASES = 16 }; /* room for phases to come */

/* Phases of the profiled steps, in seconds, by nrl_phase. */
typedef struct {
    uint32_t size;
    int64_t steps;
    double seconds[NRL_MAX_PHASES];                     /* over all steps; the sum is the total duration of the steps */
    double busy[NRL_MAX_PHASES];                        /* the part of `seconds` inside operations and copies */
    double host_seconds[NRL_MAX_PHASES];                /* by the host's clock, between the same marks */
    double least[NRL_MAX_PHASES], most[NRL_MAX_PHASES]; /* minimum and maximum of `seconds` over ranks */
} nrl_phase_times;
NRL_API nrl_status nrl_run_phase_times(nrl_run *run, nrl_phase_times *fill); /* collective: all ranks call it */

/* Numbers of all ranks, such as sizes of nrl_run_info: all[r * n + i] is own[i] of rank r. Collective, with the same n.
 */
NRL_API nrl_status nrl_run_all_gather(nrl_run *run, const double *own, size_t n, double *all);

/* Values that the device measures between the two calls, with the names of nrl/backend.h; *n is 0 if it measures
 * nothing. At most NRL_MAX_WATCHED values, borrowed until the next nrl_run_watch_begin. */
enum { NRL_MAX_WATCHED = 64 };
NRL_API nrl_status nrl_run_watch_begin(nrl_run *run);
NRL_API nrl_status nrl_run_watch_end(nrl_run *run, nrl_value values[NRL_MAX_WATCHED], size_t *n);

/* Sizes of a run and its device. Bytes are those of this rank. */
typedef struct {
    uint32_t size;
    int32_t ranks;
    int64_t parameters, trained_parameters;
    int64_t trained_bytes, frozen_bytes; /* of unsharded weights in the compute dtype */
    int64_t weight_bytes, master_bytes, gradient_bytes, optimizer_bytes;
    int64_t reference_bytes, strategy_bytes;      /* a reference model's weights; buffers of the strategy */
    int64_t activation_bytes;                     /* peak of all other memory, including scratch */
    int64_t used_peak_bytes, reserved_peak_bytes; /* of the pool: in use; allocated on the device */
    int64_t peak_rss;                             /* of the process */
    bool on_device;                               /* the device has its own memory and clock */
    const char *clock;                            /* the clock of profiles; borrowed, as long as the run */
    const nrl_device_info *device;                /* borrowed, as long as the run */
    int64_t offloaded_bytes;                      /* of weights, masters, gradients and states: on a disk or the host */
} nrl_run_info;
NRL_API void nrl_run_info_fill(const nrl_run *run, nrl_run_info *fill);

#ifdef __cplusplus
}
#endif
#endif
