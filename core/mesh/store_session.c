/*
 * store_session.c - requests to answers. A first pass over the bytes finds a request's end by the
 * kinds of its arguments and checks every size; only then does its function run, on arguments that
 * are known to be there.
 */
#include "mesh/store_session.h"
#include "mesh/store.h"
#include "mesh/store_wire.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    store_session *session;
    store_table *table;
    const char *at; /* the next argument */
    bool changed;
} call;

/* ---- arguments ---- */

static uint64_t read_u64(const char *at)
{
    uint64_t n;
    memcpy(&n, at, 8);
    return n;
}

static uint64_t take_u64(call *c)
{
    c->at += 8;
    return read_u64(c->at - 8);
}

static store_text take_text(call *c)
{
    store_text t = {c->at + 8, read_u64(c->at)};
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

static bool reply_text(call *c, store_text t)
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

static bool set(call *c, store_text key, store_text value, bool append)
{
    c->changed = true;
    return store_table_set(c->table, key, value, append);
}

static bool request_set(call *c)
{
    store_text key = take_text(c), value = take_text(c);
    return set(c, key, value, false);
}

static bool same_text(store_text a, store_text b)
{
    return a.size == b.size && !memcmp(a.bytes, b.bytes, a.size);
}

static bool request_compare_set(call *c)
{
    store_text key = take_text(c), expected = take_text(c), desired = take_text(c), now;
    bool there = store_table_value(c->table, key, &now);
    if (!there && expected.size) return reply_text(c, expected);
    if (there && !same_text(now, expected)) return reply_text(c, now);
    return set(c, key, desired, false) && reply_text(c, desired);
}

static bool request_get(call *c)
{
    store_text value = {"", 0};
    store_table_value(c->table, take_text(c), &value);
    return reply_text(c, value);
}

static bool request_add(call *c)
{
    int64_t sum;
    store_text key = take_text(c);
    if (!store_table_add(c->table, key, (int64_t)take_u64(c), &sum)) return false;
    c->changed = true;
    return reply_number(c, sum);
}

static bool all_there(const store_table *t, const char *keys, size_t n)
{
    call c = {.at = keys};
    for (size_t i = 0; i < n; i++)
        if (!store_table_is_there(t, take_text(&c))) return false;
    return true;
}

static bool request_check(call *c)
{
    uint64_t n = take_u64(c);
    return reply_byte(c, all_there(c->table, c->at, n) ? STORE_CHECK_READY : STORE_CHECK_NOT_READY);
}

static bool start_waiting(call *c, const char *keys, size_t size, size_t n, int64_t barrier)
{
    store_session *s = c->session;
    s->waiting = true;
    s->barrier = barrier;
    s->n_wanted = n;
    s->wanted.size = 0;
    buffer_add(&s->wanted, keys, size);
    store_session_wake(s, c->table);
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
    store_text text = take_text(c);
    size_t size = (size_t)(c->at - key);
    int64_t world = (int64_t)take_u64(c);
    if (!store_table_add(c->table, text, 1, &count)) return false;
    c->changed = true;
    return start_waiting(c, key, size, 1, world > 0 ? world : 1);
}

static bool request_count(call *c)
{
    return reply_number(c, (int64_t)c->table->n_values);
}

static bool request_delete(call *c)
{
    return reply_number(c, store_table_delete(c->table, take_text(c)));
}

static bool request_append(call *c)
{
    store_text key = take_text(c), value = take_text(c), old;
    bool there = store_table_value(c->table, key, &old);
    if (there && old.size + value.size > STORE_MAX_VALUE) return false;
    return set(c, key, value, true);
}

/* Each reply is bounded, their number too; the sum is asked for first. */
static bool request_multi_get(call *c)
{
    uint64_t n = take_u64(c);
    for (uint64_t i = 0; i < n; i++) {
        store_text value = {"", 0};
        store_table_value(c->table, take_text(c), &value);
        if (c->session->out.size > STORE_REQUEST_BYTES) return false;
        reply_text(c, value);
    }
    return true;
}

static bool request_multi_set(call *c)
{
    uint64_t n = take_u64(c);
    for (uint64_t i = 0; i < n; i++)
        if (!request_set(c)) return false;
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
    store_text key = take_text(c), value = take_text(c);
    c->changed = true;
    return store_table_push(c->table, key, value);
}

static int64_t queue_length(const call *c, store_text key)
{
    const store_entry *e = store_table_find(c->table, key);
    return e ? e->n_queued : 0;
}

static bool request_pop(call *c)
{
    store_text key = take_text(c);
    int64_t n = queue_length(c, key);
    char *bytes;
    size_t size;
    reply_number(c, n);
    if (!n) return true;
    if (!store_table_pop(c->table, key, &bytes, &size)) return false;
    reply_text(c, (store_text){bytes, size});
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
        for (const store_entry *e = c->table->slots[i]; e; e = e->next) {
            if (c->session->out.size > STORE_REQUEST_BYTES) return false;
            if (e->value) reply_text(c, (store_text){e->key, e->key_size});
        }
    return true;
}

/* k key, v value, n 8 bytes, u 4 bytes; K, P: a count, then as many keys, or keys and values. */
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

/* ---- finding the end of a request ---- */

typedef enum { REQUEST_WHOLE, REQUEST_SHORT, REQUEST_BAD } request_state;

static request_state skip_text(const char **at, const char *end, uint64_t limit)
{
    if (end - *at < 8) return REQUEST_SHORT;
    uint64_t n = read_u64(*at);
    if (n > limit) return REQUEST_BAD;
    if ((uint64_t)(end - *at - 8) < n) return REQUEST_SHORT;
    *at += 8 + n;
    return REQUEST_WHOLE;
}

static request_state skip_bytes(const char **at, const char *end, ptrdiff_t n)
{
    if (end - *at < n) return REQUEST_SHORT;
    *at += n;
    return REQUEST_WHOLE;
}

static request_state skip_many(const char **at, const char *end, bool values)
{
    if (end - *at < 8) return REQUEST_SHORT;
    uint64_t n = read_u64(*at);
    if (n > STORE_MAX_KEYS) return REQUEST_BAD;
    *at += 8;
    request_state state = REQUEST_WHOLE;
    for (uint64_t i = 0; i < n && !state; i++) {
        state = skip_text(at, end, STORE_MAX_KEY);
        if (!state && values) state = skip_text(at, end, STORE_MAX_VALUE);
    }
    return state;
}

static request_state skip_request(const char **at, const char *end)
{
    unsigned char code = (unsigned char)*(*at)++;
    if (code >= STORE_REQUESTS) return REQUEST_BAD;
    request_state state = REQUEST_WHOLE;
    for (const char *kind = requests[code].arguments; *kind && !state; kind++)
        switch (*kind) {
        case 'k': state = skip_text(at, end, STORE_MAX_KEY); break;
        case 'v': state = skip_text(at, end, STORE_MAX_VALUE); break;
        case 'n': state = skip_bytes(at, end, 8); break;
        case 'u': state = skip_bytes(at, end, 4); break;
        default: state = skip_many(at, end, *kind == 'P'); break;
        }
    return state;
}

/* ---- the session ---- */

void store_session_free(store_session *s)
{
    buffer_free(&s->in);
    buffer_free(&s->out);
    buffer_free(&s->wanted);
}

/* What is done leaves the buffer once it is half of it, so that moving stays cheap. */
static void forget_taken(store_session *s)
{
    if (s->taken < s->in.size / 2 && s->taken < s->in.size) return;
    memmove(s->in.text, s->in.text + s->taken, s->in.size - s->taken);
    s->in.size -= s->taken;
    s->taken = 0;
}

bool store_session_run(store_session *s, store_table *t, bool *changed)
{
    while (s->taken < s->in.size && s->out.size < STORE_REPLY_BYTES) {
        const char *begin = s->in.text + s->taken, *at = begin, *end = s->in.text + s->in.size;
        unsigned char code = (unsigned char)*begin;
        if (s->waiting && code != STORE_CANCEL_WAIT) break;
        if (!s->validated && code != STORE_VALIDATE) return false;
        request_state state = skip_request(&at, end);
        if (state == REQUEST_BAD || s->in.size - s->taken > STORE_REQUEST_BYTES) return false;
        if (state == REQUEST_SHORT) break;
        call c = {.session = s, .table = t, .at = begin + 1};
        bool fine = requests[code].run(&c);
        *changed |= c.changed;
        if (!fine) return false;
        s->taken += (size_t)(at - begin);
    }
    if (s->in.size) forget_taken(s);
    return true;
}

static bool is_fulfilled(const store_session *s, const store_table *t)
{
    if (!s->barrier) return all_there(t, s->wanted.text, s->n_wanted);
    store_text key = {s->wanted.text + 8, read_u64(s->wanted.text)}, value;
    char number[24] = "";
    if (!store_table_value(t, key, &value) || value.size >= sizeof number) return false;
    memcpy(number, value.bytes, value.size);
    return strtoll(number, NULL, 10) >= s->barrier;
}

bool store_session_wake(store_session *s, const store_table *t)
{
    if (!s->waiting || !is_fulfilled(s, t)) return false;
    uint8_t stopped = STORE_WAIT_STOPPED;
    s->waiting = false;
    buffer_add(&s->out, (const char *)&stopped, 1);
    return true;
}
