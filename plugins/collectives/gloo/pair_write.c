/*
 * pair_write.c - sends: a queue of messages to one rank; each write has as many as the socket accepts,
 * with payload taken directly from the user's memory.
 */
#include "gloo.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { IO_PARTS = 32 }; /* iovecs per write */

void pair_mark_dirty(gloo_pair *p)
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
    pair_mark_dirty(p);
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

static size_t add_part(struct iovec *at, void *base, size_t size, size_t *skip, size_t *bytes)
{
    if (*skip >= size) {
        *skip -= size;
        return 0;
    }
    at->iov_base = (char *)base + *skip;
    at->iov_len = size - *skip;
    *bytes += at->iov_len;
    *skip = 0;
    return 1;
}

/* The start of the queue, at most `limit` bytes. */
static size_t gather_out(const gloo_pair *p, struct iovec *parts, size_t limit, size_t *bytes)
{
    size_t n = 0, skip = p->out_offset;
    *bytes = 0;
    for (gloo_item *i = p->out.head; i && n + 2 <= IO_PARTS && *bytes < limit; i = i->next) {
        n += add_part(&parts[n], i->header, i->header_size, &skip, bytes);
        n += add_part(&parts[n], i->data, i->size, &skip, bytes);
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
    p->moved = engine_now();
    p->n_written += (int64_t)n;
    while (n > 0) {
        gloo_item *i = p->out.head;
        size_t left = i->header_size + i->size - p->out_offset;
        if (n < left) {
            p->out_offset += n;
            return;
        }
        n -= left;
        p->out_offset = 0;
        if (i->last) atomic_fetch_add_explicit(&p->engine->messages_sent, 1, memory_order_relaxed);
        queue_push(&p->written, queue_pop(&p->out));
    }
}

/* Counting a step may start others, fail requests and lose this pair. */
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
    while (p->state == PAIR_OPEN && !p->mute && p->out.head && turn < PAIR_TURN) {
        struct iovec parts[IO_PARTS] = {0};
        struct msghdr m = {.msg_iov = parts};
        size_t bytes, allowed = rate_allowance(e, PAIR_TURN);
        if (!allowed) return; /* the refill timer continues the write */
        m.msg_iovlen = gather_out(p, parts, allowed, &bytes);
        ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n < 0) {
            int error = errno;
            pair_read(p); /* the peer's last messages may give the reason */
            if (p->state == PAIR_OPEN) pair_failed(p, error);
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
    pair_watch(p);
}
