/*
 * test_loader.c - micro-batches as the step thread gets them: contents, last batches, prefetching
 * in any order, errors across threads, and closing at any time.
 */
#include "support/batch_check.h"
#include "unit/data/support.h"

enum { VOCABULARY = 1000, N = 60 };

static dataset *open_rows(fixture *f, bool pairs)
{
    buffer b = {0};
    for (int k = 0; k < N; k++) {
        buffer_print(&b,
                     pairs ? "{\"prompt_input_ids\": [%d, 1, 2], \"chosen_input_ids\": [5, 6"
                           : "{\"score\": 0.5, \"input_ids\": [%d, 1, 2",
                     k);
        for (int i = 0; i < k * 17 % 23; i++)
            buffer_print(&b, ", %d", i);
        buffer_puts(&b, pairs ? "], \"rejected_input_ids\": [7], \"score\": 0.5}\n" : "]}\n");
    }
    dataset_options o = support_options(f, "data.jsonl", b.text);
    buffer_free(&b);
    o.pairs = pairs;
    o.vocab_size = VOCABULARY;
    o.extra = support_json(f, "[\"score\"]");
    o.cache_dir = arena_printf(&f->memory, "%s/cache", f->dir);
    return support_open(&o);
}

static data_plan *plan_of(const dataset *d, data_plan_options o)
{
    data_plan *p = NULL;
    ASSERT_OK(data_plan_create(d, &o, &p));
    return p;
}

static const data_plan_options packed = {
    .global_batch = 16, .micro_batch_tokens = 80, .shuffle = true, .seed = 5, .ranks = 1};

static data_loader *loader_of(const dataset *d, data_plan *p, int64_t prefetch, bool prompt_targets)
{
    data_loader *l = NULL;
    ASSERT_OK(data_loader_create(d, p, prefetch, prompt_targets, &l));
    return l;
}

/* Segment s holds the tokens of its sample's side at positions from 0, and its extra. */
static void check_segment(const dataset *d, const nrl_batch *b, int64_t s, int64_t sample, int side)
{
    const int32_t *tokens;
    const uint8_t *trained;
    int64_t n = dataset_segment(d, sample, side, &tokens, &trained);
    assert_int_equal(b->cu_seqlens[s + 1] - b->cu_seqlens[s], n);
    assert_memory_equal(b->tokens + b->cu_seqlens[s], tokens, (size_t)n * sizeof *tokens);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(b->positions[b->cu_seqlens[s] + i], i);
    assert_int_equal(b->segment_sample[s], sample);
    assert_int_equal(b->segment_side[s], side);
    assert_true(b->extra[0].values[s] == 0.5f);
}

/* The target positions are the trained targets (and the others with weight 0), in order. */
static void check_scores(const dataset *d, const nrl_batch *b, bool prompt_targets)
{
    int64_t row = 0;
    for (int64_t s = 0; s < b->n_segments; s++) {
        const int32_t *tokens;
        const uint8_t *trained;
        int64_t n = dataset_segment(d, b->segment_sample[s], b->segment_side[s], &tokens, &trained);
        for (int64_t i = 1; i < n; i++) {
            if (!trained[i] && !prompt_targets) continue;
            assert_int_equal(b->row_token[row], b->cu_seqlens[s] + i - 1);
            assert_int_equal(b->row_target[row], tokens[i]);
            assert_int_equal(b->row_segment[row], s);
            assert_true(b->row_weight[row] == (float)trained[i]);
            row++;
        }
    }
    assert_int_equal(row, b->n_rows);
}

static void check_batch(const dataset *d, data_plan *p, int64_t step, int64_t m, const nrl_batch *b,
                        bool prompt_targets)
{
    const int64_t *examples;
    int64_t n = data_plan_micro_batch(p, step, m, &examples), segment = 0;
    ASSERT_OK(batch_check(b, VOCABULARY));
    assert_int_equal(b->is_tail, n == 0);
    assert_string_equal(b->extra[0].name, "score");
    if (!n) return;
    assert_int_equal(b->n_examples, n);
    for (int64_t i = 0; i < n; i++)
        for (int side = 0; side < dataset_info(d)->n_sides; side++, segment++) {
            assert_int_equal(b->segment_example[segment], i);
            check_segment(d, b, segment, examples[i], side);
        }
    assert_int_equal(segment, b->n_segments);
    check_scores(d, b, prompt_targets);
}

static void check_steps(fixture *f, bool pairs, bool prompt_targets, int64_t prefetch, data_plan_options o)
{
    dataset *d = open_rows(f, pairs);
    data_plan *p = plan_of(d, o);
    data_loader *l = loader_of(d, p, prefetch, prompt_targets);
    for (int64_t step = 0; step < 10; step++) {
        data_step s;
        ASSERT_OK(data_loader_step(l, step, &s));
        assert_int_equal(s.step, step);
        assert_int_equal(s.n_micro_batches, data_plan_n_micro_batches(p, step));
        for (int64_t m = 0; m < s.n_micro_batches; m++)
            check_batch(d, p, step, m, s.micro_batch[m], prompt_targets);
    }
    data_loader_destroy(l);
    data_plan_destroy(p);
    dataset_close(d);
}

