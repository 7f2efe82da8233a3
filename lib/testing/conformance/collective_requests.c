/*
 * collective_requests.c - requests: messages between two ranks, several in flight, waits that time
 * out, and operands that are freed when the call returns.
 */
#include "collective.h"
#include <stdlib.h>
#include <string.h>

static const char *const rule_match = "messages match by peer and tag";
static const char *const rule_order = "messages of one tag keep their order";
static const char *const rule_by_order = "messages keep their order, whatever their tags";
static const char *const rule_connect = "a group connects before its first message";
static const char *const rule_flight = "several requests are in flight at once";
static const char *const rule_start = "a call starts without waiting for other ranks";
static const char *const rule_wait = "a wait times out, and the request continues";

/* ---- send and recv ---- */

enum { N_MESSAGES = 6, LONG_MESSAGE = 300001 };

static const struct {
    uint64_t tag;
    int64_t n;
} messages[N_MESSAGES] = {{7, 5}, {9, 1000}, {7, 6}, {0, LONG_MESSAGE}, {7, 7}, {0x7fffffff, 0}};
/* The order in which they are received, unless they match by order alone; messages with the same tag are received in
 * the order in which they were sent. */
static const int receive_order[N_MESSAGES] = {1, 0, 5, 2, 3, 4};

static nrl_comm_args message_args(int i, int32_t peer, void *send, void *receive)
{
    return (nrl_comm_args){.size = sizeof(nrl_comm_args),
                           .dtype = NRL_DTYPE_F32,
                           .peer = peer,
                           .tag = messages[i].tag,
                           .count = messages[i].n,
                           .send = messages[i].n ? send : NULL,
                           .receive = messages[i].n ? receive : NULL};
}

void collective_messages(member *m)
{
    int32_t next = (m->rank + 1) % m->world, before = (m->rank + m->world - 1) % m->world;
    nrl_request *sends[N_MESSAGES] = {0}, *receives[N_MESSAGES] = {0};
    vec out[N_MESSAGES], in[N_MESSAGES];
    const bool by_order = m->table->by_order;
    if (!m->table->send || !m->table->recv) return;
    if (m->table->connect && !report_ok(m->report, m->table->connect(m->self), rule_connect)) m->over = true;
    for (int i = 0; i < N_MESSAGES; i++) {
        out[i] = vec_new(NRL_DTYPE_F32, messages[i].n);
        in[i] = vec_new(NRL_DTYPE_F32, messages[i].n);
        vec_fill(&out[i], 0, out[i].n, m->rank + i);
    }
    for (int i = 0; i < N_MESSAGES; i++) {
        nrl_comm_args a = message_args(i, next, out[i].data, NULL);
        member_start(m, rule_match, m->table->send, &a, &sends[i]);
    }
    for (int i = 0; i < N_MESSAGES; i++) {
        int which = by_order ? i : receive_order[i];
        nrl_comm_args a = message_args(which, before, NULL, in[which].data);
        member_start(m, rule_match, m->table->recv, &a, &receives[which]);
    }
    for (int i = 0; i < N_MESSAGES; i++) {
        const char *rule = by_order ? rule_by_order : messages[i].tag == 7 ? rule_order : rule_match;
        if (member_finish(m, rule, receives[i])) {
            vec_expect(m, rule, &in[i], 0, in[i].n, before + i, 0);
            vec_check_guards(m, &in[i], "recv");
        }
    }
    for (int i = 0; i < N_MESSAGES; i++)
        member_finish(m, rule_match, sends[i]);
    for (int i = 0; i < N_MESSAGES && !m->over; i++) {
        vec_free(&out[i]);
        vec_free(&in[i]);
    }
}

/* ---- many at once ---- */

enum { N_FLIGHT = 6 };

static int64_t flight_size(int i)
{
    return i == 3 ? 400003 : 100 * i + 1;
}

static void start_sum(member *m, int i, vec *v, nrl_request **request)
{
    *v = vec_new(NRL_DTYPE_F32, flight_size(i));
    vec_fill(v, 0, v->n, m->rank + i);
    nrl_comm_args a = {.size = sizeof a,
                       .dtype = NRL_DTYPE_F32,
                       .reduce = NRL_REDUCE_OP_SUM,
                       .send = v->data,
                       .receive = v->data,
                       .count = v->n};
    member_start(m, rule_flight, m->table->all_reduce, &a, request);
}

static void check_sum(member *m, const char *rule, int i, const vec *v)
{
    int64_t wrong = -1;
    for (int64_t k = 0; k < v->n; k++) {
        double want = 0;
        for (int32_t r = 0; r < m->world; r++)
            want += vec_value(r + i, k);
        if (vec_get(v, k) != want) wrong = k;
    }
    report_check(m->report, wrong < 0, rule, "rank %d of %d: request %d: element %lld is %g", m->rank, m->world, i,
                 (long long)wrong, wrong < 0 ? 0 : vec_get(v, wrong));
}

