/*
 * watch.h - counters and samples while the backend is measured: launches, and through NVML clocks,
 * power, temperature and reasons for lowered clocks, in a thread that samples ten times per second. If
 * a machine has no NVML, or NVML does not answer a query, that value is absent.
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

/* Over the samples that had a value; n 0 = none had. */
typedef struct {
    double sum, least, most;
    int64_t n;
} cuda_gauge;

typedef struct {
    int64_t launches;
    double seconds, energy_j; /* since the start; energy NAN if not available */
    cuda_gauge sm_clock_mhz, memory_clock_mhz, power_w, temperature_c;
    cuda_gauge reasons[NVML_REASONS];         /* 0 or 1 per sample */
    double sm_clock_limit_mhz, power_limit_w; /* NAN if not available */
} cuda_watch_stats;

nrl_status cuda_watch_create(cuda_watch **out);
void cuda_watch_destroy(cuda_watch *w);                 /* NULL is allowed */
void cuda_watch_count(cuda_watch *w, int64_t launches); /* [step] */

/* `library`: NVML's file name; bus_id: the driver's name of the device. If either is NULL, only launches
 * are counted. */
void cuda_watch_start(cuda_watch *w, const char *library, const char *bus_id);
bool cuda_watch_stop(cuda_watch *w, cuda_watch_stats *fill); /* false: it was not started */

#ifdef __cplusplus
}
#endif
#endif
