/*
 * jinja_expr.c - expressions of a template, with the precedences of Jinja2's parser: conditions,
 * or, and, not, comparisons, sums, ~, products, powers, signs, then filters, tests and calls.
 */
#include "text/jinja_parts.h"
#include <string.h>

static nrl_status parse_or(parser *p, node **out);
static nrl_status parse_unary(parser *p, bool filters, node **out);

static node *pair(parser *p, node_kind kind, char op, node *a, node *b)
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
        *out = pair(p, NODE_BINARY, OP_POW, *out, right);
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
        *out = pair(p, NODE_BINARY, op, *out, right);
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
        *out = pair(p, NODE_BINARY, op, *out, right);
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
        if (!n) n = pair(p, NODE_COMPARE, 0, *out, NULL);
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
        *out = pair(p, NODE_AND, 0, *out, right);
    }
    return NRL_OK;
}

static nrl_status parse_or(parser *p, node **out)
{
    NRL_TRY(parse_and(p, out));
    while (parse_skip_name(p, "or")) {
        node *right;
        NRL_TRY(parse_and(p, &right));
        *out = pair(p, NODE_OR, 0, *out, right);
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

static nrl_status parse_primary(parser *p, node **out)
{
    switch (p->at->kind) {
    case TOKEN_NAME: return parse_word(p, out);
    case TOKEN_STRING: return parse_strings(p, out);
    case TOKEN_INT:
    case TOKEN_FLOAT: return parse_number(p, out);
    case TOKEN_OP: return parse_brackets(p, out);
    default: return parse_fail(p, "an expression");
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

/* ---- behind an expression: .name, [item], (arguments), |filter, is test ---- */

static void mention(parser *p, const char *text)
{
    jinja *t = p->t;
    if (t->n_mentions == t->mentions_room) {
        size_t room = t->mentions_room ? t->mentions_room * 2 : 32;
        const char **more = arena_alloc(&t->memory, room * sizeof *more);
        if (t->n_mentions) memcpy(more, t->mentions, t->n_mentions * sizeof *more);
        t->mentions = more;
        t->mentions_room = room;
    }
    t->mentions[t->n_mentions++] = text;
}

static nrl_status parse_attribute(parser *p, node *of, node **out)
{
    const token *t = p->at;
    if (t->kind != TOKEN_NAME && t->kind != TOKEN_INT) return parse_fail(p, "a name or number behind the dot");
    p->at++;
    if (t->kind == TOKEN_INT) {
        *out = pair(p, NODE_ITEM, 0, of, parse_node(p, NODE_CONST));
        (*out)->b->value = jinja_int(t->integer);
        return NRL_OK;
    }
    *out = pair(p, NODE_ATTR, 0, of, NULL);
    (*out)->value = jinja_string(t->text, t->size);
    mention(p, t->text);
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
    *out = pair(p, slice ? NODE_SLICE : NODE_ITEM, 0, of, part[0]);
    if (slice) {
        (*out)->list = arena_alloc(&p->t->memory, 3 * sizeof(node *));
        memcpy((*out)->list, part, sizeof part);
    } else if (part[0]->kind == NODE_CONST && part[0]->value.kind == JINJA_STRING) mention(p, part[0]->value.text);
    return NRL_OK;
}

static nrl_status parse_argument(parser *p, node **out)
{
    node *arg = parse_node(p, NODE_ARG);
    const token *t = p->at;
    if (parse_skip_op(p, "**")) arg->op = OP_STARS;
    else if (parse_skip_op(p, "*")) arg->op = '*';
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
        if (before && !named) return parse_fail(p, "no positional argument behind a named one");
        parse_push(p, call, arg, &room);
    }
    p->at++;
    return NRL_OK;
}

static nrl_status parse_call(parser *p, node *of, node **out)
{
    *out = pair(p, NODE_CALL, 0, of, NULL);
    return parse_arguments(p, *out);
}

/* A chain of any length is one level deeper each time, as it is when it runs. */
static nrl_status parse_postfix(parser *p, node **out)
{
    int depth = p->depth;
    nrl_status st = NRL_OK;
    for (bool more = true; more && st == NRL_OK;) {
        if (p->at->kind == TOKEN_OP && strchr(".[(", *p->at->text)) NRL_TRY(parse_enter(p));
        if (parse_skip_op(p, ".")) st = parse_attribute(p, *out, out);
        else if (parse_skip_op(p, "[")) st = parse_item(p, *out, out);
        else if (parse_skip_op(p, "(")) st = parse_call(p, *out, out);
        else more = false;
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
    const char *name;
    *out = pair(p, NODE_FILTER, 0, of, NULL);
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
    const char *name;
    size_t room = 0;
    *out = pair(p, NODE_TEST, 0, of, NULL);
    (*out)->flag = parse_skip_name(p, "not");
    NRL_TRY(parse_dotted(p, "the name of a test", &name));
    (*out)->value = jinja_string(name, strlen(name));
    (*out)->test = jinja_find_test(name, strlen(name));
    if (!(*out)->test && !p->branches) return nrl_fail(NRL_ERR_CONFIG, "unknown test '%s'", name);
    if (parse_skip_op(p, "(")) return parse_arguments(p, *out);
    if (!has_bare_argument(p)) return NRL_OK;
    if (parse_is_name(p, "is")) return parse_fail(p, "no second `is` behind a test");
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
        if (parse_skip_op(p, "|")) st = parse_one_filter(p, *out, out);
        else if (inner && parse_skip_name(p, "is")) st = parse_test(p, *out, out);
        else if (inner && parse_skip_op(p, "(")) st = parse_call(p, *out, out);
        else more = false;
    }
    p->depth = depth;
    return st;
}

static nrl_status parse_unary(parser *p, bool filters, node **out)
{
    NRL_TRY(parse_enter(p));
    if (parse_is_op(p, "-") || parse_is_op(p, "+")) {
        node *n = parse_node(p, NODE_NEG);
        n->op = *p->at++->text;
        NRL_TRY(parse_unary(p, false, &n->a));
        *out = n;
    } else NRL_TRY(parse_primary(p, out));
    NRL_TRY(parse_postfix(p, out));
    p->depth--;
    return filters ? parse_filters(p, *out, true, out) : NRL_OK;
}
