/*
 * driver.h - the calls of the CUDA runtime that this backend makes, as a table.
 *
 * The plugin uses the table over the real runtime (driver.c). Unit tests use another table over malloc
 * whose n-th call fails, so that everything but the kernels runs without CUDA. Each call returns a
 * code of the runtime, 0 for success. Streams and events are the runtime's, as void *.
 */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The codes that are used here; the values are the runtime's. */
enum { CUDA_DONE = 0, CUDA_NO_MEMORY = 2, CUDA_NOT_READY = 600 };
/* Errors of a kernel (illegal addresses and the like) are returned by a later call. */
enum { CUDA_FIRST_OF_KERNELS = 700, CUDA_LAST_OF_KERNELS = 720 };

typedef enum { CUDA_TO_DEVICE = 1, CUDA_TO_HOST, CUDA_ON_DEVICE } cuda_copy_way;

typedef struct {
    char name[96];
    int major, minor; /* compute capability: 9.0 is sm_90 */
    int multiprocessors;
    size_t memory_bytes;
    size_t shared_bytes; /* maximum per block */
} cuda_properties;

typedef struct {
    int (*count)(int *n);   /* number of devices; fails without a driver */
    int (*use)(int device); /* for the calling thread */
    int (*properties)(int device, cuda_properties *fill);
    int (*versions)(int *driver, int *runtime);      /* 13000 is 13.0; driver 0: no driver */
    int (*bus_id)(int device, char *text, int size); /* "0000:1b:00.0": identifies the device to other libraries */
    int (*memory_info)(size_t *free_bytes, size_t *total_bytes);
    int (*allocate)(void **out, size_t bytes);
    int (*release)(void *memory);                   /* waits for the device */
    int (*allocate_host)(void **out, size_t bytes); /* pinned; the device can address it */
    int (*release_host)(void *memory);
    int (*copy)(void *to, const void *from, size_t bytes, cuda_copy_way way, void *stream);
    int (*stream_create)(void **out);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*stream_fence)(void *stream, void *event); /* later work of stream waits for event */
    int (*event_create)(void **out);
    int (*event_create_timed)(void **out);
    int (*event_elapsed)(float *milliseconds, void *from, void *to); /* both timed and complete */
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event);
    int (*event_query)(void *event); /* CUDA_NOT_READY: earlier work is still running */
    int (*event_destroy)(void *event);
    int (*launch_error)(void); /* of kernels launched by this thread since the last call */
    const char *(*error_text)(int code);
} cuda_driver;

const cuda_driver *cuda_runtime_driver(void);

#ifdef __cplusplus
}
#endif
#endif
