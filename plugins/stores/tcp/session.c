/*
 * session.c - splits the bytes of one connection into requests. A first pass finds the end of a
 * request from the types of its arguments and checks every size; only then does the function of the
 * request run (requests.c), with complete arguments.
 */
#include "tcp.h"
#include "requests.h"
#include "wire.h"
#include <stdlib.h>
#include <string.h>

/* ---- finding the end of a request ---- */

typedef enum { REQUEST_WHOLE, REQUEST_SHORT, REQUEST_BAD } request_state;

static request_state skip_text(const char **at, const char *end, uint64_t limit)
{
    if (end - *at < 8) return REQUEST_SHORT;
    uint64_t n = tcp_read_u64(*at);
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
    uint64_t n = tcp_read_u64(*at);
    if (n > NRL_STORE_MAX_KEYS) return REQUEST_BAD;
    *at += 8;
    request_state state = REQUEST_WHOLE;
    for (uint64_t i = 0; i < n && !state; i++) {
        state = skip_text(at, end, NRL_STORE_MAX_KEY);
        if (!state && values) state = skip_text(at, end, NRL_STORE_MAX_VALUE);
    }
    return state;
}

static request_state skip_request(const char **at, const char *end)
{
    const char *kind = tcp_request_arguments((unsigned char)*(*at)++);
    if (!kind) return REQUEST_BAD;
    request_state state = REQUEST_WHOLE;
    for (; *kind && !state; kind++)
        switch (*kind) {
        case 'k':
            state = skip_text(at, end, NRL_STORE_MAX_KEY);
            break;
        case 'v':
            state = skip_text(at, end, NRL_STORE_MAX_VALUE);
            break;
        case 'n':
            state = skip_bytes(at, end, 8);
            break;
        case 'u':
            state = skip_bytes(at, end, 4);
            break;
        default:
            state = skip_many(at, end, *kind == 'P');
            break;
        }
    return state;
}

/* ---- the join request for a job with a secret ---- */

static void reply(tcp_session *s, const void *bytes, size_t size)
{
    buffer_add(&s->out, bytes, size);
}

static void refuse(tcp_session *s, const void *words, size_t size)
{
    s->refused = true;
    reply(s, words, size);
}

static void challenge(tcp_session *s, const char *nonce)
{
    static const unsigned char yes = 1, no = 0;
    unsigned char proof[SECRET_PROOF];
    if (!s->secret) {
        refuse(s, &no, 1);
        return;
    }
    memcpy(s->nonces, nonce, SECRET_NONCE);
    secret_random(s->nonces + SECRET_NONCE, SECRET_NONCE);
    secret_prove(s->secret, STORE_SERVER_LABEL, s->nonces, sizeof s->nonces, proof);
    reply(s, &yes, 1);
    reply(s, s->nonces + SECRET_NONCE, SECRET_NONCE);
    reply(s, proof, sizeof proof);
    s->challenged = true;
}

static void check_proof(tcp_session *s, const char *proof)
{
    static const unsigned char yes = 1, no = 0;
    s->validated =
        secret_verify(s->secret, STORE_CLIENT_LABEL, s->nonces, sizeof s->nonces, (const unsigned char *)proof);
    if (s->validated)
        reply(s, &yes, 1);
    else
        refuse(s, &no, 1);
}

/* HELLO, PROOF, or a VALIDATE, which is not sufficient; advances *at. */
static request_state take_join_request(tcp_session *s, const char **at, const char *end)
{
    const uint32_t refusal = STORE_REFUSAL;
    unsigned char code = (unsigned char)**at;
    if (code == STORE_VALIDATE) {
        refuse(s, &refusal, sizeof refusal);
        return REQUEST_WHOLE;
    }
    if (code != (s->challenged ? STORE_PROOF : STORE_HELLO)) return REQUEST_BAD;
    if (end - *at < STORE_HELLO_BYTES) return REQUEST_SHORT;
    if (s->challenged)
        check_proof(s, *at + 1);
    else
        challenge(s, *at + 1);
    *at += STORE_HELLO_BYTES;
    return REQUEST_WHOLE;
}

/* ---- the session ---- */

void tcp_session_free(tcp_session *s)
{
    buffer_free(&s->in);
    buffer_free(&s->out);
    buffer_free(&s->wanted);
}

/* Processed bytes are removed when they are half of the buffer, which limits the cost of moving the
 * rest. */
static void forget_taken(tcp_session *s)
{
    if (s->taken < s->in.size / 2 && s->taken < s->in.size) return;
    memmove(s->in.text, s->in.text + s->taken, s->in.size - s->taken);
    s->in.size -= s->taken;
    s->taken = 0;
}

/* Runs the request at *at and advances *at; REQUEST_BAD ends the session. */
static request_state run_request(tcp_session *s, tcp_table *t, const char **at, const char *end, bool *changed)
{
    const char *begin = *at;
    unsigned char code = (unsigned char)*begin;
    if (!s->validated && (s->secret || code != STORE_VALIDATE)) return take_join_request(s, at, end);
    request_state state = skip_request(at, end);
    if (state == REQUEST_SHORT && end - begin > STORE_REQUEST_BYTES) return REQUEST_BAD;
    if (state) return state;
    s->joined |= code != STORE_VALIDATE && code != STORE_PING;
    return tcp_request_run(s, t, code, begin + 1, changed) ? REQUEST_WHOLE : REQUEST_BAD;
}

bool tcp_session_run(tcp_session *s, tcp_table *t, bool *changed)
{
    while (s->taken < s->in.size && s->out.size < STORE_REPLY_BYTES && !s->refused) {
        const char *begin = s->in.text + s->taken, *at = begin;
        if (s->waiting && (unsigned char)*begin != STORE_CANCEL_WAIT) break;
        request_state state = run_request(s, t, &at, s->in.text + s->in.size, changed);
        if (state == REQUEST_BAD) return false;
        if (state == REQUEST_SHORT) break;
        s->taken += (size_t)(at - begin);
    }
    if (s->in.size) forget_taken(s);
    return true;
}

static bool is_fulfilled(const tcp_session *s, const tcp_table *t)
{
    if (!s->barrier) return tcp_keys_there(t, s->wanted.text, s->n_wanted);
    tcp_text key = {s->wanted.text + 8, tcp_read_u64(s->wanted.text)}, value;
    char number[24] = "";
    if (!tcp_table_value(t, key, &value) || value.size >= sizeof number) return false;
    memcpy(number, value.bytes, value.size);
    return strtoll(number, NULL, 10) >= s->barrier;
}

bool tcp_session_wake(tcp_session *s, const tcp_table *t)
{
    if (!s->waiting || !is_fulfilled(s, t)) return false;
    uint8_t stopped = STORE_WAIT_STOPPED;
    s->waiting = false;
    buffer_add(&s->out, (const char *)&stopped, 1);
    return true;
}
