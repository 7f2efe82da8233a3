/*
 * test_train.c - training byte-level BPE: the merges of a known small text, determinism, and that a
 * saved tokenizer opens and decodes every text to itself.
 */
#include "base/file.h"
#include "base/json.h"
#include "text/shared.h"
#include <sys/stat.h>

static char *temporary_folder(void)
{
    char *path = mem_strdup("/tmp/nrl-test-train-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static void remove_folder(char *folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < 2; i++) {
        char *path = mem_printf("%s/%s", folder, names[i]);
        unlink(path);
        free(path);
    }
    rmdir(folder);
    free(folder);
}

/* The plugin, which takes no options. */
static const nrl_tokenizer *bpe(void)
{
    const plugin *p;
    if (plugin_open(test_host(), NRL_KIND_TOKENIZER, "bpe", &p)) fail_msg("%s", nrl_error_text());
    return (const nrl_tokenizer *)p->table;
}

static char *train_text(const char *const *texts, size_t n, const nrl_train_tokenizer *o, const char *folder,
                        int64_t *n_tokens)
{
    void *t = NULL;
    int64_t reached;
    if (bpe()->train_begin(NULL, o, &t)) fail_msg("%s", nrl_error_text());
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bpe()->train_add(t, texts[i], strlen(texts[i])), NRL_OK);
    if (bpe()->train_save(t, folder, &reached)) fail_msg("%s", nrl_error_text());
    if (n_tokens) *n_tokens = reached;
    bpe()->train_end(t);
    char *path = mem_printf("%s/tokenizer.json", folder), *text;
    size_t size;
    assert_int_equal(file_read(path, 1 << 24, &text, &size), NRL_OK);
    free(path);
    return text;
}

/* Worked out by hand: counts are low 7, er 9 (newer 6 and wider 3), est 2.. the classic example. */
static const char *const classic[] = {"low low low low low lower lower",
                                      "newest newest newest newest newest newest widest widest widest"};

static void the_most_frequent_pair_comes_first_ties_to_the_greater_bytes(void **state)
{
    (void)state;
    static const char *const special[] = {"<|endoftext|>"};
    nrl_train_tokenizer o = {.vocab_size = 257 + 6, .special = special, .n_special = 1, .min_frequency = 1};
    char *folder = temporary_folder();
    int64_t n;
    char *json = train_text(classic, 2, &o, folder, &n);
    assert_int_equal(n, 263);
    /* st 9, est 9, ow 7, low 7, west 6, ne 6: "e s" and "s t" are equal, "s t" is greater. */
    assert_non_null(strstr(json, "\"merges\": [\n      [\"s\", \"t\"],\n      [\"e\", \"st\"],\n"
                                 "      [\"o\", \"w\"],\n      [\"l\", \"ow\"],\n"
                                 "      [\"w\", \"est\"],\n      [\"n\", \"e\"]]"));
    free(json);
    remove_folder(folder);
}

static void the_order_of_texts_changes_nothing(void **state)
{
    (void)state;
    const char *const swapped[] = {classic[1], classic[0]};
    nrl_train_tokenizer o = {.vocab_size = 280, .min_frequency = 1, .overwrite = true};
    char *folder = temporary_folder();
    char *one = train_text(classic, 2, &o, folder, NULL), *two = train_text(swapped, 2, &o, folder, NULL);
    assert_string_equal(one, two);
    free(one), free(two);
    remove_folder(folder);
}

