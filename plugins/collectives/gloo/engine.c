/*
 * engine.c - which thread does the work. One lock guards the loop and everything on it; the thread
 * that holds the lock may drive the loop. A thread that waits for a request drives the loop itself, so
 * that a small call wakes no other thread; the progress thread drives when no thread waits, so that
 * calls proceed behind a computation. A thread that starts a request never waits for the lock: the
 * request goes to the inbox, and the lock's holder looks there before it releases the lock and once
 * more afterwards.
 *
 * The loop runs without blocking under the lock; waiting is a poll of the loop's own descriptor
 * without the lock, as libuv documents for loops inside other loops.
 */
#include "gloo.h"
#include <poll.h>
#include <sched.h>
#include <time.h>

enum {
    NAP_MS = 2,         /* how often the progress thread checks whether waiters still drive */
    SPIN_BYTES = 65536, /* below this, spinning for the answer is worthwhile */
    SPIN_PAIRS = 8,
    SPIN_LOSSES = 4,         /* after so many spins in vain, spin only occasionally */
    BACKGROUND_BYTES = 65536 /* from here on it is worth waking the progress thread at once */
};

double engine_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- under the lock ---- */

void engine_drain(gloo_engine *e)
{
    if (!atomic_load(&e->inbox)) return;
    pthread_mutex_lock(&e->pool_lock);
    nrl_request *r = atomic_exchange(&e->inbox, NULL);
    pthread_mutex_unlock(&e->pool_lock);
    for (nrl_request *next; r; r = next) {
        next = r->next;
        request_start(r);
    }
}

static void give_up_mute(gloo_engine *e)
{
    e->muted = false;
    for (int32_t i = 0; i < e->world; i++)
        if (e->pairs[i].mute) pair_mute(&e->pairs[i]);
}

/* Starts requests from the inbox and writes what can be written. */
void engine_settle(gloo_engine *e)
{
    engine_drain(e);
    while (e->dirty || e->muted) {
        gloo_pair *p = e->dirty;
        if (p) {
            e->dirty = p->next_dirty;
            p->dirty = false;
            pair_flush(p);
        }
        if (e->muted) give_up_mute(e);
    }
}

void engine_turn(gloo_engine *e)
{
    e->changed = false; /* the loop sees the changes now; changes by its callbacks are seen the next time */
    uv_run(&e->loop, UV_RUN_NOWAIT);
    engine_settle(e);
}

/* After this, an ended request belongs to its owner, who may reuse it. */
static bool publish(gloo_engine *e)
{
    bool any = e->ended != NULL;
    for (nrl_request *r; (r = e->ended);) {
        e->ended = r->next;
        bool dropped = r->dropped;
        atomic_store_explicit(&r->done, true, memory_order_release);
        if (dropped) request_give_back(r);
    }
    return any;
}

/* A busy driver retakes the lock at once; other threads that want it are counted and let in. */
void engine_lock(gloo_engine *e)
{
    if (pthread_mutex_trylock(&e->lock) == 0) return;
    atomic_fetch_add(&e->wanted, 1);
    pthread_mutex_lock(&e->lock);
    atomic_fetch_sub(&e->wanted, 1);
}

static void let_others(gloo_engine *e)
{
    for (int i = 0; i < 100 && atomic_load(&e->wanted); i++)
        sched_yield();
}

/* Releases the lock. `drives`: the caller then waits for the loop's descriptor itself. */
void engine_leave(gloo_engine *e, bool drives)
{
    do {
        engine_settle(e);
        bool ended = publish(e);
        if (ended && e->n_followers) pthread_cond_broadcast(&e->followers);
        /* wakes the thread that waits for the loop: its request may have ended, or the watched events changed */
        if (e->changed || (ended && !drives && e->driven)) uv_async_send(&e->wake);
        e->changed = false;
        pthread_mutex_unlock(&e->lock);
    } while (atomic_load(&e->inbox) && pthread_mutex_trylock(&e->lock) == 0);
}

/* Waits for the loop's descriptor for at most `seconds` (< 0: no limit). Without the lock. */
static void await(gloo_engine *e, double seconds, int loop_ms)
{
    struct pollfd fd = {.fd = e->loop_fd, .events = POLLIN};
    if (loop_ms >= 0 && (seconds < 0 || seconds > loop_ms * 1e-3)) seconds = loop_ms * 1e-3;
    if (seconds > 1e6) seconds = 1e6;
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    ppoll(&fd, 1, seconds < 0 ? NULL : &t, NULL);
}

