/*
 * The file of cached reference log-probs: made once, found again, never believed when damaged, and
 * another one whenever what its numbers depend on changes.
 */
#include "run/weights/reference_cache.h"
#include "support/memory.h"
#include "support/run.h"
#include "support/weights.h"
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { PAIRS = 70 }; /* more than one global batch of the computation */

static test_place place;
static const char *pairs, *model_dir;

static const char *yaml_text(const char *name)
{
    return arena_printf(&place.memory,
                        "model: {path: %s}\n"
                        "data: {train: %s, max_length: 60, cache: %s/%s}\n"
                        "train: {steps: 4, global_batch: 5, micro_batch_tokens: 160, seed: 3}\n"
                        "algorithm: {name: dpo, reference: cached}\n"
                        "optimizer: {name: adamw, lr: 1.0e-3}\n"
                        "schedule: constant\n"
                        "checkpoint: {every: 0}\n"
                        "overwrite: true\n"
                        "loggers: []\n"
                        "out: %s/out-%s\n",
                        model_dir, pairs, place.folder, name, place.folder, name);
}

static run *open_run(const char *name, const char *override)
{
    const char *overrides[] = {override, NULL};
    run *r = NULL;
    if (test_run_open(&place, yaml_text(name), overrides, &r) != NRL_OK) fail_msg("%s", nrl_error_text());
    return r;
}

/* ---- the folder ---- */

/* Files of reference log-probs in a folder; *path is the last one's. */
static int count_files(const char *name, const char **path)
{
    const char *folder = arena_printf(&place.memory, "%s/%s", place.folder, name);
    DIR *d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "ref-", 4)) continue;
        assert_null(strstr(e->d_name, ".tmp")); /* written under another name, which is gone */
        if (path) *path = arena_printf(&place.memory, "%s/%s", folder, e->d_name);
        n++;
    }
    closedir(d);
    return n;
}

/* The only one. */
static const char *only_file(const char *name)
{
    const char *path = NULL;
    assert_int_equal(count_files(name, &path), 1);
    return path;
}

static struct stat info_of(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return s;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* What stderr gets from opening and closing a run. */
static const char *words_of_opening(const char *name, const char *override)
{
    const char *path = arena_printf(&place.memory, "%s/stderr", place.folder);
    char *text = arena_alloc(&place.memory, 8192);
    fflush(stderr);
    int kept = dup(2), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && fd >= 0 && dup2(fd, 2) == 2);
    run *r = open_run(name, override);
    fflush(stderr);
    dup2(kept, 2);
    nrl_run_close(r);
    close(kept);
    assert_true(pread(fd, text, 8191, 0) >= 0); /* zeroed, so it ends */
    close(fd);
    return text;
}

/* ---- a computation of the test's own: what a row must hold follows from the row ---- */

typedef struct {
    int calls;
} fake;

static float value_of(const nrl_batch *b, int64_t row)
{
    int32_t s = b->row_segment[row];
    return -(float)(1000 * b->segment_sample[s] + 500 * b->segment_side[s] + b->positions[b->row_token[row]]);
}

static nrl_status fake_compute(void *user, nrl_batch *b, float *logps)
{
    fake *f = user;
    f->calls++;
    for (int64_t i = 0; i < b->n_rows; i++)
        logps[i] = value_of(b, i);
    return NRL_OK;
}

static reference_cache *open_fake(const run *r, const char *folder, const char *weights_key, fake *f)
{
    reference_cache *c = NULL;
    const reference_cache_setup s = {.folder = folder,
                                     .weights_key = weights_key,
                                     .config = r->session.model->config,
                                     .rounding = "f32 0 0 0",
                                     .data = r->session.train.set,
                                     .micro_batch_tokens = 160,
                                     .compute = fake_compute,
                                     .user = f};
    if (reference_cache_open(&s, &c) != NRL_OK) fail_msg("%s", nrl_error_text());
    return c;
}

