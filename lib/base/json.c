/*
 * json.c - JSON to nodes (parsed by jansson, then copied into the arena) and nodes to JSON.
 * The only file that uses jansson. Nodes from JSON have a source but no line.
 */
#include "base/json.h"
#include "base/buffer.h"
#include "base/file.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

typedef struct {
    arena *a;
    const char *source;
} reader;

static nrl_node *convert(const reader *r, const json_t *j, const char *key, nrl_node *parent);

static nrl_node *convert_scalar(const reader *r, const json_t *j)
{
    switch (json_typeof(j)) {
    case JSON_STRING:
        return node_string(r->a, json_string_value(j), json_string_length(j));
    case JSON_INTEGER:
        return node_int(r->a, json_integer_value(j));
    case JSON_REAL:
        return node_f64(r->a, json_real_value(j));
    case JSON_TRUE:
        return node_bool(r->a, true);
    case JSON_FALSE:
        return node_bool(r->a, false);
    default:
        return node_new(r->a, NRL_NODE_NULL);
    }
}

static void convert_list(const reader *r, const json_t *j, nrl_node *list)
{
    size_t n = json_array_size(j);
    for (size_t i = 0; i < n; i++)
        convert(r, json_array_get(j, i), NULL, list);
}

/* jansson keeps the order of the text and has already rejected duplicate keys. */
static void convert_map(const reader *r, const json_t *j, nrl_node *map)
{
    json_t *object = (json_t *)j; /* the iterator only reads */
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i))
        convert(r, json_object_iter_value(i), json_object_iter_key(i), map);
}

static nrl_node *convert(const reader *r, const json_t *j, const char *key, nrl_node *parent)
{
    bool list = json_is_array(j), map = json_is_object(j);
    nrl_node *n = list || map ? node_new(r->a, map ? NRL_NODE_MAP : NRL_NODE_LIST) : convert_scalar(r, j);
    n->source = r->source;
    if (parent) node_append(r->a, parent, key, n);
    if (list) convert_list(r, j, n);
    if (map) convert_map(r, j, n);
    return n;
}

/* The bytes that `convert` takes from the arena, at most. */
static size_t tree_room(const json_t *j, size_t key_size)
{
    json_t *object = json_is_object(j) ? (json_t *)j : NULL; /* the iterator only reads */
    size_t n = json_array_size(j), size = node_room(n + json_object_size(j), json_string_length(j) + key_size);
    for (size_t i = 0; i < n; i++)
        size += tree_room(json_array_get(j, i), 0);
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i))
        size += tree_room(json_object_iter_value(i), strlen(json_object_iter_key(i)));
    return size;
}

/* When an allocation fails, jansson reports "invalid token" or nothing, or drops characters, so the allocator records
 * the failure. A process has one allocator of jansson and several copies of this file, in plugins: each load sets its
 * own, and errno has the failures of another copy's, which a load in another thread may have set in between. */
static _Thread_local bool lacks_memory;

static void *json_memory(size_t size)
{
    void *memory = mem_try_grow(NULL, size, "JSON");
    if (!memory) {
        lacks_memory = true;
        errno = ENOMEM;
    }
    return memory;
}

static json_t *load(const char *text, size_t size, json_error_t *error)
{
    json_set_alloc_funcs(json_memory, free);
    lacks_memory = false;
    errno = 0;
    json_t *j = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, error);
    if (!j && (errno == ENOMEM || !*error->text)) lacks_memory = true;
    if (!j || !lacks_memory) return j;
    json_decref(j);
    return NULL;
}

/* Replaces jansson's error texts that a user would not understand. All other texts are clear. */
static const char *const json_mistakes[][2] = {
    {"string or '}' expected", "expected a key in double quotes, or '}'"},
    {"':' expected", "expected ':' after a key"},
    {"'}' expected", "expected ',' or '}'"},
    {"']' expected", "expected ',' or ']'"},
    {"invalid token", "expected a value: text in double quotes, a number, true, false, null, '[' or '{'"},
    {"unexpected token", "expected a value: text in double quotes, a number, true, false, null, '[' or '{'"},
    {"premature end of input", "expected '\"' at the end of a text"},
    {"unexpected newline", "expected '\"' at the end of a text; write a line break inside it as \\n"},
    {"end of file expected", "expected nothing after the value"},
    {"duplicate object key", "expected each key once"},
    {"real number overflow", "expected a number up to 1.8e308"},
};

