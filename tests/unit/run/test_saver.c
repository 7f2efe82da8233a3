/*
 * test_saver.c - a saver that was built from its parts alone: when it saves, what it keeps, whom it tells, and what a
 * failed save does. The state is one tensor of the test.
 */
#include "run/state/saver.h"
#include "support/backend.h"
#include "support/folder.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct {
    char out[64];
    nrl_mesh *mesh;
    device device;
    strategy strategy; /* none */
    work work;
    hooks hooks;
    telemetry telemetry;
    trainer trainer;
    config_checkpoint config;
    saver saver;
    float values[3]; /* the state */
    bool fails;
    int n_before, n_saved; /* events */
    char saved_at[256];    /* path of the last one */
    int64_t saved_step;
} fixture;

static int64_t bytes_of(void *user)
{
    return sizeof((const fixture *)user)->values;
}

static nrl_status add(void *user, arena *a, checkpoint_writer *w)
{
    static const checkpoint_tensor t = {"weight", "weight", NRL_DTYPE_F32, 1, {3}};
    fixture *f = user;
    const layout_shard whole = piece_of_whole(t.n_dims, t.dims);
    checkpoint_add_tensor(w, &t, &whole, f->values);
    checkpoint_add_node(w, "note", node_string(a, "one", 3));
    const run_progress *p = &f->trainer.progress;
    if (p->step && p->best_step == p->step) checkpoint_set_metric(w, p->best);
    return f->fails ? nrl_fail(NRL_ERR_IO, "the state cannot be read") : NRL_OK;
}

static nrl_status hear(void *user, nrl_run *run, const nrl_run_event *e)
{
    fixture *f = user;
    (void)run;
    if (e->kind == NRL_EVENT_BEFORE_SAVE) f->n_before++;
    if (e->kind != NRL_EVENT_SAVE) return NRL_OK;
    f->n_saved++;
    f->saved_step = e->step;
    snprintf(f->saved_at, sizeof f->saved_at, "%s", e->path);
    return NRL_OK;
}

static int set_up(void **state)
{
    static const mesh_setup one = {.axes = {{"data", 1, NRL_DIVIDES_BATCH}}, .n_axes = 1};
    fixture *f = *state = calloc(1, sizeof *f);
    strcpy(f->out, "/tmp/nrl-saver-XXXXXX");
    if (!mkdtemp(f->out) || mesh_open(&one, &f->mesh) != NRL_OK) return 1;
    if (!test_device_open(&f->device) || ctx_create(&f->device, &f->work.ctx) != NRL_OK) return 1;
    f->work.strategy = &f->strategy;
    f->hooks = (hooks){.event = hear, .user = f};
    f->telemetry.quiet = true;
    f->trainer.parts =
        (trainer_parts){.work = &f->work, .mesh = f->mesh, .hooks = &f->hooks, .telemetry = &f->telemetry};
    f->trainer.save_at = INFINITY;
    f->config = (config_checkpoint){.every = 2, .threads = 1, .sign = "", .on_error = CONFIG_ON_ERROR_STOP};
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    saver_close(&f->saver);
    ctx_destroy(f->work.ctx);
    device_close(&f->device);
    mesh_close(f->mesh);
    test_folder_remove(f->out);
    free(f);
    return 0;
}

static saver *open_saver(fixture *f)
{
    const saver_parts parts = {.trainer = &f->trainer,
                               .config = &f->config,
                               .out = f->out,
                               .timeout_s = 1,
                               .bytes = bytes_of,
                               .add = add,
                               .user = f};
    saver_open(&f->saver, &parts);
    return &f->saver;
}

/* Steps up to `last`, with what follows each. */
static nrl_status step_to(fixture *f, int64_t last)
{
    while (f->trainer.progress.step < last) {
        saver_begin_step(&f->saver);
        f->values[0] = (float)++f->trainer.progress.step;
        NRL_TRY(saver_save_due(&f->saver));
    }
    return NRL_OK;
}

/* The steps of the checkpoints, newest first: "6 4 ". */
static const char *steps_of(const fixture *f, char text[64])
{
    char **dirs;
    size_t n;
    *text = 0;
    assert_int_equal(checkpoint_list(f->out, &dirs, &n), NRL_OK);
    for (size_t i = 0; i < n; i++)
        snprintf(text + strlen(text), 64 - strlen(text), "%lld ", strtoll(strrchr(dirs[i], '-') + 1, NULL, 10));
    checkpoint_list_free(dirs, n);
    return text;
}

static float saved_value(const char *dir)
{
    checkpoint *c;
    float values[3];
    assert_int_equal(checkpoint_open(dir, &c), NRL_OK);
    const layout_shard whole = piece_of_whole(1, checkpoint_tensor_at(c, 0)->dims);
    assert_int_equal(checkpoint_read(c, 0, &whole, values), NRL_OK);
    checkpoint_close(c);
    return values[0];
}

