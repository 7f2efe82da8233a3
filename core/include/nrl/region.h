/*
 * region.h - named regions of time, for profilers: `nrl profile` lists them and draws them on its timeline (--trace).
 * Without a profiler a call costs a load and a test.
 */
#ifndef NRL_REGION_H
#define NRL_REGION_H
#include <nrl/status.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Begins a region on the calling thread, or ends the newest region of the thread. Regions nest; each begin needs an end
 * on the same thread, also after an error. `name` is copied. [any] */
NRL_API void nrl_region_begin(const char *name);
NRL_API void nrl_region_end(void);

/* Records work that is over, on the track of that name: "communication", "data", "checkpoint", or another. Spans of one
 * track may overlap. Times are seconds of CLOCK_MONOTONIC; both texts are copied. [any] */
NRL_API void nrl_region_span(const char *track, const char *name, double begin, double end);

#ifdef __cplusplus
}
#endif
#endif
