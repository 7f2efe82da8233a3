/*
 * lines.c - differences between texts of lines, and the message about them.
 */
#include "base/lines.h"
#include "base/buffer.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_KEYS = 3, SHOWN_HOSTS = 4, VALUE_AT = 2 /* after ": " */ };

/* ---- lines ---- */

static const char *next_line(const char *line)
{
    size_t n = strcspn(line, "\n");
    return line + n + (line[n] == '\n');
}

/* A key ends at the first colon that is followed by a space. */
static size_t key_size(const char *line)
{
    for (size_t n = 0;; n++)
        if (!line[n] || line[n] == '\n' || (line[n] == ':' && line[n + 1] == ' ')) return n;
}

static bool is_end_of_key(const char *at)
{
    return !*at || *at == '\n' || (*at == ':' && at[1] == ' ');
}

static bool is_same_line(const char *a, const char *b)
{
    size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && !memcmp(a, b, n);
}

static bool has_same_key(const char *line, const char *other)
{
    size_t n = key_size(line);
    return !strncmp(line, other, n) && is_end_of_key(other + n);
}

/* Finds the line of `text` with the key of `line`, or returns NULL. Starts at *guess and advances it, so that nearly
 * equal texts are scanned once. */
static const char *find_line(const char *text, const char *line, const char **guess)
{
    const char *found = *guess;
    if (!*found || !has_same_key(line, found))
        for (found = text; *found && !has_same_key(line, found); found = next_line(found)) {
        }
    if (!*found) return NULL;
    *guess = next_line(found);
    return found;
}

static void add_line(lines_record *r, int32_t at, const char *line, size_t size)
{
    if (r->n_all++ >= LINES_KEPT) return;
    r->at[r->n] = at;
    snprintf(r->line[r->n++], LINE_ROOM, "%.*s", (int)(size < LINE_ROOM ? size : LINE_ROOM - 1), line);
}

void lines_compare(const char *first, const char *own, lines_record *out)
{
    const char *guess = own;
    int32_t at = 0;
    memset(out, 0, sizeof *out);
    for (const char *line = first; *line; line = next_line(line), at++) {
        const char *other = find_line(own, line, &guess);
        if (!other)
            add_line(out, at, line, key_size(line));
        else if (!is_same_line(line, other))
            add_line(out, at, other, strcspn(other, "\n"));
    }
    guess = first;
    for (const char *line = own; *line; line = next_line(line))
        if (!find_line(first, line, &guess)) add_line(out, INT32_MAX, line, strcspn(line, "\n"));
}

/* ---- the message ---- */

typedef struct {
    const lines_record *records;
    const char *const *hosts;
    int32_t world;
    const char *first;
} comparison;

typedef struct {
    int32_t at;
    const char *line; /* of a rank that differs; its key is meant */
} difference;

/* Returns the next key after `last` that any record holds, in the order of rank 0's text; keys that rank 0 does not
 * have come in the order of the ranks. */
static bool next_key(const comparison *c, const difference *shown, int n_shown, difference *out)
{
    bool found = false;
    for (int32_t r = 0; r < c->world; r++)
        for (int32_t i = 0; i < c->records[r].n; i++) {
            const char *line = c->records[r].line[i];
            bool is_new = true;
            for (int k = 0; k < n_shown; k++)
                is_new = is_new && !has_same_key(shown[k].line, line);
            if (!is_new || (found && c->records[r].at[i] >= out->at)) continue;
            *out = (difference){c->records[r].at[i], line};
            found = true;
        }
    return found;
}

/* Returns the rank's line for the key, or NULL if the rank does not have the line. If the record of the rank does not
 * contain the key, its line equals that of rank 0: a record holds the first differences, and later keys are not shown.
 */
