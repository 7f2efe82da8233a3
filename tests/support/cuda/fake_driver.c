/*
 * fake_driver.c - a device backed by malloc.
 */
#include "fake_driver.h"
#include "fake_queue.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRONT = 512, FAKE_INVALID = 1, FAKE_MEMORY_MIB = 4096 };

/* Visible outside the plugin, so that a test can check the calls of a whole run. */
__attribute__((visibility("default"))) fake_device fake = {
    .n_devices = 1,
    .driver_version = 13000,
    .runtime_version = 13000,
    .properties = {.name = "emulated GPU",
                   .major = 9,
                   .minor = 0,
                   .multiprocessors = 2, /* few, so that kernels loop over the grid */
                   .memory_bytes = (size_t)FAKE_MEMORY_MIB << 20,
                   .shared_bytes = 227 << 10},
};

const fake_watcher *fake_watch;

static fake_device pristine;

/* Saved once before a test changes anything. */
__attribute__((constructor)) static void keep_pristine(void)
{
    const char *mib = getenv("FAKE_CUDA_MEMORY_MIB");
    fake.late = getenv("FAKE_CUDA_LATE") != NULL;
    if (mib) fake.properties.memory_bytes = (size_t)atoi(mib) << 20;
    pristine = fake;
}

void fake_reset(void)
{
    fake = pristine;
}

/* The code with which the call must fail, 0 = continue. */
static int injected(const char *call)
{
    if (!fake.fail_call || strcmp(fake.fail_call, call)) return CUDA_DONE;
    if (fake.fail_at == 0) return fake.fail_code;
    return --fake.fail_at == 0 ? (fake.fail_call = NULL, fake.fail_code) : CUDA_DONE;
}

#define INJECT(call)                                                                                                   \
    do {                                                                                                               \
        int injected_ = injected(call);                                                                                \
        if (injected_) return injected_;                                                                               \
    } while (0)

static int count(int *n)
{
    INJECT("count");
    *n = fake.n_devices;
    return CUDA_DONE;
}

static int use(int device)
{
    INJECT("use");
    return device < fake.n_devices ? CUDA_DONE : FAKE_INVALID;
}

static int properties(int device, cuda_properties *fill)
{
    INJECT("properties");
    (void)device;
    *fill = fake.properties;
    return CUDA_DONE;
}

static int versions(int *driver, int *runtime)
{
    INJECT("versions");
    *driver = fake.driver_version;
    *runtime = fake.runtime_version;
    return CUDA_DONE;
}

static int bus_id(int device, char *text, int size)
{
    INJECT("bus_id");
    snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
    return CUDA_DONE;
}

static int memory_info(size_t *free_bytes, size_t *total_bytes)
{
    INJECT("memory_info");
    *total_bytes = fake.properties.memory_bytes;
    *free_bytes = *total_bytes - fake.live_bytes;
    return CUDA_DONE;
}

/* The size is stored before the returned block; the contents are NaN in every float dtype. */
static void *block_new(size_t bytes, bool on_device)
{
    char *block = aligned_alloc(FRONT, (bytes + 2 * FRONT - 1) / FRONT * FRONT);
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    memset(block + FRONT, 0xFF, bytes < (64u << 20) ? bytes : 64u << 20);
    if (fake_watch) fake_watch->added(block + FRONT, bytes, on_device);
    return block + FRONT;
}

static size_t block_free(void *memory)
{
    size_t bytes;
    char *block = (char *)memory - FRONT;
    memcpy(&bytes, block, sizeof bytes);
    if (fake_watch) fake_watch->removed(memory);
    free(block);
    return bytes;
}

static int allocate(void **out, size_t bytes)
{
    fake.n_allocate++;
    INJECT("allocate");
    if (bytes > fake.properties.memory_bytes - fake.live_bytes) return CUDA_NO_MEMORY;
    *out = block_new(bytes, true);
    if (!*out) return CUDA_NO_MEMORY;
    fake.live_blocks++;
    fake.live_bytes += bytes;
    if (fake.live_bytes > fake.peak_bytes) fake.peak_bytes = fake.live_bytes;
    return CUDA_DONE;
}

static int release(void *memory)
{
    fake.n_release++;
    INJECT("release");
    fake_queue_drain();
    fake.live_blocks--;
    fake.live_bytes -= block_free(memory);
    return CUDA_DONE;
}

enum { HOST_BLOCKS = 4096 };
static struct {
    const char *begin, *end;
} host_blocks[HOST_BLOCKS]; /* pinned */

static void remember_host(const char *begin, const char *end)
{
    for (int i = 0; i < HOST_BLOCKS; i++)
        if (!host_blocks[i].begin) {
            host_blocks[i].begin = begin;
            host_blocks[i].end = end;
            return;
        }
    abort(); /* HOST_BLOCKS are too few */
}

