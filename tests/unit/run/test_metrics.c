/*
 * test_metrics.c - metrics of plugins without a run: tables that are refused, how values of
 * ranks are combined, and the content of a record.
 */
#include "run/walk/metrics.h"
#include <math.h>
#include <nrl/status.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const nrl_metric rows[] = {{.name = "chosen", .unit = "nats", .reduce = NRL_REDUCE_MEAN},
                                  {.name = "rejected", .unit = "nats", .reduce = NRL_REDUCE_MEAN},
                                  {.name = "margin", .unit = "nats", .reduce = NRL_REDUCE_DIFFERENCE},
                                  {.name = "longest", .unit = "tokens", .reduce = NRL_REDUCE_MAX},
                                  {.name = "shortest", .unit = "tokens", .reduce = NRL_REDUCE_MIN},
                                  {.name = "seen", .unit = "1", .reduce = NRL_REDUCE_SUM},
                                  {0}};
static const nrl_algorithm algorithm = {.plugin = {.kind = NRL_KIND_ALGORITHM, .name = "a"}, .metrics = rows};
static const nrl_plugin logger = {.kind = NRL_KIND_LOGGER, .name = "l"};

static nrl_status declare(metric_rows *all, const nrl_algorithm *of, nrl_status mistake, arena *a)
{
    *all = (metric_rows){0};
    nrl_status st = metrics_declare(all, &of->plugin, of->metrics, mistake, a);
    all->n_algorithm = all->n;
    return st;
}

static void add(metric_set *m, uint32_t i, double value, double weight)
{
    metric_add(&m->list[i], rows[i].reduce, value, weight);
}

static void each_row_is_reduced_as_it_says(void **state)
{
    arena a = {0};
    metric_set m;
    value_list v;
    metric_rows all;
    (void)state;
    assert_int_equal(declare(&all, &algorithm, NRL_ERR_PLUGIN, &a), NRL_OK);
    assert_int_equal(all.n, 6);
    metrics_open(&m, &all, 1, &a);
    values_open(&v, all.n, &a);
    add(&m, 0, 6, 2); /* sums of values, and their weights */
    add(&m, 0, 6, 1);
    add(&m, 1, 3, 3);
    add(&m, 3, 5, 1);
    add(&m, 3, 9, 1);
    add(&m, 3, 7, 1);
    add(&m, 4, 5, 1);
    add(&m, 4, 3, 1);
    add(&m, 5, 2, 1);
    add(&m, 5, 2, 1);
    values_add(&v, "loss", "nats", 1);
    values_add_metrics(&v, &m, "eval_", &a);
    static const struct {
        const char *name;
        double value;
    } want[] = {{"loss", 1},         {"eval_chosen", 4},   {"eval_rejected", 1}, {"eval_margin", 3},
                {"eval_longest", 9}, {"eval_shortest", 3}, {"eval_seen", 4}};
    assert_int_equal(v.n, sizeof want / sizeof *want);
    for (size_t i = 0; i < v.n; i++) {
        assert_string_equal(v.list[i].name, want[i].name);
        assert_true(v.list[i].value == want[i].value);
    }
    arena_free(&a);
}

static void what_nobody_reported_is_not_in_the_record(void **state)
{
    arena a = {0};
    metric_set m;
    value_list v;
    metric_rows all;
    (void)state;
    assert_int_equal(declare(&all, &algorithm, NRL_ERR_PLUGIN, &a), NRL_OK);
    metrics_open(&m, &all, 1, &a);
    values_open(&v, 6, &a);
    add(&m, 0, 6, 2);
    add(&m, 5, 1, 1);
    values_add_metrics(&v, &m, "", NULL); /* a margin needs both sides */
    assert_int_equal(v.n, 2);
    assert_string_equal(v.list[0].name, "chosen");
    assert_string_equal(v.list[1].name, "seen");
    metrics_begin(&m);
    v.n = 0;
    values_add_metrics(&v, &m, "", NULL);
    assert_int_equal(v.n, 0);
    arena_free(&a);
}

