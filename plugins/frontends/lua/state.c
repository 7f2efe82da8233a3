/*
 * state.c - values that JSON cannot hold, stored as maps that no other value looks like: every other
 * key that begins with $ is written with one more $.
 */
#include "state.h"
#include "base/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char number_key[] = "$number", bytes_key[] = "$bytes";

/* ---- writing ---- */

static char *hex_of(arena *a, const char *bytes, size_t size)
{
    char *hex = arena_alloc(a, 2 * size + 1);
    for (size_t i = 0; i < size; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
    return hex;
}

static nrl_node *tagged(arena *a, const char *tag, const char *text)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append_text(a, map, tag, text);
    return map;
}

static const char *key_to_json(arena *a, const char *key)
{
    if (!json_is_text(key, strlen(key))) return arena_printf(a, "$%s", hex_of(a, key, strlen(key)));
    return *key == '$' ? arena_printf(a, "$%s", key) : key;
}

static nrl_node *to_json(arena *a, const nrl_node *n)
{
    nrl_node_type kind = nrl_node_kind(n);
    if (kind == NRL_NODE_FLOAT && !isfinite(n->as.real))
        return tagged(a, number_key, isnan(n->as.real) ? "NaN" : n->as.real > 0 ? "Infinity" : "-Infinity");
    if (kind == NRL_NODE_STRING && !json_is_text(n->as.string, n->size))
        return tagged(a, bytes_key, hex_of(a, n->as.string, n->size));
    if (kind != NRL_NODE_MAP && kind != NRL_NODE_LIST) return node_copy(a, n);
    nrl_node *out = node_new(a, kind);
    for (size_t i = 0; i < nrl_node_size(n); i++)
        node_append(a, out, kind == NRL_NODE_MAP ? key_to_json(a, nrl_node_key(n, i)) : NULL,
                    to_json(a, nrl_node_at(n, i)));
    return out;
}

char *script_state_write(const nrl_node *state)
{
    arena a = {0};
    char *text = json_write(to_json(&a, state), 0);
    arena_free(&a);
    return text;
}

/* ---- reading ---- */

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* NULL if the text is not hex. */
static char *bytes_of(arena *a, const char *hex, size_t *size)
{
    size_t n = strlen(hex);
    char *bytes = arena_alloc(a, n / 2 + 1);
    for (size_t i = 0; i < n / 2; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);
        if (high < 0 || low < 0) return NULL;
        bytes[i] = (char)(16 * high + low);
    }
    *size = n / 2;
    return n % 2 ? NULL : bytes;
}

static nrl_status not_state(const char *what)
{
    return nrl_fail(NRL_ERR_CORRUPT, "run.state: '%.200s' is not valid in a script's state", what);
}

static nrl_status number_of(arena *a, const char *word, nrl_node **out)
{
    double value = !strcmp(word, "NaN")         ? NAN
                   : !strcmp(word, "Infinity")  ? INFINITY
                   : !strcmp(word, "-Infinity") ? -INFINITY
                                                : 0;
    *out = node_f64(a, value);
    return value == 0 ? not_state(word) : NRL_OK;
}

static nrl_status string_of(arena *a, const char *hex, nrl_node **out)
{
    size_t size;
    const char *bytes = bytes_of(a, hex, &size);
    if (!bytes) return not_state(hex);
    *out = node_string(a, bytes, size);
    return NRL_OK;
}

static nrl_status key_of(arena *a, const char *key, const char **out)
{
    size_t size;
    *out = key;
    if (*key != '$') return NRL_OK;
    *out = key[1] == '$' ? key + 1 : bytes_of(a, key + 1, &size);
    return *out && strlen(*out) ? NRL_OK : not_state(key);
}

static nrl_status from_json(arena *a, const nrl_node *n, nrl_node **out)
{
    nrl_node_type kind = nrl_node_kind(n);
    bool is_map = kind == NRL_NODE_MAP;
    const nrl_node *only = nrl_node_size(n) == 1 ? nrl_node_at(n, 0) : NULL;
    if (is_map && nrl_node_find(n, number_key)) return number_of(a, nrl_node_string(only, ""), out);
    if (is_map && nrl_node_find(n, bytes_key)) return string_of(a, nrl_node_string(only, "?"), out);
    *out = is_map || kind == NRL_NODE_LIST ? node_new(a, kind) : node_copy(a, n);
    for (size_t i = 0; (is_map || kind == NRL_NODE_LIST) && i < nrl_node_size(n); i++) {
        const char *key = NULL;
        nrl_node *child;
        if (is_map) NRL_TRY(key_of(a, nrl_node_key(n, i), &key));
        if (key && nrl_node_find(*out, key)) return not_state(key);
        NRL_TRY(from_json(a, nrl_node_at(n, i), &child));
        node_append(a, *out, key, child);
    }
    return NRL_OK;
}

nrl_status script_state_read(arena *a, const char *text, nrl_node **out)
{
    nrl_node *json;
    if (json_parse(a, "run.state", text, strlen(text), &json) != NRL_OK)
        return nrl_fail(NRL_ERR_CORRUPT, "%s", nrl_error_text());
    return from_json(a, json, out);
}
