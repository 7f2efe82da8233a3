/*
 * test_formats.c - each format of rows: its tokens, those that are trained, and those that are
 * skipped. Samples are compared as text with the trained tokens between brackets.
 */
#include "unit/data/support.h"

#define L "\xE2\x9F\xA6"
#define R "\xE2\x9F\xA7"
#define USER(t) "<|im_start|>user\n" t "<|im_end|>\n"
#define SYSTEM(t) "<|im_start|>system\n" t "<|im_end|>\n"
#define ASSISTANT(t) "<|im_start|>assistant\n" L t "<|im_end|>" R "\n"
#define UNTRAINED(t) "<|im_start|>assistant\n" t "<|im_end|>\n"

static void check(fixture *f, dataset_options o, const char *format, const char *expected)
{
    dataset *d = support_open(&o);
    char *text = dataset_sample_text(d, 0, f->tok);
    assert_string_equal(text, expected);
    assert_string_equal(dataset_info(d)->format, format);
    free(text);
    dataset_close(d);
}

static void check_row(void **state, const char *row, const char *format, const char *expected)
{
    check(*state, support_options(*state, "data.jsonl", row), format, expected);
}

static void check_pair(void **state, const char *row, const char *format, const char *expected)
{
    dataset_options o = support_options(*state, "data.jsonl", row);
    o.pairs = true;
    check(*state, o, format, expected);
}

static void a_text_is_trained_whole_between_bos_and_eos(void **state)
{
    check_row(state, "{\"text\": \"abc\"}\n", "text", "<s>" L "abc</s>" R);
}

static void bos_and_eos_in_the_text_are_not_doubled(void **state)
{
    check_row(state, "{\"text\": \"<s>abc</s>\"}\n", "text", "<s>" L "abc</s>" R);
}

static void a_completion_is_trained_and_its_prompt_is_not(void **state)
{
    check_row(state, "{\"prompt\": \"ab\", \"completion\": \" cd\"}\n", "prompt/completion", "<s>ab" L " cd</s>" R);
}

static void a_prompt_of_messages_goes_through_the_template(void **state)
{
    check_row(state,
              "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\","
              "\"content\": \"old\"}, {\"role\": \"user\", \"content\": \"r\"}],"
              "\"completion\": [{\"role\": \"assistant\", \"content\": \"new\"}]}\n",
              "prompt/completion", "<s>" USER("q") UNTRAINED("old") USER("r") ASSISTANT("new"));
}

static void every_assistant_turn_of_messages_is_trained(void **state)
{
    check_row(state,
              "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\","
              "\"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\","
              "\"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n",
              "messages", "<s>" SYSTEM("s") USER("q") ASSISTANT("a") USER("r") ASSISTANT("b"));
}

static void content_in_parts_is_joined(void **state)
{
    check_row(state,
              "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\"},"
              "{\"type\": \"text\", \"value\": \"y\"}]}, {\"role\": \"assistant\", \"content\": \"z\"}]}",
              "messages", "<s>" USER("xy") ASSISTANT("z"));
}

static void sharegpt_names_of_roles_are_known(void **state)
{
    check_row(state,
              "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\","
              "\"value\": \"a\"}], \"system\": \"s\"}\n",
              "ShareGPT", "<s>" SYSTEM("s") USER("q") ASSISTANT("a"));
}

static void alpaca_rows_become_a_conversation(void **state)
{
    check_row(state,
              "{\"instruction\": \"do\", \"input\": \"this\", \"output\": \"done\", \"system\": null,"
              "\"history\": [[\"q\", \"a\"]]}\n",
              "Alpaca", "<s>" USER("q") ASSISTANT("a") USER("do\nthis") ASSISTANT("done"));
}

static void labels_of_minus_100_are_not_trained(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl",
                                        "{\"input_ids\": [97, 98, 99, 100],"
                                        "\"labels\": [97, -100, 99, -100]}\n");
    check(*state, o, "pre-tokenized", "ab" L "c" R "d"); /* the first token never is a target */
}

static void pre_tokenized_rows_need_no_tokenizer(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl", "{\"input_ids\": [1, 2, 3]}\n");
    o.tokenizer = NULL;
    dataset *d = support_open(&o);
    char *text = dataset_sample_text(d, 0, NULL);
    assert_string_equal(text, "1" L " 2 3" R);
    free(text);
    dataset_close(d);
}

static void a_pair_trains_both_answers_behind_one_prompt(void **state)
{
    check_pair(state, "{\"prompt\": \"p\", \"chosen\": \" yes\", \"rejected\": \" no\"}\n", "prompt/chosen/rejected",
               "chosen: <s>p" L " yes</s>" R "\nrejected: <s>p" L " no</s>" R);
}