static int loop_timeout(gloo_engine *e)
{
    uv_update_time(&e->loop);
    return uv_backend_timeout(&e->loop);
}

/* ---- the progress thread ---- */

static void deadline_after(struct timespec *t, double seconds)
{
    clock_gettime(CLOCK_MONOTONIC, t);
    if (seconds > 1e8) seconds = 1e8;
    t->tv_sec += (time_t)seconds;
    t->tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (t->tv_nsec >= 1000000000) {
        t->tv_sec++;
        t->tv_nsec -= 1000000000;
    }
}

static void nap(gloo_engine *e)
{
    struct timespec t;
    deadline_after(&t, NAP_MS * 1e-3);
    e->napping = true;
    pthread_cond_timedwait(&e->nap, &e->lock, &t);
    e->napping = false;
}

void *engine_progress(void *arg)
{
    gloo_engine *e = arg;
    uint64_t seen = 0;
    engine_lock(e);
    while (!e->stop) {
        bool others = e->driven || (e->drives != seen && !e->n_live);
        seen = e->drives;
        if (others) {
            nap(e);
            continue;
        }
        engine_turn(e);
        int ms = loop_timeout(e);
        engine_leave(e, true);
        await(e, -1, ms);
        engine_lock(e);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- posting and waiting ---- */

void engine_submit(gloo_engine *e, nrl_request *r)
{
    bool large = r->total >= BACKGROUND_BYTES;
    r->next = NULL;
    pthread_mutex_lock(&e->pool_lock);
    if (atomic_load(&e->inbox))
        e->inbox_tail->next = r;
    else
        atomic_store(&e->inbox, r);
    e->inbox_tail = r;
    pthread_mutex_unlock(&e->pool_lock);
    if (pthread_mutex_trylock(&e->lock)) return;
    engine_settle(e);
    if (e->napping && !e->driven && e->n_live && (large || e->n_live > 1)) pthread_cond_signal(&e->nap);
    engine_leave(e, false);
}

static bool is_done(nrl_request *r)
{
    return atomic_load_explicit(&r->done, memory_order_acquire);
}

/* Polls the sockets for a moment: an answer that is about to arrive needs neither sleep nor wake-up.
 */
static void spin(gloo_engine *e, nrl_request *r)
{
    if (e->options.spin <= 0 || r->total > SPIN_BYTES || r->group->size > SPIN_PAIRS) return;
    if (e->spin_losses > SPIN_LOSSES && ++e->spin_losses % 16) return;
    double until = engine_now() + (double)e->options.spin * 1e-6;
    do {
        for (int32_t i = 0; i < r->group->size && !r->ended; i++) {
            gloo_pair *p = &e->pairs[r->group->ranks[i]];
            if (p->state == PAIR_OPEN) pair_read(p);
        }
        engine_settle(e);
        if (!r->ended) continue;
        e->spin_losses = 0;
        return;
    } while (engine_now() < until);
    e->spin_losses++;
}

static void drive(gloo_engine *e, nrl_request *r, double deadline)
{
    e->driven = true;
    e->drives++;
    engine_settle(e);
    if (!r->ended) spin(e, r);
    while (!r->ended) {
        int64_t before = atomic_load(&e->bytes_received) + atomic_load(&e->bytes_sent);
        engine_turn(e);
        if (r->ended) break;
        double left = deadline - engine_now();
        if (left <= 0) break;
        bool moved = atomic_load(&e->bytes_received) + atomic_load(&e->bytes_sent) != before;
        int ms = loop_timeout(e);
        engine_leave(e, true);
        if (moved)
            let_others(e);
        else
            await(e, left, ms);
        engine_lock(e);
    }
    e->driven = false;
    if (e->n_followers) pthread_cond_signal(&e->followers);
    if (e->napping && e->n_live) pthread_cond_signal(&e->nap);
}

static void follow(gloo_engine *e, double seconds)
{
    struct timespec t;
    deadline_after(&t, seconds);
    e->n_followers++;
    pthread_cond_timedwait(&e->followers, &e->lock, &t);
    e->n_followers--;
}

void engine_wait(gloo_engine *e, nrl_request *r, double timeout_s)
{
    if (is_done(r)) return;
    double deadline = engine_now() + (timeout_s > 0 ? timeout_s : 0);
    engine_lock(e);
    while (!r->ended) {
        double left = deadline - engine_now();
        if (!e->driven)
            drive(e, r, deadline);
        else if (left > 0)
            follow(e, left);
        if (deadline - engine_now() <= 0) break;
    }
    engine_leave(e, false);
}
