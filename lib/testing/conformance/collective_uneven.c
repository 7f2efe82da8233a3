/*
 * collective_uneven.c - shares of different lengths, empty ones and shares with gaps between them.
 */
#include "collective.h"
#include <string.h>

static const char *const rule_gather = "all_gather takes uneven shares";
static const char *const rule_scatter = "reduce_scatter takes uneven shares";

enum { GAP = 3 };

typedef struct {
    int64_t counts[RANKS_MAX], offsets[RANKS_MAX];
    int64_t total; /* with gaps */
} shares;

static shares make_shares(const member *m, int which, int64_t gap)
{
    shares s = {.total = gap};
    uneven_counts(m->world, which, s.counts);
    for (int32_t r = 0; r < m->world; r++) {
        s.offsets[r] = s.total;
        s.total += s.counts[r] + gap;
    }
    return s;
}

/* Gaps must still be zero. */
static void check_gaps(member *m, const vec *v, const shares *s, const char *what)
{
    int64_t at = 0, wrong = -1;
    for (int32_t r = 0; r <= m->world; r++) {
        int64_t end = r < m->world ? s->offsets[r] : s->total;
        for (; at < end; at++)
            if (vec_get(v, at) != 0) wrong = at;
        at = r < m->world ? end + s->counts[r] : end;
    }
    report_check(m->report, wrong < 0, RULE_GUARD, "%s: element %lld between the shares changed", what,
                 (long long)wrong);
}

static void all_gather(member *m, uint32_t dtype, int which, bool gaps)
{
    shares s = make_shares(m, which, gaps ? GAP : 0);
    int64_t n = s.counts[m->rank];
    vec share = vec_new(dtype, n), all = vec_new(dtype, s.total);
    vec_fill(&share, 0, n, m->rank);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = dtype,
                       .send = n ? share.data : NULL,
                       .receive = all.data,
                       .counts = s.counts,
                       .offsets = gaps ? s.offsets : NULL};
    if (member_call(m, rule_gather, m->table->all_gather, &a)) {
        for (int32_t r = 0; r < m->world; r++)
            vec_expect(m, rule_gather, &all, s.offsets[r], s.counts[r], r, 0);
        check_gaps(m, &all, &s, "all_gather");
        vec_check_guards(m, &all, "all_gather");
    }
    vec_free(&share);
    vec_free(&all);
}

/* Rank k's share of rank r's sum: all ranks send vec_value(rank, position in the full vector). */
static void reduce_scatter(member *m, uint32_t dtype, int which, bool gaps)
{
    shares s = make_shares(m, which, gaps ? GAP : 0);
    int64_t n = s.counts[m->rank], wrong = -1;
    vec all = vec_new(dtype, s.total), share = vec_new(dtype, n);
    vec_fill(&all, 0, s.total, m->rank);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = dtype,
                       .reduce = NRL_REDUCE_OP_SUM,
                       .send = all.data,
                       .receive = n ? share.data : NULL,
                       .counts = s.counts,
                       .offsets = gaps ? s.offsets : NULL};
    if (member_call(m, rule_scatter, m->table->reduce_scatter, &a)) {
        for (int64_t i = 0; i < n; i++) {
            double want = 0;
            for (int32_t r = 0; r < m->world; r++)
                want += vec_value(r, s.offsets[m->rank] + i);
            if (vec_get(&share, i) != want) wrong = i;
        }
        report_check(m->report, wrong < 0, rule_scatter, "rank %d of %d: element %lld of %lld %s is %g", m->rank,
                     m->world, (long long)wrong, (long long)n, nrl_dtype_name((nrl_dtype)dtype),
                     wrong < 0 ? 0 : vec_get(&share, wrong));
        vec_check_guards(m, &share, "reduce_scatter");
    }
    vec_free(&share);
    vec_free(&all);
}

static void rooted(member *m, int which, int32_t root)
{
    const char *to_root = "gather takes uneven shares", *from_root = "scatter takes uneven shares";
    shares s = make_shares(m, which, 0);
    int64_t n = s.counts[m->rank];
    vec share = vec_new(NRL_DTYPE_I32, n), all = vec_new(NRL_DTYPE_I32, s.total);
    nrl_comm_args a = {.size = sizeof a, .dtype = NRL_DTYPE_I32, .peer = root, .counts = s.counts};
    vec_fill(&share, 0, n, m->rank);
    a.send = n ? share.data : NULL;
    a.receive = m->rank == root ? all.data : NULL;
    if (m->table->gather && member_call(m, to_root, m->table->gather, &a))
        for (int32_t r = 0; r < m->world && m->rank == root; r++)
            vec_expect(m, to_root, &all, s.offsets[r], s.counts[r], r, 0);
    vec_fill(&all, 0, s.total, root);
    a.send = m->rank == root ? all.data : NULL;
    a.receive = n ? share.data : NULL;
    if (m->table->scatter && member_call(m, from_root, m->table->scatter, &a))
        vec_expect(m, from_root, &share, 0, n, root, s.offsets[m->rank]);
    vec_free(&share);
    vec_free(&all);
}

/* Rank r sends 11 r + 3 k elements to rank k, and nothing from rank 0 to itself or to the next
 * rank. */
static int64_t block(const member *m, int32_t from, int32_t to)
{
    return to == (from + 1) % m->world && from == 0 ? 0 : 11 * from + 3 * to;
}

static void all_to_all(member *m)
{
    const char *rule = "all_to_all takes uneven blocks";
    int64_t out[RANKS_MAX], out_at[RANKS_MAX], in[RANKS_MAX], in_at[RANKS_MAX], n_out = 0, n_in = 0;
    for (int32_t r = 0; r < m->world; r++) {
        out[r] = block(m, m->rank, r);
        in[r] = block(m, r, m->rank);
        out_at[r] = n_out;
        in_at[r] = n_in;
        n_out += out[r];
        n_in += in[r];
    }
    vec send = vec_new(NRL_DTYPE_F32, n_out), receive = vec_new(NRL_DTYPE_F32, n_in);
    for (int32_t r = 0; r < m->world; r++)
        for (int64_t i = 0; i < out[r]; i++)
            vec_set(&send, out_at[r] + i, vec_value(m->rank + 4 * r, i));
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = NRL_DTYPE_F32,
                       .send = send.data,
                       .receive = receive.data,
                       .counts = out,
                       .offsets = out_at,
                       .receive_counts = in,
                       .receive_offsets = in_at};
    if (member_call(m, rule, m->table->all_to_all, &a)) {
        for (int32_t r = 0; r < m->world; r++)
            vec_expect(m, rule, &receive, in_at[r], in[r], r + 4 * m->rank, 0);
        vec_check_guards(m, &receive, "all_to_all");
    }
    vec_free(&send);
    vec_free(&receive);
}

void collective_uneven(member *m)
{
    for (int which = 0; which < UNEVEN_CASES; which++) {
        for (int gaps = 0; gaps < 2; gaps++) {
            all_gather(m, NRL_DTYPE_F32, which, gaps);
            all_gather(m, NRL_DTYPE_BF16, which, gaps);
            reduce_scatter(m, NRL_DTYPE_F32, which, gaps);
            reduce_scatter(m, NRL_DTYPE_BF16, which, gaps);
        }
        rooted(m, which, which % m->world);
    }
    if (m->table->all_to_all) all_to_all(m);
}