static void every_row_finds_its_value_in_any_packing(void **state)
{
    (void)state;
    static const char *const packings[] = {"data.prefix_sharing=true", "data.prefix_sharing=false",
                                           "data.packing=false", "train.micro_batch_tokens=2048"};
    fake f = {0};
    for (int i = 0; i < 4; i++) {
        run *r = open_run("rows", packings[i]);
        reference_cache *c = open_fake(r, arena_printf(&place.memory, "%s/rows", place.folder), "fake", &f);
        for (int64_t step = 0; step < 2 * data_plan_steps_per_epoch(r->session.train.plan); step++) {
            data_step data;
            assert_int_equal(data_loader_step(r->session.train.loader, step, &data), NRL_OK);
            for (int64_t m = 0; m < data.n_micro_batches; m++) {
                const nrl_batch *b = data.micro_batch[m];
                float values[4096];
                assert_true(b->n_rows <= 4096);
                assert_int_equal(reference_cache_fill(c, b, values), NRL_OK);
                for (int64_t k = 0; k < b->n_rows; k++)
                    assert_true(values[k] == value_of(b, k));
            }
        }
        reference_cache_close(c);
        nrl_run_close(r);
    }
}

static void a_file_that_is_there_is_not_computed_again(void **state)
{
    (void)state;
    fake f = {0};
    const char *folder = arena_printf(&place.memory, "%s/once", place.folder);
    run *r = open_run("once", NULL);
    reference_cache_close(open_fake(r, folder, "fake", &f));
    int calls = f.calls;
    assert_true(calls > 0);
    reference_cache_close(open_fake(r, folder, "fake", &f));
    assert_int_equal(f.calls, calls);
    reference_cache_close(open_fake(r, folder, "other weights", &f));
    assert_int_equal(f.calls, 2 * calls);
    nrl_run_close(r);
}

/* ---- through a run ---- */

static void a_second_run_uses_the_file_of_the_first(void **state)
{
    (void)state;
    nrl_run_close(open_run("again", NULL));
    const char *path = only_file("again");
    struct stat first = info_of(path), second;
    nrl_run_close(open_run("again", "train.global_batch=3")); /* nothing that the numbers depend on */
    second = info_of(only_file("again"));
    assert_true(same_file(&first, &second));
}

static void what_the_numbers_depend_on_names_the_file(void **state)
{
    (void)state;
    static const char *const changes[] = {"data.max_length=59", "train.precision=bf16",
                                          "algorithm.loss=[sigmoid, orpo]"}; /* scores prompts too */
    nrl_run_close(open_run("names", NULL));
    assert_int_equal(count_files("names", NULL), 1);
    for (int i = 0; i < 3; i++) {
        nrl_run_close(open_run("names", changes[i]));
        assert_int_equal(count_files("names", NULL), 2 + i);
    }
    const char *dir = arena_printf(&place.memory, "%s/model", place.folder);
    run *r = open_run("names", NULL);
    const model_origin other = {.seed = 77};
    assert_int_equal(origin_load(&other, r->session.ctx, r->session.model, NULL), NRL_OK);
    if (nrl_run_export(r, dir) != NRL_OK) fail_msg("%s", nrl_error_text());
    nrl_run_close(r);
    assert_int_equal(count_files("names", NULL), 4);
    nrl_run_close(open_run("names", arena_printf(&place.memory, "algorithm.reference_model=%s", dir)));
    assert_int_equal(count_files("names", NULL), 5);
    /* the same weights, read another way */
    static const char edit[] = "cp -r %s %s/theta && sed -i 's/10000.0/100.0/' %s/theta/config.json";
    assert_int_equal(system(arena_printf(&place.memory, edit, model_dir, place.folder, place.folder)), 0);
    nrl_run_close(open_run("names", arena_printf(&place.memory, "algorithm.reference_model=%s/theta", place.folder)));
    assert_int_equal(count_files("names", NULL), 6);
}

static void write_at(const char *path, off_t at, unsigned char flip)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= flip;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void check_said_and_repaired(const char *path, const void *good, size_t size)
{
    char *now = arena_alloc(&place.memory, size);
    const char *words = words_of_opening("damage", NULL);
    if (!strstr(words, "is damaged and is computed again")) fail_msg("not said: '%s'", words);
    assert_non_null(strstr(words, path));
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && pread(fd, now, size, 0) == (ssize_t)size && info_of(path).st_size == (off_t)size);
    close(fd);
    assert_memory_equal(now, good, size);
}

static void a_damaged_file_is_said_and_computed_again(void **state)
{
    (void)state;
    nrl_run_close(open_run("damage", NULL));
    const char *path = only_file("damage");
    size_t size = (size_t)info_of(path).st_size;
    char *good = arena_alloc(&place.memory, size);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && pread(fd, good, size, 0) == (ssize_t)size);
    close(fd);
    /* magic, version, examples, values, hash; an offset; the first and the last value */
    const off_t places[] = {0, 8, 16, 24, 31, 32, 48, 40 + 8 * (PAIRS + 1), (off_t)size - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        write_at(path, places[i], 0x81);
        check_said_and_repaired(path, good, size);
    }
    const off_t sizes[] = {0, 1, 39, 40, (off_t)size - 4, (off_t)size + 4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(truncate(path, sizes[i]), 0);
        check_said_and_repaired(path, good, size);
    }
    assert_string_equal(words_of_opening("damage", NULL), "");
}

