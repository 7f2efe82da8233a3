/*
 * profile.h - the timeline of a context: a mark at each start and end of an operation or a phase of the step. Marks are
 * read later, so that profiling does not wait for the device. The time between two marks belongs to the current phase,
 * and to the current operation if there is one.
 *
 * A mark is a timed event on the context's stream. On a backend without streams a mark is the host's clock; on a
 * backend with streams but without timed events it is the clock after waiting for the stream.
 */
#ifndef PROFILING_PROFILE_H
#define PROFILING_PROFILE_H
#include "tensor/ctx.h"
#include <nrl/profile.h>

void ctx_profile(nrl_ctx *ctx, bool on); /* clears earlier results too */
/* The same with NRL_PROFILE_*; steps are numbered from steps_before + 1. */
void ctx_profile_begin(nrl_ctx *ctx, unsigned what, int64_t steps_before);
/* Waits for the marked operations and adds up their times. Call it before the functions below. */
nrl_status ctx_profile_read(nrl_ctx *ctx);
/* Returns the operations in order of first use, malloc'd. Calls that differ only in properties not in `by` are merged.
 */
nrl_op_time *ctx_profile_rows(const nrl_ctx *ctx, unsigned by, int *n);
/* Fills the phase times of this rank; does not set `least` and `most`. */
void ctx_profile_phases(const nrl_ctx *ctx, nrl_phase_times *fill);
const char *ctx_profile_clock(const nrl_ctx *ctx); /* the clock that measures the times, for people */

#endif
