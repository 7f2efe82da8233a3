/*
 * jinja_parse.c - parses the statements of a template, and has the functions that both parsers
 * share. Jinja's statements for several templates (extends, include, import, block) are refused by
 * name.
 */
#include "jinja_parts.h"
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 160,   /* of the source: each level takes a dozen stack frames of the parser */
    MAX_SYMBOLS = 4096 /* they are searched one by one */
};

static nrl_status parse_body(parser *p, const char *const *ends, node **out);

/* ---- shared ---- */

int32_t jinja_find_symbol(const jinja *t, const char *name)
{
    for (int32_t i = 0; i < t->n_symbols; i++)
        if (!strcmp(t->symbols[i], name)) return i;
    return -1;
}

int32_t jinja_symbol(jinja *t, const char *text, size_t size)
{
    const char *name = arena_strndup(&t->memory, text, size);
    int32_t found = jinja_find_symbol(t, name);
    if (found >= 0) return found;
    if (t->n_symbols == t->symbols_room) {
        t->symbols_room = t->symbols_room ? t->symbols_room * 2 : 32;
        t->symbols = mem_realloc(t->symbols, (size_t)t->symbols_room * sizeof *t->symbols);
    }
    t->symbols[t->n_symbols] = name;
    return t->n_symbols++;
}

bool parse_is_op(const parser *p, const char *op)
{
    return p->at->kind == TOKEN_OP && !strcmp(p->at->text, op);
}

bool parse_is_name(const parser *p, const char *name)
{
    return p->at->kind == TOKEN_NAME && !strcmp(p->at->text, name);
}

bool parse_skip_op(parser *p, const char *op)
{
    bool found = parse_is_op(p, op);
    p->at += found;
    return found;
}

bool parse_skip_name(parser *p, const char *name)
{
    bool found = parse_is_name(p, name);
    p->at += found;
    return found;
}

nrl_status parse_fail(parser *p, const char *expected)
{
    static const char *const kinds[] = {[TOKEN_END] = "the end of the template",
                                        [TOKEN_DATA] = "text",
                                        [TOKEN_BLOCK_BEGIN] = "{%",
                                        [TOKEN_BLOCK_END] = "%}",
                                        [TOKEN_PRINT_BEGIN] = "{{",
                                        [TOKEN_PRINT_END] = "}}",
                                        [TOKEN_STRING] = "a string",
                                        [TOKEN_INT] = "a number",
                                        [TOKEN_FLOAT] = "a number"};
    const token *t = p->at;
    if (t->kind == TOKEN_NAME || t->kind == TOKEN_OP)
        return nrl_fail(NRL_ERR_CONFIG, "expected %s, found '%.60s'", expected, t->text);
    return nrl_fail(NRL_ERR_CONFIG, "expected %s, found %s", expected, kinds[t->kind]);
}

nrl_status parse_expect_op(parser *p, const char *op)
{
    return parse_skip_op(p, op) ? NRL_OK : parse_fail(p, op);
}

nrl_status parse_enter(parser *p)
{
    if (p->t->n_symbols > MAX_SYMBOLS) return nrl_fail(NRL_ERR_CONFIG, "more than %d different names", MAX_SYMBOLS);
    if (++p->depth < MAX_DEPTH) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "more than %d nested expressions and statements", MAX_DEPTH);
}

