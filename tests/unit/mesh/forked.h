/*
 * forked.h - ranks as child processes of one test: each runs a body and reports its result, error
 * text and time. Children leave by _exit, so that sanitizers and cmocka do not check their memory.
 */
#ifndef UNIT_MESH_FORKED_H
#define UNIT_MESH_FORKED_H
#include "mesh/mesh.h"
#include <nrl/parallel.h>
#include "support/store.h"
#include "pairs.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <cmocka.h>

enum { REPORT_SIZE = 4096 };

typedef struct {
    nrl_status status; /* of mesh_open, or of the body */
    double at;         /* clock_seconds: the machine's, one for all processes */
    char text[REPORT_SIZE];
} rank_report;

typedef struct {
    pid_t pid;
    int reports, errors; /* pipes: a report; standard error */
} child;

/* What the ranks of a group share with the test; mapped until it ends. */
typedef struct {
    atomic_int n_here;    /* processes of ranks */
    atomic_int n_begun;   /* ranks that are in the body */
    atomic_bool released; /* what bodies wait for has happened */
} group_state;

typedef struct {
    int32_t world, port;
    char store[32]; /* where they meet: at `port` */
    pairs_wires wires;
    mesh_setup setup;
    nrl_status (*body)(nrl_mesh *m, int32_t rank);
    void (*change)(mesh_setup *s, int32_t rank); /* of one rank's setup; NULL = none */
    int32_t n_together; /* ranks that begin to join when all of them are here; 0 = each at once */
    child children[PAIRS_MAX];
    group_state *state;
} group;

static inline int32_t free_port(void)
{
    int fd;
    int32_t port = test_taken_port(&fd);
    close(fd);
    return port;
}

/* Time limits of joining begin together: on a busy machine a process may start seconds after another. */
static inline void await_others(const group *g)
{
    atomic_fetch_add(&g->state->n_here, 1);
    for (int i = 0; i < 60000 && atomic_load(&g->state->n_here) < g->n_together; i++)
        clock_sleep(0.001);
}

/* In a body. */
static inline void await_release(const group *g)
{
    for (int i = 0; i < 6000 && !atomic_load(&g->state->released); i++)
        clock_sleep(0.01);
}

static inline void run_child(group *g, int32_t rank, int to)
{
    nrl_mesh *m;
    rank_report r = {0};
    mesh_setup s = g->setup;
    pairs_keep(&g->wires, rank);
    s.place.rank = s.place.local_rank = rank;
    if (g->change) g->change(&s, rank);
    await_others(g);
    r.status = mesh_open(&s, &m);
    if (!r.status) {
        atomic_fetch_add(&g->state->n_begun, 1);
        r.status = g->body(m, rank);
        r.at = clock_seconds();
        snprintf(r.text, sizeof r.text, "%s", r.status ? nrl_error_text() : "");
        if (r.status) mesh_report_failure(m, r.status, r.text);
        mesh_close(m);
    } else {
        r.at = clock_seconds();
        snprintf(r.text, sizeof r.text, "%s", nrl_error_text());
    }
    if (write(to, &r, sizeof r) != sizeof r) _exit(3);
    _exit(0);
}

static inline void start_rank(group *g, int32_t rank)
{
    snprintf(g->store, sizeof g->store, "127.0.0.1:%d", (int)g->port);
    g->setup.place.store = g->store;
    int reports[2], errors[2];
    assert_int_equal(pipe(reports), 0);
    assert_int_equal(pipe(errors), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        dup2(errors[1], 2);
        close(reports[0]);
        run_child(g, rank, reports[1]);
    }
    close(reports[1]);
    close(errors[1]);
    g->children[rank] = (child){pid, reports[0], errors[0]};
}

