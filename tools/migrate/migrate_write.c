/*
 * migrate_write.c - what is mapped as YAML, with the source of each line in a comment; what is not, as comments, on
 * standard error and as JSON; and the tables of docs/porting.md.
 */
#include "migrate.h"
#include "base/json.h"
#include "base/scalar.h"
#include "cli/common/cli.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_VALUE = 80, COMMENT_COLUMN = 44 };

static const char *const sections[] = {"model",    "lora",     "data",       "algorithm", "train",     "optimizer",
                                       "schedule", "parallel", "collective", "backend",   "eval",      "checkpoint",
                                       "launch",   "loggers",  "name",       "out",       "overwrite", "resume"};

/* ---- texts ---- */

const char *write_word(arena *a, const char *text)
{
    const char *s = text;
    bool plain = isalnum((unsigned char)*s) || *s == '/' || *s == '.' || *s == '_';
    for (; *s && plain; s++)
        plain = isalnum((unsigned char)*s) || strchr("/._-+@*", *s) || (*s == ':' && s[1] == '/');
    size_t n = strlen(text);
    if (plain && n) {
        nrl_node_type kind = nrl_node_kind(scalar_node(a, text, n));
        if (kind != NRL_NODE_NULL) return text;
    }
    char *json = json_quote(text, n);
    const char *kept = arena_strdup(a, json);
    free(json);
    return kept;
}

/* One line that fits in a comment. */
static const char *short_text(arena *a, const char *text)
{
    size_t n = strlen(text);
    char *out = arena_printf(a, "%.*s%s", LONGEST_VALUE, text, n > LONGEST_VALUE ? "..." : "");
    for (char *s = out; *s; s++)
        if (iscntrl((unsigned char)*s)) *s = ' ';
    return out;
}

static const char *value_text(const migration *m, const source_key *k)
{
    if (!k->node || (nrl_node_kind(k->node) != NRL_NODE_LIST && nrl_node_kind(k->node) != NRL_NODE_MAP))
        return short_text(m->a, source_text(m, k));
    char *json = json_write(k->node, 0);
    const char *text = short_text(m->a, json);
    free(json);
    return text;
}

const char *write_source(const migration *m, const source_key *k)
{
    const char *text = arena_printf(m->a, "%s: %s", short_text(m->a, k->path), value_text(m, k));
    return k->is_default ? arena_printf(m->a, "%s, the default of %s", text, m->format->title) : text;
}

const char *write_place(const migration *m, const source_key *k)
{
    const nrl_node *n = k ? k->node : NULL;
    if (!n || !n->source || !n->line) return n && n->source ? n->source : m->source;
    return arena_printf(m->a, "%s:%u", n->source, n->line);
}

/* ---- lines and remarks ---- */

bool write_has(const migration *m, const char *key)
{
    for (size_t i = 0; i < m->n_lines; i++)
        if (!strcmp(m->lines[i].key, key)) return true;
    return false;
}

void write_line(migration *m, const char *key, const char *value, const char *from, ...)
{
    char text[1024];
    va_list list;
    if (write_has(m, key)) return; /* the first rule of a table decides */
    va_start(list, from);
    vsnprintf(text, sizeof text, from, list);
    va_end(list);
    if (m->n_lines == m->lines_room) {
        m->lines_room = m->lines_room ? m->lines_room * 2 : 64;
        m->lines = mem_realloc(m->lines, m->lines_room * sizeof *m->lines);
    }
    m->lines[m->n_lines++] = (written){key, value, arena_strdup(m->a, text)};
}

void write_remark(migration *m, remark_kind kind, const source_key *key, const char *text, ...)
{
    char line[1024];
    va_list list;
    if (key && key->is_default && kind == REMARK_SAME) return;
    va_start(list, text);
    vsnprintf(line, sizeof line, text, list);
    va_end(list);
    for (size_t i = 0; i < m->n_remarks; i++)
        if (m->remarks[i].key == key && !strcmp(m->remarks[i].text, line)) return;
    if (m->n_remarks == m->remarks_room) {
        m->remarks_room = m->remarks_room ? m->remarks_room * 2 : 64;
        m->remarks = mem_realloc(m->remarks, m->remarks_room * sizeof *m->remarks);
    }
    m->remarks[m->n_remarks++] = (remark){kind, key, arena_strdup(m->a, line)};
}

size_t write_count(const migration *m, remark_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_remarks; i++)
        n += m->remarks[i].kind == kind;
    return n;
}

static const char *remark_text(const migration *m, const remark *r)
{
    return r->key ? arena_printf(m->a, "%s: %s", write_source(m, r->key), r->text) : r->text;
}

/* ---- YAML ---- */

static void put_line(buffer *b, const char *text, const char *from)
{
    size_t n = strlen(text);
    buffer_puts(b, text);
    buffer_spaces(b, n + 2 < COMMENT_COLUMN ? COMMENT_COLUMN - n : 2);
    buffer_print(b, "# %s\n", from);
}

static bool is_in(const written *w, const char *section)
{
    size_t n = strlen(section);
    return !strncmp(w->key, section, n) && (!w->key[n] || w->key[n] == '.');
}

/* The name of a component comes first. */
static void put_section(const migration *m, buffer *b, const char *section)
{
    bool first = true;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < m->n_lines; i++) {
            const written *w = &m->lines[i];
            const char *dot = strchr(w->key, '.');
            if (!is_in(w, section) || (!dot || strcmp(dot, ".name")) != (pass == 1)) continue;
            if (first) buffer_puts(b, "\n");
            if (first && dot) buffer_print(b, "%s:\n", section);
            put_line(b, arena_printf(m->a, "%s%s: %s", dot ? "  " : "", dot ? dot + 1 : w->key, w->value), w->from);
            first = false;
        }
}

