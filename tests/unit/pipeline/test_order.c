/*
 * test_order.c - the order of turns on all ranks together, the predicted wait, and the units of each stage. Orders are
 * executed: a turn waits for its inputs, and the forward, the gradient of the input and the gradients of the weights
 * take one unit of time each. A send ends only after the other rank has posted its receive, as with collectives that
 * store nothing.
 */
#include "pipeline.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_RANKS = 8, MOST_CHUNKS = 4, MOST_STAGES = MOST_RANKS * MOST_CHUNKS, MOST_MICRO = 20 };
enum { POSTED = 3 }; /* STAGE_AHEAD of core/run/walk/stage.h and the receive that is waited for */

typedef struct {
    pipeline_shape shape;
    int32_t m;
    int64_t n[MOST_RANKS], next[MOST_RANKS];
    pipeline_turn turns[MOST_RANKS][3 * MOST_CHUNKS * MOST_MICRO];
    int32_t free_at[MOST_RANKS];              /* time */
    int32_t done[2][MOST_STAGES][MOST_MICRO]; /* time at which a forward, a backward ended; 0: not yet */
    int32_t live[MOST_RANKS], most[MOST_RANKS];
    int32_t begun[MOST_RANKS]; /* micro-batches that the rank has begun, or is about to begin */
    bool sends[MOST_RANKS];    /* the result of the turn before has not left */
} machine;

static bool is_split(const machine *x)
{
    return x->shape.schedule == PIPELINE_ZERO_BUBBLE;
}

static int32_t stage_of(const machine *x, int32_t rank, const pipeline_turn *t)
{
    return t->chunk * x->shape.n_ranks + rank;
}

/* The stage that a turn's input comes from, or that its result goes to; -1: none. */
static int32_t beside(const machine *x, int32_t rank, const pipeline_turn *t, bool behind)
{
    const int32_t step = (t->pass == NRL_PASS_FORWARD) == behind ? 1 : -1, to = stage_of(x, rank, t) + step;
    return t->pass == NRL_PASS_BACKWARD_WEIGHT || to == x->shape.n_ranks * x->shape.n_chunks ? -1 : to;
}

static void load(machine *x, pipeline_shape shape, int32_t m)
{
    memset(x, 0, sizeof *x);
    x->shape = shape;
    x->m = m;
    for (int32_t r = 0; r < shape.n_ranks; r++)
        x->n[r] = pipeline_order(&shape, r, m, x->turns[r]);
}

/* Whether a rank has posted the receive of this result; those that it has used count too. */
static bool is_posted(const machine *x, uint32_t pass, int32_t stage, int32_t micro_batch)
{
    const int32_t rank = stage % x->shape.n_ranks;
    int32_t posted = 0;
    if (x->done[pass != NRL_PASS_FORWARD][stage][micro_batch]) return true;
    for (int64_t i = x->next[rank]; i < x->n[rank] && posted < POSTED; i++) {
        const pipeline_turn *t = &x->turns[rank][i];
        if (beside(x, rank, t, false) < 0) continue;
        if (t->pass == pass && stage_of(x, rank, t) == stage && t->micro_batch == micro_batch) return true;
        posted++;
    }
    return false;
}

/* Whether the input of the turn is there, and since when. With one stage on each rank a micro-batch begins on all ranks
 * together, because its reference may pass through the same stages; with several, those of all pass before the step. */
static bool is_ready(const machine *x, int32_t rank, const pipeline_turn *t, int32_t *since)
{
    const int32_t from = beside(x, rank, t, false);
    *since = 0;
    for (int32_t r = 0; r < x->shape.n_ranks && x->shape.n_chunks == 1; r++)
        if (x->begun[r] <= t->micro_batch) return false;
    if (from >= 0) *since = x->done[t->pass != NRL_PASS_FORWARD][from][t->micro_batch];
    return from < 0 || *since;
}

static bool advance(machine *x, int32_t rank)
{
    if (x->sends[rank]) {
        const pipeline_turn *last = &x->turns[rank][x->next[rank] - 1];
        if (!is_posted(x, last->pass, beside(x, rank, last, true), last->micro_batch)) return false;
        x->sends[rank] = false;
        return true;
    }
    if (x->next[rank] == x->n[rank]) return false;
    const pipeline_turn *t = &x->turns[rank][x->next[rank]];
    int32_t since;
    if (x->begun[rank] <= t->micro_batch) {
        x->begun[rank] = t->micro_batch + 1;
        return true;
    }
    if (!is_ready(x, rank, t, &since)) return false;
    if (since > x->free_at[rank]) x->free_at[rank] = since;
    x->free_at[rank] += t->pass == NRL_PASS_BACKWARD && !is_split(x) ? 2 : 1;
    if (t->pass != NRL_PASS_BACKWARD_WEIGHT)
        x->done[t->pass != NRL_PASS_FORWARD][stage_of(x, rank, t)][t->micro_batch] = x->free_at[rank];
    if (t->pass == NRL_PASS_FORWARD) x->live[rank]++;
    if (x->live[rank] > x->most[rank]) x->most[rank] = x->live[rank];
    if (t->pass == (is_split(x) ? NRL_PASS_BACKWARD_WEIGHT : NRL_PASS_BACKWARD)) x->live[rank]--;
    /* gpipe holds all micro-batches of a step anyway, and its messages with them */
    x->sends[rank] = beside(x, rank, t, true) >= 0 && x->shape.n_ranks > 1 && x->shape.schedule != PIPELINE_GPIPE;
    x->next[rank]++;
    return true;
}

