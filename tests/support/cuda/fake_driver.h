/*
 * fake_driver.h - the driver table of the cuda backend over malloc: tests open the backend with it,
 * and the emulated build of the plugin uses it instead of the runtime. Work is done when a call
 * returns, except for copies if `late` is set. A test injects failures and reads counters.
 */
#ifndef SUPPORT_CUDA_FAKE_DRIVER_H
#define SUPPORT_CUDA_FAKE_DRIVER_H
#include "driver.h"
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *fail_call; /* name of a member of cuda_driver, or NULL */
    int fail_at;           /* its n-th call from now on fails, counted from 1; 0 = every call */
    int fail_code;
    int n_devices;
    int driver_version, runtime_version;
    cuda_properties properties; /* FAKE_CUDA_MEMORY_MIB sets memory_bytes */
    bool late;        /* copies are executed when something needs them: fake_queue.h. FAKE_CUDA_LATE sets it */
    bool events_stay; /* no event completes before fake_end_events */
    double seconds;   /* what events read; fake_library.h advances it. 0: they read the machine's clock */
    bool no_work;     /* kernels and matrix products do nothing, so that what remains is the host's work */
    /* counters */
    size_t live_bytes, peak_bytes;
    int64_t live_blocks, live_host_blocks, live_streams, live_events;
    int64_t n_allocate, n_release, n_allocate_host, n_copies, n_waits;
    int64_t copied_bytes;
    int64_t n_work;       /* copies and launches of kernels */
    int64_t n_idle_waits; /* waits of the host behind which the device has nothing to do */
} fake_device;

/* Observers of memory; NULL: none. on_device: nothing is written there yet. */
typedef struct {
    void (*added)(const void *begin, size_t bytes, bool on_device);
    void (*removed)(const void *begin);
    void (*wrote)(const void *begin, size_t bytes); /* writes other than by kernels */
} fake_watcher;
extern const fake_watcher *fake_watch;

extern fake_device fake;
void fake_reset(void);
void fake_end_events(void); /* and makes later ones complete at once */
const cuda_driver *fake_driver(void);

#ifdef __cplusplus
}
#endif
#endif
