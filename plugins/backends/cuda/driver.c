/*
 * driver.c - the table over the real runtime, which is linked statically and opens the machine's
 * driver at the first call: loading this plugin needs no driver.
 */
#include "driver.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)cudaSuccess == (int)CUDA_DONE, "driver.h must have the runtime's values");
_Static_assert((int)cudaErrorMemoryAllocation == (int)CUDA_NO_MEMORY, "driver.h must have the runtime's values");
_Static_assert((int)cudaErrorNotReady == (int)CUDA_NOT_READY, "driver.h must have the runtime's values");

static int count(int *n)
{
    return cudaGetDeviceCount(n);
}

static int use(int device)
{
    return cudaSetDevice(device);
}

static int properties(int device, cuda_properties *fill)
{
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e) return e;
    memset(fill, 0, sizeof *fill);
    snprintf(fill->name, sizeof fill->name, "%.95s", p.name);
    fill->major = p.major;
    fill->minor = p.minor;
    fill->multiprocessors = p.multiProcessorCount;
    fill->memory_bytes = p.totalGlobalMem;
    fill->shared_bytes = p.sharedMemPerBlockOptin;
    return CUDA_DONE;
}

static int versions(int *driver, int *runtime)
{
    cudaError_t e = cudaDriverGetVersion(driver);
    return e ? e : cudaRuntimeGetVersion(runtime);
}

static int bus_id(int device, char *text, int size)
{
    return cudaDeviceGetPCIBusId(text, size, device);
}

static int memory_info(size_t *free_bytes, size_t *total_bytes)
{
    return cudaMemGetInfo(free_bytes, total_bytes);
}

/* Clears the error of a failed call, which stays the thread's last error and would be found by launch_error later. An
 * error of the device itself comes back at the next call. */
static int allocate(void **out, size_t bytes)
{
    cudaError_t e = cudaMalloc(out, bytes);
    if (e) (void)cudaGetLastError();
    return e;
}

static int release(void *memory)
{
    return cudaFree(memory);
}

static int allocate_host(void **out, size_t bytes)
{
    cudaError_t e = cudaHostAlloc(out, bytes, cudaHostAllocPortable);
    if (e) (void)cudaGetLastError();
    return e;
}

static int release_host(void *memory)
{
    return cudaFreeHost(memory);
}

static int copy(void *to, const void *from, size_t bytes, cuda_copy_way way, void *stream)
{
    enum cudaMemcpyKind kind = way == CUDA_TO_DEVICE ? cudaMemcpyHostToDevice
                               : way == CUDA_TO_HOST ? cudaMemcpyDeviceToHost
                                                     : cudaMemcpyDefault; /* tensors may be in pinned host memory */
    return cudaMemcpyAsync(to, from, bytes, kind, stream);
}

/* Work on the legacy stream 0 would make all other streams wait; nrl uses other streams only. */
static int stream_create(void **out)
{
    return cudaStreamCreateWithFlags((cudaStream_t *)out, cudaStreamNonBlocking);
}

static int stream_destroy(void *stream)
{
    return cudaStreamDestroy(stream);
}

static int stream_wait(void *stream)
{
    return cudaStreamSynchronize(stream);
}

static int stream_fence(void *stream, void *event)
{
    return cudaStreamWaitEvent(stream, event, 0);
}

static int event_create(void **out)
{
    return cudaEventCreateWithFlags((cudaEvent_t *)out, cudaEventDisableTiming);
}

static int event_create_timed(void **out)
{
    return cudaEventCreateWithFlags((cudaEvent_t *)out, cudaEventDefault);
}

static int event_elapsed(float *milliseconds, void *from, void *to)
{
    return cudaEventElapsedTime(milliseconds, from, to);
}

static int event_record(void *event, void *stream)
{
    return cudaEventRecord(event, stream);
}

static int event_wait(void *event)
{
    return cudaEventSynchronize(event);
}

static int event_query(void *event)
{
    cudaError_t e = cudaEventQuery(event);
    if (e == cudaErrorNotReady) (void)cudaGetLastError();
    return e;
}

static int event_destroy(void *event)
{
    return cudaEventDestroy(event);
}

static int launch_error(void)
{
    return cudaGetLastError();
}

static const char *error_text(int code)
{
    return cudaGetErrorString(code);
}

static const cuda_driver runtime_driver = {
    .count = count,
    .use = use,
    .properties = properties,
    .versions = versions,
    .bus_id = bus_id,
    .memory_info = memory_info,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .copy = copy,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .stream_fence = stream_fence,
    .event_create = event_create,
    .event_create_timed = event_create_timed,
    .event_elapsed = event_elapsed,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_query = event_query,
    .event_destroy = event_destroy,
    .launch_error = launch_error,
    .error_text = error_text,
};

const cuda_driver *cuda_runtime_driver(void)
{
    return &runtime_driver;
}
