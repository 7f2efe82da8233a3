/*
 * test_golden.c - the tokens of TRL's recorded runs, row by row; and real files of each format,
 * read completely.
 */
#include "unit/data/support.h"

static tokenizer *stories;

static const nrl_node *golden_of(fixture *f, const char *name)
{
    char *path = mem_printf("golden/trl_runs/%s.json", name), *full = shared_path(path);
    free(path);
    if (!full) return NULL;
    nrl_node *node;
    ASSERT_OK(json_read_file(&f->memory, full, 1 << 24, &node));
    free(full);
    return node;
}

static dataset *open_golden(fixture *f, const nrl_node *golden, bool pairs)
{
    char *name = mem_printf("golden/trl_runs/%s", nrl_node_string(nrl_node_find(golden, "train_data"), ""));
    char *path = shared_path(name);
    assert_non_null(path);
    dataset_options o = {.host = test_host(),
                         .source = node_string(&f->memory, path, strlen(path)),
                         .tokenizer = stories,
                         .pairs = pairs,
                         .vocab_size = 512,
                         .workers = 2,
                         .quiet = true,
                         .overlong = DATA_OVERLONG_TRUNCATE};
    o.max_length = nrl_node_int(nrl_node_find(nrl_node_find(golden, "hyper_parameters"), "max_length"), 0);
    dataset *d = support_open(&o);
    free(path);
    free(name);
    return d;
}

/* row: [ids, mask]; position 0 is a target nowhere, whatever the mask says. */
static void check_row(const dataset *d, int64_t example, int side, const nrl_node *row)
{
    const int32_t *tokens;
    const uint8_t *trained;
    const nrl_node *ids = nrl_node_at(row, 0);
    const char *mask = nrl_node_string(nrl_node_at(row, 1), "");
    int64_t n = dataset_segment(d, example, side, &tokens, &trained);
    assert_int_equal(n, nrl_node_size(ids));
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(tokens[i], nrl_node_int(nrl_node_at(ids, (size_t)i), -1));
        assert_int_equal(trained[i], i && mask[i] == '1');
    }
}

static int64_t check_rows(const dataset *d, int64_t example, int side, const nrl_node *rows)
{
    for (size_t i = 0; i < nrl_node_size(rows); i++)
        check_row(d, example + (int64_t)i, side, nrl_node_at(rows, i));
    return (int64_t)nrl_node_size(rows);
}

static void check_run(fixture *f, const char *name)
{
    const nrl_node *golden = golden_of(f, name);
    if (!golden || !stories) skip();
    bool pairs = !strcmp(nrl_node_string(nrl_node_find(golden, "kind"), ""), "dpo");
    dataset *d = open_golden(f, golden, pairs);
    const nrl_node *steps = nrl_node_find(golden, "steps");
    int64_t example = 0;
    for (size_t s = 0; s < nrl_node_size(steps); s++) {
        const nrl_node *micro_batches = nrl_node_find(nrl_node_at(steps, s), "micro");
        for (size_t m = 0; m < nrl_node_size(micro_batches); m++) {
            const nrl_node *micro_batch = nrl_node_at(micro_batches, m);
            if (pairs) check_rows(d, example, 1, nrl_node_find(micro_batch, "rejected"));
            example += check_rows(d, example, 0, nrl_node_find(micro_batch, pairs ? "chosen" : "rows"));
        }
    }
    assert_int_equal(example, 96);
    dataset_close(d);
}

static void texts_are_those_of_sft_full(void **state)
{
    check_run(*state, "sft_full");
}

static void completions_are_those_of_sft_completion_ga4(void **state)
{
    check_run(*state, "sft_completion_ga4");
}

static void pairs_are_those_of_dpo_sigmoid(void **state)
{
    check_run(*state, "dpo_sigmoid");
}

/* ---- real files ---- */

typedef struct {
    const char *path, *columns, *format;
    bool pairs;
    int64_t rows, kept;
} real_file;

