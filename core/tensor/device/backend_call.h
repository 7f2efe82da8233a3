/*
 * backend_call.h - one function for each backend operation. It fails if the backend lacks the operation, marks the call
 * on the timeline of a profile, and otherwise only calls through the table.
 */
#ifndef TENSOR_BACKEND_CALL_H
#define TENSOR_BACKEND_CALL_H
#include "tensor/device/device.h"

#define BACKEND_DECLARE(name, args) nrl_status backend_##name(nrl_ctx *ctx, const args *a);
NRL_OPS(BACKEND_DECLARE) /* backend_gemm calls gemm, and so on */
#undef BACKEND_DECLARE
/* Calls that do not depend on each other: together if the backend does that (nrl_backend.adamw_all), else one by one.
 */
nrl_status backend_adamw_all(nrl_ctx *ctx, const nrl_adamw_args *calls, int64_t n);
nrl_status backend_square_sum_all(nrl_ctx *ctx, const nrl_square_sum_args *calls, int64_t n);
nrl_status backend_gemm_all(nrl_ctx *ctx, const nrl_gemm_args *calls, int64_t n);
/* Whether the backend of the device has the operation of that name. */
bool backend_has(const device *d, const char *name);
#define BACKEND_NUMBER(name, args) BACKEND_OP_##name,
typedef enum { NRL_OPS(BACKEND_NUMBER) } backend_op;
#undef BACKEND_NUMBER
/* What attention of these arguments counts; 0: no query sees a key, if the lengths are known on the host. */
double backend_attention_flops(const nrl_attention_args *a);
/* Copies bytes between host and device, queued like an operation. */
nrl_status backend_transfer(nrl_ctx *ctx, void *to, const void *from, size_t bytes, nrl_copy_direction way);

#endif
