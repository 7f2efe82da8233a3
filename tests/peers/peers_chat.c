/*
 * peers_chat.c - conversations as nrl renders and marks them, for chat.py to compare.
 *
 *   peers_chat TOKENIZER TEMPLATE ROWS   ROWS: a JSON list of {"messages", "tools", "prompt"}; prints a list of
 *   {"ids", "trained"} or {"error"}; "prompt": true asks for the generation prompt
 *   peers_chat TOKENIZER TEMPLATE        prints the template as it travels with a model, in Jinja
 */
#include "base/json.h"
#include "support/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS_SIZE = 64 << 20 };

static nrl_message *read_messages(arena *a, const nrl_node *list)
{
    size_t n = nrl_node_size(list);
    nrl_message *out = arena_alloc(a, (n + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        const nrl_node *node = nrl_node_at(list, i), *content = nrl_node_find(node, "content");
        out[i] = (nrl_message){.role = nrl_node_string(nrl_node_find(node, "role"), ""),
                               .content = nrl_node_string(content, ""),
                               .content_size = nrl_node_string_size(content),
                               .node = node};
    }
    return out;
}

static void print_ids(const chat_ids *ids)
{
    printf("{\"ids\":[");
    for (size_t i = 0; i < ids->tokens.n; i++)
        printf("%s%d", i ? "," : "", (int)ids->tokens.ids[i]);
    printf("],\"trained\":[");
    for (size_t i = 0; i < ids->tokens.n; i++)
        printf("%s%d", i ? "," : "", ids->trained[i]);
    printf("]}");
}

static void print_row(tokenizer_scratch *s, const chat_template *t, const nrl_node *row)
{
    arena a = {0};
    chat_ids ids = {0};
    const nrl_node *messages = nrl_node_find(row, "messages");
    const nrl_conversation c = {.messages = read_messages(&a, messages),
                                .n = nrl_node_size(messages),
                                .add_generation_prompt = nrl_node_bool(nrl_node_find(row, "prompt"), false),
                                .tools = nrl_node_find(row, "tools")};
    if (chat_render_conversation(t, s, &c, &ids) == NRL_OK) {
        print_ids(&ids);
    } else {
        char *text = json_quote(nrl_error_text(), strlen(nrl_error_text()));
        printf("{\"error\":%s}", text);
        free(text);
    }
    chat_ids_free(&ids);
    arena_free(&a);
}

static nrl_status print_rows(const char *folder, const char *name, const char *rows)
{
    arena a = {0};
    nrl_node *list;
    tokenizer *tok;
    const chat_template *t;
    NRL_TRY(json_read_file(&a, rows, MAX_ROWS_SIZE, &list));
    NRL_TRY(test_tokenizer_open(folder, &tok));
    NRL_TRY(test_template_open(name, tok, &t));
    tokenizer_scratch *s = tokenizer_scratch_create(tok);
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        fputs(i ? ",\n" : "[", stdout);
        print_row(s, t, nrl_node_at(list, i));
    }
    puts("]");
    tokenizer_scratch_destroy(s);
    chat_template_close(t);
    tokenizer_close(tok);
    arena_free(&a);
    return NRL_OK;
}

static nrl_status print_jinja(const char *folder, const char *name)
{
    tokenizer *tok;
    const chat_template *t;
    NRL_TRY(test_tokenizer_open(folder, &tok));
    NRL_TRY(test_template_open(name, tok, &t));
    char *text = chat_template_jinja(t);
    fputs(text, stdout);
    free(text);
    chat_template_close(t);
    tokenizer_close(tok);
    return NRL_OK;
}

int main(int argc, char **argv)
{
    if (argc == 4 && print_rows(argv[1], argv[2], argv[3]) == NRL_OK) return 0;
    if (argc == 3 && print_jinja(argv[1], argv[2]) == NRL_OK) return 0;
    fprintf(stderr, "%s\n", nrl_error_text());
    return 1;
}
