/*
 * ops.h - the calls that ranks of different programs make together, read from ops.list, one per
 * line:
 *     NAME DTYPE REDUCE COUNT PEER
 * and the operands and expected results of each rank. Shared by nrl_rank.c and gloo_rank.cc (C++);
 * torch_rank.py has the same in Python. Values are small integers, exact in every dtype; `rough`
 * values depend on the order of the sum, and only the bits of all ranks are compared.
 */
#ifndef INTEROP_OPS_H
#define INTEROP_OPS_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    char name[24], dtype[8], reduce[8];
    long count;
    int peer;
} op;

static inline int op_read(FILE *f, op *o)
{
    char line[200];
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%23s %7s %7s %ld %d", o->name, o->dtype, o->reduce, &o->count, &o->peer) == 5 && *line != '#')
            return 1;
    return 0;
}

static inline int op_is(const op *o, const char *name)
{
    return strcmp(o->name, name) == 0;
}

static inline size_t op_width(const op *o)
{
    return strstr(o->dtype, "64") ? 8 : strstr(o->dtype, "32") ? 4 : strstr(o->dtype, "16") ? 2 : 1;
}

/* Uneven shares: every third rank has none. */
static inline long op_share(const op *o, int rank)
{
    return rank % 3 == 1 ? 0 : o->count + 7L * rank;
}

static inline long op_shares(const op *o, int ranks)
{
    long n = 0;
    for (int r = 0; r < ranks; r++)
        n += op_share(o, r);
    return n;
}

static inline double op_value(int rank, long i)
{
    return (double)((i * 5 + i / 13 + rank * 7) % 13 + 1);
}

/* Factors of a product stay small. */
static inline double op_input(const op *o, int rank, long i)
{
    return strcmp(o->reduce, "product") ? op_value(rank, i) : (double)((i + rank) % 3 + 1);
}

/* Of unlike magnitudes. */
static inline float op_rough(int rank, long i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)(rank + 1) * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)((int32_t)(x & 0xffff) - 32768) / (x & 0x10000 ? 4096.0f : 3.0f);
}

/* One element; 16-bit floats: whole numbers up to 256. */
static inline void op_put(const op *o, void *data, long i, double value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (!strcmp(o->dtype, "f32")) ((float *)data)[i] = f;
    if (!strcmp(o->dtype, "f64")) ((double *)data)[i] = value;
    if (!strcmp(o->dtype, "bf16")) ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    if (!strcmp(o->dtype, "f16")) ((uint16_t *)data)[i] = (uint16_t)(value > 0 ? (bits - 0x38000000u) >> 13 : 0);
    if (!strcmp(o->dtype, "i32")) ((int32_t *)data)[i] = (int32_t)value;
    if (!strcmp(o->dtype, "i64")) ((int64_t *)data)[i] = (int64_t)value;
    if (!strcmp(o->dtype, "u8")) ((uint8_t *)data)[i] = (uint8_t)value;
}

static inline double op_get(const op *o, const void *data, long i)
{
    uint32_t bits = 0;
    float f;
    if (!strcmp(o->dtype, "f32")) return (double)((const float *)data)[i];
    if (!strcmp(o->dtype, "f64")) return ((const double *)data)[i];
    if (!strcmp(o->dtype, "i32")) return ((const int32_t *)data)[i];
    if (!strcmp(o->dtype, "i64")) return (double)((const int64_t *)data)[i];
    if (!strcmp(o->dtype, "u8")) return ((const uint8_t *)data)[i];
    if (!strcmp(o->dtype, "bf16")) bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    if (!strcmp(o->dtype, "f16") && ((const uint16_t *)data)[i])
        bits = ((uint32_t)((const uint16_t *)data)[i] << 13) + 0x38000000u;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static inline void op_fill(const op *o, void *data, long at, long n, int rank)
{
    int rough = op_is(o, "rough");
    for (long i = 0; i < n; i++)
        op_put(o, data, at + i, rough ? (double)op_rough(rank, i) : op_input(o, rank, i));
}

/* What `ranks` ranks' elements i make together. */
static inline double op_sum(const op *o, int ranks, long i)
{
    double all = op_input(o, 0, i);
    for (int r = 1; r < ranks; r++) {
        double x = op_input(o, r, i);
        if (!strcmp(o->reduce, "sum")) all += x;
        if (!strcmp(o->reduce, "product")) all *= x;
        if (!strcmp(o->reduce, "max") && x > all) all = x;
        if (!strcmp(o->reduce, "min") && x < all) all = x;
    }
    return all;
}

static inline int op_wrong(const op *o, int rank, long i, double found, double expected)
{
    printf("rank %d: %s %s %s %ld, peer %d: element %ld is %g, expected %g\n", rank, o->name, o->dtype, o->reduce,
           o->count, o->peer, i, found, expected);
    return 1;
}

/* data[at + i] is what rank `from` has at first + i; 1 = no. */
static inline int op_expect(const op *o, int rank, const void *data, long at, long n, int from, long first)
{
    for (long i = 0; i < n; i++)
        if (op_get(o, data, at + i) != op_value(from, first + i))
            return op_wrong(o, rank, at + i, op_get(o, data, at + i), op_value(from, first + i));
    return 0;
}

static inline int op_expect_sum(const op *o, int rank, int ranks, const void *data, long first, long n)
{
    for (long i = 0; i < n; i++)
        if (op_get(o, data, i) != op_sum(o, ranks, first + i))
            return op_wrong(o, rank, i, op_get(o, data, i), op_sum(o, ranks, first + i));
    return 0;
}

static inline void op_print_digest(const op *o, const void *data)
{
    const unsigned char *at = (const unsigned char *)data;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < (size_t)o->count * op_width(o); i++)
        h = (h ^ at[i]) * 1099511628211u;
    printf("bits %s %ld %016llx\n", o->dtype, o->count, (unsigned long long)h);
}

/* ---- timing: `time` makes `peer` all_reduce calls in place, a barrier before each ---- */

static inline double op_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline int op_compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median call. */
static inline void op_print_time(const op *o, double *seconds)
{
    qsort(seconds, (size_t)o->peer, sizeof *seconds, op_compare_seconds);
    printf("time %s %ld %.9f\n", o->dtype, o->count, seconds[o->peer / 2]);
}

#endif
