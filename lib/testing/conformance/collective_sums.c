/*
 * collective_sums.c - reductions: their results in every dtype, on all ranks, on the root or in
 * shares; and that results are bit-identical on all ranks and in every repetition.
 */
#include "collective.h"
#include <stdlib.h>
#include <string.h>

static const uint32_t dtypes[] = {NRL_DTYPE_F32, NRL_DTYPE_BF16, NRL_DTYPE_F16, NRL_DTYPE_F64,
                                  NRL_DTYPE_I32, NRL_DTYPE_I64,  NRL_DTYPE_U8};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

static const char *rule_of(uint32_t reduce)
{
    return reduce == NRL_REDUCE_OP_AVERAGE   ? "an average is the sum divided by the number of ranks"
           : reduce == NRL_REDUCE_OP_MAX     ? "a maximum is the largest of all ranks"
           : reduce == NRL_REDUCE_OP_MIN     ? "a minimum is the smallest of all ranks"
           : reduce == NRL_REDUCE_OP_PRODUCT ? "a product has every rank's factor"
                                             : "a sum includes every element of every rank";
}

/* Factors of a product are 1 to 3, so that it is exact in bf16 for 4 ranks. */
static double input(uint32_t reduce, int32_t rank, int64_t i)
{
    return reduce == NRL_REDUCE_OP_PRODUCT ? (double)((i + rank) % 3 + 1) : vec_value(rank, i);
}

static double expected(uint32_t reduce, int32_t world, int64_t i)
{
    double all = input(reduce, 0, i);
    for (int32_t r = 1; r < world; r++) {
        double x = input(reduce, r, i);
        if (reduce == NRL_REDUCE_OP_MAX) all = x > all ? x : all;
        if (reduce == NRL_REDUCE_OP_MIN) all = x < all ? x : all;
        if (reduce == NRL_REDUCE_OP_PRODUCT) all *= x;
        if (reduce == NRL_REDUCE_OP_SUM || reduce == NRL_REDUCE_OP_AVERAGE) all += x;
    }
    return reduce == NRL_REDUCE_OP_AVERAGE ? all / world : all;
}

/* Sums are exact. A division rounds once; a multiplication by 1 / world rounds once more. */
static double tolerance(uint32_t dtype, uint32_t reduce, double want)
{
    double step = dtype == NRL_DTYPE_BF16  ? 0x1p-8
                  : dtype == NRL_DTYPE_F16 ? 0x1p-11
                  : dtype == NRL_DTYPE_F64 ? 0x1p-52
                                           : 0x1p-23;
    return reduce == NRL_REDUCE_OP_AVERAGE ? 2 * step * want : 0;
}

static void check_result(member *m, const char *rule, const vec *v, uint32_t reduce, int64_t from)
{
    int64_t wrong = -1;
    double want = 0;
    for (int64_t i = 0; i < v->n && wrong < 0; i++) {
        want = expected(reduce, m->world, from + i);
        double error = vec_get(v, i) - want;
        if (!((error < 0 ? -error : error) <= tolerance(v->dtype, reduce, want))) wrong = i;
    }
    report_check(m->report, wrong < 0, rule, "rank %d of %d: element %lld of %lld (%s) is %g, expected %g", m->rank,
                 m->world, (long long)wrong, (long long)v->n, nrl_dtype_name((nrl_dtype)v->dtype),
                 wrong < 0 ? 0 : vec_get(v, wrong), want);
}

static void fill(vec *v, uint32_t reduce, int32_t rank)
{
    for (int64_t i = 0; i < v->n; i++)
        vec_set(v, i, input(reduce, rank, i));
}

static void all_reduce(member *m, uint32_t dtype, uint32_t reduce, int64_t n, bool in_place)
{
    const char *rule = in_place ? "all_reduce works in place" : rule_of(reduce);
    vec send = vec_new(dtype, n), receive = vec_new(dtype, n), *result = in_place ? &send : &receive;
    fill(&send, reduce, m->rank);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = dtype,
                       .reduce = reduce,
                       .send = n ? send.data : NULL,
                       .receive = n ? result->data : NULL,
                       .count = n};
    if (member_call(m, rule, m->table->all_reduce, &a)) {
        check_result(m, rule, result, reduce, 0);
        vec_check_guards(m, result, "all_reduce");
        for (int64_t i = 0; i < n && !in_place; i++)
            if (vec_get(&send, i) != input(reduce, m->rank, i)) {
                report_check(m->report, false, RULE_GUARD, "all_reduce changed what was sent");
                break;
            }
    }
    vec_free(&send);
    vec_free(&receive);
}

static void refuse_average(member *m)
{
    const char *rule = "an average of whole numbers is refused";
    vec v = vec_new(NRL_DTYPE_I32, 8);
    nrl_request *request = NULL;
    bool done = false;
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = NRL_DTYPE_I32,
                       .reduce = NRL_REDUCE_OP_AVERAGE,
                       .send = v.data,
                       .receive = v.data,
                       .count = 8};
    if (m->over) return;
    nrl_status st = m->table->all_reduce(m->self, &a, &request);
    if (st == NRL_OK && request) {
        st = m->table->wait(m->self, request, DONE_SECONDS, &done);
        m->table->release(m->self, request);
    }
    report_check(m->report, st == NRL_ERR_CONFIG || st == NRL_ERR_PLUGIN, rule, "status %d, expected %d", (int)st,
                 NRL_ERR_CONFIG);
    vec_free(&v);
}

