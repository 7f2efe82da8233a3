/*
 * test_jsonl.c - metrics.jsonl: any JSON reader can read it, and it survives a resume.
 */
#include "base/file.h"
#include "support.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char out[] = "/tmp/nrl-jsonl-XXXXXX";

static nrl_logger_run run_of(int64_t resumed)
{
    return (nrl_logger_run){
        .size = sizeof(nrl_logger_run), .out = out, .name = "test", .resumed_step = resumed, .total_steps = 10};
}

static test_logger open_at(int64_t resumed)
{
    test_logger l;
    nrl_logger_run run = run_of(resumed);
    assert_int_equal(test_logger_open(&l, "jsonl", "", &run), NRL_OK);
    return l;
}

static void write_values(test_logger *l, int64_t step, const nrl_value *values, size_t n)
{
    nrl_record r = {.size = sizeof r,
                    .kind = NRL_RECORD_TRAIN,
                    .step = step,
                    .total_steps = 10,
                    .time = 1700000000.25,
                    .eta_seconds = -1,
                    .values = values,
                    .n_values = n};
    assert_int_equal(l->table->write(l->self, &r), NRL_OK);
}

static void write_steps(test_logger *l, int64_t first, int64_t last)
{
    nrl_value loss = {"loss", "nats", 0.1};
    for (int64_t s = first; s <= last; s++)
        write_values(l, s, &loss, 1);
}

static char *file_path(void)
{
    return mem_printf("%s/metrics.jsonl", out);
}

static char *contents(void)
{
    char *text, *path = file_path();
    size_t size;
    assert_int_equal(file_read(path, 1 << 20, &text, &size), NRL_OK);
    free(path);
    return text;
}

/* Every line parsed; *n lines. */
static const nrl_node **lines(arena *a, size_t *n)
{
    static const nrl_node *list[64];
    char *text = contents();
    *n = 0;
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1)
        assert_int_equal(json_parse(a, "line", at, (size_t)(end - at), (nrl_node **)&list[(*n)++]), NRL_OK);
    free(text);
    return list;
}

static void a_record_is_one_flat_object_with_all_its_digits(void **state)
{
    static const nrl_value values[] = {
        {"loss", "nats", 0.1}, {"lr", "1", 5e-6},  {"tokens", "tokens", 8412},          {"x", "", 1.0 / 3},
        {"tiny", "", 5e-324},  {"zero", "", -0.0}, {"big", "", 1.7976931348623157e308},
    };
    arena a = {0};
    size_t n;
    (void)state;
    test_logger l = open_at(0);
    write_values(&l, 3, values, 7);
    test_logger_close(&l);
    const nrl_node *record = lines(&a, &n)[0];
    assert_int_equal(n, 1);
    assert_int_equal(nrl_node_size(record), 9);
    assert_int_equal(nrl_node_int(nrl_node_find(record, "step"), 0), 3);
    assert_true(nrl_node_f64(nrl_node_find(record, "time"), 0) == 1700000000.25);
    for (size_t i = 0; i < 7; i++)
        assert_true(nrl_node_f64(nrl_node_find(record, values[i].name), 7) == values[i].value);
    char *text = contents();
    assert_non_null(strstr(text, "\"loss\": 0.1,")); /* no digit more than needed */
    assert_non_null(strstr(text, "\"tokens\": 8412,"));
    free(text);
    arena_free(&a);
}

static void values_that_are_not_finite_are_words(void **state)
{
    const nrl_value values[] = {{"a", "", NAN}, {"b", "", INFINITY}, {"c", "", -INFINITY}};
    arena a = {0};
    size_t n;
    (void)state;
    test_logger l = open_at(0);
    write_values(&l, 1, values, 3);
    test_logger_close(&l);
    const nrl_node *record = lines(&a, &n)[0];
    assert_string_equal(nrl_node_string(nrl_node_find(record, "a"), ""), "NaN");
    assert_string_equal(nrl_node_string(nrl_node_find(record, "b"), ""), "Infinity");
    assert_string_equal(nrl_node_string(nrl_node_find(record, "c"), ""), "-Infinity");
    arena_free(&a);
}

static void odd_names_stay_json(void **state)
{
    const nrl_value values[] = {{"a\"b\\c\n", "", 1}, {"loss", "", 2}, {"loss", "", 3},
                                {"step", "", 4},      {NULL, "", 5},   {"", NULL, 6}};
    arena a = {0};
    size_t n;
    (void)state;
    test_logger l = open_at(0);
    write_values(&l, 1, values, 6);
    write_values(&l, 2, NULL, 0);
    test_logger_close(&l);
    const nrl_node *record = lines(&a, &n)[0];
    assert_int_equal(n, 2);
    assert_int_equal(nrl_node_int(nrl_node_find(record, "a\"b\\c\n"), 0), 1);
    assert_int_equal(nrl_node_int(nrl_node_find(record, "loss"), 0), 2);
    assert_int_equal(nrl_node_int(nrl_node_find(record, "step"), 0), 1);
    arena_free(&a);
}

static void a_resume_cuts_later_records_and_a_torn_line(void **state)
{
    arena a = {0};
    size_t n;
    (void)state;
    test_logger l = open_at(0);
    write_steps(&l, 1, 7);
    test_logger_close(&l);
    char *path = file_path();
    FILE *f = fopen(path, "a");
    fputs("{\"step\": 2, \"time\": 17", f); /* a crash in the middle of a line */
    fclose(f);
    l = open_at(4);
    write_steps(&l, 5, 6);
    test_logger_close(&l);
    const nrl_node **records = lines(&a, &n);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(nrl_node_int(nrl_node_find(records[i], "step"), 0), i + 1);
    free(path);
    arena_free(&a);
}