static void put_remarks(const migration *m, buffer *b, remark_kind kind, const char *title)
{
    if (write_count(m, kind)) buffer_print(b, "\n# %s\n", title);
    for (size_t i = 0; i < m->n_remarks; i++)
        if (m->remarks[i].kind == kind) buffer_print(b, "#   %s\n", remark_text(m, &m->remarks[i]));
}

char *write_yaml(const migration *m)
{
    buffer b = {0};
    buffer_print(&b, "# Written by `nrl migrate` from %s, a config of %s. `nrl check` reports what is missing.\n",
                 short_text(m->a, m->source), m->format->title);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        put_section(m, &b, sections[i]);
    put_remarks(m, &b, REMARK_LOST, "Not mapped, and changes numbers:");
    put_remarks(m, &b, REMARK_ASSUMED, "Assumed:");
    put_remarks(m, &b, REMARK_SAME, "Not mapped, and changes no numbers:");
    return buffer_take(&b);
}

void write_remarks(const migration *m)
{
    for (size_t i = 0; i < m->n_remarks; i++) {
        const remark *r = &m->remarks[i];
        if (r->kind == REMARK_SAME) continue;
        fprintf(stderr, "%s: %s: %s\n", r->kind == REMARK_LOST ? "not mapped" : "assumed", write_place(m, r->key),
                remark_text(m, r));
    }
    size_t n = write_count(m, REMARK_SAME);
    if (n)
        fprintf(stderr, "%zu key%s without counterpart change%s no numbers; the config lists them\n", n,
                n == 1 ? "" : "s", n == 1 ? "s" : "");
}

/* ---- JSON ---- */

static void put_key(const migration *m, nrl_node *map, const source_key *k)
{
    node_append_text(m->a, map, "key", k ? k->path : "");
    node_append_text(m->a, map, "value", k ? value_text(m, k) : "");
    node_append_text(m->a, map, "place", write_place(m, k));
}

char *write_json(const migration *m, const char *yaml)
{
    static const char *const kinds[] = {"assumed", "unmapped", "unmapped"};
    nrl_node *root = node_new(m->a, NRL_NODE_MAP), *mapped, *lists[3];
    node_append_text(m->a, root, "format", m->format->name);
    node_append_text(m->a, root, "algorithm", m->method);
    mapped = node_set(m->a, root, "mapped", node_new(m->a, NRL_NODE_LIST));
    for (size_t i = 0; i < m->n_lines; i++) {
        nrl_node *map = node_new(m->a, NRL_NODE_MAP);
        node_append_text(m->a, map, "key", m->lines[i].key);
        node_append_text(m->a, map, "value", m->lines[i].value);
        node_append_text(m->a, map, "from", m->lines[i].from);
        node_append(m->a, mapped, NULL, map);
    }
    lists[0] = node_set(m->a, root, kinds[0], node_new(m->a, NRL_NODE_LIST));
    lists[1] = lists[2] = node_set(m->a, root, kinds[1], node_new(m->a, NRL_NODE_LIST));
    for (size_t i = 0; i < m->n_remarks; i++) {
        const remark *r = &m->remarks[i];
        nrl_node *map = node_new(m->a, NRL_NODE_MAP);
        put_key(m, map, r->key);
        node_append_text(m->a, map, "reason", r->text);
        if (r->kind != REMARK_ASSUMED)
            node_append(m->a, map, "changes_numbers", node_bool(m->a, r->kind == REMARK_LOST));
        node_append(m->a, lists[r->kind == REMARK_ASSUMED ? 0 : 1], NULL, map);
    }
    node_append_text(m->a, root, "config", yaml);
    return json_write(root, 2);
}

/* ---- the tables of the documentation ---- */

/* What a key becomes; NULL = it has no counterpart. */
static const char *row_meaning(arena *a, const rule *r)
{
    if (r->kind == RULE_SAME || r->kind == RULE_LOST) return NULL;
    if (r->kind != RULE_SLOT) return arena_printf(a, "`%s`", r->to);
    return !strcmp(r->to, "ignored") || !strcmp(r->to, "unsupported") ? NULL : r->text;
}

static bool row_is_lost(const rule *r)
{
    return r->kind == RULE_LOST || (r->kind == RULE_SLOT && !strcmp(r->to, "unsupported"));
}

static void list_unmapped(const trainer *t, arena *a, bool lost, const char *title)
{
    const char *keys = "";
    for (size_t i = 0; i < t->n_rows[0]; i++) {
        const rule *r = &t->tables[0][i];
        if (row_meaning(a, r) || row_is_lost(r) != lost) continue;
        keys = arena_printf(a, "%s%s`%s`", keys, *keys ? ", " : "", r->key);
    }
    if (*keys) printf("\n%s: %s.\n", title, keys);
}

/* Keys with the same meaning share a row. */
void write_table(const trainer *t, arena *a)
{
    const rule *rows = t->tables[0];
    size_t n = t->n_rows[0];
    bool *done = arena_alloc(a, n * sizeof *done);
    printf("| %s | nrl |\n| --- | --- |\n", t->title);
    for (size_t i = 0; i < n; i++) {
        const char *meaning = row_meaning(a, &rows[i]), *keys = "";
        if (done[i] || !meaning) continue;
        for (size_t k = i; k < n; k++) {
            const char *other = row_meaning(a, &rows[k]);
            if (!other || strcmp(other, meaning)) continue;
            done[k] = true;
            keys = arena_printf(a, "%s%s`%s`", keys, *keys ? ", " : "", rows[k].key);
        }
        printf("| %s | %s |\n", keys, meaning);
    }
    list_unmapped(t, a, true, "Not converted, and reported if the value changes numbers");
    list_unmapped(t, a, false, "Not converted; no number changes");
}
