/*
 * jinja_expr.c - expressions of a template, with the precedences of Jinja2's parser: conditions,
 * or, and, not, comparisons, sums, ~, products, powers, signs, then filters, tests and calls.
 */
#include "jinja_parts.h"
#include <string.h>

static nrl_status parse_or(parser *p, node **out);
static nrl_status parse_unary(parser *p, bool filters, node **out);

node *parse_pair(parser *p, node_kind kind, char op, node *a, node *b)
{
    node *n = parse_node(p, kind);
    n->op = op;
    n->a = a;
    n->b = b;
    if (a) n->line = a->line;
    return n;
}

/* ---- conditions ---- */

static nrl_status parse_inline_if(parser *p, node **out)
{
    NRL_TRY(parse_or(p, out));
    while (parse_skip_name(p, "if")) {
        node *n = parse_node(p, NODE_COND);
        n->b = *out;
        p->branches++;
        NRL_TRY(parse_or(p, &n->a));
        if (parse_skip_name(p, "else")) NRL_TRY(parse_expression(p, &n->c));
        p->branches--;
        *out = n;
    }
    return NRL_OK;
}

nrl_status parse_expression(parser *p, node **out)
{
    NRL_TRY(parse_enter(p));
    nrl_status st = parse_inline_if(p, out);
    p->depth--;
    return st;
}

nrl_status parse_condition_free(parser *p, node **out)
{
    return parse_or(p, out);
}

/* ---- and, or, not ---- */

static const char *compare_op(const parser *p, char *op)
{
    static const struct {
        const char *text;
        char op;
    } rows[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"<", '<'}, {">", '>'}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (parse_is_op(p, rows[i].text)) {
            *op = rows[i].op;
            return rows[i].text;
        }
    return NULL;
}

static bool take_compare(parser *p, char *op)
{
    const token *next = &p->at[1];
    if (compare_op(p, op)) {
        p->at++;
        return true;
    }
    if (parse_skip_name(p, "in")) {
        *op = OP_IN;
        return true;
    }
    if (!parse_is_name(p, "not") || next->kind != TOKEN_NAME || strcmp(next->text, "in") != 0) return false;
    p->at += 2;
    *op = OP_NOT_IN;
    return true;
}

/* ---- arithmetic ---- */

static nrl_status parse_power(parser *p, node **out)
{
    NRL_TRY(parse_unary(p, true, out));
    while (parse_skip_op(p, "**")) {
        node *right;
        NRL_TRY(parse_unary(p, true, &right));
        *out = parse_pair(p, NODE_BINARY, OP_POW, *out, right);
    }
    return NRL_OK;
}

static bool take_product(parser *p, char *op)
{
    static const char *const texts[] = {"*", "//", "/", "%"};
    static const char ops[] = {'*', OP_FLOOR, '/', '%'};
    for (int i = 0; i < 4; i++)
        if (parse_skip_op(p, texts[i])) {
            *op = ops[i];
            return true;
        }
    return false;
}

static nrl_status parse_product(parser *p, node **out)
{
    char op;
    NRL_TRY(parse_power(p, out));
    while (take_product(p, &op)) {
        node *right;
        NRL_TRY(parse_power(p, &right));
        *out = parse_pair(p, NODE_BINARY, op, *out, right);
    }
    return NRL_OK;
}

static nrl_status parse_concat(parser *p, node **out)
{
    size_t room = 0;
    NRL_TRY(parse_product(p, out));
    if (!parse_is_op(p, "~")) return NRL_OK;
    node *n = parse_node(p, NODE_CONCAT), *item;
    parse_push(p, n, *out, &room);
    while (parse_skip_op(p, "~")) {
        NRL_TRY(parse_product(p, &item));
        parse_push(p, n, item, &room);
    }
    *out = n;
    return NRL_OK;
}

static nrl_status parse_sum(parser *p, node **out)
{
    NRL_TRY(parse_concat(p, out));
    while (parse_is_op(p, "+") || parse_is_op(p, "-")) {
        char op = *p->at++->text;
        node *right;
        NRL_TRY(parse_concat(p, &right));
        *out = parse_pair(p, NODE_BINARY, op, *out, right);
    }
    return NRL_OK;
}

static nrl_status parse_compare(parser *p, node **out)
{
    size_t room = 0;
    char op;
    node *n = NULL;
    NRL_TRY(parse_sum(p, out));
    while (take_compare(p, &op)) {
        node *operand = parse_node(p, NODE_OPERAND);
        operand->op = op;
        NRL_TRY(parse_sum(p, &operand->a));
        if (!n) n = parse_pair(p, NODE_COMPARE, 0, *out, NULL);
        parse_push(p, n, operand, &room);
    }
    if (n) *out = n;
    return NRL_OK;
}

static nrl_status parse_not(parser *p, node **out)
{
    if (!parse_skip_name(p, "not")) return parse_compare(p, out);
    node *n = parse_node(p, NODE_NOT);
    NRL_TRY(parse_enter(p));
    NRL_TRY(parse_not(p, &n->a));
    p->depth--;
    *out = n;
    return NRL_OK;
}

