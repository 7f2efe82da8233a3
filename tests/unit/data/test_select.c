/*
 * test_select.c - rows, limit, columns and templates of an entry, and rows that are held out for the evaluation.
 */
#include "unit/data/support.h"

enum { N = 1000 };

static char *letters(int64_t n, const char *format)
{
    buffer b = {0};
    for (int64_t i = 0; i < n; i++)
        buffer_print(&b, format, (int)i);
    return buffer_take(&b);
}

/* The numbers of the rows of the data set, read from their tokens, as "0 1 2". */
static char *numbers(const dataset *d)
{
    buffer b = {0};
    buffer_puts(&b, "");
    for (int64_t i = 0; i < dataset_info(d)->n_examples; i++) {
        const int32_t *tokens;
        const uint8_t *trained;
        int64_t n = dataset_segment(d, i, 0, &tokens, &trained);
        if (i) buffer_puts(&b, " ");
        for (int64_t t = 1; t + 1 < n; t++) /* without BOS and EOS */
            buffer_print(&b, "%c", (char)tokens[t]);
    }
    return buffer_take(&b);
}

static void check_rows(dataset_options *o, const nrl_node *source, const char *expected)
{
    o->source = source;
    dataset *d = support_open(o);
    char *found = numbers(d);
    assert_string_equal(found, expected);
    free(found);
    dataset_close(d);
}

static void rows_are_a_slice_with_negative_and_open_ends(void **state)
{
    static const char *const slices[][2] = {{"0:3", "0 1 2"}, {"7:", "7 8 9"}, {":2", "0 1"}, {"-2:", "8 9"},
                                            {":-8", "0 1"},   {"2:-6", "2 3"}, {"-3:8", "7"}, {"-20:1", "0"},
                                            {"8:100", "8 9"}, {"4:5", "4"},    {"-1:", "9"}};
    fixture *f = *state;
    char *text = letters(10, "{\"text\": \"%d\"}\n");
    dataset_options o = support_options(f, "t.jsonl", text);
    free(text);
    o.base_dir = f->dir;
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
        char *json = mem_printf("{\"path\": \"t.jsonl\", \"rows\": \"%s\"}", slices[i][0]);
        o.workers = 1 + (int64_t)i % 3;
        check_rows(&o, support_json(f, json), slices[i][1]);
        free(json);
    }
}

static void rows_count_through_the_files_of_a_directory(void **state)
{
    fixture *f = *state;
    dataset_options o = support_options(f, "ignored.jsonl", "{\"text\": \"x\"}\n");
    char *folder = mem_printf("%s/many", f->dir);
    assert_int_equal(mkdir(folder, 0777), 0);
    free(folder);
    free(support_write(f, "many/a.jsonl", "{\"text\": \"0\"}\n{\"text\": \"1\"}\n{\"text\": \"2\"}\n"));
    free(support_write(f, "many/b.csv", "text\n3\n4\n"));
    free(support_write(f, "many/c.jsonl", "{\"text\": \"5\"}\n{\"text\": \"6\"}\n"));
    o.base_dir = f->dir;
    check_rows(&o, support_json(f, "{\"path\": \"many\", \"rows\": \"2:6\"}"), "2 3 4 5");
    check_rows(&o, support_json(f, "{\"path\": \"many\", \"rows\": \"-2:\"}"), "5 6");
    check_rows(&o, support_json(f, "{\"path\": \"many\", \"rows\": \"4:\"}"), "4 5 6");
    o.source = support_json(f, "{\"path\": \"many\", \"rows\": \"100:\"}");
    dataset *d;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "rows and limit select no row");
}

static void rows_outside_of_a_slice_are_not_tokenized(void **state)
{
    fixture *f = *state;
    dataset_options o = support_options(f, "t.jsonl", "{\"text\": \"0\"}\n{\"text\": 1}\n{\"text\": \"2\"}\n");
    o.base_dir = f->dir;
    check_rows(&o, support_json(f, "{\"path\": \"t.jsonl\", \"rows\": \":1\"}"), "0");
    check_rows(&o, support_json(f, "{\"path\": \"t.jsonl\", \"rows\": \"2:\"}"), "2");
}