node *parse_node(parser *p, node_kind kind)
{
    node *n = arena_alloc(&p->t->memory, sizeof *n);
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

void parse_push(parser *p, node *list, node *item, size_t *room)
{
    if (list->n == *room) {
        *room = *room ? *room * 2 : 4;
        node **more = arena_alloc(&p->t->memory, *room * sizeof *more);
        if (list->n) memcpy(more, list->list, list->n * sizeof *more);
        list->list = more;
    }
    list->list[list->n++] = item;
}

node *parse_name_node(parser *p, node_kind kind, const token *name)
{
    node *n = parse_node(p, kind);
    n->line = name->line;
    n->symbol = jinja_symbol(p->t, name->text, name->size);
    n->value = jinja_string(name->text, name->size);
    return n;
}

static nrl_status expect_end(parser *p)
{
    if (p->at->kind != TOKEN_BLOCK_END) return parse_fail(p, "%}");
    p->at++;
    return NRL_OK;
}

static nrl_status take_name(parser *p, const char *expected, const token **out)
{
    static const char *const reserved[] = {"true", "True", "false", "False", "none", "None", "and",
                                           "or",   "not",  "in",    "is",    "if",   "else"};
    if (p->at->kind != TOKEN_NAME) return parse_fail(p, expected);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (!strcmp(p->at->text, reserved[i])) return parse_fail(p, expected);
    *out = p->at++;
    return NRL_OK;
}

/* name, name.attribute (of a namespace), (a, b) or a, b */
static nrl_status parse_one_target(parser *p, bool with_namespace, node **out)
{
    const token *name;
    if (parse_skip_op(p, "(")) {
        NRL_TRY(parse_enter(p));
        NRL_TRY(parse_target(p, false, out));
        p->depth--;
        return parse_expect_op(p, ")");
    }
    NRL_TRY(take_name(p, "a name to assign to", &name));
    *out = parse_name_node(p, NODE_NAME, name);
    if (!with_namespace || !parse_skip_op(p, ".")) return NRL_OK;
    node *n = parse_node(p, NODE_ATTR);
    NRL_TRY(take_name(p, "the name of an attribute", &name));
    n->value = jinja_string(name->text, name->size);
    n->a = *out;
    *out = n;
    return NRL_OK;
}

nrl_status parse_target(parser *p, bool with_namespace, node **out)
{
    size_t room = 0;
    NRL_TRY(parse_one_target(p, with_namespace, out));
    if (!parse_is_op(p, ",")) return NRL_OK;
    node *list = parse_node(p, NODE_TUPLE);
    parse_push(p, list, *out, &room);
    while (parse_skip_op(p, ",")) {
        if (parse_is_op(p, "=") || parse_is_op(p, ")") || parse_is_name(p, "in")) break;
        NRL_TRY(parse_one_target(p, with_namespace, out));
        parse_push(p, list, *out, &room);
    }
    *out = list;
    return NRL_OK;
}

/* ---- statements; p->at is after the first word ---- */

static const char *const end_if[] = {"elif", "else", "endif", NULL};
static const char *const end_else[] = {"endif", NULL};
static const char *const end_for[] = {"else", "endfor", NULL};
static const char *const end_for_else[] = {"endfor", NULL};

static nrl_status parse_if(parser *p, node **out)
{
    node *first = parse_node(p, NODE_IF), *n = first;
    for (;;) {
        NRL_TRY(parse_tuple(p, false, &n->a));
        NRL_TRY(expect_end(p));
        NRL_TRY(parse_body(p, end_if, &n->body));
        if (!parse_skip_name(p, "elif")) break;
        n->other = parse_node(p, NODE_IF);
        n = n->other;
    }
    if (parse_skip_name(p, "else")) {
        NRL_TRY(expect_end(p));
        NRL_TRY(parse_body(p, end_else, &n->other));
    }
    *out = first;
    p->at++;
    return NRL_OK;
}

static nrl_status parse_branches(parser *p, node **out)
{
    p->branches++;
    nrl_status st = parse_if(p, out);
    p->branches--;
    return st;
}

static nrl_status parse_for(parser *p, node **out)
{
    node *n = *out = parse_node(p, NODE_FOR);
    NRL_TRY(parse_target(p, false, &n->a));
    if (!parse_skip_name(p, "in")) return parse_fail(p, "in");
    NRL_TRY(parse_tuple(p, true, &n->b));
    if (parse_skip_name(p, "if")) NRL_TRY(parse_expression(p, &n->c));
    if (parse_is_name(p, "recursive")) return nrl_fail(NRL_ERR_CONFIG, "recursive loops are not supported");
    NRL_TRY(expect_end(p));
    p->loops++;
    NRL_TRY(parse_body(p, end_for, &n->body));
    p->loops--;
    if (parse_skip_name(p, "else")) {
        NRL_TRY(expect_end(p));
        NRL_TRY(parse_body(p, end_for_else, &n->other));
    }
    p->at++;
    return NRL_OK;
}

static nrl_status parse_set(parser *p, node **out)
{
    static const char *const ends[] = {"endset", NULL};
    node *n = *out = parse_node(p, NODE_SET);
    NRL_TRY(parse_target(p, true, &n->a));
    if (parse_skip_op(p, "=")) return parse_tuple(p, false, &n->b);
    n->kind = NODE_SET_BLOCK;
    NRL_TRY(parse_filters(p, NULL, false, &n->b));
    NRL_TRY(expect_end(p));
    NRL_TRY(parse_body(p, ends, &n->body));
    p->at++;
    return NRL_OK;
}

static nrl_status parse_params(parser *p, node *macro)
{
    size_t room = 0;
    NRL_TRY(parse_expect_op(p, "("));
    while (!parse_is_op(p, ")")) {
        const token *name;
        if (macro->n) NRL_TRY(parse_expect_op(p, ","));
        NRL_TRY(take_name(p, "the name of a parameter", &name));
        node *param = parse_name_node(p, NODE_PARAM, name);
        if (parse_skip_op(p, "="))
            NRL_TRY(parse_expression(p, &param->a));
        else if (macro->n && macro->list[macro->n - 1]->a)
            return parse_fail(p, "a default, as the parameter before has one");
        parse_push(p, macro, param, &room);
    }
    p->at++;
    return NRL_OK;
}

/* In a macro, a loop around the macro does not count, and varargs and kwargs are those of the
 * macro. */
static nrl_status parse_macro_body(parser *p, node *macro, const char *const *ends)
{
    int loops = p->loops;
    bool variadic = p->variadic;
    p->loops = 0;
    p->variadic = false;
    NRL_TRY(expect_end(p));
    NRL_TRY(parse_body(p, ends, &macro->body));
    p->at++;
    macro->flag = p->variadic;
    p->variadic = variadic;
    p->loops = loops;
    return NRL_OK;
}

static nrl_status parse_macro(parser *p, node **out)
{
    static const char *const ends[] = {"endmacro", NULL};
    const token *name;
    NRL_TRY(take_name(p, "the name of a macro", &name));
    *out = parse_name_node(p, NODE_MACRO, name);
    NRL_TRY(parse_params(p, *out));
    return parse_macro_body(p, *out, ends);
}

static nrl_status parse_call_block(parser *p, node **out)
{
    static const char *const ends[] = {"endcall", NULL};
    node *n = *out = parse_node(p, NODE_CALL_BLOCK);
    n->b = parse_node(p, NODE_MACRO);
    n->b->symbol = -1;
    if (parse_is_op(p, "(")) NRL_TRY(parse_params(p, n->b));
    NRL_TRY(parse_expression(p, &n->a));
    if (n->a->kind != NODE_CALL) return parse_fail(p, "a call after `call`");
    return parse_macro_body(p, n->b, ends);
}

static nrl_status parse_filter_block(parser *p, node **out)
{
    static const char *const ends[] = {"endfilter", NULL};
    node *n = *out = parse_node(p, NODE_FILTER_BLOCK);
    NRL_TRY(parse_one_filter(p, NULL, &n->a));
    NRL_TRY(parse_filters(p, n->a, false, &n->a));
    NRL_TRY(expect_end(p));
    NRL_TRY(parse_body(p, ends, &n->body));
    p->at++;
    return NRL_OK;
}

static nrl_status parse_with(parser *p, node **out)
{
    static const char *const ends[] = {"endwith", NULL};
    size_t room = 0;
    node *n = *out = parse_node(p, NODE_WITH);
    while (p->at->kind != TOKEN_BLOCK_END) {
        node *set = parse_node(p, NODE_SET);
        if (n->n) NRL_TRY(parse_expect_op(p, ","));
        NRL_TRY(parse_target(p, false, &set->a));
        NRL_TRY(parse_expect_op(p, "="));
        NRL_TRY(parse_expression(p, &set->b));
        parse_push(p, n, set, &room);
    }
    p->at++;
    NRL_TRY(parse_body(p, ends, &n->body));
    p->at++;
    return NRL_OK;
}

static nrl_status parse_generation(parser *p, node **out)
{
    static const char *const ends[] = {"endgeneration", NULL};
    node *n = *out = parse_node(p, NODE_GENERATION);
    int loops = p->loops;
    p->loops = 0;
    p->t->has_marks = true;
    NRL_TRY(expect_end(p));
    NRL_TRY(parse_body(p, ends, &n->body));
    p->loops = loops;
    p->at++;
    return NRL_OK;
}

static nrl_status parse_print(parser *p, node **out)
{
    *out = parse_node(p, NODE_PRINT);
    return parse_tuple(p, false, &(*out)->a);
}

static nrl_status parse_jump(parser *p, node_kind kind, node **out)
{
    *out = parse_node(p, kind);
    if (p->loops) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "'%s' outside of a loop", kind == NODE_BREAK ? "break" : "continue");
}