static inline void prepare(group *g, int32_t world, nrl_status (*body)(nrl_mesh *m, int32_t rank))
{
    *g = (group){.world = world, .port = free_port(), .body = body};
    pairs_make(&g->wires, world);
    g->state = mmap(NULL, sizeof *g->state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(g->state != MAP_FAILED);
    g->setup = (mesh_setup){.place = {.world = world, .local_world = world, .origin = "test", .run_id = ""},
                            .axes = {{"data", world, NRL_DIVIDES_BATCH}},
                            .n_axes = 1,
                            .collective = &pairs_collective,
                            .timeout_init = 20,
                            .timeout_step = 60,
                            .store = test_store_kind("tcp"),
                            .fingerprint = "model: tiny\nseed: 1\n"};
}

static inline void set_options(group *g)
{
    g->setup.collective_options = &g->wires;
}

static inline void start_all(group *g)
{
    set_options(g);
    g->n_together = g->world;
    for (int32_t r = 0; r < g->world; r++)
        start_rank(g, r);
    pairs_keep(&g->wires, -1);
}

/* Until all have joined: on a busy machine that takes seconds. */
static inline void await_all(const group *g)
{
    for (int i = 0; atomic_load(&g->state->n_begun) < g->world; i++) {
        assert_true(i < 6000);
        clock_sleep(0.01);
    }
}

/* Waits for a rank's end; false where it ended without a report (killed). */
static inline bool collect(group *g, int32_t rank, rank_report *r)
{
    child *c = &g->children[rank];
    int status;
    size_t got = 0;
    for (ssize_t n; got < sizeof *r && (n = read(c->reports, (char *)r + got, sizeof *r - got)) > 0;)
        got += (size_t)n;
    close(c->reports);
    waitpid(c->pid, &status, 0);
    return got == sizeof *r;
}

/* What a rank writes to standard error, until these words are there or it ends; NULL: until it ends. */
static inline void await_errors(group *g, int32_t rank, char *text, size_t size, const char *words)
{
    size_t got = 0;
    ssize_t n = 1;
    for (text[0] = 0; n > 0 && got + 1 < size && !(words && strstr(text, words)); text[got] = 0) {
        n = read(g->children[rank].errors, text + got, size - 1 - got);
        got += n > 0 ? (size_t)n : 0;
    }
}

/* All of it; after collect. */
static inline void collect_errors(group *g, int32_t rank, char *text, size_t size)
{
    await_errors(g, rank, text, size, NULL);
}

static inline void end_errors(group *g)
{
    for (int32_t r = 0; r < g->world; r++)
        close(g->children[r].errors);
}

/* Exchanges until something happens. */
static inline nrl_status go_on(nrl_mesh *m, int32_t rank)
{
    int32_t all[PAIRS_MAX];
    for (int64_t step = 1;; step++) {
        mesh_set_step(m, step);
        NRL_TRY(mesh_exchange(m, "tick", &rank, sizeof rank, all));
        clock_sleep(0.02);
    }
}

static inline void end_rank(group *g, int32_t rank)
{
    rank_report r;
    kill(g->children[rank].pid, SIGKILL);
    assert_false(collect(g, rank, &r));
}

#define EXPECT_TEXT(text, part)                                                                                        \
    do {                                                                                                               \
        if (!strstr(text, part)) fail_msg("no '%s' in '%s'", part, text);                                              \
    } while (0)

#define NAMED_S 10.0 /* the promise */

/* Everybody but `lost` says `want` in time, and where it was. */
static inline void expect_named(group *g, int32_t lost, double since, const char *want, const char *where)
{
    for (int32_t r = 0; r < g->world; r++) {
        rank_report report;
        if (r == lost) continue;
        assert_true(collect(g, r, &report));
        assert_int_equal(report.status, NRL_ERR_PEER);
        EXPECT_TEXT(report.text, want);
        EXPECT_TEXT(report.text, where);
        if (report.at - since > NAMED_S) fail_msg("rank %d took %.1f s", r, report.at - since);
    }
    end_errors(g);
}

#endif
