/*
 * report_differ.c - a table of the options that differ between runs: sections and their keys, one
 * level deep. Deeper values are compared and shown as a whole.
 */
#include "report.h"
#include <string.h>

static void add_value(buffer *out, const nrl_node *node)
{
    switch (nrl_node_kind(node)) {
    case NRL_NODE_BOOL:
        buffer_puts(out, nrl_node_bool(node, false) ? "true" : "false");
        break;
    case NRL_NODE_INT:
        buffer_print(out, "%lld", (long long)nrl_node_int(node, 0));
        break;
    case NRL_NODE_FLOAT:
        buffer_print(out, "%.10g", nrl_node_f64(node, 0));
        break;
    case NRL_NODE_STRING:
        report_text(out, nrl_node_string(node, ""));
        break;
    case NRL_NODE_LIST:
        for (size_t i = 0; i < nrl_node_size(node); i++) {
            if (i) buffer_puts(out, ", ");
            add_value(out, nrl_node_at(node, i));
        }
        break;
    case NRL_NODE_MAP:
        for (size_t i = 0; i < nrl_node_size(node); i++) {
            buffer_puts(out, i ? ", " : "");
            report_text(out, nrl_node_key(node, i));
            buffer_puts(out, ": ");
            add_value(out, nrl_node_at(node, i));
        }
        break;
    default:
        break;
    }
}

static const nrl_node *at_path(const nrl_node *map, const char *section, const char *key)
{
    const nrl_node *in = nrl_node_find(map, section);
    return key ? nrl_node_find(in, key) : in;
}

/* Adds one row if the runs have different values. */
static void add_difference(buffer *out, const report_run *runs, size_t n, const char *section, const char *key,
                           bool *begun)
{
    bool differs = false;
    buffer row = {0}, first = {0}, cell = {0};
    for (size_t i = 0; i < n; i++) {
        buffer *to = i ? &cell : &first;
        cell.size = 0;
        add_value(to, at_path(runs[i].config, section, key));
        buffer_puts(to, "");
        differs =
            differs || (i && (cell.size != first.size || (cell.size && memcmp(cell.text, first.text, cell.size))));
        buffer_print(&row, "<td>%.*s</td>", (int)to->size, to->size ? to->text : "");
    }
    if (differs && !*begun) {
        buffer_puts(out, "<h2>Differences</h2><p>The first option that differs: <b>");
        report_text(out, section);
        if (key) buffer_puts(out, ".");
        if (key) report_text(out, key);
        buffer_puts(out, "</b>.</p>");
    }
    if (differs && !*begun) buffer_puts(out, "<table><tr><th>option</th>");
    for (size_t i = 0; differs && !*begun && i < n; i++) {
        buffer_puts(out, "<th>");
        report_run_name(out, &runs[i], i);
        buffer_puts(out, "</th>");
    }
    if (differs) {
        buffer_puts(out, *begun ? "<tr><td>" : "</tr>\n<tr><td>");
        report_text(out, section);
        if (key) buffer_puts(out, ".");
        if (key) report_text(out, key);
        buffer_print(out, "</td>%s</tr>\n", row.text);
        *begun = true;
    }
    buffer_free(&row);
    buffer_free(&first);
    buffer_free(&cell);
}

/* Whether an earlier run has the option too; its row is already in the table then. */
static bool is_reported(const report_run *runs, size_t run, const char *section, const char *key)
{
    for (size_t i = 0; i < run; i++)
        if (nrl_node_kind(at_path(runs[i].config, section, key)) != NRL_NODE_NONE) return true;
    return false;
}

void report_differences(buffer *out, const report_run *runs, size_t n)
{
    bool begun = false;
    for (size_t r = 0; n > 1 && r < n; r++)
        for (size_t i = 0; i < nrl_node_size(runs[r].config); i++) {
            const char *section = nrl_node_key(runs[r].config, i);
            const nrl_node *map = nrl_node_at(runs[r].config, i);
            bool flat = nrl_node_kind(map) != NRL_NODE_MAP;
            if (!strcmp(section, "out") || !strcmp(section, "name")) continue;
            if (flat && !is_reported(runs, r, section, NULL)) add_difference(out, runs, n, section, NULL, &begun);
            for (size_t k = 0; !flat && k < nrl_node_size(map); k++)
                if (!is_reported(runs, r, section, nrl_node_key(map, k)))
                    add_difference(out, runs, n, section, nrl_node_key(map, k), &begun);
        }
    if (begun) buffer_puts(out, "</table>\n");
}