static bool is_pinned(const void *p)
{
    for (int i = 0; i < HOST_BLOCKS; i++)
        if (host_blocks[i].begin && (const char *)p >= host_blocks[i].begin && (const char *)p < host_blocks[i].end)
            return true;
    return false;
}

static int allocate_host(void **out, size_t bytes)
{
    fake.n_allocate_host++;
    INJECT("allocate_host");
    *out = block_new(bytes, false);
    if (!*out) return CUDA_NO_MEMORY;
    remember_host(*out, (char *)*out + bytes);
    fake.live_host_blocks++;
    return CUDA_DONE;
}

static int release_host(void *memory)
{
    INJECT("release_host");
    for (int i = 0; i < HOST_BLOCKS; i++)
        if (host_blocks[i].begin == memory) host_blocks[i].begin = NULL;
    fake.live_host_blocks--;
    block_free(memory);
    return CUDA_DONE;
}

static int copy(void *to, const void *from, size_t bytes, cuda_copy_way way, void *stream)
{
    fake.n_copies++;
    fake.copied_bytes += (int64_t)bytes;
    fake.n_work++;
    INJECT("copy");
    if (fake_watch) fake_watch->wrote(to, bytes);
    if (fake.late)
        fake_queue_copy(stream, to, from, bytes, way == CUDA_TO_DEVICE && !is_pinned(from));
    else
        memmove(to, from, bytes);
    return CUDA_DONE;
}

static int stream_create(void **out)
{
    INJECT("stream_create");
    *out = malloc(1);
    fake.live_streams++;
    return CUDA_DONE;
}

static int stream_destroy(void *stream)
{
    fake_queue_reach(stream);
    free(stream);
    fake.live_streams--;
    return CUDA_DONE;
}

static int stream_wait(void *stream)
{
    fake.n_waits++;
    fake.n_idle_waits++;
    INJECT("stream_wait");
    fake_queue_reach(stream);
    return CUDA_DONE;
}

typedef struct {
    void *stream;
    size_t length; /* of the queue when the event was recorded */
    int64_t work;  /* n_work at that time */
    bool timed;
    double seconds; /* when it was recorded: the work is done by then */
} fake_event;

static int stream_fence(void *stream, void *event)
{
    const fake_event *e = event;
    INJECT("stream_fence");
    if (fake.late) fake_queue_fence(stream, e->stream, e->length);
    return CUDA_DONE;
}

static int event_create(void **out)
{
    INJECT("event_create");
    *out = calloc(1, sizeof(fake_event));
    fake.live_events++;
    return CUDA_DONE;
}

static int event_create_timed(void **out)
{
    INJECT("event_create_timed");
    int code = event_create(out);
    if (!code) ((fake_event *)*out)->timed = true;
    return code;
}

static int event_elapsed(float *milliseconds, void *from, void *to)
{
    const fake_event *a = from, *b = to;
    INJECT("event_elapsed");
    if (!a->timed || !b->timed) return FAKE_INVALID;
    *milliseconds = (float)(1e3 * (b->seconds - a->seconds));
    return CUDA_DONE;
}

static int event_record(void *event, void *stream)
{
    INJECT("event_record");
    fake_event *e = event;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->stream = stream;
    e->length = fake_queue_length();
    e->work = fake.n_work;
    e->seconds = fake.seconds > 0 ? fake.seconds : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return CUDA_DONE;
}

static int event_wait(void *event)
{
    const fake_event *e = event;
    fake.n_waits++;
    if (e->work == fake.n_work) fake.n_idle_waits++;
    INJECT("event_wait");
    fake_queue_run(e->stream, e->length);
    return CUDA_DONE;
}

static int event_query(void *event)
{
    const fake_event *e = event;
    INJECT("event_query");
    return fake.events_stay || !fake_queue_is_done(e->stream, e->length) ? CUDA_NOT_READY : CUDA_DONE;
}

static int event_destroy(void *event)
{
    free(event);
    fake.live_events--;
    return CUDA_DONE;
}

/* The backend calls it after each launch. */
static int launch_error(void)
{
    fake.n_work++;
    INJECT("launch_error");
    return CUDA_DONE;
}

static const char *error_text(int code)
{
    return code == CUDA_NO_MEMORY ? "out of memory" : "injected failure";
}

void fake_end_events(void)
{
    fake.events_stay = false;
}

static const cuda_driver table = {
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

const cuda_driver *fake_driver(void)
{
    return &table;
}

/* The entry point of the emulated plugin. */
const cuda_driver *cuda_runtime_driver(void)
{
    return &table;
}
