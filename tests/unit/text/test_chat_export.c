/*
 * test_chat_export.c - templates that are saved with a model: the built-in ones in Jinja give the
 * ids and marks of their tables and refuse the same conversations; the other content of
 * tokenizer_config.json is unchanged.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "support/folder.h"
#include "support/text.h"
#include "text/shared.h"

static const char *const names[] = {"chatml", "llama3", "mistral", "plain"};
enum { N_NAMES = 4 };

static const char *const added[] = {
    "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<x>", "</x>"};
enum { N_ADDED = 7 };

static int set_up(void **state)
{
    char *dir = mem_strdup("/tmp/nrl-export-XXXXXX");
    assert_non_null(mkdtemp(dir));
    *state = dir;
    return 0;
}

static int tear_down(void **state)
{
    test_folder_remove(*state);
    free(*state);
    return 0;
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", dir, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
    fclose(out);
    free(path);
}

/* The folder gets this tokenizer, the tokens of all templates, and <x> and </x> as BOS and EOS. */
static tokenizer *open_with_tokens(const char *dir, const tokenizer *bare, bool adds_bos)
{
    buffer b = {0};
    int32_t id = bare->info.vocab_size;
    buffer_puts(&b, "{");
    for (int i = 0; i < N_ADDED; i++)
        if (tokenizer_token_id(bare, added[i]) == NRL_TOKEN_NONE)
            buffer_print(&b, "%s\"%s\": %d", b.size > 1 ? ", " : "", added[i], id++);
    buffer_puts(&b, "}");
    write_file(dir, "added_tokens.json", b.text);
    buffer_free(&b);
    buffer_print(&b,
                 "{\"tokenizer_class\": \"LlamaTokenizerFast\", \"bos_token\": \"<x>\", \"eos_token\": \"</x>\", "
                 "\"add_bos_token\": %s, \"additional_special_tokens\": [",
                 adds_bos ? "true" : "false");
    for (int i = 0; i < N_ADDED; i++)
        buffer_print(&b, "%s\"%s\"", i ? ", " : "", added[i]);
    buffer_puts(&b, "]}");
    write_file(dir, "tokenizer_config.json", b.text);
    buffer_free(&b);
    return open_or_fail(dir);
}

#define M(r, c)                                                                                                        \
    {                                                                                                                  \
        .role = (r), .content = (c), .content_size = sizeof(c) - 1                                                     \
    }
enum { MAX_MESSAGES = 6 };

static const struct {
    nrl_message messages[MAX_MESSAGES];
    size_t n;
} conversations[] = {
    {{M("user", "hi")}, 1},
    {{M("user", "hi"), M("assistant", "so it's \\ \"this\"")}, 2},
    {{M("user", " a \xC2\xA0"), M("assistant", "\n b\x1c\n")}, 2},
    {{M("system", "be kind"), M("user", "q"), M("assistant", "a")}, 3},
    {{M("system", " be kind\t"), M("user", "q"), M("assistant", "a"), M("user", "r"), M("assistant", "b")}, 5},
    {{M("user", "q"), M("assistant", "a"), M("user", "r"), M("assistant", "<|im_end|>b</x>")}, 4},
    {{M("user", "q"), M("assistant", "a"), M("user", "r")}, 3},
    {{M("system", "alone")}, 1},
    {{M("user", "q"), M("system", "late"), M("user", "r")}, 3},
    {{M("user", "q"), M("user", "r"), M("assistant", "b")}, 3},
    {{M("user", "q"), M("tool", "r"), M("assistant", "b")}, 3},
    {{M("user", "q"), M("ipython", "r"), M("assistant", "b")}, 3},
    {{M("user", "q"), M("narrator", "r"), M("assistant", "b")}, 3},
    {{M("user", ""), M("assistant", "")}, 2},
    {{M("user", "{{ x }}{% y %}"), M("assistant", "{# z #}")}, 2},
    {{{0}}, 0},
};
enum { N_CONVERSATIONS = sizeof conversations / sizeof *conversations };

static nrl_status render(const chat_template *t, const tokenizer *tok, size_t i, bool prompt, chat_ids *out)
{
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    nrl_status st = chat_render(t, s, conversations[i].messages, conversations[i].n, prompt, out);
    tokenizer_scratch_destroy(s);
    return st;
}

/* Where a system message moves to the last user, no turn but the last is how an earlier rendering
 * ended. */
