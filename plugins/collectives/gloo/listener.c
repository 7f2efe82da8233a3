/*
 * listener.c - listening sockets, and pending connections: those that have not sent, or not proved,
 * their rank. A pending connection that sends nothing, too little or an unexpected number blocks no
 * other: the number of pending connections is bounded, and a rank sends its number as soon as it has
 * connected. This rank's connections to other ranks also wait here, for the answer that proves the
 * other side.
 */
#include "gloo.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    int fd;               /* -1 = free */
    int32_t listen_index; /* the listener that accepted it */
    size_t have;
    uint8_t said[PROOF_HELLO];
} pending_connection;

typedef struct {
    int fd; /* -1 = none */
    size_t have;
    uint8_t said[NRL_PROOF_SIZE], answer[NRL_PROOF_SIZE]; /* bytes received so far, and bytes expected */
} expected;

struct listener {
    gloo_engine *engine;
    int32_t n_listeners; /* world, or 1; a tcp22 listener belongs to one peer */
    int *listeners;      /* [n_listeners] -1 = closed */
    int32_t n_pending;
    pending_connection *pending;
    int32_t next;          /* place for the next connection; its current occupant has been silent for longest and is
                            * dropped */
    expected *expected;    /* [world] this rank's connections to others; NULL if nothing is proved */
    struct pollfd *polled; /* [n_pending + world + n_listeners], */
    int32_t *places;       /* and their owners, in this order */
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
        bind(fd, (const struct sockaddr *)at, address_length(at)) == 0 && listen(fd, backlog) == 0 &&
        getsockname(fd, (struct sockaddr *)published, &length) == 0)
        return NRL_OK;
    address_text(at, text, sizeof text);
    return nrl_fail(NRL_ERR_IO, "cannot listen at %s: %s", text, strerror(errno));
}

nrl_status listener_open(gloo_engine *e, const struct sockaddr_storage *at, struct sockaddr_storage *published,
                         listener **out)
{
    bool each = e->dialect->listener_per_peer;
    size_t world = (size_t)e->world;
    listener *l = calloc(1, sizeof *l);
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "no memory to listen for %d ranks", e->world);
    *out = l;
    l->engine = e;
    l->n_pending = each && !e->store ? 0 : e->world + 16;
    l->listeners = calloc(world, sizeof *l->listeners);
    l->pending = calloc(world + 16, sizeof *l->pending);
    l->expected = e->store ? calloc(world, sizeof *l->expected) : NULL;
    l->polled = calloc(3 * world + 16, sizeof *l->polled);
    l->places = calloc(3 * world + 16, sizeof *l->places);
    if (!l->listeners || !l->pending || !l->polled || !l->places || (e->store && !l->expected))
        return nrl_fail(NRL_ERR_MEMORY, "no memory to listen for %d ranks", e->world);
    for (int32_t i = 0; i < l->n_pending; i++)
        l->pending[i].fd = -1;
    for (int32_t i = 0; l->expected && i < e->world; i++)
        l->expected[i].fd = -1;
    l->n_listeners = each ? e->world : 1;
    for (int32_t i = 0; i < l->n_listeners; i++)
        l->listeners[i] = -1;
    for (int32_t i = 0; i < l->n_listeners; i++)
        if (!each || i != e->rank) NRL_TRY(listen_at(at, each ? 1 : 128, &l->listeners[i], &published[i]));
    return NRL_OK;
}

