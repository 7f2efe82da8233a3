/*
 * profile.h - the timeline behind ctx_profile: a mark at each border of an operation and of a phase of the step,
 * read later, so that nothing is waited for in between. What lies between two marks belongs to the current phase,
 * and to the current operation where there is one.
 *
 * A mark is a timed event of the context's stream; the host's clock where everything is done when a call returns;
 * and on a backend with streams but without such events the clock after a wait.
 */
#ifndef TENSOR_PROFILE_H
#define TENSOR_PROFILE_H
#include "tensor/op_work.h"

/* Around a call, while ctx->profile is set; `name` lives as long as the program. [step] */
nrl_status profile_op_begin(nrl_ctx *ctx, const char *name, op_work w);
nrl_status profile_op_end(nrl_ctx *ctx);

#endif
