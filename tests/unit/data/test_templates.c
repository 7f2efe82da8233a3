/*
 * test_templates.c - rows of messages with a template in Jinja: pairs and labels, tools and tool
 * calls, further variables, only the last turn, messages that say whether they are trained, unknown
 * roles; and that the tokens of different files do not mix.
 */
#include "unit/data/support.h"

#define L "\xE2\x9F\xA6"
#define R "\xE2\x9F\xA7"

static const char template[] =
    "{% if tools %}tools:{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content "
    "or '' }}"
    "{% for c in m.tool_calls %}{% set g = c.function or c %}{{ g.name }}({{ g.arguments | tojson }}){% endfor "
    "%}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}{{ tail }}";

static dataset_options options(fixture *f, const char *row, const char *text)
{
    dataset_options o = support_options(f, "data.jsonl", row);
    char *path = support_write(f, "t.jinja", text);
    support_template(&o, path);
    free(path);
    return o;
}

static void check(fixture *f, const dataset_options *o, const char *expected)
{
    dataset *d = support_open(o);
    char *text = dataset_sample_text(d, 0, f->tok);
    assert_string_equal(text, expected);
    free(text);
    dataset_close(d);
}

#define USER(t) "{\"role\": \"user\", \"content\": \"" t "\"}"
#define ASSISTANT(t) "{\"role\": \"assistant\", \"content\": \"" t "\"}"

static void tools_and_their_calls_are_written_and_trained(void **state)
{
    fixture *f = *state;
    dataset_options o =
        options(f,
                "{\"messages\": [" USER(
                    "q") ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"name\": \"f\","
                         " \"arguments\": {\"x\": 1}}]}, {\"role\": \"tool\", \"content\": \"r\"}, " ASSISTANT(
                             "a") "],"
                                  " \"tools\": [{\"name\": \"f\"}]}\n",
                template);
    check(f, &o,
          "tools:[{\"name\": \"f\"}]<|im_start|>user:q<|im_end|>\n<|im_start|>assistant:" L "f({\"x\": 1})<|im_end|>" R
          "\n<|im_start|>tool:r<|im_end|>\n<|im_start|>assistant:" L "a<|im_end|>" R "\n");
}

static void tools_may_be_json_text_and_variables_a_map(void **state)
{
    fixture *f = *state;
    dataset_options o =
        options(f,
                "{\"messages\": [" USER("q") ", " ASSISTANT("a") "], \"tools\": \"[1]\","
                                                                 " \"chat_template_kwargs\": {\"tail\": \"\"}}\n",
                template);
    check(f, &o, "tools:[1]<|im_start|>user:q<|im_end|>\n<|im_start|>assistant:" L "a<|im_end|>" R "\n");
    o = options(f,
                "{\"messages\": [" USER("q") ", " ASSISTANT("a") "], \"chat_template_kwargs\": {\"documents\": [7]}}\n",
                "{{ documents[0] }}{% for m in messages %}{{ m.role[0] }}{{ m.content }}<|im_end|>{% endfor %}"
                "{% if add_generation_prompt %}a{% endif %}");
    check(f, &o, "7uq<|im_end|>a" L "a<|im_end|>" R);
    o = options(f, "{\"messages\": [" USER("q") ", " ASSISTANT("a") "], \"tools\": {\"a\": 1}}\n", template);
    dataset *d;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "data.jsonl:1: key 'tools': expected a list of tools, found map");
    o = options(f, "{\"messages\": [" USER("q") ", " ASSISTANT("a") "], \"chat_template_kwargs\": 1}\n", template);
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "key 'chat_template_kwargs': expected a map");
}

static nrl_status open_with(fixture *f, const char *variables, const chat_template **out)
{
    static const char text[] = "{{ mood }}{{ n + 1 }}{% if not loud %}!{% endif %}"
                               "{% for m in messages %}{{ m.role[0] }}{{ m.content }}<|im_end|>{% endfor %}"
                               "{% if add_generation_prompt %}a{% endif %}";
    const config_choice choice = {.source = "t.jinja", .options = support_json(f, variables)};
    return chat_template_open_text(test_host(), &choice, text, f->tok, out);
}

