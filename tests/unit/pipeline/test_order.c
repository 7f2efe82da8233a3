/*
 * test_order.c - the order of actions of stages, and the units of each stage. Orders are executed:
 * a stage waits for its inputs, its outputs are available at once, and each pass takes one unit of
 * time.
 */
#include "pipeline.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_STAGES = 8, MOST_MICRO = 16 };

typedef struct {
    int32_t p, m;
    pipeline_turn turns[MOST_STAGES][2 * MOST_MICRO];
    int32_t next[MOST_STAGES];                /* turn of each stage */
    int32_t free_at[MOST_STAGES];             /* time */
    int32_t done[2][MOST_STAGES][MOST_MICRO]; /* time at which a pass ended; 0: not yet */
    int32_t in_flight[MOST_STAGES], most[MOST_STAGES];
} machine;

static void load(machine *x, int64_t schedule, int32_t p, int32_t m)
{
    *x = (machine){.p = p, .m = m};
    for (int32_t s = 0; s < p; s++)
        pipeline_order(schedule, p, s, m, x->turns[s]);
}

/* The time at which what a turn reads is there; -1: not yet. */
static int32_t ready(const machine *x, int32_t s, pipeline_turn t)
{
    int32_t own = x->done[0][s][t.micro_batch], from = 0;
    if (t.backward && !own) return -1; /* its own forward, and what the stage behind it gave */
    if (!t.backward && s > 0) from = x->done[0][s - 1][t.micro_batch];
    if (t.backward && s < x->p - 1) from = x->done[1][s + 1][t.micro_batch];
    bool waits = t.backward ? s < x->p - 1 : s > 0;
    if (waits && !from) return -1;
    return from > own && t.backward ? from : t.backward ? own : from;
}

static bool advance(machine *x, int32_t s)
{
    pipeline_turn t = x->turns[s][x->next[s]];
    int32_t from = ready(x, s, t);
    if (from < 0) return false;
    if (x->free_at[s] > from) from = x->free_at[s];
    x->free_at[s] = x->done[t.backward][s][t.micro_batch] = from + 1;
    x->in_flight[s] += t.backward ? -1 : 1;
    if (x->in_flight[s] > x->most[s]) x->most[s] = x->in_flight[s];
    x->next[s]++;
    return true;
}

/* The time at which the last stage ended; -1: they wait for each other for ever. */
static int32_t execute(machine *x)
{
    bool moved = true;
    int32_t end = 0;
    while (moved) {
        moved = false;
        for (int32_t s = 0; s < x->p; s++)
            while (x->next[s] < 2 * x->m && advance(x, s))
                moved = true;
    }
    for (int32_t s = 0; s < x->p; s++) {
        if (x->next[s] < 2 * x->m) return -1;
        if (x->free_at[s] > end) end = x->free_at[s];
    }
    return end;
}

/* Micro-batches pass between neighbours in one order: 0, 1, 2 .. */
static void check_order(const machine *x, int32_t s)
{
    int32_t n[2] = {0, 0};
    for (int32_t i = 0; i < 2 * x->m; i++) {
        pipeline_turn t = x->turns[s][i];
        assert_int_equal(t.micro_batch, n[t.backward]++);
        assert_true(!t.backward || n[1] <= n[0]);
        if (s == x->p - 1) assert_int_equal(t.backward, i % 2);
    }
    assert_int_equal(n[0], x->m);
    assert_int_equal(n[1], x->m);
}

static void for_all(void (*check)(machine *x, int64_t schedule))
{
    machine *x = malloc(sizeof *x);
    for (int64_t schedule = PIPELINE_1F1B; schedule <= PIPELINE_GPIPE; schedule++)
        for (int32_t p = 1; p <= MOST_STAGES; p++)
            for (int32_t m = 1; m <= MOST_MICRO; m++) {
                load(x, schedule, p, m);
                check(x, schedule);
            }
    free(x);
}

