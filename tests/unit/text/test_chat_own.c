/*
 * test_chat_own.c - chat templates in Jinja: trained tokens, variables of a template, and refused
 * templates. Tokens are single bytes and special tokens, so a mask can be read as text.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "support/folder.h"
#include "support/text.h"
#include "text/shared.h"

static const char specials[] = "{\"id\": 256, \"content\": \"<|im_start|>\", \"special\": true},"
                               "{\"id\": 257, \"content\": \"<|im_end|>\", \"special\": true},"
                               "{\"id\": 258, \"content\": \"<s>\", \"special\": true},"
                               "{\"id\": 259, \"content\": \"</s>\", \"special\": true}";
static const char config[] = "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, \"chat_template\": ["
                             "{\"name\": \"default\", \"template\": \"plain {{ tools }}\"},"
                             "{\"name\": \"tool_use\", \"template\": \"with {{ tools }}\"}]}";

/* As Qwen's, and with what its kin does to earlier reasoning. */
static const char chatml[] =
    "{%- for m in messages %}\n{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
static const char drops[] =
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if loop.last %}{{ m.content }}{% else %}{{ m.content.split('</think>')[-1] }}{% endif %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
static const char marks[] =
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}";
static const char opens[] =
    "<s>{% for m in messages %}<|im_start|>{{ m.role[0] }}:{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>a:<think>{% endif %}";

typedef struct {
    char *dir;
    tokenizer *tok;
} fixture;

static char *write_file(const fixture *f, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", f->dir, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
    fclose(out);
    return path;
}

static int set_up(void **state)
{
    fixture *f = mem_alloc(sizeof *f);
    f->dir = mem_strdup("/tmp/nrl-chat-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    char *json = byte_level_json("", "", specials);
    free(write_file(f, "tokenizer.json", json));
    free(write_file(f, "tokenizer_config.json", config));
    f->tok = open_or_fail(f->dir);
    free(json);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tokenizer_close(f->tok);
    test_folder_remove(f->dir);
    free(f->dir);
    free(f);
    return 0;
}

static const chat_template *open_text(const fixture *f, const char *text)
{
    const chat_template *t = NULL;
    char *path = write_file(f, "t.jinja", text);
    if (test_template_open(path, f->tok, &t)) fail_msg("%s", nrl_error_text());
    free(path);
    return t;
}

/* Trained tokens as text, ranges apart by |. */
static char *trained_text(const tokenizer *tok, const chat_ids *ids)
{
    buffer b = {0};
    for (size_t i = 0; i < ids->tokens.n; i++) {
        char *piece;
        if (!ids->trained[i]) continue;
        if (b.size && !ids->trained[i - 1]) buffer_puts(&b, "|");
        assert_int_equal(tokenizer_decode(tok, &ids->tokens.ids[i], 1, false, &piece, NULL), NRL_OK);
        buffer_puts(&b, piece);
        free(piece);
    }
    return buffer_take(&b);
}

#define M(r, c)                                                                                                        \
    {                                                                                                                  \
        .role = (r), .content = (c), .content_size = sizeof(c) - 1                                                     \
    }

static const nrl_message two_turns[] = {M("user", "ab"), M("assistant", "x</think>y"), M("user", "c"),
                                        M("assistant", "zz")};

static nrl_status render(const fixture *f, const char *text, const nrl_message *messages, size_t n, size_t n_prompt,
                         char **trained)
{
    const chat_template *t = open_text(f, text);
    const nrl_conversation c = {.messages = messages, .n = n, .n_prompt = n_prompt};
    tokenizer_scratch *s = tokenizer_scratch_create(f->tok);
    chat_ids ids = {0};
    *trained = NULL;
    nrl_status st = chat_render_conversation(t, s, &c, &ids);
    if (st == NRL_OK) *trained = trained_text(f->tok, &ids);
    chat_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    chat_template_close(t);
    return st;
}

static void assert_trains(const fixture *f, const char *text, size_t n, size_t n_prompt, const char *expected)
{
    char *trained;
    if (render(f, text, two_turns, n, n_prompt, &trained)) fail_msg("%s", nrl_error_text());
    assert_string_equal(trained, expected);
    free(trained);
}

static void each_turn_is_trained_with_its_end_and_no_white_space_behind(void **state)
{
    const fixture *f = *state;
    assert_trains(f, chatml, 4, 0, "x</think>y<|im_end|>|zz<|im_end|>");
    assert_trains(f, chatml, 4, 3, "zz<|im_end|>");
    assert_trains(f, chatml, 3, 0, "x</think>y<|im_end|>");
    assert_trains(f, chatml, 1, 0, "");
}

static void ids_and_marks_are_those_of_the_builtin(void **state)
{
    const fixture *f = *state;
    const chat_template *own = open_text(f, chatml), *builtin;
    tokenizer_scratch *s = tokenizer_scratch_create(f->tok);
    chat_ids a = {0}, b = {0};
    assert_int_equal(test_template_open("chatml", f->tok, &builtin), NRL_OK);
    assert_int_equal(chat_render(own, s, two_turns, 4, false, &a), NRL_OK);
    assert_int_equal(chat_render(builtin, s, two_turns, 4, false, &b), NRL_OK);
    assert_int_equal(a.tokens.n, b.tokens.n);
    assert_memory_equal(a.tokens.ids, b.tokens.ids, a.tokens.n * sizeof *a.tokens.ids);
    assert_memory_equal(a.trained, b.trained, a.tokens.n);
    assert_int_equal(chat_template_end(own), 257);
    chat_ids_free(&a);
    chat_ids_free(&b);
    tokenizer_scratch_destroy(s);
    chat_template_close(builtin);
    chat_template_close(own);
}

static void generation_blocks_decide_where_there_are_some(void **state)
{
    const fixture *f = *state;
    assert_trains(f, marks, 4, 0, "x</think>y<|im_end|>|zz<|im_end|>");
    assert_trains(f, marks, 4, 2, "zz<|im_end|>");
}

static void a_template_that_changes_earlier_turns_is_refused(void **state)
{
    const fixture *f = *state;
    char *trained;
    assert_int_equal(render(f, drops, two_turns, 4, 0, &trained), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "messages[1]: "));
    assert_non_null(strstr(nrl_error_text(), "this turn is rendered differently when it is the last"));
    assert_non_null(strstr(nrl_error_text(), "data.train_on: last"));
    assert_trains(f, drops, 4, 3, "zz<|im_end|>");
}

