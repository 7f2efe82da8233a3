/*
 * watch.c - the counters, and the thread that samples between start and stop.
 */
#include "watch.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PERIOD_NS = 100000000 }; /* NVML itself updates ten to fifty times per second */

struct cuda_watch {
    int64_t launches; /* in total */
    bool started, sampling;
    int64_t launches_before;
    double began, energy_before;
    nvml *nvml; /* NULL: not available */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t wake;
    bool stopping;
    cuda_watch_stats stats;
};

nrl_status cuda_watch_create(cuda_watch **out)
{
    pthread_condattr_t attributes;
    cuda_watch *w = calloc(1, sizeof *w);
    if (!w) return nrl_fail(NRL_ERR_MEMORY, "no memory to open the GPU");
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    *out = w;
    return NRL_OK;
}

void cuda_watch_destroy(cuda_watch *w)
{
    cuda_watch_stats unused;
    if (!w) return;
    (void)cuda_watch_stop(w, &unused);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void cuda_watch_count(cuda_watch *w, int64_t launches)
{
    w->launches += launches;
}

static struct timespec now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t;
}

static double seconds_now(void)
{
    struct timespec t = now();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- samples ---- */

static void gauge_add(cuda_gauge *g, double value)
{
    if (isnan(value)) return;
    g->sum += value;
    g->least = g->n && g->least < value ? g->least : value;
    g->most = g->n && g->most > value ? g->most : value;
    g->n++;
}

static void sample(cuda_watch *w)
{
    nvml_sample s;
    cuda_watch_stats *f = &w->stats;
    nvml_read(w->nvml, &s);
    gauge_add(&f->sm_clock_mhz, s.sm_clock_mhz);
    gauge_add(&f->memory_clock_mhz, s.memory_clock_mhz);
    gauge_add(&f->power_w, s.power_w);
    gauge_add(&f->temperature_c, s.temperature_c);
    for (int i = 0; i < NVML_REASONS; i++)
        gauge_add(&f->reasons[i], s.reasons[i]);
}

/* Waits first: an immediate sample would measure an idle device. */
static void *sample_until_stopped(void *user)
{
    cuda_watch *w = user;
    struct timespec next = now();
    pthread_mutex_lock(&w->lock);
    while (!w->stopping) {
        next.tv_nsec += PERIOD_NS;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        while (!w->stopping && pthread_cond_timedwait(&w->wake, &w->lock, &next) == 0) {
        }
        if (!w->stopping) sample(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- start and stop ---- */

void cuda_watch_start(cuda_watch *w, const char *library, const char *bus_id)
{
    cuda_watch_stats unused;
    (void)cuda_watch_stop(w, &unused);
    memset(&w->stats, 0, sizeof w->stats);
    w->nvml = library && bus_id ? nvml_open(library, bus_id) : NULL;
    w->energy_before = w->nvml ? nvml_energy_j(w->nvml) : NAN;
    w->stopping = false;
    w->sampling = w->nvml && pthread_create(&w->thread, NULL, sample_until_stopped, w) == 0;
    w->launches_before = w->launches;
    w->began = seconds_now();
    w->started = true;
}

static void stop_thread(cuda_watch *w)
{
    if (!w->sampling) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    w->sampling = false;
}

bool cuda_watch_stop(cuda_watch *w, cuda_watch_stats *fill)
{
    cuda_watch_stats *f = &w->stats;
    bool started = w->started;
    stop_thread(w);
    if (started) {
        f->seconds = seconds_now() - w->began;
        f->launches = w->launches - w->launches_before;
        f->energy_j = w->nvml ? nvml_energy_j(w->nvml) - w->energy_before : NAN;
        f->sm_clock_limit_mhz = w->nvml ? nvml_sm_clock_limit_mhz(w->nvml) : NAN;
        f->power_limit_w = w->nvml ? nvml_power_limit_w(w->nvml) : NAN;
        if (w->nvml && !f->sm_clock_mhz.n && !f->power_w.n)
            sample(w); /* the measurement ended before the first
                        * sample */
    }
    nvml_close(w->nvml);
    w->nvml = NULL;
    w->started = false;
    *fill = *f;
    return started;
}