static void a_pair_without_prompt_shares_its_longest_transcript(void **state)
{
    check_pair(state,
               "{\"chosen\": \"\\n\\nHuman: q\\n\\nAssistant: I do\","
               "\"rejected\": \"\\n\\nHuman: q\\n\\nAssistant: I go\"}\n",
               "chosen/rejected",
               "chosen: <s>\n\nHuman: q\n\nAssistant:" L " I do</s>" R "\nrejected: <s>\n\nHuman: q\n\nAssistant:" L
               " I go</s>" R);
}

static void a_shared_text_is_cut_before_the_word_that_differs(void **state)
{
    check_pair(state, "{\"chosen\": \"one two three\", \"rejected\": \"one two thirty\"}\n", "chosen/rejected",
               "chosen: <s>one two" L " three</s>" R "\nrejected: <s>one two" L " thirty</s>" R);
}

static void conversations_of_a_pair_share_messages(void **state)
{
    check_pair(state,
               "{\"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\","
               "\"content\": \"y\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"q\"},"
               "{\"role\": \"assistant\", \"content\": \"n\"}]}\n",
               "chosen/rejected", "chosen: <s>" USER("q") ASSISTANT("y") "\nrejected: <s>" USER("q") ASSISTANT("n"));
}

static void preference_rows_of_conversations_are_read(void **state)
{
    check_pair(state,
               "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}],"
               "\"chosen\": {\"from\": \"gpt\", \"value\": \"y\"},"
               "\"rejected\": {\"from\": \"gpt\", \"value\": \"n\"}}\n",
               "conversations/chosen/rejected",
               "chosen: <s>" USER("q") ASSISTANT("y") "\nrejected: <s>" USER("q") ASSISTANT("n"));
}

static void preference_rows_of_openai_are_read(void **state)
{
    check_pair(state,
               "{\"input\": {\"messages\": [{\"role\": \"user\", \"content\": \"q\"}], \"tools\": []},"
               "\"preferred_output\": [{\"role\": \"assistant\", \"content\": \"y\"}],"
               "\"non_preferred_output\": [{\"role\": \"assistant\", \"content\": \"n\"}]}\n",
               "OpenAI preferences", "chosen: <s>" USER("q") ASSISTANT("y") "\nrejected: <s>" USER("q") ASSISTANT("n"));
}

static void a_text_prompt_repeated_in_the_answers_stands_once(void **state)
{
    check_pair(state,
               "{\"prompt\": \"q\", \"chosen\": [{\"role\": \"user\", \"content\": \"q\"},"
               "{\"role\": \"assistant\", \"content\": \"y\"}], \"rejected\": [{\"role\": \"user\","
               "\"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"n\"}]}\n",
               "prompt/chosen/rejected",
               "chosen: <s>" USER("q") ASSISTANT("y") "\nrejected: <s>" USER("q") ASSISTANT("n"));
}

static void a_text_prompt_beside_whole_conversations_is_ignored(void **state)
{
#define WHOLE(answer)                                                                                                  \
    "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"q\"},"                           \
    "{\"role\": \"assistant\", \"content\": \"" answer "\"}]"
    check_pair(state, "{\"prompt\": \"q \", \"chosen\": " WHOLE("y") ", \"rejected\": " WHOLE("n") "}\n",
               "prompt/chosen/rejected",
               "chosen: <s>" SYSTEM("s") USER("q") ASSISTANT("y") "\nrejected: <s>" SYSTEM("s") USER("q")
                   ASSISTANT("n"));
    dataset_options o = support_options(
        *state, "data.jsonl",
        "{\"prompt\": \"q\", \"chosen\": " WHOLE("y") ", \"rejected\": "
                                                      "[{\"role\": \"assistant\", \"content\": \"n\"}]}\n");
    dataset *d;
    o.pairs = true;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA,
                 "'chosen' begins with a message of 'system' and 'rejected' with one of 'assistant'");
}

static void pre_tokenized_pairs_are_read(void **state)
{
    check_pair(state,
               "{\"prompt_input_ids\": [97, 98], \"chosen_input_ids\": [99],"
               "\"rejected_input_ids\": [100, 101]}\n",
               "pre-tokenized pairs", "chosen: ab" L "c" R "\nrejected: ab" L "de" R);
}

static void train_on_all_trains_prompts_but_not_those_of_pairs(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n");
    o.train_on_all = true;
    check(*state, o, "prompt/completion", "<s>" L "abcd</s>" R);
    o = support_options(*state, "data.jsonl", "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"d\"}\n");
    o.train_on_all = o.pairs = true;
    check(*state, o, "prompt/chosen/rejected", "chosen: <s>ab" L "c</s>" R "\nrejected: <s>ab" L "d</s>" R);
}

static void columns_rename_keys(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl", "{\"question\": \"ab\", \"answer\": \"cd\"}\n");
    o.columns = support_json(*state, "{\"prompt\": \"question\", \"completion\": \"answer\"}");
    check(*state, o, "prompt/completion", "<s>ab" L "cd</s>" R);
}

