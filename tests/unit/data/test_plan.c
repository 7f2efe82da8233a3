/*
 * test_plan.c - properties of a plan: every example once per epoch, the same global batches for any
 * number of ranks, equal numbers of micro-batches within their budget.
 */
#include "data/order.h"
#include "data/pack.h"
#include "unit/data/support.h"
#include <math.h>

/* n rows of lengths 2 .. 61 in no order; row k begins with token k % 97. */
static char *rows_of(int n, int salt)
{
    buffer b = {0};
    for (int k = 0; k < n; k++) {
        buffer_print(&b, "{\"input_ids\": [%d, 1", k % 97);
        for (int i = 0; i < (k * 37 + salt) % 60; i++)
            buffer_puts(&b, ", 2");
        buffer_puts(&b, "]}\n");
    }
    return buffer_take(&b);
}

static dataset *open_rows(fixture *f, int n)
{
    char *rows = rows_of(n, 11);
    dataset_options o = support_options(f, "data.jsonl", rows);
    free(rows);
    return support_open(&o);
}

static data_plan *plan_of(const dataset *d, data_plan_options o)
{
    data_plan *p = NULL;
    ASSERT_OK(data_plan_create(d, &o, &p));
    return p;
}

/* Blocks of step s on all ranks, counted; checks budgets, order and equal numbers of micro-batches.
 */
static void count_step(const dataset *d, data_plan_options o, int64_t step, int *seen)
{
    int64_t n_micro_batches = 0;
    for (o.rank = 0; o.rank < o.ranks; o.rank++) {
        data_plan *p = plan_of(d, o);
        if (!o.rank) n_micro_batches = data_plan_n_micro_batches(p, step);
        assert_int_equal(data_plan_n_micro_batches(p, step), n_micro_batches);
        assert_true(n_micro_batches > 0);
        for (int64_t m = 0; m < n_micro_batches; m++) {
            const int64_t *examples;
            int64_t tokens = 0, n = data_plan_micro_batch(p, step, m, &examples);
            for (int64_t i = 0; i < n; i++) {
                seen[examples[i]]++;
                tokens += dataset_example_tokens(d, examples[i]);
            }
            if (o.micro_batch_tokens)
                assert_true(tokens <= o.micro_batch_tokens);
            else
                assert_true(n <= o.micro_batch);
        }
        data_plan_destroy(p);
    }
}

static void every_example_is_seen_once_an_epoch(void **state)
{
    enum { N = 203 };
    dataset *d = open_rows(*state, N);
    for (int ranks = 1; ranks <= 5; ranks += 2)
        for (int shuffle = 0; shuffle < 2; shuffle++)
            for (int budget = 0; budget <= 200; budget += 100) {
                data_plan_options o = {.global_batch = 32,
                                       .micro_batch_tokens = budget,
                                       .micro_batch = 3,
                                       .shuffle = shuffle,
                                       .seed = 7,
                                       .ranks = ranks};
                int seen[N] = {0};
                for (int64_t s = 7; s < 14; s++)
                    count_step(d, o, s, seen); /* the second epoch */
                for (int i = 0; i < N; i++)
                    assert_int_equal(seen[i], 1);
            }
    dataset_close(d);
}

static void the_global_batch_does_not_depend_on_ranks(void **state)
{
    enum { N = 150 };
    dataset *d = open_rows(*state, N);
    for (int64_t step = 0; step < 12; step++) {
        int first[N] = {0};
        data_plan_options o = {.global_batch = 24, .micro_batch_tokens = 90, .shuffle = true, .seed = 3, .ranks = 1};
        count_step(d, o, step, first);
        for (o.ranks = 2; o.ranks <= 8; o.ranks++) {
            int seen[N] = {0};
            count_step(d, o, step, seen);
            assert_memory_equal(first, seen, sizeof seen);
        }
    }
    dataset_close(d);
}

static void no_step_spans_two_epochs(void **state)
{
    dataset *d = open_rows(*state, 10);
    data_plan_options o = {.global_batch = 4, .micro_batch = 1, .ranks = 1};
    data_plan *p = plan_of(d, o);
    assert_int_equal(data_plan_steps_per_epoch(p), 3);
    assert_int_equal(data_plan_n_micro_batches(p, 2), 2);
    assert_int_equal(data_plan_n_micro_batches(p, 3), 4);
    data_plan_destroy(p);
    o.drop_last = true;
    p = plan_of(d, o);
    assert_int_equal(data_plan_steps_per_epoch(p), 2);
    assert_int_equal(data_plan_n_micro_batches(p, 2), 4);
    data_plan_destroy(p);
    dataset_close(d);
}

