/*
 * record_queue.c - see record_queue.h. The worker thread never warns: a thread that closes a run waits for it while it
 * holds the lock of all messages.
 */
#include "record_queue.h"
#include "base/clock.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64, MAX_REPORTED = 3, ERROR_SIZE = 400 };
#define FIRST_PAUSE 0.5
#define LONGEST_PAUSE 30.0

struct record_queue {
    record_queue_options options;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    nrl_record **ring; /* [options.most], n of them from `first` */
    int64_t first, n;
    bool is_closing, has_ended;
    atomic_bool gives_up;
    char error[ERROR_SIZE]; /* of the last send that failed; empty = it works */
    bool is_reported;       /* the current failure was reported */
    int n_reported;
};

/* Copies a text, or NULL, to *at, which moves on behind it. */
static const char *copy_text(char **at, const char *text)
{
    if (!text) return NULL;
    char *copy = strcpy(*at, text);
    *at += strlen(copy) + 1;
    return copy;
}

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

/* One allocation: the record, its values and samples, their texts. */
static nrl_record *copy_record(const nrl_record *r)
{
    const size_t n_samples = r->kind == NRL_RECORD_SAMPLES ? r->n_samples : 0;
    size_t size = sizeof *r + r->n_values * sizeof *r->values + n_samples * (sizeof *r->samples + sizeof(double));
    for (size_t i = 0; i < n_samples; i++)
        size += text_size(r->samples[i].prompt) + text_size(r->samples[i].text) + text_size(r->samples[i].answer);
    for (size_t i = 0; i < r->n_values; i++)
        size += text_size(r->values[i].name) + text_size(r->values[i].unit);
    nrl_record *copy = malloc(size);
    if (!copy) return NULL;
    *copy = *r;
    nrl_value *values = (nrl_value *)(copy + 1);
    nrl_sample_text *samples = (nrl_sample_text *)(values + r->n_values);
    double *scores = (double *)(samples + n_samples);
    char *text = (char *)(scores + n_samples);
    for (size_t i = 0; i < r->n_values; i++) {
        values[i] = r->values[i];
        values[i].name = copy_text(&text, r->values[i].name);
        values[i].unit = copy_text(&text, r->values[i].unit);
    }
    for (size_t i = 0; i < n_samples; i++) {
        samples[i] = r->samples[i];
        samples[i].prompt = copy_text(&text, r->samples[i].prompt);
        samples[i].text = copy_text(&text, r->samples[i].text);
        samples[i].answer = copy_text(&text, r->samples[i].answer);
        samples[i].score = &scores[i];
        scores[i] = *r->samples[i].score;
    }
    copy->values = values;
    copy->samples = samples;
    copy->n_samples = n_samples;
    return copy;
}

static void wait_until(record_queue *q, double seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long long nanoseconds = end.tv_nsec + (long long)(seconds * 1e9);
    end.tv_sec += (time_t)(nanoseconds / 1000000000);
    end.tv_nsec = (long)(nanoseconds % 1000000000);
    pthread_cond_timedwait(&q->changed, &q->lock, &end);
}

bool record_queue_gives_up(const record_queue *q)
{
    return atomic_load(&q->gives_up);
}

void record_queue_wait(record_queue *q, double seconds)
{
    pthread_mutex_lock(&q->lock);
    double end = clock_seconds() + seconds, now;
    while (!q->is_closing && (now = clock_seconds()) < end)
        wait_until(q, end - now);
    pthread_mutex_unlock(&q->lock);
}

/* Sends the oldest records; the lock is held before and after. */
static nrl_status send_some(record_queue *q)
{
    const int64_t room = q->options.most - q->first;
    size_t n = (size_t)(q->n < room ? q->n : room), n_sent = 0;
    if (n > AT_ONCE) n = AT_ONCE;
    nrl_record **records = q->ring + q->first;
    pthread_mutex_unlock(&q->lock);
    nrl_status st = q->options.send(q->options.user, (const nrl_record *const *)records, n, &n_sent);
    for (size_t i = 0; i < n_sent; i++)
        free(records[i]);
    pthread_mutex_lock(&q->lock);
    q->first = (q->first + (int64_t)n_sent) % q->options.most;
    q->n -= (int64_t)n_sent;
    snprintf(q->error, sizeof q->error, "%s", st == NRL_OK ? "" : nrl_error_text());
    if (st == NRL_OK) q->is_reported = false;
    return st;
}