static nrl_status parse_break(parser *p, node **out)
{
    return parse_jump(p, NODE_BREAK, out);
}

static nrl_status parse_continue(parser *p, node **out)
{
    return parse_jump(p, NODE_CONTINUE, out);
}

static const struct {
    const char *name;
    nrl_status (*parse)(parser *p, node **out);
} statements[] = {
    {"if", parse_branches},       {"for", parse_for},
    {"set", parse_set},           {"macro", parse_macro},
    {"call", parse_call_block},   {"filter", parse_filter_block},
    {"with", parse_with},         {"generation", parse_generation},
    {"print", parse_print},       {"break", parse_break},
    {"continue", parse_continue},
};

static nrl_status parse_statement(parser *p, node **out)
{
    const token *word = p->at;
    if (word->kind != TOKEN_NAME) return parse_fail(p, "a statement");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (strcmp(statements[i].name, word->text) != 0) continue;
        p->at++;
        NRL_TRY(parse_enter(p));
        NRL_TRY(statements[i].parse(p, out));
        p->depth--;
        return expect_end(p);
    }
    return nrl_fail(NRL_ERR_CONFIG,
                    "'%.60s' is not a known statement, expected if, for, set, macro, call, filter, with, "
                    "generation, print, break or continue",
                    word->text);
}

