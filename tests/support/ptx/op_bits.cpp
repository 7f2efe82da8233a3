/*
 * op_bits.cpp - PTX ISA, "Logic and shift instructions", bit fields and counts of "Integer arithmetic",
 * prmt.
 */
#include "ops.h"
#include <type_traits>

namespace ptx
{
struct and_op {
    template <class T> static T of(T a, T b)
    {
        return a & b;
    }
};
struct or_op {
    template <class T> static T of(T a, T b)
    {
        return a | b;
    }
};
struct xor_op {
    template <class T> static T of(T a, T b)
    {
        return a ^ b;
    }
};
struct not_op {
    template <class T> static T of(T a)
    {
        return (T)~a;
    }
};

/* Predicates: 32 lanes in a word. */
template <class Op> static void predicates(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    *d = (*d & ~mask) | (Op::of(*place<uint32_t>(w, in, 1), *place<uint32_t>(w, in, 2)) & mask);
}
static void predicate_not(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    *d = (*d & ~mask) | (~*place<uint32_t>(w, in, 1) & mask);
}

template <class Op> static void build_logic(builder &b)
{
    type t = b.take_type();
    if (t.kind == 'p') {
        b.predicate_result(b.at(0));
        b.predicate_source(b.at(1));
        b.predicate_source(b.at(2));
        b.in.run = predicates<Op>;
        return;
    }
    t.kind = 'u';
    need(b, of_integer(t, [](auto x) -> handler { return binary<decltype(x), Op>; }));
    same_type(b, t);
}

static void build_not(builder &b)
{
    type t = b.take_type();
    if (t.kind == 'p') {
        b.predicate_result(b.at(0));
        b.predicate_source(b.at(1));
        b.in.run = predicate_not;
        return;
    }
    t.kind = 'u';
    need(b, of_integer(t, [](auto x) -> handler { return unary<decltype(x), not_op>; }));
    same_type(b, t);
}

/* "Shift amounts greater than the register width N are clamped to N." */
template <class T, bool LEFT> static void shift(warp &w, const instruction &in, uint32_t mask)
{
    T *d = place<T>(w, in, 0);
    const T *a = place<T>(w, in, 1);
    const uint32_t *by = place<uint32_t>(w, in, 2), N = 8 * sizeof(T);
    each_lane(mask, [=](int l) {
        if (LEFT)
            d[l] = by[l] >= N ? (T)0 : (T)((uint64_t)a[l] << by[l]);
        else
            d[l] = by[l] >= N ? (T)(a[l] < 0 ? -1 : 0) : (T)(a[l] >> by[l]);
    });
}

template <bool LEFT> static void build_shift(builder &b)
{
    type t = b.take_type(), by = {'u', 4};
    if (LEFT) t.kind = 'u';
    need(b, of_integer(t, [](auto x) -> handler { return shift<decltype(x), LEFT>; }));
    b.result(b.at(0), t.bytes);
    b.source(b.at(1), t);
    b.source(b.at(2), by);
}

/* shf: 64 bits [b, a] shifted. small[0]: left; small[1]: wrap. */
static void funnel(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    const uint32_t *a = place<uint32_t>(w, in, 1), *b = place<uint32_t>(w, in, 2), *c = place<uint32_t>(w, in, 3);
    each_lane(mask, [&](int l) {
        uint32_t n = in.small[1] ? c[l] & 31 : c[l] < 32 ? c[l] : 32;
        uint64_t both = (uint64_t)b[l] << 32 | a[l];
        d[l] = in.small[0] ? (uint32_t)(both << n >> 32) : n == 64 ? 0 : (uint32_t)(both >> n);
    });
}

static void build_funnel(builder &b)
{
    b.in.small[0] = b.take_one_of({"r", "l"}) == 1;
    b.in.small[1] = b.take_one_of({"clamp", "wrap"}) == 1;
    b.in.run = funnel;
    same_type(b, b.take_type());
}

/* d: bit i from the table at a, b, c; PTX ISA, "lop3". */
static void lop3(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    const uint32_t *a = place<uint32_t>(w, in, 1), *b = place<uint32_t>(w, in, 2), *c = place<uint32_t>(w, in, 3);
    each_lane(mask, [&](int l) {
        uint32_t out = 0;
        for (int row = 0; row < 8; row++)
            if (in.small[0] >> row & 1)
                out |= (row & 4 ? a[l] : ~a[l]) & (row & 2 ? b[l] : ~b[l]) & (row & 1 ? c[l] : ~c[l]);
        d[l] = out;
    });
}

static void build_lop3(builder &b)
{
    type t = b.take_type();
    if (b.count() != 5) b.unknown();
    b.result(b.at(0), t.bytes);
    for (size_t k = 1; k < 4; k++)
        b.source(b.at(k), t);
    b.in.small[0] = (uint8_t)b.number(b.at(4));
    b.in.run = lop3;
}

/* prmt, default mode: byte i of d is byte c[4i+2:4i] of {b, a}, or, with c[4i+3], its sign repeated. */
static void permute(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    const uint32_t *a = place<uint32_t>(w, in, 1), *b = place<uint32_t>(w, in, 2), *c = place<uint32_t>(w, in, 3);
    each_lane(mask, [&](int l) {
        uint64_t both = (uint64_t)b[l] << 32 | a[l];
        uint32_t out = 0;
        for (int i = 0; i < 4; i++) {
            uint32_t pick = c[l] >> (4 * i) & 15, byte = (uint32_t)(both >> (8 * (pick & 7))) & 255;
            if (pick & 8) byte = byte & 128 ? 255 : 0;
            out |= byte << (8 * i);
        }
        d[l] = out;
    });
}

static void build_permute(builder &b)
{
    b.in.run = permute;
    same_type(b, b.take_type());
}

/* Bits [pos, pos + len) of a; beyond its end the sign, or zeros. PTX ISA, "bfe". */
template <class T> static void extract(warp &w, const instruction &in, uint32_t mask)
{
    T *d = place<T>(w, in, 0);
    const T *a = place<T>(w, in, 1);
    const uint32_t *at = place<uint32_t>(w, in, 2), *length = place<uint32_t>(w, in, 3);
    each_lane(mask, [=](int l) {
        const uint32_t top = 8 * sizeof(T) - 1;
        uint32_t pos = at[l] & 255, len = length[l] & 255, last = pos + len - 1 < top ? pos + len - 1 : top;
        uint64_t x = (uint64_t)a[l], out = 0;
        bool sign = std::is_signed_v<T> && len && (x >> last & 1);
        for (uint32_t i = 0; i <= top; i++) {
            bool bit = i < len && pos + i <= top ? x >> (pos + i) & 1 : sign;
            out |= (uint64_t)bit << i;
        }
        d[l] = (T)out;
    });
}

/* Bits [pos, pos + len) of b replaced by the lowest of a. PTX ISA, "bfi". */
template <class T> static void insert(warp &w, const instruction &in, uint32_t mask)
{
    T *d = place<T>(w, in, 0);
    const T *a = place<T>(w, in, 1), *b = place<T>(w, in, 2);
    const uint32_t *at = place<uint32_t>(w, in, 3), *length = place<uint32_t>(w, in, 4);
    each_lane(mask, [=](int l) {
        const uint32_t bits = 8 * sizeof(T);
        uint32_t pos = at[l] & 255, len = length[l] & 255;
        uint64_t field = len >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << len) - 1;
        field = pos >= bits ? 0 : field << pos;
        uint64_t moved = pos >= bits ? 0 : (uint64_t)a[l] << pos;
        d[l] = (T)(((uint64_t)b[l] & ~field) | (moved & field));
    });
}

