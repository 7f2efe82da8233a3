/*
 * test_console.c - the line of a step on a terminal and in a pipe.
 */
#include "support.h"

static FILE *capture;
static int old_stdout;

static void capture_begin(void)
{
    fflush(stdout);
    old_stdout = dup(1);
    capture = tmpfile();
    dup2(fileno(capture), 1);
}

/* What was printed since, malloc'd. */
static char *capture_end(void)
{
    fflush(stdout);
    dup2(old_stdout, 1);
    close(old_stdout);
    long size = (fseek(capture, 0, SEEK_END), ftell(capture));
    char *text = mem_alloc((size_t)size + 1);
    rewind(capture);
    assert_int_equal(fread(text, 1, (size_t)size, capture), size);
    fclose(capture);
    return text;
}

static const nrl_value typical[] = {
    {"loss", "nats", 1.23449},
    {"grad_norm", "1", 0.87},
    {"lr", "1", 4.9e-6},
    {"epoch", "1", 0.3},
    {"tokens", "tokens", 123456},
    {"tokens_per_s", "tok/s", 8412},
    {"mfu", "1", 0.412},
    {"mem_bytes", "bytes", 3.1 * 1073741824},
    {"mem_total_bytes", "bytes", 24.0 * 1073741824},
    {"data_fraction", "1", 0.004},
    {"comm_fraction", "1", 0.031},
};
enum { N_TYPICAL = sizeof typical / sizeof *typical };

static char *print(const char *options, bool terminal, bool color, const nrl_record *records, size_t n)
{
    test_logger l;
    nrl_logger_run run = {.size = sizeof run, .out = "/tmp", .total_steps = 1000, .terminal = terminal, .color = color};
    assert_int_equal(test_logger_open(&l, "console", options, &run), NRL_OK);
    capture_begin();
    for (size_t i = 0; i < n; i++)
        assert_int_equal(l.table->write(l.self, &records[i]), NRL_OK);
    test_logger_close(&l);
    return capture_end();
}

static nrl_record train(int64_t step, const nrl_value *values, size_t n)
{
    return (nrl_record){.size = sizeof(nrl_record),
                        .kind = NRL_RECORD_TRAIN,
                        .step = step,
                        .total_steps = 1000,
                        .eta_seconds = 760,
                        .values = values,
                        .n_values = n};
}

static void squeeze(char *text)
{
    char *to = text;
    for (char *from = text; *from; from++)
        if (*from != ' ' || from == text || from[-1] != ' ') *to++ = *from;
    *to = 0;
}

static void a_piped_step_is_one_plain_line(void **state)
{
    (void)state;
    nrl_record r = train(120, typical, N_TYPICAL);
    char *text = print("", false, false, &r, 1);
    squeeze(text);
    assert_string_equal(text, "step 120/1000 loss 1.2345 grad_norm 0.87 lr 4.9e-06 8,412 tok/s MFU 41.2% "
                              "mem 3.1/24.0 GiB data 0.4% comm 3.1% eta 12m40s\n");
    free(text);
}

static void columns_align_from_step_to_step(void **state)
{
    (void)state;
    nrl_value first[] = {{"loss", "", 11.5}, {"grad_norm", "", 123}, {"lr", "", 0}, {"tokens_per_s", "", 99}};
    nrl_value later[] = {{"loss", "", 1.5}, {"grad_norm", "", 0.01}, {"lr", "", 1e-4}, {"tokens_per_s", "", 123456}};
    first[0].value = 9.5;
    nrl_record records[] = {train(1, first, 4), train(1000, later, 4)};
    char *text = print("", false, false, records, 2);
    char *second = strchr(text, '\n') + 1;
    assert_int_equal(strstr(text, "loss") - text, strstr(second, "loss") - second);
    assert_int_equal(strstr(text, " tok/s") - text, strstr(second, " tok/s") - second);
    free(text);
}