static bool is_one_of(const parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (parse_is_name(p, *ends)) return true;
    return false;
}

static nrl_status parse_next(parser *p, node **out)
{
    if (p->at->kind == TOKEN_DATA) {
        *out = parse_node(p, NODE_TEXT);
        (*out)->value = jinja_string(p->at->text, p->at->size);
        p->at++;
        return NRL_OK;
    }
    if (p->at++->kind == TOKEN_BLOCK_BEGIN) return parse_statement(p, out);
    NRL_TRY(parse_print(p, out));
    if (p->at->kind != TOKEN_PRINT_END) return parse_fail(p, "}}");
    p->at++;
    return NRL_OK;
}

/* Parses up to {% with a word of `ends`, which is not consumed, or to the end of the template if
 * there are no `ends`. */
static nrl_status parse_body(parser *p, const char *const *ends, node **out)
{
    size_t room = 0;
    node *item;
    *out = parse_node(p, NODE_BODY);
    for (;;) {
        if (p->at->kind == TOKEN_END) {
            if (!ends) return NRL_OK;
            return nrl_fail(NRL_ERR_CONFIG, "the template ends, expected {%% %s %%}",
                            ends[ends[1] ? (ends[2] ? 2 : 1) : 0]);
        }
        if (p->at->kind == TOKEN_BLOCK_BEGIN) {
            p->at++;
            if (is_one_of(p, ends)) return NRL_OK;
            p->at--;
        }
        NRL_TRY(parse_next(p, &item));
        parse_push(p, *out, item, &room);
    }
}

nrl_status jinja_parse(jinja *t, const token *tokens, uint32_t *line)
{
    parser p = {.t = t, .at = tokens};
    nrl_status st = parse_body(&p, NULL, &t->root);
    *line = p.at->line;
    return st;
}
