/*
 * pair.c - the connection to one rank: opened, watched and closed. pair_write.c sends, pair_read.c
 * receives.
 */
#include "gloo.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SILENCE_S 8.0 /* more than five missed heartbeats, after which an unreachable rank is lost anyway */
enum { SILENCE_RETRIES = 5 };

/* ---- closing ---- */

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

/* `lost`: every call of a group with this rank fails; otherwise only calls that still need it. */
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

void pair_watch(gloo_pair *p)
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
        request_fail(r, NRL_ERR_PEER, "a message to rank %d was cut off", p->rank);
        next = p->engine->live;
    }
    for (gloo_item *i; (i = queue_pop(&p->out));)
        engine_item_free(p->engine, i);
    p->out_offset = 0;
    p->blocked = false;
    pair_watch(p);
}

/* Gloo's ranks leave without a message; only requests that still need them fail. */
void pair_closed(gloo_pair *p)
{
    bool orderly = p->has_left || p->engine->options.peers == PEERS_GLOO;
    snprintf(p->reason, sizeof p->reason, "%s", p->has_left ? "has left" : "closed the connection");
    end(p, p->has_left ? PAIR_LEFT : PAIR_LOST, !orderly);
}

void pair_failed(gloo_pair *p, int error)
{
    if (p->has_left)
        pair_closed(p);
    else
        pair_lose(p, "lost the connection (%s)", strerror(error));
}

/* ---- opening ---- */

static void on_ready(uv_poll_t *poll, int status, int events)
{
    gloo_pair *p = poll->data;
    if (status < 0) { /* an error on the socket: libuv has stopped watching it */
        for (int i = 0; i < 64 && p->state == PAIR_OPEN; i++)
            pair_read(p);
        if (p->state == PAIR_OPEN) pair_failed(p, -status);
        return;
    }
    if (events & UV_READABLE) pair_read(p);
    if (events & UV_WRITABLE) pair_flush(p);
}

/* TCP_USER_TIMEOUT is not used: it counts from the first retransmission of a series, even while later data is
 * acknowledged, and on a path with a delay of 200 ms its last retransmission is the third one. */
void pair_check_acknowledged(gloo_pair *p, double now)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    int waiting = 0; /* bytes that the peer has not acknowledged */
    if (p->state != PAIR_OPEN || ioctl(p->fd, TIOCOUTQ, &waiting) ||
        getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &size))
        return;
    const int64_t acknowledged = p->n_written - waiting;
    if (!waiting || acknowledged != p->acknowledged) {
        p->acknowledged = acknowledged;
        p->acknowledged_at = now;
    } else if (now - p->acknowledged_at >= SILENCE_S && info.tcpi_retransmits >= SILENCE_RETRIES) {
        pair_lose(p, "acknowledged nothing for %g s", now - p->acknowledged_at);
    }
}

nrl_status pair_open(gloo_pair *p, int fd)
{
    gloo_engine *e = p->engine;
    int one = 1, size = (int)e->options.socket_buffer * 1024;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* small messages are sent again at a constant interval: the ranks wait for them */
    setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &one, sizeof one);
    if (size) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    }
    int error = uv_poll_init(&e->loop, &p->poll, fd);
    if (error) {
        close(fd);
        return nrl_fail(NRL_ERR_PEER, "cannot watch the connection to rank %d: %s", p->rank, uv_strerror(error));
    }
    e->n_handles++;
    p->fd = fd;
    p->poll.data = p;
    p->state = PAIR_OPEN;
    p->events = UV_READABLE;
    uv_poll_start(&p->poll, UV_READABLE, on_ready);
    if (p->out.head) pair_mark_dirty(p); /* the pair opened late */
    return NRL_OK;
}