static void calls_of_llama_factory_are_tool_calls(void **state)
{
    fixture *f = *state;
#define SAYS(who, what) "{\"from\": \"" who "\", \"value\": \"" what "\"}"
    dataset_options o = options(
        f,
        "{\"conversations\": [" SAYS("human", "q") ", " SAYS(
            "function_call",
            "{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"x\\\": 1}}") ", " SAYS("observation",
                                                                                      "r") ", " SAYS("gpt",
                                                                                                     "a") "],"
                                                                                                          " \"tools\": "
                                                                                                          "\"[7]\"}\n",
        template);
    check(f, &o,
          "tools:[7]<|im_start|>user:q<|im_end|>\n<|im_start|>assistant:" L "f({\"x\": 1})<|im_end|>" R
          "\n<|im_start|>tool:r<|im_end|>\n<|im_start|>assistant:" L "a<|im_end|>" R "\n");
    dataset *d;
    o = options(f, "{\"conversations\": [" SAYS("human", "q") ", " SAYS("function_call", "f(1)") "]}\n", template);
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "data.jsonl:1: conversations[1]: function_call:1:1: ");
    o = options(f, "{\"conversations\": [" SAYS("human", "q") ", " SAYS("function_call", "[{}]") "]}\n", template);
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA,
                 "conversations[1]: a message from 'function_call': expected {\"name\": ...");
}

static void variables_of_the_config_reach_the_template(void **state)
{
    fixture *f = *state;
    const chat_template *t;
    dataset_options o = options(f, "{\"messages\": [" USER("q") ", " ASSISTANT("a") "]}\n", "");
    assert_int_equal(open_with(f, "{\"variables\": {\"mood\": \"\\\"ok\\\"\", \"n\": 1, \"loud\": false}}", &t),
                     NRL_OK);
    o.template = t;
    check(f, &o, "\"ok\"2!uq<|im_end|>a" L "a<|im_end|>" R);
    char *exported = chat_template_jinja(t);
    o = options(f, "{\"messages\": [" USER("q") ", " ASSISTANT("a") "]}\n", exported);
    check(f, &o, "\"ok\"2!uq<|im_end|>a" L "a<|im_end|>" R);
    free(exported);
    o = options(f, "{\"messages\": [" USER("q") ", " ASSISTANT("a") "], \"chat_template_kwargs\": {\"n\": 2}}\n", "");
    o.template = t;
    check(f, &o, "\"ok\"3!uq<|im_end|>a" L "a<|im_end|>" R);
    chat_template_close(t);
    ASSERT_FAILS(open_with(f, "{\"variables\": {\"n\": [1]}}", &t), NRL_ERR_CONFIG,
                 "variables.n: expected a text, a number, true or false");
    ASSERT_FAILS(open_with(f, "{\"variables\": {\"a b\": 1}}", &t), NRL_ERR_CONFIG, "variables: 'a b' is not a name");
}

static void tools_of_openai_pairs_reach_the_template(void **state)
{
    fixture *f = *state;
    dataset_options o = options(
        f,
        "{\"input\": {\"messages\": [" USER("q") "], \"tools\": [{\"name\": \"f\"}]},"
                                                 "\"preferred_output\": [" ASSISTANT(
                                                     "y") "], \"non_preferred_output\": [" ASSISTANT("n") "]}\n",
        template);
    o.pairs = true;
#define TOLD "tools:[{\"name\": \"f\"}]<|im_start|>user:q<|im_end|>\n<|im_start|>assistant:" L
    check(f, &o, "chosen: " TOLD "y<|im_end|>" R "\n\nrejected: " TOLD "n<|im_end|>" R "\n");
}

/* As of models that think: the generation prompt opens what an earlier message does not have. */
static void a_prompt_that_is_continued_has_the_tokens_of_generation(void **state)
{
    fixture *f = *state;
    dataset_options o = support_options(f, "data.jsonl", "{\"prompt\": \"ab \", \"completion\": \"cd\"}\n");
    o.generates = true;
    check(f, &o, "<s>ab " L "cd</s>" R);
    o = options(f, "{\"messages\": [" USER("q") ", " ASSISTANT("x</t> b") ", " USER("r") "]}\n",
                "{% for m in messages %}{{ m.role[0] }}{{ m.content.split('</t>')[-1] }}<|im_end|>{% endfor %}"
                "{% if add_generation_prompt %}a<t>{% endif %}");
    o.generates = true;
    check(f, &o, "uq<|im_end|>a<t>" L "x</t> b<|im_end|>" R);
    /* Prompts without an answer: only the token that ends a turn follows. */
    static const char *const rows[] = {"{\"prompt\": [" USER("q") "]}\n", "{\"messages\": [" USER("q") "]}\n",
                                       "{\"prompt\": [" USER("q") "], \"completion\": \"\"}\n"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        o = options(f, rows[i], template);
        o.generates = true;
        check(f, &o, "<|im_start|>user:q<|im_end|>\n<|im_start|>assistant:" L "<|im_end|>" R);
    }
    o = support_options(f, "data.jsonl", "{\"prompt\": \"ab \"}\n");
    o.generates = true;
    check(f, &o, "<s>ab " L "</s>" R);
}

