/*
 * session.h - one client of the server, without its socket: bytes in, bytes out. Nothing that a
 * client sends is believed: sizes are checked before anything is kept, and what breaks the protocol
 * ends the session. A session that is not `validated` has no request but its join_request, of at most
 * STORE_HELLO_BYTES at a time: the table cannot be seen or changed by it. One thread.
 */
#ifndef TCP_SESSION_H
#define TCP_SESSION_H
#include "base/buffer.h"
#include "base/secret.h"
#include "table.h"

/* A request with all its arguments has at most STORE_REQUEST_BYTES; a session with more than
 * STORE_REPLY_BYTES unread takes no further request. */
enum { STORE_REQUEST_BYTES = 64 << 20, STORE_REPLY_BYTES = 16 << 20 };

typedef struct {
    buffer in, out;
    size_t taken;                           /* bytes of `in` that are done */
    const secret_key *secret;               /* the server's; NULL = none is asked for */
    unsigned char nonces[2 * SECRET_NONCE]; /* once challenged: the client's, the server's */
    bool challenged;
    bool validated;  /* VALIDATE came, or the proof */
    bool refused;    /* a proof was wrong or missing, or a SET found no room: ends when `out` is sent */
    bool joined;     /* a request beside VALIDATE and PING came: a rank, or one that acts as one */
    bool waiting;    /* a WAIT or BARRIER is open; only CANCEL_WAIT is looked at until it ends */
    int64_t barrier; /* BARRIER: what the counter must granularity; 0 = a WAIT */
    buffer wanted;   /* the open request's keys, as they came: u64 size and bytes each */
    size_t n_wanted;
} tcp_session;

void tcp_session_free(tcp_session *s);
/* Answers every complete request of `in`. false: end the session. *changed: keys were set, so others
 * may wake. */
bool tcp_session_run(tcp_session *s, tcp_table *t, bool *changed);
/* Answers the open WAIT or BARRIER if it is fulfilled; true if so. */
bool tcp_session_wake(tcp_session *s, const tcp_table *t);

#endif