static void shut(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void listener_unlisten(listener *l, int32_t peer)
{
    if (l->engine->dialect->listener_per_peer) shut(&l->listeners[peer]);
}

void listener_close(listener *l)
{
    if (!l) return;
    for (int32_t i = 0; l->listeners && i < l->n_listeners; i++)
        shut(&l->listeners[i]);
    for (int32_t i = 0; l->pending && i < l->n_pending; i++)
        shut(&l->pending[i].fd);
    for (int32_t i = 0; l->expected && i < l->engine->world; i++)
        shut(&l->expected[i].fd);
    free(l->listeners);
    free(l->pending);
    free(l->expected);
    free(l->polled);
    free(l->places);
    free(l);
}

/* Takes the connection if `number` is a rank that is expected. */
static nrl_status introduce(listener *l, int64_t number, int *fd)
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

/* The number is the peer's index in what this rank published: its rank (tcp23), or its rank counted
 * without this rank (uv). */
static int64_t rank_of_number(const listener *l, int64_t number)
{
    if (l->engine->dialect->blob || number < 0) return number;
    return number + (number >= l->engine->rank);
}

/* Without this error, the pending connections would make poll return at once, forever. */
static nrl_status no_descriptor(listener *l)
{
    char who[200];
    int error = errno;
    listener_missing(l->engine, who, sizeof who);
    return nrl_fail(NRL_ERR_IO,
                    "cannot accept a connection from %s: %s\n"
                    "hint: raise the limit of open files (ulimit -n)",
                    who, strerror(error));
}

static bool has_strangers(const listener *l)
{
    for (int32_t i = 0; i < l->n_pending; i++)
        if (l->pending[i].fd >= 0) return true;
    return false;
}

/* The place of the connection that has been silent for longest, emptied. */
static pending_connection *free_place(listener *l)
{
    pending_connection *s = &l->pending[l->next];
    l->next = (l->next + 1) % l->n_pending;
    shut(&s->fd);
    return s;
}

static nrl_status accept_one(listener *l, int32_t listen_index)
{
    int fd = accept4(l->listeners[listen_index], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        if (!has_strangers(l)) return no_descriptor(l);
        free_place(l); /* frees a descriptor, which a rank may need */
        return NRL_OK;
    }
    if (fd < 0) return NRL_OK;
    if (!l->n_pending) { /* tcp22: the listener identifies the peer */
        shut(&l->listeners[listen_index]);
        return introduce(l, listen_index, &fd);
    }
    pending_connection *s = free_place(l);
    *s = (pending_connection){.fd = fd, .listen_index = listen_index};
    return NRL_OK;
}

/* Reads up to `size` bytes in total; true once all have arrived. Closes a connection that ended. */
static bool read_words(int *fd, uint8_t *said, size_t *have, size_t size)
{
    ssize_t n = recv(*fd, said + *have, size - *have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
        shut(fd);
        return false;
    }
    *have += (size_t)n;
    return *have == size;
}

/* The answer fits into any socket's buffer. */
static nrl_status hear_proof(listener *l, pending_connection *s)
{
    uint8_t answer[NRL_PROOF_SIZE];
    int64_t rank = proof_check(l->engine, s->said, answer);
    if (rank < 0 || l->expected[rank].fd >= 0 || (l->engine->dialect->listener_per_peer && rank != s->listen_index) ||
        l->engine->pairs[rank].state != PAIR_AWAITED ||
        send(s->fd, answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer) {
        shut(&s->fd);
        return NRL_OK;
    }
    listener_unlisten(l, (int32_t)rank);
    return introduce(l, rank, &s->fd);
}

static nrl_status hear(listener *l, pending_connection *s)
{
    bool proved = l->engine->store != NULL;
    size_t size = proved ? PROOF_HELLO : l->engine->dialect->handshake_size;
    if (!read_words(&s->fd, s->said, &s->have, size)) return NRL_OK;
    if (proved) return hear_proof(l, s);
    return introduce(l, rank_of_number(l, wire_handshake_get(l->engine->dialect, s->said)), &s->fd);
}

void listener_expect(listener *l, int32_t peer, int fd, const uint8_t answer[NRL_PROOF_SIZE])
{
    expected *x = &l->expected[peer];
    *x = (expected){.fd = fd};
    memcpy(x->answer, answer, sizeof x->answer);
    l->engine->pairs[peer].state = PAIR_AWAITED;
}

static nrl_status hear_answer(listener *l, int32_t peer)
{
    expected *x = &l->expected[peer];
    bool all = read_words(&x->fd, x->said, &x->have, sizeof x->said);
    if (all && proof_equal(x->said, x->answer)) return introduce(l, peer, &x->fd);
    if (x->fd >= 0 && !all) return NRL_OK;
    return nrl_fail(NRL_ERR_PEER, "rank %d %s", peer,
                    all ? "does not know the job's secret" : "closed the connection before it proved the job's secret");
}

static void watch(listener *l, int32_t *n, int32_t place, int fd)
{
    if (fd < 0) return;
    l->places[*n] = place;
    l->polled[(*n)++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* Open descriptors only: poll rejects more entries than the process may have descriptors. Listeners come
 * last, because accepting may reuse the place of a pending connection. */
static int32_t watch_all(listener *l)
{
    int32_t n = 0, place = 0;
    for (int32_t i = 0; i < l->n_pending; i++)
        watch(l, &n, place++, l->pending[i].fd);
    for (int32_t i = 0; l->expected && i < l->engine->world; i++)
        watch(l, &n, place++, l->expected[i].fd);
    for (int32_t i = 0; i < l->n_listeners; i++)
        watch(l, &n, place++, l->listeners[i]);
    return n;
}

static nrl_status serve(listener *l, int32_t place)
{
    if (place < l->n_pending) return hear(l, &l->pending[place]);
    place -= l->n_pending;
    if (!l->expected) return accept_one(l, place);
    return place < l->engine->world ? hear_answer(l, place) : accept_one(l, place - l->engine->world);
}

nrl_status listener_turn(listener *l, int timeout_ms)
{
    int32_t n = watch_all(l);
    int ready = poll(l->polled, (nfds_t)n, timeout_ms);
    if (ready < 0 && errno != EINTR) return nrl_fail(NRL_ERR_IO, "cannot wait for connections: %s", strerror(errno));
    for (int32_t i = 0; ready > 0 && i < n; i++)
        if (l->polled[i].revents) NRL_TRY(serve(l, l->places[i]));
    return NRL_OK;
}

void listener_missing(const gloo_engine *e, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (int32_t i = 0; i < e->world && n + 16 < size; i++)
        if (e->pairs[i].state == PAIR_AWAITED) n += (size_t)snprintf(out + n, size - n, "%srank %d", n ? ", " : "", i);
}
