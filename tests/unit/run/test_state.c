/*
 * test_state.c - the state of a trainer that was built from its parts alone, to a checkpoint and back, and what tells
 * the checkpoint of another run.
 */
#include "run/state/state.h"
#include "base/json.h"
#include "run/bigram.h"
#include "run/step/evaluator.h"
#include "support/folder.h"
#include <sys/stat.h>

#define RUN                                                                                                            \
    "{\"config\": {\"algorithm\": {\"name\": \"nll\"}, \"data\": {\"max_length\": %d}}, \"model\": {\"words\": 5}, "   \
    "\"fingerprints\": {\"data\": \"%s\"}, \"plugins\": {\"optimizers/descent\": \"%s, 77\"}, \"tokenizer\": "         \
    "\"here\"}"

/* What a test saves and restores, with the trainer of the fixture. */
typedef struct {
    fixture *f;
    char out[64];
    format_scope formats;    /* none but those of the host, which has no plugins */
    nrl_algorithm algorithm; /* nll, which saves its factor */
    const char *run;         /* its description, in JSON */
    state_parts parts;
} saved;

static nrl_status describe(void *user, arena *a, nrl_node **map)
{
    const saved *s = user;
    return json_parse(a, "description", s->run, strlen(s->run), map);
}

static nrl_status keep_factor(void *factor, nrl_state_io *io)
{
    return nrl_state_io_f64(io, "factor", factor, 1);
}

static const char *describe_as(saved *s, int max_length, const char *data, const char *version)
{
    static char text[512];
    snprintf(text, sizeof text, RUN, max_length, data, version);
    return s->run = text;
}

static saved *open_state(saved *s, fixture *f)
{
    *s = (saved){.f = f, .out = "/tmp/nrl-state-XXXXXX", .algorithm = nll};
    s->formats.host = plugin_host_create(NULL, NULL, 0, NULL);
    s->algorithm.state = keep_factor;
    f->work.algorithm = &s->algorithm;
    describe_as(s, 5, "4d2", "1.0");
    assert_non_null(mkdtemp(s->out));
    open_trainer(f, 0);
    s->parts = (state_parts){.trainer = &f->trainer,
                             .model = f->model,
                             .formats = &s->formats,
                             .host = s->formats.host,
                             .describe = describe,
                             .user = s};
    return s;
}

static void close_state(saved *s)
{
    plugin_host_destroy(s->formats.host);
    test_folder_remove(s->out);
}

