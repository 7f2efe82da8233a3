/*
 * bench_overlap.c - the visible part of a strategy's communication, where computation is a sleep,
 * so that other programs and the threads of the network do not distort it. Prints JSON and never
 * fails on a result.
 *
 *   bench_overlap [ranks=2] [mib=64] [layers=24] [compute_ms=600] [share=0.5] [steps=3] [option=value ...]
 *
 * Ranks are threads over gloo with a rate_limit at which the all_reduce of a step takes `share` of
 * compute_ms. The forward takes a third of compute_ms, then the backward of each unit takes its
 * part; the embedding, a twentieth of all bytes, is final last. Other arguments are options of ddp.
 */
#include "config/config.h"
#include "mesh/mesh.h"
#include "support/store.h"
#include "plugin/host.h"
#include "support/backend.h"
#include "tensor/param.h"
#include <math.h>
#include <nrl/nrl.h>
#include <pthread.h>
#include <time.h>

enum { MATRICES = 7, MAX_LAYERS = 128, MAX_RANKS = 8 };

typedef struct {
    double ranks, mib, layers, compute_ms, share, steps;
} settings;

typedef struct {
    settings s;
    const nrl_parallel *strategy;
    const nrl_collective *collective;
    void *options, *collective_options;
    const char *store; /* where the ranks meet */
} bench;

typedef struct {
    const bench *b;
    pthread_t thread;
    int32_t rank;
    double step_ms, waited_ms; /* of the fastest step */
    bool failed;
} rank_thread;

typedef struct {
    int32_t n_params, n_units;
    nrl_param params[MAX_LAYERS * MATRICES + 1];
    nrl_part parts[MAX_LAYERS * MATRICES + 1];
    nrl_param *list[MAX_LAYERS * MATRICES + 1];
    nrl_unit_uses units[MAX_LAYERS + 1];
    nrl_action actions[MAX_LAYERS + 1];
} network;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Until a time, not for a time: what a late wake-up costs does not add up. */
static void sleep_until(double end_ms)
{
    double seconds = floor(end_ms / 1e3);
    struct timespec t = {(time_t)seconds, (long)((end_ms - seconds * 1e3) * 1e6)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* ---- the network: unit 0 is the embedding, then layers of equal matrices ---- */

static void make_network(network *n, const settings *s)
{
    int32_t layers = (int32_t)s->layers;
    double elements = s->mib * (1 << 20) / 4;
    int64_t embedding[] = {(int64_t)(elements * 0.05 / 64), 64};
    int64_t matrix[] = {(int64_t)(elements * 0.95 / layers / MATRICES / 64), 64};
    n->n_params = layers * MATRICES + 1;
    n->n_units = layers + 1;
    for (int32_t i = 0; i < n->n_params; i++) {
        param_init(&n->params[i], &n->parts[i], "weight", 2, i ? matrix : embedding);
        n->list[i] = &n->params[i];
    }
    for (int32_t u = 0; u < n->n_units; u++) {
        nrl_param **first = &n->list[u ? 1 + (u - 1) * MATRICES : 0];
        int32_t count = u ? MATRICES : 1;
        n->units[u] = (nrl_unit_uses){.name = "unit", .n_uses = count, .uses = first};
        n->actions[n->n_units - 1 - u] = (nrl_action){.size = sizeof(nrl_action),
                                                      .pass = NRL_PASS_BACKWARD,
                                                      .unit = u,
                                                      .n_uses = count,
                                                      .n_final = count,
                                                      .n_actions = n->n_units,
                                                      .uses = first,
                                                      .final = first};
    }
}

static nrl_status step(const rank_thread *r, void *self, nrl_ctx *ctx, network *n, double *ms)
{
    const settings *s = &r->b->s;
    double start = now_ms(), at = start + s->compute_ms / 3;
    for (int32_t i = 0; i < n->n_params; i++)
        nrl_param_set_grad_is_empty(n->list[i], false);
    sleep_until(at);
    for (int32_t v = 0; v < n->n_units; v++) {
        at += s->compute_ms * 2 / 3 / n->n_units;
        double late = now_ms() - at + s->compute_ms * 2 / 3 / n->n_units;
        if (late > 0) at += late; /* what a strategy took in `leave` is no one's computing time */
        sleep_until(at);
        NRL_TRY(r->b->strategy->leave(self, ctx, n->actions, v));
    }
    NRL_TRY(r->b->strategy->finish(self, ctx));
    *ms = now_ms() - start;
    return NRL_OK;
}

/* ---- a rank ---- */

static nrl_status steps(rank_thread *r, nrl_mesh *mesh, void *self, nrl_ctx *ctx, network *n)
{
    nrl_parallel_plan plan = {.size = sizeof plan,
                              .train = true,
                              .quiet = true,
                              .compute = NRL_DTYPE_F32,
                              .block = 1,
                              .n_params = n->n_params,
                              .n_units = n->n_units,
                              .params = n->list,
                              .units = n->units};
    NRL_TRY(r->b->strategy->plan(self, &plan));
    NRL_TRY(r->b->strategy->bind(self, ctx));
    r->step_ms = r->waited_ms = INFINITY;
    for (int k = 0; k <= (int)r->b->s.steps; k++) {
        double ms, before = mesh_wait_seconds(mesh);
        NRL_TRY(mesh_barrier(mesh, "step"));
        before = mesh_wait_seconds(mesh);
        NRL_TRY(step(r, self, ctx, n, &ms));
        if (k == 0 || ms > r->step_ms) continue; /* the first one warms up */
        r->step_ms = ms;
        r->waited_ms = 1e3 * (mesh_wait_seconds(mesh) - before);
    }
    return NRL_OK;
}

static nrl_status run_rank(rank_thread *r)
{
    const bench *b = r->b;
    int32_t world = (int32_t)b->s.ranks;
    mesh_setup setup = {.place = {.rank = r->rank,
                                  .world = world,
                                  .local_rank = r->rank,
                                  .local_world = world,
                                  .origin = "bench",
                                  .store = b->store,
                                  .store_elsewhere = true,
                                  .run_id = ""},
                        .axes = {{"data", world, NRL_DIVIDES_BATCH}},
                        .n_axes = 1,
                        .collective = b->collective,
                        .collective_options = b->collective_options,
                        .store = test_store_kind("tcp"),
                        .timeout_init = 60,
                        .timeout_step = 60,
                        .fingerprint = ""};
    nrl_mesh *mesh;
    device d;
    nrl_ctx *ctx;
    void *self;
    network *n = calloc(1, sizeof *n);
    make_network(n, &b->s);
    if (!test_device_open(&d)) return NRL_ERR_DEVICE;
    NRL_TRY(ctx_create(&d, &ctx));
    NRL_TRY(mesh_open(&setup, &mesh));
    NRL_TRY(b->strategy->create(b->options, mesh, &self));
    nrl_status st = steps(r, mesh, self, ctx, n);
    b->strategy->unbind(self, ctx);
    b->strategy->destroy(self);
    mesh_close(mesh);
    ctx_destroy(ctx);
    device_close(&d);
    free(n);
    return st;
}

static void *thread_main(void *user)
{
    rank_thread *r = user;
    r->failed = run_rank(r) != NRL_OK;
    if (r->failed) fprintf(stderr, "rank %d: %s\n", r->rank, nrl_error_text());
    return NULL;
}

/* ---- all ---- */

static bool setting(settings *s, const char *word)
{
    static const char *const names[] = {"ranks", "mib", "layers", "compute_ms", "share", "steps"};
    double *values[] = {&s->ranks, &s->mib, &s->layers, &s->compute_ms, &s->share, &s->steps};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(word, names[i], n) || word[n] != '=') continue;
        *values[i] = atof(word + n + 1);
        return true;
    }
    return false;
}

