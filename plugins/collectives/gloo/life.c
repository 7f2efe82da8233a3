/*
 * life.c - creates and destroys an engine: memory, loop and locks, the progress thread's start, the
 * timer that ends calls without progress, abort, and an orderly leave.
 */
#include "gloo.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>

enum { TICK_MS = 50, SILENCE_MS = 1000 };

/* ---- the clock ---- */

static void check_time(gloo_engine *e)
{
    double now = engine_now();
    for (nrl_request *r = e->live, *next; r; r = next) {
        next = r->next;
        if (now - r->started < e->options.timeout) continue;
        double moved = r->started; /* when a needed connection last moved bytes, for any request */
        char who[128] = "";
        size_t n = 0;
        for (int32_t i = 0; i < e->world; i++) {
            const gloo_pair *p = &e->pairs[i];
            if (p->state == PAIR_NONE || !request_needs(r, p, false)) continue;
            if (p->moved > moved) moved = p->moved;
            if (n + 16 < sizeof who) n += (size_t)snprintf(who + n, sizeof who - n, "%srank %d", n ? ", " : "", i);
        }
        if (now - moved < e->options.timeout) continue;
        request_fail(r, NRL_ERR_PEER, "no progress for %g s while waiting for %s", e->options.timeout, who);
    }
}

static void on_tick(uv_timer_t *timer)
{
    gloo_engine *e = timer->data;
    if (e->late)
        (void)listener_turn(e->late, 0); /* a connection that cannot be accepted stays missing, and the rank
                                          * is named */
    if (e->options.timeout > 0) check_time(e);
}

static void on_silence(uv_timer_t *timer)
{
    gloo_engine *e = timer->data;
    double now = engine_now();
    for (int32_t i = 0; i < e->world; i++)
        pair_check_acknowledged(&e->pairs[i], now);
}

/* ---- creation ---- */

static void on_wake(uv_async_t *wake)
{
    (void)wake;
}

static void open_handles(gloo_engine *e)
{
    uv_async_init(&e->loop, &e->wake, on_wake);
    uv_timer_init(&e->loop, &e->tick);
    uv_timer_init(&e->loop, &e->refill);
    uv_timer_init(&e->loop, &e->silence);
    e->wake.data = e->tick.data = e->refill.data = e->silence.data = e;
    e->n_handles = 4;
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
        return nrl_fail(NRL_ERR_IO, "cannot create an event loop: %s", uv_strerror(error));
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
    /* Foreign ranks send no heartbeats: they may pause without limit. */
    if (e->options.peers == PEERS_NRL) uv_timer_start(&e->silence, on_silence, SILENCE_MS, SILENCE_MS);
    sigfillset(&all); /* other threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&e->thread, NULL, engine_progress, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error) return nrl_fail(NRL_ERR_IO, "cannot start the progress thread: %s", strerror(error));
    e->has_thread = true;
    return NRL_OK;
}

/* ---- ending ---- */

void engine_abort(gloo_engine *e, const char *why)
{
    engine_lock(e);
    if (!e->aborted) snprintf(e->abort_text, sizeof e->abort_text, "%s", why);
    e->aborted = true;
    engine_drain(e);
    while (e->live)
        request_fail(e->live, NRL_ERR_PEER, "%s", e->abort_text);
    for (int32_t i = 0; i < e->world; i++) {
        gloo_pair *p = &e->pairs[i];
        if (p->state != PAIR_OPEN && p->state != PAIR_AWAITED) continue;
        p->state = PAIR_LEFT;
        pair_close(p);
        slot_clear(p);
    }
    engine_leave(e, false);
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

/* When a socket with unread data is closed, the kernel discards data that was not sent yet. So this waits,
 * for a second at most, until the last messages are sent. */
void engine_send_leave(gloo_engine *e)
{
    double until = engine_now() + 1;
    engine_lock(e);
    for (int32_t i = 0; i < e->world; i++)
        if (e->pairs[i].state == PAIR_OPEN && !e->pairs[i].mute && e->options.peers == PEERS_NRL)
            pair_say(&e->pairs[i], WIRE_SEND_READY, wire_slot(WIRE_GOODBYE, 0, 0), 0);
    engine_settle(e);
    while (!all_taken(e) && engine_now() < until) {
        engine_turn(e);
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
    engine_lock(e);
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
    if (e->late) listener_close(e->late);
    uv_close((uv_handle_t *)&e->wake, on_handle_closed);
    uv_close((uv_handle_t *)&e->tick, on_handle_closed);
    uv_close((uv_handle_t *)&e->refill, on_handle_closed);
    uv_close((uv_handle_t *)&e->silence, on_handle_closed);
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
