/*
 * as_jinja.c - writes a built-in template in Jinja, as transformers runs it, to save it with a
 * model. The text is for one tokenizer, whose BOS, EOS and spaces it contains; it raises an
 * exception where builtin.c returns an error. The Jinja text has no {% generation %} marks: trained
 * spans are derived from its renderings.
 */
#include "builtin.h"
#include <stdlib.h>
#include <string.h>

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

/* The constant parts of a turn as one string, with \1 as this tokenizer needs it. */
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

/* text(m) returns the content of a message as one text; a list of parts is joined. */
static const char head[] = "{%- macro text(m) -%}\n"
                           "{%- if m['content'] is string -%}{{- m['content'] -}}\n"
                           "{%- else -%}{%- for part in m['content'] -%}\n"
                           "{{- part['text'] if part['text'] is defined else part['value'] -}}\n"
                           "{%- endfor -%}{%- endif -%}\n"
                           "{%- endmacro -%}\n"
                           "{%- if not messages -%}{{- raise_exception('messages: expected at "
                           "least one') -}}{%- endif -%}\n";

/* A system message that does not have a turn of its own is put into a user's turn. */
static const char merged_head[] =
    "{%- set ns = namespace(system=none, turns=messages) -%}\n"
    "{%- if messages[0]['role'] in ['system', '" SYSTEM_ALIAS "'] -%}\n"
    "{%- set ns.system = messages[0] -%}{%- set ns.turns = messages[1:] -%}\n"
    "{%- if not ns.turns -%}{{- raise_exception('a system message alone, expected a user message') "
    "-}}{%- endif -%}\n"
    "{%- endif -%}\n";

/* The white space of is_blank (builtin.c). */
static const char *strip(const chat_format *t)
{
    return t->trims ? ".strip(' \\t\\n\\x0b\\x0c\\r\\x1c\\x1d\\x1e\\x1f')" : "";
}

static void put_turn(buffer *b, const chat_format *t, const turn *row, const char *eos, bool space)
{
    buffer_puts(b, "{{- ");
    put_constant(b, row->open, row->lead, space);
    if (t->system != SYSTEM_IS_A_TURN && !strcmp(row->role, "user"))
        buffer_print(b, " + (text(ns.system)%s + '\\n\\n' if ns.system and loop.index0 == %s else '')", strip(t),
                     t->system == SYSTEM_IN_FIRST_USER ? "0" : "(ns.turns | length - 1) // 2 * 2");
    buffer_print(b, " + text(m)%s + ", strip(t));
    put_constant(b, row->end_is_eos ? eos : row->close, row->after, space);
    buffer_puts(b, " -}}\n");
}

static void put_turns(buffer *b, const chat_format *t, const char *eos, bool space)
{
    buffer_print(b, "{%%- for m in %s -%%}\n", t->system == SYSTEM_IS_A_TURN ? "messages" : "ns.turns");
    buffer_puts(b, "{%- if m['tool_calls'] -%}{{- raise_exception('this template does not write "
                   "tool calls') -}}{%- endif -%}\n");
    if (t->alternates)
        buffer_puts(b, "{%- if m['role'] != ('assistant' if loop.index0 % 2 else 'user') -%}\n"
                       "{{- raise_exception('role ' ~ m['role'] ~ ': this template alternates user "
                       "and assistant') -}}\n"
                       "{%- endif -%}\n");
    for (const turn *row = t->turns; row->role; row++) {
        buffer_print(b, "{%%- %s m['role'] %s'%s'%s -%%}\n", row == t->turns ? "if" : "elif",
                     strcmp(row->role, "system") ? "== " : "in [", row->role,
                     strcmp(row->role, "system") ? "" : ", '" SYSTEM_ALIAS "']");
        put_turn(b, t, row, eos, space);
    }
    buffer_puts(b, "{%- else -%}\n{{- raise_exception('role ' ~ m['role'] ~ ' is not one that this "
                   "template knows') -}}\n"
                   "{%- endif -%}\n{%- endfor -%}\n");
}

/* A tokenizer recognises BOS at the beginning of the text. A tokenizer that puts a space only
 * before the first word does not add it after BOS, so the space is written here. */
static void put_bos(buffer *out, const builtin *b)
{
    put_quoted(out, builtin_token_text(b, b->tokenizer->info->bos));
    if (b->format->begins_with_word && b->tokenizer->info->space_before_text)
        buffer_puts(out, " + ('' if body.startswith(' ') else ' ')");
    buffer_puts(out, " + ");
}

void builtin_as_jinja(const builtin *b, buffer *out)
{
    const chat_format *t = b->format;
    const turn *answer = t->turns;
    while (strcmp(answer->role, "assistant") != 0)
        answer++;
    buffer_puts(out, head);
    if (t->system != SYSTEM_IS_A_TURN) buffer_puts(out, merged_head);
    buffer_puts(out, "{%- set body -%}\n");
    put_turns(out, t, b->eos, b->space);
    buffer_puts(out, "{%- if add_generation_prompt -%}{{- ");
    put_constant(out, answer->open, "", b->space);
    buffer_puts(out, " -}}{%- endif -%}\n{%- endset -%}\n{{- ");
    if (b->bos) put_bos(out, b);
    buffer_puts(out, "body -}}\n");
}
