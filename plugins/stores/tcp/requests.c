/*
 * requests.c - what each request to the store does, one function per request, and the table of
 * requests. session.c has checked that their arguments are complete and within bounds.
 */
#include "tcp.h"
#include "requests.h"
#include "wire.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    tcp_session *session;
    tcp_table *table;
    const char *at; /* the next argument */
    bool changed;
} call;

/* ---- arguments ---- */

static uint64_t take_u64(call *c)
{
    c->at += 8;
    return tcp_read_u64(c->at - 8);
}

static tcp_text take_text(call *c)
{
    tcp_text t = {c->at + 8, tcp_read_u64(c->at)};
    c->at = t.bytes + t.size;
    return t;
}

static void reply(call *c, const void *bytes, size_t size)
{
    buffer_add(&c->session->out, bytes, size);
}

static bool reply_byte(call *c, uint8_t byte)
{
    reply(c, &byte, 1);
    return true;
}

static bool reply_number(call *c, int64_t n)
{
    reply(c, &n, 8);
    return true;
}

static bool reply_text(call *c, tcp_text t)
{
    uint64_t n = t.size;
    reply(c, &n, 8);
    reply(c, t.bytes, t.size);
    return true;
}

/* ---- requests: false ends the session ---- */

static bool request_validate(call *c)
{
    uint32_t magic;
    memcpy(&magic, c->at, 4);
    if (c->session->validated || magic != STORE_MAGIC) return false;
    return c->session->validated = true;
}

static bool set(call *c, tcp_text key, tcp_text value, bool append)
{
    c->changed = true;
    return tcp_table_set(c->table, key, value, append);
}

/* SET has no reply, but a failure is not ignored. */
static bool request_set(call *c)
{
    const uint32_t full = STORE_FULL;
    tcp_text key = take_text(c), value = take_text(c);
    if (set(c, key, value, false)) return true;
    reply(c, &full, sizeof full);
    c->session->refused = true;
    return true;
}

static bool same_text(tcp_text a, tcp_text b)
{
    return a.size == b.size && !memcmp(a.bytes, b.bytes, a.size);
}

static bool request_compare_set(call *c)
{
    tcp_text key = take_text(c), expected = take_text(c), desired = take_text(c), now;
    bool there = tcp_table_value(c->table, key, &now);
    if (!there && expected.size) return reply_text(c, expected);
    if (there && !same_text(now, expected)) return reply_text(c, now);
    return set(c, key, desired, false) && reply_text(c, desired);
}

static bool request_get(call *c)
{
    tcp_text value = {"", 0};
    tcp_table_value(c->table, take_text(c), &value);
    return reply_text(c, value);
}

static bool request_add(call *c)
{
    int64_t sum;
    tcp_text key = take_text(c);
    if (!tcp_table_add(c->table, key, (int64_t)take_u64(c), &sum)) return false;
    c->changed = true;
    return reply_number(c, sum);
}

bool tcp_keys_there(const tcp_table *t, const char *keys, size_t n)
{
    call c = {.at = keys};
    for (size_t i = 0; i < n; i++)
        if (!tcp_table_is_there(t, take_text(&c))) return false;
    return true;
}

static bool request_check(call *c)
{
    uint64_t n = take_u64(c);
    return reply_byte(c, tcp_keys_there(c->table, c->at, n) ? STORE_CHECK_READY : STORE_CHECK_NOT_READY);
}

static bool start_waiting(call *c, const char *keys, size_t size, size_t n, int64_t barrier)
{
    tcp_session *s = c->session;
    s->waiting = true;
    s->barrier = barrier;
    s->n_wanted = n;
    s->wanted.size = 0;
    buffer_add(&s->wanted, keys, size);
    tcp_session_wake(s, c->table);
    return true;
}

static bool request_wait(call *c)
{
    uint64_t n = take_u64(c);
    const char *keys = c->at;
    for (uint64_t i = 0; i < n; i++)
        take_text(c);
    return start_waiting(c, keys, (size_t)(c->at - keys), n, 0);
}

static bool request_barrier(call *c)
{
    int64_t count;
    const char *key = c->at;
    tcp_text text = take_text(c);
    size_t size = (size_t)(c->at - key);
    int64_t world = (int64_t)take_u64(c);
    if (!tcp_table_add(c->table, text, 1, &count)) return false;
    c->changed = true;
    return start_waiting(c, key, size, 1, world > 0 ? world : 1);
}

