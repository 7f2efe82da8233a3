/*
 * pair.c - the connection to one rank. Outwards a queue of messages, written as many at a time as
 * the socket takes, payload from where the user has it. Inwards headers through a small stage;
 * payload goes to where it belongs, or, when it is to be added to something, through a window that
 * stays in cache. What a peer sends decides nothing about memory: there must be a receive of that
 * length.
 */
#include "gloo.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    IO_PARTS = 32,        /* iovecs of a write */
    IO_TURN = 1024 * 1024 /* bytes read or written before others have their turn */
};

/* ---- going ---- */

static void on_closed(uv_handle_t *handle)
{
    gloo_pair *p = handle->data;
    p->engine->n_handles--;
}

void pair_close(gloo_pair *p)
{
    if (p->fd < 0) return;
    uv_poll_stop(&p->poll);
    uv_close((uv_handle_t *)&p->poll, on_closed);
    close(p->fd);
    p->fd = -1;
    p->engine->changed = true;
}

void pair_blame(const gloo_pair *p)
{
    int none = -1;
    atomic_compare_exchange_strong(&p->engine->failed_peer, &none, p->rank);
}

/* `lost`: every call of a group with this rank fails; else those that still need it. */
static void end(gloo_pair *p, pair_state state, bool lost)
{
    gloo_engine *e = p->engine;
    bool hurt = lost;
    p->state = state;
    pair_close(p);
    for (nrl_request *r = e->live, *next; r; r = next) {
        next = r->next;
        if (!request_needs(r, p, lost)) continue;
        request_fail(r, NRL_ERR_PEER, "rank %d %s", p->rank, p->reason);
        next = e->live; /* the list changed */
        hurt = true;
    }
    if (hurt) pair_blame(p);
    slot_clear(p);
}

void pair_lose(gloo_pair *p, const char *fmt, ...)
{
    va_list a;
    if (p->state != PAIR_OPEN && p->state != PAIR_AWAITED) return;
    va_start(a, fmt);
    vsnprintf(p->reason, sizeof p->reason, fmt, a);
    va_end(a);
    end(p, PAIR_LOST, true);
}

static void watch(gloo_pair *p)
{
    int events = UV_READABLE | (p->blocked ? UV_WRITABLE : 0);
    if (p->state != PAIR_OPEN || events == p->events) return;
    p->events = events;
    p->engine->changed = true;
    uv_poll_start(&p->poll, events, p->poll.poll_cb);
}

void pair_mute(gloo_pair *p)
{
    for (nrl_request *r = p->engine->live, *next; r; r = next) {
        next = r->next;
        if (!request_needs(r, p, false)) continue;
        request_fail(r, NRL_ERR_PEER, "a message to rank %d was broken off", p->rank);
        next = p->engine->live;
    }
    for (gloo_item *i; (i = queue_pop(&p->out));)
        engine_item_free(p->engine, i);
    p->out_offset = 0;
    p->blocked = false;
    watch(p);
}

/* Gloo ranks leave without a word; only who still needs them is hurt. */
static void peer_closed(gloo_pair *p)
{
    bool orderly = p->goodbye || p->engine->options.peers == PEERS_GLOO;
    snprintf(p->reason, sizeof p->reason, "%s", p->goodbye ? "has left" : "closed the connection");
    end(p, p->goodbye ? PAIR_LEFT : PAIR_LOST, !orderly);
}

static void connection_failed(gloo_pair *p, int error)
{
    if (p->goodbye)
        peer_closed(p);
    else
        pair_lose(p, "lost the connection (%s)", strerror(error));
}

/* ---- outwards ---- */

static void mark_dirty(gloo_pair *p)
{
    if (p->dirty) return;
    p->dirty = true;
    p->next_dirty = p->engine->dirty;
    p->engine->dirty = p;
}

static void put_header(gloo_pair *p, gloo_item *i, uint64_t opcode, uint64_t slot, uint64_t length)
{
    const wire_header h = {opcode, slot, length};
    i->header_size = p->engine->dialect->header_size;
    wire_header_put(p->engine->dialect, &h, i->header);
    queue_push(&p->out, i);
    mark_dirty(p);
}

void pair_say(gloo_pair *p, uint64_t opcode, uint64_t slot, uint64_t length)
{
    gloo_item *i = engine_item(p->engine);
    if (!i) {
        p->mute = p->engine->muted = true;
        return;
    }
    i->request = NULL;
    i->size = 0;
    i->last = false;
    put_header(p, i, opcode, slot, length);
}

