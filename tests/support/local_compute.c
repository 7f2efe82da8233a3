/*
 * local_compute.c - the operations of the local collective, with access to the memory of all ranks.
 * Reductions use a block of RUN elements, so that receive may equal send.
 */
#include "support/local_collective.h"
#include <string.h>

enum { RUN = 1024 };

/* ---- positions ---- */

static int64_t block_count(const nrl_comm_args *a, int32_t r)
{
    return a->counts ? a->counts[r] : a->count;
}

static size_t block_at(const nrl_comm_args *a, int32_t r)
{
    int64_t at = 0;
    if (a->offsets) return (size_t)a->offsets[r] * nrl_dtype_size(a->dtype);
    for (int32_t i = 0; i < r; i++)
        at += block_count(a, i);
    return (size_t)at * nrl_dtype_size(a->dtype);
}

static size_t block_bytes(const nrl_comm_args *a, int32_t r)
{
    return (size_t)block_count(a, r) * nrl_dtype_size(a->dtype);
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from) memmove(to, from, bytes);
}

/* ---- arithmetic ---- */

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, rest = h & 1023u;
    float small = (float)rest / 16777216.0f; /* 2^-24 */
    if (exponent == 0) return sign ? -small : small;
    if (exponent == 31) return from_bits(sign | 0x7f800000u | rest << 13);
    return from_bits(sign | (exponent + 112) << 23 | rest << 13);
}

/* Rounds to nearest, ties to even, and drops `drop` low bits. */
static uint32_t round_bits(uint32_t bits, int drop)
{
    uint32_t half = (1u << (drop - 1)) - 1 + ((bits >> drop) & 1u);
    return (bits + half) >> drop;
}

static uint16_t float_to_half(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) { /* below 2^-14: adding 0.5 leaves multiples of 2^-24 in the low bits */
        float shifted = from_bits(size) + 0.5f;
        memcpy(&bits, &shifted, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    return (uint16_t)(sign | round_bits(size - 0x38000000u, 13));
}

static float brain_to_float(uint16_t b)
{
    return from_bits((uint32_t)b << 16);
}

static uint16_t float_to_brain(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return 0x7fc0u;
    return (uint16_t)round_bits(bits, 16);
}

#define SAME(x) (x)
#define PAIR(reduce, a, b)                                                                                             \
    ((reduce) == NRL_REDUCE_OP_MAX       ? ((a) < (b) ? (b) : (a))                                                     \
     : (reduce) == NRL_REDUCE_OP_MIN     ? ((b) < (a) ? (b) : (a))                                                     \
     : (reduce) == NRL_REDUCE_OP_PRODUCT ? (a) * (b)                                                                   \
                                         : (a) + (b))
/* to[i] = to[i] (reduce) from[i]; integers wrap */
#define REDUCER(name, type, wide, get, put)                                                                            \
    static void reduce_##name(type *to, const type *from, int64_t n, uint32_t reduce)                                  \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            wide a = (wide)get(to[i]), b = (wide)get(from[i]);                                                         \
            to[i] = (type)put(PAIR(reduce, a, b));                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void divide_##name(type *to, int64_t n, int32_t by)                                                         \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            to[i] = (type)put((wide)get(to[i]) / (wide)by);                                                            \
    }
REDUCER(f32, float, float, SAME, SAME)
REDUCER(f64, double, double, SAME, SAME)
REDUCER(bf16, uint16_t, float, brain_to_float, float_to_brain)
REDUCER(f16, uint16_t, float, half_to_float, float_to_half)
REDUCER(i32, int32_t, int64_t, SAME, SAME)
REDUCER(i64, int64_t, int64_t, SAME, SAME)
REDUCER(u8, uint8_t, int64_t, SAME, SAME)

#define EACH_TYPE(f) f(F32, f32) f(F64, f64) f(BF16, bf16) f(F16, f16) f(I32, i32) f(I64, i64) f(U8, u8)

