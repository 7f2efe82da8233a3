/*
 * test_local.c - sync_every: ranks update alone, and average after every so many updates.
 */
#include "ddp/support.h"
#include "run/state/state_io.h"
#include <string.h>

static double own(int64_t step, int32_t rank, int param, int64_t i)
{
    if (param == SPARE) return NAN;
    return (double)(rank + 1) * (double)(1 + (i + step) % 5);
}

static nrl_status write_master(ddp_rank *r, double value)
{
    for (int p = 0; p < N_PARAMS; p++) {
        nrl_tensor *master = nrl_param_tensor(r->list[p], NRL_SLOT_MASTER);
        NRL_TRY(nrl_tensor_fill(r->ctx, master, value));
        NRL_TRY(nrl_tensor_fill(r->ctx, nrl_param_tensor(r->list[p], NRL_SLOT_STATE0), 10 * value));
    }
    return NRL_OK;
}

static nrl_status expect_slot(ddp_rank *r, int64_t step, nrl_slot slot, double want)
{
    for (int p = 0; p < N_PARAMS; p++) {
        double got[MOST];
        NRL_TRY(ddp_fetch(r, p, slot, got));
        EXPECT(fabs(got[0] - want) < 1e-6, "update %lld: slot %d of '%s' is %g, expected %g", (long long)step, slot,
               r->list[p]->name, got[0], want);
    }
    return NRL_OK;
}

/* Rank r writes step + r; every third update all have step + (R-1)/2. */
static nrl_status meet(ddp_rank *r, bool states)
{
    const nrl_parallel *t = r->s->table;
    int32_t world = nrl_mesh_world(r->mesh);
    EXPECT(r->plan.local_steps, "the plan says no local steps");
    for (int64_t step = 1; step <= 6; step++) {
        double alone = (double)(step + r->rank), mean = (double)step + (world - 1) / 2.0;
        uint64_t version = nrl_param_version(r->list[UP]);
        NRL_TRY(ddp_step(r, step, own));
        double got[MOST];
        NRL_TRY(ddp_fetch(r, UP, NRL_SLOT_GRAD_SHARD, got));
        EXPECT(fabs(got[4] - own(step, r->rank, UP, 4)) < 1e-9, "a gradient is %g: not this rank's own", got[4]);
        NRL_TRY(write_master(r, alone));
        NRL_TRY(t->updated(r->self, r->ctx, step));
        bool met = step % 3 == 0;
        NRL_TRY(expect_slot(r, step, NRL_SLOT_MASTER, met ? mean : alone));
        NRL_TRY(expect_slot(r, step, NRL_SLOT_WEIGHT, met ? mean : alone));
        NRL_TRY(expect_slot(r, step, NRL_SLOT_STATE0, met && states ? 10 * mean : 10 * alone));
        EXPECT(nrl_param_version(r->list[UP]) > version, "the version did not rise");
    }
    return NRL_OK;
}

static nrl_status meet_alone(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) st = meet(&r, false);
    ddp_rank_close(&r);
    return st;
}

static nrl_status meet_with_states(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) st = meet(&r, true);
    ddp_rank_close(&r);
    return st;
}

static void masters_meet_every_n_updates_and_moments_only_when_asked(void **state)
{
    (void)state;
    ddp_run("{sync_every: 3}", NRL_DTYPE_F32, 2, meet_alone);
    ddp_run("{sync_every: 3}", NRL_DTYPE_BF16, 3, meet_alone);
    ddp_run("{sync_every: 3, sync_states: true}", NRL_DTYPE_F32, 4, meet_with_states);
}

/* Rank r goes r + 1 away from the weights in common, which begin with 4; outer steps as in the paper. */
static nrl_status go_out(ddp_rank *r, int64_t first, double *anchor, double *velocity)
{
    const nrl_parallel *t = r->s->table;
    const double mean = (nrl_mesh_world(r->mesh) + 1) / 2.0;
    for (int64_t step = first; step <= 6; step++) {
        const bool met = step % 3 == 0;
        const double alone = *anchor - (r->rank + 1);
        NRL_TRY(write_master(r, alone));
        NRL_TRY(t->updated(r->self, r->ctx, step));
        if (met) {
            *velocity = 0.9 * *velocity + mean;
            *anchor -= 0.7 * (0.9 * *velocity + mean);
        }
        NRL_TRY(expect_slot(r, step, NRL_SLOT_MASTER, met ? *anchor : alone));
        NRL_TRY(expect_slot(r, step, NRL_SLOT_WEIGHT, met ? *anchor : alone));
    }
    return NRL_OK;
}

static nrl_status meet_outside(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    double anchor = 4, velocity = 0;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) st = write_master(&r, anchor);
    if (st == NRL_OK) st = r.s->table->updated(r.self, r.ctx, 0);
    if (st == NRL_OK) st = go_out(&r, 1, &anchor, &velocity);
    ddp_rank_close(&r);
    return st;
}

static void outer_steps_go_from_the_last_weights_in_common_with_momentum(void **state)
{
    (void)state;
    ddp_run("{sync_every: 3, outer_lr: 0.7, outer_momentum: 0.9}", NRL_DTYPE_F32, 2, meet_outside);
    ddp_run("{sync_every: 3, outer_lr: 0.7, outer_momentum: 0.9}", NRL_DTYPE_F32, 3, meet_outside);
}

