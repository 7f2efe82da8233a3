/*
 * dtype.c - element types: sizes, names, and host conversion to double.
 */
#include <nrl/tensor.h>
#include <string.h>

size_t nrl_dtype_size(nrl_dtype dtype)
{
    switch (dtype) {
    case NRL_DTYPE_U8:
        return 1;
    case NRL_DTYPE_BF16:
    case NRL_DTYPE_F16:
    case NRL_DTYPE_U16:
        return 2;
    case NRL_DTYPE_F32:
    case NRL_DTYPE_I32:
        return 4;
    case NRL_DTYPE_F64:
    case NRL_DTYPE_I64:
        return 8;
    case NRL_DTYPE_NONE:
        break;
    }
    return 0;
}

const char *nrl_dtype_name(nrl_dtype dtype)
{
    static const char *const names[] = {"none", "f32", "bf16", "f16", "f64", "i32", "i64", "u8", "u16"};
    return (size_t)dtype < sizeof names / sizeof *names ? names[dtype] : "?";
}

/* bf16 is the upper half of f32. */
static float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* IEEE half: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static double from_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double sign = h >> 15 ? -1 : 1;
    if (exponent == 31) return fraction ? __builtin_nan("") : sign * __builtin_inf();
    if (!exponent) return sign * fraction * 0x1p-24;
    return sign * __builtin_ldexp(1024 + fraction, exponent - 25);
}

double nrl_dtype_f64(nrl_dtype dtype, const void *element)
{
    switch (dtype) {
    case NRL_DTYPE_F32:
        return (double)*(const float *)element;
    case NRL_DTYPE_F64:
        return *(const double *)element;
    case NRL_DTYPE_BF16:
        return (double)from_bf16(*(const uint16_t *)element);
    case NRL_DTYPE_F16:
        return from_f16(*(const uint16_t *)element);
    case NRL_DTYPE_I32:
        return *(const int32_t *)element;
    case NRL_DTYPE_I64:
        return (double)*(const int64_t *)element;
    case NRL_DTYPE_U8:
        return *(const uint8_t *)element;
    case NRL_DTYPE_U16:
        return *(const uint16_t *)element;
    case NRL_DTYPE_NONE:
        break;
    }
    return 0;
}
