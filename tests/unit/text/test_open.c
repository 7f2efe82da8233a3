/*
 * test_open.c - opening a directory: the precedence of files, and BOS, EOS, PAD, added tokens and
 * the chat template from other files.
 */
#include "text/shared.h"

/* A folder that lives for one test. */
typedef struct {
    char path[64];
    char *names[8];
    int n;
} folder;

static void put(folder *f, const char *name, const char *text)
{
    if (!f->n) {
        strcpy(f->path, "/tmp/nrl-test-open-XXXXXX");
        assert_non_null(mkdtemp(f->path));
    }
    char *path = mem_printf("%s/%s", f->path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->names[i], path)) {
            free(path);
            return;
        }
    assert_true(f->n < 8);
    f->names[f->n++] = path;
}

static void remove_all(folder *f)
{
    for (int i = 0; i < f->n; i++) {
        unlink(f->names[i]);
        free(f->names[i]);
    }
    rmdir(f->path);
}

static const char small_json[] = "{\"model\": {\"vocab\": {\"<s>\": 0, \"</s>\": 1, \"<end>\": 2, "
                                 "\"a\": 3, \"b\": 4, \"ab\": 5},"
                                 " \"merges\": [\"a b\"]}, \"added_tokens\": [{\"id\": 0, "
                                 "\"content\": \"<s>\", \"special\": true},"
                                 " {\"id\": 1, \"content\": \"</s>\", \"special\": true}]}";

static void the_config_names_the_roles(void **state)
{
    (void)state;
    folder f = {0};
    put(&f, "tokenizer.json", small_json);
    put(&f, "tokenizer_config.json",
        "{\"tokenizer_class\": \"LlamaTokenizer\", \"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, "
        "\"add_bos_token\": true,"
        " \"model_max_length\": 1000000000000000019884624838656, \"chat_template\": \"{{ x }}\","
        " \"added_tokens_decoder\": {\"6\": {\"content\": \"<pad>\", \"special\": true}}, "
        "\"pad_token\": \"<pad>\"}");
    put(&f, "generation_config.json", "{\"eos_token_id\": [2, 1]}");
    tokenizer *tok = open_or_fail(f.path);
    assert_int_equal(tok->info.bos, 0);
    assert_int_equal(tok->info.eos, 1);
    assert_int_equal(tok->info.n_eos, 2);
    assert_true(tokenizer_is_eos(tok, 2));
    assert_int_equal(tok->info.pad, 6);
    assert_true(tok->info.adds_bos);
    assert_false(tok->info.adds_eos);
    assert_string_equal(tok->info.chat_template, "{{ x }}");
    assert_string_equal(tok->info.folder, f.path);
    assert_encodes(tok, "ab<pad>", "5 6");
    char *got = encode_text(tok, "ab", 2, NRL_ENCODE_ADD_SPECIAL);
    assert_string_equal(got, "0 5");
    free(got);
    tokenizer_close(tok);
    remove_all(&f);
}

/* As in transformers: words of the vocabulary that a file calls special are cut out of texts, the entries of
 * added_tokens.json are special only if a file calls them so, and most classes do not read add_bos_token. */
static void special_tokens_are_those_that_files_name(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"eos_token\": \"ab\", \"bos_token\": \"<s>\", \"add_bos_token\": true}",
        "{\"additional_special_tokens\": [{\"content\": \"ab\", \"lstrip\": false}, \"<x>\"]}",
        "{\"extra_special_tokens\": {\"image_token\": \"ab\"}}"};
    for (int i = 0; i < 3; i++) {
        folder f = {0};
        put(&f, "tokenizer.json",
            "{\"model\": {\"vocab\": {\"<s>\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"aa\": 4}, \"merges\": [\"a a\"]}, "
            "\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true}]}");
        put(&f, "added_tokens.json", "{\"<x>\": 5}");
        put(&f, "tokenizer_config.json", configs[i]);
        tokenizer *tok = open_or_fail(f.path);
        assert_encodes(tok, "aab<x>", "1 3 5"); /* not 4 2 */
        char *got = encode_text(tok, "b", 1, NRL_ENCODE_ADD_SPECIAL), *text;
        assert_string_equal(got, "2");
        free(got);
        assert_int_equal(tokenizer_decode(tok, (int32_t[]){2, 5, 3}, 3, true, &text, NULL), NRL_OK);
        assert_string_equal(text, i == 1 ? "b" : "b <x>");
        free(text);
        tokenizer_close(tok);
        remove_all(&f);
    }
}

