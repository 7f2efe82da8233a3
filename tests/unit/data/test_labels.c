/*
 * test_labels.c - rows of unpaired preferences: the positions of the label, the message that it
 * refers to, and the second side that joins a prompt with the answer of the next row.
 */
#include "support/batch_check.h"
#include "data/data.h"
#include "unit/data/support.h"

enum { N = 300, VOCABULARY = 1000 };

static dataset_options label_options(fixture *f, const char *rows, bool kl_pairs)
{
    dataset_options o = support_options(f, "rows.jsonl", rows);
    o.labels = true;
    o.kl_pairs = kl_pairs;
    return o;
}

static dataset *open_rows(fixture *f, const char *rows, bool kl_pairs)
{
    dataset_options o = label_options(f, rows, kl_pairs);
    return support_open(&o);
}

/* A side as text; trained tokens in brackets, BOS as <, EOS as >, the rest of chatml as |. */
static const char *side_text(fixture *f, const dataset *d, int64_t example, int side)
{
    const int32_t *tokens;
    const uint8_t *trained;
    buffer b = {0};
    int64_t n = dataset_segment(d, example, side, &tokens, &trained);
    for (int64_t i = 0; i < n; i++) {
        if (trained[i] && !(i && trained[i - 1])) buffer_puts(&b, "[");
        char c = tokens[i] == SUPPORT_BOS   ? '<'
                 : tokens[i] == SUPPORT_EOS ? '>'
                 : tokens[i] > SUPPORT_EOS  ? '|'
                                            : (char)tokens[i];
        buffer_add(&b, &c, 1);
        if (trained[i] && !(i + 1 < n && trained[i + 1])) buffer_puts(&b, "]");
    }
    const char *text = arena_strdup(&f->memory, b.text);
    buffer_free(&b);
    return text;
}

static void expect_side(fixture *f, const dataset *d, int64_t example, int side, const char *text)
{
    assert_string_equal(side_text(f, d, example, side), text);
}

/* ---- rows ---- */

static void labels_stand_in_rows_of_every_kind(void **state)
{
    static const struct {
        const char *rows, *format, *text;
    } kinds[] = {
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n"
         "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": false}\n",
         "prompt/completion", "<a[b>]"},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"kto_tag\": true}\n"
         "{\"prompt\": \"a\", \"completion\": \"b\", \"kto_tag\": false}\n",
         "prompt/completion", "<a[b>]"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
         "\"content\": \"b\"}], \"label\": true}\n"
         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
         "\"content\": \"b\"}], \"label\": false}\n",
         "messages", "<|user\na|\n|assistant\n[b|]\n"},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
         "\"value\": \"b\"}], \"kto_tag\": true}\n"
         "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
         "\"value\": \"b\"}], \"kto_tag\": false}\n",
         "ShareGPT", "<|user\na|\n|assistant\n[b|]\n"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"kto_tag\": true}\n"
         "{\"instruction\": \"a\", \"output\": \"b\", \"kto_tag\": false}\n",
         "Alpaca", "<|user\na|\n|assistant\n[b|]\n"},
        {"{\"input_ids\": [97, 98], \"labels\": [-100, 98], \"label\": true}\n"
         "{\"input_ids\": [97, 98], \"labels\": [-100, 98], \"label\": false}\n",
         "pre-tokenized", "a[b]"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        dataset *d = open_rows(f, kinds[i].rows, false);
        assert_string_equal(dataset_info(d)->format, kinds[i].format);
        assert_int_equal(dataset_info(d)->n_examples, 2);
        assert_int_equal(dataset_info(d)->n_sides, 1);
        assert_string_equal(dataset_info(d)->extra[0], "label");
        assert_true(dataset_extra(d, 0, 0) == 1 && dataset_extra(d, 1, 0) == 0);
        expect_side(f, d, 0, 0, kinds[i].text);
        dataset_close(d);
    }
}