static bool request_count(call *c)
{
    return reply_number(c, (int64_t)c->table->n_values);
}

static bool request_delete(call *c)
{
    return reply_number(c, tcp_table_delete(c->table, take_text(c)));
}

static bool request_append(call *c)
{
    tcp_text key = take_text(c), value = take_text(c), old;
    bool there = tcp_table_value(c->table, key, &old);
    if (there && old.size + value.size > NRL_STORE_MAX_VALUE) return false;
    return set(c, key, value, true);
}

/* Values and their number are bounded; the total is checked before each value. */
static bool request_multi_get(call *c)
{
    uint64_t n = take_u64(c);
    for (uint64_t i = 0; i < n; i++) {
        tcp_text value = {"", 0};
        tcp_table_value(c->table, take_text(c), &value);
        if (c->session->out.size > STORE_REQUEST_BYTES) return false;
        reply_text(c, value);
    }
    return true;
}

static bool request_multi_set(call *c)
{
    uint64_t n = take_u64(c);
    for (uint64_t i = 0; i < n; i++)
        if (!request_set(c) || c->session->refused) return true;
    return true;
}

static bool request_cancel(call *c)
{
    c->session->waiting = false;
    return reply_byte(c, STORE_WAIT_CANCELED);
}

static bool request_ping(call *c)
{
    reply(c, c->at, 4);
    return true;
}

static bool request_push(call *c)
{
    tcp_text key = take_text(c), value = take_text(c);
    c->changed = true;
    return tcp_table_push(c->table, key, value);
}

static int64_t queue_length(const call *c, tcp_text key)
{
    const tcp_entry *e = tcp_table_find(c->table, key);
    return e ? e->n_queued : 0;
}

static bool request_pop(call *c)
{
    tcp_text key = take_text(c);
    int64_t n = queue_length(c, key);
    char *bytes;
    size_t size;
    reply_number(c, n);
    if (!n) return true;
    if (!tcp_table_pop(c->table, key, &bytes, &size)) return false;
    reply_text(c, (tcp_text){bytes, size});
    free(bytes);
    return true;
}

static bool request_length(call *c)
{
    return reply_number(c, queue_length(c, take_text(c)));
}

static bool request_list(call *c)
{
    reply_number(c, (int64_t)c->table->n_values);
    for (size_t i = 0; i < c->table->n_slots; i++)
        for (const tcp_entry *e = c->table->slots[i]; e; e = e->next) {
            if (c->session->out.size > STORE_REQUEST_BYTES) return false;
            if (e->value) reply_text(c, (tcp_text){e->key, e->key_size});
        }
    return true;
}

/* The arguments: k key, v value, n 8 bytes, u 4 bytes; K, P: a count, then as many keys, or keys
 * and values. */
static const struct {
    const char *arguments;
    bool (*run)(call *c);
} requests[STORE_REQUESTS] = {
    [STORE_VALIDATE] = {"u", request_validate},
    [STORE_SET] = {"kv", request_set},
    [STORE_COMPARE_SET] = {"kvv", request_compare_set},
    [STORE_GET] = {"k", request_get},
    [STORE_ADD] = {"kn", request_add},
    [STORE_CHECK] = {"K", request_check},
    [STORE_WAIT] = {"K", request_wait},
    [STORE_GETNUMKEYS] = {"", request_count},
    [STORE_DELETE_KEY] = {"k", request_delete},
    [STORE_APPEND] = {"kv", request_append},
    [STORE_MULTI_GET] = {"K", request_multi_get},
    [STORE_MULTI_SET] = {"P", request_multi_set},
    [STORE_CANCEL_WAIT] = {"", request_cancel},
    [STORE_PING] = {"u", request_ping},
    [STORE_QUEUE_PUSH] = {"kv", request_push},
    [STORE_QUEUE_POP] = {"k", request_pop},
    [STORE_QUEUE_LEN] = {"k", request_length},
    [STORE_LIST_KEYS] = {"", request_list},
    [STORE_BARRIER] = {"kn", request_barrier},
};

const char *tcp_request_arguments(unsigned char code)
{
    return code < STORE_REQUESTS ? requests[code].arguments : NULL;
}

bool tcp_request_run(tcp_session *s, tcp_table *t, unsigned char code, const char *arguments, bool *changed)
{
    call c = {.session = s, .table = t, .at = arguments};
    bool fine = requests[code].run(&c);
    *changed |= c.changed;
    return fine;
}
