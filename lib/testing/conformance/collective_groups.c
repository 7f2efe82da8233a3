/*
 * collective_groups.c - groups of ranks, and what happens when a rank aborts or leaves.
 */
#include "collective.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const rule_split = "split makes groups by colour, ordered by key, then rank";

/* ---- groups ---- */

/* The ranks of the current group, in its order, as seen by one of its members. */
static void check_members(member *m, void *group, int32_t size, const int32_t *want)
{
    member in = *m;
    vec mine = vec_new(NRL_DTYPE_I32, 1), all = vec_new(NRL_DTYPE_I32, size);
    bool same = true;
    nrl_comm_args a = {.size = sizeof a, .dtype = NRL_DTYPE_I32, .send = mine.data, .receive = all.data, .count = 1};
    in.self = group;
    vec_set(&mine, 0, m->rank + 10);
    if (member_call(&in, rule_split, m->table->all_gather, &a)) {
        for (int32_t i = 0; i < size; i++)
            same = same && vec_get(&all, i) == want[i] + 10;
        report_check(m->report, same, rule_split, "rank %d: a group of %d begins with rank %g, expected %d", m->rank,
                     size, vec_get(&all, 0) - 10, want[0]);
        vec_check_guards(m, &all, "all_gather of a group");
    }
    m->over = in.over;
    vec_free(&mine);
    vec_free(&all);
}

static void *split(member *m, int32_t color, int32_t key)
{
    void *group = NULL;
    if (m->over) return NULL;
    nrl_status st = m->table->split(m->self, color, key, &group);
    bool holds = st == NRL_OK && !group == (color < 0);
    m->over = !report_check(m->report, holds, rule_split, "rank %d, colour %d: status %d, %s group%s%s", m->rank, color,
                            (int)st, group ? "a" : "no", st ? ": " : "", st ? nrl_error_text() : "");
    return group;
}

static void close_group(member *m, void *group)
{
    if (group) m->table->close(group);
}

/* A sum over all ranks and a sum over the group in flight at the same time. */
static void check_both(member *m, void *group)
{
    const char *rule = "a group and the whole work side by side";
    member in = *m;
    nrl_request *of_all, *of_group;
    vec a = vec_new(NRL_DTYPE_F32, 70001), b = vec_new(NRL_DTYPE_F32, 50001);
    vec_set(&a, 70000, m->rank + 1);
    vec_set(&b, 50000, m->rank + 1);
    nrl_comm_args args = {.size = sizeof args,
                          .dtype = NRL_DTYPE_F32,
                          .reduce = NRL_REDUCE_OP_SUM,
                          .send = a.data,
                          .receive = a.data,
                          .count = a.n};
    member_start(m, rule, m->table->all_reduce, &args, &of_all);
    args.send = args.receive = b.data;
    args.count = b.n;
    in.self = group;
    member_start(&in, rule, m->table->all_reduce, &args, &of_group);
    bool both = member_finish(&in, rule, of_group);
    both = member_finish(m, rule, of_all) && both;
    double pair = m->rank % 2 ? 2 + 4 : 1 + 3;
    if (both)
        report_check(m->report, vec_get(&a, 70000) == 10 && vec_get(&b, 50000) == pair, rule,
                     "rank %d: the sums end in %g and %g, expected 10 and %g", m->rank, vec_get(&a, 70000),
                     vec_get(&b, 50000), pair);
    m->over |= in.over;
    if (m->over) return;
    vec_free(&a);
    vec_free(&b);
}

void collective_groups(member *m)
{
    const int32_t odd_even[2][2] = {{2, 0}, {3, 1}}, but_last[] = {0, 1, 2};
    void *group = split(m, m->rank % 2, -m->rank);
    if (group) {
        check_members(m, group, 2, odd_even[m->rank % 2]);
        check_both(m, group);
        close_group(m, group);
    }
    group = split(m, m->rank == 3 ? -1 : 5, 0);
    if (group) check_members(m, group, 3, but_last);
    close_group(m, group);
    group = split(m, m->rank, 0); /* a group of one rank */
    if (group) check_members(m, group, 1, &m->rank);
    close_group(m, group);
    group = split(m, 0, m->rank); /* all ranks, after the other groups were closed */
    if (group) check_members(m, group, 4, (const int32_t[]){0, 1, 2, 3});
    close_group(m, group);
}