static nrl_status json_mistake(const char *source, int64_t line, int64_t column, const char *text)
{
    const char *means = NULL, *found = strstr(text, " near ");
    for (size_t i = 0; found && !means && i < sizeof json_mistakes / sizeof *json_mistakes; i++)
        if (!strncmp(text, json_mistakes[i][0], (size_t)(found - text))) means = json_mistakes[i][1];
    if (!means) return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ":%" PRId64 ": %s", source, line, column, text);
    found += strlen(" near ");
    return nrl_fail(NRL_ERR_DATA, "%s:%" PRId64 ":%" PRId64 ": %s, found %s", source, line, column, means,
                    strcmp(found, "end of file") ? found : "the end");
}

static bool is_wide(const char *digits, size_t n)
{
    char copy[32] = {0};
    if (n >= sizeof copy) return true;
    memcpy(copy, digits, n);
    errno = 0;
    (void)strtoll(copy, NULL, 10);
    return errno == ERANGE;
}

/* The text with ".0" after each integer that needs more than 64 bits, such as 1e30 written out, which is a real then.
 */
static void mark_reals(const char *text, size_t size, buffer *out)
{
    size_t copied = 0;
    for (size_t i = 0; i < size; i++) {
        const size_t begin = i;
        if (text[i] == '"') {
            for (i++; i < size && text[i] != '"'; i++)
                i += text[i] == '\\';
            continue;
        }
        while (i < size && text[i] && strchr("+-.0123456789eE", text[i]))
            i++;
        const size_t n = i - begin;
        i -= n > 0; /* its last character */
        if (!n || memchr(text + begin, '.', n) || memchr(text + begin, 'e', n) || memchr(text + begin, 'E', n) ||
            !is_wide(text + begin, n))
            continue;
        buffer_add(out, text + copied, i + 1 - copied);
        buffer_puts(out, ".0");
        copied = i + 1;
    }
    buffer_add(out, text + copied, size - copied);
}

nrl_status json_parse_at(arena *a, const char *source, int64_t line, int64_t column, const char *text, size_t size,
                         nrl_node **out)
{
    json_error_t error;
    json_t *j = load(text, size, &error);
    if (!j && !lacks_memory && json_error_code(&error) == json_error_numeric_overflow) {
        buffer marked = {.what = source};
        mark_reals(text, size, &marked);
        lacks_memory = buffer_check(&marked) != NRL_OK;
        if (!lacks_memory) j = load(marked.text, marked.size, &error);
        buffer_free(&marked);
    }
    if (!j && lacks_memory)
        return nrl_fail(NRL_ERR_MEMORY, "cannot parse %s: out of memory: cannot allocate nodes for %zu bytes of JSON",
                        source, size);
    if (!j) {
        int64_t first = error.line == 1 ? column - 1 : 0; /* columns before the text, on its line */
        return json_mistake(source, line - 1 + error.line, first + (error.column > 0 ? error.column : 1), error.text);
    }
    nrl_status st = arena_reserve(a, tree_room(j, 0), source);
    if (st == NRL_OK) *out = convert(&(reader){a, source}, j, NULL, NULL);
    json_decref(j);
    return st;
}

nrl_status json_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **out)
{
    return json_parse_at(a, source, 1, 1, text, size, out);
}

nrl_status json_read_file(arena *a, const char *path, size_t max_bytes, nrl_node **out)
{
    char *text;
    size_t size;
    NRL_TRY(file_read(path, max_bytes, &text, &size));
    nrl_status st = json_parse(a, arena_strdup(a, path), text, size, out);
    free(text);
    return st;
}

bool json_read_f64(const nrl_node *node, double *value)
{
    const char *word = nrl_node_string(node, NULL);
    nrl_node_type kind = nrl_node_kind(node);
    *value = nrl_node_f64(node, NAN);
    if (kind == NRL_NODE_INT || kind == NRL_NODE_FLOAT) return true;
    if (word && !strcmp(word, "Infinity")) *value = INFINITY;
    if (word && !strcmp(word, "-Infinity")) *value = -INFINITY;
    return word && (!isnan(*value) || !strcmp(word, "NaN"));
}

/* ---- writing ---- */

size_t json_utf8_size(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || left < n) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (s[0] == 0xE0 && s[1] < 0xA0) return 0; /* overlong */
    if (s[0] == 0xED && s[1] > 0x9F) return 0; /* surrogate */
    if (s[0] == 0xF0 && s[1] < 0x90) return 0; /* overlong */
    if (s[0] == 0xF4 && s[1] > 0x8F) return 0; /* beyond U+10FFFF */
    return n;
}

