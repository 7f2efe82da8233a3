/*
 * jinja_postfix.c - parses what follows an expression: .name, [item], (arguments), |filter, is
 * test.
 */
#include "jinja_parts.h"
#include <string.h>

void parse_note(parser *p, jinja_texts *list, const char *text)
{
    if (list->n == list->room) {
        size_t room = list->room ? list->room * 2 : 32;
        const char **more = arena_alloc(&p->t->memory, room * sizeof *more);
        if (list->n) memcpy(more, list->at, list->n * sizeof *more);
        list->at = more;
        list->room = room;
    }
    list->at[list->n++] = text;
}

static nrl_status parse_attribute(parser *p, node *of, node **out)
{
    const token *t = p->at;
    if (t->kind != TOKEN_NAME && t->kind != TOKEN_INT) return parse_fail(p, "a name or number after the dot");
    p->at++;
    if (t->kind == TOKEN_INT) {
        *out = parse_pair(p, NODE_ITEM, 0, of, parse_node(p, NODE_CONST));
        (*out)->b->value = jinja_int(t->integer);
        return NRL_OK;
    }
    *out = parse_pair(p, NODE_ATTR, 0, of, NULL);
    (*out)->value = jinja_string(t->text, t->size);
    parse_note(p, &p->t->mentions, t->text);
    return NRL_OK;
}

static nrl_status parse_slice_part(parser *p, node **out)
{
    *out = NULL;
    return parse_is_op(p, ":") || parse_is_op(p, "]") ? NRL_OK : parse_expression(p, out);
}

static nrl_status parse_item(parser *p, node *of, node **out)
{
    node *part[3] = {NULL, NULL, NULL};
    bool slice = false;
    NRL_TRY(parse_slice_part(p, &part[0]));
    for (int i = 1; i < 3 && parse_skip_op(p, ":"); i++) {
        slice = true;
        NRL_TRY(parse_slice_part(p, &part[i]));
    }
    if (!slice && !part[0]) return parse_fail(p, "an expression");
    NRL_TRY(parse_expect_op(p, "]"));
    *out = parse_pair(p, slice ? NODE_SLICE : NODE_ITEM, 0, of, part[0]);
    if (slice) {
        (*out)->list = arena_alloc(&p->t->memory, 3 * sizeof(node *));
        memcpy((*out)->list, part, sizeof part);
    } else if (part[0]->kind == NODE_CONST && part[0]->value.kind == JINJA_STRING)
        parse_note(p, &p->t->mentions, part[0]->value.text);
    return NRL_OK;
}

static nrl_status parse_argument(parser *p, node **out)
{
    node *arg = parse_node(p, NODE_ARG);
    const token *t = p->at;
    if (parse_skip_op(p, "**"))
        arg->op = OP_STARS;
    else if (parse_skip_op(p, "*"))
        arg->op = '*';
    else if (t->kind == TOKEN_NAME && t[1].kind == TOKEN_OP && !strcmp(t[1].text, "=")) {
        arg->value = jinja_string(t->text, t->size);
        p->at += 2;
    }
    *out = arg;
    return parse_expression(p, &arg->a);
}

nrl_status parse_arguments(parser *p, node *call)
{
    size_t room = 0;
    node *arg;
    while (!parse_is_op(p, ")")) {
        if (call->n) NRL_TRY(parse_expect_op(p, ","));
        if (parse_is_op(p, ")")) break;
        NRL_TRY(parse_argument(p, &arg));
        bool named = arg->op == OP_STARS || arg->value.kind == JINJA_STRING;
        bool before =
            call->n && (call->list[call->n - 1]->op == OP_STARS || call->list[call->n - 1]->value.kind == JINJA_STRING);
        if (before && !named) return parse_fail(p, "no positional argument after a named one");
        parse_push(p, call, arg, &room);
    }
    p->at++;
    return NRL_OK;
}

static nrl_status parse_call(parser *p, node *of, node **out)
{
    *out = parse_pair(p, NODE_CALL, 0, of, NULL);
    return parse_arguments(p, *out);
}

