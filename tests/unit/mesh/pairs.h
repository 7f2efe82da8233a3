/*
 * pairs.h - a collective for forked ranks: a socket pair between any two of them, created before
 * the fork. A call sends its bytes to all ranks, and its wait reads theirs; barrier, broadcast,
 * all_gather, send and recv of small operands, one call at a time.
 */
#ifndef UNIT_MESH_PAIRS_H
#define UNIT_MESH_PAIRS_H
#include "base/clock.h"
#include <nrl/collective.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAIRS_MAX = 8 };

typedef struct {
    int fds[PAIRS_MAX][PAIRS_MAX]; /* [r][k]: rank r's end to rank k; -1 = none */
} pairs_wires;

typedef struct {
    const pairs_wires *wires;
    int32_t rank, world, failed;
    atomic_bool aborted;
} pairs_group;

struct nrl_request {
    char *receive[PAIRS_MAX]; /* NULL = nothing from there */
    size_t size, got[PAIRS_MAX];
    char dummy[PAIRS_MAX];
};

static inline void pairs_make(pairs_wires *w, int32_t world)
{
    memset(w, -1, sizeof *w);
    for (int32_t a = 0; a < world; a++)
        for (int32_t b = a + 1; b < world; b++) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) abort();
            w->fds[a][b] = ends[0];
            w->fds[b][a] = ends[1];
        }
}

/* Keeps rank's own ends; -1 closes all. */
static inline void pairs_keep(pairs_wires *w, int32_t rank)
{
    for (int32_t a = 0; a < PAIRS_MAX; a++)
        for (int32_t b = 0; b < PAIRS_MAX; b++)
            if (w->fds[a][b] >= 0 && a != rank) {
                close(w->fds[a][b]);
                w->fds[a][b] = -1;
            }
}

static nrl_status pairs_open(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                             void **self)
{
    pairs_group *g = calloc(1, sizeof *g);
    char key[16];
    void *value;
    size_t size;
    *g = (pairs_group){.wires = options, .rank = rank, .world = world, .failed = -1};
    snprintf(key, sizeof key, "%d", (int)rank);
    nrl_status st = nrl_store_set(store, key, "x", 1);
    for (int32_t r = 0; r < world; r++) { /* as a real one meets */
        snprintf(key, sizeof key, "%d", (int)r);
        if (!st) st = nrl_store_get(store, key, timeout_s, &value, &size);
        if (st) {
            free(g);
            return st;
        }
        free(value);
    }
    *self = g;
    return NRL_OK;
}

static void pairs_close(void *self)
{
    pairs_group *g = self;
    for (int32_t r = 0; r < g->world; r++)
        if (g->wires->fds[g->rank][r] >= 0) close(g->wires->fds[g->rank][r]);
    free(g);
}

static void pairs_abort(void *self)
{
    pairs_group *g = self;
    g->aborted = true;
    for (int32_t r = 0; r < g->world; r++)
        if (g->wires->fds[g->rank][r] >= 0) shutdown(g->wires->fds[g->rank][r], SHUT_RDWR);
}

static nrl_status pairs_lost(pairs_group *g, int32_t peer)
{
    g->failed = peer;
    return nrl_fail(NRL_ERR_PEER, "the connection to rank %d broke", (int)peer);
}

static nrl_status pairs_give(pairs_group *g, int32_t peer, const void *bytes, size_t size)
{
    if (peer == g->rank || !size) return NRL_OK;
    ssize_t n = send(g->wires->fds[g->rank][peer], bytes, size, MSG_NOSIGNAL);
    return n == (ssize_t)size ? NRL_OK : pairs_lost(g, peer);
}

