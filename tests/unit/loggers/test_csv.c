/*
 * test_csv.c - metrics.csv: one table, whatever names appear and when, also after a resume.
 */
#include "base/file.h"
#include "support.h"
#include <sys/stat.h>

static char out[] = "/tmp/nrl-csv-XXXXXX";

static test_logger open_at(int64_t resumed)
{
    test_logger l;
    nrl_logger_run run = {.size = sizeof run, .out = out, .name = "test", .resumed_step = resumed, .total_steps = 10};
    assert_int_equal(test_logger_open(&l, "csv", "", &run), NRL_OK);
    return l;
}

static void write_record(test_logger *l, uint32_t kind, int64_t step, const nrl_value *values, size_t n)
{
    nrl_record r = {.size = sizeof r, .kind = kind, .step = step, .time = 1.5, .values = values, .n_values = n};
    assert_int_equal(l->table->write(l->self, &r), NRL_OK);
}

static void expect(const char *text)
{
    char path[64], *found;
    size_t size;
    snprintf(path, sizeof path, "%s/metrics.csv", out);
    assert_int_equal(file_read(path, 1 << 20, &found, &size), NRL_OK);
    assert_string_equal(found, text);
    free(found);
}

static void a_new_name_becomes_a_column_of_the_whole_table(void **state)
{
    (void)state;
    test_logger l = open_at(0);
    nrl_value loss[] = {{"loss", "nats", 0.1}, {"lr", "1", NAN}, {"loss", "nats", 7}};
    nrl_value eval[] = {{"eval_loss", "nats", INFINITY}, {"a \"b\",\nc", "", -2}};
    write_record(&l, NRL_RECORD_TRAIN, 1, loss, 3);
    write_record(&l, NRL_RECORD_TRAIN, 2, loss, 1);
    expect("step,time,record,loss,lr\n1,1.5,train,0.1,NaN\n2,1.5,train,0.1,\n");
    write_record(&l, NRL_RECORD_EVAL, 2, eval, 2);
    write_record(&l, NRL_RECORD_TRAIN, 3, loss, 2);
    expect("step,time,record,loss,lr,eval_loss,\"a \"\"b\"\", c\"\n"
           "1,1.5,train,0.1,NaN,,\n2,1.5,train,0.1,,,\n2,1.5,eval,,,Infinity,-2\n3,1.5,train,0.1,NaN,,\n");
    test_logger_close(&l);
}

static void a_resume_keeps_the_columns_and_removes_later_rows(void **state)
{
    (void)state;
    test_logger l = open_at(2);
    nrl_value late[] = {{"a \"b\",\nc", "", 5}, {"mfu", "1", 0.5}};
    expect("step,time,record,loss,lr,eval_loss,\"a \"\"b\"\", c\"\n"
           "1,1.5,train,0.1,NaN,,\n2,1.5,train,0.1,,,\n2,1.5,eval,,,Infinity,-2\n");
    write_record(&l, NRL_RECORD_TRAIN, 3, late, 2);
    expect("step,time,record,loss,lr,eval_loss,\"a \"\"b\"\", c\",mfu\n"
           "1,1.5,train,0.1,NaN,,,\n2,1.5,train,0.1,,,,\n2,1.5,eval,,,Infinity,-2,\n3,1.5,train,,,,5,0.5\n");
    test_logger_close(&l);
    l = open_at(0);
    write_record(&l, NRL_RECORD_END, 4, late + 1, 1);
    expect("step,time,record,mfu\n4,1.5,end,0.5\n");
    test_logger_close(&l);
}

static void a_file_that_is_removed_is_begun_again(void **state)
{
    char path[64];
    (void)state;
    test_logger l = open_at(0);
    nrl_value loss = {"loss", "nats", 1};
    write_record(&l, NRL_RECORD_TRAIN, 1, &loss, 1);
    snprintf(path, sizeof path, "%s/metrics.csv", out);
    unlink(path);
    write_record(&l, NRL_RECORD_TRAIN, 2, &loss, 1);
    expect("step,time,record,loss\n2,1.5,train,1\n");
    test_logger_close(&l);
}

static int remove_out(void **state)
{
    char path[64];
    (void)state;
    snprintf(path, sizeof path, "%s/metrics.csv", out);
    unlink(path);
    return rmdir(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_name_becomes_a_column_of_the_whole_table),
        cmocka_unit_test(a_resume_keeps_the_columns_and_removes_later_rows),
        cmocka_unit_test(a_file_that_is_removed_is_begun_again),
    };
    if (!mkdtemp(out)) return 1;
    return cmocka_run_group_tests(tests, NULL, remove_out);
}
