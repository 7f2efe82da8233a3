/*
 * test_step.c - steps of a trainer that was built from its parts alone.
 */
#include "run/bigram.h"

/* Moves the weights far enough to see it, and makes the loss there not finite. */
static nrl_status move_away(void *factor, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                            const nrl_step_params *step)
{
    (void)ctx;
    for (int64_t i = 0; i < n_slices; i++) {
        const nrl_slice *s = nrl_slice_at(slices, i, step);
        float *w = nrl_tensor_mat(s->master).data;
        for (int64_t k = 0; k < s->n; k++)
            w[k] += 3;
    }
    *(double *)factor = INFINITY;
    return NRL_OK;
}

static const nrl_optimizer two_passes = {.plugin = {.size = sizeof(nrl_optimizer), .name = "two_passes"},
                                         .granularity = NRL_OPTIMIZER_ELEMENT,
                                         .update = descend,
                                         .perturb = move_away};

/* now = before - rate * gradient */
static void assert_descended(const matrices *before, const matrices *gradient, double rate, const matrices *now)
{
    for (int v = 0; v < V; v++)
        for (int d = 0; d < D; d++) {
            assert_near(now->embed[v][d], before->embed[v][d] - rate * gradient->embed[v][d], 1e-6);
            assert_near(now->head[v][d], before->head[v][d] - rate * gradient->head[v][d], 1e-6);
        }
}

static double value_of(const nrl_run_event *e, const char *name)
{
    for (size_t i = 0; i < e->n_values; i++)
        if (!strcmp(e->values[i].name, name)) return e->values[i].value;
    fail_msg("the record has no %s", name);
    return NAN;
}

/* ---- tests ---- */

static void steps_follow_the_gradient_of_the_whole_batch(void **state)
{
    fixture *f = *state;
    matrices gradient;
    nrl_run_event e;
    bool done;
    const trainer *tr = open_trainer(f, 0);
    for (int step = 1; step <= 3; step++) {
        const matrices before = read_weights(f);
        const double loss = loss_of(&before, &gradient);
        if (take_step(f, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
        const matrices now = read_weights(f);
        assert_false(done);
        assert_false(e.skipped);
        assert_near(e.loss, loss, 1e-6);
        assert_near(e.grad_norm, norm_of(&gradient), 1e-6);
        assert_near(value_of(&e, "lr"), lr, 0);
        assert_descended(&before, &gradient, lr, &now);
        assert_int_equal(tr->progress.step, step);
        assert_int_equal(tr->progress.updates, step);
        assert_int_equal(tr->progress.tokens, step * (n_words[0] + n_words[1]));
    }
}

static void the_gradient_is_clipped(void **state)
{
    fixture *f = *state;
    matrices gradient;
    nrl_run_event e;
    bool done;
    const double clip = 0.01;
    open_trainer(f, clip);
    const matrices before = read_weights(f);
    loss_of(&before, &gradient);
    const double norm = norm_of(&gradient);
    assert_true(norm > clip);
    assert_int_equal(take_step(f, &e, &done), NRL_OK);
    const matrices now = read_weights(f);
    assert_near(e.grad_norm, norm, 1e-6); /* before clipping */
    assert_descended(&before, &gradient, lr * clip / norm, &now);
}

static void a_step_that_is_not_finite_changes_nothing(void **state)
{
    fixture *f = *state;
    nrl_run_event e;
    bool done;
    f->config.nan = CONFIG_NAN_SKIP;
    f->config.nan_limit = 2;
    f->factor = INFINITY;
    const trainer *tr = open_trainer(f, 0);
    const matrices before = read_weights(f);
    assert_int_equal(take_step(f, &e, &done), NRL_OK);
    matrices now = read_weights(f);
    assert_true(e.skipped);
    assert_memory_equal(&before, &now, sizeof now);
    assert_int_equal(tr->progress.step, 1);
    assert_int_equal(tr->progress.updates, 0);
    assert_int_equal(take_step(f, &e, &done), NRL_ERR_DIVERGED);
    assert_non_null(strstr(nrl_error_text(), "train.nan_limit"));
    now = read_weights(f);
    assert_memory_equal(&before, &now, sizeof now);
}

/* The weights of the first pass are there again, bit for bit, and the step counts as omitted, with the loss that is to
 * blame. */
static void a_second_pass_that_is_not_finite_changes_nothing(void **state)
{
    fixture *f = *state;
    nrl_run_event e;
    bool done;
    f->config.nan = CONFIG_NAN_SKIP;
    f->config.nan_limit = 3;
    f->updates.table = &two_passes;
    f->updates.self = &f->factor;
    const trainer *tr = open_trainer(f, 0);
    const matrices before = read_weights(f);
    for (int step = 1; step <= 2; step++) {
        f->factor = 1;
        assert_int_equal(take_step(f, &e, &done), NRL_OK);
        const matrices now = read_weights(f);
        assert_true(isinf(f->factor)); /* there was a second pass */
        assert_true(e.skipped);
        assert_false(isfinite(e.loss));
        assert_memory_equal(&before, &now, sizeof now);
        assert_int_equal(tr->progress.step, step);
        assert_int_equal(tr->progress.updates, 0);
        assert_int_equal(tr->progress.skipped_in_a_row, step);
    }
    f->factor = 1;
    assert_int_equal(take_step(f, &e, &done), NRL_ERR_DIVERGED);
    assert_non_null(strstr(nrl_error_text(), "loss inf"));
    const matrices now = read_weights(f);
    assert_memory_equal(&before, &now, sizeof now);
}

static void a_trainer_that_is_asked_to_stop_takes_no_step(void **state)
{
    fixture *f = *state;
    nrl_run_event e;
    bool done;
    trainer *tr = open_trainer(f, 0);
    const matrices before = read_weights(f);
    trainer_stop(tr, "a test asked to");
    assert_int_equal(take_step(f, &e, &done), NRL_OK);
    const matrices now = read_weights(f);
    assert_true(done);
    assert_int_equal(tr->progress.step, 0);
    assert_memory_equal(&before, &now, sizeof now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(steps_follow_the_gradient_of_the_whole_batch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_gradient_is_clipped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_that_is_not_finite_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_second_pass_that_is_not_finite_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_trainer_that_is_asked_to_stop_takes_no_step, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