static void a_whole_file_of_other_numbers_stops_at_the_first_loss(void **state)
{
    (void)state;
    static const char *const checks[] = {NULL, "algorithm.check_initial_loss=false"};
    char key[33];
    weight_files *w;
    fake f = {0};
    assert_int_equal(test_weights_open(model_dir, &w), NRL_OK);
    assert_int_equal(weights_hash(w, key), NRL_OK);
    weights_close(w);
    run *r = open_run("stale", "algorithm.reference=none");
    reference_cache_close(open_fake(r, arena_printf(&place.memory, "%s/stale", place.folder), key, &f));
    nrl_run_close(r);
    for (int i = 0; i < 2; i++) {
        nrl_run_event e = {.size = sizeof e};
        bool done;
        r = open_run("stale", checks[i]);
        nrl_status st = nrl_run_step(r, &e, &done);
        nrl_run_close(r);
        only_file("stale");
        assert_int_equal(st, i ? NRL_OK : NRL_ERR_CONFIG);
        if (!i) assert_non_null(strstr(nrl_error_text(), "(from data.cache) are not those of the policy"));
    }
}

static void a_folder_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    fake f = {0};
    reference_cache *c = NULL;
    run *r = open_run("folder", "algorithm.reference=none");
    const reference_cache_setup s = {.folder = "/dev/null/no",
                                     .weights_key = "fake",
                                     .config = r->session.model->config,
                                     .rounding = "f32 0 0 0",
                                     .data = r->session.train.set,
                                     .micro_batch_tokens = 160,
                                     .compute = fake_compute,
                                     .user = &f};
    assert_int_equal(reference_cache_open(&s, &c), NRL_ERR_IO);
    assert_null(c);
    assert_non_null(strstr(nrl_error_text(), "/dev/null/no/ref-"));
    nrl_run_close(r);
}

/* A file for a run that is open, and the run's first step; the parts that fail without memory. */
static nrl_status compute_starved(void *user, int64_t n)
{
    fake f = {0};
    reference_cache *c = NULL;
    const run *r = user;
    const reference_cache_setup s = {.folder = arena_printf(&place.memory, "%s/starved", place.folder),
                                     .weights_key = "fake",
                                     .config = r->session.model->config,
                                     .rounding = "f32 0 0 0",
                                     .data = r->session.train.set,
                                     .micro_batch_tokens = 160,
                                     .compute = fake_compute,
                                     .user = &f};
    mem_try_fail_after(n);
    nrl_status st = reference_cache_open(&s, &c);
    reference_cache_close(c);
    return st;
}

static nrl_status step_starved(void *user, int64_t n)
{
    run *r = open_run(user, NULL);
    nrl_run_event e = {.size = sizeof e};
    bool done;
    mem_try_fail_after(n);
    nrl_status st = nrl_run_step(r, &e, &done);
    mem_try_fail_after(-1);
    nrl_run_close(r);
    return st;
}

static void without_memory_a_file_and_a_step_are_errors(void **state)
{
    (void)state;
    char name[] = "starved";
    run *r = open_run(name, "algorithm.reference=none");
    assert_true(test_out_of_memory(compute_starved, r, 24) > 8);
    only_file(name);
    nrl_run_close(r);
    assert_true(test_out_of_memory(step_starved, name, 24) > 2);
}

static int setup(void **state)
{
    (void)state;
    test_place_make(&place);
    pairs = test_pairs(&place, "train.jsonl", PAIRS, 30, 96, 5);
    model_dir = test_source(&place, "tests/data/models/llama");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_place_remove(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_finds_its_value_in_any_packing),
        cmocka_unit_test(a_file_that_is_there_is_not_computed_again),
        cmocka_unit_test(a_second_run_uses_the_file_of_the_first),
        cmocka_unit_test(what_the_numbers_depend_on_names_the_file),
        cmocka_unit_test(a_damaged_file_is_said_and_computed_again),
        cmocka_unit_test(a_whole_file_of_other_numbers_stops_at_the_first_loss),
        cmocka_unit_test(a_folder_that_cannot_be_written_is_an_error),
        cmocka_unit_test(without_memory_a_file_and_a_step_are_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
