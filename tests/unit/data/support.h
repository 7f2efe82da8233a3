/*
 * support.h - shared by the tests of core/data: a temporary directory, files of rows, and a
 * tokenizer of single bytes with <s> (added in front), </s> and the tokens of chatml.
 */
#ifndef TESTS_DATA_SUPPORT_H
#define TESTS_DATA_SUPPORT_H
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "data/data.h"
#include "support/folder.h"
#include "support/shared.h"
#include "support/text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { SUPPORT_BOS = 256, SUPPORT_EOS = 257 };

#define ASSERT_OK(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != NRL_OK) fail_msg("%s", nrl_error_text());                                                        \
    } while (0)

/* The call fails with this status and its text holds this. */
#define ASSERT_FAILS(call, status, text)                                                                               \
    do {                                                                                                               \
        assert_int_equal((call), (status));                                                                            \
        if (!strstr(nrl_error_text(), (text))) fail_msg("'%s' is not in: %s", (text), nrl_error_text());               \
    } while (0)

typedef struct {
    char *dir;
    tokenizer *tok;
    arena memory;
} fixture;

static inline void support_write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline char *support_write(const fixture *f, const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", f->dir, name);
    support_write_bytes(path, text, strlen(text));
    return path;
}

static inline void support_write_tokenizer(const fixture *f)
{
    buffer b = {0};
    buffer_puts(&b, "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (int i = 0; i < 256; i++) {
        int c = i;
        bool self = (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
        if (!self) c = i <= 0x20 ? 0x100 + i : i == 0xad ? 0x143 : 0x121 + (i - 0x7f);
        buffer_print(&b, "%s\"\\u%04x\": %d", i ? "," : "", (unsigned)c, i);
    }
    static const char *const added[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    buffer_puts(&b, "}}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
                    "\"decoder\": {\"type\": \"ByteLevel\"}, \"added_tokens\": [");
    for (int i = 0; i < 4; i++)
        buffer_print(&b, "%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", i ? "," : "", 256 + i, added[i]);
    buffer_puts(&b, "], \"post_processor\": {\"type\": \"TemplateProcessing\","
                    "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}},"
                    "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [],"
                    "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [256],"
                    "\"tokens\": [\"<s>\"]}}}}");
    free(support_write(f, "tokenizer.json", b.text));
    buffer_free(&b);
    free(support_write(f, "tokenizer_config.json",
                       "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_bos_token\": true}"));
}

static inline int support_setup(void **state)
{
    fixture *f = mem_alloc(sizeof *f);
    f->dir = mem_strdup("/tmp/nrl-data-XXXXXX");
    if (!mkdtemp(f->dir)) return -1;
    support_write_tokenizer(f);
    if (test_tokenizer_open(f->dir, &f->tok) != NRL_OK) {
        printf("%s\n", nrl_error_text());
        return -1;
    }
    *state = f;
    return 0;
}

static inline int support_teardown(void **state)
{
    fixture *f = *state;
    test_folder_remove(f->dir);
    tokenizer_close(f->tok);
    arena_free(&f->memory);
    free(f->dir);
    free(f);
    return 0;
}

/* What a run does with data.template; opened ones live as long as the process. */
static inline void support_template(dataset_options *o, const char *word)
{
    static const chat_template *opened[256] __attribute__((used));
    static size_t n;
    o->template = NULL;
    o->template_problem = NULL;
    if (test_template_open(word, o->tokenizer, &o->template) != NRL_OK) {
        o->template = NULL;
        o->template_problem = mem_strdup(nrl_error_text());
    } else if (n < 256) {
        opened[n++] = o->template;
    }
}

/* Options for one file that is written with these rows. */
static inline dataset_options support_options(fixture *f, const char *name, const char *rows)
{
    char *path = support_write(f, name, rows);
    dataset_options o = {.host = test_host(),
                         .source = node_string(&f->memory, path, strlen(path)),
                         .tokenizer = f->tok,
                         .workers = 1,
                         .quiet = true};
    free(path);
    support_template(&o, "chatml");
    return o;
}

static inline const nrl_node *support_json(fixture *f, const char *json)
{
    nrl_node *node;
    ASSERT_OK(json_parse(&f->memory, "test", json, strlen(json), &node));
    return node;
}

static inline dataset *support_open(const dataset_options *o)
{
    dataset *d = NULL;
    ASSERT_OK(dataset_open(o, &d));
    return d;
}

#endif
