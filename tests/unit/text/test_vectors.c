/*
 * test_vectors.c - the published ids of real tokenizers. Needs the shared directory; without it
 * each test prints a message and is skipped.
 */
#include "base/file.h"
#include "base/json.h"
#include "text/shared.h"

typedef struct {
    size_t tried, wrong;
} tally;

static char *list_text(const nrl_node *list)
{
    size_t n = nrl_node_size(list);
    int32_t *ids = mem_alloc((n + 1) * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)nrl_node_int(nrl_node_at(list, i), -1);
    char *text = ids_text(ids, n);
    free(ids);
    return text;
}

static void compare_ids(const tokenizer *tok, const nrl_node *text, const nrl_node *ids, tally *t)
{
    char *want = list_text(ids);
    char *got = encode_text(tok, nrl_node_string(text, ""), nrl_node_string_size(text), 0);
    t->tried++;
    if (strcmp(want, got)) {
        if (!t->wrong++) printf("text: %s\nwant: %s\ngot:  %s\n", nrl_node_string(text, ""), want, got);
    }
    free(want);
    free(got);
}

static void compare_decoded(const tokenizer *tok, const nrl_node *ids, const nrl_node *text, tally *t)
{
    size_t n = nrl_node_size(ids), size;
    int32_t *list = mem_alloc((n + 1) * sizeof *list);
    for (size_t i = 0; i < n; i++)
        list[i] = (int32_t)nrl_node_int(nrl_node_at(ids, i), -1);
    char *got;
    assert_int_equal(tokenizer_decode(tok, list, n, false, &got, &size), NRL_OK);
    t->tried++;
    if (size != nrl_node_string_size(text) || memcmp(got, nrl_node_string(text, ""), size)) {
        if (!t->wrong++) printf("decoded: want '%s'\ngot '%s'\n", nrl_node_string(text, ""), got);
    }
    free(got);
    free(list);
}

static void check_golden(const char *name, const char *file)
{
    char *vectors = shared_path("golden/tokenizer_vectors.jsonl"), *path = shared_path(file);
    if (!vectors || !path) skip();
    tokenizer *tok = open_or_fail(path);
    char *text;
    size_t size;
    assert_int_equal(file_read(vectors, 64 << 20, &text, &size), NRL_OK);
    tally ids = {0}, decoded = {0};
    arena a = {0};
    for (char *line = text, *end; line < text + size; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + size - line));
        if (!end) end = text + size;
        nrl_node *row;
        assert_int_equal(json_parse(&a, "vectors", line, (size_t)(end - line), &row), NRL_OK);
        const nrl_node *want = nrl_node_find(nrl_node_find(row, "ids"), name);
        const nrl_node *back = nrl_node_find(nrl_node_find(row, "decoded"), name);
        if (want) compare_ids(tok, nrl_node_find(row, "text"), want, &ids);
        if (back) compare_decoded(tok, want, back, &decoded);
        arena_reset(&a);
    }
    printf("%s: %zu texts, %zu wrong; %zu decoded, %zu wrong\n", name, ids.tried, ids.wrong, decoded.tried,
           decoded.wrong);
    assert_int_not_equal(ids.tried, 0);
    assert_int_equal(ids.wrong + decoded.wrong, 0);
    arena_free(&a);
    free(text);
    free(vectors);
    free(path);
    tokenizer_close(tok);
}

#define GOLDEN(name, file)                                                                                             \
    static void hard_strings_of_##name(void **state)                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_golden(#name, file);                                                                                     \
    }
GOLDEN(gpt2, "data/tokenizers/gpt2/tokenizer.json")
GOLDEN(qwen2, "data/tokenizers/qwen2/tokenizer.json")
GOLDEN(llama2, "data/tokenizers/llama2/tokenizer.json")
GOLDEN(mistral, "data/tokenizers/mistral/tokenizer.json")
GOLDEN(smollm, "data/tokenizers/smollm/tokenizer.base.json")
GOLDEN(stories260K, "data/models/stories260K/hf/tokenizer.json")

/* inp.txt holds texts between separator lines; .out one line of ids for each. */
static void check_published(const char *name, const char *file)
{
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char *inputs = shared_path("data/tokenizers/vectors/inp.txt"), *path = shared_path(file);
    char *out_name = mem_printf("data/tokenizers/vectors/%s.out", name);
    char *outputs = shared_path(out_name);
    if (!inputs || !path || !outputs) skip();
    tokenizer *tok = open_or_fail(path);
    char *in, *out;
    size_t in_size, out_size, tried = 0, wrong = 0;
    assert_int_equal(file_read(inputs, 1 << 20, &in, &in_size), NRL_OK);
    assert_int_equal(file_read(outputs, 1 << 20, &out, &out_size), NRL_OK);
    char *text = in, *line = out;
    while (text && *line) {
        char *stop = strstr(text, mark), *line_stop = strchr(line, '\n');
        size_t size = stop ? (size_t)(stop - text) : strlen(text);
        if (line_stop) *line_stop = 0;
        while (*line == ' ')
            line++;
        char *got = encode_text(tok, text, size, 0);
        tried++;
        if (strcmp(got, line) && !wrong++) printf("text: %.*s\nwant: %s\ngot:  %s\n", (int)size, text, line, got);
        free(got);
        text = stop ? stop + strlen(mark) : NULL;
        line = line_stop ? line_stop + 1 : line + strlen(line);
    }
    printf("%s: %zu texts, %zu wrong\n", name, tried, wrong);
    assert_int_equal(wrong, 0);
    assert_true(tried >= 40);
    tokenizer_close(tok);
    free(in), free(out), free(inputs), free(outputs), free(out_name), free(path);
}

#define PUBLISHED(id, name, file)                                                                                      \
    static void published_ids_of_##id(void **state)                                                                    \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_published(name, file);                                                                                   \
    }
PUBLISHED(gpt2, "gpt-2", "data/tokenizers/gpt2/tokenizer.json")
PUBLISHED(gpt2_pair, "gpt-2", "data/tokenizers/gpt2/vocab.json")
PUBLISHED(qwen2, "qwen2", "data/tokenizers/qwen2/tokenizer.json")
PUBLISHED(qwen2_pair, "qwen2", "data/tokenizers/qwen2/merges.txt")
PUBLISHED(smollm, "smollm", "data/tokenizers/smollm/tokenizer.base.json")
PUBLISHED(llama2, "llama-spm", "data/tokenizers/llama2/tokenizer.json")
PUBLISHED(llama2_model, "llama-spm", "data/tokenizers/llama2/tokenizer.model")
PUBLISHED(llama3_ranks, "llama-bpe", "data/tokenizers/restricted_llama3/tokenizer.model")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hard_strings_of_gpt2),          cmocka_unit_test(hard_strings_of_qwen2),
        cmocka_unit_test(hard_strings_of_llama2),        cmocka_unit_test(hard_strings_of_mistral),
        cmocka_unit_test(hard_strings_of_smollm),        cmocka_unit_test(hard_strings_of_stories260K),
        cmocka_unit_test(published_ids_of_gpt2),         cmocka_unit_test(published_ids_of_gpt2_pair),
        cmocka_unit_test(published_ids_of_qwen2),        cmocka_unit_test(published_ids_of_qwen2_pair),
        cmocka_unit_test(published_ids_of_smollm),       cmocka_unit_test(published_ids_of_llama2),
        cmocka_unit_test(published_ids_of_llama2_model), cmocka_unit_test(published_ids_of_llama3_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