static nrl_status pairs_all_gather(void *self, const nrl_comm_args *a, nrl_request **request)
{
    pairs_group *g = self;
    nrl_request *q = calloc(1, sizeof *q);
    q->size = a->receive ? (size_t)a->count * nrl_dtype_size((nrl_dtype)a->dtype) : 1;
    for (int32_t r = 0; r < g->world; r++) {
        char *to = a->receive ? (char *)a->receive + q->size * (size_t)r : &q->dummy[r];
        if (r != g->rank)
            q->receive[r] = to;
        else if (a->receive)
            memmove(to, a->send, q->size);
        nrl_status st = pairs_give(g, r, a->receive ? a->send : "b", q->size);
        if (st) {
            free(q);
            return st;
        }
    }
    *request = q;
    return NRL_OK;
}

static nrl_status pairs_barrier(void *self, const nrl_comm_args *a, nrl_request **request)
{
    (void)a;
    return pairs_all_gather(self, &(nrl_comm_args){0}, request);
}

static nrl_status pairs_send(void *self, const nrl_comm_args *a, nrl_request **request)
{
    *request = calloc(1, sizeof **request);
    (*request)->size = (size_t)a->count * nrl_dtype_size((nrl_dtype)a->dtype);
    return pairs_give(self, a->peer, a->send, (*request)->size);
}

static nrl_status pairs_recv(void *self, const nrl_comm_args *a, nrl_request **request)
{
    (void)self;
    *request = calloc(1, sizeof **request);
    (*request)->size = (size_t)a->count * nrl_dtype_size((nrl_dtype)a->dtype);
    (*request)->receive[a->peer] = a->receive;
    return NRL_OK;
}

static nrl_status pairs_broadcast(void *self, const nrl_comm_args *a, nrl_request **request)
{
    pairs_group *g = self;
    nrl_comm_args one = *a;
    if (a->peer != g->rank) return pairs_recv(self, a, request);
    one.send = a->receive;
    for (one.peer = 0; one.peer < g->world; one.peer++) {
        NRL_TRY(pairs_send(self, &one, request));
        if (one.peer + 1 < g->world) free(*request);
    }
    return NRL_OK;
}

/* 1 all there, 0 not yet, -1 failed */
static int pairs_read(pairs_group *g, nrl_request *q)
{
    int whole = 1;
    for (int32_t r = 0; r < g->world; r++) {
        while (q->receive[r] && q->got[r] < q->size) {
            ssize_t n = recv(g->wires->fds[g->rank][r], q->receive[r] + q->got[r], q->size - q->got[r], 0);
            if (n > 0)
                q->got[r] += (size_t)n;
            else if (!n)
                return pairs_lost(g, r), -1;
            else
                break;
        }
        if (q->receive[r] && q->got[r] < q->size) whole = 0;
    }
    char byte; /* somebody else may be gone while this waits */
    for (int32_t r = 0; r < g->world && !whole; r++)
        if (r != g->rank && !recv(g->wires->fds[g->rank][r], &byte, 1, MSG_PEEK)) return pairs_lost(g, r), -1;
    return whole;
}

static nrl_status pairs_wait(void *self, nrl_request *request, double timeout_s, bool *done)
{
    pairs_group *g = self;
    double until = clock_seconds() + timeout_s;
    *done = false;
    for (;;) {
        int state = g->aborted ? -1 : pairs_read(g, request);
        if (state < 0) return NRL_ERR_PEER;
        *done = state;
        if (*done || clock_seconds() >= until) return NRL_OK;
        clock_sleep(0.002);
    }
}

static void pairs_release(void *self, nrl_request *request)
{
    (void)self;
    free(request);
}

static int32_t pairs_failed_peer(void *self)
{
    return ((pairs_group *)self)->failed;
}

typedef struct {
    char unused;
} pairs_options;

static const nrl_collective pairs_collective = {
    NRL_PLUGIN_PLAIN(NRL_KIND_COLLECTIVE, nrl_collective, "pairs", "1", "socket pairs"),
    .host_only = true,
    .open = pairs_open,
    .close = pairs_close,
    .abort = pairs_abort,
    .barrier = pairs_barrier,
    .broadcast = pairs_broadcast,
    .all_gather = pairs_all_gather,
    .send = pairs_send,
    .recv = pairs_recv,
    .wait = pairs_wait,
    .release = pairs_release,
    .failed_peer = pairs_failed_peer,
};

#endif