static void *work(void *user)
{
    record_queue *q = user;
    double pause = FIRST_PAUSE;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->n && !q->is_closing)
            pthread_cond_wait(&q->changed, &q->lock);
        if (!q->n) break;
        bool last_try = q->is_closing;
        if (send_some(q) == NRL_OK) {
            pause = FIRST_PAUSE;
            continue;
        }
        if (last_try) break;
        pthread_mutex_unlock(&q->lock);
        record_queue_wait(q, pause);
        pthread_mutex_lock(&q->lock);
        pause = pause * 2 < LONGEST_PAUSE ? pause * 2 : LONGEST_PAUSE;
    }
    pthread_mutex_unlock(&q->lock);
    if (q->options.finish) q->options.finish(q->options.user);
    pthread_mutex_lock(&q->lock);
    q->has_ended = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* Signals are for the threads of the program. */
static int start_thread(record_queue *q)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&q->thread, NULL, work, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void destroy(record_queue *q)
{
    for (int64_t i = 0; i < q->n; i++)
        free(q->ring[(q->first + i) % q->options.most]);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q->ring);
    free(q);
}

nrl_status record_queue_open(const record_queue_options *options, record_queue **out)
{
    record_queue *q = calloc(1, sizeof *q);
    pthread_condattr_t monotonic;
    *out = NULL;
    if (q) q->ring = calloc((size_t)options->most, sizeof *q->ring);
    if (!q || !q->ring) {
        free(q);
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for a queue of %lld records", (long long)options->most);
    }
    q->options = *options;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&q->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = q; /* `send` may use it at once */
    int error = start_thread(q);
    if (!error) return NRL_OK;
    *out = NULL;
    destroy(q);
    return nrl_fail(NRL_ERR_IO, "cannot start a thread: %s", strerror(error));
}

nrl_status record_queue_put(record_queue *q, const nrl_record *record)
{
    char error[ERROR_SIZE] = "";
    nrl_record *copy = copy_record(record);
    if (!copy) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a record");
    pthread_mutex_lock(&q->lock);
    bool is_full = q->n == q->options.most;
    if (!is_full) {
        q->ring[(q->first + q->n++) % q->options.most] = copy;
        pthread_cond_broadcast(&q->changed);
    }
    bool tells = *q->error && !q->is_reported && q->n_reported < MAX_REPORTED;
    if (is_full || tells) snprintf(error, sizeof error, "%s", q->error);
    if (*q->error) q->is_reported = true;
    q->n_reported += tells;
    pthread_mutex_unlock(&q->lock);
    if (is_full) {
        free(copy);
        return nrl_fail(NRL_ERR_IO, "%lld records are already waiting%s%s", (long long)q->options.most,
                        *error ? ": " : "", error);
    }
    if (tells)
        nrl_warn("logger '%s': %s\nhint: training continues; up to %lld records are kept and sent later",
                 q->options.logger, error, (long long)q->options.most);
    return NRL_OK;
}

void record_queue_close(record_queue *q)
{
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->is_closing = true;
    pthread_cond_broadcast(&q->changed);
    double end = clock_seconds() + q->options.close_seconds, now;
    while (!q->has_ended && (now = clock_seconds()) < end)
        wait_until(q, end - now);
    atomic_store(&q->gives_up, true);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    if (q->n)
        nrl_warn("logger '%s': %lld record%s could not be sent%s%s", q->options.logger, (long long)q->n,
                 q->n == 1 ? "" : "s", *q->error ? ": " : " in time", q->error);
    destroy(q);
}
