/*
 * test_chat.c - the built-in chat templates: their text, their ids and which tokens are trained.
 */
#include "base/file.h"
#include "base/json.h"
#include "support/text.h"
#include "text/shared.h"

static const char chatml_specials[] = "{\"id\": 256, \"content\": \"<|im_start|>\", \"special\": true},"
                                      "{\"id\": 257, \"content\": \"<|im_end|>\", \"special\": true}";

static const chat_template *find(const tokenizer *tok, const char *name)
{
    const chat_template *t = NULL;
    if (test_template_open(name, tok, &t)) fail_msg("%s", nrl_error_text());
    return t;
}

#define MESSAGE(r, c)                                                                                                  \
    {                                                                                                                  \
        .role = (r), .content = (c), .content_size = sizeof(c) - 1                                                     \
    }

static void chatml_trains_the_answer_and_its_end(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "", chatml_specials);
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    nrl_message m[] = {MESSAGE("user", "ab"), MESSAGE("assistant", "xyz")};
    chat_ids ids = {0};
    assert_int_equal(chat_render(find(tok, "chatml"), s, m, 2, false, &ids), NRL_OK);
    char *text;
    assert_int_equal(tokenizer_decode(tok, ids.tokens.ids, ids.tokens.n, false, &text, NULL), NRL_OK);
    assert_string_equal(text, "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\nxyz<|im_end|>\n");
    size_t n_trained = 0;
    for (size_t i = 0; i < ids.tokens.n; i++)
        n_trained += ids.trained[i];
    assert_int_equal(n_trained, 4); /* x y z <|im_end|> */
    assert_int_equal(ids.trained[ids.tokens.n - 1], 0);
    assert_int_equal(ids.trained[ids.tokens.n - 2], 1);
    assert_int_equal(ids.tokens.ids[ids.tokens.n - 2], 257);
    free(text);
    chat_ids_free(&ids);
    tokenizer_scratch_destroy(s);
    tokenizer_close(tok);
}

static void a_generation_prompt_opens_an_assistant_turn(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "", chatml_specials);
    nrl_message m[] = {MESSAGE("user", "ab")};
    char *text;
    assert_int_equal(test_render_text(find(tok, "chatml"), m, 1, true, &text), NRL_OK);
    assert_string_equal(text, "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n");
    free(text);
    tokenizer_close(tok);
}

static void an_unknown_role_names_its_message(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "", chatml_specials);
    nrl_message m[] = {MESSAGE("user", "ab"), MESSAGE("bot", "x")};
    char *text;
    assert_int_equal(test_render_text(find(tok, "chatml"), m, 2, false, &text), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "messages[1]: unknown role 'bot'"));
    tokenizer_close(tok);
}

static void mistral_refuses_two_users_in_a_row(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "", chatml_specials);
    static const int32_t ends[] = {257};
    tok->info.eos = ends[0]; /* the template ends turns with it */
    tok->info.eos_ids = ends;
    tok->info.n_eos = 1;
    nrl_message m[] = {MESSAGE("user", "a"), MESSAGE("user", "b")};
    char *text;
    assert_int_equal(test_render_text(find(tok, "mistral"), m, 2, false, &text), NRL_ERR_DATA);
    assert_non_null(strstr(nrl_error_text(), "messages[1]: role 'user', expected 'assistant'"));
    tokenizer_close(tok);
}

static void a_template_without_its_tokens_is_refused(void **state)
{
    (void)state;
    tokenizer *tok = byte_tokenizer("", "", chatml_specials);
    const chat_template *t;
    assert_int_equal(test_template_open("llama3", tok, &t), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "<|start_header_id|>"));
    assert_int_equal(test_template_open("plain", tok, &t), NRL_ERR_CONFIG); /* no EOS */
    tokenizer_close(tok);
}

static void auto_and_unknown_names_list_the_templates(void **state)
{
    (void)state;
    const chat_template *t;
    assert_int_equal(test_template_open("auto", NULL, &t), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "chatml, llama3, mistral, plain"));
    assert_int_equal(test_template_open("vicuna", NULL, &t), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "chatml, llama3, mistral, plain"));
}

/* ---- against real files ---- */

static void check_mistral_sample(const char *model, const char *tokens)
{
    char *path = shared_path(model), *want_path = shared_path(tokens);
    char *sample = shared_path("data/tokenizers/mistral/samples/no_tools/sample.json");
    if (!path || !want_path || !sample) skip();
    tokenizer *tok = open_or_fail(path);
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    arena a = {0};
    nrl_node *row, *want;
    assert_int_equal(json_read_file(&a, sample, 1 << 20, &row), NRL_OK);
    assert_int_equal(json_read_file(&a, want_path, 1 << 20, &want), NRL_OK);
    const nrl_node *list = nrl_node_find(row, "messages"), *ids = nrl_node_find(want, "tokens");
    size_t n = nrl_node_size(list);
    nrl_message *m = mem_alloc(n * sizeof *m);
    for (size_t i = 0; i < n; i++) {
        const nrl_node *content = nrl_node_find(nrl_node_at(list, i), "content");
        m[i] = (nrl_message){.role = nrl_node_string(nrl_node_find(nrl_node_at(list, i), "role"), ""),
                             .content = nrl_node_string(content, ""),
                             .content_size = nrl_node_string_size(content)};
    }
    chat_ids out = {0};
    if (chat_render(find(tok, "mistral"), s, m, n, true, &out)) fail_msg("%s", nrl_error_text());
    assert_int_equal(out.tokens.n, nrl_node_size(ids));
    for (size_t i = 0; i < out.tokens.n; i++)
        assert_int_equal(out.tokens.ids[i], nrl_node_int(nrl_node_at(ids, i), -1));
    free(m);
    chat_ids_free(&out);
    arena_free(&a);
    tokenizer_scratch_destroy(s);
    tokenizer_close(tok);
    free(path), free(want_path), free(sample);
}