static void the_chosen_answers_of_pairs_can_be_trained_alone(void **state)
{
    dataset_options o =
        support_options(*state, "data.jsonl", "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"d\"}");
    o.columns = support_json(*state, "{\"completion\": \"chosen\"}");
    check(*state, o, "prompt/completion", "<s>ab" L "c</s>" R);
}

static void extra_keys_are_one_number_a_sample(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl",
                                        "{\"text\": \"a\", \"score\": 1.5, \"good\": true}\n"
                                        "{\"text\": \"b\", \"score\": -2, \"good\": false}\n");
    o.extra = support_json(*state, "[\"score\", \"good\"]");
    dataset *d = support_open(&o);
    assert_int_equal(dataset_info(d)->n_extra, 2);
    assert_string_equal(dataset_info(d)->extra[1], "good");
    assert_true(dataset_extra(d, 0, 0) == 1.5f && dataset_extra(d, 0, 1) == 1);
    assert_true(dataset_extra(d, 1, 0) == -2 && dataset_extra(d, 1, 1) == 0);
    dataset_close(d);
}

static void a_json_array_crlf_and_a_byte_order_mark_are_accepted(void **state)
{
    check_row(state, "[\n  {\"text\": \"a]},{\\\"\"},\n  {\"text\": \"b\"}\n]\n", "text", "<s>" L "a]},{\"</s>" R);
    check_row(state, "\xEF\xBB\xBF{\"text\": \"a\"}\r\n\r\n{\"text\": \"b\"}\r\n", "text", "<s>" L "a</s>" R);
}

static void what_is_left_out_is_counted(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl",
                                        "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                                        "{\"prompt\": \"a\", \"completion\": \"\"}\n"
                                        "{\"prompt\": \"aaaaaaaa\", \"completion\": \"b\"}\n"
                                        "{\"prompt\": \"aaa\", \"completion\": \"bbbbbbbb\"}\n");
    o.max_length = 6;
    o.overlong = DATA_OVERLONG_DROP;
    dataset *d = support_open(&o);
    const dataset_report *r = dataset_info(d);
    assert_int_equal(r->rows, 4);
    assert_int_equal(r->n_examples, 1);
    assert_int_equal(r->empty, 1);
    assert_int_equal(r->dropped_overlong, 2);
    dataset_close(d);
    o.overlong = DATA_OVERLONG_TRUNCATE;
    d = support_open(&o);
    r = dataset_info(d);
    assert_int_equal(r->n_examples, 2);
    assert_int_equal(r->truncated, 1);
    assert_int_equal(r->untrainable, 1); /* nothing but prompt was left of it */
    assert_int_equal(r->tokens, 4 + 6);
    assert_int_equal(r->trained_tokens, 2 + 2);
    assert_int_equal(r->min_length, 4);
    assert_int_equal(r->max_length, 6);
    assert_int_equal(r->histogram[2], 2);
    dataset_close(d);
}

static void identical_answers_are_counted_and_empty_ones_left_out(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl",
                                        "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}\n"
                                        "{\"prompt\": \"a\", \"chosen\": \"\", \"rejected\": \"b\"}\n"
                                        "{\"prompt\": \"a\", \"chosen\": \"c\", \"rejected\": \"b\"}\n");
    o.pairs = true;
    dataset *d = support_open(&o);
    assert_int_equal(dataset_info(d)->identical, 1);
    assert_int_equal(dataset_info(d)->empty, 1);
    assert_int_equal(dataset_info(d)->n_examples, 2);
    char place[200];
    dataset_place(d, 1, place, sizeof place);
    assert_non_null(strstr(place, "data.jsonl:3"));
    dataset_close(d);
}

/* Other keys of a message are part of it, and a null is as good as none. */
static void answers_may_differ_in_other_keys(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl",
                                        "{\"chosen\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                                        "\"assistant\", \"thought\": \"x\", \"content\": "
                                        "\"b\"}], \"rejected\": [{\"role\": \"user\", \"name\": null, \"content\": "
                                        "\"a\"}, {\"role\": \"assistant\", \"thought\": "
                                        "\"y\", \"content\": \"b\"}]}\n");
    o.pairs = true;
    dataset *d = support_open(&o);
    assert_int_equal(dataset_info(d)->identical, 0);
    assert_int_equal(dataset_info(d)->empty, 0);
    assert_int_equal(dataset_info(d)->n_examples, 1);
    dataset_close(d);
}

