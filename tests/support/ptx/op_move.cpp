/*
 * op_move.cpp - mov, cvta, setp, selp: PTX ISA, "Data movement", "Comparison and selection".
 */
#include "ops.h"
#include <type_traits>

namespace ptx
{
struct copy_op {
    template <class T> static T of(T a)
    {
        return a;
    }
};

static void move_predicate(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    *d = (*d & ~mask) | (*place<uint32_t>(w, in, 1) & mask);
}

/* {a, b, ...} to d: small[1] elements of small[0] bytes; the first one is the lowest. */
static void pack(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t n = in.small[0], count = in.small[1];
    each_lane(mask, [&](int l) {
        for (uint32_t i = 0; i < count; i++)
            copy_small(w.registers + in.op[0] + (uint32_t)l * n * count + i * n,
                       w.registers + in.op[1 + i] + (uint32_t)l * n, n);
    });
}

static void unpack(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t n = in.small[0], count = in.small[1];
    each_lane(mask, [&](int l) {
        for (uint32_t i = 0; i < count; i++)
            copy_small(w.registers + in.op[i] + (uint32_t)l * n,
                       w.registers + in.op[count] + (uint32_t)l * n * count + i * n, n);
    });
}

static void build_vector_move(builder &b, type t)
{
    bool from_vector = b.at(1).is == operand::VECTOR;
    const operand &vector = b.at(from_vector ? 1 : 0);
    type part = {'b', (uint8_t)(t.bytes / vector.parts.size())};
    b.in.small[0] = part.bytes;
    b.in.small[1] = (uint8_t)vector.parts.size();
    b.in.run = from_vector ? pack : unpack;
    if (from_vector) b.result(b.at(0), t.bytes);
    for (const operand &o : vector.parts)
        if (from_vector)
            b.source(o, part);
        else
            b.result(o, part.bytes);
    if (!from_vector) b.source(b.at(1), t);
}

static void build_move(builder &b)
{
    type t = b.take_type();
    if (b.at(0).is == operand::VECTOR || b.at(1).is == operand::VECTOR) return build_vector_move(b, t);
    if (t.kind == 'p') {
        b.predicate_result(b.at(0));
        b.predicate_source(b.at(1));
        b.in.run = move_predicate;
    } else {
        b.result(b.at(0), t.bytes);
        b.source(b.at(1), t);
        b.in.run = t.bytes == 2   ? unary<uint16_t, copy_op>
                   : t.bytes == 4 ? unary<uint32_t, copy_op>
                                  : unary<uint64_t, copy_op>;
    }
    b.in.carries = b.at(1).is == operand::REGISTER;
}

/* Generic addresses of shared and local memory are in windows; those of global memory are
 * unchanged. */
static void shift_window(warp &w, const instruction &in, uint32_t mask)
{
    uint64_t *d = place<uint64_t>(w, in, 0);
    const uint64_t *a = place<uint64_t>(w, in, 1);
    each_lane(mask, [&](int l) { d[l] = a[l] + (uint64_t)in.offset; });
}

static void build_cvta(builder &b)
{
    bool to = b.take("to");
    static const space spaces[] = {space::global, space::shared, space::local, space::param, space::constant};
    int s = b.take_one_of({"global", "shared", "local", "param", "const"});
    type t = b.take_type();
    if (s < 0 || t.bytes != 8) b.unknown();
    int64_t window = (int64_t)window_of(spaces[s]);
    b.in.offset = to ? -window : window;
    b.in.run = shift_window;
    same_type(b, t);
}

/* ---- comparisons ---- */

template <int C, class T> static inline bool compare(T a, T b)
{
    bool ordered = true;
    if constexpr (std::is_floating_point_v<T>) ordered = a == a && b == b;
    switch (C) {
    case 0:
        return a == b;
    case 1:
        return ordered && a != b;
    case 2:
        return a < b;
    case 3:
        return a <= b;
    case 4:
        return a > b;
    case 5:
        return a >= b;
    case 6:
        return !ordered || a == b;
    case 7:
        return a != b;
    case 8:
        return !(a >= b);
    case 9:
        return !(a > b);
    case 10:
        return !(a <= b);
    case 11:
        return !(a < b);
    case 12:
        return ordered;
    default:
        return !ordered;
    }
}

/* p and q = the opposite, each combined with c: small[0] and, or, xor; small[1]: c is inverted. */
static uint32_t join(warp &w, const instruction &in, uint32_t bits)
{
    if (!in.small[0]) return bits;
    uint32_t c = *place<uint32_t>(w, in, 4);
    if (in.small[1]) c = ~c;
    return in.small[0] == 1 ? bits & c : in.small[0] == 2 ? bits | c : bits ^ c;
}

template <int C, class T, bool FTZ> static void set_predicate(warp &w, const instruction &in, uint32_t mask)
{
    const T *a = place<T>(w, in, 2), *b = place<T>(w, in, 3);
    uint32_t bits = 0;
    for (int l = 0; l < LANES; l++)
        bits |= (uint32_t)compare<C>(flush_if<FTZ>(a[l]), flush_if<FTZ>(b[l])) << l;
    uint32_t *q = place<uint32_t>(w, in, 1), *p = place<uint32_t>(w, in, 0);
    uint32_t yes = join(w, in, bits), no = join(w, in, ~bits);
    *q = (*q & ~mask) | (no & mask);
    *p = (*p & ~mask) | (yes & mask);
}

template <int C> static handler setp_of(type t, bool ftz)
{
    if (t.kind == 'f' && t.bytes == 4 && ftz) return set_predicate<C, float, true>;
    return of_number(t, [](auto x) -> handler { return set_predicate<C, decltype(x), false>; });
}

static handler setp_of(int comparison, type t, bool ftz)
{
    typedef handler (*maker)(type, bool);
    static const maker makers[] = {setp_of<0>,  setp_of<1>,  setp_of<2>,  setp_of<3>, setp_of<4>,
                                   setp_of<5>,  setp_of<6>,  setp_of<7>,  setp_of<8>, setp_of<9>,
                                   setp_of<10>, setp_of<11>, setp_of<12>, setp_of<13>};
    return makers[comparison](t, ftz);
}

static void build_setp(builder &b)
{
    int c = b.take_one_of({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
                           "lo", "ls", "hi", "hs"});
    int join_by = b.take_one_of({"and", "or", "xor"});
    bool ftz = b.take("ftz");
    type t = b.take_type();
    if (c < 0) b.unknown();
    if (c >= 14) c -= 12; /* lo, ls, hi, hs: unsigned */
    if (c >= 6 && t.kind != 'f') b.unknown();
    need(b, setp_of(c, t, ftz));
    operand q;
    if (b.at(0).second >= 0) {
        q.is = operand::REGISTER;
        q.index = b.at(0).second;
    }
    b.predicate_result(b.at(0));
    b.predicate_result(q);
    b.source(b.at(1), t);
    b.source(b.at(2), t);
    b.in.small[0] = (uint8_t)(join_by + 1);
    if (join_by >= 0) {
        b.in.small[1] = b.at(3).inverted;
        b.predicate_source(b.at(3));
    }
}

template <class T> static void select(warp &w, const instruction &in, uint32_t mask)
{
    T *d = place<T>(w, in, 0);
    const T *a = place<T>(w, in, 1), *b = place<T>(w, in, 2);
    uint32_t p = *place<uint32_t>(w, in, 3);
    each_lane(mask, [=](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}

static void build_selp(builder &b)
{
    type t = b.take_type();
    b.result(b.at(0), t.bytes);
    b.source(b.at(1), t);
    b.source(b.at(2), t);
    b.predicate_source(b.at(3));
    b.in.run = t.bytes == 2 ? select<uint16_t> : t.bytes == 4 ? select<uint32_t> : select<uint64_t>;
}

const build_row build_moves[] = {
    {"mov", build_move}, {"cvta", build_cvta}, {"setp", build_setp}, {"selp", build_selp}, {nullptr, nullptr},
};
} // namespace ptx