static nrl_status parse_and(parser *p, node **out)
{
    NRL_TRY(parse_not(p, out));
    while (parse_skip_name(p, "and")) {
        node *right;
        NRL_TRY(parse_not(p, &right));
        *out = parse_pair(p, NODE_AND, 0, *out, right);
    }
    return NRL_OK;
}

static nrl_status parse_or(parser *p, node **out)
{
    NRL_TRY(parse_and(p, out));
    while (parse_skip_name(p, "or")) {
        node *right;
        NRL_TRY(parse_and(p, &right));
        *out = parse_pair(p, NODE_OR, 0, *out, right);
    }
    return NRL_OK;
}

/* ---- literals and names ---- */

static nrl_status parse_items(parser *p, node *list, const char *close, bool pairs)
{
    size_t room = 0;
    node *item;
    while (!parse_is_op(p, close)) {
        if (list->n) NRL_TRY(parse_expect_op(p, ","));
        if (parse_is_op(p, close)) break;
        NRL_TRY(parse_expression(p, &item));
        parse_push(p, list, item, &room);
        if (!pairs) continue;
        NRL_TRY(parse_expect_op(p, ":"));
        NRL_TRY(parse_expression(p, &item));
        parse_push(p, list, item, &room);
    }
    p->at++;
    return NRL_OK;
}

static nrl_status parse_strings(parser *p, node **out)
{
    buffer b = {0};
    *out = parse_node(p, NODE_CONST);
    for (; p->at->kind == TOKEN_STRING; p->at++)
        buffer_add(&b, p->at->text, p->at->size);
    (*out)->value = jinja_string(arena_strndup(&p->t->memory, b.text ? b.text : "", b.size), b.size);
    parse_note(p, &p->t->strings, (*out)->value.text);
    buffer_free(&b);
    return NRL_OK;
}

static bool constant_of(const token *t, jinja_value *out)
{
    static const char *const names[] = {"true", "True", "false", "False", "none", "None"};
    for (int i = 0; i < 6; i++)
        if (!strcmp(t->text, names[i])) {
            *out = i < 4 ? jinja_bool(i < 2) : jinja_none();
            return true;
        }
    return false;
}

static nrl_status parse_word(parser *p, node **out)
{
    jinja_value constant;
    const token *t = p->at++;
    if (constant_of(t, &constant)) {
        *out = parse_node(p, NODE_CONST);
        (*out)->value = constant;
        return NRL_OK;
    }
    if (!strcmp(t->text, "varargs") || !strcmp(t->text, "kwargs")) p->variadic = true;
    *out = parse_name_node(p, NODE_NAME, t);
    return NRL_OK;
}

static nrl_status parse_number(parser *p, node **out)
{
    const token *t = p->at++;
    *out = parse_node(p, NODE_CONST);
    (*out)->value = t->kind == TOKEN_INT ? jinja_int(t->integer) : jinja_float(t->real);
    return NRL_OK;
}

static nrl_status parse_brackets(parser *p, node **out)
{
    if (parse_skip_op(p, "(")) {
        if (parse_skip_op(p, ")")) {
            *out = parse_node(p, NODE_TUPLE);
            return NRL_OK;
        }
        NRL_TRY(parse_tuple(p, false, out));
        return parse_expect_op(p, ")");
    }
    bool map = parse_is_op(p, "{");
    if (!map && !parse_is_op(p, "[")) return parse_fail(p, "an expression");
    p->at++;
    *out = parse_node(p, map ? NODE_MAP : NODE_LIST);
    return parse_items(p, *out, map ? "}" : "]", map);
}

nrl_status parse_primary(parser *p, node **out)
{
    switch (p->at->kind) {
    case TOKEN_NAME:
        return parse_word(p, out);
    case TOKEN_STRING:
        return parse_strings(p, out);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return parse_number(p, out);
    case TOKEN_OP:
        return parse_brackets(p, out);
    default:
        return parse_fail(p, "an expression");
    }
}

static bool ends_tuple(const parser *p)
{
    token_kind k = p->at->kind;
    return k == TOKEN_BLOCK_END || k == TOKEN_PRINT_END || parse_is_op(p, ")") || parse_is_name(p, "in");
}

nrl_status parse_tuple(parser *p, bool plain, node **out)
{
    size_t room = 0;
    node *list = NULL;
    NRL_TRY(plain ? parse_condition_free(p, out) : parse_expression(p, out));
    while (parse_skip_op(p, ",")) {
        if (!list) {
            list = parse_node(p, NODE_TUPLE);
            parse_push(p, list, *out, &room);
        }
        if (ends_tuple(p)) break;
        NRL_TRY(plain ? parse_condition_free(p, out) : parse_expression(p, out));
        parse_push(p, list, *out, &room);
    }
    if (list) *out = list;
    return NRL_OK;
}

static nrl_status parse_unary(parser *p, bool filters, node **out)
{
    NRL_TRY(parse_enter(p));
    if (parse_is_op(p, "-") || parse_is_op(p, "+")) {
        node *n = parse_node(p, NODE_NEG);
        n->op = *p->at++->text;
        NRL_TRY(parse_unary(p, false, &n->a));
        *out = n;
    } else
        NRL_TRY(parse_primary(p, out));
    NRL_TRY(parse_postfix(p, out));
    p->depth--;
    return filters ? parse_filters(p, *out, true, out) : NRL_OK;
}