static bool is_unmarked(nrl_status st)
{
    return st == NRL_ERR_DATA && strstr(nrl_error_text(), "cannot be located");
}

static void compare(const char *label, const chat_template *table, const chat_template *jinja, const tokenizer *tok,
                    size_t i, bool prompt)
{
    chat_ids a = {0}, b = {0};
    nrl_status want = render(table, tok, i, prompt, &a), got = render(jinja, tok, i, prompt, &b);
    if (want == NRL_OK && is_unmarked(got)) {
        assert_true(conversations[i].n > 3);
    } else {
        if (got != want)
            fail_msg("%s, conversation %zu: status %d, expected %d: %s", label, i, got, want, nrl_error_text());
        char *x = ids_text(a.tokens.ids, a.tokens.n), *y = ids_text(b.tokens.ids, b.tokens.n);
        if (want == NRL_OK && strcmp(x, y)) fail_msg("%s, conversation %zu:\n%s\nexpected\n%s", label, i, y, x);
        if (want == NRL_OK && !prompt) assert_memory_equal(a.trained, b.trained, a.tokens.n);
        free(x);
        free(y);
    }
    chat_ids_free(&a);
    chat_ids_free(&b);
}

static void check_all(const char *label, const tokenizer *tok)
{
    for (int k = 0; k < N_NAMES; k++) {
        const chat_template *table, *jinja;
        char *what = mem_printf("%s, %s", label, names[k]);
        if (test_template_open(names[k], tok, &table)) fail_msg("%s: %s", what, nrl_error_text());
        char *text = chat_template_jinja(table);
        if (chat_template_open_text(test_host(), &(config_choice){.source = what}, text, tok, &jinja))
            fail_msg("%s\n%s", nrl_error_text(), text);
        for (size_t i = 0; i < N_CONVERSATIONS; i++)
            for (int prompt = 0; prompt < 2; prompt++)
                compare(what, table, jinja, tok, i, prompt);
        assert_int_equal(chat_template_end(table) == -1 ? tok->info.eos : chat_template_end(table),
                         chat_template_end(jinja) == -1 ? tok->info.eos : chat_template_end(jinja));
        chat_template_close(table);
        chat_template_close(jinja);
        free(text);
        free(what);
    }
}

static void builtins_in_jinja_give_the_ids_of_their_tables(void **state)
{
    char *json = byte_level_json("", "", "");
    write_file(*state, "tokenizer.json", json);
    tokenizer *bare = open_text_or_fail(json);
    for (int adds = 0; adds < 2; adds++) {
        tokenizer *tok = open_with_tokens(*state, bare, adds);
        check_all(adds ? "bytes with BOS" : "bytes", tok);
        tokenizer_close(tok);
    }
    tokenizer_close(bare);
    free(json);
}

static void builtins_in_jinja_give_the_ids_of_real_tokenizers(void **state)
{
    static const char *const files[] = {"data/tokenizers/gpt2/tokenizer.json", "data/tokenizers/llama2/tokenizer.json",
                                        "data/tokenizers/qwen2/tokenizer.json",
                                        "data/tokenizers/mistral/tokenizer.json",
                                        "data/tokenizers/smollm/tokenizer.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = shared_path(files[i]), *link = mem_printf("%s/tokenizer.json", (const char *)*state);
        if (!path) {
            free(link);
            skip();
        }
        unlink(link);
        assert_int_equal(symlink(path, link), 0);
        tokenizer *bare = open_or_fail(path);
        for (int adds = 0; adds < 2; adds++) {
            tokenizer *tok = open_with_tokens(*state, bare, adds);
            check_all(files[i], tok);
            tokenizer_close(tok);
        }
        tokenizer_close(bare);
        free(link);
        free(path);
    }
}

/* Metaspace that puts a space before a text's beginning alone: behind a BOS that is text, it would
 * not. */