/* Templates get the texts that transformers' classes have for roles that no file names, not those of ids. */
static void templates_get_the_texts_of_the_class(void **state)
{
    (void)state;
    static const char *const cases[][3] = {{"PreTrainedTokenizerFast", NULL, NULL},
                                           {"LlamaTokenizerFast", "<s>", "</s>"},
                                           {"Qwen2Tokenizer", NULL, "<|endoftext|>"},
                                           {"SomeTokenizer", "<s>", "</s>"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        folder f = {0};
        char *config = mem_printf("{\"tokenizer_class\": \"%s\"}", cases[i][0]);
        put(&f, "tokenizer.json", small_json);
        put(&f, "tokenizer_config.json", config);
        put(&f, "config.json", "{\"bos_token_id\": 0, \"eos_token_id\": 1}");
        tokenizer *tok = open_or_fail(f.path);
        const char *bos = NULL, *eos = NULL;
        for (uint32_t k = 0; k < tok->info.n_named; k++) {
            if (!strcmp(tok->info.named[k].name, "bos_token")) bos = tok->info.named[k].text;
            if (!strcmp(tok->info.named[k].name, "eos_token")) eos = tok->info.named[k].text;
        }
        assert_string_equal(bos ? bos : "none", cases[i][1] ? cases[i][1] : "none");
        assert_string_equal(eos ? eos : "none", cases[i][2] ? cases[i][2] : "none");
        assert_int_equal(tok->info.eos, 1);
        tokenizer_close(tok);
        remove_all(&f);
        free(config);
    }
}

static void a_role_that_nobody_names_stays_empty(void **state)
{
    (void)state;
    tokenizer *tok = open_text_or_fail(small_json);
    assert_int_equal(tok->info.bos, NRL_TOKEN_NONE);
    assert_int_equal(tok->info.eos, NRL_TOKEN_NONE);
    assert_int_equal(tok->info.n_eos, 0);
    assert_null(tok->info.chat_template);
    tokenizer_close(tok);
}

static void the_hash_follows_every_file(void **state)
{
    (void)state;
    folder f = {0};
    char first[33];
    put(&f, "tokenizer.json", small_json);
    tokenizer *tok = open_or_fail(f.path);
    strcpy(first, tok->info.hash);
    assert_int_equal(strlen(first), 32);
    tokenizer_close(tok);
    tok = open_or_fail(f.path);
    assert_string_equal(first, tok->info.hash);
    tokenizer_close(tok);
    put(&f, "tokenizer_config.json", "{}");
    tok = open_or_fail(f.path);
    assert_string_not_equal(first, tok->info.hash);
    tokenizer_close(tok);
    remove_all(&f);
}

static void a_pair_opens_with_and_without_a_version_line(void **state)
{
    (void)state;
    static const char *const merges[] = {"#version: 0.2\nh e\n\xc4\xa0 he\n", "h e\n\xc4\xa0 he\n"};
    for (int i = 0; i < 2; i++) {
        folder f = {0};
        put(&f, "vocab.json",
            "{\"h\": 0, \"e\": 1, \"\\u0120\": 2, \"he\": 3, \"\\u0120he\": 4, \"<|endoftext|>\": "
            "5}");
        put(&f, "merges.txt", merges[i]);
        tokenizer *tok = open_or_fail(f.path);
        assert_encodes(tok, "he he<|endoftext|>", "3 4 5");
        assert_int_equal(tok->info.eos, 5);
        tokenizer_close(tok);
        remove_all(&f);
    }
}

static void broken_companions_are_named(void **state)
{
    (void)state;
    folder f = {0};
    tokenizer *tok;
    put(&f, "tokenizer.json", small_json);
    put(&f, "special_tokens_map.json", "{\"bos_token\": ");
    assert_int_equal(test_tokenizer_open(f.path, &tok), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "special_tokens_map.json:1:"));
    put(&f, "special_tokens_map.json", "[]");
    assert_int_equal(test_tokenizer_open(f.path, &tok), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "special_tokens_map.json:1:1: expected a map"));
    remove_all(&f);
    assert_int_equal(test_tokenizer_open("/nonexistent/tokenizer", &tok), NRL_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_config_names_the_roles),
        cmocka_unit_test(special_tokens_are_those_that_files_name),
        cmocka_unit_test(templates_get_the_texts_of_the_class),
        cmocka_unit_test(a_role_that_nobody_names_stays_empty),
        cmocka_unit_test(the_hash_follows_every_file),
        cmocka_unit_test(a_pair_opens_with_and_without_a_version_line),
        cmocka_unit_test(broken_companions_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
