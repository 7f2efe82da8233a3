/*
 * wire.h - the bytes that Gloo puts on a connection and into a store, in three dialects. Pure functions over
 * memory; everything that is sent or published is built here. All integers are little-endian except ports and
 * addresses inside a sockaddr, which are in network order.
 *
 *   dialect  speakers                            header  handshake  a rank publishes
 *   tcp22    Gloo to 2023-05, PyTorch <= 2.0     48      none       P-1 addresses, a port for each peer
 *   tcp23    Gloo since 2023-07, PyTorch >= 2.2  48      i64        one blob: host, address, P numbers
 *   uv       Gloo's libuv transport              32      i32        P-1 addresses, one port
 */
#ifndef GLOO_WIRE_H
#define GLOO_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct {
    const char *name;
    size_t header_size;
    size_t handshake_size; /* the connecting side writes first: its number at the peer */
    bool listener_per_peer;
    bool blob; /* published under "<rank>" only; otherwise "rank_<rank>" comes first */
} wire_dialect;

enum { WIRE_TCP22 = 0, WIRE_TCP23, WIRE_UV, WIRE_DIALECTS };
extern const wire_dialect wire_dialects[WIRE_DIALECTS];

/* ---- messages ---- */

enum {
    WIRE_HEADER_MAX = 48,
    WIRE_DATA = 1,       /* for the oldest posted receive of the slot, followed by its payload */
    WIRE_SEND_READY = 2, /* a send of `length` bytes is posted */
    WIRE_RECV_READY = 3  /* a receive of `length` bytes is posted: the peer may send */
};

typedef struct {
    uint64_t opcode, slot, length;
} wire_header;

void wire_header_put(const wire_dialect *d, const wire_header *h, uint8_t *out);
/* NULL, or a description of the error in the bytes. */
const char *wire_header_get(const wire_dialect *d, const uint8_t *in, wire_header *h);

/* Kinds of collectives; the upper half of the slot space is free for private use. */
enum {
    WIRE_GATHER = 1,
    WIRE_ALL_GATHER,
    WIRE_REDUCE,
    WIRE_ALL_REDUCE,
    WIRE_SCATTER,
    WIRE_BROADCAST,
    WIRE_BARRIER,
    WIRE_ALL_TO_ALL,
    WIRE_REDUCE_SCATTER = 0x40, /* nrl's own from here on */
    WIRE_POINT = 0x41,          /* send and recv inside a group; in the world: the bare tag */
    WIRE_GOODBYE = 0x7f         /* a SEND_READY of this kind is a leave message */
};
/* Gloo leaves the low 24 bits 0; nrl distinguishes groups by them. */
uint64_t wire_slot(unsigned kind, uint32_t tag, uint32_t group);

/* ---- what ranks publish ---- */

enum { WIRE_ADDRESS_SIZE = 136, WIRE_HOST_MAX = 255 };

/* The part of what rank `peer` published that rank `me` needs. */
typedef struct {
    struct sockaddr_storage address;
    int64_t number;  /* what to send when connecting to the peer; -1 if the dialect sends nothing */
    bool no_numbers; /* tcp23: the peer numbers by rank, and may connect late */
} wire_peer;

/* Bytes of the value that a rank publishes. */
size_t wire_value_size(const wire_dialect *d, int32_t world, const char *host);
/* addresses: [world] for tcp22 (own unused), else one; out: wire_value_size bytes. */
void wire_value_put(const wire_dialect *d, int32_t rank, int32_t world, const char *host,
                    const struct sockaddr_storage *addresses, uint8_t *out);
/* NULL, or a description of the error in the peer's value as seen by rank me. */
const char *wire_value_get(const wire_dialect *d, int32_t me, int32_t peer, int32_t world, const uint8_t *in,
                           size_t size, wire_peer *out);

/* Which side connects: > 0 the rank that published `mine`. Gloo compares the address bytes, then the ports
 * as raw memory read by a little-endian machine. */
int wire_compare(const struct sockaddr_storage *mine, const struct sockaddr_storage *theirs);

/* The number that rank `from` sends to identify itself. */
size_t wire_handshake_put(const wire_dialect *d, int64_t number, uint8_t *out);
int64_t wire_handshake_get(const wire_dialect *d, const uint8_t *in);

#endif