static void without_shuffle_examples_come_in_file_order(void **state)
{
    dataset *d = open_rows(*state, 10);
    data_plan *p = plan_of(d, (data_plan_options){.global_batch = 4, .micro_batch = 2, .ranks = 1});
    int64_t next = 0;
    for (int64_t s = 0; s < 3; s++)
        for (int64_t m = 0; m < data_plan_n_micro_batches(p, s); m++) {
            const int64_t *examples;
            int64_t n = data_plan_micro_batch(p, s, m, &examples);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(examples[i], next++);
        }
    assert_int_equal(next, 10);
    data_plan_destroy(p);
    dataset_close(d);
}

static void epochs_and_seeds_have_orders_of_their_own(void **state)
{
    enum { N = 50 };
    dataset *d = open_rows(*state, N);
    int64_t orders[3][N];
    for (int k = 0; k < 3; k++) { /* seed 1 epoch 0, seed 1 epoch 1, seed 2 epoch 0 */
        const int64_t *examples;
        data_plan *p =
            plan_of(d, (data_plan_options){
                           .global_batch = N, .micro_batch = N, .ranks = 1, .shuffle = true, .seed = k == 2 ? 2 : 1});
        assert_int_equal(data_plan_micro_batch(p, k == 1, 0, &examples), N);
        memcpy(orders[k], examples, sizeof orders[k]);
        data_plan_destroy(p);
    }
    assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_not_equal(orders[0], orders[2], sizeof orders[0]);
    dataset_close(d);
}

/* The documented definition, worked out apart: a change here breaks the resuming of old runs. */
static void the_permutation_is_the_documented_one(void **state)
{
    (void)state;
    int32_t items[6] = {0, 1, 2, 3, 4, 5};
    const int32_t expected[6] = {0, 3, 5, 1, 2, 4};
    assert_true(data_order_draw(1, 0) == UINT64_C(0x910a2dec89025cc1));
    data_order_shuffle(1, items, 6);
    assert_memory_equal(items, expected, sizeof items);
}

static void examples_keep_the_order_of_the_global_batch(void **state)
{
    dataset *d = open_rows(*state, 100);
    data_plan *p = plan_of(d, (data_plan_options){.global_batch = 100, .micro_batch_tokens = 300, .ranks = 2});
    for (int64_t m = 0; m < data_plan_n_micro_batches(p, 0); m++) {
        const int64_t *examples;
        int64_t n = data_plan_micro_batch(p, 0, m, &examples);
        for (int64_t i = 1; i < n; i++)
            assert_true(examples[i - 1] < examples[i]);
    }
    data_plan_destroy(p);
    dataset_close(d);
}

/* Each micro-batch's examples are runs of whole groups; in file order group g holds examples 4 g .. 4 g + 3,
 * and the last one of the epoch what is left. */
static void groups_of_examples_share_a_micro_batch(void **state)
{
    enum { N = 102, GROUP = 4 };
    dataset *d = open_rows(*state, N);
    for (int budget = 0; budget <= 400; budget += 400) {
        data_plan_options o = {
            .global_batch = 20, .micro_batch_tokens = budget, .micro_batch = 8, .group = GROUP, .ranks = 3};
        int seen[N] = {0};
        for (o.rank = 0; o.rank < o.ranks; o.rank++) {
            data_plan *p = plan_of(d, o);
            for (int64_t step = 0; step < data_plan_steps_per_epoch(p); step++)
                for (int64_t m = 0; m < data_plan_n_micro_batches(p, step); m++) {
                    const int64_t *examples;
                    int64_t n = data_plan_micro_batch(p, step, m, &examples);
                    for (int64_t i = 0; i < n; i++) {
                        int64_t place = examples[i] % 20 % GROUP; /* in its group */
                        assert_int_equal(place, i % GROUP);
                        assert_true(i % GROUP == 0 || examples[i] == examples[i - 1] + 1);
                        assert_true(i + 1 < n || place == GROUP - 1 || examples[i] == N - 1);
                        seen[examples[i]]++;
                    }
                }
            data_plan_destroy(p);
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], 1);
    }
    dataset_close(d);
}