static void a_prompt_that_opens_the_turn_counts_up_to_where_both_part(void **state)
{
    const fixture *f = *state;
    assert_trains(f, opens, 4, 0, "x</think>y<|im_end|>|zz<|im_end|>");
}

static const char closes[] = "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>\n{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant:{% else %}{{ eos_token }}{% endif %}";
static const char always[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}<|im_start|>assistant:";

static void an_end_of_the_whole_conversation_belongs_to_its_last_turn(void **state)
{
    const fixture *f = *state;
    assert_trains(f, closes, 4, 0, "x</think>y<|im_end|>|zz<|im_end|>\n</s>");
}

static void a_template_that_opens_turns_unasked_is_refused(void **state)
{
    const fixture *f = *state;
    char *trained;
    assert_int_equal(render(f, always, two_turns, 2, 0, &trained), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "messages[1]: "));
    assert_non_null(strstr(nrl_error_text(), "it opens an assistant turn after the last one"));
}

static void bos_stands_where_the_template_writes_it(void **state)
{
    const fixture *f = *state;
    const chat_template *t = open_text(f, opens);
    tokenizer_scratch *s = tokenizer_scratch_create(f->tok);
    chat_ids ids = {0};
    assert_int_equal(chat_render(t, s, two_turns, 1, true, &ids), NRL_OK);
    assert_int_equal(ids.tokens.ids[0], 258);
    assert_int_not_equal(ids.tokens.ids[1], 258);
    chat_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    chat_template_close(t);
}

static void what_a_template_raises_is_an_error_of_the_row(void **state)
{
    const fixture *f = *state;
    char *trained;
    assert_int_equal(render(f, "{{ raise_exception('no system role') }}", two_turns, 4, 0, &trained), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "t.jinja: line 1: no system role"));
}

