/*
 * collective_ranks.c - ranks as threads: they open, run a part, leave in order and close. A rank
 * that does not return is left running, with everything that it may use.
 */
#include "collective.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { PART_SECONDS = 60, MARGIN_SECONDS = 30 };

typedef struct {
    pthread_t thread;
    member m;
    conformance_report report;
    void (*part)(member *m);
} rank_thread;

void member_signal(member *m, int which)
{
    atomic_fetch_add(&m->g->signals[which], 1);
}

bool member_await(member *m, int which, int count, double seconds)
{
    double end = clock_seconds() + seconds;
    while (atomic_load(&m->g->signals[which]) < count) {
        if (clock_seconds() > end) return false;
        clock_sleep(0.001);
    }
    return true;
}

/* ---- calls ---- */

bool member_start(member *m, const char *rule, collective_call call, const nrl_comm_args *a, nrl_request **request)
{
    *request = NULL;
    if (m->over) return false;
    nrl_status st = call(m->self, a, request);
    m->over = !report_check(m->report, st == NRL_OK && *request, rule, "rank %d of %d: status %d: %s", m->rank,
                            m->world, (int)st, st == NRL_OK ? "no request" : nrl_error_text());
    return !m->over;
}

bool member_finish(member *m, const char *rule, nrl_request *request)
{
    bool done = false;
    if (!request) return false;
    nrl_status st = m->table->wait(m->self, request, DONE_SECONDS, &done);
    if (st == NRL_OK && !done) {
        m->over = true;
        return report_check(m->report, false, RULE_DONE, "rank %d of %d: '%s': not after %d s", m->rank, m->world, rule,
                            DONE_SECONDS);
    }
    m->over |= !report_check(m->report, st == NRL_OK, rule, "rank %d of %d: status %d: %s", m->rank, m->world, (int)st,
                             nrl_error_text());
    m->table->release(m->self, request);
    return st == NRL_OK;
}

bool member_call(member *m, const char *rule, collective_call call, const nrl_comm_args *a)
{
    nrl_request *request;
    return member_start(m, rule, call, a, &request) && member_finish(m, rule, request);
}

bool member_barrier(member *m)
{
    nrl_comm_args a = {.size = sizeof a};
    return member_call(m, "a barrier holds until the last rank comes", m->table->barrier, &a);
}

/* ---- one rank ---- */

static void *run_rank(void *user)
{
    rank_thread *t = user;
    member *m = &t->m;
    nrl_status st = m->table->open(m->g->options, m->g->store, m->rank, m->world, JOIN_SECONDS, &m->self);
    if (!report_check(m->report, st == NRL_OK && m->self, "ranks join through the store",
                      "rank %d of %d: status %d: %s", m->rank, m->world, (int)st, nrl_error_text())) {
        m->over = true;
        return NULL;
    }
    void *whole = m->self;
    t->part(m);
    m->self = whole;
    if (!m->lone) member_barrier(m);
    if (m->over) m->table->abort(m->self);
    m->table->close(m->self);
    return NULL;
}

/* ---- all ranks ---- */

static bool join_threads(rank_thread *threads, int32_t world)
{
    struct timespec end;
    bool all = true;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PART_SECONDS + MARGIN_SECONDS;
    for (int32_t r = 0; r < world; r++)
        all = pthread_timedjoin_np(threads[r].thread, NULL, &end) == 0 && all;
    return all;
}

static void check_digests(const collective_group *g, conformance_report *report)
{
    for (int32_t r = 1; r < g->world; r++)
        report_check(report, g->digests[r] == g->digests[0], "all ranks get bit-identical sums",
                     "%d ranks: rank %d differs from rank 0", g->world, r);
}

static collective_end run_threads(collective_group *g, conformance_report *report, const char *name,
                                  void (*part)(member *m))
{
    rank_thread *threads = calloc((size_t)g->world, sizeof *threads);
    bool sound = true;
    for (int32_t r = 0; r < g->world; r++) {
        rank_thread *t = &threads[r];
        t->part = part;
        t->m = (member){.g = g, .table = g->table, .rank = r, .world = g->world, .report = &t->report};
        NRL_ASSERT(pthread_create(&t->thread, NULL, run_rank, t), ==, 0);
    }
    bool all = join_threads(threads, g->world);
    for (int32_t r = 0; r < g->world; r++) {
        sound = sound && !threads[r].m.over;
        report_merge(report, &threads[r].report);
    }
    if (!report_check(report, all, "every call returns", "part '%s', %d ranks: one rank did not return", name,
                      g->world))
        return COLLECTIVE_HANGS;
    free(threads);
    if (!sound) return COLLECTIVE_STOPPED;
    check_digests(g, report);
    return COLLECTIVE_WENT_THROUGH;
}

collective_end collective_run(const nrl_collective *table, const conformance_setup *setup, int32_t world,
                              conformance_report *report, const char *name, void (*part)(member *m))
{
    collective_group *g = calloc(1, sizeof *g);
    nrl_harness_store *store;
    collective_end end = COLLECTIVE_STOPPED;
    *g = (collective_group){.table = table, .options = setup->options, .world = world};
    nrl_status st =
        nrl_harness_store_open(setup->store, setup->store_options, SUITE_STORE_ADDRESS, JOIN_SECONDS, &store);
    if (st == NRL_OK) g->store = nrl_harness_store_client(store);
    if (report_ok(report, st, "ranks join through the store")) end = run_threads(g, report, name, part);
    if (end == COLLECTIVE_HANGS) return end; /* threads still use it */
    nrl_harness_store_close(store);
    free(g);
    return end;
}