void pair_say_data(gloo_pair *p, uint64_t slot, gloo_item *send)
{
    send->last = true;
    put_header(p, send, WIRE_DATA, slot, send->size);
}

static size_t add_part(struct iovec *at, void *base, size_t size, size_t *skip)
{
    if (*skip >= size) {
        *skip -= size;
        return 0;
    }
    at->iov_base = (char *)base + *skip;
    at->iov_len = size - *skip;
    *skip = 0;
    return 1;
}

/* The start of the queue, at most `limit` bytes. */
static size_t gather_out(const gloo_pair *p, struct iovec *parts, size_t limit, size_t *bytes)
{
    size_t n = 0, skip = p->out_offset;
    *bytes = 0;
    for (gloo_item *i = p->out.head; i && n + 2 <= IO_PARTS && *bytes < limit; i = i->next) {
        size_t from = n;
        n += add_part(&parts[n], i->header, i->header_size, &skip);
        n += add_part(&parts[n], i->data, i->size, &skip);
        for (; from < n; from++)
            *bytes += parts[from].iov_len;
    }
    while (*bytes > limit) {
        size_t over = *bytes - limit, last = parts[n - 1].iov_len;
        size_t cut = over < last ? over : last;
        parts[n - 1].iov_len -= cut;
        *bytes -= cut;
        if (!parts[n - 1].iov_len) n--;
    }
    return n;
}

static void written(gloo_pair *p, size_t n)
{
    while (n > 0) {
        gloo_item *i = p->out.head;
        size_t left = i->header_size + i->size - p->out_offset;
        if (n < left) {
            p->out_offset += n;
            return;
        }
        n -= left;
        p->out_offset = 0;
        queue_push(&p->written, queue_pop(&p->out));
    }
}

/* A step that is counted may start others, fail requests and lose this pair. */
static void count_written(gloo_pair *p)
{
    for (gloo_item *i; (i = queue_pop(&p->written));) {
        nrl_request *r = i->last ? i->request : NULL;
        int64_t index = i->index;
        engine_item_free(p->engine, i);
        if (r) request_sent(r, index);
    }
}

void pair_flush(gloo_pair *p)
{
    gloo_engine *e = p->engine;
    size_t turn = 0;
    while (p->state == PAIR_OPEN && !p->mute && p->out.head && turn < IO_TURN) {
        struct iovec parts[IO_PARTS];
        struct msghdr m = {.msg_iov = parts};
        size_t bytes, allowed = rate_allowance(e, IO_TURN);
        if (!allowed) return; /* the refill comes back to it */
        m.msg_iovlen = gather_out(p, parts, allowed, &bytes);
        ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n < 0) {
            int error = errno;
            pair_read(p); /* its last words may say why */
            if (p->state == PAIR_OPEN) connection_failed(p, error);
            return;
        }
        rate_spend(e, (size_t)n);
        atomic_fetch_add_explicit(&e->bytes_sent, n, memory_order_relaxed);
        turn += (size_t)n;
        written(p, (size_t)n);
        count_written(p);
    }
    if (p->state != PAIR_OPEN || p->mute) return;
    p->blocked = p->out.head != NULL;
    watch(p);
}

/* ---- inwards ---- */

/* Counts n more bytes of the payload, in place or in the window, and ends the receive if that was
 * all. */
static void arrived(gloo_pair *p, size_t n)
{
    gloo_item *i = p->receiving;
    nrl_request *r = i->request;
    if (r && i->with) {
        p->window_fill += n;
        size_t whole = p->window_fill / r->element * r->element;
        r->combine(i->data + p->received, i->with + p->received, p->window, whole / r->element);
        p->received += whole;
        p->window_fill -= whole;
        if (p->window_fill) memmove(p->window, p->window + whole, p->window_fill);
    } else {
        p->received += n;
    }
    if (p->received < i->size) return;
    int64_t index = i->index;
    p->receiving = NULL;
    engine_item_free(p->engine, i);
    if (r) request_received(r, index);
}

/* Where the next bytes of the payload go, and how many. */
static size_t place(gloo_pair *p, void **at)
{
    const gloo_item *i = p->receiving;
    size_t left = i->size - p->received - p->window_fill;
    if (i->request && !i->with) {
        *at = i->data + p->received;
        return left < IO_TURN ? left : IO_TURN;
    }
    if (!i->request) {
        *at = p->engine->dump;
        return left < sizeof p->engine->dump ? left : sizeof p->engine->dump;
    }
    *at = p->window + p->window_fill;
    return left < PAIR_WINDOW - p->window_fill ? left : PAIR_WINDOW - p->window_fill;
}

