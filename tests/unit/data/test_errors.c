/*
 * test_errors.c - messages about data sets that cannot be used: position, fact, expectation.
 */
#include "unit/data/support.h"

static void fails(const dataset_options *o, nrl_status status, const char *text)
{
    dataset *d = NULL;
    ASSERT_FAILS(dataset_open(o, &d), status, text);
}

static void rows_fail(void **state, const char *rows, const char *text)
{
    dataset_options o = support_options(*state, "data.jsonl", rows);
    fails(&o, NRL_ERR_DATA, text);
}

static void pairs_fail(void **state, const char *rows, const char *text)
{
    dataset_options o = support_options(*state, "data.jsonl", rows);
    o.pairs = true;
    fails(&o, NRL_ERR_DATA, text);
}

static void a_cut_last_line_is_named(void **state)
{
    rows_fail(state, "{\"text\": \"a\"}\n{\"text\": \"b", "data.jsonl:2:");
    rows_fail(state, "{\"text\": \"a\"}\n{\"text\": \"b", "it may be truncated");
    rows_fail(state, "[{\"text\": \"a\"},\n{\"text\": \"b",
              "data.jsonl:2: the file ends inside its JSON array: it is truncated");
}

static void broken_json_is_named_with_line_and_column(void **state)
{
    rows_fail(
        state, "{\"text\": \"a\"}\n{\"text\": }\n",
        "data.jsonl:2:10: expected a value: text in double quotes, a number, true, false, null, '[' or '{', found '}'");
    rows_fail(state, "[{\"text\": \"a\"},\n  {\"text\": }]", "data.jsonl:2:12: expected a value");
    rows_fail(state, "[{\"text\": \"a\"} {\"text\": \"b\"}]", "data.jsonl:1:16: expected , or ] after a row");
    rows_fail(state, "[1]", "data.jsonl:1:2: expected a row: {...}");
    rows_fail(state, "[{\"text\": \"a\"}] x", "expected nothing after the JSON array");
    rows_fail(state, "hello\n", "data.jsonl:1:1: expected { (JSONL) or [ (a JSON array of rows)");
}

static void keys_that_lack_are_told_with_those_found(void **state)
{
    rows_fail(state, "{\"question\": \"a\", \"answer\": \"b\"}\n",
              "data.jsonl:1: no row format has these keys: question, answer; expected messages, or "
              "prompt and completion,");
    rows_fail(state, "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\", \"answer\": \"b\"}\n",
              "data.jsonl:2: no key 'completion', which every row of this file requires "
              "(prompt/completion, like the first row); found: prompt, answer");
}

static void wrong_types_are_named(void **state)
{
    rows_fail(state, "{\"text\": 5}\n", "data.jsonl:1: key 'text': expected text, found whole number");
    rows_fail(state, "{\"prompt\": \"a\", \"completion\": null}\n",
              "key 'completion': expected text or messages, found null");
    rows_fail(state, "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}\n",
              "data.jsonl:1: messages[0]: key 'content': expected text, found whole number");
    rows_fail(state, "{\"messages\": [{\"content\": \"a\"}]}\n", "messages[0]: key 'role', the role (");
    rows_fail(state, "{\"messages\": \"a\"}\n", "key 'messages': expected a list of messages, found text");
    rows_fail(state, "{\"input_ids\": [1, \"a\"]}\n", "ids[1]: expected a token id");
    rows_fail(state, "{\"input_ids\": [1, 2], \"labels\": [1]}\n", "labels has 1 entries and input_ids has 2");
    rows_fail(state, "{\"input_ids\": [1, 2], \"labels\": [1, 3]}\n",
              "labels[1] is neither -100 nor the token at this position (2)");
    rows_fail(state, "{\"input_ids\": [1, 2], \"attention_mask\": [1, 0]}\n",
              "attention_mask[1] is not 1: padded rows are not supported");
    dataset_options o =
        support_options(*state, "data.jsonl", "{\"input_ids\": [1, 2, 3], \"labels\": [-100, -100, 3]}\n");
    o.train_on_all = true;
    fails(&o, NRL_ERR_DATA, "labels[1] is -100, but data.train_on: all trains every token");
}

