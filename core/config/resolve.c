/*
 * resolve.c - writes option values back to a tree: the resolved config, with all defaults, that a run saves and prints.
 */
#include "config/config.h"
#include "config/options.h"
#include <string.h>

static const char *choice_at(arena *a, const char *choices, int64_t index)
{
    for (; index > 0; index--)
        choices += strcspn(choices, "|") + 1;
    return arena_strndup(a, choices, strcspn(choices, "|"));
}

static nrl_node *text_node(arena *a, const char *text)
{
    return node_string(a, text ? text : "", text ? strlen(text) : 0);
}

static nrl_node *value_node(arena *a, const nrl_option *row, const void *from)
{
    const nrl_node *node;
    const char *text;
    switch ((nrl_type)row->type) {
    case NRL_TYPE_INT:
        return node_int(a, *(const int64_t *)from);
    case NRL_TYPE_F64:
        return node_f64(a, *(const double *)from);
    case NRL_TYPE_BOOL:
        return node_bool(a, *(const bool *)from);
    case NRL_TYPE_ENUM:
        return text_node(a, choice_at(a, row->choices, *(const int64_t *)from));
    case NRL_TYPE_STR:
        return text_node(a, *(const char *const *)from);
    case NRL_TYPE_PATH:
        text = *(const char *const *)from;
        return text_node(a, text ? config_absolute(a, text) : NULL);
    default:
        node = *(const nrl_node *const *)from;
        return node ? node_copy(a, node) : node_new(a, NRL_NODE_NULL);
    }
}

void options_resolve(arena *a, const nrl_node *node, const option_part *parts, size_t n_parts, nrl_node *resolved)
{
    for (size_t p = 0; p < n_parts; p++)
        for (size_t i = 0; i < parts[p].n_rows; i++) {
            const nrl_option *row = option_row(parts[p].rows, i, parts[p].stride);
            const nrl_node *given = nrl_node_find(node, row->name);
            nrl_node *value = value_node(a, row, (const char *)parts[p].out + row->offset);
            if (given && given->secret) value = node_copy(a, given);
            node_set(a, resolved, row->name, value);
        }
}
