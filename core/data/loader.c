/*
 * loader.c - a ring of finished steps between an io thread, which builds them, and the step thread. Without prefetch
 * the caller builds them. Requesting a step out of order empties the ring and restarts there.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "data/data.h"
#include <nrl/region.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    nrl_batch **micro_batch;
    int64_t n_micro_batches, step;
    double epoch;
    nrl_status status;
    char *error; /* malloc'd, if status is not NRL_OK */
} built;

struct data_loader {
    const dataset *data;
    data_plan *plan; /* own copy, used only by the thread that builds */
    bool prompt_targets, threaded;
    built now; /* the step that the caller holds */
    double wait_seconds;
    /* shared with the io thread, under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    built *ring; /* [room] step first + k at (head + k) % room */
    int64_t room, n, head;
    int64_t next;       /* the next step to build */
    int64_t building;   /* the step that is being built and still wanted, -1 = none */
    int64_t generation; /* increases with each jump: a step built for an earlier generation is discarded */
    bool stop;
};

/* ---- building ---- */

static void built_free(built *b)
{
    for (int64_t m = 0; m < b->n_micro_batches; m++)
        batch_free(b->micro_batch[m]);
    free(b->micro_batch);
    free(b->error);
    *b = (built){0};
}

static void build(data_loader *l, int64_t step, built *out)
{
    double begin = clock_seconds();
    *out = (built){.step = step, .epoch = data_plan_epoch_after(l->plan, step)};
    int64_t n_micro_batches = data_plan_n_micro_batches(l->plan, step);
    out->micro_batch = mem_try((size_t)n_micro_batches * sizeof *out->micro_batch, "the micro-batches of a step");
    if (!out->micro_batch) out->status = NRL_ERR_MEMORY;
    for (int64_t m = 0; m < n_micro_batches && out->status == NRL_OK; m++) {
        const int64_t *examples;
        int64_t n = data_plan_micro_batch(l->plan, step, m, &examples);
        out->status = data_assemble(l->data, examples, n, l->prompt_targets, &out->micro_batch[m]);
        out->n_micro_batches += out->status == NRL_OK;
    }
    if (out->status != NRL_OK) out->error = mem_strdup(nrl_error_text());
    nrl_region_span("data", "build micro-batches", begin, clock_seconds());
}

/* ---- the io thread ---- */

static void *work(void *self)
{
    data_loader *l = self;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        built b;
        while (!l->stop && l->n == l->room)
            pthread_cond_wait(&l->changed, &l->lock);
        if (l->stop) break;
        int64_t generation = l->generation, step = l->building = l->next++;
        pthread_mutex_unlock(&l->lock);
        build(l, step, &b);
        pthread_mutex_lock(&l->lock);
        if (generation == l->generation) {
            l->ring[(l->head + l->n++) % l->room] = b;
            l->building = -1;
            pthread_cond_broadcast(&l->changed);
        } else {
            built_free(&b);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void empty_ring(data_loader *l)
{
    for (; l->n; l->n--, l->head = (l->head + 1) % l->room)
        built_free(&l->ring[l->head]);
}

/* ---- the step thread ---- */

/* Whether `step` is in the ring or the next one to enter it, so that the caller only has to wait. */
static bool is_coming(const data_loader *l, int64_t step)
{
    int64_t coming = l->building >= 0 ? l->building : l->next;
    return step >= coming - l->n && step <= coming;
}

static void take(data_loader *l, int64_t step)
{
    pthread_mutex_lock(&l->lock);
    if (!is_coming(l, step)) {
        empty_ring(l);
        l->generation++;
        l->building = -1;
        l->next = step;
        pthread_cond_broadcast(&l->changed);
    }
    for (;;) {
        while (!l->n)
            pthread_cond_wait(&l->changed, &l->lock);
        built b = l->ring[l->head];
        l->head = (l->head + 1) % l->room;
        l->n--;
        pthread_cond_broadcast(&l->changed);
        if (b.step == step) {
            l->now = b;
            break;
        }
        built_free(&b);
    }
    pthread_mutex_unlock(&l->lock);
}

nrl_status data_loader_step(data_loader *l, int64_t step, data_step *out)
{
    double begin = clock_seconds();
    built_free(&l->now);
    if (l->threaded)
        take(l, step);
    else
        build(l, step, &l->now);
    l->wait_seconds += clock_seconds() - begin;
    if (l->now.status != NRL_OK) return nrl_fail(l->now.status, "%s", l->now.error);
    *out = (data_step){l->now.micro_batch, l->now.n_micro_batches, step, l->now.epoch};
    return NRL_OK;
}

double data_loader_wait_seconds(const data_loader *l)
{
    return l->wait_seconds;
}

/* ---- life ---- */

nrl_status data_loader_create(const dataset *d, data_plan *p, int64_t prefetch, bool prompt_targets, data_loader **out)
{
    enum { MAX_PREFETCH = 1024 };
    data_loader *l = mem_alloc(sizeof *l);
    l->data = d;
    nrl_status st = data_plan_copy(p, &l->plan);
    if (st != NRL_OK) {
        free(l);
        return st;
    }
    l->prompt_targets = prompt_targets;
    l->building = -1;
    l->room = prefetch < MAX_PREFETCH ? prefetch : MAX_PREFETCH;
    *out = l;
    if (prefetch < 1) return NRL_OK;
    l->ring = mem_alloc((size_t)l->room * sizeof *l->ring);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->threaded = pthread_create(&l->thread, NULL, work, l) == 0; /* else the caller builds */
    return NRL_OK;
}

void data_loader_destroy(data_loader *l)
{
    if (!l) return;
    if (l->threaded) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    if (l->ring) {
        empty_ring(l);
        pthread_cond_destroy(&l->changed);
        pthread_mutex_destroy(&l->lock);
    }
    built_free(&l->now);
    data_plan_destroy(l->plan);
    free(l->ring);
    free(l);
}