/* A window is made when the first sum needs one. */
static bool has_window(gloo_pair *p)
{
    const gloo_item *i = p->receiving;
    if (p->window || !i->with) return true;
    p->window = aligned_alloc(64, PAIR_WINDOW);
    if (!p->window) pair_lose(p, "cannot be listened to: no memory");
    return p->window != NULL;
}

static void parse_header(gloo_pair *p)
{
    wire_header h;
    const char *wrong = wire_header_get(p->engine->dialect, p->stage + p->stage_at, &h);
    p->stage_at += p->engine->dialect->header_size;
    if (wrong) {
        pair_lose(p, "sent %s", wrong);
        return;
    }
    slot_message(p, &h);
    if (p->state == PAIR_OPEN && p->receiving && has_window(p) && !p->receiving->size)
        arrived(p, 0);
}

/* Uses up the stage: headers, and payload that came along. */
static void parse(gloo_pair *p)
{
    size_t header = p->engine->dialect->header_size;
    while (p->state == PAIR_OPEN) {
        size_t have = p->stage_end - p->stage_at;
        if (p->receiving) {
            void *at;
            size_t n = place(p, &at);
            if (!have) break;
            if (n > have) n = have;
            memcpy(at, p->stage + p->stage_at, n);
            p->stage_at += n;
            arrived(p, n);
        } else if (have >= header) {
            parse_header(p);
        } else {
            memmove(p->stage, p->stage + p->stage_at, have);
            p->stage_at = 0;
            p->stage_end = have;
            return;
        }
    }
    p->stage_at = p->stage_end = 0;
}

/* One read: what is left of a payload, and behind it, once all of it is asked for, the stage. */
static ssize_t read_once(gloo_pair *p, size_t *asked, size_t *direct)
{
    struct iovec parts[2];
    struct msghdr m = {.msg_iov = parts};
    *direct = 0;
    if (p->receiving) {
        *direct = parts[0].iov_len = place(p, &parts[0].iov_base);
        m.msg_iovlen = 1;
    }
    *asked = *direct;
    if (!p->receiving || p->received + p->window_fill + *direct == p->receiving->size) {
        struct iovec *stage = &parts[m.msg_iovlen++];
        stage->iov_base = p->stage + p->stage_end;
        stage->iov_len = PAIR_STAGE - p->stage_end;
        *asked += stage->iov_len;
    }
    return recvmsg(p->fd, &m, MSG_DONTWAIT);
}

void pair_read(gloo_pair *p)
{
    size_t turn = 0;
    while (p->state == PAIR_OPEN && turn < IO_TURN) {
        size_t asked, direct;
        ssize_t n = read_once(p, &asked, &direct);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0) {
            connection_failed(p, errno);
            return;
        }
        if (n == 0) {
            peer_closed(p);
            return;
        }
        atomic_fetch_add_explicit(&p->engine->bytes_received, n, memory_order_relaxed);
        turn += (size_t)n;
        size_t placed = (size_t)n < direct ? (size_t)n : direct;
        p->stage_end += (size_t)n - placed;
        if (placed) arrived(p, placed);
        parse(p);
        if ((size_t)n < asked) return;
    }
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    gloo_pair *p = poll->data;
    if (status < 0) { /* an error on the socket: libuv has stopped watching */
        for (int i = 0; i < 64 && p->state == PAIR_OPEN; i++)
            pair_read(p);
        if (p->state == PAIR_OPEN) connection_failed(p, -status);
        return;
    }
    if (events & UV_READABLE) pair_read(p);
    if (events & UV_WRITABLE) pair_flush(p);
}

nrl_status pair_open(gloo_pair *p, int fd)
{
    gloo_engine *e = p->engine;
    int one = 1, size = (int)e->options.socket_buffer * 1024;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (size) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    }
    int error = uv_poll_init(&e->loop, &p->poll, fd);
    if (error) {
        close(fd);
        return nrl_fail(NRL_ERR_PEER, "rank %d: cannot watch its connection: %s", p->rank,
                        uv_strerror(error));
    }
    e->n_handles++;
    p->fd = fd;
    p->poll.data = p;
    p->state = PAIR_OPEN;
    p->events = UV_READABLE;
    uv_poll_start(&p->poll, UV_READABLE, on_ready);
    if (p->out.head) mark_dirty(p); /* it came late */
    return NRL_OK;
}