static void check_file(fixture *f, const real_file *r)
{
    char *path = shared_path(r->path);
    if (!path || !stories) skip();
    dataset_options o = {.host = test_host(),
                         .source = node_string(&f->memory, path, strlen(path)),
                         .tokenizer = stories,
                         .pairs = r->pairs,
                         .workers = 2,
                         .quiet = true};
    support_template(&o, "plain");
    if (r->columns) o.columns = support_json(f, r->columns);
    dataset *d = support_open(&o);
    assert_string_equal(dataset_info(d)->format, r->format);
    assert_int_equal(dataset_info(d)->rows, r->rows);
    assert_int_equal(dataset_info(d)->n_examples, r->kept);
    for (int64_t i = 0; i < dataset_info(d)->n_examples; i++)
        ASSERT_OK(dataset_verify(d, i));
    dataset_close(d);
    free(path);
}

#define QUESTIONS "{\"prompt\": \"question\", \"completion\": \"answer\"}"

static void real_files_of_single_samples_load_whole(void **state)
{
    static const real_file files[] = {
        {"data/sft/gsm8k_test.jsonl", QUESTIONS, "prompt/completion", false, 1319, 1319},
        {"data/sft/torchtitan_sft_test.json", QUESTIONS, "prompt/completion", false, 10, 10},
        {"data/sft/lf_identity.json", NULL, "Alpaca", false, 91, 91},
        {"data/sft/torchtune_instruct_tiny.json", "{\"output\": \"response\"}", "Alpaca", false, 2, 2},
        {"data/sft/torchtune_chat_tiny.json", NULL, "ShareGPT", false, 1, 1},
        {"data/text/lf_c4_demo.jsonl", NULL, "text", false, 300, 300},
        {"data/small/gsm8k_first200.messages.jsonl", NULL, "messages", false, 200, 200},
        {"data/small/self_instruct_seed175.messages.jsonl", NULL, "messages", false, 175, 175},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_file(*state, &files[i]);
}

static void real_files_of_pairs_load_whole(void **state)
{
    static const real_file files[] = {
        {"data/pref/hh_harmless_base_test.jsonl.gz", NULL, "chosen/rejected", true, 2312, 2312},
        {"data/pref/lf_dpo_en_demo.json", NULL, "conversations/chosen/rejected", true, 300, 300},
        {"data/pref/torchtune_hh_rlhf_tiny.json", NULL, "chosen/rejected", true, 1, 1},
        {"data/pref/torchtune_stack_exchange_paired_tiny.json",
         "{\"prompt\": \"question\", \"chosen\": \"response_j\", \"rejected\": \"response_k\"}",
         "prompt/chosen/rejected", true, 25, 25},
        {"data/pref/lf_v1_dpo_demo.jsonl", "{\"chosen\": \"chosen_messages\", \"rejected\": \"rejected_messages\"}",
         "chosen/rejected", true, 10, 10},
        {"data/small/hh_harmless_first300.jsonl", NULL, "prompt/chosen/rejected", true, 300, 300},
        {"data/small/lf_dpo_first100.jsonl", NULL, "prompt/chosen/rejected", true, 100, 100},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_file(*state, &files[i]);
}

static void kto_rows_are_refused(void **state)
{
    fixture *f = *state;
    char *path = shared_path("data/pref/lf_kto_en_demo.json");
    if (!path) skip();
    dataset_options o = {
        .host = test_host(), .source = node_string(&f->memory, path, strlen(path)), .tokenizer = f->tok, .quiet = true};
    support_template(&o, "plain");
    dataset *d;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "a labelled row");
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(texts_are_those_of_sft_full),    TEST(completions_are_those_of_sft_completion_ga4),
        TEST(pairs_are_those_of_dpo_sigmoid), TEST(real_files_of_single_samples_load_whole),
        TEST(real_files_of_pairs_load_whole), TEST(kto_rows_are_refused),
    };
    char *path = shared_path("data/models/stories260K/hf");
    if (!path) return 77;
    if (test_tokenizer_open(path, &stories) != NRL_OK) {
        printf("%s\n", nrl_error_text());
        return 1;
    }
    free(path);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tokenizer_close(stories);
    return failed;
}