static void both_answers_of_a_pair_are_trained_behind_their_prompt(void **state)
{
    fixture *f = *state;
    dataset_options o = options(f,
                                "{\"prompt\": [" USER("p") ", " ASSISTANT("old") ", " USER(
                                    "q") "],"
                                         " \"chosen\": [" ASSISTANT("a") "], \"rejected\": [" ASSISTANT("b") "]}\n",
                                template);
    o.pairs = true;
#define SHARED                                                                                                         \
    "<|im_start|>user:p<|im_end|>\n<|im_start|>assistant:old<|im_end|>\n<|im_start|>user:q<|im_end|>\n<|im_start|>"    \
    "assistant:"
    check(f, &o, "chosen: " SHARED L "a<|im_end|>" R "\n\nrejected: " SHARED L "b<|im_end|>" R "\n");
}

static void a_labelled_answer_is_trained_behind_its_prompt(void **state)
{
    fixture *f = *state;
    dataset_options o =
        options(f, "{\"prompt\": [" USER("q") "], \"completion\": [" ASSISTANT("a") "], \"label\": true}\n", template);
    o.labels = true;
    check(f, &o, "<|im_start|>user:q<|im_end|>\n<|im_start|>assistant:" L "a<|im_end|>" R "\n");
}

static void the_last_turn_alone_is_trained_on_request(void **state)
{
    fixture *f = *state;
    const char *row = "{\"messages\": [" USER("p") ", " ASSISTANT("old") ", " USER("q") ", " ASSISTANT("a") "]}\n";
    dataset_options o = options(f, row, template);
    o.train_on_last = true;
    check(
        f, &o,
        "<|im_start|>user:p<|im_end|>\n<|im_start|>assistant:old<|im_end|>\n<|im_start|>user:q<|im_end|>\n<|im_start|>"
        "assistant:" L "a<|im_end|>" R "\n");
    support_template(&o, "chatml");
    check(f, &o,
          "<s><|im_start|>user\np<|im_end|>\n<|im_start|>assistant\nold<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_"
          "start|>"
          "assistant\n" L "a<|im_end|>" R "\n");
}

#define WEIGHED(t, key) "{\"role\": \"assistant\", \"content\": \"" t "\", " key "}"

static void a_message_of_weight_0_is_read_and_not_trained(void **state)
{
    fixture *f = *state;
    static const char *const keys[] = {
        "{\"messages\": [" USER("p") ", " WEIGHED("old", "\"weight\": 0") ", " USER("q") ", " WEIGHED(
            "a", "\"weight\": 1") "]}\n",
        "{\"messages\": [" USER("p") ", " WEIGHED("old", "\"loss_weight\": 0.0") ", " USER("q") ", " WEIGHED(
            "a", "\"weight\": null") "]}\n",
        "{\"messages\": [" USER("p") ", " WEIGHED("old", "\"train\": false, \"loss\": false") ", " USER(
            "q") ", " WEIGHED("a", "\"train\": "
                                   "true") "]}\n",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        dataset_options o = options(f, keys[i], template);
        check(f, &o,
              "<|im_start|>user:p<|im_end|>\n<|im_start|>assistant:old<|im_end|>\n<|im_start|>user:"
              "q<|im_end|>\n"
              "<|im_start|>assistant:" L "a<|im_end|>" R "\n");
        support_template(&o, "chatml");
        check(f, &o,
              "<s><|im_start|>user\np<|im_end|>\n<|im_start|>assistant\nold<|im_end|>\n<|im_start|>"
              "user\nq<|im_end|>\n"
              "<|im_start|>assistant\n" L "a<|im_end|>" R "\n");
        o = options(f, keys[i],
                    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ "
                    "m.content }}{% endgeneration %}"
                    "{% else %}{{ m.content }}{% endif %}{% endfor %}");
        check(f, &o, "poldq" L "a" R);
    }
}

static void a_template_may_change_turns_that_are_not_trained(void **state)
{
    fixture *f = *state;
    const char *row =
        "{\"messages\": [" USER("p") ", " WEIGHED("<t>old", "\"weight\": 0") ", " USER("q") ", " ASSISTANT("a") "]}\n";
    dataset_options o = options(f, row,
                                "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last "
                                "else m.content.split('<t>')[-1] }}"
                                "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
    check(f, &o, "[user]p[assistant]old[user]q[assistant]" L "a" R);
}

static void rows_fail(fixture *f, const char *row, const char *text)
{
    dataset *d;
    dataset_options o = options(f, row, template);
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, text);
}

