/*
 * test_gloo.c - the mesh over the gloo plugin, as runs use it: exchanges, split axes, and ranks
 * that are killed or stopped during a large all_reduce. Skipped if the plugin is not built.
 */
#include "forked.h"
#include "support/backend.h"

static nrl_collective gloo;
static char options[1024]; /* the plugin's struct, with its defaults */

static void *member_at(const nrl_option *o)
{
    return options + o->offset;
}

/* Defaults as the host would fill them in: numbers and the first or the named choice. */
static void fill_default(const nrl_option *o)
{
    if (!o->initial) return;
    if (o->type == NRL_TYPE_F64) *(double *)member_at(o) = atof(o->initial);
    if (o->type == NRL_TYPE_INT) *(int64_t *)member_at(o) = atoll(o->initial);
    if (o->type == NRL_TYPE_BOOL) *(bool *)member_at(o) = !strcmp(o->initial, "true");
    if (o->type == NRL_TYPE_STR) *(const char **)member_at(o) = o->initial;
    if (o->type != NRL_TYPE_ENUM) return;
    int64_t index = 0;
    const char *at = o->choices;
    for (size_t n = strlen(o->initial); at; index++) {
        if (!strncmp(at, o->initial, n) && (at[n] == '|' || !at[n])) *(int64_t *)member_at(o) = index;
        at = strchr(at, '|');
        if (at) at++;
    }
}

static bool open_plugin(void)
{
    const char *folder = getenv("NRL_PLUGIN_PATH");
    char path[4096];
    const nrl_plugin *(*entry)(void);
    snprintf(path, sizeof path, "%s/collectives/gloo.so", folder ? folder : ".");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    *(void **)&entry = dlsym(library, "nrl_plugin_entry");
    const nrl_plugin *p = entry();
    memcpy(&gloo, p, p->size < sizeof gloo ? p->size : sizeof gloo);
    assert_true(p->options_size <= sizeof options);
    for (uint32_t i = 0; i < p->n_options; i++)
        fill_default(&p->options[i]);
    return true;
}

static void prepare_gloo(group *g, int32_t world, nrl_status (*body)(nrl_mesh *m, int32_t rank))
{
    prepare(g, world, body);
    pairs_keep(&g->wires, -1);
    g->setup.collective = &gloo;
    g->setup.collective_options = options;
}

static void start_gloo(group *g)
{
    for (int32_t r = 0; r < g->world; r++)
        start_rank(g, r);
}

#define WANT(x)                                                                                                        \
    do {                                                                                                               \
        if (!(x)) return nrl_fail(NRL_ERR_BUG, "line %d: %s", __LINE__, #x);                                           \
    } while (0)

static nrl_status everything(nrl_mesh *m, int32_t rank)
{
    int32_t all[PAIRS_MAX], world = nrl_mesh_world(m);
    char text[16] = "";
    NRL_TRY(mesh_exchange(m, "ranks", &rank, sizeof rank, all));
    for (int32_t r = 0; r < world; r++)
        WANT(all[r] == r);
    if (rank == 1) snprintf(text, sizeof text, "from one");
    NRL_TRY(mesh_broadcast(m, "text", 1, text, sizeof text));
    WANT(!strcmp(text, "from one"));
    NRL_TRY(nrl_mesh_split(m, "data", 2, "shard", "replica"));
    NRL_TRY(nrl_comm_barrier(nrl_mesh_comm(m, "shard"), "shard"));
    NRL_TRY(nrl_comm_barrier(nrl_mesh_comm(m, "replica"), "replica"));
    const nrl_collective_info f = mesh_traffic(m);
    WANT(f.bytes_sent > 0 && f.bytes_received > 0 && f.messages_sent > 0);
    WANT(strstr(mesh_text(m), "4 ranks on 1 node (test), gloo"));
    return mesh_barrier(m, "end");
}

static void ranks_exchange_over_gloo(void **state)
{
    (void)state;
    group g;
    prepare_gloo(&g, 4, everything);
    start_gloo(&g);
    for (int32_t r = 0; r < 4; r++) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        assert_string_equal(report.text, "");
        assert_int_equal(report.status, NRL_OK);
    }
    end_errors(&g);
}

static nrl_status reduce_for_ever(nrl_mesh *m, int32_t rank)
{
    device d;
    nrl_ctx *ctx;
    nrl_tensor *t;
    nrl_work *w;
    int64_t n = 1 << 20;
    (void)rank;
    WANT(test_device_open(&d));
    NRL_TRY(ctx_create(&d, &ctx));
    NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, n, true, &t));
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = t, .what = "gradients"};
    for (int64_t step = 1;; step++) {
        mesh_set_step(m, step);
        NRL_TRY(nrl_comm_all_reduce(nrl_mesh_comm(m, "data"), ctx, &call, &w));
        NRL_TRY(nrl_work_wait(&w, ctx));
    }
}

static void expect_lost(group *g, int32_t lost, double since)
{
    char want[32];
    snprintf(want, sizeof want, "rank %d (", (int)lost);
    expect_named(g, lost, since, want, "all_reduce 'gradients' of axis data (1048576 f32");
}

static void killed_ranks_are_named_in_the_middle_of_a_call(void **state)
{
    (void)state;
    for (int32_t lost = 0; lost < 2; lost++) {
        group g;
        prepare_gloo(&g, 3, reduce_for_ever);
        start_gloo(&g);
        await_all(&g);
        clock_sleep(1.5);
        double since = clock_seconds();
        end_rank(&g, lost);
        expect_lost(&g, lost, since);
    }
}

static void a_stopped_rank_is_named_in_the_middle_of_a_call(void **state)
{
    (void)state;
    group g;
    prepare_gloo(&g, 3, reduce_for_ever);
    start_gloo(&g);
    await_all(&g);
    clock_sleep(1.5);
    double since = clock_seconds();
    kill(g.children[2].pid, SIGSTOP);
    expect_lost(&g, 2, since);
    end_rank(&g, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_exchange_over_gloo),
        cmocka_unit_test(killed_ranks_are_named_in_the_middle_of_a_call),
        cmocka_unit_test(a_stopped_rank_is_named_in_the_middle_of_a_call),
    };
    if (!open_plugin()) {
        printf("skipped: %s\n", dlerror());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
