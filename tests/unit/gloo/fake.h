/*
 * fake.h - a rank implemented by the test: it joins rank 0 through the store like a Gloo rank of
 * tcp23, and then sends arbitrary bytes over the socket.
 */
#ifndef GLOO_TEST_FAKE_H
#define GLOO_TEST_FAKE_H
#include "../../../plugins/collectives/gloo/wire.c"
#include "ranks.h"
#include <arpa/inet.h>
#include <poll.h>

/* Rank `me` of `world`; returns its connection to rank 0, which is told `number` (normally me) if this
 * side connects. `empty`: publishes no numbers, as ranks that connect late do. `more`: bytes behind a value. */
static inline int fake_join_with(nrl_store *store, int32_t me, int32_t world, bool empty, size_t more)
{
    const wire_dialect *d = &wire_dialects[WIRE_TCP23];
    struct sockaddr_storage mine = {0};
    struct sockaddr_in *in = (void *)&mine;
    socklen_t length = sizeof *in;
    uint8_t value[512] = {0}, number[8];
    char key[8];
    void *theirs;
    size_t size;
    wire_peer zero;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)in, sizeof *in) || listen(listener, 8) || getsockname(listener, (void *)in, &length))
        return -1;
    wire_value_put(d, me, world, "fake", &mine, value);
    snprintf(key, sizeof key, "%d", me);
    if (nrl_store_set(store, key, value, wire_value_size(d, world, "fake") - (empty ? 8 * (size_t)world : 0) + more))
        return -1;
    if (nrl_store_get(store, "0", 20, &theirs, &size)) return -1;
    bool fine = !wire_value_get(d, me, 0, world, theirs, size - more, &zero);
    free(theirs);
    if (!fine) return -1;
    if (wire_compare(&mine, &zero.address) > 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        wire_handshake_put(d, me, number);
        if (connect(fd, (void *)&zero.address, sizeof(struct sockaddr_in)) || write(fd, number, 8) != 8) return -1;
    } else {
        fd = accept(listener, NULL, NULL);
        if (fd < 0 || read(fd, number, 8) != 8) return -1;
    }
    close(listener);
    return fd;
}

static inline int fake_join(nrl_store *store, int32_t me, int32_t world, bool empty)
{
    return fake_join_with(store, me, world, empty, 0);
}

static inline void fake_say(int fd, uint64_t opcode, uint64_t slot, uint64_t length, const void *data)
{
    uint8_t h[48];
    const wire_header header = {opcode, slot, length};
    wire_header_put(&wire_dialects[WIRE_TCP23], &header, h);
    if (write(fd, h, 48) != 48) return;
    if (data && write(fd, data, length) != (ssize_t)length) return;
}

/* Reads one header within a minute. */
static inline bool fake_hear(int fd, wire_header *h)
{
    uint8_t b[48];
    size_t have = 0;
    while (have < 48) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 60000) != 1) return false;
        ssize_t n = read(fd, b + have, 48 - have);
        if (n <= 0) return false;
        have += (size_t)n;
    }
    return !wire_header_get(&wire_dialects[WIRE_TCP23], b, h);
}

#endif
