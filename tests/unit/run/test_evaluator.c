/*
 * test_evaluator.c - evaluations of an evaluator that was built from its parts alone, on batches of the test.
 */
#include "run/step/evaluator.h"
#include "run/bigram.h"

/* Some of the fixture's micro-batches as a set: one in each step. */
typedef struct {
    fixture *f;
    int first, n_open;
    int64_t fails_at; /* step */
    data_step data;
} batches;

static nrl_status begin(void *user, int64_t step, const data_step **data)
{
    batches *b = user;
    b->n_open++;
    if (step == b->fails_at) return nrl_fail(NRL_ERR_IO, "the batches of step %lld cannot be read", (long long)step);
    b->data = (data_step){.micro_batch = &b->f->batches[b->first + step], .n_micro_batches = 1};
    *data = &b->data;
    return NRL_OK;
}

static void end(void *user)
{
    ((batches *)user)->n_open--;
}

static evaluator_set set_of(batches *b, const char *name, int64_t n_steps)
{
    return (evaluator_set){.name = name, .n_steps = n_steps, .begin = begin, .end = end, .user = b};
}

static void open_evaluator(fixture *f, evaluator *ev)
{
    const evaluator_parts parts = {
        .work = &f->work, .mesh = f->mesh, .shards = &f->shards, .metrics = &f->metrics, .hooks = &f->hooks};
    *ev = (evaluator){0};
    evaluator_open(ev, &parts, 8);
}

static double value_of(const evaluator *ev, const char *name)
{
    for (size_t i = 0; i < ev->values.n; i++)
        if (!strcmp(ev->values.list[i].name, name)) return ev->values.list[i].value;
    fail_msg("the evaluation has no %s", name);
    return NAN;
}

/* ---- tests ---- */

static void the_loss_is_the_mean_over_the_target_positions_of_all_batches(void **state)
{
    fixture *f = *state;
    evaluator ev;
    matrices gradient;
    batches all = {.f = f, .fails_at = -1};
    const evaluator_set set = set_of(&all, "", N_MICRO);
    const matrices before = read_weights(f);
    open_evaluator(f, &ev);
    for (int i = 0; i < 2; i++) { /* the second one has values of its own */
        if (evaluator_run(&ev, &set, 1, 7) != NRL_OK) fail_msg("%s", nrl_error_text());
        assert_near(value_of(&ev, "eval_loss"), loss_of(&before, &gradient), 1e-6);
        assert_near(value_of(&ev, "eval_tokens"), (double)(n_words[0] + n_words[1]), 0);
        assert_int_equal(ev.values.n, 3); /* and eval_seconds */
    }
    const matrices now = read_weights(f);
    assert_memory_equal(&before, &now, sizeof now);
    assert_int_equal(all.n_open, 0);
    evaluator_close(&ev);
}

static void sets_have_values_of_their_own_and_one_of_all(void **state)
{
    fixture *f = *state;
    evaluator ev;
    batches of[N_MICRO] = {{.f = f, .fails_at = -1}, {.f = f, .first = 1, .fails_at = -1}};
    const evaluator_set sets[] = {set_of(&of[0], "long", 1), set_of(&of[1], "short", 1)};
    const double n[] = {(double)n_words[0] - 1, (double)n_words[1] - 1};
    open_evaluator(f, &ev);
    if (evaluator_run(&ev, sets, 2, 0) != NRL_OK) fail_msg("%s", nrl_error_text());
    const double a = value_of(&ev, "eval_long_loss"), b = value_of(&ev, "eval_short_loss");
    assert_true(fabs(a - b) > 1e-3);
    assert_near(value_of(&ev, "eval_loss"), (n[0] * a + n[1] * b) / (n[0] + n[1]), 1e-6);
    assert_near(value_of(&ev, "eval_short_tokens"), (double)n_words[1], 0);
    evaluator_close(&ev);
}

static void an_error_of_the_batches_names_the_step_of_the_run(void **state)
{
    fixture *f = *state;
    evaluator ev;
    batches some = {.f = f, .fails_at = 1};
    const evaluator_set set = set_of(&some, "", N_MICRO);
    open_evaluator(f, &ev);
    assert_int_equal(evaluator_run(&ev, &set, 1, 7), NRL_ERR_IO);
    assert_non_null(strstr(nrl_error_text(), "the batches of step 1 cannot be read"));
    assert_non_null(strstr(nrl_error_text(), "evaluation after step 7"));
    assert_int_equal(some.n_open, 0);
    assert_int_equal(f->hooks.inside, INSIDE_NOTHING);
    evaluator_close(&ev);
}

static void an_evaluation_needs_a_set(void **state)
{
    evaluator ev;
    open_evaluator(*state, &ev);
    assert_int_equal(evaluator_run(&ev, NULL, 0, 0), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "data.eval is not set"));
    evaluator_close(&ev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_loss_is_the_mean_over_the_target_positions_of_all_batches, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(sets_have_values_of_their_own_and_one_of_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_error_of_the_batches_names_the_step_of_the_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_evaluation_needs_a_set, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
