/*
 * yaml.c - builds nodes from the events of libyaml. Aliases are expanded by copying, with limits, so that a document
 * that expands exponentially is an error after a few megabytes.
 */
#include "base/yaml.h"
#include "base/file.h"
#include "base/scalar.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

enum { MAX_COPIED_BYTES = 4 << 20 };

typedef struct anchor anchor;
struct anchor {
    const char *name;
    const nrl_node *node;
    bool open; /* the value is not complete yet */
    anchor *older;
};

typedef struct {
    arena *a;
    const char *source;
    bool places; /* nodes get line and column */
    yaml_parser_t parser;
    anchor *anchors;
    size_t n_values;
    size_t copied_bytes;
} reader;

static nrl_status fail_at(const reader *r, yaml_mark_t at, const char *text)
{
    if (!r->places) return nrl_fail(NRL_ERR_CONFIG, "%s: %s", r->source, text);
    return nrl_fail(NRL_ERR_CONFIG, "%s:%zu:%zu: %s", r->source, at.line + 1, at.column + 1, text);
}

/* The line and column of a byte offset: reader errors of libyaml have no other position. */
static yaml_mark_t mark_of_offset(const reader *r)
{
    yaml_mark_t at = {0};
    const yaml_parser_t *p = &r->parser;
    const unsigned char *text = p->input.string.start;
    for (size_t i = 0; i < p->problem_offset && text + i < p->input.string.end; i++) {
        at.column = text[i] == '\n' ? 0 : at.column + 1;
        at.line += text[i] == '\n';
    }
    return at;
}

/* Whether the line is indented with a tab. libyaml's own error for a tab is hard to understand. */
static bool has_tab_indent(const reader *r, size_t line)
{
    const unsigned char *text = r->parser.input.string.start, *end = r->parser.input.string.end;
    for (; text < end && line; text++)
        line -= *text == '\n';
    while (text < end && *text == ' ')
        text++;
    return text < end && *text == '\t';
}

static nrl_status next_event(reader *r, yaml_event_t *event)
{
    const yaml_parser_t *p = &r->parser;
    if (yaml_parser_parse(&r->parser, event)) return NRL_OK;
    const char *problem = p->problem ? p->problem : "not YAML";
    if (p->error == YAML_MEMORY_ERROR) return nrl_fail(NRL_ERR_MEMORY, "%s: out of memory", r->source);
    if (p->error == YAML_READER_ERROR) return fail_at(r, mark_of_offset(r), problem);
    if (has_tab_indent(r, p->problem_mark.line))
        problem = "found a tab, expected spaces: YAML does not allow tabs as indentation";
    return fail_at(r, p->problem_mark, problem);
}

static void set_place(const reader *r, nrl_node *n, yaml_mark_t at)
{
    n->source = r->source;
    if (!r->places) return;
    n->line = (uint32_t)at.line + 1;
    n->column = (uint32_t)at.column + 1;
}

static nrl_status count_value(reader *r, yaml_mark_t at)
{
    return ++r->n_values > YAML_MAX_VALUES ? fail_at(r, at, "too many values in one file") : NRL_OK;
}

/* ---- anchors and aliases ---- */

static anchor *anchor_find(const reader *r, const char *name)
{
    anchor *x = r->anchors;
    while (x && strcmp(x->name, name))
        x = x->older;
    return x;
}

/* The number of anchors is limited because searching the list would be slow with very many. */
static nrl_status anchor_add(reader *r, const char *name, const nrl_node *node, yaml_mark_t at)
{
    size_t n = 0;
    if (!name) return NRL_OK;
    for (const anchor *x = r->anchors; x; x = x->older)
        n++;
    if (n >= 1000) return fail_at(r, at, "more than 1000 anchors");
    anchor *x = arena_alloc(r->a, sizeof *x);
    *x = (anchor){arena_strdup(r->a, name), node, true, r->anchors};
    r->anchors = x;
    return NRL_OK;
}

static void anchor_close(reader *r, const nrl_node *node)
{
    for (anchor *x = r->anchors; x; x = x->older)
        if (x->node == node) x->open = false;
}

/* Adds the size of a copy of this tree; stops early when a limit is exceeded. */
static void measure(reader *r, const nrl_node *n)
{
    r->n_values++;
    r->copied_bytes += n->text ? strlen(n->text) : 0;
    r->copied_bytes += n->key ? strlen(n->key) : 0;
    for (size_t i = 0; i < nrl_node_size(n) && r->n_values <= YAML_MAX_VALUES; i++)
        measure(r, nrl_node_at(n, i));
}