/* Sums and an all_gather, waited for from the last to the first. */
static void check_flight(member *m)
{
    nrl_request *requests[N_FLIGHT + 1] = {0};
    vec v[N_FLIGHT], share = vec_new(NRL_DTYPE_I64, 33), all = vec_new(NRL_DTYPE_I64, 33 * m->world);
    nrl_comm_args a = {.size = sizeof a, .dtype = NRL_DTYPE_I64, .count = 33};
    a.send = share.data;
    a.receive = all.data;
    vec_fill(&share, 0, 33, m->rank);
    for (int i = 0; i < N_FLIGHT; i++) {
        start_sum(m, i, &v[i], &requests[i]);
        if (i == 2) member_start(m, rule_flight, m->table->all_gather, &a, &requests[N_FLIGHT]);
    }
    for (int i = N_FLIGHT; i >= 0; i--) {
        if (!member_finish(m, rule_flight, requests[i])) continue;
        for (int32_t r = 0; r < m->world && i == N_FLIGHT; r++)
            vec_expect(m, rule_flight, &all, r * 33, 33, r, 0);
        if (i < N_FLIGHT) check_sum(m, rule_flight, i, &v[i]);
    }
    if (m->over) return; /* requests in flight may use the memory */
    for (int i = 0; i < N_FLIGHT; i++)
        vec_free(&v[i]);
    vec_free(&share);
    vec_free(&all);
}

/* Operands belong to the caller and are gone when the call returns. */
static void check_operands(member *m)
{
    const char *rule = "operands may be freed when the call returns";
    size_t bytes = (size_t)m->world * sizeof(int64_t);
    nrl_comm_args *a = calloc(1, sizeof *a);
    int64_t *counts = calloc(1, bytes), total = 0, own[RANKS_MAX];
    nrl_request *request;
    uneven_counts(m->world, 2, own);
    memcpy(counts, own, bytes);
    for (int32_t r = 0; r < m->world; r++)
        total += own[r];
    vec share = vec_new(NRL_DTYPE_F32, own[m->rank]), all = vec_new(NRL_DTYPE_F32, total);
    vec_fill(&share, 0, share.n, m->rank);
    *a = (nrl_comm_args){
        .size = sizeof *a, .dtype = NRL_DTYPE_F32, .send = share.data, .receive = all.data, .counts = counts};
    member_start(m, rule, m->table->all_gather, a, &request);
    memset(counts, 0, bytes);
    memset(a, 0, sizeof *a);
    if (member_finish(m, rule, request))
        for (int64_t r = 0, at = 0; r < m->world; at += own[r++])
            vec_expect(m, rule, &all, at, own[r], (int32_t)r, 0);
    free(counts);
    free(a);
    if (m->over) return;
    vec_free(&share);
    vec_free(&all);
}

/* Testing a request again after it is done. */
static void check_done(member *m)
{
    const char *rule = "a request that is done stays done";
    nrl_request *request;
    vec v;
    bool done = false;
    start_sum(m, 1, &v, &request);
    if (m->over) return;
    nrl_status st = m->table->wait(m->self, request, DONE_SECONDS, &done);
    report_check(m->report, st == NRL_OK && done, RULE_DONE, "status %d: %s", (int)st, nrl_error_text());
    for (int i = 0; i < 2 && st == NRL_OK && done; i++) {
        done = false;
        st = m->table->wait(m->self, request, 0, &done);
        report_check(m->report, st == NRL_OK && done, rule, "status %d, done %d", (int)st, done);
    }
    if (!member_finish(m, rule, request)) return;
    check_sum(m, rule, 1, &v);
    vec_free(&v);
}

static void check_info(member *m)
{
    nrl_collective_info info = {.size = sizeof info};
    m->table->info(m->self, &info);
    report_check(m->report, info.text && *info.text && info.bytes_sent > 400003 && info.bytes_received > 400003,
                 "info gives the traffic and a line for the plan", "'%s', %lld bytes sent, %lld received",
                 info.text ? info.text : "", (long long)info.bytes_sent, (long long)info.bytes_received);
    report_check(m->report, m->table->failed_peer(m->self) == -1, "no rank is lost if nothing failed", "rank %d",
                 m->table->failed_peer(m->self));
}

void collective_requests(member *m)
{
    check_flight(m);
    check_operands(m);
    if (!m->over) check_done(m);
    if (!m->over) check_info(m);
}

/* ---- time: signal 0: rank 0 has started; signal 1: its wait has timed out ---- */

static void wait_in_vain(member *m, nrl_request *request)
{
    static const double limits[] = {0, 0.05};
    for (int i = 0; i < 2; i++) {
        bool done = false;
        double start = clock_seconds();
        nrl_status st = m->table->wait(m->self, request, limits[i], &done);
        double took = clock_seconds() - start;
        report_check(m->report, st == NRL_OK && !done && took < 3, rule_wait,
                     "a wait of %g s for ranks that have not called: status %d, done %d after %.1f s", limits[i],
                     (int)st, done, took);
    }
}

void collective_timing(member *m)
{
    nrl_request *request;
    vec v;
    if (m->rank > 0) {
        bool started = member_await(m, 0, 1, 5);
        report_check(m->report, started, rule_start, "rank 0's all_reduce did not return in 5 s");
        if (started) member_await(m, 1, 1, 5);
    }
    start_sum(m, 0, &v, &request);
    if (m->rank == 0) {
        member_signal(m, 0);
        if (!m->over) wait_in_vain(m, request);
        member_signal(m, 1);
    }
    if (!member_finish(m, rule_wait, request)) return;
    check_sum(m, rule_wait, 0, &v);
    vec_free(&v);
}