static void the_largest_step_has_the_fullest_micro_batch_of_the_rank(void **state)
{
    enum { STEPS = 20 };
    dataset *d = open_rows(*state, 100);
    data_plan_options o = {.global_batch = 5, .micro_batch_tokens = 100, .shuffle = true, .ranks = 2};
    int later = 0;
    for (; o.seed < 8; o.seed++) {
        o.rank = (int32_t)(o.seed % 2);
        data_plan *p = plan_of(d, o);
        int64_t fullest[STEPS] = {0}, best = data_plan_largest_step(p, STEPS);
        for (int64_t s = 0; s < STEPS; s++)
            for (int64_t m = 0; m < data_plan_n_micro_batches(p, s); m++) {
                const int64_t *examples, n = data_plan_micro_batch(p, s, m, &examples);
                int64_t tokens = 0;
                for (int64_t i = 0; i < n; i++)
                    tokens += dataset_example_tokens(d, examples[i]);
                if (tokens > fullest[s]) fullest[s] = tokens;
            }
        later += best > 0;
        for (int64_t s = 0; s < STEPS; s++)
            assert_true(s < best ? fullest[s] < fullest[best] : fullest[s] <= fullest[best]);
        data_plan_destroy(p);
    }
    assert_true(later > 0);
    dataset_close(d);
}

/* ---- packing ---- */

static void packing_needs_few_bins_and_evens_them_out(void **state)
{
    (void)state;
    enum { N = 10000, BUDGET = 4096, RANKS = 4 };
    int64_t *lengths = mem_alloc(N * sizeof *lengths), *place = mem_alloc(N * sizeof *place), sum = 0,
            *scratch = mem_alloc((size_t)data_pack_scratch(N, RANKS) * sizeof *scratch);
    for (int i = 0; i < N; i++) {
        lengths[i] = 1 + (int64_t)(data_order_draw(5, (uint64_t)i) % 2000);
        sum += lengths[i];
    }
    int64_t n_micro_batches = data_pack(lengths, N, BUDGET, RANKS, scratch, place), bins = n_micro_batches * RANKS;
    assert_true(bins * BUDGET < sum * 102 / 100 + RANKS * BUDGET); /* first fit is near the bound */
    int64_t *tokens = mem_alloc((size_t)bins * sizeof *tokens), most = 0;
    for (int i = 0; i < N; i++)
        tokens[place[i]] += lengths[i];
    for (int64_t b = 0; b < bins; b++)
        most = tokens[b] > most ? tokens[b] : most;
    assert_true(most <= BUDGET);
    assert_true((most - sum / bins) * 1000 < most); /* the fullest is within 0.1 % of the mean */
    free(tokens);
    free(lengths);
    free(place);
    free(scratch);
}

static void packing_finds_what_longest_first_into_the_emptiest_would_not(void **state)
{
    (void)state;
    const int64_t lengths[] = {6, 4, 3, 3, 2, 2}; /* that rule gives 6 + 3 + 2 = 11 */
    int64_t place[6], tokens[2] = {0}, scratch[64];
    assert_true(data_pack_scratch(6, 1) <= 64);
    assert_int_equal(data_pack(lengths, 6, 10, 1, scratch, place), 2);
    for (int i = 0; i < 6; i++)
        tokens[place[i]] += lengths[i];
    assert_int_equal(tokens[0], 10);
    assert_int_equal(tokens[1], 10);
}

static void ranks_without_examples_get_empty_micro_batches(void **state)
{
    dataset *d = open_rows(*state, 3);
    int64_t examples_of_all = 0, empty = 0;
    for (int rank = 0; rank < 8; rank++) {
        const int64_t *examples;
        data_plan *p =
            plan_of(d, (data_plan_options){.global_batch = 3, .micro_batch_tokens = 100, .ranks = 8, .rank = rank});
        assert_int_equal(data_plan_n_micro_batches(p, 0), 1);
        int64_t n = data_plan_micro_batch(p, 0, 0, &examples);
        examples_of_all += n;
        empty += n == 0;
        data_plan_destroy(p);
    }
    assert_int_equal(examples_of_all, 3);
    assert_true(empty >= 5);
    dataset_close(d);
}

/* ---- several files ---- */

static dataset *open_two(fixture *f, double weight)
{
    char *rows = rows_of(40, 0);
    free(support_write(f, "a.jsonl", rows));
    dataset_options o = support_options(f, "b.jsonl", rows);
    free(rows);
    o.base_dir = f->dir;
    char *source = mem_printf("[\"a.jsonl\", {\"path\": \"b.jsonl\", \"weight\": %g}]", weight);
    o.source = support_json(f, source);
    free(source);
    return support_open(&o);
}

/* Entries of 900, 90 and 10 rows. */
static dataset *open_three(fixture *f, double power)
{
    static const int sizes[] = {900, 90, 10};
    for (int i = 0; i < 3; i++) {
        char name[] = "a.jsonl", *rows = rows_of(sizes[i], 0);
        name[0] = (char)('a' + i);
        free(support_write(f, name, rows));
        free(rows);
    }
    dataset_options o = support_options(f, "ignored.jsonl", "{\"text\": \"x\"}\n");
    o.base_dir = f->dir;
    o.size_exponent = power - 1;
    o.source = support_json(f, "[\"a.jsonl\", \"b.jsonl\", \"c.jsonl\"]");
    return support_open(&o);
}

