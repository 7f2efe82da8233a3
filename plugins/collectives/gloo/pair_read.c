/*
 * pair_read.c - receives: headers through a small buffer; payload directly to its destination or, if
 * it is combined with local data, through a window that stays in cache. A peer's messages never cause
 * an allocation of their size: there must be a receive of that length.
 */
#include "gloo.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Counts n more payload bytes, in place or in the window, and ends the receive if it is complete. */
static void arrived(gloo_pair *p, size_t n)
{
    gloo_item *i = p->receiving;
    nrl_request *r = i->request;
    p->moved = engine_now();
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

/* Destination and size of the next payload bytes. */
static size_t place(gloo_pair *p, void **at)
{
    const gloo_item *i = p->receiving;
    size_t left = i->size - p->received - p->window_fill;
    if (i->request && !i->with) {
        *at = i->data + p->received;
        return left < PAIR_TURN ? left : PAIR_TURN;
    }
    if (!i->request) {
        *at = p->engine->dump;
        return left < sizeof p->engine->dump ? left : sizeof p->engine->dump;
    }
    *at = p->window + p->window_fill;
    return left < PAIR_WINDOW - p->window_fill ? left : PAIR_WINDOW - p->window_fill;
}

/* Allocates the window when the first sum needs it. */
static bool has_window(gloo_pair *p)
{
    const gloo_item *i = p->receiving;
    if (p->window || !i->with) return true;
    p->window = aligned_alloc(64, PAIR_WINDOW);
    if (!p->window) pair_lose(p, "cannot receive: out of memory");
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
    if (p->state == PAIR_OPEN && p->receiving && has_window(p) && !p->receiving->size) arrived(p, 0);
}

/* Consumes the buffer: headers, and payload that arrived with them. */
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

/* One read: the rest of a payload and, if it is requested whole, the buffer behind it. */
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
    while (p->state == PAIR_OPEN && turn < PAIR_TURN) {
        size_t asked, direct;
        ssize_t n = read_once(p, &asked, &direct);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0) {
            pair_failed(p, errno);
            return;
        }
        if (n == 0) {
            pair_closed(p);
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