static void names_that_records_have_already_are_refused(void **state)
{
    static const nrl_metric taken[] = {{.name = "lr", .reduce = NRL_REDUCE_MEAN}, {0}};
    static const nrl_metric twice[] = {
        {.name = "m", .reduce = NRL_REDUCE_MEAN}, {.name = "m", .reduce = NRL_REDUCE_SUM}, {0}};
    nrl_algorithm of = algorithm;
    metric_rows all;
    arena a = {0};
    (void)state;
    of.metrics = taken;
    assert_int_equal(declare(&all, &of, NRL_ERR_PLUGIN, &a), NRL_ERR_PLUGIN);
    assert_non_null(strstr(nrl_error_text(), "algorithm 'a': metric 'lr'"));
    assert_int_equal(declare(&all, &of, NRL_ERR_CONFIG, &a), NRL_ERR_CONFIG); /* the user wrote a script's */
    of.metrics = twice;
    assert_int_equal(declare(&all, &of, NRL_ERR_PLUGIN, &a), NRL_ERR_PLUGIN);
    of.metrics = NULL;
    assert_int_equal(declare(&all, &of, NRL_ERR_PLUGIN, &a), NRL_OK);
    assert_int_equal(all.n, 0);
    assert_int_equal(declare(&all, &algorithm, NRL_ERR_PLUGIN, &a), NRL_OK);
    assert_int_equal(metrics_declare(&all, &logger, rows, NRL_ERR_PLUGIN, &a), NRL_ERR_PLUGIN);
    assert_string_equal(nrl_error_text(),
                        "logger 'l': metric 'chosen' is declared twice, also by another plugin of this run");
    arena_free(&a);
}

/* A logger or a reader of data has no context. */
static void values_outside_a_step_belong_to_the_next_one(void **state)
{
    static const nrl_metric dropped[] = {{"dropped", "records", NRL_REDUCE_SUM, NRL_BETTER_SMALLER}, {0}};
    arena a = {0};
    metric_rows all;
    metric_set m;
    (void)state;
    assert_int_equal(declare(&all, &algorithm, NRL_ERR_PLUGIN, &a), NRL_OK);
    assert_int_equal(metrics_declare(&all, &logger, dropped, NRL_ERR_PLUGIN, &a), NRL_OK);
    assert_false(all.list[6].of_batch); /* each rank reports its own */
    metrics_open(&m, &all, 1, &a);
    assert_int_equal(nrl_metric_report_f64(dropped, 1, 1), NRL_ERR_PLUGIN);
    metrics_listen(&m);
    assert_int_equal(nrl_metric_report_f64(dropped, 1, 1), NRL_OK);
    assert_int_equal(nrl_metric_report_f64(dropped, 2, 1), NRL_OK);
    assert_false(m.list[6].any);
    metrics_begin(&m);
    assert_true(m.list[6].value == 3);
    metrics_begin(&m);
    assert_false(m.list[6].any);
    metrics_close(&m);
    arena_free(&a);
}

/* Sums over the shards of all ranks have one order. */
static void values_of_a_shard_stay_in_it_until_all_are_added(void **state)
{
    static const nrl_metric rewards[] = {{"reward", "1", NRL_REDUCE_SUM, NRL_BETTER_LARGER}, {0}};
    arena a = {0};
    metric_rows all = {0};
    metric_set m;
    (void)state;
    assert_int_equal(metrics_declare(&all, &logger, rewards, NRL_ERR_PLUGIN, &a), NRL_OK);
    metrics_open(&m, &all, 2, &a);
    metrics_listen(&m);
    assert_int_equal(nrl_metric_report_f64(rewards, 1, 1), NRL_OK);
    metrics_report_to(1);
    assert_int_equal(nrl_metric_report_f64(rewards, 2, 1), NRL_OK);
    assert_int_equal(nrl_metric_report_f64(rewards, 3, 1), NRL_OK);
    metrics_report_to(0);
    metrics_begin(&m);
    assert_true(m.list[0].value == 1);
    assert_true(m.list[1].value == 5);
    metrics_begin(&m);
    assert_false(m.list[0].any || m.list[1].any);
    metrics_close(&m);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_is_reduced_as_it_says),
        cmocka_unit_test(what_nobody_reported_is_not_in_the_record),
        cmocka_unit_test(values_outside_a_step_belong_to_the_next_one),
        cmocka_unit_test(values_of_a_shard_stay_in_it_until_all_are_added),
        cmocka_unit_test(names_that_records_have_already_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