static void a_label_is_of_the_last_message_alone(void **state)
{
    fixture *f = *state;
    dataset_options o =
        label_options(f,
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                      "\"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
                      "\"content\": \"d\"}], \"good\": true, \"score\": 2.5}\n",
                      false);
    o.train_on_all = true; /* of samples without a label */
    o.columns = support_json(f, "{\"label\": \"good\"}");
    o.extra = support_json(f, "[\"score\"]");
    dataset *d = support_open(&o);
    expect_side(f, d, 0, 0, "<|user\na|\n|assistant\nb|\n|user\nc|\n|assistant\n[d|]\n");
    assert_int_equal(dataset_info(d)->n_extra, 2);
    assert_true(dataset_extra(d, 0, 0) == 2.5f && dataset_extra(d, 0, 1) == 1);
    dataset_close(d);
}

static void labels_fail(void **state, const char *rows, const char *text)
{
    fixture *f = *state;
    dataset_options o = label_options(f, rows, true);
    dataset *d;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, text);
}

static void rows_that_a_label_cannot_be_of_are_refused(void **state)
{
    static const char good[] = "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n";
    fixture *f = *state;
    labels_fail(state, "{\"prompt\": \"a\", \"completion\": \"b\"}\n",
                "rows.jsonl:1: no key 'label' or 'kto_tag': expected true");
    labels_fail(state,
                arena_printf(&f->memory, "%s%s", good, "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": 1}\n"),
                "rows.jsonl:2: key 'label': expected true or false, found ");
    labels_fail(state,
                arena_printf(&f->memory, "%s%s", good, "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": null}\n"),
                "rows.jsonl:2: no key 'label'");
    labels_fail(state, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"label\": true}\n",
                "rows.jsonl:1: the last message is from 'user'; a label requires a message of the assistant");
    labels_fail(state, "{\"text\": \"a\", \"label\": true}\n", "and label or kto_tag");
    labels_fail(state, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n",
                "rows.jsonl:1: a row of a pair (prompt/chosen/rejected), but the algorithm learns "
                "from single answers with a label");
}

static void the_label_is_read_once(void **state)
{
    fixture *f = *state;
    dataset_options o = label_options(f, "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n", false);
    dataset *d;
    o.extra = support_json(f, "[\"label\"]");
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_CONFIG, "the algorithm already reads 'label'");
}

static void other_algorithms_refuse_labels(void **state)
{
    static const char *const rows[] = {
        "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
        "\"value\": \"b\"}], \"kto_tag\": false}\n"};
    fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        dataset_options o = support_options(f, "rows.jsonl", rows[i]);
        dataset *d;
        ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "algorithm: kto reads labels");
    }
}

/* ---- kl_pairs sides ---- */

static const char three[] = "{\"prompt\": \"ab\", \"completion\": \"cd\", \"label\": true}\n"
                            "{\"prompt\": \"e\", \"completion\": \"fgh\", \"label\": false}\n"
                            "{\"prompt\": \"\", \"completion\": \"i\", \"label\": true}\n";

static void a_prompt_meets_the_next_row_s_answer(void **state)
{
    static const char *const sides[3][2] = {{"<ab[cd>]", "<ab[fgh>]"}, {"<e[fgh>]", "<e[i>]"}, {"<[i>]", "<[cd>]"}};
    fixture *f = *state;
    dataset *d = open_rows(f, three, true);
    assert_int_equal(dataset_info(d)->n_sides, 2);
    assert_false(dataset_info(d)->has_pairs);
    for (int64_t i = 0; i < 3; i++) {
        char place[512];
        for (int side = 0; side < 2; side++)
            expect_side(f, d, i, side, sides[i][side]);
        assert_true(dataset_extra(d, i, 0) == (i != 1));
        ASSERT_OK(dataset_verify(d, i));
        dataset_place(d, i, place, sizeof place);
        assert_non_null(strstr(place, arena_printf(&f->memory, "rows.jsonl:%d", (int)i + 1)));
    }
    dataset_close(d);
}

static void a_mismatched_side_is_cut_to_the_limit(void **state)
{
    fixture *f = *state;
    dataset_options o = label_options(f, three, true);
    o.max_length = 6;
    dataset *d = support_open(&o);
    expect_side(f, d, 0, 1, "<ab[fgh]");
    expect_side(f, d, 1, 1, "<e[i>]");
    dataset_close(d);
}

static void a_row_alone_meets_itself(void **state)
{
    fixture *f = *state;
    dataset *d = open_rows(f, "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n", true);
    expect_side(f, d, 0, 0, "<a[b>]");
    expect_side(f, d, 0, 1, "<a[b>]");
    dataset_close(d);
}