static void malformed_rows_are_config_errors(void **state)
{
    static const char *const wrong[] = {"", "5", "a:b", "1:2:3", "3:3", "5:1", "-1:-4", " 1:2", "1: 2", "1:x"};
    fixture *f = *state;
    dataset_options o = support_options(f, "t.jsonl", "{\"text\": \"0\"}\n");
    o.base_dir = f->dir;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dataset *d;
        char *json = mem_printf("{\"path\": \"t.jsonl\", \"rows\": \"%s\"}", wrong[i]);
        o.source = support_json(f, json);
        ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_CONFIG, "data.train: rows: expected FIRST:END");
        free(json);
    }
}

/* Which of the rows are in the data set. */
static int64_t mark(const dataset_options *o, bool held_out, bool *in)
{
    dataset_options one = *o;
    one.is_held_out = held_out;
    dataset *d = support_open(&one);
    char *text = numbers(d), *at = text;
    memset(in, 0, 2 * N * sizeof *in);
    for (int64_t i = 0; i < dataset_info(d)->n_examples; i++)
        in[strtol(at, &at, 10)] = true;
    int64_t n = dataset_info(d)->n_examples;
    free(text);
    dataset_close(d);
    return n;
}

static void a_share_is_held_out_and_stays_so_when_rows_are_added(void **state)
{
    fixture *f = *state;
    bool train[2 * N], eval[2 * N], later[2 * N];
    char *text = letters(N, "{\"text\": \"%d\"}\n");
    dataset_options o = support_options(f, "t.jsonl", text);
    free(text);
    o.held_out = 0.1;
    int64_t n_train = mark(&o, false, train), n_eval = mark(&o, true, eval);
    assert_int_equal(n_train + n_eval, N);
    assert_in_range(n_eval, 70, 130); /* three standard deviations of 1000 draws */
    for (int64_t i = 0; i < N; i++)
        assert_true(train[i] != eval[i]);
    text = letters(2 * N, "{\"id\": 7, \"text\": \"%d\"}\n"); /* keys that have no meaning do not matter */
    o = support_options(f, "more.jsonl", text);
    free(text);
    o.held_out = 0.1;
    mark(&o, true, later);
    for (int64_t i = 0; i < N; i++)
        assert_true(later[i] == eval[i]);
}

static void a_number_of_rows_is_held_out_over_all_files(void **state)
{
    fixture *f = *state;
    bool train[2 * N], eval[2 * N], later[2 * N];
    dataset_options o = support_options(f, "a.jsonl", "");
    char *text = letters(N, "{\"text\": \"%d\"}\n");
    free(support_write(f, "a.jsonl", text));
    free(text);
    free(support_write(f, "b.jsonl", "{\"text\": \"1500\"}\n{\"text\": \"1501\"}\n"));
    o.base_dir = f->dir;
    o.source = support_json(f, "[\"a.jsonl\", {\"path\": \"b.jsonl\", \"weight\": 2}]");
    o.held_out = 50;
    assert_int_equal(mark(&o, true, eval), 50);
    assert_int_equal(mark(&o, false, train), N + 2 - 50);
    for (int64_t i = 0; i < 2 * N; i++)
        assert_false(train[i] && eval[i]);
    o.source = support_json(f, "[\"a.jsonl\", \"b.jsonl\"]");
    free(support_write(f, "b.jsonl", "{\"text\": \"1500\"}\n{\"text\": \"1501\"}\n{\"text\": \"1502\"}\n"));
    mark(&o, true, later);
    int64_t moved = 0;
    for (int64_t i = 0; i < N; i++) {
        assert_false(later[i] && train[i]); /* no row that was trained on is evaluated on */
        moved += eval[i] && !later[i];
    }
    assert_in_range(moved, 0, 1);
    o.held_out = 2000;
    dataset *d;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_CONFIG, "data.eval: 2000 rows would leave none");
}

