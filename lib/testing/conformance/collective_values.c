/*
 * collective_values.c - vectors of any dtype between guards.
 */
#include "collective.h"
#include "base/convert.h"
#include <stdlib.h>
#include <string.h>

enum { EDGE = 64, MARK = 0xa5 };

static size_t bytes_of(const vec *v)
{
    return (size_t)v->n * nrl_dtype_size(v->dtype);
}

vec vec_new(uint32_t dtype, int64_t n)
{
    vec v = {.dtype = dtype, .n = n};
    size_t bytes = bytes_of(&v) + 2 * EDGE;
    v.memory = aligned_alloc(EDGE, (bytes + EDGE - 1) / EDGE * EDGE);
    NRL_ASSERT(v.memory != NULL, ==, true);
    memset(v.memory, MARK, bytes);
    v.data = v.memory + EDGE;
    memset(v.data, 0, bytes_of(&v));
    return v;
}

void vec_free(vec *v)
{
    free(v->memory);
    *v = (vec){0};
}

void *vec_at(const vec *v, int64_t i)
{
    return (char *)v->data + (size_t)i * nrl_dtype_size(v->dtype);
}

void vec_set(vec *v, int64_t i, double value)
{
    float single = (float)value;
    switch (v->dtype) {
    case NRL_DTYPE_F64:
        ((double *)v->data)[i] = value;
        break;
    case NRL_DTYPE_I32:
        ((int32_t *)v->data)[i] = (int32_t)value;
        break;
    case NRL_DTYPE_I64:
        ((int64_t *)v->data)[i] = (int64_t)value;
        break;
    case NRL_DTYPE_U8:
        ((uint8_t *)v->data)[i] = (uint8_t)value;
        break;
    default:
        convert_from_f32((nrl_dtype)v->dtype, &single, 1, vec_at(v, i));
        break;
    }
}

double vec_get(const vec *v, int64_t i)
{
    float single;
    switch (v->dtype) {
    case NRL_DTYPE_F64:
        return ((const double *)v->data)[i];
    case NRL_DTYPE_I32:
        return ((const int32_t *)v->data)[i];
    case NRL_DTYPE_I64:
        return (double)((const int64_t *)v->data)[i];
    case NRL_DTYPE_U8:
        return ((const uint8_t *)v->data)[i];
    default:
        convert_to_f32((nrl_dtype)v->dtype, vec_at(v, i), 1, &single);
        return single;
    }
}

/* 1 to 13; neighboring elements and ranks differ */
double vec_value(int32_t rank, int64_t i)
{
    return (double)((i * 5 + (i / 13) + rank * 7) % 13 + 1);
}

void vec_fill(vec *v, int64_t at, int64_t n, int32_t rank)
{
    for (int64_t i = 0; i < n; i++)
        vec_set(v, at + i, vec_value(rank, i));
}

bool vec_expect(member *m, const char *rule, const vec *v, int64_t at, int64_t n, int32_t rank, int64_t from)
{
    int64_t i = 0;
    while (i < n && vec_get(v, at + i) == vec_value(rank, from + i))
        i++;
    return report_check(m->report, i == n, rule,
                        "rank %d of %d: element %lld of %lld (%s) is %g, expected %g of rank %d", m->rank, m->world,
                        (long long)(at + i), (long long)v->n, nrl_dtype_name((nrl_dtype)v->dtype),
                        i < n ? vec_get(v, at + i) : 0, vec_value(rank, from + i), rank);
}

void uneven_counts(int32_t world, int which, int64_t *counts)
{
    for (int32_t r = 0; r < world; r++) {
        counts[r] = r + 1 < world ? 7 : 3;
        if (which == 1) counts[r] = r % 2 ? 0 : 5 + r;
        if (which == 2) counts[r] = 70001 - 30000 * (r % 3);
    }
}

void vec_check_guards(member *m, const vec *v, const char *what)
{
    const unsigned char *before = v->memory, *after = (const unsigned char *)v->data + bytes_of(v);
    bool holds = true;
    for (int i = 0; i < EDGE; i++)
        holds = holds && before[i] == MARK && after[i] == MARK;
    report_check(m->report, holds, RULE_GUARD, "rank %d of %d: %s of %lld %s: adjacent memory changed", m->rank,
                 m->world, what, (long long)v->n, nrl_dtype_name((nrl_dtype)v->dtype));
}
