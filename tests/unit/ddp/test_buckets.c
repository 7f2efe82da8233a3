/*
 * test_buckets.c - the gradients of each bucket, their order, and the time at which they are sent.
 */
#include "ddp/support.h"

static double ordinary(int64_t step, int32_t rank, int param, int64_t i)
{
    if (param == SPARE) return NAN;
    return (double)((step * 3 + rank * 7 + param * 5 + i) % 11) - 5;
}

static nrl_status check_sums(ddp_rank *r, int64_t step, ddp_gradient gradient)
{
    for (int p = 0; p < N_PARAMS; p++) {
        double got[MOST];
        NRL_TRY(ddp_fetch(r, p, NRL_SLOT_GRAD_SHARD, got));
        for (int64_t i = 0; i < r->list[p]->numel; i++) {
            double want = ddp_sum_of(nrl_mesh_world(r->mesh), step, p, i, gradient);
            EXPECT(fabs(got[i] - want) < 1e-6, "'%s' %lld is %g, expected %g", r->list[p]->name, (long long)i, got[i],
                   want);
        }
    }
    return NRL_OK;
}

static nrl_status few_steps(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    for (int64_t step = 1; step <= 3 && st == NRL_OK; step++) {
        st = ddp_step(&r, step, ordinary);
        if (st == NRL_OK) st = check_sums(&r, step, ordinary);
    }
    ddp_rank_close(&r);
    return st;
}

static void sums_do_not_depend_on_the_size_of_buckets(void **state)
{
    (void)state;
    ddp_run("{}", NRL_DTYPE_F32, 2, few_steps);
    ddp_run("{bucket_cap_mb: 0.001, first_bucket_mb: 0.001}", NRL_DTYPE_F32, 3, few_steps);
    ddp_run("{bucket_cap_mb: 0.002}", NRL_DTYPE_BF16, 4, few_steps);
    ddp_run("{}", NRL_DTYPE_F32, 1, few_steps);
}

/* ---- order ---- */

static const char *data_of(const ddp_rank *r, int param)
{
    return nrl_tensor_mat(nrl_param_tensor(r->list[param], NRL_SLOT_GRAD)).data;
}

static nrl_status inspect_order(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) {
        const char *up = data_of(&r, UP), *bias = data_of(&r, BIAS), *down = data_of(&r, DOWN);
        EXPECT(bias - up == 24 * 16 * 4, "bias lies %td bytes behind up", bias - up);
        EXPECT(down - bias == 64, "down lies %td bytes behind bias", down - bias);
        EXPECT(data_of(&r, TIED) - down == 16 * 40 * 4, "tied does not follow down");
        for (int p = 0; p < N_PARAMS; p++)
            EXPECT((size_t)data_of(&r, p) % 64 == 0, "'%s' is not at 64 bytes", r.list[p]->name);
    }
    ddp_rank_close(&r);
    return st;
}

static void the_last_unit_comes_first_and_every_gradient_lies_at_64_bytes(void **state)
{
    (void)state;
    ddp_run("{}", NRL_DTYPE_F32, 2, inspect_order);
}

/* Calls of this rank whose name is `what`, and all of them. */
static int64_t calls_named(nrl_mesh *mesh, const char *what)
{
    record_call call;
    int64_t n = 0;
    for (uint64_t i = 0; record_find(&mesh->calls, i, &call); i++)
        n += !strcmp(call.what, what);
    return n;
}

static nrl_status inspect_actions(nrl_mesh *mesh, int32_t rank, void *user)
{
    static const char *const names[] = {"bucket 0", "bucket 1", "bucket 2", "bucket 3", "bucket 4"};
    static const int64_t started[N_UNITS][5] = {{1}, {1, 1}, {1, 1, 1, 1}};
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    for (int i = 0; i < N_PARAMS; i++)
        r.list[i]->grad_is_empty = true;
    for (int v = 0; v < N_UNITS && st == NRL_OK; v++) {
        st = ddp_actions(&r, v, v + 1, 1, ordinary);
        for (int b = 0; b < 5 && st == NRL_OK; b++)
            if (calls_named(mesh, names[b]) != started[v][b])
                st = nrl_fail(NRL_ERR_BUG, "after action %d: %lld calls of %s", v,
                              (long long)calls_named(mesh, names[b]), names[b]);
    }
    if (st == NRL_OK) st = ddp_finish_step(&r);
    if (st == NRL_OK && calls_named(mesh, "bucket 4") != 1) st = nrl_fail(NRL_ERR_BUG, "what no unit uses stays");
    ddp_rank_close(&r);
    return st;
}

/* The collective prefers 2048 bytes. */
static nrl_status inspect_number(nrl_mesh *mesh, int32_t rank, void *user, const char *last, const char *none)
{
    ddp_rank r;
    mesh->bucket_bytes = 2048;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) st = ddp_step(&r, 1, ordinary);
    if (st == NRL_OK) st = check_sums(&r, 1, ordinary);
    if (st == NRL_OK && calls_named(mesh, last) != 1) st = nrl_fail(NRL_ERR_BUG, "there is no %s", last);
    if (st == NRL_OK && calls_named(mesh, none) != 0) st = nrl_fail(NRL_ERR_BUG, "there is a %s", none);
    ddp_rank_close(&r);
    return st;
}

static nrl_status inspect_preferred(nrl_mesh *mesh, int32_t rank, void *user)
{
    return inspect_number(mesh, rank, user, "bucket 3", "bucket 4"); /* up and bias; down; tied; spare */
}

static nrl_status inspect_configured(nrl_mesh *mesh, int32_t rank, void *user)
{
    return inspect_number(mesh, rank, user, "bucket 1", "bucket 2"); /* what units use; spare */
}