static void equal_rows_are_on_one_side(void **state)
{
    fixture *f = *state;
    bool train[2 * N], eval[2 * N];
    dataset_options o = support_options(f, "t.jsonl", "");
    buffer b = {0};
    for (int i = 0; i < N; i++)
        buffer_print(&b, "{\"id\": %d, \"text\": \"%d\"}\n", i, i % 40);
    free(support_write(f, "t.jsonl", b.text));
    buffer_free(&b);
    o.held_out = 0.3;
    assert_int_equal(mark(&o, false, train) + mark(&o, true, eval), N);
    for (int64_t i = 0; i < 40; i++)
        assert_true(train[i] != eval[i]);
}

static void limit_takes_rows_from_everywhere_and_apart_from_the_split(void **state)
{
    fixture *f = *state;
    bool all[2 * N], eval[2 * N], held[2 * N];
    char *text = letters(N, "{\"text\": \"%d\"}\n");
    dataset_options o = support_options(f, "t.jsonl", text);
    const nrl_node *whole = o.source;
    free(text);
    o.base_dir = f->dir;
    o.source = support_json(f, "{\"path\": \"t.jsonl\", \"limit\": 200}");
    assert_int_equal(mark(&o, false, all), 200);
    int64_t late = 0;
    for (int64_t i = N / 2; i < N; i++)
        late += all[i];
    assert_in_range(late, 70, 130);
    o.held_out = 0.5;
    assert_in_range(mark(&o, true, eval), 70, 130);
    o.source = whole;
    mark(&o, true, held);
    for (int64_t i = 0; i < N; i++)
        assert_true(eval[i] == (all[i] && held[i]));
    o.held_out = 0;
    o.source = support_json(f, "{\"path\": \"t.jsonl\", \"limit\": 5000}");
    assert_int_equal(mark(&o, false, all), N);
    o.source = support_json(f, "{\"path\": \"t.jsonl\", \"limit\": 10, \"rows\": \"100:120\"}");
    assert_int_equal(mark(&o, false, all), 10);
    for (int64_t i = 0; i < N; i++)
        assert_true(!all[i] || (i >= 100 && i < 120));
}

static void slices_and_splits_have_their_own_caches_and_hashes(void **state)
{
    static const char *const sources[] = {"{\"path\": \"t.jsonl\"}", "{\"path\": \"t.jsonl\", \"rows\": \"0:500\"}",
                                          "{\"path\": \"t.jsonl\", \"limit\": 500}",
                                          "{\"path\": \"t.jsonl\", \"columns\": {\"text\": \"text\"}}",
                                          "{\"path\": \"t.jsonl\", \"template\": \"plain\"}"};
    enum { N_SOURCES = sizeof sources / sizeof *sources };
    fixture *f = *state;
    char *text = letters(N, "{\"text\": \"%d\"}\n"), *hash[2 * N_SOURCES];
    dataset_options o = support_options(f, "t.jsonl", text);
    free(text);
    o.base_dir = f->dir;
    o.cache_dir = f->dir;
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < 2 * N_SOURCES; i++) {
            o.source = support_json(f, sources[i / 2]);
            o.held_out = i % 2 ? 0.1 : 0;
            dataset *d = support_open(&o);
            assert_int_equal(dataset_info(d)->from_cache, again);
            if (!again) hash[i] = mem_strdup(dataset_part_at(d, 0).hash);
            assert_string_equal(dataset_part_at(d, 0).hash, hash[i]);
            for (int k = 0; k < i; k++)
                assert_string_not_equal(hash[k], hash[i]);
            dataset_close(d);
        }
    for (int i = 0; i < 2 * N_SOURCES; i++)
        free(hash[i]);
}