static void overlong_pairs_are_dropped_whole(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl",
                                        "{\"prompt\": \"a\", \"chosen\": \"bbbbbbbb\", \"rejected\": \"b\"}\n"
                                        "{\"prompt\": \"a\", \"chosen\": \"c\", \"rejected\": \"b\"}\n");
    o.pairs = true;
    o.max_length = 5;
    o.overlong = DATA_OVERLONG_DROP;
    dataset *d = support_open(&o);
    assert_int_equal(dataset_info(d)->n_examples, 1);
    assert_int_equal(dataset_info(d)->dropped_overlong, 1);
    dataset_close(d);
}

/* What dataset_open says on stderr, malloc'd. */
static char *warnings_of(fixture *f, const dataset_options *o)
{
    char *path = mem_printf("%s/stderr", f->dir), *text;
    size_t size;
    fflush(stderr);
    int kept = dup(2);
    assert_non_null(freopen(path, "w", stderr));
    dataset *d = support_open(o);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    dataset_close(d);
    ASSERT_OK(file_read(path, 1 << 20, &text, &size));
    free(path);
    return text;
}

static void what_is_left_out_or_not_used_is_said_once(void **state)
{
    fixture *f = *state;
    dataset_options o = support_options(f, "data.jsonl",
                                        "{\"text\": \"a\", \"id\": 1}\n"
                                        "{\"text\": \"\", \"tag\": 2, \"id\": 2}\n"
                                        "{\"text\": \"\", \"id\": 3}\n");
    o.quiet = false;
    char *expected = mem_printf("warning: %s/data.jsonl: 2 of 3 rows are skipped: no text, or no "
                                "answer (first: line 2)\n"
                                "warning: %s/data.jsonl: keys that are not used: 'id', 'tag'\n",
                                f->dir, f->dir);
    char *text = warnings_of(f, &o);
    assert_string_equal(text, expected);
    free(text);
    free(expected);
}

static void texts_and_messages_may_stand_in_one_file(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl",
                                        "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
                                        "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}],"
                                        "\"completion\": [{\"role\": \"assistant\", \"content\": \"w\"}]}\n"
                                        "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    dataset *d = support_open(&o);
    assert_int_equal(dataset_info(d)->n_examples, 3);
    assert_int_equal(dataset_example_tokens(d, 0), dataset_example_tokens(d, 2));
    dataset_close(d);
}

static void many_workers_keep_the_order_of_rows(void **state)
{
    buffer rows = {0};
    for (int i = 0; i < 5000; i++)
        buffer_print(&rows, "{\"input_ids\": [%d, %d]}\n", i, i / 2);
    dataset_options o = support_options(*state, "data.jsonl", rows.text);
    buffer_free(&rows);
    o.workers = 4;
    dataset *d = support_open(&o);
    assert_int_equal(dataset_info(d)->n_examples, 5000);
    for (int i = 0; i < 5000; i++) {
        const int32_t *tokens;
        const uint8_t *trained;
        assert_int_equal(dataset_segment(d, i, 0, &tokens, &trained), 2);
        assert_int_equal(tokens[0], i);
        assert_int_equal(tokens[1], i / 2);
    }
    dataset_close(d);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_text_is_trained_whole_between_bos_and_eos),
        TEST(bos_and_eos_in_the_text_are_not_doubled),
        TEST(a_completion_is_trained_and_its_prompt_is_not),
        TEST(a_prompt_of_messages_goes_through_the_template),
        TEST(every_assistant_turn_of_messages_is_trained),
        TEST(content_in_parts_is_joined),
        TEST(sharegpt_names_of_roles_are_known),
        TEST(alpaca_rows_become_a_conversation),
        TEST(labels_of_minus_100_are_not_trained),
        TEST(pre_tokenized_rows_need_no_tokenizer),
        TEST(a_pair_trains_both_answers_behind_one_prompt),
        TEST(a_pair_without_prompt_shares_its_longest_transcript),
        TEST(a_shared_text_is_cut_before_the_word_that_differs),
        TEST(conversations_of_a_pair_share_messages),
        TEST(preference_rows_of_conversations_are_read),
        TEST(preference_rows_of_openai_are_read),
        TEST(a_text_prompt_repeated_in_the_answers_stands_once),
        TEST(a_text_prompt_beside_whole_conversations_is_ignored),
        TEST(pre_tokenized_pairs_are_read),
        TEST(train_on_all_trains_prompts_but_not_those_of_pairs),
        TEST(columns_rename_keys),
        TEST(the_chosen_answers_of_pairs_can_be_trained_alone),
        TEST(extra_keys_are_one_number_a_sample),
        TEST(a_json_array_crlf_and_a_byte_order_mark_are_accepted),
        TEST(what_is_left_out_is_counted),
        TEST(identical_answers_are_counted_and_empty_ones_left_out),
        TEST(answers_may_differ_in_other_keys),
        TEST(overlong_pairs_are_dropped_whole),
        TEST(what_is_left_out_or_not_used_is_said_once),
        TEST(texts_and_messages_may_stand_in_one_file),
        TEST(many_workers_keep_the_order_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
