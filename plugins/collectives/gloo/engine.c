/*
 * engine.c - who does the work. One lock guards the loop and everything on it; whoever holds it may
 * drive. A thread that waits for a request drives itself, so that a small call wakes nobody; the
 * progress thread drives when none waits, so that calls go on behind a computation. A thread that
 * starts a request never waits for the lock: the request goes to the inbox, and who holds the lock
 * looks there before it leaves and once more after.
 *
 * The loop is run without blocking under the lock; waiting is a poll of the loop's own descriptor
 * without the lock, as libuv means it for loops inside other loops.
 */
#include "gloo.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>

enum {
    NAP_MS = 1,           /* the progress thread looks this often whether waiters still drive */
    TICK_MS = 50,
    SPIN_BYTES = 65536,   /* looking for the answer pays for small calls */
    SPIN_PAIRS = 8,
    SPIN_LOSSES = 4,      /* in vain so often: then only now and then */
    BACKGROUND_BYTES = 65536 /* calls from here on are worth waking the progress thread at once */
};

double engine_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- under the lock ---- */

static void drain(gloo_engine *e)
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

static void lose_doomed(gloo_engine *e)
{
    e->doom = false;
    for (int32_t i = 0; i < e->world; i++)
        if (e->pairs[i].doomed)
            pair_lose(&e->pairs[i], "cannot be spoken to any more: a message was broken off");
}

/* Starts what was asked for and writes what can be written. */
static void settle(gloo_engine *e)
{
    drain(e);
    while (e->dirty || e->doom) {
        gloo_pair *p = e->dirty;
        if (p) {
            e->dirty = p->next_dirty;
            p->dirty = false;
            pair_flush(p);
        }
        if (e->doom) lose_doomed(e);
    }
}

static void run_loop(gloo_engine *e)
{
    uv_run(&e->loop, UV_RUN_NOWAIT);
    e->changed = false; /* the loop has taken note */
    settle(e);
}

/* From here on a request that ended belongs to its owner, who may start the next one with it. */
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

/* Gives the lock back. `drives`: the caller goes on to wait for the loop's descriptor itself. */
static void leave(gloo_engine *e, bool drives)
{
    do {
        settle(e);
        bool ended = publish(e);
        if (ended && e->n_followers) pthread_cond_broadcast(&e->followers);
        /* whoever waits for the loop: its request may have ended, or other things be watched */
        if (e->changed || (ended && !drives && e->driven)) uv_async_send(&e->wake);
        e->changed = false;
        pthread_mutex_unlock(&e->lock);
    } while (atomic_load(&e->inbox) && pthread_mutex_trylock(&e->lock) == 0);
}

/* Waits for the loop's descriptor, for at most `seconds` (< 0: for ever). Without the lock. */
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

static void *progress(void *arg)
{
    gloo_engine *e = arg;
    uint64_t seen = 0;
    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        bool others = e->driven || (e->drives != seen && !e->n_live);
        seen = e->drives;
        if (others) {
            nap(e);
            continue;
        }
        run_loop(e);
        int ms = loop_timeout(e);
        leave(e, true);
        await(e, -1, ms);
        pthread_mutex_lock(&e->lock);
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
    settle(e);
    if (e->napping && !e->driven && e->n_live && (large || e->n_live > 1))
        pthread_cond_signal(&e->nap);
    leave(e, false);
}

static bool is_done(nrl_request *r)
{
    return atomic_load_explicit(&r->done, memory_order_acquire);
}

/* Looks at the sockets for a moment: an answer that is about to come needs no sleep and no waking. */
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
        settle(e);
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
    settle(e);
    if (!r->ended) spin(e, r);
    while (!r->ended) {
        int64_t before = atomic_load(&e->bytes_received) + atomic_load(&e->bytes_sent);
        run_loop(e);
        if (r->ended) break;
        double left = deadline - engine_now();
        if (left <= 0) break;
        if (atomic_load(&e->bytes_received) + atomic_load(&e->bytes_sent) != before) continue;
        int ms = loop_timeout(e);
        leave(e, true);
        await(e, left, ms);
        pthread_mutex_lock(&e->lock);
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
    pthread_mutex_lock(&e->lock);
    while (!r->ended) {
        double left = deadline - engine_now();
        if (!e->driven)
            drive(e, r, deadline);
        else if (left > 0)
            follow(e, left);
        if (deadline - engine_now() <= 0) break;
    }
    leave(e, false);
}

/* ---- the clock ---- */

static void check_time(gloo_engine *e)
{
    double now = engine_now();
    for (nrl_request *r = e->live, *next; r; r = next) {
        next = r->next;
        if (now - r->started < e->options.timeout) continue;
        char who[128] = "";
        size_t n = 0;
        for (int32_t i = 0; i < e->world && n + 16 < sizeof who; i++)
            if (e->pairs[i].state != PAIR_NONE && request_needs(r, &e->pairs[i], false))
                n += (size_t)snprintf(who + n, sizeof who - n, "%srank %d", n ? ", " : "", i);
        request_fail(r, NRL_ERR_PEER, "nothing happened for %g s while waiting for %s",
                     e->options.timeout, who);
    }
}

static void on_tick(uv_timer_t *timer)
{
    gloo_engine *e = timer->data;
    if (e->late && lobby_turn(e->late, 0) == NRL_OK) {
        char none[1];
        lobby_missing(e, none, sizeof none);
    }
    if (e->options.timeout > 0) check_time(e);
}

/* ---- ending ---- */

