/*
 * wire.c - see wire.h. Fields are written one by one, so that padding and byte order of this machine
 * never reach a message; tests/unit/gloo/test_wire.c has golden bytes.
 */
#include "wire.h"
#include <netinet/in.h>
#include <string.h>

const wire_dialect wire_dialects[WIRE_DIALECTS] = {
    [WIRE_TCP22] = {"tcp22", 48, 0, true, false},
    [WIRE_TCP23] = {"tcp23", 48, 8, false, true},
    [WIRE_UV] = {"uv", 32, 4, false, false},
};

static void put_u64(uint8_t *out, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_u64(const uint8_t *in)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)in[i] << (8 * i);
    return v;
}

/* tcp: nbytes opcode slot offset length roffset; uv: nbytes opcode slot length. The offsets belong to
 * opcode 0, which nrl does not use. */
void wire_header_put(const wire_dialect *d, const wire_header *h, uint8_t *out)
{
    bool tcp = d->header_size == 48;
    memset(out, 0, d->header_size);
    put_u64(out, d->header_size + (h->opcode == WIRE_DATA ? h->length : 0));
    put_u64(out + 8, h->opcode);
    put_u64(out + 16, h->slot);
    put_u64(out + (tcp ? 32 : 24), h->length);
}

const char *wire_header_get(const wire_dialect *d, const uint8_t *in, wire_header *h)
{
    uint64_t bytes = get_u64(in);
    h->opcode = get_u64(in + 8);
    h->slot = get_u64(in + 16);
    h->length = get_u64(in + (d->header_size == 48 ? 32 : 24));
    if (h->opcode < WIRE_DATA || h->opcode > WIRE_RECV_READY) return "an unknown kind of message";
    if (h->length > (uint64_t)INT64_MAX / 2) return "a message of an impossible length";
    if (bytes != d->header_size + (h->opcode == WIRE_DATA ? h->length : 0))
        return "a message whose lengths do not agree";
    return NULL;
}

uint64_t wire_slot(unsigned kind, uint32_t tag, uint32_t group)
{
    return ((uint64_t)kind << 56) | ((uint64_t)tag << 24) | (group & 0xffffffu);
}

/* ---- what ranks publish ---- */

/* 128 bytes of sockaddr_storage as Linux has it, then the number: i64, or i32 and 4 bytes unused.
 */
static void put_address(uint8_t *out, const struct sockaddr_storage *address, int64_t number, bool wide)
{
    memset(out, 0, WIRE_ADDRESS_SIZE);
    memcpy(out, address, 128);
    put_u64(out + 128, wide ? (uint64_t)number : (uint64_t)(uint32_t)number);
}

/* Reads only the fields of the family: the rest may be a peer's uninitialised memory. */
static const char *get_address(const uint8_t *in, struct sockaddr_storage *address)
{
    struct sockaddr_storage raw;
    memcpy(&raw, in, 128);
    memset(address, 0, sizeof *address);
    if (raw.ss_family == AF_INET) {
        memcpy(address, &raw, offsetof(struct sockaddr_in, sin_zero));
    } else if (raw.ss_family == AF_INET6) {
        memcpy(address, &raw, sizeof(struct sockaddr_in6));
    } else {
        return "an address that is neither IPv4 nor IPv6";
    }
    return NULL;
}

size_t wire_value_size(const wire_dialect *d, int32_t world, const char *host)
{
    if (!d->blob) return WIRE_ADDRESS_SIZE * (size_t)(world - 1);
    return 8 + strlen(host) + 8 + WIRE_ADDRESS_SIZE + 8 * (size_t)world;
}

void wire_value_put(const wire_dialect *d, int32_t rank, int32_t world, const char *host,
                    const struct sockaddr_storage *addresses, uint8_t *out)
{
    if (d->blob) {
        size_t n = strlen(host);
        put_u64(out, n);
        memcpy(out + 8, host, n);
        put_u64(out + 8 + n, WIRE_ADDRESS_SIZE);
        put_address(out + 16 + n, addresses, -1, true);
        for (int32_t i = 0; i < world; i++) /* numbers are ranks, which works with every mode of a Gloo peer */
            put_u64(out + 16 + n + WIRE_ADDRESS_SIZE + 8 * (size_t)i, (uint64_t)i);
        return;
    }
    int64_t number = 0;
    for (int32_t i = 0; i < world; i++) {
        if (i == rank) continue;
        put_address(out, d->listener_per_peer ? &addresses[i] : addresses, d->listener_per_peer ? -1 : number++,
                    d->listener_per_peer);
        out += WIRE_ADDRESS_SIZE;
    }
}

static const char *blob_get(int32_t me, int32_t world, const uint8_t *in, size_t size, wire_peer *out)
{
    static const char *const other = "a value of a dialect other than tcp23";
    if (size < 16 + WIRE_ADDRESS_SIZE) return other;
    uint64_t host = get_u64(in);
    if (host > size - 16 - WIRE_ADDRESS_SIZE) return other;
    if (get_u64(in + 8 + host) != WIRE_ADDRESS_SIZE) return other;
    size_t list = size - 16 - WIRE_ADDRESS_SIZE - (size_t)host;
    if (list != 0 && list != 8 * (size_t)world) return "a value for another number of ranks";
    const uint8_t *numbers = in + 16 + host + WIRE_ADDRESS_SIZE;
    out->no_numbers = list == 0;
    out->number = list ? (int64_t)get_u64(numbers + 8 * (size_t)me) : me;
    return get_address(in + 16 + host, &out->address);
}

const char *wire_value_get(const wire_dialect *d, int32_t me, int32_t peer, int32_t world, const uint8_t *in,
                           size_t size, wire_peer *out)
{
    memset(out, 0, sizeof *out);
    if (d->blob) return blob_get(me, world, in, size, out);
    if (size != wire_value_size(d, world, "")) return "a value of another dialect, or for another number of ranks";
    const uint8_t *mine = in + WIRE_ADDRESS_SIZE * (size_t)(me > peer ? me - 1 : me);
    out->number = d->handshake_size ? (int64_t)(int32_t)(uint32_t)get_u64(mine + 128) : -1;
    return get_address(mine, &out->address);
}

static int compare_port(in_port_t a, in_port_t b)
{
    uint8_t x[2], y[2];
    memcpy(x, &a, 2);
    memcpy(y, &b, 2);
    return (x[1] << 8 | x[0]) - (y[1] << 8 | y[0]);
}

int wire_compare(const struct sockaddr_storage *mine, const struct sockaddr_storage *theirs)
{
    int order;
    if (mine->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)mine, *b = (const void *)theirs;
        order = memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr);
        return order ? order : compare_port(a->sin6_port, b->sin6_port);
    }
    const struct sockaddr_in *a = (const void *)mine, *b = (const void *)theirs;
    order = memcmp(&a->sin_addr, &b->sin_addr, sizeof a->sin_addr);
    return order ? order : compare_port(a->sin_port, b->sin_port);
}

size_t wire_handshake_put(const wire_dialect *d, int64_t number, uint8_t *out)
{
    uint8_t wide[8];
    put_u64(wide, (uint64_t)number);
    memcpy(out, wide, d->handshake_size);
    return d->handshake_size;
}

int64_t wire_handshake_get(const wire_dialect *d, const uint8_t *in)
{
    uint8_t wide[8] = {0};
    memcpy(wide, in, d->handshake_size);
    uint64_t v = get_u64(wide);
    return d->handshake_size == 4 ? (int64_t)(int32_t)(uint32_t)v : (int64_t)v;
}