static void templates_that_cannot_be_run_list_the_names(void **state)
{
    const fixture *f = *state;
    const chat_template *t;
    char *path = write_file(f, "bad.jinja", "a\n{% include 'b' %}");
    assert_int_equal(test_template_open(path, f->tok, &t), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "bad.jinja: line 2: 'include' is not a known statement"));
    assert_non_null(strstr(nrl_error_text(), "chatml, llama3, mistral, plain"));
    tokenizer *bare = byte_tokenizer("", "", specials);
    assert_int_equal(test_template_open("auto", bare, &t), NRL_ERR_CONFIG);
    tokenizer_close(bare);
    assert_non_null(strstr(nrl_error_text(), "the tokenizer has none\nhint: use one of: chatml"));
    assert_int_equal(test_template_open("./none.jinja", f->tok, &t), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "none.jinja"));
    free(path);
}

/* Tools, reasoning, keys that are null, lists of parts, and further variables. */
static void a_template_sees_what_transformers_gives_it(void **state)
{
    const fixture *f = *state;
    static const char row[] =
        "{\"m\": {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"hi\"}], \"name\": null,"
        " \"reasoning\": \"why\", \"tool_calls\": [{\"id\": 1}]}, \"tools\": [{\"f\": 1}], \"kwargs\": {\"deep\": "
        "true}}";
    arena a = {0};
    nrl_node *node;
    char *text;
    assert_int_equal(json_parse(&a, "row", row, sizeof row - 1, &node), NRL_OK);
    const nrl_message m = {.role = "assistant", .content = "hi", .content_size = 2, .node = nrl_node_find(node, "m")};
    const chat_template *t = open_text(f, "{{ messages[0] }}{{ tools }}{{ documents }}{{ deep }}{{ bos_token }}");
    const nrl_conversation c = {.messages = &m,
                                .n = 1,
                                .n_prompt = 1,
                                .tools = nrl_node_find(node, "tools"),
                                .variables = nrl_node_find(node, "kwargs")};
    tokenizer_scratch *s = tokenizer_scratch_create(f->tok);
    chat_ids ids = {0};
    if (chat_render_conversation(t, s, &c, &ids)) fail_msg("%s", nrl_error_text());
    assert_int_equal(tokenizer_decode(f->tok, ids.tokens.ids, ids.tokens.n, false, &text, NULL), NRL_OK);
    assert_string_equal(
        text,
        "{'thinking': 'why', 'role': 'assistant', 'content': 'hi', 'reasoning': 'why', 'tool_calls': [{'id': 1}], "
        "'reasoning_content': 'why'}[{'f': 1}]NoneTrue<s>");
    free(text);
    chat_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    chat_template_close(t);
    arena_free(&a);
}

static void tools_take_the_template_that_is_named_for_them(void **state)
{
    const fixture *f = *state;
    const chat_template *t;
    arena a = {0};
    nrl_node *tools;
    tokenizer_scratch *s = tokenizer_scratch_create(f->tok);
    static const char *const expected[2] = {"plain None", "with [1]"};
    assert_int_equal(json_parse(&a, "tools", "[1]", 3, &tools), NRL_OK);
    assert_int_equal(test_template_open("auto", f->tok, &t), NRL_OK);
    for (int i = 0; i < 2; i++) {
        char *text;
        chat_ids ids = {0};
        const nrl_conversation c = {.messages = two_turns, .n = 1, .tools = i ? tools : NULL};
        if (chat_render_conversation(t, s, &c, &ids)) fail_msg("%s", nrl_error_text());
        assert_int_equal(tokenizer_decode(f->tok, ids.tokens.ids, ids.tokens.n, false, &text, NULL), NRL_OK);
        assert_string_equal(text, expected[i]);
        free(text);
        chat_ids_free(&ids);
    }
    chat_template_close(t);
    tokenizer_scratch_destroy(s);
    arena_free(&a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_turn_is_trained_with_its_end_and_no_white_space_behind),
        TEST(ids_and_marks_are_those_of_the_builtin),
        TEST(generation_blocks_decide_where_there_are_some),
        TEST(a_template_that_changes_earlier_turns_is_refused),
        TEST(a_prompt_that_opens_the_turn_counts_up_to_where_both_part),
        TEST(an_end_of_the_whole_conversation_belongs_to_its_last_turn),
        TEST(a_template_that_opens_turns_unasked_is_refused),
        TEST(bos_stands_where_the_template_writes_it),
        TEST(what_a_template_raises_is_an_error_of_the_row),
        TEST(templates_that_cannot_be_run_list_the_names),
        TEST(tools_take_the_template_that_is_named_for_them),
        TEST(a_template_sees_what_transformers_gives_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