static void the_collective_chooses_the_size_of_buckets_unless_the_config_does(void **state)
{
    (void)state;
    ddp_run("{}", NRL_DTYPE_F32, 2, inspect_preferred);
    ddp_run("{bucket_cap_mb: 4}", NRL_DTYPE_F32, 2, inspect_configured);
}

static void a_bucket_goes_out_with_its_last_gradient_and_no_earlier(void **state)
{
    (void)state;
    /* in bytes: up 1536, bias 64, down 2560, tied 128; spare, which no action makes final, is alone */
    ddp_run("{bucket_cap_mb: 0.0025, first_bucket_mb: 0.0015}", NRL_DTYPE_F32, 2, inspect_actions);
}

/* ---- what has no gradient ---- */

/* Rank 1 has an empty batch; nobody reaches bias; only rank 0 reaches up. */
static double partial(int64_t step, int32_t rank, int param, int64_t i)
{
    if (rank == 1 || param == BIAS || param == SPARE || (param == UP && rank)) return NAN;
    return ordinary(step, rank, param, i);
}

static nrl_status partial_steps(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    for (int64_t step = 1; step <= 3 && st == NRL_OK; step++) {
        ddp_gradient g = step == 2 ? ordinary : partial; /* old sums must not stay */
        st = ddp_step(&r, step, g);
        if (st == NRL_OK) st = check_sums(&r, step, g);
    }
    ddp_rank_close(&r);
    return st;
}

static void a_gradient_that_a_rank_lacks_counts_as_zero(void **state)
{
    (void)state;
    ddp_run("{}", NRL_DTYPE_F32, 3, partial_steps);
    ddp_run("{bucket_cap_mb: 0.001, first_bucket_mb: 0.001, unused: warn}", NRL_DTYPE_F32, 2, partial_steps);
}

static nrl_status one_partial_step(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) st = ddp_step(&r, 1, partial);
    bool names_both = st == NRL_ERR_CONFIG && strstr(nrl_error_text(), "2 trained parameters") &&
                      strstr(nrl_error_text(), "'bias', 'spare'") && !strstr(nrl_error_text(), "'up'");
    ddp_rank_close(&r);
    return names_both ? NRL_OK : nrl_fail(NRL_ERR_BUG, "status %d: %s", st, nrl_error_text());
}

static void unused_error_names_what_no_rank_reached(void **state)
{
    (void)state;
    ddp_run("{unused: error}", NRL_DTYPE_F32, 2, one_partial_step);
}

/* ---- agreement ---- */

static nrl_status other_model(nrl_mesh *mesh, int32_t rank, void *user)
{
    const ddp_setup *s = user;
    ddp_rank r = {.s = s, .mesh = mesh, .rank = rank};
    if (!test_device_open(&r.device)) return nrl_fail(NRL_ERR_DEVICE, "no backend");
    NRL_TRY(ctx_create(&r.device, &r.ctx));
    ddp_make_model(&r);
    if (rank == 1) r.params[BIAS].name = "other";
    nrl_status st = s->table->create(s->options, mesh, &r.self);
    if (st == NRL_OK) st = s->table->plan(r.self, &r.plan);
    if (st == NRL_OK) st = s->table->bind(r.self, r.ctx);
    bool told = st == NRL_ERR_CONFIG && strstr(nrl_error_text(), "ranks 0 and 1 differ");
    ddp_rank_close(&r);
    return told ? NRL_OK : nrl_fail(NRL_ERR_BUG, "status %d: %s", st, nrl_error_text());
}

static void ranks_with_another_model_are_told_at_bind(void **state)
{
    (void)state;
    ddp_run("{}", NRL_DTYPE_F32, 2, other_model);
}

/* ---- options ---- */

static void options_without_effect_are_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"{topk_ratio: 0.1}", "topk_ratio: has no effect here; expected with it compress: topk"},
        {"{compress: topk, powersgd_rank: 8}", "powersgd_rank: has no effect"},
        {"{compress: bf16, error_feedback: false}", "error_feedback: has no effect"},
        {"{sync_every: 4, compress: bf16}", "compress: has no effect here; expected with it sync_every: 1"},
        {"{sync_states: true}", "sync_states: has no effect"},
        {"{outer_lr: 0.7}", "outer_lr: has no effect here; expected with it sync_every above 1"},
        {"{outer_momentum: 0.9}", "outer_momentum: has no effect here; expected with it sync_every above 1"},
        {"{sync_every: 4, bucket_cap_mb: 10}", "bucket_cap_mb: has no effect"},
        {"{compress: threshold, topk_ratio: 0.1}", "topk_ratio: has no effect"},
        {"{bucket_cap_mb: -1}", "bucket_cap_mb"},
        {"{topk_ratio: 2, compress: topk}", "topk_ratio"},
        {"{compress: zip}", "compress"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ddp_setup s;
        assert_int_equal(ddp_setup_open(&s, wrong[i][0]), NRL_ERR_CONFIG);
        if (!strstr(nrl_error_text(), wrong[i][1])) fail_msg("%s: %s", wrong[i][0], nrl_error_text());
        ddp_setup_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_do_not_depend_on_the_size_of_buckets),
        cmocka_unit_test(the_last_unit_comes_first_and_every_gradient_lies_at_64_bytes),
        cmocka_unit_test(the_collective_chooses_the_size_of_buckets_unless_the_config_does),
        cmocka_unit_test(a_bucket_goes_out_with_its_last_gradient_and_no_earlier),
        cmocka_unit_test(a_gradient_that_a_rank_lacks_counts_as_zero),
        cmocka_unit_test(unused_error_names_what_no_rank_reached),
        cmocka_unit_test(ranks_with_another_model_are_told_at_bind),
        cmocka_unit_test(options_without_effect_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