/* A checkpoint that was saved after update 1 of a run without outer steps: each rank has values of its own, and the
 * next step goes from their mean. */
static nrl_status begin_outside(ddp_rank *r)
{
    const nrl_parallel *t = r->s->table;
    arena a = {0};
    nrl_state_io saved = {.a = &a, .into = node_new(&a, NRL_NODE_MAP)};
    double anchor = 4 + (nrl_mesh_world(r->mesh) - 1) / 2.0, velocity = 0;
    nrl_status st = write_master(r, 0);
    if (st == NRL_OK) st = t->updated(r->self, r->ctx, 0); /* the weights of the start */
    if (st == NRL_OK) st = write_master(r, 4 + r->rank);
    if (st == NRL_OK) st = t->updated(r->self, r->ctx, 1);
    if (st == NRL_OK) st = t->state(r->self, r->ctx, &saved);
    if (st == NRL_OK) st = t->state(r->self, r->ctx, &(nrl_state_io){.from = saved.into});
    if (st == NRL_OK) st = t->updated(r->self, r->ctx, 0);
    if (st == NRL_OK) st = expect_slot(r, 1, NRL_SLOT_MASTER, 4 + r->rank);
    arena_free(&a);
    return st == NRL_OK ? go_out(r, 2, &anchor, &velocity) : st;
}

static nrl_status meet_outside_later(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) st = begin_outside(&r);
    ddp_rank_close(&r);
    return st;
}

static void outer_steps_that_a_resume_adds_go_from_the_mean(void **state)
{
    (void)state;
    ddp_run("{sync_every: 3, outer_lr: 0.7, outer_momentum: 0.9}", NRL_DTYPE_F32, 2, meet_outside_later);
}

/* The mean stands in the slots for as long as it is asked for; then the own values are back, to the bit. */
static nrl_status show(ddp_rank *r, int64_t step)
{
    const nrl_parallel *t = r->s->table;
    int32_t world = nrl_mesh_world(r->mesh);
    double alone = (double)step + 0.1 * r->rank, mean = (double)step + 0.1 * (world - 1) / 2.0, exact[MOST], back[MOST];
    bool met = step % 3 == 0;
    NRL_TRY(write_master(r, alone));
    NRL_TRY(t->updated(r->self, r->ctx, step));
    NRL_TRY(ddp_fetch(r, UP, NRL_SLOT_MASTER, exact));
    uint64_t version = nrl_param_version(r->list[UP]);
    NRL_TRY(t->average(r->self, r->ctx, true));
    NRL_TRY(expect_slot(r, step, NRL_SLOT_MASTER, mean));
    NRL_TRY(expect_slot(r, step, NRL_SLOT_STATE0, 10 * alone));
    EXPECT(met || world == 1 || nrl_param_version(r->list[UP]) > version, "the version did not rise");
    NRL_TRY(t->average(r->self, r->ctx, false));
    NRL_TRY(ddp_fetch(r, UP, NRL_SLOT_MASTER, back));
    EXPECT(memcmp(back, exact, sizeof *back) == 0, "the own value was %.17g and came back as %.17g", exact[0], back[0]);
    return NRL_OK;
}

static nrl_status show_all(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    ctx_memory before, after;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) ctx_memory_use(r.ctx, &before);
    for (int64_t step = 1; st == NRL_OK && step <= 4; step++)
        st = show(&r, step);
    if (st == NRL_OK) ctx_memory_use(r.ctx, &after);
    if (st == NRL_OK && after.live_bytes != before.live_bytes) st = nrl_fail(NRL_ERR_BUG, "memory was left behind");
    ddp_rank_close(&r);
    return st;
}

static void the_mean_is_shown_between_meetings_and_the_own_weights_come_back(void **state)
{
    (void)state;
    ddp_run("{sync_every: 3}", NRL_DTYPE_F32, 2, show_all);
    ddp_run("{sync_every: 3}", NRL_DTYPE_BF16, 3, show_all);
    ddp_run("{}", NRL_DTYPE_F32, 1, show_all);
}

static nrl_status loaded(nrl_mesh *mesh, int32_t rank, void *user)
{
    ddp_rank r;
    nrl_status st = ddp_rank_open(&r, user, mesh, rank);
    if (st == NRL_OK) st = write_master(&r, 4);
    if (st == NRL_OK) st = r.s->table->updated(r.self, r.ctx, 0);
    if (st == NRL_OK) st = expect_slot(&r, 0, NRL_SLOT_WEIGHT, 4);
    ddp_rank_close(&r);
    return st;
}

static void loaded_values_reach_the_rounded_copy(void **state)
{
    (void)state;
    ddp_run("{}", NRL_DTYPE_BF16, 2, loaded);
    ddp_run("{}", NRL_DTYPE_BF16, 1, loaded);
    ddp_run("{sync_every: 2}", NRL_DTYPE_BF16, 2, loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masters_meet_every_n_updates_and_moments_only_when_asked),
        cmocka_unit_test(outer_steps_go_from_the_last_weights_in_common_with_momentum),
        cmocka_unit_test(outer_steps_that_a_resume_adds_go_from_the_mean),
        cmocka_unit_test(the_mean_is_shown_between_meetings_and_the_own_weights_come_back),
        cmocka_unit_test(loaded_values_reach_the_rounded_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
