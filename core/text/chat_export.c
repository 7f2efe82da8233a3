/*
 * chat_export.c - a template as it travels with a model: in Jinja, as transformers runs it. A
 * built-in one is written from its table and for one tokenizer, whose BOS, EOS and spaces stand in
 * it as text; what the table's writer refuses (chat.c) raises. Nothing marks what is trained: that
 * is read off the text again (chat_own.c).
 */
#include "base/file.h"
#include "base/json.h"
#include "text/chat_parts.h"
#include "text/cursor.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CONFIG = 64 << 20 };

static void put_quoted(buffer *b, const char *text)
{
    buffer_puts(b, "'");
    for (; *text; text++)
        if (*text == '\n')
            buffer_puts(b, "\\n");
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            buffer_print(b, "\\x%02x", (unsigned)*text);
        else
            buffer_print(b, "%s%c", *text == '\'' || *text == '\\' ? "\\" : "", *text);
    buffer_puts(b, "'");
}

/* Parts of a turn as one constant, \1 as this tokenizer needs it. */
static void put_constant(buffer *b, const char *first, const char *second, bool space)
{
    buffer joined = {0};
    const char *parts[] = {first, second};
    for (int i = 0; i < 2; i++)
        for (const char *p = parts[i]; *p; p++)
            if (*p != '\1' || space) buffer_add(&joined, *p == '\1' ? " " : p, 1);
    char *text = buffer_take(&joined);
    put_quoted(b, text);
    free(text);
}

/* text(m) gives a message's content as one text: that of its parts, where it is a list. */
static const char head[] = "{%- macro text(m) -%}\n"
                           "{%- if m['content'] is string -%}{{- m['content'] -}}\n"
                           "{%- else -%}{%- for part in m['content'] -%}\n"
                           "{{- part['text'] if part['text'] is defined else part['value'] -}}\n"
                           "{%- endfor -%}{%- endif -%}\n"
                           "{%- endmacro -%}\n"
                           "{%- if not messages -%}{{- raise_exception('messages: expected at "
                           "least one') -}}{%- endif -%}\n";

/* A system message that is no turn of its own stands in a user's. */
static const char merged_head[] =
    "{%- set ns = namespace(system=none, turns=messages) -%}\n"
    "{%- if messages[0]['role'] == 'system' -%}\n"
    "{%- set ns.system = messages[0] -%}{%- set ns.turns = messages[1:] -%}\n"
    "{%- if not ns.turns -%}{{- raise_exception('a system message alone, expected a user message') "
    "-}}{%- endif -%}\n"
    "{%- endif -%}\n";

/* The blanks of chat_is_blank. */
static const char *strip(const chat_template *t)
{
    return t->trims ? ".strip(' \\t\\n\\x0b\\x0c\\r\\x1c\\x1d\\x1e\\x1f')" : "";
}

static void put_turn(buffer *b, const chat_template *t, const turn *row, const char *eos,
                     bool space)
{
    buffer_puts(b, "{{- ");
    put_constant(b, row->open, row->lead, space);
    if (t->system != SYSTEM_IS_A_TURN && !strcmp(row->role, "user"))
        buffer_print(
            b, " + (text(ns.system)%s + '\\n\\n' if ns.system and loop.index0 == %s else '')",
            strip(t), t->system == SYSTEM_IN_FIRST_USER ? "0" : "(ns.turns | length - 1) // 2 * 2");
    buffer_print(b, " + text(m)%s + ", strip(t));
    put_constant(b, row->end_is_eos ? eos : row->close, row->after, space);
    buffer_puts(b, " -}}\n");
}

static void put_turns(buffer *b, const chat_template *t, const char *eos, bool space)
{
    buffer_print(b, "{%%- for m in %s -%%}\n",
                 t->system == SYSTEM_IS_A_TURN ? "messages" : "ns.turns");
    buffer_puts(b, "{%- if m['tool_calls'] -%}{{- raise_exception('this template does not write "
                   "tool calls') -}}{%- endif -%}\n");
    if (t->alternates)
        buffer_puts(b, "{%- if m['role'] != ('assistant' if loop.index0 % 2 else 'user') -%}\n"
                       "{{- raise_exception('role ' ~ m['role'] ~ ': this template alternates user "
                       "and assistant') -}}\n"
                       "{%- endif -%}\n");
    for (const turn *row = t->turns; row->role; row++) {
        buffer_print(b, "{%%- %s m['role'] == '%s' -%%}\n", row == t->turns ? "if" : "elif",
                     row->role);
        put_turn(b, t, row, eos, space);
    }
    buffer_puts(b, "{%- else -%}\n{{- raise_exception('role ' ~ m['role'] ~ ' is not one that this "
                   "template knows') -}}\n"
                   "{%- endif -%}\n{%- endfor -%}\n");
}

/* As text BOS is what a tokenizer takes for the beginning; one that puts a space before the first
 * word alone then leaves it out. */
static void put_bos(buffer *b, const chat_template *t, const tokenizer *tok)
{
    put_quoted(b, tokenizer_token_text(tok, tokenizer_bos(tok)));
    if (t->begins_with_word && tok->edit.prepend && tok->edit.first_only)
        buffer_puts(b, " + ('' if body.startswith(' ') else ' ')");
    buffer_puts(b, " + ");
}

char *chat_template_jinja(const chat_template *template, const tokenizer *tok)
{
    if (template->own) return mem_strdup(chat_own_text(template->own));
    const chat_template *t = chat_for_tokenizer(template, tok);
    const char *eos = tokenizer_token_text(tok, tokenizer_eos(tok));
    bool space = chat_needs_space(tok);
    const turn *answer = t->turns;
    buffer b = {0};
    while (strcmp(answer->role, "assistant") != 0)
        answer++;
    buffer_puts(&b, head);
    if (t->system != SYSTEM_IS_A_TURN) buffer_puts(&b, merged_head);
    buffer_puts(&b, "{%- set body -%}\n");
    put_turns(&b, t, eos ? eos : "", space);
    buffer_puts(&b, "{%- if add_generation_prompt -%}{{- ");
    put_constant(&b, answer->open, "", space);
    buffer_puts(&b, " -}}{%- endif -%}\n{%- endset -%}\n{{- ");
    if (chat_wants_bos(t, tok)) put_bos(&b, t, tok);
    buffer_puts(&b, "body -}}\n");
    return buffer_take(&b);
}

nrl_status chat_template_config(const char *folder, const char *jinja, char **out)
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