static void mistral_v1_ids_are_the_published_ones(void **state)
{
    (void)state;
    check_mistral_sample("data/tokenizers/mistral/tokenizer.model.v1",
                         "data/tokenizers/mistral/samples/no_tools/tokens_v1.json");
}

static void mistral_v2_ids_are_the_published_ones(void **state)
{
    (void)state;
    check_mistral_sample("data/tokenizers/mistral/mistral_instruct_tokenizer_240216.model.v2",
                         "data/tokenizers/mistral/samples/no_tools/tokens_v2.json");
}

static void mistral_v3_ids_are_the_published_ones(void **state)
{
    (void)state;
    check_mistral_sample("data/tokenizers/mistral/mistral_instruct_tokenizer_240323.model.v3",
                         "data/tokenizers/mistral/samples/no_tools/tokens_v3.json");
}

/* Every conversation of the rendered set, with and without a generation prompt. */
static void check_rendered(const char *key, const char *name, const char *specials, bool always_prompts)
{
    char *path = shared_path("data/templates/golden_rendered.json");
    if (!path) skip();
    tokenizer *tok = byte_tokenizer("", "", specials);
    arena a = {0};
    nrl_node *golden;
    assert_int_equal(json_read_file(&a, path, 64 << 20, &golden), NRL_OK);
    const nrl_node *cases = nrl_node_find(golden, "cases");
    size_t tried = 0;
    for (size_t i = 0; i < nrl_node_size(cases); i++) {
        const nrl_node *row = nrl_node_at(cases, i);
        const char *want = nrl_node_string(nrl_node_find(row, "expected"), NULL);
        if (strcmp(nrl_node_string(nrl_node_find(row, "template"), ""), key) || !want) continue;
        const nrl_node *list = nrl_node_find(nrl_node_find(golden, "conversations"),
                                             nrl_node_string(nrl_node_find(row, "conversation"), ""));
        nrl_message m[8];
        size_t n = nrl_node_size(list);
        assert_true(n <= 8);
        for (size_t k = 0; k < n; k++) {
            const nrl_node *content = nrl_node_find(nrl_node_at(list, k), "content");
            m[k] = (nrl_message){.role = nrl_node_string(nrl_node_find(nrl_node_at(list, k), "role"), ""),
                                 .content = nrl_node_string(content, ""),
                                 .content_size = nrl_node_string_size(content)};
        }
        bool prompt = always_prompts || nrl_node_bool(nrl_node_find(row, "add_generation_prompt"), false);
        char *got;
        assert_int_equal(test_render_text(find(tok, name), m, n, prompt, &got), NRL_OK);
        assert_string_equal(got, want);
        free(got);
        tried++;
    }
    assert_true(tried >= 12);
    arena_free(&a);
    tokenizer_close(tok);
    free(path);
}

static void chatml_text_is_what_jinja_renders(void **state)
{
    (void)state;
    check_rendered("llamacpp_case:teknium/OpenHermes-2.5-Mistral-7B", "chatml", chatml_specials, false);
}

static void llama3_text_is_what_jinja_renders(void **state)
{
    (void)state;
    check_rendered("llamacpp_case:Llama-3", "llama3",
                   "{\"id\": 256, \"content\": \"<|start_header_id|>\", \"special\": true},"
                   "{\"id\": 257, \"content\": \"<|end_header_id|>\", \"special\": true},"
                   "{\"id\": 258, \"content\": \"<|eot_id|>\", \"special\": true}",
                   true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chatml_trains_the_answer_and_its_end),
        cmocka_unit_test(a_generation_prompt_opens_an_assistant_turn),
        cmocka_unit_test(an_unknown_role_names_its_message),
        cmocka_unit_test(mistral_refuses_two_users_in_a_row),
        cmocka_unit_test(a_template_without_its_tokens_is_refused),
        cmocka_unit_test(auto_and_unknown_names_list_the_templates),
        cmocka_unit_test(chatml_text_is_what_jinja_renders),
        cmocka_unit_test(llama3_text_is_what_jinja_renders),
        cmocka_unit_test(mistral_v1_ids_are_the_published_ones),
        cmocka_unit_test(mistral_v2_ids_are_the_published_ones),
        cmocka_unit_test(mistral_v3_ids_are_the_published_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
