/*
 * planes.c - the loops of planes.h, written for the compiler to vectorise. They are compiled once per instruction set;
 * the dynamic loader chooses one. Elements are little-endian numbers that are split by shifts: truncating and widening
 * are single instructions on AVX-512 and shuffles on AVX2.
 */
#include "base/planes.h"
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&          \
    !defined(__SANITIZE_THREAD__)
#define EACH_ISA __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define EACH_ISA
#endif

/* Unaligned numbers. */
typedef uint16_t __attribute__((aligned(1), may_alias)) any16;
typedef uint32_t __attribute__((aligned(1), may_alias)) any32;
typedef uint64_t __attribute__((aligned(1), may_alias)) any64;

EACH_ISA static void split2(const any16 *restrict raw, size_t n, int rotate, unsigned char *restrict low,
                            unsigned char *restrict high)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t x = (uint16_t)(raw[i] << rotate | raw[i] >> (-rotate & 15));
        low[i] = (unsigned char)x;
        high[i] = (unsigned char)(x >> 8);
    }
}

/* Extracts the lowest byte of each element after a right rotation by `by`. One pass per plane: the chunk stays in the
 * cache. */
EACH_ISA static void split4(const any32 *restrict raw, size_t n, int by, unsigned char *restrict plane)
{
    for (size_t i = 0; i < n; i++)
        plane[i] = (unsigned char)(raw[i] >> by | raw[i] << (-by & 31));
}

EACH_ISA static void split8(const any64 *restrict raw, size_t n, int by, unsigned char *restrict plane)
{
    for (size_t i = 0; i < n; i++)
        plane[i] = (unsigned char)(raw[i] >> by | raw[i] << (-by & 63));
}

EACH_ISA static void join2(const unsigned char *restrict low, const unsigned char *restrict high, size_t n, int rotate,
                           any16 *restrict raw)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t x = (uint16_t)(low[i] | high[i] << 8);
        raw[i] = (uint16_t)(x >> rotate | x << (-rotate & 15));
    }
}

EACH_ISA static void join4(const unsigned char *restrict a, const unsigned char *restrict b,
                           const unsigned char *restrict c, const unsigned char *restrict d, size_t n, int rotate,
                           any32 *restrict raw)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t x = (uint32_t)a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24;
        raw[i] = x >> rotate | x << (-rotate & 31);
    }
}

EACH_ISA static void join8(const unsigned char *restrict plane, size_t n, int by, any64 *restrict raw)
{
    for (size_t i = 0; i < n; i++)
        raw[i] |= (uint64_t)plane[i] << by | (uint64_t)plane[i] >> (-by & 63);
}

void planes_split(const void *raw, size_t n, int width, int rotate, unsigned char *planes)
{
    if (width == 1) memcpy(planes, raw, n);
    if (width == 2) split2(raw, n, rotate, planes, planes + n);
    for (int p = 0; width == 4 && p < 4; p++)
        split4(raw, n, (8 * p - rotate) & 31, planes + (size_t)p * n);
    for (int p = 0; width == 8 && p < 8; p++)
        split8(raw, n, (8 * p - rotate) & 63, planes + (size_t)p * n);
}

void planes_join(const unsigned char *const *planes, size_t n, int width, int rotate, void *raw)
{
    if (width == 1) memcpy(raw, planes[0], n);
    if (width == 2) join2(planes[0], planes[1], n, rotate, raw);
    if (width == 4) join4(planes[0], planes[1], planes[2], planes[3], n, rotate, raw);
    if (width != 8) return;
    memset(raw, 0, 8 * n);
    for (int p = 0; p < 8; p++)
        join8(planes[p], n, (8 * p - rotate) & 63, raw);
}