static void a_space_before_the_first_word_stays_there(void **state)
{
    static const char head[] = "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": "
                               "\"\xE2\x96\x81\", \"prepend_scheme\": \"first\","
                               " \"split\": false}, \"decoder\": {\"type\": \"Metaspace\", "
                               "\"replacement\": \"\xE2\x96\x81\","
                               " \"prepend_scheme\": \"first\"}, \"added_tokens\": [], \"model\": "
                               "{\"type\": \"BPE\", \"merges\": [],"
                               " \"byte_fallback\": true, \"vocab\": {\"\xE2\x96\x81\": 0";
    buffer b = {0};
    buffer_puts(&b, head);
    for (int i = 0; i < 256; i++)
        buffer_print(&b, ", \"<0x%02X>\": %d", (unsigned)i, i + 1);
    buffer_puts(&b, "}}}");
    write_file(*state, "tokenizer.json", b.text);
    tokenizer *bare = open_text_or_fail(b.text);
    for (int adds = 0; adds < 2; adds++) {
        tokenizer *tok = open_with_tokens(*state, bare, adds);
        check_all("Metaspace", tok);
        tokenizer_close(tok);
    }
    tokenizer_close(bare);
    buffer_free(&b);
}

/* A list of parts is read as its text, under either key. */
static void parts_of_a_content_are_joined(void **state)
{
    static const char row[] = "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
                              "\"a\"}, {\"type\": \"text\","
                              " \"value\": \"b\"}]}]";
    arena a = {0};
    nrl_node *list;
    const chat_template *table, *jinja;
    char *want, *got, *json = byte_level_json("", "", "");
    write_file(*state, "tokenizer.json", json);
    tokenizer *bare = open_text_or_fail(json), *tok = open_with_tokens(*state, bare, true);
    tokenizer_close(bare);
    assert_int_equal(json_parse(&a, "row", row, sizeof row - 1, &list), NRL_OK);
    const nrl_message m = {.role = "user", .content = "ab", .content_size = 2, .node = nrl_node_at(list, 0)};
    assert_int_equal(test_template_open("chatml", tok, &table), NRL_OK);
    char *text = chat_template_jinja(table);
    assert_int_equal(chat_template_open_text(test_host(), &(config_choice){.source = "t"}, text, tok, &jinja), NRL_OK);
    assert_int_equal(test_render_text(table, &m, 1, true, &want), NRL_OK);
    if (test_render_text(jinja, &m, 1, true, &got)) fail_msg("%s", nrl_error_text());
    assert_string_equal(got, want);
    free(got);
    free(want);
    free(text);
    free(json);
    chat_template_close(table);
    chat_template_close(jinja);
    tokenizer_close(tok);
    arena_free(&a);
}

static nrl_status keep_config(void *user, const char *name, const char *text)
{
    if (!strcmp(name, "tokenizer_config.json")) *(char **)user = mem_strdup(text);
    return NRL_OK;
}

static nrl_status export_config(const tokenizer *tok, const char *jinja, char **text)
{
    *text = NULL;
    return tok->open.table->export_template(tok->open.self, jinja, keep_config, text);
}

static void the_config_keeps_what_else_it_says(void **state)
{
    char *text, *json = byte_level_json("", "", "");
    tokenizer *tok;
    write_file(*state, "tokenizer.json", json);
    free(json);
    assert_int_equal(test_tokenizer_open(*state, &tok), NRL_OK);
    assert_int_equal(export_config(tok, "{{ x }}", &text), NRL_OK);
    assert_null(text);
    write_file(*state, "tokenizer_config.json",
               "{\"bos_token\": \"<s>\", \"chat_template\": [{\"name\": \"old\"}],\n "
               "\"model_max_length\": 1000000000000000019884624838656}");
    assert_int_equal(export_config(tok, "{{ \"x\" }}\n", &text), NRL_OK);
    assert_string_equal(text, "{\"bos_token\": \"<s>\",\"model_max_length\": 1000000000000000019884624838656,\n"
                              "  \"chat_template\": \"{{ \\\"x\\\" }}\\n\"\n}\n");
    free(text);
    write_file(*state, "tokenizer_config.json", "{}");
    assert_int_equal(export_config(tok, "t", &text), NRL_OK);
    assert_string_equal(text, "{\n  \"chat_template\": \"t\"\n}\n");
    free(text);
    write_file(*state, "tokenizer_config.json", "[");
    assert_int_equal(export_config(tok, "t", &text), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "tokenizer_config.json:1:1: expected a map"));
    tokenizer_close(tok);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(builtins_in_jinja_give_the_ids_of_their_tables),
        TEST(builtins_in_jinja_give_the_ids_of_real_tokenizers),
        TEST(a_space_before_the_first_word_stays_there),
        TEST(parts_of_a_content_are_joined),
        TEST(the_config_keeps_what_else_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