static void check_passes(machine *x, int64_t schedule)
{
    (void)schedule;
    for (int32_t s = 0; s < x->p; s++)
        check_order(x, s);
}

static void each_backward_follows_its_forward_and_neighbours_agree_on_the_order(void **state)
{
    (void)state;
    for_all(check_passes);
}

static void check_end(machine *x, int64_t schedule)
{
    (void)schedule;
    assert_int_equal(execute(x), 2 * (x->m + x->p - 1));
}

static void no_stage_waits_for_ever_and_the_bubble_is_p_minus_1_of_m(void **state)
{
    (void)state;
    for_all(check_end);
}

static void check_flight(machine *x, int64_t schedule)
{
    execute(x);
    for (int32_t s = 0; s < x->p; s++) {
        int32_t all = schedule == PIPELINE_GPIPE && s < x->p - 1 ? x->m : x->p - s;
        assert_int_equal(x->most[s], all < x->m ? all : x->m);
    }
}

static void stage_s_of_1f1b_holds_p_minus_s_micro_batches(void **state)
{
    (void)state;
    for_all(check_flight);
}

static void an_order_that_cannot_go_on_is_seen(void **state)
{
    (void)state;
    machine x;
    load(&x, PIPELINE_1F1B, 3, 4);
    memcpy(x.turns[0], x.turns[2], sizeof x.turns[0]); /* it goes back at once, the next one wants two first */
    assert_int_equal(execute(&x), -1);
    load(&x, PIPELINE_1F1B, 3, 4);
    pipeline_turn swapped = x.turns[1][0];
    x.turns[1][0] = x.turns[1][2];
    x.turns[1][2] = swapped; /* a backward first */
    assert_int_equal(execute(&x), -1);
}

/* ---- units to stages ---- */

static double dearest(const double *costs, int32_t n, const int32_t *stages)
{
    double sums[MOST_STAGES] = {0}, most = 0;
    for (int32_t u = 0; u < n; u++)
        sums[stages[u]] += costs[u];
    for (int32_t s = 0; s < MOST_STAGES; s++)
        if (sums[s] > most) most = sums[s];
    return most;
}

/* The least that can be, by trying every way: stages [begin, p) over units [u, n). */
static double least(const double *costs, int32_t n, int32_t u, int32_t left)
{
    double sum = 0, best = 1e300;
    if (left == 1) {
        for (int32_t i = u; i < n; i++)
            sum += costs[i];
        return sum;
    }
    for (int32_t end = u + 1; end <= n - left + 1; end++) {
        sum += costs[end - 1];
        double rest = least(costs, n, end, left - 1), most = sum > rest ? sum : rest;
        if (most < best) best = most;
    }
    return best;
}

static void the_dearest_stage_costs_as_little_as_can_be(void **state)
{
    (void)state;
    const double costs[] = {0, 3, 3, 4, 3, 1, 3, 3, 9};
    int32_t stages[9];
    for (int32_t n = 1; n <= 9; n++)
        for (int32_t p = 1; p <= n && p <= MOST_STAGES; p++) {
            pipeline_balance(costs, n, p, stages);
            assert_int_equal(stages[0], 0);
            assert_int_equal(stages[n - 1], p - 1);
            for (int32_t u = 1; u < n; u++)
                assert_in_range(stages[u] - stages[u - 1], 0, 1);
            assert_float_equal(dearest(costs, n, stages), least(costs, n, 0, p), 1e-9);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_backward_follows_its_forward_and_neighbours_agree_on_the_order),
        cmocka_unit_test(no_stage_waits_for_ever_and_the_bubble_is_p_minus_1_of_m),
        cmocka_unit_test(stage_s_of_1f1b_holds_p_minus_s_micro_batches),
        cmocka_unit_test(an_order_that_cannot_go_on_is_seen),
        cmocka_unit_test(the_dearest_stage_costs_as_little_as_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