/* The time at which the last rank ended; -1: they wait for each other for ever. */
static int32_t execute(machine *x)
{
    bool moved = true;
    int32_t end = 0;
    while (moved) {
        moved = false;
        for (int32_t r = 0; r < x->shape.n_ranks; r++)
            while (advance(x, r))
                moved = true;
    }
    for (int32_t r = 0; r < x->shape.n_ranks; r++) {
        if (x->next[r] < x->n[r] || x->sends[r]) return -1;
        if (x->free_at[r] > end) end = x->free_at[r];
    }
    return end;
}

static void for_all(void (*check)(machine *x))
{
    machine *x = malloc(sizeof *x);
    assert_non_null(x);
    for (int64_t schedule = PIPELINE_1F1B; schedule <= PIPELINE_ZERO_BUBBLE; schedule++)
        for (int32_t v = 1; v <= MOST_CHUNKS; v++)
            for (int32_t p = 1; p <= MOST_RANKS; p++)
                for (int32_t m = 1; m <= MOST_MICRO; m++) {
                    if ((v > 1) != (schedule == PIPELINE_INTERLEAVED) && schedule != PIPELINE_ZERO_BUBBLE) continue;
                    load(x, (pipeline_shape){schedule, p, v}, m);
                    check(x);
                }
    free(x);
}

/* ---- one rank ---- */

/* A micro-batch goes forward through the stages of the rank, then back; gradients of weights follow their backward. */
static void check_passes(machine *x)
{
    const int32_t v = x->shape.n_chunks, last = x->shape.n_ranks - 1;
    for (int32_t r = 0; r <= last; r++) {
        int32_t at[MOST_MICRO] = {0};
        bool weights[MOST_CHUNKS][MOST_MICRO] = {{false}};
        assert_int_equal(x->n[r], (is_split(x) ? 3 : 2) * v * x->m);
        for (int64_t i = 0; i < x->n[r]; i++) {
            const pipeline_turn *t = &x->turns[r][i];
            assert_in_range(t->micro_batch, 0, x->m - 1);
            assert_in_range(t->chunk, 0, v - 1);
            if (t->pass == NRL_PASS_BACKWARD_WEIGHT) {
                assert_true(at[t->micro_batch] >= 2 * v - t->chunk && !weights[t->chunk][t->micro_batch]);
                weights[t->chunk][t->micro_batch] = true;
                continue;
            }
            assert_int_equal(at[t->micro_batch]++, t->pass == NRL_PASS_FORWARD ? t->chunk : 2 * v - 1 - t->chunk);
            if (r == last && t->chunk == v - 1 && t->pass == NRL_PASS_FORWARD) { /* the loss */
                assert_int_equal(t[1].pass, NRL_PASS_BACKWARD);
                assert_int_equal(t[1].micro_batch, t->micro_batch);
            }
        }
        for (int32_t m = 0; m < x->m; m++)
            assert_int_equal(at[m], 2 * v);
    }
}

static void each_micro_batch_goes_through_the_stages_and_back_once(void **state)
{
    (void)state;
    for_all(check_passes);
}

/* ---- all ranks ---- */

/* What a rank sends to another, it sends in the order in which the other uses it, so that calls need no tags. */
static void check_neighbours(machine *x)
{
    for (int32_t r = 0; r < x->shape.n_ranks; r++)
        for (int32_t to = 0; to < x->shape.n_ranks; to++) {
            int64_t k = 0;
            if (r == to) continue;
            for (int64_t i = 0; i < x->n[r]; i++) {
                const pipeline_turn *t = &x->turns[r][i], *u;
                const int32_t stage = beside(x, r, t, true);
                if (stage < 0 || stage % x->shape.n_ranks != to) continue;
                while (beside(x, to, u = &x->turns[to][k++], false) < 0 ||
                       beside(x, to, u, false) % x->shape.n_ranks != r)
                    assert_true(k < x->n[to]);
                assert_int_equal(u->pass, t->pass);
                assert_int_equal(stage_of(x, to, u), stage);
                assert_int_equal(u->micro_batch, t->micro_batch);
            }
        }
}

static void ranks_send_in_the_order_in_which_others_use_it(void **state)
{
    (void)state;
    for_all(check_neighbours);
}