bool json_is_text(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0, n; i < size; i += n) {
        n = json_utf8_size(s + i, size - i);
        if (!n) return false;
    }
    return true;
}

static void write_escaped(buffer *b, unsigned c)
{
    switch (c) {
    case '"':
        buffer_puts(b, "\\\"");
        return;
    case '\\':
        buffer_puts(b, "\\\\");
        return;
    case '\n':
        buffer_puts(b, "\\n");
        return;
    case '\r':
        buffer_puts(b, "\\r");
        return;
    case '\t':
        buffer_puts(b, "\\t");
        return;
    default:
        buffer_print(b, "\\u%04x", c);
    }
}

/* Returns the code point of a character that must be escaped, else 0. Controls, line separators and non-characters are
 * escaped although JSON allows them, because YAML readers and terminals reject them. */
static unsigned unprintable(const unsigned char *s, size_t n)
{
    if (n == 4) return 0;
    if (n == 1) return s[0] < 0x20 || s[0] == 0x7F || s[0] == '"' || s[0] == '\\' ? s[0] : 0;
    unsigned c =
        n == 2 ? (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu) : (s[0] & 0xFu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    return c < 0xA0 || c == 0x2028 || c == 0x2029 || c == 0xFEFF || c >= 0xFFFE ? c : 0;
}

void json_add_string(buffer *b, const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    buffer_puts(b, "\"");
    for (size_t i = 0, n; i < size; i += n) {
        n = json_utf8_size(s + i, size - i);
        unsigned c = n ? unprintable(s + i, n) : 0;
        if (!n) {
            buffer_puts(b, "\xEF\xBF\xBD");
            n = 1;
        } else if (c || !s[i]) {
            write_escaped(b, c);
        } else {
            buffer_add(b, text + i, n);
        }
    }
    buffer_puts(b, "\"");
}

/* Writes the fewest digits that parse to the same double, always with a '.' or an exponent, so that readers do not
 * take the number for an integer. */
static void write_real(buffer *b, double v)
{
    char text[40];
    if (!isfinite(v)) {
        buffer_puts(b, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    buffer_puts(b, text);
    if (!strpbrk(text, ".e")) buffer_puts(b, ".0");
}

static void write_scalar(buffer *b, const nrl_node *n)
{
    switch (nrl_node_kind(n)) {
    case NRL_NODE_BOOL:
        buffer_puts(b, n->as.boolean ? "true" : "false");
        return;
    case NRL_NODE_INT:
        buffer_print(b, "%" PRId64, n->as.integer);
        return;
    case NRL_NODE_FLOAT:
        write_real(b, n->as.real);
        return;
    case NRL_NODE_STRING:
        json_add_string(b, n->as.string, n->size);
        return;
    default:
        buffer_puts(b, "null");
    }
}

static void new_line(buffer *b, int indent, int depth)
{
    if (!indent) return;
    buffer_puts(b, "\n");
    buffer_spaces(b, (size_t)indent * (size_t)depth);
}

static void write_node(buffer *b, const nrl_node *node, int indent, int depth)
{
    bool map = nrl_node_kind(node) == NRL_NODE_MAP;
    if (!map && nrl_node_kind(node) != NRL_NODE_LIST) {
        write_scalar(b, node);
        return;
    }
    buffer_puts(b, map ? "{" : "[");
    for (size_t i = 0; i < nrl_node_size(node); i++) {
        const char *key = nrl_node_key(node, i);
        if (i) buffer_puts(b, indent ? "," : ", ");
        new_line(b, indent, depth + 1);
        if (map) json_add_string(b, key, strlen(key));
        if (map) buffer_puts(b, ": ");
        write_node(b, nrl_node_at(node, i), indent, depth + 1);
    }
    if (nrl_node_size(node)) new_line(b, indent, depth);
    buffer_puts(b, map ? "}" : "]");
}

void json_add(buffer *b, const nrl_node *node, int indent)
{
    write_node(b, node, indent, 0);
}

char *json_write(const nrl_node *node, int indent)
{
    buffer b = {0};
    json_add(&b, node, indent);
    return buffer_take(&b);
}

char *json_quote(const char *text, size_t size)
{
    buffer b = {0};
    json_add_string(&b, text, size);
    return buffer_take(&b);
}

const char *json_library(void)
{
    return "jansson " JANSSON_VERSION;
}
