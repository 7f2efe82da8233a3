/*
 * standin_cuda.c - see standin.h. Memory is the host's.
 */
#include "standin.h"
#include "api.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INVALID = 1, LAUNCH_FAILED = 719, LONG_QUERY = 200 };
static const struct timespec pause_between = {0, 100000}; /* 100 us */

typedef struct stream stream;
struct stream {
    stream *next;
    pthread_t thread;
    standin_task *first, **last;
    bool ends;
};
typedef struct {
    _Atomic uint64_t recorded, done;
} event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static stream *streams;
static standin_rank unseen;
standin_rank *standin_own = &unseen;
_Atomic bool standin_deadlock;

/* ---- streams ---- */

static void *execute(void *user)
{
    stream *s = user;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first && !s->ends)
            pthread_cond_wait(&changed, &lock);
        if (!s->first) break;
        standin_task *t = s->first;
        pthread_mutex_unlock(&lock);
        bool waits = false;
        while (t->run(t) == STANDIN_WAITS) {
            if (!waits) standin_own->waiting++;
            waits = true;
            standin_own->polls++;
            nanosleep(&pause_between, NULL);
        }
        pthread_mutex_lock(&lock);
        standin_own->progress++;
        if (waits) standin_own->waiting--;
        s->first = t->next;
        if (!s->first) {
            s->last = &s->first;
            standin_own->busy--;
        }
        free(t);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static stream *find(void *s)
{
    stream *at = streams;
    while (at && at != s)
        at = at->next;
    return at;
}

bool standin_push(void *to, standin_task *t)
{
    pthread_mutex_lock(&lock);
    stream *s = find(to);
    if (s) {
        t->next = NULL;
        if (!s->first) standin_own->busy++;
        *s->last = t;
        s->last = &t->next;
        standin_own->progress++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return s;
}

void standin_describe(char *text, size_t room)
{
    size_t n = 0;
    text[0] = 0;
    pthread_mutex_lock(&lock);
    for (const stream *s = streams; s && n < room; s = s->next) {
        if (!s->first || !s->first->describe) continue;
        n += (size_t)snprintf(text + n, room - n, n ? ", " : "");
        if (n < room) s->first->describe(s->first, text + n, room - n);
        n += strlen(text + n);
    }
    pthread_mutex_unlock(&lock);
}

int cuStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
    stream *s = calloc(1, sizeof *s);
    (void)flags, (void)priority;
    s->last = &s->first;
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    *out = s;
    return pthread_create(&s->thread, NULL, execute, s) ? INVALID : DRIVER_DONE;
}

int cuStreamDestroy_v2(void *of)
{
    stream *s = of, **at = &streams;
    pthread_mutex_lock(&lock);
    s->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&lock);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&lock);
    free(s);
    return DRIVER_DONE;
}

/* ---- events ---- */

typedef struct {
    standin_task task;
    event *of;
    uint64_t number;
} event_task;

static standin_state complete(standin_task *t)
{
    event_task *e = (event_task *)t;
    e->of->done = e->number;
    return STANDIN_DONE;
}

static standin_state follow(standin_task *t)
{
    const event_task *e = (const event_task *)t;
    return e->of->done >= e->number || standin_deadlock ? STANDIN_DONE : STANDIN_WAITS;
}

int cuEventCreate(void **out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof(event));
    return DRIVER_DONE;
}

/* Tasks may still name it. */
int cuEventDestroy_v2(void *e)
{
    (void)e;
    return DRIVER_DONE;
}

int cuEventRecord(void *of, void *on)
{
    event *e = of;
    event_task *t = calloc(1, sizeof *t);
    *t = (event_task){.task.run = complete, .of = e, .number = ++e->recorded};
    if (standin_push(on, &t->task)) return DRIVER_DONE;
    e->done = t->number; /* a stream of the backend, whose work is done */
    free(t);
    return DRIVER_DONE;
}

/* A thread that asks for one event again and again waits for it. */
int cuEventQuery(void *of)
{
    static _Thread_local const void *asked;
    static _Thread_local int times;
    const event *e = of;
    const bool done = e->done >= e->recorded;
    times = !done && asked == e ? times + 1 : 0;
    asked = e;
    standin_own->host_waits = times >= LONG_QUERY;
    if (times) standin_own->polls++;
    return done ? DRIVER_DONE : DRIVER_NOT_READY;
}

int cuStreamWaitEvent(void *on, void *of, unsigned flags)
{
    event *e = of;
    event_task *t = calloc(1, sizeof *t);
    (void)flags;
    *t = (event_task){.task.run = follow, .of = e, .number = e->recorded};
    if (standin_push(on, &t->task)) return DRIVER_DONE;
    const uint64_t number = t->number;
    free(t);
    for (; e->done < number && !standin_deadlock; nanosleep(&pause_between, NULL)) {
        standin_own->host_waits = true;
        standin_own->polls++;
    }
    standin_own->host_waits = false;
    standin_own->progress++;
    return e->done < number ? LAUNCH_FAILED : DRIVER_DONE;
}

/* ---- memory ---- */

typedef struct {
    standin_task task;
    void *to;
    const void *from;
    size_t bytes;
} copy_task;

static standin_state copy(standin_task *t)
{
    const copy_task *c = (const copy_task *)t;
    memmove(c->to, c->from, c->bytes);
    return STANDIN_DONE;
}

static int push_copy(void *to, const void *from, size_t bytes, void *on)
{
    copy_task *t = calloc(1, sizeof *t);
    *t = (copy_task){.task.run = copy, .to = to, .from = from, .bytes = bytes};
    if (standin_push(on, &t->task)) return DRIVER_DONE;
    free(t);
    return INVALID;
}

int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, void *on)
{
    return push_copy((void *)to, (const void *)from, bytes, on);
}

int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t bytes, void *on)
{
    return push_copy((void *)to, from, bytes, on);
}

int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t bytes)
{
    memcpy(to, (const void *)from, bytes);
    return DRIVER_DONE;
}

int cuMemAlloc_v2(uintptr_t *out, size_t bytes)
{
    *out = (uintptr_t)calloc(1, bytes);
    return *out ? DRIVER_DONE : INVALID;
}

int cuMemFree_v2(uintptr_t memory)
{
    free((void *)memory);
    return DRIVER_DONE;
}

int cuMemAllocHost_v2(void **out, size_t bytes)
{
    *out = calloc(1, bytes);
    return *out ? DRIVER_DONE : INVALID;
}

int cuMemFreeHost(void *memory)
{
    free(memory);
    return DRIVER_DONE;
}

/* ---- the device ---- */

int cuInit(unsigned flags)
{
    (void)flags;
    return DRIVER_DONE;
}

int cuDeviceGetCount(int *n)
{
    *n = 1;
    return DRIVER_DONE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = &unseen;
    return device ? INVALID : DRIVER_DONE;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return DRIVER_DONE;
}

int cuCtxSetCurrent(void *context)
{
    return context ? DRIVER_DONE : INVALID;
}
