/*
 * request.c - a started exchange is an event on its group's stream. A wait polls the event and asks
 * NCCL for errors in between, because the event of an exchange with a lost rank never completes.
 */
#include "group.h"
#include <stdlib.h>
#include <time.h>

nrl_status nccl_request_take(nccl_group *g, const char *op, int32_t peer, nrl_request **out)
{
    nccl_engine *e = g->engine;
    pthread_mutex_lock(&e->lock);
    nrl_request *r = g->spare;
    if (r) g->spare = r->next;
    uint64_t number = ++g->calls;
    pthread_mutex_unlock(&e->lock);
    *out = r;
    if (!r) {
        r = calloc(1, sizeof *r);
        if (!r) return nrl_fail(NRL_ERR_MEMORY, "no memory for a request");
        nrl_status st =
            nccl_driver_check(e->driver->event_create(&r->event, EVENT_WITHOUT_TIMING), "creating an event");
        if (st) {
            free(r);
            return st;
        }
    }
    r->group = g;
    r->op = op;
    r->number = number;
    r->peer = peer;
    r->host = NULL;
    *out = r;
    return NRL_OK;
}

void nccl_requests_destroy(nccl_group *g)
{
    while (g->spare) {
        nrl_request *r = g->spare;
        g->spare = r->next;
        (void)g->engine->driver->event_destroy(r->event);
        nccl_host_free(g, r);
        free(r);
    }
}

void nccl_release(void *self, nrl_request *r)
{
    (void)self;
    if (!r) return;
    nccl_group *g = r->group;
    pthread_mutex_lock(&g->engine->lock);
    r->next = g->spare;
    g->spare = r;
    pthread_mutex_unlock(&g->engine->lock);
}

/* Checks whether the request's communicator has failed in the meantime; `called` is the group that was called. */
static nrl_status look(nccl_group *called, const nrl_request *r)
{
    const nccl_group *g = r->group;
    nccl_engine *e = g->engine;
    int code = NCCL_SUCCESS;
    nrl_status st = NRL_OK;
    pthread_mutex_lock(&e->lock);
    if (!g->comm || atomic_load(&e->aborted))
        st = nrl_fail(NRL_ERR_PEER, "nccl: %s, call %llu, was aborted by this rank", r->op,
                      (unsigned long long)r->number);
    else if (e->api->async_error(g->comm, &code) || (code != NCCL_SUCCESS && code != NCCL_IN_PROGRESS))
        st = nccl_failed(g, code, r->op);
    pthread_mutex_unlock(&e->lock);
    if (st && r->peer >= 0) atomic_store(&called->failed_peer, r->peer);
    return st;
}

/* Exchanges end within microseconds or much later: poll first without sleeping, then with growing pauses. */
static void pause_for(int round)
{
    struct timespec t = {0, round < 100 ? 20000 : 500000};
    if (round >= 50) nanosleep(&t, NULL);
}

nrl_status nccl_wait(void *self, nrl_request *r, double timeout_s, bool *done)
{
    nccl_group *g = self;
    double end = nccl_clock() + timeout_s;
    *done = false;
    NRL_TRY(nccl_enter(g->engine));
    for (int round = 0;; round++) {
        int code = g->engine->driver->event_query(r->event);
        if (code == DRIVER_NOT_READY || atomic_load(&g->engine->aborted)) {
            nrl_status st = look(g, r);
            *done = st != NRL_OK;
            if (st) return st;
        } else {
            *done = true;
            NRL_TRY(nccl_driver_check(code, r->op));
            return nccl_host_out(r->group, r);
        }
        if (nccl_clock() >= end) return NRL_OK;
        pause_for(round);
    }
}

nrl_status nccl_fence(void *self, nrl_request *r, nrl_stream *stream)
{
    nccl_group *g = self;
    bool done;
    NRL_TRY(nccl_enter(g->engine));
    if (!stream) return nccl_wait(self, r, 1e9, &done); /* no stream: the host sees the data */
    return nccl_driver_check(g->engine->driver->stream_fence(stream, r->event, 0), "waiting for an exchange");
}