static void preference_rows_of_openai_are_complete(void **state)
{
    pairs_fail(state,
               "{\"input\": [], \"preferred_output\": [{\"role\": \"assistant\", \"content\": \"y\"}],"
               "\"non_preferred_output\": [{\"role\": \"assistant\", \"content\": \"n\"}]}\n",
               "data.jsonl:1: key 'input': expected a map with a list 'messages'");
    pairs_fail(state,
               "{\"input\": {\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}, \"preferred_output\": \"y\","
               "\"non_preferred_output\": \"n\"}\n",
               "data.jsonl:1: key 'preferred_output': expected a list of messages, found text");
}

static void pairs_and_single_samples_are_not_confused(void **state)
{
    rows_fail(state, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n",
              "a row of a pair (prompt/chosen/rejected), but the algorithm learns from single samples");
    pairs_fail(state, "{\"text\": \"a\"}\n", "a row of single samples (text), but the algorithm learns from pairs");
    rows_fail(state, "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n", "a labelled row");
}

static void an_empty_file_says_so(void **state)
{
    rows_fail(state, "", "data.jsonl: the file is empty, expected rows");
    rows_fail(state, "\n  \n", "data.jsonl: the file is empty, expected rows");
    rows_fail(state, "[]", "data.jsonl: the file contains no rows");
}

static void other_file_formats_are_recognised(void **state)
{
    rows_fail(state, "PAR1....", "data.jsonl: a Parquet file; expected JSONL or a JSON array");
    rows_fail(state, "\xFF\xFF\xFF\xFF....", "data.jsonl: an Arrow stream file; expected JSONL or a JSON array");
    rows_fail(state, "\x28\xB5\x2F\xFD....", "data.jsonl: cannot decompress zstd data near byte 0");
    dataset_options o = support_options(*state, "dataset_dict.json", "{\"splits\": [\"train\", \"test\"]}");
    fails(&o, NRL_ERR_DATA, "dataset_dict.json: a list of splits that save_to_disk of Hugging Face's datasets");
}

static void a_row_beyond_the_limit_is_named_and_not_read(void **state)
{
    fixture *f = *state;
    char *path = mem_printf("%s/long.jsonl", f->dir);
    size_t size = 50 << 20;
    char *text = malloc(size);
    memset(text, 'a', size);
    memcpy(text, "{\"text\": \"a\"}\n{\"text\": \"", 25);
    support_write_bytes(path, text, size);
    dataset_options o = {
        .host = test_host(), .source = node_string(&f->memory, path, strlen(path)), .tokenizer = f->tok, .quiet = true};
    fails(&o, NRL_ERR_DATA, "long.jsonl:2: a row of more than 16 MiB, the maximum");
    free(text);
    free(path);
}

static void nothing_to_train_is_an_error(void **state)
{
    rows_fail(state,
              "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n{\"input_ids\": [5]}\n"
              "{\"input_ids\": []}\n",
              "data.jsonl: none of 3 rows can be trained on: 1 without text or answer, 2 without a trained token");
}

static void ids_outside_the_vocabulary_are_named(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 300]}\n");
    o.vocab_size = 300;
    fails(&o, NRL_ERR_DATA, "data.jsonl:2: token 1 has id 300 (no text), outside the model's vocabulary of 300");
    o = support_options(*state, "data.jsonl", "{\"text\": \"a\"}\n");
    o.vocab_size = 257;
    fails(&o, NRL_ERR_DATA, "token 2 has id 257 (</s>), outside the model's vocabulary of 257");
    rows_fail(state, "{\"input_ids\": [1, -1]}\n", "ids[1]: expected a token id");
    rows_fail(state, "{\"input_ids\": [1, 4294967297]}\n", "ids[1]: expected a token id");
}

static void an_overlong_row_is_an_error_unless_said_otherwise(void **state)
{
    dataset_options o = support_options(*state, "data.jsonl", "{\"text\": \"a\"}\n{\"text\": \"abcdef\"}\n");
    o.max_length = 5;
    fails(&o, NRL_ERR_DATA, "data.jsonl:2: 8 tokens, but data.max_length is 5");
}