/* In units of a pass of one stage: 3 V M without a wait. Groups of micro-batches that are not whole cost what whole
 * ones do, at most. */
static void check_end(machine *x)
{
    const int32_t p = x->shape.n_ranks, v = x->shape.n_chunks, whole = v > 1 ? (x->m + p - 1) / p * p : x->m;
    const int32_t wait = (p - 1) * (is_split(x) ? 1 : 3), end = execute(x);
    assert_in_range(end, 3 * v * x->m, 3 * v * whole + 3 * (p - 1));
    if (whole == x->m && (!is_split(x) || x->m >= p)) {
        assert_int_equal(end, 3 * v * x->m + wait);
        double costs[MOST_STAGES];
        for (int32_t k = 0; k < MOST_STAGES; k++)
            costs[k] = 0.5;
        const double predicted = pipeline_wait(&x->shape, costs, x->m);
        assert_true(fabs(predicted - wait / (3.0 * v * x->m)) < 1e-9);
    }
}

static void no_rank_waits_for_ever_and_the_bubble_is_that_of_the_papers(void **state)
{
    (void)state;
    for_all(check_end);
}

/* Stages and micro-batches between a forward and the last of its backward, on a rank. */
static void check_most(machine *x)
{
    const int32_t p = x->shape.n_ranks, v = x->shape.n_chunks;
    execute(x);
    for (int32_t r = 0; r < p; r++) {
        int32_t behind = p - 1 - r, most = (v == 1 ? behind : 2 * behind + (v - 1) * p) + 1;
        if (is_split(x)) most += r;
        if (x->shape.schedule == PIPELINE_GPIPE && behind) most = x->m;
        if (most > v * x->m) most = v * x->m;
        if (v == 1 || x->m % p == 0)
            assert_int_equal(x->most[r], most);
        else
            assert_true(x->most[r] <= most);
    }
}

static void a_rank_holds_as_many_activations_as_the_papers_say(void **state)
{
    (void)state;
    for_all(check_most);
}

static void an_order_that_cannot_go_on_is_seen(void **state)
{
    (void)state;
    machine *x = malloc(sizeof *x);
    assert_non_null(x);
    load(x, (pipeline_shape){PIPELINE_1F1B, 3, 1}, 4);
    memcpy(x->turns[0], x->turns[2], sizeof x->turns[0]); /* it goes back at once, the next one wants two first */
    assert_int_equal(execute(x), -1);
    load(x, (pipeline_shape){PIPELINE_1F1B, 3, 1}, 4);
    pipeline_turn swapped = x->turns[1][0];
    x->turns[1][0] = x->turns[1][2];
    x->turns[1][2] = swapped; /* a backward first */
    assert_int_equal(execute(x), -1);
    load(x, (pipeline_shape){PIPELINE_GPIPE, 2, 1}, 8);
    x->shape.schedule = PIPELINE_1F1B; /* with sends that wait: eight gradients for a rank that is at its forwards */
    assert_int_equal(execute(x), -1);
    free(x);
}

static void a_dear_stage_is_waited_for(void **state)
{
    (void)state;
    /* forwards 1 and 3, backwards 2 and 6: the second rank computes 9 for each of 4 micro-batches and begins at 1; the
     * first has the last backward, of 2, behind it */
    const double costs[] = {3, 9};
    const pipeline_shape shape = {PIPELINE_1F1B, 2, 1};
    assert_true(fabs(pipeline_wait(&shape, costs, 4) - (2 * (1 + 36 + 2) / 48.0 - 1)) < 1e-9);
}

/* ---- units to stages ---- */

static double dearest(const double *costs, int32_t p, const int32_t *first)
{
    double most = 0;
    for (int32_t s = 0; s < p; s++) {
        double sum = 0;
        for (int32_t u = first[s]; u < first[s + 1]; u++)
            sum += costs[u];
        if (sum > most) most = sum;
    }
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
    int32_t first[10];
    for (int32_t n = 1; n <= 9; n++)
        for (int32_t p = 1; p <= n && p <= MOST_RANKS; p++) {
            pipeline_balance(costs, n, p, first);
            assert_int_equal(first[0], 0);
            assert_int_equal(first[p], n);
            for (int32_t s = 0; s < p; s++)
                assert_true(first[s] < first[s + 1]);
            assert_float_equal(dearest(costs, p, first), least(costs, n, 0, p), 1e-9);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_micro_batch_goes_through_the_stages_and_back_once),
        cmocka_unit_test(ranks_send_in_the_order_in_which_others_use_it),
        cmocka_unit_test(no_rank_waits_for_ever_and_the_bubble_is_that_of_the_papers),
        cmocka_unit_test(a_rank_holds_as_many_activations_as_the_papers_say),
        cmocka_unit_test(an_order_that_cannot_go_on_is_seen),
        cmocka_unit_test(a_dear_stage_is_waited_for),
        cmocka_unit_test(the_dearest_stage_costs_as_little_as_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
