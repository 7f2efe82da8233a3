/*
 * test_share.c - pairs whose prompt is stored once: what is shared, and that rows, segments, counts
 * and the text before every row are those of the batch without sharing.
 */
#include "support/batch_check.h"
#include "data/data.h"
#include "unit/data/support.h"

enum { N = 40, VOCABULARY = 1000, LONGEST = 64 };

/* Pairs with prompts of 1 to 30 tokens and answers of 1 to 9. */
static dataset_options pair_options(fixture *f)
{
    buffer b = {0};
    for (int k = 0; k < N; k++) {
        buffer_puts(&b, "{\"prompt_input_ids\": [1");
        for (int i = 0; i < k * 7 % 30; i++)
            buffer_print(&b, ", %d", 10 + (k * 31 + i * 17) % 200);
        buffer_print(&b, "], \"chosen_input_ids\": [%d", 300 + k);
        for (int i = 0; i < k * 5 % 9; i++)
            buffer_print(&b, ", %d", 400 + i);
        buffer_print(&b, "], \"rejected_input_ids\": [%d", 500 + k);
        for (int i = 0; i < k * 3 % 8; i++)
            buffer_print(&b, ", %d", 600 + i);
        buffer_print(&b, "], \"score\": %d.5}\n", k);
    }
    dataset_options o = support_options(f, "pairs.jsonl", b.text);
    buffer_free(&b);
    o.pairs = true;
    o.extra = support_json(f, "[\"score\"]");
    return o;
}

static dataset *open_pairs(fixture *f, bool sharing)
{
    dataset_options o = pair_options(f);
    o.prefix_sharing = sharing;
    return support_open(&o);
}

/* Out of order, and one twice in a row, as weights may bring it. */
static const int64_t examples[] = {3, 0, 39, 7, 7, 21, 30, 12};
enum { N_BLOCKS = sizeof examples / sizeof *examples };

static nrl_batch *batch_of(const dataset *d, bool prompt_targets)
{
    nrl_batch *b = NULL;
    ASSERT_OK(data_assemble(d, examples, N_BLOCKS, prompt_targets, &b));
    ASSERT_OK(batch_check(b, VOCABULARY));
    return b;
}

/* Tokens [begin, end) behind the n in text. */
static int append(const nrl_batch *b, int32_t begin, int32_t end, int32_t *text, int n)
{
    memcpy(text + n, b->tokens + begin, (size_t)(end - begin) * sizeof *text);
    return n + end - begin;
}

/* The tokens that the model has seen when it predicts row i. */
static int text_before(const nrl_batch *b, int64_t i, int32_t *text)
{
    int32_t s = b->row_segment[i], p = b->prefix ? b->prefix[s] : -1, t = b->row_token[i];
    bool own = t >= b->cu_seqlens[s] && t < b->cu_seqlens[s + 1];
    int n = 0;
    if (p >= 0) n = append(b, b->cu_seqlens[p], own ? b->cu_seqlens[p + 1] : t + 1, text, n);
    if (own) n = append(b, b->cu_seqlens[s], t + 1, text, n);
    assert_int_equal(b->positions[t], n - 1);
    return n;
}

static void check_same(const nrl_batch *a, const nrl_batch *b)
{
    assert_int_equal(a->n_rows, b->n_rows);
    assert_int_equal(a->n_segments, b->n_segments);
    assert_int_equal(a->n_examples, b->n_examples);
    for (int64_t i = 0; i < a->n_rows; i++) {
        int32_t x[LONGEST], y[LONGEST];
        int n = text_before(a, i, x);
        assert_int_equal(text_before(b, i, y), n);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        assert_int_equal(a->row_target[i], b->row_target[i]);
        assert_int_equal(a->row_segment[i], b->row_segment[i]);
        assert_true(a->row_weight[i] == b->row_weight[i]);
    }
    for (int64_t s = 0; s < a->n_segments; s++) {
        assert_int_equal(a->segment_example[s], b->segment_example[s]);
        assert_int_equal(a->segment_side[s], b->segment_side[s]);
        assert_int_equal(a->segment_sample[s], b->segment_sample[s]);
        assert_true(a->extra[0].values[s] == b->extra[0].values[s]);
    }
}

static void only_the_place_of_tokens_changes(void **state)
{
    static const char *const counts[] = {"answer_tokens", "prompt_tokens", "sequences", "pairs", "examples", "tokens"};
    dataset *whole = open_pairs(*state, false), *shared = open_pairs(*state, true);
    for (int prompt_targets = 0; prompt_targets < 2; prompt_targets++) {
        nrl_batch *a = batch_of(whole, prompt_targets), *b = batch_of(shared, prompt_targets);
        int64_t saved = 0, held = 0;
        check_same(a, b);
        for (int i = 0; i < 6; i++)
            assert_true(nrl_batch_count(a, counts[i]) == nrl_batch_count(b, counts[i]));
        for (int i = 0; i < N_BLOCKS; i++) {
            saved += 1 + examples[i] * 7 % 30; /* the whole prompt */
            held += dataset_example_tokens(shared, examples[i]);
        }
        assert_int_equal(a->n_tokens - b->n_tokens, saved);
        assert_int_equal(b->n_tokens, held);
        assert_int_equal(b->n_prompts, N_BLOCKS);
        batch_free(a);
        batch_free(b);
    }
    dataset_close(whole);
    dataset_close(shared);
}