static void batches_hold_what_the_plan_says(void **state)
{
    for (int64_t prefetch = 0; prefetch < 4; prefetch++)
        for (int k = 0; k < 4; k++)
            check_steps(*state, k & 1, k & 2, prefetch, packed);
}

static void ranks_without_work_get_tail_batches(void **state)
{
    data_plan_options o = packed;
    o.global_batch = 3;
    o.ranks = 4;
    for (o.rank = 0; o.rank < 4; o.rank++)
        check_steps(*state, false, false, 1, o);
}

static void a_tail_batch_counts_nothing(void **state)
{
    dataset *d = open_rows(*state, false);
    data_plan *p = plan_of(d, (data_plan_options){.global_batch = 1, .micro_batch = 1, .ranks = 2, .rank = 1});
    data_loader *l = loader_of(d, p, 0, false);
    data_step s;
    ASSERT_OK(data_loader_step(l, 0, &s));
    assert_true(s.micro_batch[0]->is_tail);
    static const char *const counts[] = {"answer_tokens", "prompt_tokens", "sequences", "pairs", "examples", "tokens"};
    for (int i = 0; i < 6; i++)
        assert_true(nrl_batch_count(s.micro_batch[0], counts[i]) == 0);
    data_loader_destroy(l);
    data_plan_destroy(p);
    dataset_close(d);
}

static void steps_may_be_asked_in_any_order(void **state)
{
    static const int64_t order[] = {0, 1, 7, 7, 3, 4, 5, 100, 2, 3, 5, 6, 0};
    dataset *d = open_rows(*state, false);
    data_plan *p = plan_of(d, packed);
    for (int64_t prefetch = 0; prefetch < 5; prefetch++) {
        data_loader *l = loader_of(d, p, prefetch, false);
        for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
            data_step s;
            ASSERT_OK(data_loader_step(l, order[i], &s));
            for (int64_t m = 0; m < s.n_micro_batches; m++)
                check_batch(d, p, order[i], m, s.micro_batch[m], false);
        }
        data_loader_destroy(l);
    }
    data_plan_destroy(p);
    dataset_close(d);
}

static void a_loader_may_be_left_at_any_time(void **state)
{
    dataset *d = open_rows(*state, false);
    data_plan *p = plan_of(d, packed);
    for (int64_t steps = 0; steps < 6; steps++) {
        data_loader *l = loader_of(d, p, 3, false);
        data_step s;
        for (int64_t k = 0; k < steps; k++)
            ASSERT_OK(data_loader_step(l, k, &s));
        data_loader_destroy(l);
    }
    data_plan_destroy(p);
    dataset_close(d);
}

static void epochs_are_told_in_fractions(void **state)
{
    dataset *d = open_rows(*state, false); /* 60 examples: 16, 16, 16, 12 */
    data_plan *p = plan_of(d, packed);
    data_loader *l = loader_of(d, p, 1, false);
    static const double expected[] = {16. / 60, 32. / 60, 48. / 60, 1, 1 + 16. / 60};
    for (int64_t k = 0; k < 5; k++) {
        data_step s;
        ASSERT_OK(data_loader_step(l, k, &s));
        assert_float_equal(s.epoch, expected[k], 1e-12);
    }
    assert_true(data_loader_wait_seconds(l) >= 0);
    data_loader_destroy(l);
    data_plan_destroy(p);
    dataset_close(d);
}

/* The cache file is changed under the mapping: the io thread finds out, the caller is told. */
static void errors_of_the_io_thread_reach_the_caller(void **state)
{
    fixture *f = *state;
    dataset *d = open_rows(f, false);
    data_plan *p = plan_of(d, (data_plan_options){.global_batch = N, .micro_batch = N, .ranks = 1});
    char *folder = mem_printf("%s/cache", f->dir), *path = NULL;
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));)
        if (strstr(e->d_name, ".tokens")) path = mem_printf("%s/%s", folder, e->d_name);
    closedir(dir);
    struct stat st;
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fstat(fileno(file), &st), 0);
    fseek(file, st.st_size / 4, SEEK_SET); /* inside the tokens */
    for (int i = 0; i < 40; i++)
        fputc(0x77, file);
    fclose(file);
    for (int64_t prefetch = 0; prefetch < 2; prefetch++) {
        data_loader *l = loader_of(d, p, prefetch, false);
        data_step s;
        ASSERT_FAILS(data_loader_step(l, 0, &s), NRL_ERR_CORRUPT, "are damaged");
        ASSERT_FAILS(data_loader_step(l, 1, &s), NRL_ERR_CORRUPT, "are damaged");
        data_loader_destroy(l);
    }
    free(path);
    free(folder);
    data_plan_destroy(p);
    dataset_close(d);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(batches_hold_what_the_plan_says),
        TEST(ranks_without_work_get_tail_batches),
        TEST(a_tail_batch_counts_nothing),
        TEST(steps_may_be_asked_in_any_order),
        TEST(a_loader_may_be_left_at_any_time),
        TEST(epochs_are_told_in_fractions),
        TEST(errors_of_the_io_thread_reach_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
