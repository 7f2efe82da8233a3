/*
 * local_world.c - the state that ranks that are threads share: rank 0 creates it, and all join it
 * through a store; its groups and operations in flight.
 */
#include "support/local_world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The thread sanitizer does not see that a pointer was passed on through a file. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HAND_OVER(p) __tsan_release(p)
#define TAKE_OVER(p) __tsan_acquire(p)
#else
#define HAND_OVER(p) (void)(p)
#define TAKE_OVER(p) (void)(p)
#endif

/* ---- creation and destruction ---- */

group *local_group_new(world *w, int32_t size)
{
    group *g = calloc(1, sizeof *g);
    *g = (group){.world = w, .size = size, .lost = -1, .next = w->groups};
    g->members = calloc((size_t)size, sizeof *g->members);
    g->calls = calloc((size_t)size, sizeof *g->calls);
    g->gone = calloc((size_t)size, sizeof *g->gone);
    return w->groups = g;
}

static world *world_new(int32_t size)
{
    pthread_condattr_t monotonic;
    world *w = calloc(1, sizeof *w);
    w->size = size;
    w->aborted_by = -1;
    w->here = calloc((size_t)size, sizeof *w->here);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    group *all = local_group_new(w, size);
    for (int32_t r = 0; r < size; r++)
        all->members[r] = r;
    return w;
}

static void world_free(world *w)
{
    for (group *g = w->groups, *next; g; g = next) {
        next = g->next;
        free(g->members);
        free(g->calls);
        free(g->gone);
        free(g);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w->here);
    free(w);
}

void local_world_leave(world *w)
{
    bool last = --w->references == 0;
    pthread_mutex_unlock(&w->lock);
    if (last) world_free(w);
}

op *local_op_new(group *g, local_kind kind, int64_t number, int32_t first)
{
    op *o = calloc(1, sizeof *o), **end = &g->world->ops;
    *o = (op){.group = g, .kind = kind, .number = number, .first = first};
    o->operands = calloc((size_t)g->size, sizeof *o->operands);
    o->requests = calloc((size_t)g->size, sizeof(nrl_request *));
    while (*end)
        end = &(*end)->next;
    return *end = o;
}

void local_op_end(op *o, nrl_status st)
{
    op **at = &o->group->world->ops;
    for (int32_t r = 0; r < o->group->size; r++) {
        nrl_request *q = o->requests[r];
        free((void *)o->operands[r].counts);
        free((void *)o->operands[r].offsets);
        free((void *)o->operands[r].receive_counts);
        free((void *)o->operands[r].receive_offsets);
        if (!q) continue;
        if (st != NRL_OK) snprintf(q->text, sizeof q->text, "%s", nrl_error_text());
        q->status = st;
        q->done = true;
    }
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    pthread_cond_broadcast(&o->group->world->changed);
    free(o->operands);
    free(o->requests);
    free(o);
}

/* ---- joining ---- */

struct timespec local_time_in(double seconds)
{
    struct timespec t;
    double most = 1e6, wait = seconds > 0 ? (seconds < most ? seconds : most) : 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + (int64_t)(wait * 1e9);
    t.tv_sec += ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    return t;
}

typedef struct {
    int64_t process;
    world *world;
} address;

static nrl_status find_world(nrl_store *store, int32_t rank, int32_t size, double timeout, world **w)
{
    address mine = {.process = getpid()}, theirs = {0};
    void *value;
    size_t n;
    if (rank == 0) {
        mine.world = *w = world_new(size);
        HAND_OVER(*w);
        nrl_status st = nrl_store_set(store, "local_collective", &mine, sizeof mine);
        if (st != NRL_OK) world_free(*w);
        return st;
    }
    NRL_TRY(nrl_store_get(store, "local_collective", timeout, &value, &n));
    if (n == sizeof theirs) memcpy(&theirs, value, n);
    free(value);
    *w = theirs.world;
    if (theirs.process == mine.process) TAKE_OVER(*w);
    if (theirs.process == mine.process && theirs.world->size == size) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "the ranks of collective 'local' are %d threads of one process", size);
}

static bool all_are_here(const world *w)
{
    for (int32_t r = 0; r < w->size; r++)
        if (!w->here[r]) return false;
    return true;
}

static nrl_status fail_missing(const world *w, double timeout)
{
    char who[200] = "";
    for (int32_t r = 0; r < w->size; r++)
        if (!w->here[r] && strlen(who) < sizeof who - 16)
            snprintf(who + strlen(who), sizeof who - strlen(who), "%s%d", *who ? ", " : "", r);
    return nrl_fail(NRL_ERR_PEER, "joining %d ranks: missing after %g s: rank %s", w->size, timeout, who);
}

static nrl_status wait_for_all(world *w, int32_t rank, double timeout)
{
    struct timespec end = local_time_in(timeout);
    bool in_time = true;
    pthread_mutex_lock(&w->lock);
    w->here[rank] = true;
    w->references++;
    pthread_cond_broadcast(&w->changed);
    while (!all_are_here(w) && in_time)
        in_time = pthread_cond_timedwait(&w->changed, &w->lock, &end) == 0;
    if (all_are_here(w)) {
        pthread_mutex_unlock(&w->lock);
        return NRL_OK;
    }
    nrl_status st = fail_missing(w, timeout);
    local_world_leave(w);
    return st;
}

nrl_status local_world_join(nrl_store *store, int32_t rank, int32_t size, double timeout, world **w)
{
    NRL_TRY(find_world(store, rank, size, timeout, w));
    return wait_for_all(*w, rank, timeout);
}