static nrl_status read_alias(reader *r, const yaml_event_t *event, nrl_node **out)
{
    const char *name = (const char *)event->data.alias.anchor;
    const anchor *x = anchor_find(r, name);
    if (!x) return fail_at(r, event->start_mark, "the alias has no preceding anchor");
    if (x->open) return fail_at(r, event->start_mark, "the alias is inside its own anchor");
    measure(r, x->node);
    if (r->n_values > YAML_MAX_VALUES || r->copied_bytes > MAX_COPIED_BYTES)
        return fail_at(r, event->start_mark, "the aliases expand to too many values");
    *out = node_copy(r->a, x->node);
    return NRL_OK;
}

/* ---- values ---- */

static nrl_status read_value(reader *r, const yaml_event_t *event, int depth, nrl_node **out);

static nrl_status read_scalar(reader *r, const yaml_event_t *event, nrl_node **out)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t size = event->data.scalar.length;
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (event->data.scalar.tag) return fail_at(r, event->start_mark, "tags are not supported");
    if (memchr(text, 0, size)) return fail_at(r, event->start_mark, "the text contains a NUL character");
    *out = plain ? scalar_node(r->a, text, size) : node_string(r->a, text, size);
    (*out)->text = plain ? (*out)->text : (*out)->as.string;
    return anchor_add(r, (const char *)event->data.scalar.anchor, *out, event->start_mark);
}

static nrl_status read_list(reader *r, nrl_node *list, int depth)
{
    for (;;) {
        yaml_event_t event;
        nrl_node *child = NULL;
        NRL_TRY(next_event(r, &event));
        bool end = event.type == YAML_SEQUENCE_END_EVENT;
        nrl_status st = end ? NRL_OK : read_value(r, &event, depth + 1, &child);
        yaml_event_delete(&event);
        if (st != NRL_OK || end) return st;
        node_append(r->a, list, NULL, child);
    }
}

static nrl_status check_key(const reader *r, const nrl_node *map, const yaml_event_t *event)
{
    if (event->type != YAML_SCALAR_EVENT) return fail_at(r, event->start_mark, "a key must be a word");
    const char *key = (const char *)event->data.scalar.value;
    if (!*key || strlen(key) != event->data.scalar.length)
        return fail_at(r, event->start_mark, "a key must not be empty");
    const nrl_node *first = nrl_node_find(map, key);
    if (!first) return NRL_OK;
    fail_at(r, event->start_mark, "duplicate key");
    return nrl_fail(NRL_ERR_CONFIG, "%s '%.100s', first given at %s", nrl_error_text(), key, nrl_node_place(first));
}

/* {rank:4} is the key "rank:4" without a value. */
static nrl_status check_space(const reader *r, const yaml_event_t *key, const yaml_event_t *value)
{
    const char *colon = strchr((const char *)key->data.scalar.value, ':');
    if (!colon || key->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || value->type != YAML_SCALAR_EVENT ||
        value->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || value->data.scalar.length)
        return NRL_OK;
    fail_at(r, key->start_mark, "expected a space after ':' in");
    return nrl_fail(NRL_ERR_CONFIG, "%s '%.100s'", nrl_error_text(), (const char *)key->data.scalar.value);
}

static nrl_status read_entry(reader *r, nrl_node *map, const yaml_event_t *key, int depth)
{
    yaml_event_t event;
    nrl_node *child = NULL;
    NRL_TRY(check_key(r, map, key));
    NRL_TRY(next_event(r, &event));
    nrl_status st = check_space(r, key, &event);
    if (st == NRL_OK) st = read_value(r, &event, depth + 1, &child);
    yaml_event_delete(&event);
    NRL_TRY(st);
    set_place(r, child, key->start_mark);
    node_append(r->a, map, (const char *)key->data.scalar.value, child);
    return NRL_OK;
}

static nrl_status read_map(reader *r, nrl_node *map, int depth)
{
    for (;;) {
        yaml_event_t key;
        NRL_TRY(next_event(r, &key));
        bool end = key.type == YAML_MAPPING_END_EVENT;
        nrl_status st = end ? NRL_OK : read_entry(r, map, &key, depth);
        yaml_event_delete(&key);
        if (st != NRL_OK || end) return st;
    }
}

static nrl_status read_children(reader *r, const yaml_event_t *event, int depth, nrl_node *node)
{
    bool map = event->type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *tag = map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    const yaml_char_t *name = map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    if (tag) return fail_at(r, event->start_mark, "tags are not supported");
    if (depth >= YAML_MAX_DEPTH) return fail_at(r, event->start_mark, "nested too deeply");
    NRL_TRY(anchor_add(r, (const char *)name, node, event->start_mark));
    NRL_TRY(map ? read_map(r, node, depth) : read_list(r, node, depth));
    anchor_close(r, node);
    return NRL_OK;
}

