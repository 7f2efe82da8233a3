/*
 * requests.h - requests by their code: what arguments they have, and what they do. For
 * session.c.
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

/* k key, v value, n 8 bytes, u 4 bytes; K, P: a count, then as many keys, or keys and values. NULL: there is no
 * such request. */
const char *tcp_request_arguments(unsigned char code);
/* Runs a request whose arguments are all there; sets *changed where the table is another now. False ends
 * the session. */
bool tcp_request_run(tcp_session *s, tcp_table *t, unsigned char code, const char *arguments, bool *changed);
/* Whether each of n keys, as they stand in a request, has a value. */
bool tcp_keys_there(const tcp_table *t, const char *keys, size_t n);

#endif
