/*
 * op_convert.cpp - cvt: PTX ISA, "Data movement and conversion: cvt".
 *
 * small[0], small[1]: bytes of the source's and the result's registers, which may be wider than the
 * types; [2] rounding to an integer; [3] bits of extras; [7] rounding of floats (FE_*).
 */
#include "ops.h"
#include <fenv.h>
#include <limits>
#include <math.h>
#include <type_traits>

namespace ptx
{
enum : uint8_t { SATURATE = 1, FLUSH = 2, RELU = 4, FINITE = 8, UPPER = 16 };
enum { TO_NEAREST = 0, TO_ZERO, DOWN, UP, NOT_TO_INTEGER };

/* INFINITE: the code above the largest number. */
struct half {
    uint16_t bits;
    enum { FRACTION = 10, LEAST = -14, INFINITE = 0x7c00, NOT_A_NUMBER = 0x7fff, SIGN = 0x8000 };
};
struct brain {
    uint16_t bits;
    enum { FRACTION = 7, LEAST = -126, INFINITE = 0x7f80, NOT_A_NUMBER = 0x7fff, SIGN = 0x8000 };
};
struct e4m3 {
    uint8_t bits;
    enum { FRACTION = 3, LEAST = -6, INFINITE = 0x7f, NOT_A_NUMBER = 0x7f, SIGN = 0x80 };
};
struct e5m2 {
    uint8_t bits;
    enum { FRACTION = 2, LEAST = -14, INFINITE = 0x7c, NOT_A_NUMBER = 0x7f, SIGN = 0x80 };
};
template <class T> constexpr bool is_tiny = std::is_same_v<T, e4m3> || std::is_same_v<T, e5m2>;
template <class T> constexpr bool is_small = std::is_same_v<T, half> || std::is_same_v<T, brain> || is_tiny<T>;
template <class T> constexpr bool is_float = std::is_floating_point_v<T> || is_small<T>;

template <class T> static double value_of(T x)
{
    if constexpr (!is_small<T>) {
        return (double)x;
    } else {
        int exponent = (x.bits & T::INFINITE) >> T::FRACTION, fraction = x.bits & ((1 << T::FRACTION) - 1);
        double size = (x.bits & T::INFINITE) == T::INFINITE ? (fraction ? NAN : INFINITY)
                      : exponent ? ldexp((1 << T::FRACTION) + fraction, exponent - 1 + T::LEAST - T::FRACTION)
                                 : ldexp(fraction, T::LEAST - T::FRACTION);
        return x.bits & 0x8000 ? -size : size;
    }
}

/* Too large values become infinite, or the largest value with .satfinite or when rounding toward zero. */
template <class T> static T small_of(double x, bool to_zero, bool finite)
{
    using bits_type = decltype(T::bits);
    if (isnan(x)) return {(bits_type)T::NOT_A_NUMBER};
    bits_type sign = signbit(x) ? (bits_type)T::SIGN : 0;
    double size = fabs(x);
    if (isinf(x)) return {(bits_type)(sign | (finite ? T::INFINITE - 1 : T::INFINITE))};
    int exponent = size == 0 || ilogb(size) < T::LEAST ? (int)T::LEAST : ilogb(size);
    double steps = ldexp(size, T::FRACTION - exponent);
    int64_t bits =
        ((int64_t)(exponent - T::LEAST) << T::FRACTION) + (int64_t)(to_zero ? trunc(steps) : nearbyint(steps));
    if (bits >= T::INFINITE) bits = to_zero || finite ? T::INFINITE - 1 : T::INFINITE;
    return {(bits_type)(sign | bits)};
}

static double to_integer(double x, int how)
{
    return how == TO_NEAREST ? nearbyint(x) : how == TO_ZERO ? trunc(x) : how == DOWN ? floor(x) : ceil(x);
}

/* Out of range: the nearest limit. NaN: 0, or 1 << (bits - 1) if either side has 64 bits. */
template <class D, class S> static D integer_of(S s, const instruction &in)
{
    double x = value_of(s);
    if (in.small[3] & FLUSH) x = flush((float)x);
    const int bits = 8 * sizeof(D);
    if (isnan(x)) return std::is_same_v<S, double> || bits == 64 ? (D)((uint64_t)1 << (bits - 1)) : (D)0;
    x = to_integer(x, in.small[2]);
    if (x >= ldexp(1, bits - std::is_signed_v<D>)) return std::numeric_limits<D>::max();
    if (x < (double)std::numeric_limits<D>::min()) return std::numeric_limits<D>::min();
    return (D)x;
}

template <class D, class S> static D clamped(S s)
{
    __int128 x = s, low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
    return (D)(x < low ? low : x > high ? high : x);
}

template <class D> static D float_of(double x, const instruction &in)
{
    uint8_t extras = in.small[3];
    if (extras & SATURATE) x = isnan(x) || x < 0 ? 0 : x > 1 ? 1 : x == 0 ? 0 : x;
    if ((extras & RELU) && x <= 0) x = 0;
    if constexpr (is_small<D>)
        return small_of<D>(x, in.small[7] << 8 == FE_TOWARDZERO, extras & FINITE);
    else
        return (D)x;
}

template <class D, class S> static D cast(S s, const instruction &in)
{
    if constexpr (is_float<S> && is_float<D>) {
        double x = value_of(s);
        if ((in.small[3] & FLUSH) && std::is_same_v<S, float>) x = flush((float)x);
        if (in.small[2] != NOT_TO_INTEGER) x = to_integer(x, in.small[2]);
        D d = float_of<D>(x, in);
        if constexpr (std::is_same_v<D, float>)
            if (in.small[3] & FLUSH) d = flush(d);
        return d;
    } else if constexpr (is_float<S>) {
        return integer_of<D>(s, in);
    } else if constexpr (is_small<D>) {
        return float_of<D>((double)s, in);
    } else if constexpr (is_float<D>) {
        return (D)s;
    } else {
        return in.small[3] & SATURATE ? clamped<D>(s) : (D)s;
    }
}

/* As wide as a register: sign or zeros above. */
template <class D> static uint64_t widened(D d)
{
    if constexpr (std::is_integral_v<D>) return (uint64_t)(std::conditional_t<std::is_signed_v<D>, int64_t, uint64_t>)d;
    uint64_t bits = 0;
    memcpy(&bits, &d, sizeof d);
    return bits;
}

template <class S, class D> static void convert(warp &w, const instruction &in, uint32_t mask)
{
    const uint8_t *from = w.registers + in.op[1];
    uint8_t *to = w.registers + in.op[0];
    uint32_t from_bytes = in.small[0], to_bytes = in.small[1];
    for (; mask; mask &= mask - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(mask);
        S s;
        memcpy(&s, from + l * from_bytes, sizeof s);
        uint64_t bits = widened(cast<D>(s, in));
        copy_small(to + l * to_bytes, &bits, to_bytes);
    }
}

/* C's own conversion is correct: registers are as wide as the types, and there are no modifiers. */
template <class S, class D> static void convert_plainly(warp &w, const instruction &in, uint32_t mask)
{
    D *d = place<D>(w, in, 0);
    const S *s = place<S>(w, in, 1);
    each_lane(mask, [=](int l) { d[l] = (D)s[l]; });
}

template <class S, class D> static handler convert_of(const builder &b)
{
    const instruction &in = b.in;
    constexpr bool simple = !is_small<S> && !is_small<D> && (!is_float<S> || is_float<D>);
    if constexpr (simple)
        if (!in.small[3] && in.small[2] == NOT_TO_INTEGER && in.small[0] == sizeof(S) && in.small[1] == sizeof(D))
            return convert_plainly<S, D>;
    return convert<S, D>;
}

template <class S> static handler convert_to(const builder &b, type t)
{
    if (t.kind == 'f')
        return t.bytes == 2   ? convert_of<S, half>(b)
               : t.bytes == 4 ? convert_of<S, float>(b)
                              : convert_of<S, double>(b);
    if (t.kind == 'h') return convert_of<S, brain>(b);
    if (t.kind == 's') switch (t.bytes) {
        case 1:
            return convert_of<S, int8_t>(b);
        case 2:
            return convert_of<S, int16_t>(b);
        case 4:
            return convert_of<S, int32_t>(b);
        default:
            return convert_of<S, int64_t>(b);
        }
    switch (t.bytes) {
    case 1:
        return convert_of<S, uint8_t>(b);
    case 2:
        return convert_of<S, uint16_t>(b);
    case 4:
        return convert_of<S, uint32_t>(b);
    default:
        return convert_of<S, uint64_t>(b);
    }
}

static handler convert_from(const builder &b, type from, type to)
{
    if (from.kind == 'f')
        return from.bytes == 2   ? convert_to<half>(b, to)
               : from.bytes == 4 ? convert_to<float>(b, to)
                                 : convert_to<double>(b, to);
    if (from.kind == 'h') return convert_to<brain>(b, to);
    if (from.kind == 's') switch (from.bytes) {
        case 1:
            return convert_to<int8_t>(b, to);
        case 2:
            return convert_to<int16_t>(b, to);
        case 4:
            return convert_to<int32_t>(b, to);
        default:
            return convert_to<int64_t>(b, to);
        }
    switch (from.bytes) {
    case 1:
        return convert_to<uint8_t>(b, to);
    case 2:
        return convert_to<uint16_t>(b, to);
    case 4:
        return convert_to<uint32_t>(b, to);
    default:
        return convert_to<uint64_t>(b, to);
    }
}

/* f16x2, bf16x2, e4m3x2 and e5m2x2 of two f32: the first into the upper half. */
template <class T> static void convert_two(warp &w, const instruction &in, uint32_t mask)
{
    using pair = std::conditional_t<is_tiny<T>, uint16_t, uint32_t>;
    pair *d = place<pair>(w, in, 0);
    const float *a = place<float>(w, in, 1), *b = place<float>(w, in, 2);
    each_lane(mask, [&](int l) {
        d[l] = (pair)((uint32_t)cast<T>(a[l], in).bits << (8 * sizeof(T)) | cast<T>(b[l], in).bits);
    });
}

static void build_two(builder &b, type to, type from)
{
    if (from.kind != 'f' || from.bytes != 4 || b.count() != 3) b.unknown();
    const bool is_tiny = to.bytes == 2;
    if (is_tiny && !(b.in.small[3] & FINITE)) b.unknown(); /* the manual requires it */
    b.result(b.at(0), to.bytes);
    b.source(b.at(1), from);
    b.source(b.at(2), from);
    if (is_tiny)
        b.in.run = to.kind == '4' ? convert_two<e4m3> : convert_two<e5m2>;
    else
        b.in.run = to.kind == 'f' ? convert_two<half> : convert_two<brain>;
}

static uint8_t take_extras(builder &b)
{
    uint8_t extras = 0;
    if (b.take("ftz")) extras |= FLUSH;
    if (b.take("satfinite")) extras |= FINITE;
    if (b.take("sat")) extras |= SATURATE;
    if (b.take("relu")) extras |= RELU;
    return extras;
}

static void build_cvt(builder &b)
{
    int integer = b.take_one_of({"rni", "rzi", "rmi", "rpi"});
    b.in.small[2] = (uint8_t)(integer < 0 ? (int)NOT_TO_INTEGER : integer);
    b.in.small[3] = take_extras(b);
    bool rounds = b.take_rounding();
    type to = b.take_type(), from = b.take_type();
    if (to.lanes == 2) return build_two(b, to, from);
    bool makes_integer = to.kind != 'f' && to.kind != 'h' && (from.kind == 'f' || from.kind == 'h');
    if (makes_integer != (integer >= 0) && (makes_integer || to.kind != from.kind)) b.unknown();
    if (from.lanes == 2 || b.count() != 2) b.unknown();
    b.in.small[1] = (uint8_t)b.result(b.at(0), 0);
    b.in.small[0] = (uint8_t)b.source(b.at(1), from, true);
    if (b.in.small[1] < to.bytes || b.in.small[0] < from.bytes) b.unknown();
    b.in.run = convert_from(b, from, to);
    if (rounds && to.bytes >= 4) round_by_mode(b);
}

const build_row build_convert[] = {{"cvt", build_cvt}, {nullptr, nullptr}};
} // namespace ptx
