/*
 * watch.h - what is counted and sampled while the backend is measured: launches, and by NVML clocks, power,
 * temperature and reasons for lower clocks, in a thread that looks ten times a second. Where a machine has no
 * NVML, or it refuses a question, that figure is absent.
 */
#ifndef CUDA_WATCH_H
#define CUDA_WATCH_H
#include "nvml_library.h"
#include <nrl/status.h>
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_watch cuda_watch;

/* Of the samples that told it; n 0 = none did. */
typedef struct {
    double sum, least, most;
    int64_t n;
} cuda_gauge;

typedef struct {
    int64_t launches;
    double seconds, energy_j; /* since begin; energy NAN where it is not told */
    cuda_gauge sm_clock_mhz, memory_clock_mhz, power_w, temperature_c;
    cuda_gauge reasons[NVML_REASONS];         /* 0 or 1 a sample */
    double sm_clock_limit_mhz, power_limit_w; /* NAN where not told */
} cuda_watch_stats;

nrl_status cuda_watch_create(cuda_watch **out);
void cuda_watch_destroy(cuda_watch *w);                 /* NULL is fine */
void cuda_watch_count(cuda_watch *w, int64_t launches); /* [step] */

/* `library`: the file of NVML; bus_id: as the driver names the device. Without either only launches are counted. */
void cuda_watch_start(cuda_watch *w, const char *library, const char *bus_id);
bool cuda_watch_stop(cuda_watch *w, cuda_watch_stats *fill); /* false: it was not started */

#ifdef __cplusplus
}
#endif
#endif