static nrl_status read_value(reader *r, const yaml_event_t *event, int depth, nrl_node **out)
{
    NRL_TRY(count_value(r, event->start_mark));
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        NRL_TRY(read_alias(r, event, out));
        break;
    case YAML_SCALAR_EVENT:
        NRL_TRY(read_scalar(r, event, out));
        anchor_close(r, *out);
        break;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        *out = node_new(r->a, event->type == YAML_MAPPING_START_EVENT ? NRL_NODE_MAP : NRL_NODE_LIST);
        NRL_TRY(read_children(r, event, depth, *out));
        break;
    default:
        return fail_at(r, event->start_mark, "a value is missing");
    }
    NRL_ASSERT((*out != NULL), ==, true);
    set_place(r, *out, event->start_mark);
    return NRL_OK;
}

/* ---- documents ---- */

/* Reads events up to the first value or the end of the stream. */
static nrl_status first_value(reader *r, nrl_node **out)
{
    for (;;) {
        yaml_event_t event;
        NRL_TRY(next_event(r, &event));
        bool end = event.type == YAML_STREAM_END_EVENT;
        bool skip = event.type == YAML_STREAM_START_EVENT || event.type == YAML_DOCUMENT_START_EVENT;
        nrl_status st = end || skip ? NRL_OK : read_value(r, &event, 0, out);
        yaml_event_delete(&event);
        if (st != NRL_OK || !skip) return st;
    }
}

static nrl_status expect_end(reader *r)
{
    for (;;) {
        yaml_event_t event;
        NRL_TRY(next_event(r, &event));
        yaml_event_type_t type = event.type;
        yaml_mark_t at = event.start_mark;
        yaml_event_delete(&event);
        if (type == YAML_STREAM_END_EVENT) return NRL_OK;
        if (type != YAML_DOCUMENT_END_EVENT) return fail_at(r, at, "found a second document, expected one");
    }
}

/* Rejects directives before libyaml sees them: it compares each %TAG line with all before, in quadratic time. */
static nrl_status refuse_directives(const reader *r, const char *text, size_t size)
{
    yaml_mark_t at = {0};
    for (const char *s = text, *end = text + size; s < end; at.line++) {
        if (*s == '%') return fail_at(r, at, "directives (%) are not supported");
        const char *eol = memchr(s, '\n', (size_t)(end - s));
        if (!eol) break;
        s = eol + 1;
    }
    return NRL_OK;
}

static nrl_status parse_text(reader *r, const char *text, size_t size, nrl_node **out)
{
    *out = NULL;
    NRL_TRY(scalar_check_locale());
    if (size > YAML_MAX_BYTES)
        return nrl_fail(NRL_ERR_CONFIG, "cannot read %s: the file is larger than the limit of %d bytes", r->source,
                        YAML_MAX_BYTES);
    NRL_TRY(refuse_directives(r, text, size));
    if (!yaml_parser_initialize(&r->parser)) return nrl_fail(NRL_ERR_MEMORY, "%s: out of memory", r->source);
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, size);
    nrl_status st = first_value(r, out);
    if (st == NRL_OK && *out) st = expect_end(r);
    yaml_parser_delete(&r->parser);
    return st;
}

nrl_status yaml_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **out)
{
    reader r = {.a = a, .source = source, .places = true};
    NRL_TRY(parse_text(&r, text, size, out));
    if (*out) return NRL_OK;
    *out = node_new(a, NRL_NODE_MAP);
    (*out)->source = source;
    return NRL_OK;
}

/* A hint for a file that cannot be read; "" without a guess. */
static const char *meant(arena *a, const char *path)
{
    const char *inside = arena_printf(a, "%s/config.yaml", path);
    if (!access(inside, F_OK)) return arena_printf(a, "\nhint: the config of the run in this directory is %s", inside);
    if (strchr(path, '=')) return "\nhint: the file comes first, then key=value";
    return "";
}

nrl_status yaml_read_file(arena *a, const char *path, nrl_node **out)
{
    char *text;
    size_t size;
    nrl_status st = file_read(path, YAML_MAX_BYTES, &text, &size);
    if (st == NRL_ERR_MEMORY) return st;
    if (st != NRL_OK) /* a missing config is a usage error */
        return nrl_fail(NRL_ERR_CONFIG, "%s%s", nrl_error_text(), meant(a, path));
    st = yaml_parse(a, arena_strdup(a, path), text, size, out);
    free(text);
    return st;
}

nrl_status yaml_parse_value(arena *a, const char *source, const char *text, nrl_node **out)
{
    reader r = {.a = a, .source = source};
    if (*text && strchr("[{\"'", *text))
        NRL_TRY(parse_text(&r, text, strlen(text), out));
    else
        *out = scalar_node(a, text, strlen(text));
    if (*out) (*out)->source = source;
    return NRL_OK;
}
