/*
 * server.c - the sockets of a store: one thread, poll, a session for each connection. Connections
 * that have not sent a join request are limited: there are at most MAX_PENDING of them, for HELLO_S
 * seconds each, and the oldest one is closed if there is no room for another.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "socket.h"
#include "tcp.h"
#include "session.h"
#include "wire.h"
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

/* 64 KiB are read at a time. All buffers of all clients together have at most BUFFER_BYTES; a
 * client that exceeds the limit is dropped. */
enum { MAX_CLIENTS = 16384, PIECE = 64 << 10, BUFFER_BYTES = 512 << 20, PAUSE_MS = 100 };
/* A client sends its join request as soon as it is connected, so nearly all connections that are
 * accepted in one turn have joined by the next one. */
enum { MAX_PENDING = 256, ACCEPTED_A_TURN = 64 };
#define HELLO_S 10.0

typedef struct {
    int fd;
    bool ended;
    double join_request_until;
    size_t sent; /* bytes of session.out; less than half of it */
    tcp_session session;
} client;

struct tcp_server {
    int listener, wake;
    int32_t port;
    pthread_t thread;
    atomic_bool stop;
    atomic_int n_joined;
    /* used only by the thread */
    tcp_table table;
    client **clients;     /* in the order of their connection */
    struct pollfd *polls; /* [n_clients + 2] */
    size_t n_clients, capacity, n_pending;
    double join_request_until; /* the earliest deadline of pending clients */
    bool no_room;              /* no descriptor for another client is available: the listener pauses */
    bool no_room_reported, refusal_reported, full_reported;
    bool has_secret;
    secret_key secret;
    char piece[PIECE];
};

static void end_client(client *c)
{
    close(c->fd);
    tcp_session_free(&c->session);
    free(c);
}

/* Makes room: closes the pending connection that has been silent for the longest time. */
static void end_oldest_pending(tcp_server *s)
{
    for (size_t i = 0; i < s->n_clients; i++) {
        client *c = s->clients[i];
        if (c->session.validated || c->ended) continue;
        c->ended = true;
        shutdown(c->fd, SHUT_RDWR); /* its descriptor is closed with those of other ended sessions */
        s->n_pending--;
        return;
    }
}

static void add_client(tcp_server *s, int fd)
{
    if (s->n_clients == s->capacity) {
        s->capacity = s->capacity ? s->capacity * 2 : 64;
        s->clients = mem_realloc(s->clients, s->capacity * sizeof *s->clients);
        s->polls = mem_realloc(s->polls, (s->capacity + 2) * sizeof *s->polls);
    }
    socket_set_options(fd);
    client *c = mem_alloc(sizeof *c);
    c->fd = fd;
    c->join_request_until = clock_seconds() + HELLO_S;
    c->session.secret = s->has_secret ? &s->secret : NULL;
    s->clients[s->n_clients++] = c;
    s->n_pending++;
}

static void report_no_room(tcp_server *s)
{
    if (s->no_room_reported) return;
    s->no_room_reported = true;
    nrl_warn("the ranks' store cannot take another connection: %s\n"
             "hint: raise the limit of open files (ulimit -n)",
             strerror(errno));
}

static void accept_clients(tcp_server *s)
{
    for (int n = 0; n < ACCEPTED_A_TURN; n++) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        s->no_room = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
        if (s->no_room) {
            report_no_room(s);
            end_oldest_pending(s);
        }
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) return;
        if (s->n_clients >= MAX_CLIENTS) {
            close(fd);
            continue;
        }
        if (s->n_pending >= MAX_PENDING) end_oldest_pending(s);
        add_client(s, fd);
    }
}

static size_t buffered(const tcp_server *s)
{
    size_t sum = 0;
    for (size_t i = 0; i < s->n_clients; i++) {
        const tcp_session *x = &s->clients[i]->session;
        sum += x->in.capacity + x->out.capacity + x->wanted.capacity;
    }
    return sum;
}

/* Sent bytes are removed when they are half of the buffer, which limits the cost of moving the
 * rest. */
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

/* After a change, every waiting session is checked, and then continues with the requests after the
 * wait. */
static void wake_clients(tcp_server *s)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < s->n_clients; i++) {
            client *c = s->clients[i];
            if (c->ended || !tcp_session_wake(&c->session, &s->table)) continue;
            if (!tcp_session_run(&c->session, &s->table, &changed)) c->ended = true;
            write_client(c);
        }
    }
}

static void report_refusal(tcp_server *s, const client *c)
{
    char text[SOCKET_NAME];
    if (s->refusal_reported) return;
    s->refusal_reported = true;
    socket_peer_name(c->fd, text);
    nrl_warn("the ranks' store refused %s, which does not know the job's secret; further refusals are not printed",
             text);
}

static void report_full(tcp_server *s)
{
    if (s->full_reported || !s->table.refused) return;
    s->full_reported = true;
    nrl_warn("the ranks' store is full: %zu keys, %zu MiB; the limit is %d keys and %d MiB", s->table.n_entries,
             s->table.bytes >> 20, STORE_TABLE_KEYS, STORE_TABLE_BYTES >> 20);
}

static void run_session(tcp_server *s, client *c)
{
    bool changed = false;
    if (!tcp_session_run(&c->session, &s->table, &changed)) c->ended = true;
    write_client(c);
    if (changed) wake_clients(s);
    if (c->session.refused) {
        if (!c->session.validated) report_refusal(s, c);
        c->ended |= !c->session.out.size;
    }
    report_full(s);
}

