/*
 * chat_open.c - finding a template by its name: built in, the tokenizer's own, or a file.
 */
#include "base/file.h"
#include "text/chat_parts.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_TEMPLATE_SIZE = 4 << 20 };

bool chat_template_is_file(const char *name)
{
    return strchr(name, '/') || strchr(name, '.');
}

bool chat_template_is_own(const chat_template *template)
{
    return template->own != NULL;
}

static nrl_status open_own(const char *name, const char *text, const char *tools, const tokenizer *tok,
                           const chat_template **out)
{
    chat_own *own;
    NRL_TRY(chat_own_open(name, text, tools, tok, &own));
    chat_template *t = mem_alloc(sizeof *t);
    t->name = mem_strdup(name);
    t->own = own;
    *out = t;
    return NRL_OK;
}

nrl_status chat_template_open_text(const char *name, const char *jinja, const tokenizer *tok, const chat_template **out)
{
    return open_own(name, jinja, NULL, tok, out);
}

static nrl_status open_auto(const tokenizer *tok, const chat_template **out)
{
    const char *text = tok ? tokenizer_chat_template(tok) : NULL;
    if (!text)
        return nrl_fail(NRL_ERR_CONFIG,
                        "template 'auto' is the tokenizer's own, and %s\n"
                        "name one of: %s; or a file",
                        tok ? "the tokenizer has none" : "there is no tokenizer", chat_template_names());
    char *label = mem_printf("chat template of %s", tokenizer_folder(tok) ? tokenizer_folder(tok) : "the tokenizer");
    nrl_status st = open_own(label, text, tokenizer_tools_template(tok), tok, out);
    free(label);
    return st;
}

static nrl_status open_file(const char *path, const tokenizer *tok, const chat_template **out)
{
    char *text;
    size_t size;
    nrl_status st = file_read(path, MAX_TEMPLATE_SIZE, &text, &size);
    if (st != NRL_OK)
        return nrl_fail(NRL_ERR_CONFIG, "template: %s\nexpected a file, auto, or one of: %s", nrl_error_text(),
                        chat_template_names());
    st = memchr(text, 0, size) ? nrl_fail(NRL_ERR_CONFIG, "%s: a template holds no NUL", path)
                               : open_own(path, text, NULL, tok, out);
    free(text);
    return st;
}

nrl_status chat_template_open(const char *name, const tokenizer *tok, const chat_template **out)
{
    if (!strcmp(name, "auto")) return open_auto(tok, out);
    return chat_template_is_file(name) ? open_file(name, tok, out) : chat_template_find(name, out);
}

void chat_template_close(const chat_template *template)
{
    if (!template || !template->own) return;
    chat_own_close(template->own);
    free((void *)template->name);
    free((void *)template);
}
