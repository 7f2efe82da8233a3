/*
 * test_resume.c - the choice of the checkpoint that a run goes on from, by a reader that is no run.
 */
#include "base/arena.h"
#include "run/state/resume.h"
#include "support/folder.h"
#include <nrl/parallel.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    int64_t damaged; /* from this step on checkpoints cannot be read */
    int64_t read;    /* step of the one that was */
    int tried;
} reader;

static nrl_status restore(void *user, checkpoint *c)
{
    reader *r = user;
    r->tried++;
    if (checkpoint_step(c) == 7) return nrl_fail(NRL_ERR_CONFIG, "of another run");
    if (checkpoint_step(c) >= r->damaged) return nrl_fail(NRL_ERR_CORRUPT, "a bad block");
    r->read = checkpoint_step(c);
    return NRL_OK;
}

typedef struct {
    char out[64];
    arena memory;
    reader reader;
    resume_choice choice;
} fixture;

static void save(const char *out, int64_t step)
{
    static float values[3] = {1, 2, 3};
    const checkpoint_tensor t = {"weight", "weight", NRL_DTYPE_F32, 1, {3}};
    const layout_shard whole = piece_of_whole(t.n_dims, t.dims);
    const checkpoint_writer_options o = {.out = out, .threads = 1};
    checkpoint_outcome outcome;
    checkpoint_writer *w;
    bool done;
    assert_int_equal(checkpoint_writer_open(&o, &w), NRL_OK);
    checkpoint_begin(w, step);
    checkpoint_add_tensor(w, &t, &whole, values);
    checkpoint_submit(w);
    assert_int_equal(checkpoint_poll(w, true, &outcome, &done), NRL_OK);
    checkpoint_writer_close(w, false);
}

static int set_up(void **state)
{
    static const mesh_setup one = {.axes = {{"data", 1, NRL_DIVIDES_BATCH}}, .n_axes = 1};
    fixture *f = *state = calloc(1, sizeof *f);
    strcpy(f->out, "/tmp/nrl-resume-XXXXXX");
    if (!mkdtemp(f->out)) return 1;
    f->reader = (reader){.damaged = INT64_MAX, .read = -1};
    f->choice = (resume_choice){.out = f->out, .threads = 1, .restore = restore, .user = &f->reader};
    return mesh_open(&one, &f->choice.mesh);
}

static int tear_down(void **state)
{
    fixture *f = *state;
    mesh_close(f->choice.mesh);
    test_folder_remove(f->out);
    arena_free(&f->memory);
    free(f);
    return 0;
}

static void a_run_without_checkpoints_is_a_fresh_one(void **state)
{
    fixture *f = *state;
    const char *dir = "";
    assert_int_equal(resume_newest(&f->choice, &f->memory, &dir), NRL_OK);
    assert_null(dir);
    assert_int_equal(f->reader.tried, 0);
}

static void the_newest_is_read(void **state)
{
    fixture *f = *state;
    const char *dir;
    save(f->out, 2);
    save(f->out, 4);
    assert_int_equal(resume_newest(&f->choice, &f->memory, &dir), NRL_OK);
    assert_int_equal(f->reader.read, 4);
    assert_non_null(strstr(dir, "step-00000004"));
}

static void a_damaged_one_gives_way_only_where_that_is_allowed(void **state)
{
    fixture *f = *state;
    const char *dir;
    f->reader.damaged = 3;
    save(f->out, 2);
    save(f->out, 4);
    assert_int_equal(resume_newest(&f->choice, &f->memory, &dir), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "checkpoint.fallback=previous"));
    assert_null(dir);
    f->choice.falls_back = true;
    assert_int_equal(resume_newest(&f->choice, &f->memory, &dir), NRL_OK);
    assert_int_equal(f->reader.read, 2);
    f->reader.damaged = 0;
    assert_int_equal(resume_newest(&f->choice, &f->memory, &dir), NRL_ERR_CORRUPT);
    assert_non_null(strstr(nrl_error_text(), "overwrite=true"));
}

static void one_of_another_run_is_never_left_for_an_older_one(void **state)
{
    fixture *f = *state;
    const char *dir;
    f->choice.falls_back = true;
    save(f->out, 2);
    save(f->out, 7);
    assert_int_equal(resume_newest(&f->choice, &f->memory, &dir), NRL_ERR_CONFIG);
    assert_int_equal(f->reader.read, -1);
}

static void a_word_that_names_no_checkpoint_is_explained(void **state)
{
    fixture *f = *state;
    bool differ;
    assert_int_equal(resume_read(&f->choice, "atuo", &differ), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "hint: expected never, auto or the directory of a checkpoint"));
    assert_false(differ);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_run_without_checkpoints_is_a_fresh_one),
        TEST(the_newest_is_read),
        TEST(a_damaged_one_gives_way_only_where_that_is_allowed),
        TEST(one_of_another_run_is_never_left_for_an_older_one),
        TEST(a_word_that_names_no_checkpoint_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
