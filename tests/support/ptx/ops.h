/*
 * ops.h - loops over lanes, and selection of handlers by type, for the op_*.cpp files.
 *
 * An operation is a class with a static function `of` on values; unary, binary and ternary make a
 * handler from it. FTZ: subnormal operands and results become zeros with their sign (.ftz, f32
 * only).
 */
#ifndef SUPPORT_PTX_OPS_H
#define SUPPORT_PTX_OPS_H
#include "builder.h"
#include "warp.h"
#include <string.h>

namespace ptx
{
template <class F> inline __attribute__((always_inline)) void each_lane(uint32_t mask, F f)
{
    if (mask == ALL_LANES) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
        for (int l = 0; l < LANES; l++)
            f(l);
    } else {
        for (; mask; mask &= mask - 1)
            f(__builtin_ctz(mask));
    }
}

/* n is 1, 2, 4 or 8: copies of a known size are one move. */
inline void copy_small(void *to, const void *from, uint32_t n)
{
    switch (n) {
    case 1:
        memcpy(to, from, 1);
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    default:
        memcpy(to, from, 8);
    }
}

template <class T> inline T *place(warp &w, const instruction &in, int k)
{
    return w.lanes<T>(in.op[k]);
}

template <class To, class From> inline To same_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "bits of one size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}

inline float flush(float x)
{
    uint32_t bits = same_bits<uint32_t>(x);
    return bits & 0x7f800000u ? x : same_bits<float>(bits & 0x80000000u);
}
template <bool FTZ, class T> inline T flush_if(T x)
{
    if constexpr (FTZ)
        return flush(x);
    else
        return x;
}

template <class T, class Op, bool FTZ = false> void unary(warp &w, const instruction &in, uint32_t mask)
{
    T *d = place<T>(w, in, 0);
    const T *a = place<T>(w, in, 1);
    each_lane(mask, [=](int l) { d[l] = flush_if<FTZ>(Op::of(flush_if<FTZ>(a[l]))); });
}

template <class T, class Op, bool FTZ = false> void binary(warp &w, const instruction &in, uint32_t mask)
{
    T *d = place<T>(w, in, 0);
    const T *a = place<T>(w, in, 1), *b = place<T>(w, in, 2);
    each_lane(mask, [=](int l) { d[l] = flush_if<FTZ>(Op::of(flush_if<FTZ>(a[l]), flush_if<FTZ>(b[l]))); });
}

template <class T, class Op, bool FTZ = false> void ternary(warp &w, const instruction &in, uint32_t mask)
{
    T *d = place<T>(w, in, 0);
    const T *a = place<T>(w, in, 1), *b = place<T>(w, in, 2), *c = place<T>(w, in, 3);
    each_lane(mask, [=](int l) {
        d[l] = flush_if<FTZ>(Op::of(flush_if<FTZ>(a[l]), flush_if<FTZ>(b[l]), flush_if<FTZ>(c[l])));
    });
}

/* f: a generic lambda that returns a handler for a value of the C type; NULL: no such operation. */
template <class F> handler of_integer(type t, F f)
{
    if (t.kind == 's') switch (t.bytes) {
        case 2:
            return f(int16_t());
        case 4:
            return f(int32_t());
        case 8:
            return f(int64_t());
        }
    if (t.kind == 'u' || t.kind == 'b') switch (t.bytes) {
        case 2:
            return f(uint16_t());
        case 4:
            return f(uint32_t());
        case 8:
            return f(uint64_t());
        }
    return nullptr;
}
template <class F> handler of_float(type t, F f)
{
    if (t.kind != 'f' || t.lanes != 1) return nullptr;
    return t.bytes == 4 ? f(float()) : t.bytes == 8 ? f(double()) : nullptr;
}
template <class F> handler of_number(type t, F f)
{
    handler h = of_integer(t, f);
    return h ? h : of_float(t, f);
}

/* d, a, b, ... of one type */
inline void same_type(builder &b, type t)
{
    b.result(b.at(0), t.bytes);
    for (size_t k = 1; k < b.count(); k++)
        b.source(b.at(k), t);
}
inline void need(builder &b, handler h)
{
    if (!h) b.unknown();
    b.in.run = h;
}
/* Runs b.in.run under the rounding mode that take_rounding has set. */
void round_by_mode(builder &b);
} // namespace ptx

#endif
