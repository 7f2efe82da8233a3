/*
 * template_files.c - the files of a tokenizer's directory that change when a model is saved with
 * another chat template. Programs of different age read different files, and none of them may find
 * the old template.
 */
#include "base/file.h"
#include "base/json.h"
#include "cursor.h"
#include "parts.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CONFIG = 64 << 20 };

/* tokenizer_config.json with this chat_template instead of its own, malloc'd; NULL if the file does
 * not exist. */
static nrl_status template_config(const char *folder, const char *jinja, char **out)
{
    static const char *const name[] = {"chat_template"};
    char *path = mem_printf("%s/tokenizer_config.json", folder), *text = NULL, *quoted = NULL;
    size_t size;
    buffer rest = {0};
    cursor_member old = {0};
    nrl_status st = NRL_OK;
    *out = NULL;
    if (access(path, F_OK)) goto done;
    NRL_TRY_DONE(file_read(path, MAX_CONFIG, &text, &size));
    cursor c = {path, text, text, text + size};
    NRL_TRY_DONE(cursor_members(&c, name, 1, &old, &rest));
    quoted = json_quote(jinja, strlen(jinja));
    buffer_print(&rest, "%s\n  \"chat_template\": ", rest.size ? "," : "{");
    buffer_puts(&rest, quoted);
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
    char *config = NULL;
    if (tok->folder) NRL_TRY(template_config(tok->folder, jinja, &config));
    nrl_status st = file(user, "chat_template.jinja", jinja);
    if (st == NRL_OK) st = file(user, "chat_template.json", NULL);
    if (st == NRL_OK && config) st = file(user, "tokenizer_config.json", config);
    free(config);
    return st;
}