static void the_first_error_of_the_file_is_told_with_any_number_of_workers(void **state)
{
    buffer rows = {0};
    for (int i = 1; i <= 3000; i++)
        buffer_puts(&rows, i == 700 || i == 1800 ? "{\"text\": 1}\n" : "{\"text\": \"a\"}\n");
    buffer_puts(&rows, "{");
    dataset_options o = support_options(*state, "data.jsonl", rows.text);
    buffer_free(&rows);
    for (o.workers = 1; o.workers <= 4; o.workers++)
        fails(&o, NRL_ERR_DATA, "data.jsonl:700: key");
}

static void templates_and_tokenizers_that_lack_are_config_errors(void **state)
{
    const char *row = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
    dataset_options o = support_options(*state, "data.jsonl", row);
    support_template(&o, "auto");
    fails(&o, NRL_ERR_CONFIG, "chatml, llama3, mistral, plain");
    support_template(&o, "llama3");
    fails(&o, NRL_ERR_CONFIG, "data.jsonl:1: template 'llama3' requires the special token");
    o.tokenizer = NULL;
    fails(&o, NRL_ERR_CONFIG, "rows of text require a tokenizer");
}

static void bad_sources_are_config_errors(void **state)
{
    fixture *f = *state;
    dataset_options o = support_options(f, "data.jsonl", "{\"text\": \"a\"}\n");
    o.source = support_json(f, "{\"path\": \"none.jsonl\"}");
    o.base_dir = f->dir;
    fails(&o, NRL_ERR_CONFIG, "none.jsonl: No such file or directory");
    o.source = support_json(f, "[{\"path\": \"data.jsonl\", \"weight\": 0}]");
    fails(&o, NRL_ERR_CONFIG, "weight must be a number above 0");
    o.source = support_json(f, "[]");
    fails(&o, NRL_ERR_CONFIG, "the list is empty");
    o.source = support_json(f, "{\"path\": \"none/*.jsonl\"}");
    fails(&o, NRL_ERR_CONFIG, "data.train: no file matches '");
    o.source = NULL;
    fails(&o, NRL_ERR_CONFIG, "expected a path, or {path, weight, rows, ...}");
}

static void bad_columns_and_extras_are_errors(void **state)
{
    fixture *f = *state;
    dataset_options o = support_options(f, "data.jsonl", "{\"text\": \"a\", \"score\": \"x\"}\n");
    o.columns = support_json(f, "{\"promt\": \"text\"}");
    fails(&o, NRL_ERR_CONFIG, "data.columns: 'promt' is not a key of a row format");
    o.columns = support_json(f, "{\"prompt\": \"text\", \"completion\": \"text\"}");
    fails(&o, NRL_ERR_CONFIG, "data.columns: 'text' cannot be both prompt and completion");
    o.columns = NULL;
    o.extra = support_json(f, "[\"rank\"]");
    fails(&o, NRL_ERR_DATA, "data.jsonl:1: no key 'rank' (data.extra)");
    o.extra = support_json(f, "[\"score\"]");
    fails(&o, NRL_ERR_DATA, "key 'score' (data.extra): expected a number, found text");
}

static void tool_calls_are_refused(void **state)
{
    rows_fail(state, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{}]}]}\n",
              "messages[0]: tool_calls: template 'chatml' does not support tool calls");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_cut_last_line_is_named),
        TEST(broken_json_is_named_with_line_and_column),
        TEST(keys_that_lack_are_told_with_those_found),
        TEST(wrong_types_are_named),
        TEST(preference_rows_of_openai_are_complete),
        TEST(pairs_and_single_samples_are_not_confused),
        TEST(an_empty_file_says_so),
        TEST(other_file_formats_are_recognised),
        TEST(a_row_beyond_the_limit_is_named_and_not_read),
        TEST(nothing_to_train_is_an_error),
        TEST(ids_outside_the_vocabulary_are_named),
        TEST(an_overlong_row_is_an_error_unless_said_otherwise),
        TEST(the_first_error_of_the_file_is_told_with_any_number_of_workers),
        TEST(templates_and_tokenizers_that_lack_are_config_errors),
        TEST(bad_sources_are_config_errors),
        TEST(bad_columns_and_extras_are_errors),
        TEST(tool_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