static void each_entry_has_columns_and_a_template(void **state)
{
    fixture *f = *state;
    dataset_options o = support_options(f, "a.jsonl", "{\"question\": \"x\", \"answer\": \"1\"}\n");
    free(support_write(f, "b.jsonl",
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": "
                       "\"assistant\", \"content\": \"a\"}]}\n"));
    o.base_dir = f->dir;
    o.source = support_json(f, "[{\"path\": \"a.jsonl\", \"columns\": {\"prompt\": \"question\", \"completion\": "
                               "\"answer\"}}, {\"path\": \"b.jsonl\", \"template\": \"plain\"}, \"b.jsonl\"]");
    dataset *d = support_open(&o);
    assert_int_equal(dataset_info(d)->n_examples, 3);
    assert_int_equal(dataset_example_tokens(d, 0), 4);
    assert_true(dataset_example_tokens(d, 1) < dataset_example_tokens(d, 2));
    dataset_close(d);
    o.source = support_json(f, "{\"path\": \"a.jsonl\", \"columns\": {\"promt\": \"question\"}}");
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_CONFIG, "test: data.columns: ");
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_CONFIG, "data.columns: 'promt' is not a key of a row format");
    o.source = support_json(f, "{\"path\": \"b.jsonl\", \"template\": \"plane\"}");
    assert_int_equal(dataset_open(&o, &d), NRL_ERR_CONFIG);
}

/* A row of n tokens, of which those from `trained` on are trained, in pieces of `size`: each target is trained in one
 * piece, with the token before it. */
static void check_split(fixture *f, int64_t n, int64_t trained, int64_t size)
{
    buffer b = {0};
    for (int list = 0; list < 2; list++) {
        buffer_puts(&b, list ? "], \"labels\": [" : "{\"input_ids\": [");
        for (int64_t i = 0; i < n; i++)
            buffer_print(&b, "%s%d", i ? ", " : "", list && i < trained ? -100 : (int)(i + 1));
    }
    buffer_puts(&b, "]}\n");
    dataset_options o = support_options(f, "t.jsonl", b.text);
    buffer_free(&b);
    o.max_length = size;
    o.overlong = DATA_OVERLONG_SPLIT;
    dataset *d = support_open(&o);
    int64_t next = trained > 1 ? trained : 1, total = 0; /* the first token is no target */
    for (int64_t e = 0; e < dataset_info(d)->n_examples; e++) {
        const int32_t *tokens;
        const uint8_t *marks;
        int64_t length = dataset_segment(d, e, 0, &tokens, &marks);
        assert_in_range(length, 2, size);
        assert_false(marks[0]);
        for (int64_t t = 1; t < length; t++) {
            assert_int_equal(tokens[t], tokens[t - 1] + 1);
            if (marks[t]) assert_int_equal(tokens[t], next++ + 1);
        }
        total += length;
    }
    assert_int_equal(next, n);
    assert_int_equal(dataset_info(d)->tokens, total);
    assert_int_equal(dataset_info(d)->trained_tokens, n - (trained > 1 ? trained : 1));
    assert_int_equal(dataset_info(d)->n_examples, dataset_info(d)->n_examples);
    assert_int_equal(dataset_info(d)->rows, 1);
    assert_int_equal(dataset_info(d)->split, n > size);
    dataset_close(d);
}

static void a_long_row_is_split_and_each_target_trained_once(void **state)
{
    for (int64_t n = 2; n < 24; n++)
        for (int64_t trained = 0; trained < n; trained += 3)
            for (int64_t size = 2; size < 12; size += 3)
                check_split(*state, n, trained, size);
}

static void pairs_are_not_split(void **state)
{
    dataset_options o = support_options(*state, "t.jsonl", "{\"chosen\": \"a b\", \"rejected\": \"a c\"}\n");
    dataset *d;
    o.pairs = true;
    o.overlong = DATA_OVERLONG_SPLIT;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_CONFIG, "data.overlong: split is not supported by this algorithm");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_are_a_slice_with_negative_and_open_ends),
        TEST(rows_count_through_the_files_of_a_directory),
        TEST(rows_outside_of_a_slice_are_not_tokenized),
        TEST(malformed_rows_are_config_errors),
        TEST(a_share_is_held_out_and_stays_so_when_rows_are_added),
        TEST(a_number_of_rows_is_held_out_over_all_files),
        TEST(equal_rows_are_on_one_side),
        TEST(limit_takes_rows_from_everywhere_and_apart_from_the_split),
        TEST(slices_and_splits_have_their_own_caches_and_hashes),
        TEST(each_entry_has_columns_and_a_template),
        TEST(a_long_row_is_split_and_each_target_trained_once),
        TEST(pairs_are_not_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