/* Rows omitted have no answer to lend. */
static void rows_that_are_left_out_are_no_neighbours(void **state)
{
    fixture *f = *state;
    dataset *d = open_rows(f,
                           "{\"prompt\": \"\", \"completion\": \"\", \"label\": true}\n"
                           "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n"
                           "{\"prompt\": \"c\", \"completion\": \"\", \"label\": true}\n"
                           "{\"prompt\": \"d\", \"completion\": \"e\", \"label\": false}\n",
                           true);
    assert_int_equal(dataset_info(d)->n_examples, 2);
    expect_side(f, d, 0, 1, "<a[e>]");
    expect_side(f, d, 1, 1, "<d[b>]");
    dataset_close(d);
}

static const char *many_rows(fixture *f)
{
    buffer b = {0};
    for (int i = 0; i < N; i++)
        buffer_print(&b, "{\"prompt\": \"%.*s\", \"completion\": \"%d\", \"label\": %s}\n", i % 7, "abcdefg", i,
                     i % 3 ? "true" : "false");
    const char *rows = arena_strdup(&f->memory, b.text);
    buffer_free(&b);
    return rows;
}

static void workers_and_caches_do_not_change_the_sides(void **state)
{
    fixture *f = *state;
    dataset_options o = label_options(f, many_rows(f), true);
    dataset *one = support_open(&o);
    o.workers = 4;
    o.cache_dir = arena_printf(&f->memory, "%s/cache", f->dir);
    for (int again = 0; again < 2; again++) {
        dataset *d = support_open(&o);
        assert_int_equal(dataset_info(d)->from_cache, again);
        assert_string_equal(dataset_info(d)->hash, dataset_info(one)->hash);
        for (int64_t i = 0; i < N; i++) {
            const char *answer = arena_printf(&f->memory, "[%d>]", (int)((i + 1) % N));
            assert_non_null(strstr(side_text(f, d, i, 1), answer));
            for (int side = 0; side < 2; side++)
                assert_string_equal(side_text(f, d, i, side), side_text(f, one, i, side));
        }
        dataset_close(d);
    }
    o.kl_pairs = false; /* another file */
    dataset *d = support_open(&o);
    assert_false(dataset_info(d)->from_cache);
    assert_string_not_equal(dataset_info(d)->hash, dataset_info(one)->hash);
    dataset_close(d);
    dataset_close(one);
}

/* ---- batches ---- */

static void a_batch_has_labels_and_both_sides(void **state)
{
    static const int64_t examples[] = {2, 0, 1};
    fixture *f = *state;
    dataset_options o = label_options(f, three, true);
    for (int sharing = 0; sharing < 2; sharing++) {
        nrl_batch *b = NULL;
        o.prefix_sharing = sharing;
        dataset *d = support_open(&o);
        ASSERT_OK(data_assemble(d, examples, 3, false, &b));
        ASSERT_OK(batch_check(b, VOCABULARY));
        assert_int_equal(b->n_segments, 6);
        assert_int_equal(b->n_prompts, sharing ? 3 : 0);
        assert_true(nrl_batch_count(b, "examples") == 3 && nrl_batch_count(b, "desirable") == 2);
        assert_true(nrl_batch_count(b, "tokens") == 3 + 4 + 6 + 7 + 6 + 4);
        for (int64_t s = 0; s < 6; s++) {
            assert_int_equal(b->segment_side[s], s % 2);
            assert_true(b->extra[0].values[s] == (examples[s / 2] != 1));
        }
        batch_free(b);
        dataset_close(d);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(labels_stand_in_rows_of_every_kind),
        TEST(a_label_is_of_the_last_message_alone),
        TEST(rows_that_a_label_cannot_be_of_are_refused),
        TEST(the_label_is_read_once),
        TEST(other_algorithms_refuse_labels),
        TEST(a_prompt_meets_the_next_row_s_answer),
        TEST(a_mismatched_side_is_cut_to_the_limit),
        TEST(a_row_alone_meets_itself),
        TEST(rows_that_are_left_out_are_no_neighbours),
        TEST(workers_and_caches_do_not_change_the_sides),
        TEST(a_batch_has_labels_and_both_sides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