static void a_fresh_run_starts_an_empty_file(void **state)
{
    arena a = {0};
    size_t n;
    (void)state;
    test_logger l = open_at(0);
    write_steps(&l, 1, 3);
    test_logger_close(&l);
    l = open_at(0);
    write_steps(&l, 1, 1);
    test_logger_close(&l);
    lines(&a, &n);
    assert_int_equal(n, 1);
    arena_free(&a);
}

static void a_resume_without_a_file_is_fine(void **state)
{
    char *path = file_path();
    (void)state;
    unlink(path);
    test_logger l = open_at(4);
    test_logger_close(&l);
    free(path);
}

static void two_of_them_may_live_side_by_side(void **state)
{
    test_logger other, l = open_at(0);
    nrl_logger_run run = run_of(0);
    (void)state;
    assert_int_equal(test_logger_open(&other, "jsonl", "file: other.jsonl", &run), NRL_OK);
    write_steps(&l, 1, 2);
    write_steps(&other, 1, 1);
    test_logger_close(&other);
    write_steps(&l, 3, 3);
    test_logger_close(&l);
    arena a = {0};
    size_t n;
    lines(&a, &n);
    assert_int_equal(n, 3);
    arena_free(&a);
}

static void a_file_outside_the_folder_is_refused(void **state)
{
    test_logger l;
    nrl_logger_run run = run_of(0);
    (void)state;
    assert_int_equal(test_logger_open(&l, "jsonl", "file: ../x.jsonl", &run), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "plain file name"));
    test_logger_close(&l);
}

static void a_missing_folder_is_a_status(void **state)
{
    test_logger l;
    nrl_logger_run run = run_of(0);
    (void)state;
    run.out = "/nowhere/at/all";
    assert_int_equal(test_logger_open(&l, "jsonl", "", &run), NRL_ERR_IO);
    assert_non_null(strstr(nrl_error_text(), "/nowhere/at/all/metrics.jsonl"));
    test_logger_close(&l);
}

/* The child's disk is full for one record; `code` 0: it got that far. */
static void full_for_one_record(void)
{
    struct rlimit limit = {100, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN); /* as the program does */
    test_logger l = open_at(0);
    write_steps(&l, 1, 1);
    setrlimit(RLIMIT_FSIZE, &limit);
    nrl_value loss = {"a value with a long name", "", 0.1};
    nrl_record r = {.size = sizeof r, .step = 2, .values = &loss, .n_values = 1};
    nrl_status st = l.table->write(l.self, &r);
    setrlimit(RLIMIT_FSIZE, &none);
    write_steps(&l, 3, 3);
    _exit(st == NRL_ERR_FULL ? 0 : 1);
}

static void a_full_disk_leaves_whole_lines_and_passes(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) full_for_one_record();
    int status;
    arena a = {0};
    size_t n;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    lines(&a, &n);
    assert_int_equal(n, 2);
    char *text = contents();
    assert_int_equal(text[strlen(text) - 1], '\n');
    assert_non_null(strstr(text, "{\"step\": 3"));
    free(text);
    arena_free(&a);
}

static void a_file_that_was_removed_is_begun_anew(void **state)
{
    (void)state;
    char *path = file_path();
    arena a = {0};
    size_t n;
    test_logger l = open_at(0);
    write_steps(&l, 1, 2);
    assert_int_equal(unlink(path), 0);
    write_steps(&l, 3, 4);
    lines(&a, &n);
    assert_int_equal(n, 2);
    test_logger_close(&l);
    free(path);
    arena_free(&a);
}

static nrl_status refuse_after_two(void *user, const char *name)
{
    int *n = user;
    assert_string_equal(name, "metrics.jsonl");
    return ++*n <= 2 ? NRL_OK : nrl_fail(NRL_ERR_IO, "out is another folder now");
}

static void a_folder_that_is_the_runs_no_more_is_not_written_to(void **state)
{
    (void)state;
    int n = 0;
    char *path = file_path();
    test_logger l;
    nrl_logger_run run = run_of(0);
    run.claim = refuse_after_two;
    run.claim_user = &n;
    assert_int_equal(test_logger_open(&l, "jsonl", "", &run), NRL_OK);
    write_steps(&l, 1, 1);
    unlink(path);
    write_steps(&l, 2, 2); /* asked a second time */
    unlink(path);
    nrl_record r = {.size = sizeof r, .step = 3};
    assert_int_equal(l.table->write(l.self, &r), NRL_ERR_IO);
    assert_int_not_equal(access(path, F_OK), 0);
    test_logger_close(&l);
    n = 2;
    assert_int_equal(test_logger_open(&l, "jsonl", "", &run), NRL_ERR_IO);
    l.self = NULL;
    test_logger_close(&l);
    assert_int_not_equal(access(path, F_OK), 0);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_one_flat_object_with_all_its_digits),
        cmocka_unit_test(values_that_are_not_finite_are_words),
        cmocka_unit_test(odd_names_stay_json),
        cmocka_unit_test(a_resume_cuts_later_records_and_a_torn_line),
        cmocka_unit_test(a_fresh_run_starts_an_empty_file),
        cmocka_unit_test(a_resume_without_a_file_is_fine),
        cmocka_unit_test(two_of_them_may_live_side_by_side),
        cmocka_unit_test(a_file_outside_the_folder_is_refused),
        cmocka_unit_test(a_missing_folder_is_a_status),
        cmocka_unit_test(a_full_disk_leaves_whole_lines_and_passes),
        cmocka_unit_test(a_file_that_was_removed_is_begun_anew),
        cmocka_unit_test(a_folder_that_is_the_runs_no_more_is_not_written_to),
    };
    if (!mkdtemp(out)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", out);
    return system(command) || failed;
}
