/*
 * op_functions.cpp - rcp, sqrt and the approximations (PTX ISA, "Floating point instructions"). The
 * approximate functions are computed precisely; a GPU may differ by the few ulp that the manual
 * states.
 */
#include "ops.h"
#include <math.h>

namespace ptx
{
struct rcp_op {
    template <class T> static T of(T a)
    {
        return 1 / a;
    }
};
struct sqrt_op {
    static float of(float a)
    {
        return sqrtf(a);
    }
    static double of(double a)
    {
        return sqrt(a);
    }
};
struct rsqrt_op {
    template <class T> static T of(T a)
    {
        return (T)(1 / sqrt((double)a));
    }
};
struct ex2_op {
    static float of(float a)
    {
        return exp2f(a);
    }
};
struct lg2_op {
    static float of(float a)
    {
        return log2f(a);
    }
};
struct sin_op {
    static float of(float a)
    {
        return (float)sin((double)a);
    }
};
struct cos_op {
    static float of(float a)
    {
        return (float)cos((double)a);
    }
};
struct tanh_op {
    static float of(float a)
    {
        return tanhf(a);
    }
};
/* rcp.approx.ftz.f64, rsqrt.approx.ftz.f64: "gross": the lower 32 bits of operand and result are zero. */
template <class Op> struct gross {
    static double of(double a)
    {
        const uint64_t HI16 = ~(uint64_t)0 << 32;
        a = same_bits<double>(same_bits<uint64_t>(a) & HI16);
        if (fpclassify(a) == FP_SUBNORMAL) a = copysign(0.0, a);
        return same_bits<double>(same_bits<uint64_t>(Op::of(a)) & HI16);
    }
};

template <class Op> static void build_root(builder &b)
{
    bool approximate = b.take("approx"), ftz = b.take("ftz");
    b.take_rounding();
    type t = b.take_type();
    if (t.kind != 'f' || (t.bytes == 8 && ftz && !approximate)) b.unknown();
    if (t.bytes == 8)
        b.in.run = ftz ? unary<double, gross<Op>> : unary<double, Op>;
    else if (t.bytes == 4)
        b.in.run = ftz ? unary<float, Op, true> : unary<float, Op>;
    else
        b.unknown();
    same_type(b, t);
    round_by_mode(b);
}

template <class Op> static void build_approximate(builder &b)
{
    if (!b.take("approx")) b.unknown();
    bool ftz = b.take("ftz");
    type t = b.take_type();
    if (t.kind != 'f' || t.bytes != 4 || t.lanes != 1) b.unknown();
    b.in.run = ftz ? unary<float, Op, true> : unary<float, Op>;
    same_type(b, t);
}

const build_row build_special_functions[] = {
    {"rcp", build_root<rcp_op>},        {"sqrt", build_root<sqrt_op>},        {"rsqrt", build_root<rsqrt_op>},
    {"ex2", build_approximate<ex2_op>}, {"lg2", build_approximate<lg2_op>},   {"sin", build_approximate<sin_op>},
    {"cos", build_approximate<cos_op>}, {"tanh", build_approximate<tanh_op>}, {nullptr, nullptr},
};
} // namespace ptx
