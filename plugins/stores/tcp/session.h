/*
 * session.h - one client of the server, without its socket: bytes in, bytes out. Nothing that a
 * client sends is trusted: sizes are checked before anything is stored, and a violation of the
 * protocol ends the session. A session that is not `validated` can only send its join request, of
 * at most STORE_HELLO_BYTES at a time; it can neither read nor change the table. One thread.
 */
#ifndef TCP_SESSION_H
#define TCP_SESSION_H
#include "base/buffer.h"
#include "base/secret.h"
#include "table.h"

/* A request with all its arguments has at most STORE_REQUEST_BYTES; a session with more than
 * STORE_REPLY_BYTES unread replies accepts no further request. */
enum { STORE_REQUEST_BYTES = 64 << 20, STORE_REPLY_BYTES = 16 << 20 };

typedef struct {
    buffer in, out;
    size_t taken;                           /* bytes of `in` that were processed */
    const secret_key *secret;               /* the server's secret; NULL = no secret is required */
    unsigned char nonces[2 * SECRET_NONCE]; /* after the challenge: the nonce of the client, then that of the server */
    bool challenged;
    bool validated;  /* VALIDATE or a valid proof was received */
    bool refused;    /* a proof was wrong or missing, or a SET exceeded a limit: the session ends when `out` is sent */
    bool joined;     /* a request other than VALIDATE and PING was received: the client is a rank or acts like one */
    bool waiting;    /* a WAIT or BARRIER is open; until it ends, only CANCEL_WAIT is processed */
    int64_t barrier; /* BARRIER: the value that the counter must reach; 0 = a WAIT */
    buffer wanted;   /* the keys of the open request as they were received: for each, a u64 size and bytes */
    size_t n_wanted;
} tcp_session;

void tcp_session_free(tcp_session *s);
/* Answers every complete request in `in`. false: end the session. *changed: keys were set, so other
 * sessions may wake. */
bool tcp_session_run(tcp_session *s, tcp_table *t, bool *changed);
/* Answers the open WAIT or BARRIER if it is fulfilled; returns whether it did. */
bool tcp_session_wake(tcp_session *s, const tcp_table *t);

#endif