static nrl_status open_plugin(plugin_host *host, arena *a, nrl_kind kind, const char *section, const char *name,
                              nrl_node *map, const void **table, void **options)
{
    config_problems problems = {0};
    const config_component c = {.name = name, .options = map, .resolved = node_new(a, NRL_NODE_MAP)};
    const plugin *p;
    plugin_instance(host, a, &problems, kind, section, &c, NULL, &p, options);
    NRL_TRY(problems_report(&problems));
    *table = p->table;
    return NRL_OK;
}

static nrl_status run_all(bench *b)
{
    rank_thread ranks[MAX_RANKS];
    double slowest = 0, waited = 0, ring = 2 * (b->s.ranks - 1) / b->s.ranks;
    double wire_ms = b->s.compute_ms * b->s.share, longest = fmax(wire_ms, b->s.compute_ms);
    for (int32_t r = 0; r < (int32_t)b->s.ranks; r++) {
        ranks[r] = (rank_thread){.b = b, .rank = r};
        pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]);
    }
    for (int32_t r = 0; r < (int32_t)b->s.ranks; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (ranks[r].failed) return NRL_ERR_PEER;
        slowest = fmax(slowest, ranks[r].step_ms);
        waited = fmax(waited, ranks[r].waited_ms);
    }
    printf("{\"ranks\": %g, \"mib\": %g, \"sent_mib\": %g, \"compute_ms\": %g, \"communication_ms\": %g, \"step_ms\": "
           "%.1f, \"waited_ms\": %.1f, \"exposed\": %.3f, \"over_max\": %.3f}\n",
           b->s.ranks, b->s.mib, b->s.mib * ring, b->s.compute_ms, wire_ms, slowest, waited,
           (slowest - b->s.compute_ms) / wire_ms, slowest / longest);
    return NRL_OK;
}

int main(int argc, char **argv)
{
    arena a = {0};
    bench b = {.s = {2, 64, 24, 600, 0.5, 3}};
    nrl_node *options = node_new(&a, NRL_NODE_MAP), *limit = node_new(&a, NRL_NODE_MAP);
    config_problems problems = {0};
    store_server *server;
    for (int i = 1; i < argc; i++)
        if (!setting(&b.s, argv[i])) config_override(&a, &problems, options, argv[i]);
    double bytes = b.s.mib * (1 << 20) * 2 * (b.s.ranks - 1) / b.s.ranks;
    config_override(&a, &problems, limit,
                    arena_printf(&a, "rate_limit=%g", bytes / (b.s.share * b.s.compute_ms * 1e-3) / 1e6));
    plugin_host *host = plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
    nrl_status st = problems_report(&problems);
    if (st == NRL_OK && (b.s.layers > MAX_LAYERS || b.s.ranks > MAX_RANKS || b.s.ranks < 2))
        st = nrl_fail(NRL_ERR_CONFIG, "2 to %d ranks, 1 to %d layers", MAX_RANKS, MAX_LAYERS);
    if (st == NRL_OK)
        st = open_plugin(host, &a, NRL_KIND_PARALLEL, "parallel", "ddp", options, (const void **)&b.strategy,
                         &b.options);
    if (st == NRL_OK)
        st = open_plugin(host, &a, NRL_KIND_COLLECTIVE, "collective", "gloo", limit, (const void **)&b.collective,
                         &b.collective_options);
    if (st == NRL_OK) st = test_store_serve(0, NULL, &server);
    if (st == NRL_OK) {
        b.store = store_server_address(server);
        st = run_all(&b);
        store_server_close(server);
    }
    if (st != NRL_OK) fprintf(stderr, "%s\n", nrl_error_text());
    plugin_host_destroy(host);
    arena_free(&a);
    return st != NRL_OK;
}