static void a_power_sets_the_shares_of_entries(void **state)
{
    static const struct {
        double power;
        int64_t n[3];
    } cases[] = {{1, {900, 90, 10}}, {0, {333, 333, 333}}, {0.5, {700, 221, 74}}, {-0.5, {89, 283, 850}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double all = 0;
        for (int k = 0; k < 3; k++)
            all += pow((double)cases[0].n[k], cases[i].power);
        dataset *d = open_three(*state, cases[i].power);
        for (int k = 0; k < 3; k++) {
            const dataset_part entry = dataset_part_at(d, k);
            double expected = 1000 * pow((double)cases[0].n[k], cases[i].power) / all;
            assert_in_range(data_plan_entry_examples(&entry), (int64_t)(expected - 0.51), (int64_t)(expected + 0.51));
        }
        dataset_close(d);
    }
}

static void an_even_mix_gives_each_step_the_shares_of_entries(void **state)
{
    dataset *d = open_three(*state, 0.5);
    int64_t total = 0, n[3];
    for (int k = 0; k < 3; k++) {
        const dataset_part entry = dataset_part_at(d, k);
        total += n[k] = data_plan_entry_examples(&entry);
    }
    for (int ranks = 1; ranks < 3; ranks++)
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            data_plan_options o = {
                .global_batch = 20, .micro_batch = 4, .ranks = ranks, .shuffle = shuffle, .even = true};
            data_plan *p = plan_of(d, o);
            int64_t steps = data_plan_steps_per_epoch(p);
            data_plan_destroy(p);
            int all[1000] = {0};
            for (int64_t s = 0; s < steps; s++) {
                int seen[1000] = {0}, of[3] = {0};
                count_step(d, o, s, seen);
                for (int e = 0; e < 1000; e++) {
                    of[(e >= 900) + (e >= 990)] += seen[e];
                    all[e] += seen[e];
                }
                for (int k = 0; k < 3 && s + 1 < steps; k++) { /* off by less than two samples */
                    double share = 20.0 * (double)n[k] / (double)total;
                    assert_true(fabs(of[k] - share) < 2);
                }
            }
            for (int e = 990; e < 1000; e++)
                assert_in_range(all[e], 7, 8); /* 74 of 10 rows */
        }
    dataset_close(d);
}

static void weights_repeat_and_sample_files(void **state)
{
    dataset *d = open_two(*state, 1.75);
    assert_int_equal(dataset_info(d)->n_parts, 2);
    assert_int_equal(dataset_part_at(d, 1).first, 40);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        data_plan_options o = {.global_batch = 10, .micro_batch = 10, .ranks = 1, .shuffle = shuffle};
        data_plan *p = plan_of(d, o);
        assert_int_equal(data_plan_steps_per_epoch(p), 11);
        data_plan_destroy(p);
        int seen[80] = {0}, twice = 0;
        for (int64_t s = 0; s < 11; s++)
            count_step(d, o, s, seen);
        for (int i = 0; i < 40; i++)
            assert_int_equal(seen[i], 1);
        for (int i = 40; i < 80; i++) {
            assert_true(seen[i] == 1 || seen[i] == 2);
            twice += seen[i] == 2;
        }
        assert_int_equal(twice, 30);
    }
    dataset_close(d);
}

static void a_weight_counts_for_all_files_of_an_entry(void **state)
{
    fixture *f = *state;
    dataset_options o = support_options(f, "part-0.jsonl", "{\"text\": \"x\"}\n");
    for (int i = 1; i < 10; i++) {
        char *name = mem_printf("part-%d.jsonl", i);
        free(support_write(f, name, "{\"text\": \"x\"}\n"));
        free(name);
    }
    o.base_dir = f->dir;
    o.source = support_json(f, "[{\"path\": \"part-*.jsonl\", \"weight\": 0.4}]");
    dataset *d = support_open(&o);
    assert_int_equal(dataset_info(d)->n_parts, 10);
    data_plan_options p = {.global_batch = 4, .micro_batch = 4, .ranks = 1, .shuffle = true};
    int seen[10] = {0};
    for (int64_t epoch = 0; epoch < 5; epoch++)
        count_step(d, p, epoch, seen);
    for (int i = 0; i < 10; i++)
        assert_int_equal(seen[i], 2);
    dataset_close(d);
}