static const char *line_of(const comparison *c, int32_t rank, const difference *d)
{
    const lines_record *r = &c->records[rank];
    const char *guess = "";
    for (int32_t i = 0; i < r->n; i++)
        if (has_same_key(d->line, r->line[i])) return strstr(r->line[i], ": ") ? r->line[i] : NULL;
    return find_line(c->first, d->line, &guess);
}

static bool have_same_value(const char *a, const char *b)
{
    return a && b ? is_same_line(a, b) : a == b;
}

/* Prints the ranks from `from` on that have this value, as "rank 2 (host)" or "ranks 0-3, 5 (host, other)". */
static void add_ranks(buffer *b, const comparison *c, const difference *d, int32_t from)
{
    const char *line = line_of(c, from, d), *hosts[SHOWN_HOSTS + 1];
    buffer list = {0};
    int32_t n = 0, n_hosts = 0;
    for (int32_t r = from; r < c->world; r++) {
        if (!have_same_value(line_of(c, r, d), line)) continue;
        int32_t end = r + 1;
        while (end < c->world && have_same_value(line_of(c, end, d), line))
            end++;
        buffer_print(&list, "%s%d", n ? ", " : "", (int)r);
        if (end - r > 1) buffer_print(&list, "%s%d", end - r > 2 ? "-" : ", ", (int)end - 1);
        for (; r < end; r++, n++) {
            int k = 0;
            while (k < n_hosts && strcmp(hosts[k], c->hosts[r]))
                k++;
            if (k == n_hosts && n_hosts <= SHOWN_HOSTS) hosts[n_hosts++] = c->hosts[r];
        }
    }
    buffer_puts(b, n > 1 ? "\n  ranks " : "\n  rank ");
    buffer_add(b, list.text, list.size);
    buffer_puts(b, " (");
    for (int32_t k = 0; k < n_hosts; k++)
        buffer_print(b, "%s%s", k ? ", " : "", k < SHOWN_HOSTS ? hosts[k] : "...");
    buffer_puts(b, "): ");
    buffer_free(&list);
}

static void add_values(buffer *b, const comparison *c, const difference *d)
{
    for (int32_t r = 0; r < c->world; r++) {
        const char *line = line_of(c, r, d);
        int32_t earlier = 0;
        while (earlier < r && !have_same_value(line_of(c, earlier, d), line))
            earlier++;
        if (earlier < r) continue;
        add_ranks(b, c, d, r);
        size_t key = line ? key_size(line) + VALUE_AT : 0, n = line ? strcspn(line, "\n") : 0;
        if (line && n > LINE_ROOM - 1) n = LINE_ROOM - 1;
        buffer_print(b, "%.*s", line ? (int)(n > key ? n - key : 0) : 6, line ? line + (n > key ? key : n) : "absent");
    }
}

nrl_status lines_report(const lines_record *records, const char *const *hosts, int32_t world, const char *first,
                        const char *hint)
{
    const comparison c = {records, hosts, world, first};
    difference shown[SHOWN_KEYS], next = {0, ""};
    int n = 0;
    buffer keys = {0}, values = {0};
    while (n < SHOWN_KEYS && next_key(&c, shown, n, &next)) {
        shown[n++] = next;
        buffer_print(&keys, "%s%.*s", n > 1 ? ", " : "", (int)key_size(next.line), next.line);
    }
    if (!n) return NRL_OK;
    bool others = next_key(&c, shown, n, &next);
    for (int k = 0; k < n; k++) {
        if (n > 1) buffer_print(&values, "\n%.*s:", (int)key_size(shown[k].line), shown[k].line);
        add_values(&values, &c, &shown[k]);
    }
    nrl_status st = nrl_fail(NRL_ERR_CONFIG, "cannot start: %s%s differ%s between ranks%s%s%s", keys.text,
                             others ? " and more" : "", n > 1 || others ? "" : "s", values.text, hint ? "\nhint: " : "",
                             hint ? hint : "");
    buffer_free(&keys);
    buffer_free(&values);
    return st;
}