static void what_else_a_message_says_of_training_is_refused(void **state)
{
    fixture *f = *state;
    rows_fail(f, "{\"messages\": [" USER("p") ", " WEIGHED("a", "\"weight\": 0.5") "]}\n",
              "data.jsonl:1: messages[1]: cannot read key 'weight': expected 0 (not trained) or 1 "
              "(trained), got 0.5");
    rows_fail(f, "{\"messages\": [" USER("p") ", " WEIGHED("a", "\"weight\": \"0\"") "]}\n", "got \"0\"");
    rows_fail(f, "{\"messages\": [" USER("p") ", " WEIGHED("a", "\"weight\": false") "]}\n", "got false");
    rows_fail(f, "{\"messages\": [" USER("p") ", " WEIGHED("a", "\"train\": 0") "]}\n",
              "messages[1]: cannot read key 'train': expected true or false, got 0");
    rows_fail(f, "{\"messages\": [" USER("p") ", " WEIGHED("a", "\"train\": true, \"weight\": 0") "]}\n",
              "keys 'weight' and 'train' contradict each other");
    rows_fail(f, "{\"messages\": [" USER("p") ", " WEIGHED("a", "\"loss_mask\": 0") "]}\n",
              "messages[1]: cannot read key 'loss_mask': expected weight (0 or 1) or train");
    rows_fail(f, "{\"messages\": [{\"role\": \"user\", \"content\": \"p\", \"weight\": 1}, " ASSISTANT("a") "]}\n",
              "messages[0]: the message of 'user' has weight 1 or train true");
    dataset *d;
    dataset_options o = options(f, "{\"messages\": [" USER("p") ", " WEIGHED("a", "\"weight\": 0") "]}\n", template);
    o.train_on_all = true;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "messages[1]: the message has weight 0 or train false");
    o.train_on_all = false;
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "data.jsonl");
}

static void a_role_that_a_template_does_not_name_is_refused(void **state)
{
    fixture *f = *state;
    const char *row = "{\"messages\": [{\"role\": \"usr\", \"content\": \"p\"}, " ASSISTANT("a") "]}\n";
    rows_fail(f, row, "data.jsonl:1: messages[0]: unknown role 'usr': ");
    rows_fail(f, row, "hint: did you mean 'user'?");
    dataset_options o =
        options(f, row,
                "{% set roles = ['usr'] %}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}");
    check(f, &o, "[usr]p[assistant]" L "a" R);
    dataset *d;
    support_template(&o, "chatml");
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "unknown role 'usr' for template 'chatml'");
    ASSERT_FAILS(dataset_open(&o, &d), NRL_ERR_DATA, "hint: did you mean 'user'?");
}

/* The cache's key holds the file's text and which turns are trained, not the file's name. */
static void another_text_in_the_file_makes_other_tokens(void **state)
{
    fixture *f = *state;
    const char *row = "{\"messages\": [" USER("q") ", " ASSISTANT("a") "]}\n";
    char *hash[3];
    for (int i = 0; i < 3; i++) {
        dataset_options o = options(
            f, row, i == 1 ? "{{ messages[0].content }}{{ messages[1].content if messages|length > 1 }}" : template);
        dataset *d = support_open(&o);
        hash[i] = mem_strdup(dataset_info(d)->hash);
        dataset_close(d);
    }
    assert_string_equal(hash[0], hash[2]);
    assert_string_not_equal(hash[0], hash[1]);
    for (int i = 0; i < 3; i++)
        free(hash[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tools_and_their_calls_are_written_and_trained),
        TEST(tools_may_be_json_text_and_variables_a_map),
        TEST(calls_of_llama_factory_are_tool_calls),
        TEST(variables_of_the_config_reach_the_template),
        TEST(tools_of_openai_pairs_reach_the_template),
        TEST(a_prompt_that_is_continued_has_the_tokens_of_generation),
        TEST(both_answers_of_a_pair_are_trained_behind_their_prompt),
        TEST(a_labelled_answer_is_trained_behind_its_prompt),
        TEST(the_last_turn_alone_is_trained_on_request),
        TEST(a_message_of_weight_0_is_read_and_not_trained),
        TEST(a_template_may_change_turns_that_are_not_trained),
        TEST(what_else_a_message_says_of_training_is_refused),
        TEST(a_role_that_a_template_does_not_name_is_refused),
        TEST(another_text_in_the_file_makes_other_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