static void examples_that_a_step_repeats_are_numbered_over_all_ranks(void **state)
{
    dataset *d = open_two(*state, 3);
    for (int ranks = 1; ranks < 4; ranks++) {
        bool seen[80][3] = {0};
        int n = 0;
        for (int rank = 0; rank < ranks; rank++) {
            data_plan_options o = {
                .global_batch = 160, .micro_batch_tokens = 100, .shuffle = true, .ranks = ranks, .rank = rank};
            data_plan *p = plan_of(d, o);
            for (int64_t m = data_plan_n_micro_batches(p, 0); m-- > 0;) {
                const int64_t *examples, k = data_plan_micro_batch(p, 0, m, &examples);
                for (int64_t i = 0; i < k; i++, n++) {
                    const int64_t repeats = data_plan_repeats(p, 0, m, i);
                    assert_in_range(repeats, 0, examples[i] < 40 ? 0 : 2);
                    assert_false(seen[examples[i]][repeats]);
                    seen[examples[i]][repeats] = true;
                }
            }
            data_plan_destroy(p);
        }
        assert_int_equal(n, 160);
    }
    dataset_close(d);
}

static void a_broken_weight_reaches_all_examples_over_epochs(void **state)
{
    dataset *d = open_two(*state, 0.25);
    data_plan_options o = {.global_batch = 50, .micro_batch = 50, .ranks = 1, .shuffle = true};
    int seen[80] = {0};
    for (int64_t epoch = 0; epoch < 4; epoch++)
        count_step(d, o, epoch, seen);
    for (int i = 0; i < 80; i++)
        assert_int_equal(seen[i], i < 40 ? 4 : 1);
    dataset_close(d);
}

/* ---- errors ---- */

static void what_cannot_be_planned_is_a_config_error(void **state)
{
    dataset *d = open_rows(*state, 10);
    data_plan *p;
    data_plan_options o = {.global_batch = 4, .micro_batch_tokens = 30, .ranks = 1};
    ASSERT_FAILS(data_plan_create(d, &o, &p), NRL_ERR_CONFIG, "tokens does not fit into train.micro_batch_tokens 30");
    assert_non_null(strstr(nrl_error_text(), "data.jsonl:"));
    o.micro_batch_tokens = 0;
    ASSERT_FAILS(data_plan_create(d, &o, &p), NRL_ERR_CONFIG, "train.micro_batch 0: expected");
    o.micro_batch = 1;
    o.global_batch = 0;
    ASSERT_FAILS(data_plan_create(d, &o, &p), NRL_ERR_CONFIG, "train.global_batch 0: expected");
    o.global_batch = 11;
    o.drop_last = true;
    ASSERT_FAILS(data_plan_create(d, &o, &p), NRL_ERR_CONFIG,
                 "an epoch of 10 samples holds no full train.global_batch of 11");
    o.group = 2;
    ASSERT_FAILS(data_plan_create(d, &o, &p), NRL_ERR_CONFIG,
                 "train.global_batch 11: the loss couples groups of 2, expected a multiple");
    o.global_batch = 4;
    ASSERT_FAILS(data_plan_create(d, &o, &p), NRL_ERR_CONFIG,
                 "train.micro_batch 1: the loss couples groups of 2, expected a multiple");
    o.micro_batch_tokens = 70;
    ASSERT_FAILS(data_plan_create(d, &o, &p), NRL_ERR_CONFIG, "they do not fit into train.micro_batch_tokens 70");
    dataset_close(d);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_example_is_seen_once_an_epoch),
        TEST(the_global_batch_does_not_depend_on_ranks),
        TEST(no_step_spans_two_epochs),
        TEST(without_shuffle_examples_come_in_file_order),
        TEST(epochs_and_seeds_have_orders_of_their_own),
        TEST(the_permutation_is_the_documented_one),
        TEST(examples_keep_the_order_of_the_global_batch),
        TEST(groups_of_examples_share_a_micro_batch),
        TEST(the_largest_step_has_the_fullest_micro_batch_of_the_rank),
        TEST(packing_needs_few_bins_and_evens_them_out),
        TEST(packing_finds_what_longest_first_into_the_emptiest_would_not),
        TEST(ranks_without_examples_get_empty_micro_batches),
        TEST(a_power_sets_the_shares_of_entries),
        TEST(an_even_mix_gives_each_step_the_shares_of_entries),
        TEST(weights_repeat_and_sample_files),
        TEST(a_weight_counts_for_all_files_of_an_entry),
        TEST(examples_that_a_step_repeats_are_numbered_over_all_ranks),
        TEST(a_broken_weight_reaches_all_examples_over_epochs),
        TEST(what_cannot_be_planned_is_a_config_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
