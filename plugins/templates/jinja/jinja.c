/*
 * jinja.c - the public functions of the interpreter: compiling and rendering.
 */
#include "jinja_parts.h"
#include <stdlib.h>
#include <string.h>

/* A conversation of one megabyte takes thousands of steps and little more memory than its text. */
const jinja_limits jinja_default_limits = {
    .steps = 50000000, .memory = (size_t)512 << 20, .output = (size_t)64 << 20, .depth = 1000};

enum { MAX_SOURCE = 1 << 20 };

nrl_status jinja_compile(const char *name, const char *text, size_t size, jinja **out)
{
    if (size > MAX_SOURCE) return nrl_fail(NRL_ERR_CONFIG, "%s: a template of more than %d bytes", name, MAX_SOURCE);
    jinja *t = mem_alloc(sizeof *t);
    token_list tokens = {0};
    uint32_t line = 0;
    t->name = arena_strdup(&t->memory, name);
    nrl_status st = jinja_lex(&t->memory, text, size, &tokens);
    if (st == NRL_OK) {
        st = jinja_parse(t, tokens.at, &line);
        if (st != NRL_OK) nrl_add_context("line %u", line);
    }
    free(tokens.at);
    if (st != NRL_OK) {
        nrl_add_context("%s", name);
        jinja_free(t);
        return st;
    }
    *out = t;
    return NRL_OK;
}

void jinja_free(jinja *t)
{
    if (!t) return;
    free(t->symbols);
    arena_free(&t->memory);
    free(t);
}

const char *jinja_name(const jinja *t)
{
    return t->name;
}

bool jinja_mentions(const jinja *t, const char *name)
{
    bool found = jinja_find_symbol(t, name) >= 0;
    for (size_t i = 0; i < t->mentions.n && !found; i++)
        found = !strcmp(t->mentions.at[i], name);
    return found;
}

bool jinja_has_string(const jinja *t, const char *text)
{
    bool found = false;
    for (size_t i = 0; i < t->strings.n && !found; i++)
        found = !strcmp(t->strings.at[i], text);
    return found;
}

bool jinja_has_marks(const jinja *t)
{
    return t->has_marks;
}

void jinja_output_free(jinja_output *out)
{
    buffer_free(&out->text);
    free(out->marks);
    *out = (jinja_output){0};
}

nrl_status jinja_render(const jinja *t, const jinja_input *in, jinja_output *out)
{
    jinja_vm m = {
        .t = t, .in = in, .limits = in->limits ? *in->limits : jinja_default_limits, .out = &out->text, .result = out};
    if (in->steps) m.steps = *in->steps;
    jinja_scope *given = scope_new(&m, NULL);
    for (size_t i = 0; i < in->n; i++) {
        int32_t symbol = jinja_find_symbol(t, in->variables[i].name);
        if (symbol >= 0) scope_set(&m, given, symbol, in->variables[i].value);
    }
    nrl_status st = vm_run(&m, scope_new(&m, given), t->root);
    if (in->steps) *in->steps = m.steps;
    if (st != NRL_OK) nrl_add_context("%s: line %u", t->name, m.failed_line);
    arena_free(&m.memory);
    return st;
}
