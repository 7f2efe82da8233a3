/*
 * lobby.c - listening sockets, and strangers: connections that have not said yet which rank they
 * are. A stranger that says nothing, too little or a number that nobody awaits holds nobody up:
 * there is a bounded number of places, and a rank writes its number as soon as it has connected.
 */
#include "gloo.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    int fd; /* -1 = free */
    size_t have;
    uint8_t said[8];
} stranger;

struct lobby {
    gloo_engine *engine;
    int32_t n_listeners; /* world, or 1; a tcp22 listener belongs to a peer */
    int *listeners;      /* [n_listeners] -1 = closed */
    int32_t n_strangers;
    stranger *strangers;
    int32_t next; /* place for the next one; who is there has been silent for longest and goes */
    struct pollfd *polled; /* [n_listeners + n_strangers] */
};

static nrl_status listen_at(const struct sockaddr_storage *at, int backlog, int *out,
                            struct sockaddr_storage *published)
{
    char text[64];
    int one = 1, fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t length = sizeof *published;
    memset(published, 0, sizeof *published);
    *out = fd;
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, (const struct sockaddr *)at, address_length(at)) == 0 &&
        listen(fd, backlog) == 0 && getsockname(fd, (struct sockaddr *)published, &length) == 0)
        return NRL_OK;
    address_text(at, text, sizeof text);
    return nrl_fail(NRL_ERR_IO, "cannot listen at %s: %s", text, strerror(errno));
}

nrl_status lobby_open(gloo_engine *e, const struct sockaddr_storage *at,
                      struct sockaddr_storage *published, lobby **out)
{
    bool each = e->dialect->listener_per_peer;
    lobby *l = calloc(1, sizeof *l);
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "no memory to listen for %d ranks", e->world);
    *out = l;
    l->engine = e;
    l->n_strangers = each ? 0 : e->world + 16;
    l->listeners = calloc((size_t)e->world, sizeof *l->listeners);
    l->strangers = calloc((size_t)e->world + 16, sizeof *l->strangers);
    l->polled = calloc(2 * (size_t)e->world + 16, sizeof *l->polled);
    if (!l->listeners || !l->strangers || !l->polled)
        return nrl_fail(NRL_ERR_MEMORY, "no memory to listen for %d ranks", e->world);
    for (int32_t i = 0; i < l->n_strangers; i++)
        l->strangers[i].fd = -1;
    l->n_listeners = each ? e->world : 1;
    for (int32_t i = 0; i < l->n_listeners; i++)
        l->listeners[i] = -1;
    for (int32_t i = 0; i < l->n_listeners; i++)
        if (!each || i != e->rank)
            NRL_TRY(listen_at(at, each ? 1 : 128, &l->listeners[i], &published[i]));
    return NRL_OK;
}

static void shut(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void lobby_unlisten(lobby *l, int32_t peer)
{
    if (l->engine->dialect->listener_per_peer) shut(&l->listeners[peer]);
}

void lobby_close(lobby *l)
{
    if (!l) return;
    for (int32_t i = 0; l->listeners && i < l->n_listeners; i++)
        shut(&l->listeners[i]);
    for (int32_t i = 0; l->strangers && i < l->n_strangers; i++)
        shut(&l->strangers[i].fd);
    free(l->listeners);
    free(l->strangers);
    free(l->polled);
    free(l);
}

/* Takes the connection if `number` is a rank that is awaited. */
static nrl_status introduce(lobby *l, int64_t number, int *fd)
{
    gloo_engine *e = l->engine;
    if (number < 0 || number >= e->world || e->pairs[number].state != PAIR_AWAITED) {
        shut(fd);
        return NRL_OK;
    }
    int taken = *fd;
    *fd = -1;
    return pair_open(&e->pairs[number], taken);
}

/* The number is the peer's place in what this rank published: its rank (tcp23), or its place with
 * this rank left out (uv). */
static int64_t rank_of_number(const lobby *l, int64_t number)
{
    if (l->engine->dialect->blob || number < 0) return number;
    return number + (number >= l->engine->rank);
}

static nrl_status accept_one(lobby *l, int32_t listener)
{
    int fd = accept4(l->listeners[listener], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return NRL_OK;
    if (!l->engine->dialect->handshake_size) { /* tcp22: who comes is the peer */
        shut(&l->listeners[listener]);
        return introduce(l, listener, &fd);
    }
    stranger *s = &l->strangers[l->next];
    l->next = (l->next + 1) % l->n_strangers;
    shut(&s->fd);
    *s = (stranger){.fd = fd};
    return NRL_OK;
}

static nrl_status hear(lobby *l, stranger *s)
{
    size_t size = l->engine->dialect->handshake_size;
    ssize_t n = recv(s->fd, s->said + s->have, size - s->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return NRL_OK;
    if (n <= 0) {
        shut(&s->fd);
        return NRL_OK;
    }
    s->have += (size_t)n;
    if (s->have < size) return NRL_OK;
    return introduce(l, rank_of_number(l, wire_handshake_get(l->engine->dialect, s->said)), &s->fd);
}

nrl_status lobby_turn(lobby *l, int timeout_ms)
{
    int32_t n = l->n_listeners;
    for (int32_t i = 0; i < n; i++)
        l->polled[i] = (struct pollfd){.fd = l->listeners[i], .events = POLLIN};
    for (int32_t i = 0; i < l->n_strangers; i++)
        l->polled[n + i] = (struct pollfd){.fd = l->strangers[i].fd, .events = POLLIN};
    if (poll(l->polled, (nfds_t)(n + l->n_strangers), timeout_ms) <= 0) return NRL_OK;
    for (int32_t i = 0; i < l->n_strangers; i++)
        if (l->polled[n + i].revents) NRL_TRY(hear(l, &l->strangers[i]));
    for (int32_t i = 0; i < n; i++)
        if (l->polled[i].revents) NRL_TRY(accept_one(l, i));
    return NRL_OK;
}

void lobby_missing(const gloo_engine *e, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (int32_t i = 0; i < e->world && n + 16 < size; i++)
        if (e->pairs[i].state == PAIR_AWAITED)
            n += (size_t)snprintf(out + n, size - n, "%srank %d", n ? ", " : "", i);
}