static void memory_beside_a_small_limit_is_in_its_unit(void **state)
{
    (void)state;
    nrl_value values[] = {{"mem_bytes", "bytes", 37 << 20}, {"mem_total_bytes", "bytes", 14 << 20}};
    nrl_record r = train(1, values, 2);
    char *text = print("", false, false, &r, 1);
    squeeze(text);
    assert_non_null(strstr(text, " mem 37/14 MiB"));
    free(text);
}

static void metrics_of_the_algorithm_follow(void **state)
{
    (void)state;
    nrl_value values[] = {{"loss", "", 0.5}, {"rewards/chosen", "", 0.125}, {"odd\033[2J", "", NAN}};
    nrl_record r = train(1, values, 3);
    char *text = print("", false, false, &r, 1);
    assert_non_null(strstr(text, "  rewards/chosen 0.1250  odd?[2J nan"));
    assert_null(strchr(text, '\033'));
    free(text);
}

static void evaluations_have_their_own_line(void **state)
{
    (void)state;
    nrl_value values[] = {{"eval_loss", "", 1.25}, {"eval_tokens", "tokens", 814}};
    nrl_record r = train(100, values, 2);
    r.kind = NRL_RECORD_EVAL;
    char *text = print("every: 1000", false, false, &r, 1);
    assert_string_equal(text, "step  100/1000  eval_loss 1.2500  eval_tokens 814\n");
    free(text);
}

static void every_leaves_out_steps_but_not_the_last(void **state)
{
    (void)state;
    nrl_record records[] = {train(1, typical, 1), train(400, typical, 1), train(1000, typical, 1)};
    char *text = print("every: 300", false, false, records, 3);
    assert_null(strstr(text, "step    1/"));
    assert_null(strstr(text, "step  400/"));
    assert_non_null(strstr(text, "step 1000/"));
    free(text);
}

static void a_terminal_has_a_bar_that_goes_away(void **state)
{
    (void)state;
    nrl_record records[] = {train(500, typical, 1), train(1000, typical, 1)};
    char *text = print("", true, false, records, 2);
    assert_non_null(strstr(text, "[###############---------------]  50%  step  500/1000  eta 12m40s\r\033[K"));
    assert_null(strstr(text, "100%"));
    assert_null(strstr(text, "\033[2m")); /* no colours unless asked for */
    free(text);
    text = print("progress: false", true, false, records, 2);
    assert_null(strchr(text, '['));
    free(text);
}

static void colours_mark_labels_and_alarms(void **state)
{
    (void)state;
    nrl_value values[] = {{"loss", "", NAN}};
    nrl_record r = train(1, values, 1);
    char *text = print("", false, true, &r, 1);
    assert_non_null(strstr(text, "\033[2mloss\033[22m"));
    assert_non_null(strstr(text, "\033[31m"));
    free(text);
}

static void odd_records_print_something(void **state)
{
    (void)state;
    nrl_value odd[] = {{"loss", "", INFINITY}, {"tokens_per_s", "", NAN}, {"mem_bytes", "", 1e300},
                       {"mfu", "", -1e300},    {"lr", "", -INFINITY},     {NULL, NULL, 0}};
    nrl_record records[] = {train(1, odd, 6), train(0, NULL, 0), train(-5, odd, 1), train(5000, odd, 1)};
    records[1].total_steps = 0;
    records[2].eta_seconds = INFINITY;
    records[3].eta_seconds = 1e300;
    char *text = print("", true, true, records, 4);
    assert_non_null(strstr(text, "inf"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piped_step_is_one_plain_line),
        cmocka_unit_test(columns_align_from_step_to_step),
        cmocka_unit_test(memory_beside_a_small_limit_is_in_its_unit),
        cmocka_unit_test(metrics_of_the_algorithm_follow),
        cmocka_unit_test(evaluations_have_their_own_line),
        cmocka_unit_test(every_leaves_out_steps_but_not_the_last),
        cmocka_unit_test(a_terminal_has_a_bar_that_goes_away),
        cmocka_unit_test(colours_mark_labels_and_alarms),
        cmocka_unit_test(odd_records_print_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