static void step(fixture *f)
{
    nrl_run_event e;
    bool done;
    if (take_step(f, &e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
}

static checkpoint *save(saved *s)
{
    const checkpoint_writer_options o = {.out = s->out, .threads = 1};
    checkpoint_outcome outcome;
    checkpoint_writer *w;
    checkpoint *c;
    arena a = {0};
    bool done;
    assert_int_equal(checkpoint_writer_open(&o, &w), NRL_OK);
    assert_int_equal(checkpoint_prepare(w, state_bytes(&s->parts), false), NRL_OK);
    checkpoint_begin(w, s->f->trainer.progress.step);
    if (state_add(&s->parts, &a, w) != NRL_OK) fail_msg("%s", nrl_error_text());
    checkpoint_submit(w);
    if (checkpoint_poll(w, true, &outcome, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
    assert_int_equal(outcome.raw_bytes, 2 * V * D * sizeof(float));
    assert_int_equal(checkpoint_open(outcome.dir, &c), NRL_OK);
    checkpoint_writer_close(w, false);
    arena_free(&a);
    return c;
}

/* ---- tests ---- */

static void a_restored_trainer_takes_the_steps_of_the_one_that_was_saved(void **state)
{
    saved s;
    fixture *f = *state;
    open_state(&s, f);
    f->factor = 0.5;
    step(f);
    f->trainer.lr_override = lr / 2;
    trainer_set_script_state(&f->trainer, "{\"seen\": 3}");
    checkpoint *c = save(&s);
    assert_string_equal(nrl_node_string(checkpoint_node(c, "tokenizer"), ""), "here");
    const run_progress progress = f->trainer.progress;
    step(f);
    const matrices expected = read_weights(f);
    f->factor = 7;
    f->trainer.lr_override = lr;
    trainer_set_script_state(&f->trainer, NULL);
    if (state_restore(&s.parts, c) != NRL_OK) fail_msg("%s", nrl_error_text());
    assert_memory_equal(&f->trainer.progress, &progress, sizeof progress);
    assert_string_equal(f->trainer.script_state, "{\"seen\": 3}");
    assert_true(f->factor == 0.5);
    assert_true(f->trainer.lr_override == lr / 2);
    step(f);
    const matrices now = read_weights(f);
    assert_memory_equal(&now, &expected, sizeof now);
    checkpoint_close(c);
    close_state(&s);
}

static void an_evaluation_takes_the_weights_of_another_run(void **state)
{
    saved s;
    fixture *f = *state;
    open_state(&s, f);
    step(f);
    const matrices expected = read_weights(f);
    checkpoint *c = save(&s);
    step(f);
    describe_as(&s, 4, "now another", "2.0");
    if (state_restore_weights(&s.parts, c) != NRL_OK) fail_msg("%s", nrl_error_text());
    const matrices now = read_weights(f);
    assert_memory_equal(&now, &expected, sizeof now);
    assert_int_equal(f->trainer.progress.step, 1);
    checkpoint_close(c);
    close_state(&s);
}

static void the_checkpoint_of_another_run_is_refused_with_all_differences(void **state)
{
    static const char *const told[] = {"data.max_length: was 5, is now 4", "data: was \"4d2\", is now \"other\"",
                                       "plugin optimizers/descent: was \"1.0, 77\", is now \"2.0, 77\""};
    saved s;
    fixture *f = *state;
    open_state(&s, f);
    step(f);
    checkpoint *c = save(&s);
    step(f);
    const matrices before = read_weights(f);
    describe_as(&s, 4, "other", "2.0");
    assert_int_equal(state_restore(&s.parts, c), NRL_ERR_CONFIG);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (!strstr(nrl_error_text(), told[i])) fail_msg("no '%s' in: %s", told[i], nrl_error_text());
    const matrices now = read_weights(f);
    assert_memory_equal(&now, &before, sizeof now);
    s.parts.mismatch_warns = true;
    assert_int_equal(state_restore(&s.parts, c), NRL_OK);
    assert_int_equal(f->trainer.progress.step, 1);
    checkpoint_close(c);
    close_state(&s);
}

static void an_evaluated_step_is_saved_with_its_value(void **state)
{
    nrl_value value = {.name = "eval_loss"};
    const value_list values = {.list = &value, .n = 1};
    saved s;
    fixture *f = *state;
    run_progress *p = &f->trainer.progress;
    open_state(&s, f);
    step(f);
    step(f);
    /* the best step, and one after a better one; smaller is better in checkpoints */
    for (int is_best = 0; is_best < 2; is_best++)
        for (int is_largest = 0; is_largest < 2; is_largest++) {
            int64_t at;
            double metric;
            p->best_step = is_best ? 0 : 1;
            p->best = is_largest ? 2 : 0.5;
            value.value = 0.75;
            assert_int_equal(best_judge(p, &values, "eval_loss", is_largest), NRL_OK);
            assert_int_equal(p->best_step, is_best ? p->step : 1);
            checkpoint *c = save(&s);
            assert_int_equal(checkpoint_look(checkpoint_dir(c), &at, &metric), NRL_OK);
            assert_true(metric == (is_largest ? -0.75 : 0.75));
            p->judged_step = 0;
            assert_int_equal(state_restore(&s.parts, c), NRL_OK);
            assert_int_equal(p->judged_step, p->step);
            assert_true(p->judged == metric);
            checkpoint_close(c);
            test_folder_remove(s.out);
            assert_int_equal(mkdir(s.out, 0700), 0);
        }
    close_state(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_restored_trainer_takes_the_steps_of_the_one_that_was_saved, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_evaluation_takes_the_weights_of_another_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_checkpoint_of_another_run_is_refused_with_all_differences, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_evaluated_step_is_saved_with_its_value, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
