/*
 * collective_moves.c - calls that only move elements: barrier, broadcast, all_gather, gather,
 * scatter, all_to_all, with equal shares. collective_uneven.c has uneven ones.
 */
#include "collective.h"

static const uint32_t dtypes[] = {NRL_DTYPE_F32, NRL_DTYPE_BF16, NRL_DTYPE_F16, NRL_DTYPE_F64,
                                  NRL_DTYPE_I32, NRL_DTYPE_I64,  NRL_DTYPE_U8};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };
static const int64_t sizes[] = {1, 2, 5, 1000, 65537};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void broadcast(member *m, uint32_t dtype, int64_t n, int32_t root)
{
    const char *rule = "broadcast gives every rank the root's elements";
    vec v = vec_new(dtype, n);
    if (m->rank == root) vec_fill(&v, 0, n, root);
    nrl_comm_args a = {.size = sizeof a, .dtype = dtype, .peer = root, .receive = v.data, .count = n};
    if (member_call(m, rule, m->table->broadcast, &a)) {
        vec_expect(m, rule, &v, 0, n, root, 0);
        vec_check_guards(m, &v, "broadcast");
    }
    vec_free(&v);
}

static void all_gather(member *m, uint32_t dtype, int64_t n, bool in_place)
{
    const char *rule =
        in_place ? "all_gather sends from its own place in receive" : "all_gather holds the shares rank after rank";
    vec share = vec_new(dtype, n), all = vec_new(dtype, n * m->world);
    vec_fill(&share, 0, n, m->rank);
    if (in_place) vec_fill(&all, m->rank * n, n, m->rank);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = dtype,
                       .send = in_place ? vec_at(&all, m->rank * n) : share.data,
                       .receive = all.data,
                       .count = n};
    if (member_call(m, rule, m->table->all_gather, &a)) {
        for (int32_t r = 0; r < m->world; r++)
            vec_expect(m, rule, &all, r * n, n, r, 0);
        vec_expect(m, RULE_GUARD, &share, 0, n, m->rank, 0);
        vec_check_guards(m, &all, "all_gather");
    }
    vec_free(&share);
    vec_free(&all);
}

static void gather(member *m, uint32_t dtype, int64_t n, int32_t root)
{
    const char *rule = "gather brings the shares to the root";
    vec share = vec_new(dtype, n), all = vec_new(dtype, n * m->world);
    vec_fill(&share, 0, n, m->rank);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = dtype,
                       .peer = root,
                       .send = share.data,
                       .receive = m->rank == root ? all.data : NULL,
                       .count = n};
    if (member_call(m, rule, m->table->gather, &a)) {
        for (int32_t r = 0; r < m->world && m->rank == root; r++)
            vec_expect(m, rule, &all, r * n, n, r, 0);
        vec_check_guards(m, &all, "gather");
    }
    vec_free(&share);
    vec_free(&all);
}

static void scatter(member *m, uint32_t dtype, int64_t n, int32_t root)
{
    const char *rule = "scatter gives each rank its share";
    vec share = vec_new(dtype, n), all = vec_new(dtype, n * m->world);
    vec_fill(&all, 0, n * m->world, root);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = dtype,
                       .peer = root,
                       .send = m->rank == root ? all.data : NULL,
                       .receive = share.data,
                       .count = n};
    if (member_call(m, rule, m->table->scatter, &a)) {
        vec_expect(m, rule, &share, 0, n, root, m->rank * n);
        vec_check_guards(m, &share, "scatter");
    }
    vec_free(&share);
    vec_free(&all);
}

static void all_to_all(member *m, uint32_t dtype, int64_t n)
{
    const char *rule = "all_to_all brings each block to its rank";
    vec send = vec_new(dtype, n * m->world), receive = vec_new(dtype, n * m->world);
    vec_fill(&send, 0, n * m->world, m->rank);
    nrl_comm_args a = {.size = sizeof a, .dtype = dtype, .send = send.data, .receive = receive.data, .count = n};
    if (member_call(m, rule, m->table->all_to_all, &a)) {
        for (int32_t r = 0; r < m->world; r++)
            vec_expect(m, rule, &receive, r * n, n, r, m->rank * n);
        vec_check_guards(m, &receive, "all_to_all");
    }
    vec_free(&send);
    vec_free(&receive);
}

static void all_moves(member *m, uint32_t dtype, int64_t n)
{
    int32_t root = (int32_t)((n + dtype) % m->world);
    broadcast(m, dtype, n, root);
    all_gather(m, dtype, n, false);
    all_gather(m, dtype, n, true);
    if (m->table->gather) gather(m, dtype, n, root);
    if (m->table->scatter) scatter(m, dtype, n, root);
    if (m->table->all_to_all) all_to_all(m, dtype, n);
}

/* Each rank in turn is late; no rank may pass the barrier before it arrives. */
static void check_barrier(member *m)
{
    for (int32_t late = 0; late < m->world && !m->over; late++) {
        int which = late;
        if (m->rank == late) clock_sleep(0.05);
        member_signal(m, which);
        if (!member_barrier(m)) return;
        int came = atomic_load(&m->g->signals[which]);
        report_check(m->report, came == m->world, "a barrier holds until the last rank comes",
                     "rank %d of %d passed when %d had arrived", m->rank, m->world, came);
    }
}

void collective_moves(member *m)
{
    check_barrier(m);
    for (int i = 0; i < N_SIZES; i++)
        all_moves(m, NRL_DTYPE_F32, sizes[i]);
    for (int i = 0; i < N_DTYPES; i++)
        all_moves(m, dtypes[i], 77);
    for (int32_t root = 0; root < m->world; root++)
        broadcast(m, NRL_DTYPE_U8, 300001, root);
}