void engine_abort(gloo_engine *e, const char *why)
{
    pthread_mutex_lock(&e->lock);
    if (!e->aborted) snprintf(e->abort_text, sizeof e->abort_text, "%s", why);
    e->aborted = true;
    drain(e);
    while (e->live)
        request_fail(e->live, NRL_ERR_PEER, "%s", e->abort_text);
    for (int32_t i = 0; i < e->world; i++) {
        gloo_pair *p = &e->pairs[i];
        if (p->state != PAIR_OPEN && p->state != PAIR_AWAITED) continue;
        p->state = PAIR_LEFT;
        pair_close(p);
        slot_clear(p);
    }
    leave(e, false);
}

static bool all_taken(const gloo_engine *e)
{
    for (int32_t i = 0; i < e->world; i++) {
        int waiting = 0;
        const gloo_pair *p = &e->pairs[i];
        if (p->state != PAIR_OPEN) continue;
        if (p->out.head) return false;
        if (ioctl(p->fd, TIOCOUTQ, &waiting) == 0 && waiting) return false;
    }
    return true;
}

/* The kernel throws away what a peer was not sent yet when a socket with unread data is closed: so
 * the last messages are seen off first, for a second at most. */
void engine_say_goodbye(gloo_engine *e)
{
    double until = engine_now() + 1;
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < e->world; i++)
        if (e->pairs[i].state == PAIR_OPEN && e->options.peers == PEERS_NRL)
            pair_say(&e->pairs[i], WIRE_SEND_READY, wire_slot(WIRE_GOODBYE, 0, 0), 0);
    settle(e);
    while (!all_taken(e) && engine_now() < until) {
        run_loop(e);
        struct timespec t = {.tv_nsec = 200000};
        nanosleep(&t, NULL);
    }
    pthread_mutex_unlock(&e->lock);
}

static void on_handle_closed(uv_handle_t *handle)
{
    gloo_engine *e = handle->data;
    e->n_handles--;
}

static void stop_thread(gloo_engine *e)
{
    if (!e->has_thread) return;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->nap);
    pthread_mutex_unlock(&e->lock);
    uv_async_send(&e->wake);
    pthread_join(e->thread, NULL);
    e->has_thread = false;
}

void engine_destroy(gloo_engine *e)
{
    stop_thread(e);
    for (int32_t i = 0; i < e->world; i++) {
        pair_close(&e->pairs[i]);
        slot_clear(&e->pairs[i]);
        free(e->pairs[i].window);
    }
    if (e->late) lobby_close(e->late);
    uv_close((uv_handle_t *)&e->wake, on_handle_closed);
    uv_close((uv_handle_t *)&e->tick, on_handle_closed);
    uv_close((uv_handle_t *)&e->refill, on_handle_closed);
    while (e->n_handles)
        uv_run(&e->loop, UV_RUN_NOWAIT);
    uv_loop_close(&e->loop);
    pool_destroy(e);
    for (nrl_request *r; (r = e->free_requests);) {
        e->free_requests = r->next;
        request_destroy(r);
    }
    for (gloo_group *g; (g = e->groups);) {
        e->groups = g->next;
        free(g);
    }
    pthread_cond_destroy(&e->followers);
    pthread_cond_destroy(&e->nap);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->pool_lock);
    free(e->pairs);
    free(e);
}

/* ---- beginning ---- */

static void on_wake(uv_async_t *wake)
{
    (void)wake;
}

static void open_handles(gloo_engine *e)
{
    uv_async_init(&e->loop, &e->wake, on_wake);
    uv_timer_init(&e->loop, &e->tick);
    uv_timer_init(&e->loop, &e->refill);
    e->wake.data = e->tick.data = e->refill.data = e;
    e->n_handles = 3;
    e->loop_fd = uv_backend_fd(&e->loop);
    e->tokens_at = engine_now();
}

static void open_locks(gloo_engine *e)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&e->followers, &a);
    pthread_cond_init(&e->nap, &a);
    pthread_condattr_destroy(&a);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->pool_lock, NULL);
}

nrl_status engine_create(const gloo_options *o, int32_t rank, int32_t world, gloo_engine **out)
{
    gloo_engine *e = calloc(1, sizeof *e);
    gloo_pair *pairs = calloc((size_t)world, sizeof *pairs);
    if (!e || !pairs) {
        free(e);
        free(pairs);
        return nrl_fail(NRL_ERR_MEMORY, "no memory for the connections to %d ranks", world);
    }
    e->options = *o;
    e->dialect = &wire_dialects[o->dialect];
    e->rank = rank;
    e->world = world;
    e->pairs = pairs;
    e->next_group = 1;
    atomic_store(&e->failed_peer, -1);
    for (int32_t i = 0; i < world; i++)
        pairs[i] = (gloo_pair){.engine = e, .rank = i, .fd = -1, .state = PAIR_NONE};
    int error = uv_loop_init(&e->loop);
    if (error) {
        free(pairs);
        free(e);
        return nrl_fail(NRL_ERR_IO, "cannot make an event loop: %s", uv_strerror(error));
    }
    open_locks(e);
    open_handles(e);
    *out = e;
    return NRL_OK;
}

nrl_status engine_start(gloo_engine *e)
{
    sigset_t all, old;
    if (e->options.timeout > 0 || e->late) uv_timer_start(&e->tick, on_tick, TICK_MS, TICK_MS);
    sigfillset(&all); /* signals are the other threads' business */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&e->thread, NULL, progress, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) return nrl_fail(NRL_ERR_IO, "cannot start a thread: %s", strerror(error));
    e->has_thread = true;
    return NRL_OK;
}
