/*
 * store_server.c - the sockets of a store: one thread, poll, a session for each connection.
 */
#include "base/arena.h"
#include "mesh/socket.h"
#include "mesh/store.h"
#include "mesh/store_session.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* A piece of 64 KiB is read at a time. All buffers of all clients together have at most
 * BUFFER_BYTES: who asks for more is dropped. */
enum { MAX_CLIENTS = 16384, PIECE = 64 << 10, BUFFER_BYTES = 512 << 20, PAUSE_MS = 100 };

typedef struct {
    int fd;
    bool ended;
    size_t sent; /* bytes of session.out; less than half of them */
    store_session session;
} client;

struct store_server {
    int listener, wake;
    int32_t port;
    pthread_t thread;
    atomic_bool stop;
    atomic_int n_open;
    /* the thread's own */
    store_table table;
    client **clients;
    struct pollfd *polls; /* [n_clients + 2] */
    size_t n_clients, capacity;
    bool no_room; /* no descriptor for another client: the listener pauses */
    char piece[PIECE];
};

static void end_client(client *c)
{
    close(c->fd);
    store_session_free(&c->session);
    free(c);
}

static void accept_clients(store_server *s)
{
    for (;;) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        s->no_room = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) return;
        if (s->n_clients >= MAX_CLIENTS) {
            close(fd);
            continue;
        }
        if (s->n_clients == s->capacity) {
            s->capacity = s->capacity ? s->capacity * 2 : 64;
            s->clients = mem_realloc(s->clients, s->capacity * sizeof *s->clients);
            s->polls = mem_realloc(s->polls, (s->capacity + 2) * sizeof *s->polls);
        }
        socket_set_options(fd);
        client *c = mem_alloc(sizeof *c);
        c->fd = fd;
        s->clients[s->n_clients++] = c;
        atomic_fetch_add(&s->n_open, 1);
    }
}

static size_t buffered(const store_server *s)
{
    size_t sum = 0;
    for (size_t i = 0; i < s->n_clients; i++) {
        const store_session *x = &s->clients[i]->session;
        sum += x->in.capacity + x->out.capacity + x->wanted.capacity;
    }
    return sum;
}

/* What is sent leaves the buffer once it is half of it, so that moving stays cheap. */
static void forget_sent(client *c)
{
    buffer *out = &c->session.out;
    if (c->sent < out->size / 2) return;
    memmove(out->text, out->text + c->sent, out->size - c->sent);
    out->size -= c->sent;
    c->sent = 0;
}

static void write_client(client *c)
{
    buffer *out = &c->session.out;
    while (out->size && !c->ended) {
        ssize_t n = send(c->fd, out->text + c->sent, out->size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            c->ended = errno != EAGAIN && errno != EWOULDBLOCK;
            return;
        }
        c->sent += (size_t)n;
        forget_sent(c);
    }
}

/* After a change everybody who waits is asked, and then goes on with what stood behind the wait. */
static void wake_clients(store_server *s)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < s->n_clients; i++) {
            client *c = s->clients[i];
            if (c->ended || !store_session_wake(&c->session, &s->table)) continue;
            if (!store_session_run(&c->session, &s->table, &changed)) c->ended = true;
            write_client(c);
        }
    }
}

static void run_session(store_server *s, client *c)
{
    bool changed = false;
    if (!store_session_run(&c->session, &s->table, &changed)) c->ended = true;
    write_client(c);
    if (changed) wake_clients(s);
}

static void read_client(store_server *s, client *c)
{
    ssize_t n = recv(c->fd, s->piece, sizeof s->piece, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
        c->ended = true;
        return;
    }
    buffer *in = &c->session.in;
    if (in->size + (size_t)n > in->capacity && buffered(s) + 2 * in->capacity > BUFFER_BYTES) {
        c->ended = true;
        return;
    }
    buffer_add(in, s->piece, (size_t)n);
    run_session(s, c);
}

/* A client that does not read its replies, or that sends on while it waits, is not read. */
static bool takes_more(const client *c)
{
    const store_session *x = &c->session;
    if (x->out.size >= STORE_REPLY_BYTES) return false;
    return !x->waiting || x->in.size - x->taken < PIECE;
}

static void fill_polls(store_server *s)
{
    s->polls[0] = (struct pollfd){s->wake, POLLIN, 0};
    s->polls[1] = (struct pollfd){s->no_room ? -1 : s->listener, POLLIN, 0};
    for (size_t i = 0; i < s->n_clients; i++) {
        const client *c = s->clients[i];
        int events = (takes_more(c) ? POLLIN : 0) | (c->session.out.size ? POLLOUT : 0);
        s->polls[i + 2] = (struct pollfd){c->fd, (short)events, 0};
    }
}

static void serve_clients(store_server *s)
{
    size_t n = s->n_clients, kept = 0;
    for (size_t i = 0; i < n; i++) {
        client *c = s->clients[i];
        int ready = s->polls[i + 2].revents;
        if (ready & POLLOUT && !c->ended) {
            write_client(c);
            run_session(s, c); /* requests that waited for room */
        }
        if (ready & POLLIN && !c->ended) read_client(s, c);
        else if (ready & (POLLERR | POLLHUP | POLLNVAL)) c->ended = true;
    }
    for (size_t i = 0; i < s->n_clients; i++) {
        client *c = s->clients[i];
        if (!c->ended) s->clients[kept++] = c;
        else end_client(c);
    }
    atomic_fetch_sub(&s->n_open, (int)(s->n_clients - kept));
    s->n_clients = kept;
}

static void *serve(void *self)
{
    store_server *s = self;
    while (!atomic_load(&s->stop)) {
        fill_polls(s);
        int n = poll(s->polls, s->n_clients + 2, s->no_room ? PAUSE_MS : -1);
        s->no_room = false;
        if (n < 0) continue; /* interrupted */
        serve_clients(s);
        if (s->polls[1].revents & POLLIN) accept_clients(s);
    }
    return NULL;
}

/* Signals are the main thread's. */
static int start_thread(store_server *s)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int bad = pthread_create(&s->thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return bad;
}

nrl_status store_server_open(const char *address, int32_t port, store_server **out)
{
    int listener, bad = 0;
    int32_t bound;
    NRL_TRY(socket_listen(address, port, &listener, &bound));
    store_server *s = mem_alloc(sizeof *s);
    s->listener = listener;
    s->port = bound;
    s->capacity = 64;
    s->clients = mem_alloc(s->capacity * sizeof *s->clients);
    s->polls = mem_alloc((s->capacity + 2) * sizeof *s->polls);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake < 0) bad = errno;
    else bad = start_thread(s);
    if (!bad) {
        *out = s;
        return NRL_OK;
    }
    close(listener);
    if (s->wake >= 0) close(s->wake);
    free(s->clients);
    free(s->polls);
    free(s);
    return nrl_fail(NRL_ERR_IO, "starting the ranks' store: %s", strerror(bad));
}

int32_t store_server_port(const store_server *s)
{
    return s->port;
}

int32_t store_server_clients(store_server *s)
{
    return atomic_load(&s->n_open);
}

void store_server_close(store_server *s)
{
    if (!s) return;
    uint64_t one = 1;
    atomic_store(&s->stop, true);
    while (write(s->wake, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_join(s->thread, NULL);
    for (size_t i = 0; i < s->n_clients; i++)
        end_client(s->clients[i]);
    store_table_free(&s->table);
    close(s->listener);
    close(s->wake);
    free(s->clients);
    free(s->polls);
    free(s);
}
