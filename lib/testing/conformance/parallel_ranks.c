/*
 * parallel_ranks.c - ranks as threads: each joins a mesh of its own through a store on loopback,
 * runs a part and leaves. A rank whose calls failed informs the others, which would wait for it. A
 * rank that does not return is left running, with everything that it may use.
 */
#include "parallel.h"
#include "mesh/store.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { JOIN_SECONDS = 20, STEP_SECONDS = 20, PART_SECONDS = 90 };

typedef struct {
    pthread_t thread;
    toy t;
    conformance_report report;
    record record;
    mesh_setup setup;
    void (*part)(toy *t);
} rank_thread;

static void *run_rank(void *user)
{
    rank_thread *r = user;
    toy *t = &r->t;
    if (!report_ok(&r->report, mesh_open(&r->setup, &t->mesh), "ranks join a mesh")) {
        t->over = true;
        return NULL;
    }
    r->part(t);
    if (t->over) mesh_report_failure(t->mesh, NRL_ERR_PLUGIN, "a rule does not hold");
    toy_close(t);
    mesh_close(t->mesh);
    return NULL;
}

/* ---- comparison of ranks ---- */

static void check_calls(const rank_thread *threads, int32_t world, conformance_report *report, const char *name)
{
    for (int32_t r = 0; r < world; r++) {
        const record *own = &threads[r].record;
        report_check(report, own->started == own->released, "every call is waited for",
                     "part '%s', rank %d of %d: %lld of %lld calls", name, r, world, (long long)own->released,
                     (long long)own->started);
        for (int32_t g = 0; g < own->n_groups; g++)
            for (int32_t o = 0; o < r; o++) {
                const record_group *mine = &own->groups[g], *other = &threads[o].record.groups[g];
                if (g >= threads[o].record.n_groups || mine->color != other->color) continue;
                report_check(report, mine->digest == other->digest, "all ranks make the same calls in one order",
                             "part '%s', %d ranks: ranks %d and %d differ in what they call, or in its size; "
                             "%lld and %lld calls",
                             name, world, o, r, (long long)other->n_calls, (long long)mine->n_calls);
            }
    }
}

static bool join_threads(rank_thread *threads, int32_t world)
{
    struct timespec end;
    bool all = true;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PART_SECONDS;
    for (int32_t r = 0; r < world; r++)
        all = pthread_timedjoin_np(threads[r].thread, NULL, &end) == 0 && all;
    return all;
}

/* ---- starting ---- */

static void prepare(rank_thread *r, const parallel_group *g, const nrl_collective *recorded, int32_t rank,
                    const char *store, void (*part)(toy *t))
{
    r->part = part;
    r->t = (toy){.g = g, .report = &r->report, .rank = rank, .world = g->world};
    r->record = (record){.real = g->setup->collective, .options = g->setup->collective_options};
    r->setup = (mesh_setup){.place = {.rank = rank,
                                      .world = g->world,
                                      .local_rank = rank,
                                      .local_world = g->world,
                                      .origin = "the suite",
                                      .store = store,
                                      .store_elsewhere = true,
                                      .run_id = ""},
                            .axes = {{g->axis->name, g->world, g->axis->divides}},
                            .n_axes = 1,
                            .collective = g->world > 1 ? recorded : NULL,
                            .collective_options = &r->record,
                            .store = {g->setup->store, g->setup->store_options},
                            .timeout_init = JOIN_SECONDS,
                            .timeout_step = STEP_SECONDS,
                            .fingerprint = ""};
}

static bool run_threads(const parallel_group *g, conformance_report *report, const char *name, const char *store,
                        void (*part)(toy *t))
{
    rank_thread *threads = calloc((size_t)g->world, sizeof *threads);
    nrl_collective *recorded = calloc(1, sizeof *recorded);
    if (g->world > 1) *recorded = record_collective(g->setup->collective);
    for (int32_t r = 0; r < g->world; r++) {
        prepare(&threads[r], g, recorded, r, store, part);
        NRL_ASSERT(pthread_create(&threads[r].thread, NULL, run_rank, &threads[r]), ==, 0);
    }
    bool all = join_threads(threads, g->world), sound = true;
    for (int32_t r = 0; r < g->world; r++) {
        sound = sound && !threads[r].t.over;
        report_merge(report, &threads[r].report);
    }
    report_check(report, all, "every rank returns", "part '%s', %d ranks: one rank did not return", name, g->world);
    if (sound && all) check_calls(threads, g->world, report, name);
    if (!all) return false;
    free(threads);
    free(recorded);
    return true;
}

bool parallel_run(const parallel_group *g, conformance_report *report, const char *name, void (*part)(toy *t))
{
    store_server *server = NULL;
    const store_kind kind = {g->setup->store, g->setup->store_options};
    const store_setup setup = {.address = SUITE_STORE_ADDRESS, .job = ""};
    if (!report_ok(report, store_serve(&kind, &setup, &server), "ranks join a mesh")) return false;
    bool all = run_threads(g, report, name, store_server_address(server), part);
    if (all) store_server_close(server); /* otherwise threads still use it */
    return all;
}