static void saves_are_due_by_steps(void **state)
{
    fixture *f = *state;
    char text[64];
    f->config.keep = 2;
    open_saver(f);
    assert_int_equal(step_to(f, 7), NRL_OK);
    assert_string_equal(steps_of(f, text), "6 4 ");
    assert_int_equal(f->n_before, 3);
    assert_int_equal(f->n_saved, 3);
    assert_int_equal(f->saved_step, 6);
    assert_true(saved_value(f->saved_at) == 6);
    assert_int_equal(f->saver.last_saved, 6);
}

static void a_save_in_the_background_has_the_values_of_its_step(void **state)
{
    fixture *f = *state;
    f->config.async = true;
    saver *sv = open_saver(f);
    assert_int_equal(step_to(f, 3), NRL_OK); /* the values of step 3 are not those that were saved */
    assert_int_equal(saver_wait(sv), NRL_OK);
    assert_int_equal(f->n_saved, 1);
    assert_true(saved_value(f->saved_at) == 2);
}

static void the_record_of_the_next_step_tells_what_a_save_took(void **state)
{
    fixture *f = *state;
    open_saver(f);
    assert_int_equal(step_to(f, 2), NRL_OK);
    assert_int_equal(f->trainer.n_notes, 0);
    saver_begin_step(&f->saver);
    assert_int_equal(f->trainer.n_notes, 3);
    assert_string_equal(f->trainer.notes[0].name, "save_s");
    assert_true(f->trainer.notes[0].value > 0);
    f->trainer.n_notes = 0; /* the record has them */
    saver_begin_step(&f->saver);
    assert_int_equal(f->trainer.n_notes, 0);
}

static void a_new_best_is_saved_between_two_saves(void **state)
{
    fixture *f = *state;
    char text[64];
    f->config.every = 4;
    f->config.keep = 1;
    f->config.keep_best = 1;
    open_saver(f);
    f->trainer.progress.best_step = 3;
    f->trainer.progress.best = 0.5;
    assert_int_equal(step_to(f, 9), NRL_OK);
    assert_string_equal(steps_of(f, text), "8 3 ");
}

static void a_failed_save_stops_the_run_and_leaves_nothing(void **state)
{
    fixture *f = *state;
    char text[64];
    f->fails = true;
    open_saver(f);
    assert_int_equal(step_to(f, 2), NRL_ERR_IO);
    assert_non_null(strstr(nrl_error_text(), "the state cannot be read"));
    assert_non_null(strstr(nrl_error_text(), "saving step 2"));
    assert_string_equal(steps_of(f, text), "");
    assert_int_equal(f->n_saved, 0);
}

static void a_failed_save_may_be_a_warning(void **state)
{
    fixture *f = *state;
    char text[64];
    f->config.on_error = CONFIG_ON_ERROR_WARN;
    f->fails = true;
    open_saver(f);
    assert_int_equal(step_to(f, 2), NRL_OK);
    assert_string_equal(steps_of(f, text), "");
    f->fails = false;
    assert_int_equal(step_to(f, 4), NRL_OK);
    assert_string_equal(steps_of(f, text), "4 ");
    assert_int_equal(f->n_saved, 1);
}

static nrl_status no_average(void *self, nrl_ctx *ctx, bool begin)
{
    (void)self;
    (void)ctx;
    return begin ? nrl_fail(NRL_ERR_MEMORY, "no memory for a copy of the weights") : NRL_OK;
}

static void a_rank_that_cannot_average_its_weights_ends_the_run(void **state)
{
    static const nrl_parallel table = {.average = no_average};
    fixture *f = *state;
    f->config.on_error = CONFIG_ON_ERROR_WARN;
    f->strategy.n = 1;
    f->strategy.of[0].table = &table;
    open_saver(f);
    assert_int_equal(step_to(f, 2), NRL_ERR_MEMORY);
    assert_non_null(strstr(nrl_error_text(), "saving step 2: no memory for a copy"));
}

static void a_resumed_step_is_not_saved_again(void **state)
{
    fixture *f = *state;
    char text[64];
    saver *sv = open_saver(f);
    f->trainer.progress.step = 4;
    saver_resumed(sv, "elsewhere/checkpoints/step-00000004");
    assert_int_equal(saver_save_due(sv), NRL_OK);
    assert_string_equal(steps_of(f, text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(saves_are_due_by_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_save_in_the_background_has_the_values_of_its_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_record_of_the_next_step_tells_what_a_save_took, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_new_best_is_saved_between_two_saves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_save_stops_the_run_and_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_save_may_be_a_warning, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_that_cannot_average_its_weights_ends_the_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_resumed_step_is_not_saved_again, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