static void build_extract(builder &b)
{
    type t = b.take_type(), u32 = {'u', 4};
    need(b, t.bytes < 4 ? nullptr : of_integer(t, [](auto x) -> handler { return extract<decltype(x)>; }));
    b.result(b.at(0), t.bytes);
    b.source(b.at(1), t);
    b.source(b.at(2), u32);
    b.source(b.at(3), u32);
}

static void build_insert(builder &b)
{
    type t = b.take_type(), u32 = {'u', 4};
    b.in.run = t.bytes == 4 ? insert<uint32_t> : t.bytes == 8 ? insert<uint64_t> : nullptr;
    if (!b.in.run) b.unknown();
    b.result(b.at(0), t.bytes);
    b.source(b.at(1), t);
    b.source(b.at(2), t);
    b.source(b.at(3), u32);
    b.source(b.at(4), u32);
}

/* popc, clz: d is u32 */
template <class T, bool ZEROS> static void count_bits(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    const T *a = place<T>(w, in, 1);
    each_lane(mask, [=](int l) {
        uint64_t x = a[l];
        d[l] = !ZEROS ? (uint32_t)__builtin_popcountll(x)
               : x    ? (uint32_t)__builtin_clzll(x) - (64 - 8 * (uint32_t)sizeof(T))
                      : 8 * (uint32_t)sizeof(T);
    });
}

template <bool ZEROS> static void build_count(builder &b)
{
    type t = b.take_type();
    b.in.run = t.bytes == 4 ? count_bits<uint32_t, ZEROS> : t.bytes == 8 ? count_bits<uint64_t, ZEROS> : nullptr;
    if (!b.in.run) b.unknown();
    b.result(b.at(0), 4);
    b.source(b.at(1), t);
}

struct brev_op {
    template <class T> static T of(T a)
    {
        T out = 0;
        for (size_t i = 0; i < 8 * sizeof(T); i++)
            out = (T)(out << 1 | (a >> i & 1));
        return out;
    }
};

static void build_reverse(builder &b)
{
    type t = b.take_type();
    b.in.run = t.bytes == 4 ? unary<uint32_t, brev_op> : unary<uint64_t, brev_op>;
    same_type(b, t);
}

const build_row build_bits[] = {
    {"and", build_logic<and_op>}, {"or", build_logic<or_op>}, {"xor", build_logic<xor_op>},
    {"not", build_not},           {"shl", build_shift<true>}, {"shr", build_shift<false>},
    {"shf", build_funnel},        {"lop3", build_lop3},       {"prmt", build_permute},
    {"bfe", build_extract},       {"bfi", build_insert},      {"popc", build_count<false>},
    {"clz", build_count<true>},   {"brev", build_reverse},    {nullptr, nullptr},
};
} // namespace ptx