static void reduce_pair(uint32_t dtype, void *to, const void *from, int64_t n, uint32_t reduce)
{
#define CASE(DTYPE, name)                                                                                              \
    if (dtype == NRL_DTYPE_##DTYPE) reduce_##name(to, from, n, reduce);
    EACH_TYPE(CASE)
#undef CASE
}

static void divide(uint32_t dtype, void *to, int64_t n, int32_t by)
{
#define CASE(DTYPE, name)                                                                                              \
    if (dtype == NRL_DTYPE_##DTYPE) divide_##name(to, n, by);
    EACH_TYPE(CASE)
#undef CASE
}

/* Reduces n elements at byte `at` of every rank's send to byte `to_at` of the receive of rank `to`;
 * -1: of all ranks. */
static void reduce_span(int32_t size, const nrl_comm_args *o, size_t at, size_t to_at, int64_t n, int32_t to)
{
    double room[RUN]; /* aligned for any type */
    size_t width = nrl_dtype_size(o->dtype);
    for (int64_t done = 0; done < n; done += RUN) {
        int64_t some = n - done < RUN ? n - done : RUN;
        size_t skip = (size_t)done * width;
        memcpy(room, (const char *)o[0].send + at + skip, (size_t)some * width);
        for (int32_t r = 1; r < size; r++)
            reduce_pair(o->dtype, room, (const char *)o[r].send + at + skip, some, o->reduce);
        if (o->reduce == NRL_REDUCE_OP_AVERAGE) divide(o->dtype, room, some, size);
        for (int32_t r = 0; r < size; r++)
            if (to < 0 || to == r) memcpy((char *)o[r].receive + to_at + skip, room, (size_t)some * width);
    }
}

/* ---- operations ---- */

static void all_gather(int32_t size, const nrl_comm_args *o)
{
    for (int32_t from = 0; from < size; from++)
        for (int32_t to = 0; to < size; to++)
            copy((char *)o[to].receive + block_at(&o[to], from), o[from].send, block_bytes(&o[from], from));
}

static nrl_status all_to_all(int32_t size, const nrl_comm_args *o)
{
    for (int32_t from = 0; from < size; from++)
        for (int32_t to = 0; to < size; to++) {
            nrl_comm_args into = o[to];
            if (into.counts) {
                into.counts = into.receive_counts;
                into.offsets = into.receive_offsets;
            }
            if (block_count(&into, from) != block_count(&o[from], to))
                return nrl_fail(NRL_ERR_PEER, "all_to_all: rank %d sends %lld elements to rank %d, which expects %lld",
                                from, (long long)block_count(&o[from], to), to, (long long)block_count(&into, from));
            copy((char *)into.receive + block_at(&into, from), (const char *)o[from].send + block_at(&o[from], to),
                 block_bytes(&into, from));
        }
    return NRL_OK;
}

static void rooted(local_kind kind, int32_t size, const nrl_comm_args *o)
{
    const nrl_comm_args *root = &o[o->peer];
    for (int32_t r = 0; r < size; r++) {
        if (kind == LOCAL_BROADCAST) copy(o[r].receive, root->receive, block_bytes(root, r));
        if (kind == LOCAL_GATHER) copy((char *)root->receive + block_at(root, r), o[r].send, block_bytes(root, r));
        if (kind == LOCAL_SCATTER)
            copy(o[r].receive, (const char *)root->send + block_at(root, r), block_bytes(root, r));
    }
}

nrl_status local_compute(local_kind kind, int32_t size, const nrl_comm_args *o)
{
    switch (kind) {
    case LOCAL_ALL_REDUCE:
        reduce_span(size, o, 0, 0, o->count, -1);
        break;
    case LOCAL_REDUCE:
        reduce_span(size, o, 0, 0, o->count, o->peer);
        break;
    case LOCAL_REDUCE_SCATTER:
        for (int32_t r = 0; r < size; r++)
            reduce_span(size, o, block_at(o, r), 0, block_count(o, r), r);
        break;
    case LOCAL_ALL_GATHER:
        all_gather(size, o);
        break;
    case LOCAL_ALL_TO_ALL:
        return all_to_all(size, o);
    case LOCAL_BROADCAST:
    case LOCAL_GATHER:
    case LOCAL_SCATTER:
        rooted(kind, size, o);
        break;
    case LOCAL_BARRIER:
    case LOCAL_SPLIT:
        break;
    }
    return NRL_OK;
}
