/*
 * op_arithmetic.cpp - PTX ISA, "Integer arithmetic" and "Floating point instructions": instructions
 * that are exact or correctly rounded.
 */
#include "ops.h"
#include <fenv.h>
#include <math.h>
#include <type_traits>

namespace ptx
{
static void rounded(warp &w, const instruction &in, uint32_t mask)
{
    fesetround(in.small[7] << 8);
    in.inner(w, in, mask);
    fesetround(FE_TONEAREST);
}

void round_by_mode(builder &b)
{
    if (b.in.small[7] << 8 == FE_TONEAREST) return;
    b.in.inner = b.in.run;
    b.in.run = rounded;
}

struct add_op {
    template <class T> static T of(T a, T b)
    {
        return (T)(a + b);
    }
};
struct sub_op {
    template <class T> static T of(T a, T b)
    {
        return (T)(a - b);
    }
};
struct mul_op {
    template <class T> static T of(T a, T b)
    {
        if constexpr (std::is_integral_v<T>)
            return (T)((uint64_t)a * (uint64_t)b);
        else
            return a * b;
    }
};
struct mul_hi_op {
    template <class T> static T of(T a, T b)
    {
        typedef std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128> wide;
        return (T)(((wide)a * (wide)b) >> (8 * sizeof(T)));
    }
};
/* Division by zero "yields an unspecified, machine-specific value". */
struct div_op {
    template <class T> static T of(T a, T b)
    {
        if constexpr (std::is_integral_v<T>)
            return b == 0 ? (T)-1 : (std::is_signed_v<T> && b == (T)-1) ? (T)(0 - (uint64_t)a) : (T)(a / b);
        else
            return a / b;
    }
};
struct rem_op {
    template <class T> static T of(T a, T b)
    {
        return b == 0 ? a : (std::is_signed_v<T> && b == (T)-1) ? (T)0 : (T)(a % b);
    }
};
/* Of a NaN and a number, the number; -0 is less than +0. */
struct min_op {
    template <class T> static T of(T a, T b)
    {
        if constexpr (std::is_integral_v<T>)
            return a < b ? a : b;
        else
            return a != a ? b : b != b ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
    }
};
struct max_op {
    template <class T> static T of(T a, T b)
    {
        if constexpr (std::is_integral_v<T>)
            return a > b ? a : b;
        else
            return a != a ? b : b != b ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b;
    }
};
struct nan_min_op {
    template <class T> static T of(T a, T b)
    {
        return a != a ? a : b != b ? b : min_op::of(a, b);
    }
};
struct nan_max_op {
    template <class T> static T of(T a, T b)
    {
        return a != a ? a : b != b ? b : max_op::of(a, b);
    }
};
struct neg_op {
    template <class T> static T of(T a)
    {
        return (T)-a;
    }
};
struct abs_op {
    template <class T> static T of(T a)
    {
        if constexpr (std::is_integral_v<T>)
            return (T)(a < 0 ? 0 - (uint64_t)a : (uint64_t)a);
        else
            return std::is_same_v<T, float> ? (T)fabsf((float)a) : (T)fabs((double)a);
    }
};
/* "Copy sign bit of a into value of b": the reverse of the order in C. */
struct copysign_op {
    static float of(float a, float b)
    {
        return copysignf(b, a);
    }
    static double of(double a, double b)
    {
        return copysign(b, a);
    }
};
struct fma_op {
    static float of(float a, float b, float c)
    {
        return fmaf(a, b, c);
    }
    static double of(double a, double b, double c)
    {
        return fma(a, b, c);
    }
};
struct mad_op {
    template <class T> static T of(T a, T b, T c)
    {
        return (T)((uint64_t)a * (uint64_t)b + (uint64_t)c);
    }
};
struct mad_hi_op {
    template <class T> static T of(T a, T b, T c)
    {
        return (T)((uint64_t)mul_hi_op::of(a, b) + (uint64_t)c);
    }
};

/* d, and c of mad, are twice as wide as a and b. */
template <class Wide, class T, bool ADD> void wide_product(warp &w, const instruction &in, uint32_t mask)
{
    Wide *d = place<Wide>(w, in, 0);
    const T *a = place<T>(w, in, 1), *b = place<T>(w, in, 2);
    const Wide *c = ADD ? place<Wide>(w, in, 3) : nullptr;
    each_lane(mask, [=](int l) { d[l] = (Wide)((uint64_t)((Wide)a[l] * (Wide)b[l]) + (ADD ? (uint64_t)c[l] : 0)); });
}

template <bool ADD> static void build_wide(builder &b, type t)
{
    type wide = {t.kind, (uint8_t)(2 * t.bytes)};
    b.result(b.at(0), wide.bytes);
    b.source(b.at(1), t);
    b.source(b.at(2), t);
    if (ADD) b.source(b.at(3), wide);
    bool is_signed = t.kind == 's';
    if (t.bytes == 2)
        b.in.run = is_signed ? wide_product<int32_t, int16_t, ADD> : wide_product<uint32_t, uint16_t, ADD>;
    else if (t.bytes == 4)
        b.in.run = is_signed ? wide_product<int64_t, int32_t, ADD> : wide_product<uint64_t, uint32_t, ADD>;
    else
        b.unknown();
}

/* add, sub, mul, div, min, max of numbers; floats take rounding and .ftz */
template <class Op> static void build_binary(builder &b)
{
    bool ftz = b.take("ftz");
    b.take_rounding();
    type t = b.take_type();
    if (ftz && t.bytes == 4 && t.kind == 'f')
        b.in.run = binary<float, Op, true>;
    else if (!ftz)
        need(b, of_number(t, [](auto x) -> handler { return binary<decltype(x), Op>; }));
    else
        b.unknown();
    same_type(b, t);
    round_by_mode(b);
}

template <class Op> static void build_integer_binary(builder &b)
{
    type t = b.take_type();
    need(b, of_integer(t, [](auto x) -> handler { return binary<decltype(x), Op>; }));
    same_type(b, t);
}

static void build_mul(builder &b)
{
    int part = b.take_one_of({"lo", "hi", "wide"});
    if (part < 1) return build_binary<mul_op>(b);
    if (part == 1) return build_integer_binary<mul_hi_op>(b);
    build_wide<false>(b, b.take_type());
}

template <class Op> static void build_float_ternary(builder &b, type t, bool ftz)
{
    b.in.run = t.kind != 'f' || t.lanes != 1 ? nullptr
               : t.bytes == 8                ? ternary<double, Op>
               : t.bytes != 4                ? nullptr
               : ftz                         ? ternary<float, Op, true>
                                             : ternary<float, Op>;
    if (!b.in.run) b.unknown();
    same_type(b, t);
    round_by_mode(b);
}

static void build_fma(builder &b)
{
    bool ftz = b.take("ftz");
    b.take_rounding();
    build_float_ternary<fma_op>(b, b.take_type(), ftz);
}

static void build_mad(builder &b)
{
    int part = b.take_one_of({"lo", "hi", "wide"});
    if (part < 0) return build_fma(b);
    type t = b.take_type();
    if (part == 2) return build_wide<true>(b, t);
    if (part == 1)
        need(b, of_integer(t, [](auto x) -> handler { return ternary<decltype(x), mad_hi_op>; }));
    else
        need(b, of_integer(t, [](auto x) -> handler { return ternary<decltype(x), mad_op>; }));
    same_type(b, t);
}

static void build_div(builder &b)
{
    b.take_one_of({"approx", "full"});
    build_binary<div_op>(b);
}

template <class Op, class Nan> static void build_extreme(builder &b)
{
    if (!b.take("NaN")) return build_binary<Op>(b);
    type t = b.take_type();
    need(b, of_float(t, [](auto x) -> handler { return binary<decltype(x), Nan>; }));
    same_type(b, t);
}

template <class Op> static void build_unary(builder &b)
{
    bool ftz = b.take("ftz");
    type t = b.take_type();
    if (ftz)
        need(b, t.bytes == 4 && t.kind == 'f' ? (handler)unary<float, Op, true> : nullptr);
    else
        need(b, of_number(t, [](auto x) -> handler { return unary<decltype(x), Op>; }));
    same_type(b, t);
}

static void build_copysign(builder &b)
{
    type t = b.take_type();
    need(b, of_float(t, [](auto x) -> handler { return binary<decltype(x), copysign_op>; }));
    same_type(b, t);
}

const build_row build_arithmetic[] = {
    {"add", build_binary<add_op>},
    {"sub", build_binary<sub_op>},
    {"mul", build_mul},
    {"mad", build_mad},
    {"fma", build_fma},
    {"div", build_div},
    {"rem", build_integer_binary<rem_op>},
    {"min", build_extreme<min_op, nan_min_op>},
    {"max", build_extreme<max_op, nan_max_op>},
    {"neg", build_unary<neg_op>},
    {"abs", build_unary<abs_op>},
    {"copysign", build_copysign},
    {nullptr, nullptr},
};
} // namespace ptx