static void read_client(tcp_server *s, client *c)
{
    size_t most = c->session.validated || !s->has_secret ? sizeof s->piece : STORE_HELLO_BYTES;
    ssize_t n = recv(c->fd, s->piece, most, 0);
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

/* A client that does not read its replies, or that sends more while it waits, is not read. */
static bool takes_more(const client *c)
{
    const tcp_session *x = &c->session;
    if (x->out.size >= STORE_REPLY_BYTES || x->refused) return false;
    return !x->waiting || x->in.size - x->taken < PIECE;
}

static void fill_polls(tcp_server *s)
{
    s->polls[0] = (struct pollfd){s->wake, POLLIN, 0};
    s->polls[1] = (struct pollfd){s->no_room ? -1 : s->listener, POLLIN, 0};
    for (size_t i = 0; i < s->n_clients; i++) {
        const client *c = s->clients[i];
        int events = (takes_more(c) ? POLLIN : 0) | (c->session.out.size ? POLLOUT : 0);
        s->polls[i + 2] = (struct pollfd){c->fd, (short)events, 0};
    }
}

static void serve_clients(tcp_server *s)
{
    size_t n = s->n_clients, kept = 0;
    for (size_t i = 0; i < n; i++) {
        client *c = s->clients[i];
        int ready = s->polls[i + 2].revents;
        if (ready & POLLOUT && !c->ended) {
            write_client(c);
            run_session(s, c); /* requests that waited for room */
        }
        if (ready & POLLIN && !c->ended)
            read_client(s, c);
        else if (ready & (POLLERR | POLLHUP | POLLNVAL))
            c->ended = true;
    }
    for (size_t i = 0; i < s->n_clients; i++) {
        client *c = s->clients[i];
        if (!c->ended)
            s->clients[kept++] = c;
        else
            end_client(c);
    }
    s->n_clients = kept;
}

/* Ends connections that did not join in time, and counts those that acted as ranks. */
static void count_clients(tcp_server *s)
{
    double now = clock_seconds();
    int joined = 0;
    s->n_pending = 0;
    for (size_t i = 0; i < s->n_clients; i++) {
        client *c = s->clients[i];
        joined += c->session.joined;
        if (c->session.validated) continue;
        if (now >= c->join_request_until) c->ended = true;
        if (!s->n_pending++) s->join_request_until = c->join_request_until;
    }
    atomic_store(&s->n_joined, joined);
}

static int wait_ms(const tcp_server *s)
{
    if (s->no_room) return PAUSE_MS;
    if (!s->n_pending) return -1;
    double left = s->join_request_until - clock_seconds();
    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

static void *serve(void *self)
{
    tcp_server *s = self;
    while (!atomic_load(&s->stop)) {
        fill_polls(s);
        int n = poll(s->polls, s->n_clients + 2, wait_ms(s));
        s->no_room = false;
        if (n < 0) continue; /* interrupted */
        bool more = s->polls[1].revents & POLLIN;
        serve_clients(s);
        if (more) accept_clients(s);
        count_clients(s);
    }
    return NULL;
}

/* Signals are handled by the main thread. */
static int start_thread(tcp_server *s)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int bad = pthread_create(&s->thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return bad;
}

/* Warns that any other machine can connect. */
static void warn_if_open(int listener)
{
    char text[SOCKET_NAME];
    if (socket_own_name(listener, text))
        nrl_warn("the ranks' store listens at %s without a secret: anybody who can reach it can join or end the run\n"
                 "hint: on every node set NRL_JOB_SECRET_FILE to a file of mode 600 that contains a secret",
                 text);
}

nrl_status tcp_server_open(const tcp_server_setup *setup, tcp_server **out)
{
    static const char job_key[] = "/" STORE_JOB_KEY;
    int listener, bad = 0;
    int32_t bound;
    const char *address = setup->address;
    /* Debian resolves the name of a host to 127.0.1.1, which no other machine can reach. */
    if (setup->other_machines && address && socket_is_loopback_name(address)) address = NULL;
    NRL_TRY(socket_listen(address, setup->port, &listener, &bound));
    if (!setup->secret) warn_if_open(listener);
    tcp_server *s = mem_alloc(sizeof *s);
    s->listener = listener;
    s->port = bound;
    s->has_secret = setup->secret != NULL;
    if (setup->secret) s->secret = *setup->secret;
    s->capacity = 64;
    s->clients = mem_alloc(s->capacity * sizeof *s->clients);
    s->polls = mem_alloc((s->capacity + 2) * sizeof *s->polls);
    if (setup->job)
        tcp_table_set(&s->table, (tcp_text){job_key, sizeof job_key - 1}, (tcp_text){setup->job, strlen(setup->job)},
                      false);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake < 0)
        bad = errno;
    else
        bad = start_thread(s);
    if (!bad) {
        *out = s;
        return NRL_OK;
    }
    close(listener);
    if (s->wake >= 0) close(s->wake);
    tcp_table_free(&s->table);
    free(s->clients);
    free(s->polls);
    free(s);
    return nrl_fail(NRL_ERR_IO, "starting the ranks' store: %s", strerror(bad));
}

int32_t tcp_server_port(const tcp_server *s)
{
    return s->port;
}

int32_t tcp_server_clients(tcp_server *s)
{
    return atomic_load(&s->n_joined);
}

void tcp_server_close(tcp_server *s)
{
    if (!s) return;
    uint64_t one = 1;
    atomic_store(&s->stop, true);
    while (write(s->wake, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_join(s->thread, NULL);
    for (size_t i = 0; i < s->n_clients; i++)
        end_client(s->clients[i]);
    tcp_table_free(&s->table);
    close(s->listener);
    close(s->wake);
    free(s->clients);
    free(s->polls);
    secret_wipe(&s->secret, sizeof s->secret);
    free(s);
}