static void a_saved_tokenizer_opens_and_round_trips(void **state)
{
    (void)state;
    static const char *const patterns[] = {"gpt2", "llama3", "qwen2"};
    static const char *const special[] = {"<|end|>", "<|pad|>"};
    static const char text[] = "newest<|end|> low\xc3\xa9r\n\n1234 \xff widest";
    for (int i = 0; i < 3; i++) {
        nrl_train_tokenizer o = {
            .vocab_size = 300, .special = special, .n_special = 2, .pattern = patterns[i], .min_frequency = 1};
        char *folder = temporary_folder();
        free(train_text(classic, 2, &o, folder, NULL));
        tokenizer *tok = open_or_fail(folder);
        assert_int_equal(tok->info.eos, 0);
        assert_int_equal(tokenizer_token_id(tok, "<|pad|>"), 1);
        tokenizer_scratch *s = tokenizer_scratch_create(tok);
        nrl_token_ids ids = {0};
        char *back;
        assert_int_equal(tokenizer_encode(tok, s, text, sizeof text - 1, 0, &ids), NRL_OK);
        assert_int_equal(tokenizer_decode(tok, ids.ids, ids.n, false, &back, NULL), NRL_OK);
        assert_string_equal(back, "newest<|end|> low\xc3\xa9r\n\n1234 \xef\xbf\xbd widest");
        free(back);
        nrl_token_ids_free(&ids);
        tokenizer_scratch_destroy(s);
        tokenizer_close(tok);
        remove_folder(folder);
    }
}

static void a_learnt_token_never_takes_a_special_tokens_text(void **state)
{
    (void)state;
    static const char *const special[] = {"st"}, *const text[] = {"rust rest s t"};
    nrl_train_tokenizer o = {.vocab_size = 300, .special = special, .n_special = 1, .min_frequency = 1};
    char *folder = temporary_folder();
    free(train_text(text, 1, &o, folder, NULL));
    tokenizer_close(open_or_fail(folder)); /* duplicate keys would be refused */
    remove_folder(folder);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    static const char *const twice[] = {"<a>", "<a>"}, *const byte[] = {"a"};
    const nrl_train_tokenizer bad[] = {{.vocab_size = 255},
                                       {.vocab_size = INT64_MAX},
                                       {.vocab_size = 300, .pattern = "gpt9"},
                                       {.vocab_size = 300, .min_frequency = -1},
                                       {.vocab_size = 300, .special = twice, .n_special = 2},
                                       {.vocab_size = 300, .special = byte, .n_special = 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *t;
        assert_int_equal(bpe()->train_begin(NULL, &bad[i], &t), NRL_ERR_CONFIG);
    }
}

static void a_published_run_of_500_tokens_is_equal(void **state)
{
    (void)state;
    char *corpus = shared_path("data/tokenizers/small_fixtures/cs336_corpus.en");
    char *vocab = shared_path("data/tokenizers/small_fixtures/cs336_train-bpe-reference-vocab.json");
    if (!corpus || !vocab) skip();
    static const char *const special[] = {"<|endoftext|>"};
    nrl_train_tokenizer o = {.vocab_size = 500, .special = special, .n_special = 1, .min_frequency = 1};
    char *text, *folder = temporary_folder();
    size_t size;
    assert_int_equal(file_read(corpus, 1 << 24, &text, &size), NRL_OK);
    free(train_text((const char *const[]){text}, 1, &o, folder, NULL));
    tokenizer *tok = open_or_fail(folder);
    arena a = {0};
    nrl_node *want;
    assert_int_equal(json_read_file(&a, vocab, 1 << 20, &want), NRL_OK);
    assert_int_equal(nrl_node_size(want), tok->info.vocab_size);
    for (size_t i = 0; i < nrl_node_size(want); i++)
        assert_int_equal(tokenizer_token_id(tok, nrl_node_key(want, i)), nrl_node_int(nrl_node_at(want, i), -1));
    arena_free(&a);
    tokenizer_close(tok);
    remove_folder(folder);
    free(text), free(corpus), free(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_frequent_pair_comes_first_ties_to_the_greater_bytes),
        cmocka_unit_test(the_order_of_texts_changes_nothing),
        cmocka_unit_test(a_saved_tokenizer_opens_and_round_trips),
        cmocka_unit_test(a_learnt_token_never_takes_a_special_tokens_text),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(a_published_run_of_500_tokens_is_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
