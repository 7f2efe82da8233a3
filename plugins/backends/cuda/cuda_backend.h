/*
 * cuda_backend.h - an opened GPU, shared by the files of this backend.
 *
 * Host code is C and reaches CUDA through `driver`; kernels are in ops/, one file per family, and each
 * op is one function cuda_op_<name> that launches on `stream` and returns at once. [step] unless
 * stated otherwise.
 */
#ifndef CUDA_BACKEND_H
#define CUDA_BACKEND_H
#include "driver.h"
#include "pool.h"
#include "staging.h"
#include "watch.h"
#include <nrl/backend.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double memory_fraction;
    int64_t device;    /* -1: the rank's number on its node */
    bool tf32;         /* use tensor cores for f32 products */
    int64_t attention; /* cuda_attention */
    bool timed_products;
    const char *product_cache; /* "": none */
} cuda_options;

/* AUTO is CUDNN where its results agree with those of FLASH in a trial. */
typedef enum { CUDA_ATTENTION_AUTO = 0, CUDA_ATTENTION_FLASH, CUDA_ATTENTION_CUDNN } cuda_attention;

/* An error that a kernel found in its operands; cuda_check_fault reports it after the next wait. */
typedef enum { CUDA_FAULT_NONE = 0, CUDA_FAULT_ROW_INDEX } cuda_fault;

/* Memory of one stream, whose operations run in order: scratch for one operation at a time, and the workspace of matrix
 * products. It is released with the stream. */
typedef struct {
    bool is_used;
    void *stream, *scratch, *workspace;
    size_t scratch_bytes, workspace_bytes;
} cuda_stream_memory;

typedef struct cuda cuda;
typedef struct cuda_offload cuda_offload;
struct cuda {
    const cuda_driver *driver;
    int device;
    cuda_properties properties;
    void *stream; /* the stream of operations that name none */
    cuda_pool *pool;
    cuda_staging *staging;
    cuda_watch *watch; /* counters and samples, for measurements */
    nvml *nvml;        /* for records; opened at the first question */
    bool nvml_is_tried;
    nrl_utilization utilization;
    nrl_update_decider decider;
    cuda_offload *offload;                           /* NULL until it is asked for */
    volatile int32_t *fault;                         /* pinned, a cuda_fault; kernels write it */
    cuda_stream_memory memory[CUDA_MAX_STREAMS + 1]; /* of the streams that the pool knows, and of `stream` */
    void *math;                                      /* matrix library handles, NULL until first used: gemm.c */
    void *attention;                                 /* attention library handles, NULL until first used: dnn.c */
    bool tf32;
    bool wants_dnn, tries_dnn; /* tries_dnn: by trials, see dnn.c */
    bool times_products;       /* chooses algorithms of products by time, where `relaxed` */
    char *product_cache;       /* directory that keeps them; "": none */
    bool relaxed;              /* results may differ from run to run: nrl_backend.relax */
};

/* Memory for one operation at a time, contents undefined, valid until the next call for this stream: its operations
 * run in order. 256-byte aligned. */
nrl_status cuda_scratch(cuda *self, void *stream, size_t bytes, void **out);
/* The same for a workspace of matrix products, which keeps its size. */
nrl_status cuda_workspace(cuda *self, void *stream, size_t bytes, void **out);
/* Gives back the memory of a stream that is idle. */
void cuda_release_stream(cuda *self, void *stream);

/* Copies the arguments of an operation, of `size` bytes, to `fill`, of `known` bytes. A core with a newer struct must
 * not have set members that this plugin does not know (NRL_ERR_PLUGIN); what an older one lacks is zero. */
nrl_status cuda_known_args(const char *op, const void *args, uint32_t size, void *fill, uint32_t known);

/* Makes the device current in the calling thread. Every entry point calls this first. */
nrl_status cuda_enter(const cuda *self);
/* NULL is the device's own stream, which the pool knows from its first use on. */
static inline void *cuda_stream(const cuda *self, nrl_stream *stream)
{
    if (stream) return (void *)stream;
    cuda_pool_stream_own(self->pool, self->stream);
    return self->stream;
}
/* NRL_ERR_DEVICE with the attempted action and the runtime's text; NRL_OK if code is CUDA_DONE. */
nrl_status cuda_check(const cuda_driver *driver, int code, const char *what);
/* Called after each launch: counts the launch. Errors of the kernel itself appear at the next wait. */
nrl_status cuda_launched(const cuda *self, const char *op);
nrl_status cuda_launch_error(const cuda *self, const char *op); /* the same for launches that were counted elsewhere */
nrl_status cuda_check_fault(const cuda *self);
nrl_status cuda_no_dtype(const char *op, uint32_t dtype); /* NRL_ERR_PLUGIN */

