/*
 * wire.h - requests of torch.distributed's TCPStore as of torch 2.15. A request is one byte and its
 * arguments; integers are little-endian, a text is a u64 length and bytes; there is no framing.
 * Clients put "/" before every key except "init/", which counts the clients that joined.
 */
#ifndef TCP_WIRE_H
#define TCP_WIRE_H
#include <stdint.h>

enum {
    STORE_VALIDATE = 0,
    STORE_SET,
    STORE_COMPARE_SET,
    STORE_GET,
    STORE_ADD,
    STORE_CHECK,
    STORE_WAIT,
    STORE_GETNUMKEYS,
    STORE_DELETE_KEY,
    STORE_APPEND,
    STORE_MULTI_GET,
    STORE_MULTI_SET,
    STORE_CANCEL_WAIT,
    STORE_PING,
    STORE_QUEUE_PUSH,
    STORE_QUEUE_POP,
    STORE_QUEUE_LEN,
    STORE_LIST_KEYS,
    STORE_BARRIER,
    STORE_REQUESTS
};

/* The store of a job with a secret begins differently and accepts no VALIDATE:
 *   client  HELLO, nonce c [32]
 *   server  1, nonce s [32], proof of STORE_SERVER_LABEL over c and s; or 0: it has no secret
 *   client  PROOF, proof of STORE_CLIENT_LABEL over c and s
 *   server  1; or 0, and closes the connection
 * After that, requests are those above. The answer to a VALIDATE is STORE_REFUSAL in place of the
 * echo of PING. */
enum { STORE_HELLO = 0x40, STORE_PROOF = 0x41, STORE_HELLO_BYTES = 33, STORE_CHALLENGE_BYTES = 65 };
#define STORE_SERVER_LABEL "nrl store server"
#define STORE_CLIENT_LABEL "nrl store client"
#define STORE_REFUSAL 0x216c726eu /* "nrl!" */
/* Sent before the end of a session whose SET exceeded a limit; a client that sends a PING after its
 * SET reads this. */
#define STORE_FULL 0x6c6c7566u /* "full" */

#define STORE_MAGIC 0x3C85F7CEu /* VALIDATE's argument */
#define STORE_INIT_KEY "init/"
#define STORE_JOB_KEY "nrl-job" /* the job of the store; the server sets it */

enum { STORE_CHECK_READY = 0, STORE_CHECK_NOT_READY = 1, STORE_WAIT_STOPPED = 0, STORE_WAIT_CANCELED = 1 };

#endif