/* ---- abort by another thread; signal 0 is set when rank 0 has seen the result ---- */

static void *abort_soon(void *user)
{
    member *m = user;
    clock_sleep(0.1);
    m->table->abort(m->self);
    return NULL;
}

/* A call that only rank 0 makes, among all ranks or in a group. */
static void abort_while_waiting(member *m, void *in, const char *rule)
{
    pthread_t thread;
    bool done = false;
    nrl_request *request = NULL;
    vec v = vec_new(NRL_DTYPE_F32, 100);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = NRL_DTYPE_F32,
                       .reduce = NRL_REDUCE_OP_SUM,
                       .send = v.data,
                       .receive = v.data,
                       .count = 100};
    nrl_status st = m->table->all_reduce(in, &a, &request);
    if (!report_check(m->report, st == NRL_OK && request, rule, "status %d", (int)st)) return;
    NRL_ASSERT(pthread_create(&thread, NULL, abort_soon, m), ==, 0);
    double start = clock_seconds();
    st = m->table->wait(in, request, 5, &done);
    double took = clock_seconds() - start;
    report_check(m->report, st == NRL_ERR_PEER && took < 4, rule, "the wait gave status %d, done %d after %.1f s",
                 (int)st, done, took);
    if (st != NRL_OK) report_check(m->report, *nrl_error_text(), rule, "there is no error text");
    pthread_join(thread, NULL);
    if (st == NRL_OK && !done) return; /* the request may still use the memory */
    m->table->release(in, request);
    vec_free(&v);
}

void collective_abort(member *m)
{
    void *group = NULL;
    m->lone = true;
    if (m->world > 2) group = split(m, 0, m->rank);
    if (m->over) return;
    if (m->rank == 0) {
        if (m->world > 2)
            abort_while_waiting(m, group, "abort ends requests of groups too");
        else
            abort_while_waiting(m, m->self, "abort ends requests in flight");
        member_signal(m, 0);
    } else {
        member_await(m, 0, 1, 20);
    }
    close_group(m, group);
}

/* ---- a lost rank: signal 0 is set when rank 0 is in a call, then rank 1 leaves ---- */

void collective_loss(member *m)
{
    const char *rule = "calls that need a lost rank fail and name it";
    bool done = false;
    nrl_request *request = NULL;
    vec v = vec_new(NRL_DTYPE_F32, 1000);
    m->lone = true;
    if (m->rank == 1) {
        report_check(m->report, member_await(m, 0, 1, 10), rule, "rank 0 did not start in 10 s");
        m->table->abort(m->self); /* without a leave message */
        vec_free(&v);
        return;
    }
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = NRL_DTYPE_F32,
                       .reduce = NRL_REDUCE_OP_SUM,
                       .send = v.data,
                       .receive = v.data,
                       .count = 1000};
    nrl_status st = m->table->all_reduce(m->self, &a, &request);
    member_signal(m, 0);
    if (!report_check(m->report, st == NRL_OK && request, rule, "status %d", (int)st)) return;
    st = m->table->wait(m->self, request, DONE_SECONDS, &done);
    report_check(m->report, st == NRL_ERR_PEER, rule, "status %d, done %d after at most %d s", (int)st, done,
                 DONE_SECONDS);
    if (st == NRL_OK && !done) return; /* the request may still use the memory */
    if (st != NRL_OK)
        report_check(m->report, strchr(nrl_error_text(), '1'), rule, "rank 1 is gone; the error is '%s'",
                     nrl_error_text());
    report_check(m->report, m->table->failed_peer(m->self) == 1, rule, "failed_peer is %d, expected 1",
                 m->table->failed_peer(m->self));
    m->table->release(m->self, request);
    vec_free(&v);
}