/* Each element of a chain is one level deeper, as it is at run time. */
nrl_status parse_postfix(parser *p, node **out)
{
    int depth = p->depth;
    nrl_status st = NRL_OK;
    for (bool more = true; more && st == NRL_OK;) {
        if (p->at->kind == TOKEN_OP && strchr(".[(", *p->at->text)) NRL_TRY(parse_enter(p));
        if (parse_skip_op(p, "."))
            st = parse_attribute(p, *out, out);
        else if (parse_skip_op(p, "["))
            st = parse_item(p, *out, out);
        else if (parse_skip_op(p, "("))
            st = parse_call(p, *out, out);
        else
            more = false;
    }
    p->depth = depth;
    return st;
}

/* Names of filters and tests may have dots. */
static nrl_status parse_dotted(parser *p, const char *what, const char **text)
{
    if (p->at->kind != TOKEN_NAME) return parse_fail(p, what);
    *text = p->at++->text;
    while (parse_skip_op(p, ".")) {
        if (p->at->kind != TOKEN_NAME) return parse_fail(p, what);
        *text = arena_printf(&p->t->memory, "%s.%s", *text, p->at++->text);
    }
    return NRL_OK;
}

nrl_status parse_one_filter(parser *p, node *of, node **out)
{
    const char *name = "";
    *out = parse_pair(p, NODE_FILTER, 0, of, NULL);
    NRL_TRY(parse_dotted(p, "the name of a filter", &name));
    (*out)->value = jinja_string(name, strlen(name));
    (*out)->filter = jinja_find_filter(name, strlen(name));
    if (!(*out)->filter && !p->branches) return nrl_fail(NRL_ERR_CONFIG, "unknown filter '%s'", name);
    return parse_skip_op(p, "(") ? parse_arguments(p, *out) : NRL_OK;
}

/* An argument without parentheses: `x is divisibleby 3`. */
static bool has_bare_argument(const parser *p)
{
    token_kind k = p->at->kind;
    if (k == TOKEN_STRING || k == TOKEN_INT || k == TOKEN_FLOAT) return true;
    if (k == TOKEN_OP) return parse_is_op(p, "[") || parse_is_op(p, "{");
    return k == TOKEN_NAME && !parse_is_name(p, "else") && !parse_is_name(p, "or") && !parse_is_name(p, "and");
}

static nrl_status parse_test(parser *p, node *of, node **out)
{
    const char *name = "";
    size_t room = 0;
    *out = parse_pair(p, NODE_TEST, 0, of, NULL);
    (*out)->flag = parse_skip_name(p, "not");
    NRL_TRY(parse_dotted(p, "the name of a test", &name));
    (*out)->value = jinja_string(name, strlen(name));
    (*out)->test = jinja_find_test(name, strlen(name));
    if (!(*out)->test && !p->branches) return nrl_fail(NRL_ERR_CONFIG, "unknown test '%s'", name);
    if (parse_skip_op(p, "(")) return parse_arguments(p, *out);
    if (!has_bare_argument(p)) return NRL_OK;
    if (parse_is_name(p, "is")) return parse_fail(p, "no second `is` after a test");
    node *arg = parse_node(p, NODE_ARG);
    NRL_TRY(parse_primary(p, &arg->a));
    NRL_TRY(parse_postfix(p, &arg->a));
    parse_push(p, *out, arg, &room);
    return NRL_OK;
}

nrl_status parse_filters(parser *p, node *of, bool inner, node **out)
{
    int depth = p->depth;
    nrl_status st = NRL_OK;
    *out = of;
    for (bool more = true; more && st == NRL_OK;) {
        NRL_TRY(parse_enter(p));
        if (parse_skip_op(p, "|"))
            st = parse_one_filter(p, *out, out);
        else if (inner && parse_skip_name(p, "is"))
            st = parse_test(p, *out, out);
        else if (inner && parse_skip_op(p, "("))
            st = parse_call(p, *out, out);
        else
            more = false;
    }
    p->depth = depth;
    return st;
}