/* ---- info.c ---- */
nrl_status cuda_info(void *self, nrl_device_info *fill);
/* Whether there is a device that this build has code for. [any] */
nrl_status cuda_probe_driver(const cuda_driver *driver);
nrl_status cuda_check_capability(const cuda_properties *p);

/* ---- open.c: everything but the table, so that tests can open over another driver ---- */
nrl_status cuda_open_driver(const cuda_driver *driver, const cuda_options *o, int32_t index, cuda **out);
void cuda_close(void *self);

/* ---- gemm.c ---- */
void cuda_gemm_close(cuda *self);

/* ---- dnn.c ---- */
/* *done false: nrl's own kernels must run, and then cuda_dnn_judge with their results: y and, if
 * there is one, lse, or dq, dk and dv. The operands
 * are already checked. */
nrl_status cuda_dnn_attention(cuda *self, void *stream, const nrl_attention_args *a, bool *done);
nrl_status cuda_dnn_attention_grad(cuda *self, void *stream, const nrl_attention_grad_args *a, bool *done);
nrl_status cuda_dnn_judge(cuda *self, void *stream, const nrl_mat *results, int n);
bool cuda_dnn_is_trying(const cuda *self); /* results will be compared by cuda_dnn_judge */
void cuda_dnn_close(cuda *self);

/* ---- transfer.c ---- */
nrl_status cuda_copy_bytes(void *self, nrl_stream *stream, void *to, const void *from, size_t bytes,
                           uint32_t direction);
nrl_status cuda_stream_create(void *self, nrl_stream **out);
void cuda_stream_destroy(void *self, nrl_stream *stream);
nrl_status cuda_stream_wait(void *self, nrl_stream *stream);
nrl_status cuda_event_record(void *self, nrl_stream *stream, nrl_event **out);
nrl_status cuda_event_record_timed(void *self, nrl_stream *stream, nrl_event **out);
nrl_status cuda_event_seconds(void *self, nrl_event *from, nrl_event *to, double *seconds);
nrl_status cuda_event_fence(void *self, nrl_stream *stream, nrl_event *event);
nrl_status cuda_event_wait(void *self, nrl_event *event);
void cuda_event_destroy(void *self, nrl_event *event);

/* ---- offload.c ---- */
/* The extension "offload", opened at the first call; NULL: no memory. */
const nrl_offload *cuda_offload_open(cuda *self);
void cuda_offload_close(cuda_offload *o); /* frees all that was allocated; NULL is allowed */
/* Whether this is memory of `alloc` of the extension. NULL holds none. */
bool cuda_offload_holds(const cuda_offload *o, const void *memory);

/* ---- stats.c: what nrl bench asks ---- */
nrl_status cuda_watch_begin(void *self);
nrl_status cuda_watch_end(void *self, nrl_value *values, size_t room, size_t *n);
const void *cuda_extension(void *self, const char *name);

/* ---- the operations ---- Every existing member of nrl_ops, once: a new operation is a file and an entry here. */
/* clang-format off */
#define CUDA_OPS(X)                                                                                \
    X(fill) X(copy) X(unary) X(unary_grad) X(binary) X(binary_grad) X(where) X(rope) X(glu)         \
    X(glu_grad) X(adamw) X(dropout) X(reduce) X(square_sum) X(softmax) X(softmax_grad)  \
    X(gather) X(scatter) X(norm) X(norm_grad) X(head) X(head_grad) X(attention) X(gemm)  \
    X(split16) X(quantize) X(dequantize) X(attention_grad)
/* clang-format on */

/* The extension "update_decision": ops/decide.cu. */
const nrl_update_decider *cuda_decider(cuda *self);

#define CUDA_OP_DECLARE(name) nrl_status cuda_op_##name(cuda *self, void *stream, const nrl_##name##_args *a);
CUDA_OPS(CUDA_OP_DECLARE)
/* Many small tensors in few launches, of any number of calls. */
nrl_status cuda_adamw_all(cuda *self, void *stream, const nrl_adamw_args *calls, int64_t n);
nrl_status cuda_square_sum_all(cuda *self, void *stream, const nrl_square_sum_args *calls, int64_t n);
/* Products that do not depend on each other, in few launches: ops/gemm_group.cu. */
nrl_status cuda_gemm_all(cuda *self, void *stream, const nrl_gemm_args *calls, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