static void a_broken_prefix_is_refused(void **state)
{
    dataset *d = open_pairs(*state, true);
    nrl_batch *b = batch_of(d, false);
    int32_t prompt = (int32_t)b->n_segments, row = b->row_token[0];
    b->prefix[prompt] = 0; /* a prefix of a prefix */
    ASSERT_FAILS(batch_check(b, VOCABULARY), NRL_ERR_BUG, "batch: prefix[0] is");
    b->prefix[prompt] = -1;
    b->prefix[0] = (int32_t)(b->n_segments + b->n_prompts);
    ASSERT_FAILS(batch_check(b, VOCABULARY), NRL_ERR_BUG, "batch: prefix[0] is");
    b->prefix[0] = prompt + 2; /* example 39's, whose prompt is longer */
    ASSERT_FAILS(batch_check(b, VOCABULARY), NRL_ERR_BUG, "batch: positions[0] is");
    b->prefix[0] = prompt;
    b->row_token[0] = b->cu_seqlens[prompt + 1]; /* of the next prompt */
    ASSERT_FAILS(batch_check(b, VOCABULARY), NRL_ERR_BUG, "batch: row_token[0] is");
    b->row_token[0] = row;
    ASSERT_OK(batch_check(b, VOCABULARY));
    batch_free(b);
    dataset_close(d);
}

static void the_budget_holds_what_is_computed(void **state)
{
    dataset *whole = open_pairs(*state, false), *shared = open_pairs(*state, true);
    data_plan_options o = {.global_batch = N, .micro_batch_tokens = 120, .ranks = 1};
    data_plan *a = NULL, *b = NULL;
    ASSERT_OK(data_plan_create(whole, &o, &a));
    ASSERT_OK(data_plan_create(shared, &o, &b));
    assert_true(data_plan_n_micro_batches(b, 0) < data_plan_n_micro_batches(a, 0));
    data_plan_destroy(a);
    data_plan_destroy(b);
    assert_int_equal(dataset_info(shared)->tokens, dataset_info(whole)->tokens);
    assert_int_equal(dataset_info(whole)->shared_tokens, 0);
    int64_t held = 0;
    for (int64_t i = 0; i < N; i++)
        held += dataset_example_tokens(shared, i);
    assert_int_equal(dataset_info(shared)->shared_tokens, dataset_info(shared)->tokens - held);
    assert_string_equal(dataset_info(shared)->hash, dataset_info(whole)->hash);
    dataset_close(whole);
    dataset_close(shared);
}

static int64_t shared_of(fixture *f, const char *row, bool pairs)
{
    dataset_options o = support_options(f, "row.jsonl", row);
    o.pairs = pairs;
    o.prefix_sharing = true;
    dataset *d = support_open(&o);
    int64_t n = dataset_shared_tokens(d, 0);
    dataset_close(d);
    return n;
}

static void equal_answers_are_not_shared(void **state)
{
    assert_int_equal(shared_of(*state, "{\"prompt\": \"abc\", \"chosen\": \"de\", \"rejected\": \"de\"}\n", true),
                     4); /* with <s> */
    assert_int_equal(shared_of(*state, "{\"prompt\": \"abc\", \"chosen\": \"de\", \"rejected\": \"df\"}\n", true), 4);
}

static void prompts_that_part_early_share_what_they_have_in_common(void **state)
{
    /* <s> <|im_start|> u s e r \n q, then 1 or 2 */
    assert_int_equal(shared_of(*state,
                               "{\"chosen\": [{\"role\": \"user\", \"content\": \"q1\"},"
                               "{\"role\": \"assistant\", \"content\": \"y\"}],"
                               "\"rejected\": [{\"role\": \"user\", \"content\": \"q2\"},"
                               "{\"role\": \"assistant\", \"content\": \"n\"}]}\n",
                               true),
                     8);
}

static void samples_share_nothing(void **state)
{
    assert_int_equal(shared_of(*state, "{\"prompt\": \"abc\", \"completion\": \"de\"}\n", false), 0);
}

/* The tokenizer with "b" and "c" merged into one token. */
static void merge_b_and_c(fixture *f)
{
    char *path = mem_printf("%s/tokenizer.json", f->dir), *bytes;
    size_t size;
    FILE *file = fopen(path, "r");
    bytes = mem_alloc(1 << 16);
    size = fread(bytes, 1, (1 << 16) - 1, file);
    fclose(file);
    bytes[size] = 0;
    char *merges = strstr(bytes, "\"merges\": []"), *vocab = strstr(bytes, "\"vocab\": {");
    assert_non_null(merges);
    char *text = mem_printf("%.*s\"merges\": [\"b c\"], \"vocab\": {\"bc\": 300, %s", (int)(merges - bytes), bytes,
                            vocab + strlen("\"vocab\": {"));
    support_write_bytes(path, text, strlen(text));
    tokenizer_close(f->tok);
    ASSERT_OK(test_tokenizer_open(f->dir, &f->tok));
    free(text);
    free(bytes);
    free(path);
}

/* <s> a bc d and <s> a b e: the prompt's last token is another one on the chosen side. */
static void a_token_across_the_end_of_the_prompt_is_not_shared(void **state)
{
    merge_b_and_c(*state);
    assert_int_equal(shared_of(*state, "{\"prompt\": \"ab\", \"chosen\": \"cd\", \"rejected\": \"e\"}\n", true), 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_the_place_of_tokens_changes),
        TEST(a_broken_prefix_is_refused),
        TEST(the_budget_holds_what_is_computed),
        TEST(equal_answers_are_not_shared),
        TEST(prompts_that_part_early_share_what_they_have_in_common),
        TEST(samples_share_nothing),
        TEST(a_token_across_the_end_of_the_prompt_is_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
