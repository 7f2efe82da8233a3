/*
 * api.h - the calls of NCCL and of the CUDA driver that this plugin makes, as two tables. library.c
 * fills them from libnccl.so.2 and libcuda.so.1 when a run opens; tests fill them with a stand-in.
 *
 * The build needs no NVIDIA file: the declarations are NCCL's binary interface from 2.18 on, copied
 * here, and library.c compares them with <nccl.h> where the compiler finds that header. Calls return
 * NCCL's or CUDA's codes. Streams, events and communicators are opaque.
 */
#ifndef NCCL_API_H
#define NCCL_API_H
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_SUM = 0, NCCL_PRODUCT, NCCL_MAX, NCCL_MIN, NCCL_AVERAGE };
enum { NCCL_U8 = 1, NCCL_I32 = 2, NCCL_I64 = 4, NCCL_F16 = 6, NCCL_F32 = 7, NCCL_F64 = 8, NCCL_BF16 = 9 };
enum { NCCL_OLDEST = 21800 }; /* 2.18: split, non-blocking communicators */

typedef struct {
    char bytes[128];
} nccl_id;

/* Layout of 2.18; later versions use size and version to tell which members exist. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
} nccl_config;

#define NCCL_CONFIG_NON_BLOCKING                                                                                       \
    {                                                                                                                  \
        sizeof(nccl_config), 0xcafebeef, NCCL_OLDEST, 0, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN                      \
    }

/* X(member, symbol without "nccl", arguments) */
#define NCCL_CALLS(X)                                                                                                  \
    X(version, GetVersion, (int *))                                                                                    \
    X(unique_id, GetUniqueId, (nccl_id *))                                                                             \
    X(init, CommInitRankConfig, (void **comm, int world, nccl_id, int rank, nccl_config *))                            \
    X(split, CommSplit, (void *comm, int color, int key, void **out, nccl_config *))                                   \
    X(count, CommCount, (void *comm, int *))                                                                           \
    X(user_rank, CommUserRank, (void *comm, int *))                                                                    \
    X(finalize, CommFinalize, (void *comm))                                                                            \
    X(destroy, CommDestroy, (void *comm))                                                                              \
    X(abort, CommAbort, (void *comm))                                                                                  \
    X(async_error, CommGetAsyncError, (void *comm, int *code))                                                         \
    X(group_start, GroupStart, (void))                                                                                 \
    X(group_end, GroupEnd, (void))                                                                                     \
    X(all_reduce, AllReduce, (const void *, void *, size_t n, int type, int op, void *comm, void *stream))             \
    X(broadcast, Broadcast, (const void *, void *, size_t n, int type, int root, void *comm, void *stream))            \
    X(reduce, Reduce, (const void *, void *, size_t n, int type, int op, int root, void *comm, void *stream))          \
    X(all_gather, AllGather, (const void *, void *, size_t n, int type, void *comm, void *stream))                     \
    X(reduce_scatter, ReduceScatter, (const void *, void *, size_t n, int type, int op, void *comm, void *stream))     \
    X(send, Send, (const void *, size_t n, int type, int peer, void *comm, void *stream))                              \
    X(recv, Recv, (void *, size_t n, int type, int peer, void *comm, void *stream))

/* Since 2.19; NULL in an older library. */
#define NCCL_BUFFER_CALLS(X)                                                                                           \
    X(buffer_alloc, MemAlloc, (void **, size_t bytes))                                                                 \
    X(buffer_free, MemFree, (void *))                                                                                  \
    X(buffer_register, CommRegister, (void *comm, void *buffer, size_t bytes, void **handle))                          \
    X(buffer_deregister, CommDeregister, (void *comm, void *handle))

#define NCCL_MEMBER(member, symbol, arguments) int(*member) arguments;
typedef struct {
    NCCL_CALLS(NCCL_MEMBER)
    NCCL_BUFFER_CALLS(NCCL_MEMBER)
    const char *(*error_text)(int code);
    const char *(*last_error)(void *comm); /* NCCL's own text; may be NULL or empty */
} nccl_api;

enum { DRIVER_DONE = 0, DRIVER_NOT_READY = 600 };

/* The driver calls that are used. The driver passes device memory as integers of the size of uintptr_t. */
#define DRIVER_CALLS(X)                                                                                                \
    X(initialize, cuInit, (unsigned flags))                                                                            \
    X(device_count, cuDeviceGetCount, (int *))                                                                         \
    X(context_retain, cuDevicePrimaryCtxRetain, (void **context, int device))                                          \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                                     \
    X(context_use, cuCtxSetCurrent, (void *context))                                                                   \
    X(allocate, cuMemAlloc_v2, (uintptr_t *, size_t bytes))                                                            \
    X(release, cuMemFree_v2, (uintptr_t))                                                                              \
    X(allocate_host, cuMemAllocHost_v2, (void **, size_t bytes))                                                       \
    X(release_host, cuMemFreeHost, (void *))                                                                           \
    X(copy, cuMemcpyDtoDAsync_v2, (uintptr_t to, uintptr_t from, size_t bytes, void *stream))                          \
    X(copy_in, cuMemcpyHtoDAsync_v2, (uintptr_t to, const void *from, size_t bytes, void *stream))                     \
    X(copy_out, cuMemcpyDtoH_v2, (void *to, uintptr_t from, size_t bytes))                                             \
    X(stream_create, cuStreamCreateWithPriority, (void **, unsigned flags, int priority))                              \
    X(stream_destroy, cuStreamDestroy_v2, (void *stream))                                                              \
    X(stream_fence, cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                                    \
    X(event_create, cuEventCreate, (void **, unsigned flags))                                                          \
    X(event_record, cuEventRecord, (void *event, void *stream))                                                        \
    X(event_query, cuEventQuery, (void *event))                                                                        \
    X(event_destroy, cuEventDestroy_v2, (void *event))

enum { STREAM_NON_BLOCKING = 1, EVENT_WITHOUT_TIMING = 2, STREAM_PRIORITY_HIGH = -5 };

typedef struct {
    DRIVER_CALLS(NCCL_MEMBER)
} nccl_driver;

#endif
