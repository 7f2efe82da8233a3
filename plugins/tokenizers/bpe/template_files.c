/*
 * template_files.c - the files of a tokenizer's directory that change when a model is saved with
 * another chat template, or with new tokens. Programs of different age read different files, and none of them may find
 * the old template.
 */
#include "base/file.h"
#include "base/json.h"
#include "cursor.h"
#include "new_tokens.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILE = 512 << 20 };

/* A file of the directory with other members, malloc'd; NULL if it does not exist. */
static nrl_status template_file(const bpe_tokenizer *tok, const char *name, const char *jinja, char **out)
{
    static const char *const names[] = {"chat_template", "added_tokens_decoder", "added_tokens"};
    enum { TEMPLATE, DECODER, ADDED, N };
    char *path = mem_printf("%s/%s", tok->folder, name), *text = NULL, *quoted = NULL;
    size_t size;
    buffer rest = {0};
    cursor_member old[N] = {{0}};
    bool is_config = !strcmp(name, "tokenizer_config.json");
    nrl_status st = NRL_OK;
    *out = NULL;
    if (access(path, F_OK)) goto done;
    NRL_TRY_DONE(file_read(path, MAX_FILE, &text, &size));
    cursor c = {path, text, text, text + size};
    NRL_TRY_DONE(cursor_members(&c, names, N, old, &rest));
    if (jinja) quoted = json_quote(jinja, strlen(jinja));
    for (int i = 0; i < N; i++) {
        const bool is_new =
            i == TEMPLATE ? is_config && quoted : tok->new_tokens && (i == ADDED ? !is_config : old[i].text != NULL);
        if (!is_new && !old[i].text) continue;
        buffer_print(&rest, "%s\n  \"%s\": ", rest.size ? "," : "{", names[i]);
        if (!is_new)
            buffer_add(&rest, old[i].text, old[i].size);
        else if (i == TEMPLATE)
            buffer_puts(&rest, quoted);
        else
            (i == ADDED ? new_tokens_write_list : new_tokens_write_map)(tok, &old[i], &rest);
    }
    buffer_puts(&rest, "\n}\n");
    *out = buffer_take(&rest);
done:
    buffer_free(&rest);
    free(quoted);
    free(text);
    free(path);
    return st;
}

nrl_status bpe_export_template(const bpe_tokenizer *tok, const char *jinja,
                               nrl_status (*file)(void *user, const char *name, const char *text), void *user)
{
    char *config = NULL, *words = NULL;
    nrl_status st = tok->folder ? template_file(tok, "tokenizer_config.json", jinja, &config) : NRL_OK;
    if (st == NRL_OK && nrl_node_size(tok->new_tokens)) st = template_file(tok, "tokenizer.json", NULL, &words);
    if (st == NRL_OK && jinja) st = file(user, "chat_template.jinja", jinja);
    if (st == NRL_OK && jinja) st = file(user, "chat_template.json", NULL);
    if (st == NRL_OK && config) st = file(user, "tokenizer_config.json", config);
    if (st == NRL_OK && words) st = file(user, "tokenizer.json", words);
    free(words);
    free(config);
    return st;
}
