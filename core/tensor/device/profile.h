/*
 * profile.h - the timeline of ctx_profile: a mark at each begin and end of an operation or a phase of the step. Marks
 * are read later, so that profiling does not wait for the device. The time between two marks belongs to the current
 * phase, and to the current operation if there is one.
 *
 * A mark is a timed event on the context's stream. On a backend without streams a mark is the host's clock; on a
 * backend with streams but without timed events it is the clock after waiting for the stream.
 */
#ifndef TENSOR_PROFILE_H
#define TENSOR_PROFILE_H
#include "tensor/device/op_work.h"

/* Call them before and after an operation while ctx->profile is set. `name` must be a string literal. [step] */
nrl_status profile_op_begin(nrl_ctx *ctx, const char *name, op_work w);
nrl_status profile_op_end(nrl_ctx *ctx);

#endif
