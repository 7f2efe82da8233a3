/*
 * yaml_write.c - writes a tree as YAML, for the resolved config of a run. The text has the same meaning in every YAML
 * reader: words that some readers take for booleans are quoted, and 1e-08 is written as 1.0e-08.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "base/scalar.h"
#include "base/yaml.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool holds_children(const nrl_node *n)
{
    return (n->kind == NRL_NODE_LIST || n->kind == NRL_NODE_MAP) && n->size;
}

/* Whether the text can be written without quotes: it has only characters without a meaning in YAML. */
static bool is_plain_word(const char *text, size_t size)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    static const char *const booleans[] = {"yes", "no", "on", "off", "y", "n"};
    arena a = {0};
    if (!size || strspn(text, safe) != size || *text == '-' || *text == '+') return false;
    for (size_t i = 0; i < sizeof booleans / sizeof *booleans; i++)
        if (!strcasecmp(text, booleans[i])) return false;
    bool is_text = scalar_node(&a, text, size)->kind == NRL_NODE_STRING;
    arena_free(&a);
    return is_text;
}

/* A quoted JSON string is also a YAML string. */
static void write_text(buffer *b, const char *text, size_t size)
{
    if (is_plain_word(text, size)) {
        buffer_add(b, text, size);
        return;
    }
    char *quoted = json_quote(text, size);
    buffer_puts(b, quoted);
    free(quoted);
}

static void write_real(buffer *b, double v)
{
    nrl_node n = {.kind = NRL_NODE_FLOAT, .as.real = v};
    if (!isfinite(v)) {
        buffer_puts(b, isnan(v) ? ".nan" : v > 0 ? ".inf" : "-.inf");
        return;
    }
    char *text = json_write(&n, 0), *e = strchr(text, 'e');
    buffer_add(b, text, e ? (size_t)(e - text) : strlen(text));
    if (e && !memchr(text, '.', (size_t)(e - text))) buffer_puts(b, ".0");
    if (e) buffer_puts(b, e);
    free(text);
}

static void write_leaf(buffer *b, const nrl_node *n)
{
    if (n->secret) {
        char *quoted = json_quote(n->secret, strlen(n->secret));
        buffer_puts(b, quoted);
        free(quoted);
    } else if (n->kind == NRL_NODE_STRING) {
        write_text(b, n->as.string, n->size);
    } else if (n->kind == NRL_NODE_FLOAT) {
        write_real(b, n->as.real);
    } else {
        char *text = json_write(n, 0); /* null, booleans, integers, [] and {} are the same in YAML */
        buffer_puts(b, text);
        free(text);
    }
}

static bool is_flat(const nrl_node *list)
{
    for (size_t i = 0; i < list->size; i++)
        if (holds_children(nrl_node_at(list, i))) return false;
    return list->kind == NRL_NODE_LIST;
}

static void write_flat(buffer *b, const nrl_node *list)
{
    for (size_t i = 0; i < list->size; i++) {
        buffer_puts(b, i ? ", " : "[");
        write_leaf(b, nrl_node_at(list, i));
    }
    buffer_puts(b, "]");
}

static void write_children(buffer *b, const nrl_node *node, size_t indent, bool started);

/* Writes the value after "key:" or "-", with the line end. */
static void write_value(buffer *b, const nrl_node *n, size_t indent, bool in_list)
{
    if (holds_children(n) && !is_flat(n)) {
        buffer_puts(b, in_list ? " " : "\n"); /* a map in a list begins on the line of the dash: "- path: x" */
        write_children(b, n, indent, in_list);
        return;
    }
    buffer_puts(b, " ");
    if (holds_children(n))
        write_flat(b, n);
    else
        write_leaf(b, n);
    buffer_puts(b, "\n");
}

/* `started`: the first line is already indented. */
static void write_children(buffer *b, const nrl_node *node, size_t indent, bool started)
{
    for (size_t i = 0; i < node->size; i++) {
        const char *key = nrl_node_key(node, i);
        if (i || !started) buffer_spaces(b, indent);
        if (key) write_text(b, key, strlen(key));
        buffer_puts(b, key ? ":" : "-");
        write_value(b, nrl_node_at(node, i), indent + 2, !key);
    }
}

char *yaml_write(const nrl_node *root)
{
    buffer b = {0};
    if (holds_children(root))
        write_children(&b, root, 0, false);
    else
        buffer_puts(&b, "{}\n");
    return buffer_take(&b);
}