void collective_sums(member *m)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 13, 1000, 65537, 400011};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        all_reduce(m, NRL_DTYPE_F32, NRL_REDUCE_OP_SUM, sizes[i], false);
        if (sizes[i] < 100000) all_reduce(m, NRL_DTYPE_BF16, NRL_REDUCE_OP_SUM, sizes[i], true);
    }
    for (int d = 0; d < N_DTYPES; d++)
        for (uint32_t reduce = NRL_REDUCE_OP_SUM; reduce <= NRL_REDUCE_OP_PRODUCT; reduce++)
            if (reduce != NRL_REDUCE_OP_AVERAGE || dtypes[d] < NRL_DTYPE_I32)
                all_reduce(m, dtypes[d], reduce, 101, dtypes[d] == NRL_DTYPE_I64);
    refuse_average(m);
}

/* ---- to one rank, and in shares ---- */

static void reduce_to(member *m, uint32_t dtype, uint32_t reduce, int64_t n, int32_t root)
{
    const char *rule = "reduce gives the root the sum";
    vec send = vec_new(dtype, n), receive = vec_new(dtype, n);
    fill(&send, reduce, m->rank);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = dtype,
                       .reduce = reduce,
                       .peer = root,
                       .send = send.data,
                       .receive = m->rank == root ? receive.data : NULL,
                       .count = n};
    if (member_call(m, rule, m->table->reduce, &a)) {
        if (m->rank == root) check_result(m, rule, &receive, reduce, 0);
        vec_check_guards(m, &receive, "reduce");
    }
    vec_free(&send);
    vec_free(&receive);
}

static void reduce_scatter(member *m, uint32_t dtype, uint32_t reduce, int64_t n, bool in_place)
{
    const char *rule = in_place ? "reduce_scatter receives in its own place in send"
                                : "reduce_scatter gives each rank its share of the sum";
    vec all = vec_new(dtype, n * m->world), share = vec_new(dtype, n);
    fill(&all, reduce, m->rank);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = dtype,
                       .reduce = reduce,
                       .send = all.data,
                       .receive = in_place ? vec_at(&all, m->rank * n) : share.data,
                       .count = n};
    if (member_call(m, rule, m->table->reduce_scatter, &a)) {
        if (in_place) memcpy(share.data, a.receive, (size_t)n * nrl_dtype_size((nrl_dtype)dtype));
        check_result(m, rule, &share, reduce, m->rank * n);
        vec_check_guards(m, &all, "reduce_scatter");
        vec_check_guards(m, &share, "reduce_scatter");
    }
    vec_free(&all);
    vec_free(&share);
}

void collective_shares(member *m)
{
    static const int64_t sizes[] = {1, 2, 3, 1000, 40001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int in_place = 0; in_place < 2; in_place++)
            reduce_scatter(m, in_place ? NRL_DTYPE_F32 : NRL_DTYPE_BF16,
                           i % 2 ? NRL_REDUCE_OP_AVERAGE : NRL_REDUCE_OP_SUM, sizes[i], in_place);
    for (int32_t root = 0; root < m->world && m->table->reduce; root++) {
        reduce_to(m, NRL_DTYPE_F32, NRL_REDUCE_OP_SUM, 1001, root);
        reduce_to(m, NRL_DTYPE_F64, NRL_REDUCE_OP_MAX, 1, root);
    }
    if (m->table->reduce) reduce_to(m, NRL_DTYPE_F32, NRL_REDUCE_OP_SUM, 1400003, m->world - 1);
}

/* ---- bits ---- */

static uint64_t digest(uint64_t h, const void *data, size_t n)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * 1099511628211u;
    return h;
}

/* Values of very different magnitude, so that sums depend on the order. */
static void fill_rough(vec *v, int32_t rank)
{
    uint32_t state = 12345u + 777u * (uint32_t)rank;
    for (int64_t i = 0; i < v->n; i++) {
        state = state * 1664525u + 1013904223u;
        double size = (state >> 8) % 7 == 0 ? 1000 : 1;
        vec_set(v, i, size * ((double)(state >> 9) / 4194304.0 - 1));
    }
}

static void rough_sum(member *m, uint32_t dtype, uint32_t reduce, int64_t n)
{
    vec send = vec_new(dtype, n), first = vec_new(dtype, n), again = vec_new(dtype, n);
    size_t bytes = (size_t)n * nrl_dtype_size((nrl_dtype)dtype);
    fill_rough(&send, m->rank);
    nrl_comm_args a = {
        .size = sizeof a, .dtype = dtype, .reduce = reduce, .send = send.data, .receive = first.data, .count = n};
    if (member_call(m, RULE_DONE, m->table->all_reduce, &a)) {
        a.receive = again.data;
        if (member_call(m, RULE_DONE, m->table->all_reduce, &a))
            report_check(m->report, !memcmp(first.data, again.data, bytes), "a repeated sum is bit-identical",
                         "rank %d of %d: %lld %s", m->rank, m->world, (long long)n, nrl_dtype_name((nrl_dtype)dtype));
        m->g->digests[m->rank] = digest(m->g->digests[m->rank], first.data, bytes);
    }
    vec_free(&send);
    vec_free(&first);
    vec_free(&again);
}

void collective_bits(member *m)
{
    static const int64_t sizes[] = {1, 5, 1001, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t dtype = NRL_DTYPE_F32; dtype <= NRL_DTYPE_F64; dtype++)
            rough_sum(m, dtype, i % 2 ? NRL_REDUCE_OP_AVERAGE : NRL_REDUCE_OP_SUM, sizes[i]);
}
