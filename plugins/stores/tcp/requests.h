/*
 * requests.h - requests by their code: their arguments, and their execution. For session.c.
 */
#ifndef TCP_REQUESTS_H
#define TCP_REQUESTS_H
#include "session.h"
#include <string.h>

static inline uint64_t tcp_read_u64(const char *at)
{
    uint64_t n;
    memcpy(&n, at, 8);
    return n;
}

/* The arguments of a request: k key, v value, n 8 bytes, u 4 bytes; K, P: a count, then as many
 * keys, or keys and values. NULL: there is no request with this code. */
const char *tcp_request_arguments(unsigned char code);
/* Runs a request with complete arguments; sets *changed if it changed the table. False ends the
 * session. */
bool tcp_request_run(tcp_session *s, tcp_table *t, unsigned char code, const char *arguments, bool *changed);
/* Whether each of n keys, encoded as in a request, has a value. */
bool tcp_keys_there(const tcp_table *t, const char *keys, size_t n);

#endif
