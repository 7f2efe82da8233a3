/*
 * problems.c - the list of mistakes in a config, and its report as one error.
 */
#include "base/problems.h"
#include "base/buffer.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPORTED = 50 };

struct config_problem {
    char *source; /* a copy, because the tree may be freed before the report */
    uint32_t line, column;
    size_t number; /* order of detection, to sort mistakes at the same place */
    char *text;
};

static void problems_append(config_problems *p, const nrl_node *at, char *text)
{
    if (p->n == p->capacity) {
        p->capacity = p->capacity ? p->capacity * 2 : 8;
        p->list = mem_realloc(p->list, p->capacity * sizeof *p->list);
    }
    config_problem x = {.number = p->n, .text = text};
    if (at && at->source) {
        x.source = mem_strdup(at->source);
        x.line = at->line;
        x.column = at->column;
    }
    p->list[p->n++] = x;
}

void problems_add(config_problems *p, const nrl_node *at, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    int n = vsnprintf(NULL, 0, fmt, a);
    va_end(a);
    char *text = mem_alloc((size_t)(n < 0 ? 0 : n) + 1);
    va_start(a, fmt);
    if (n > 0) vsnprintf(text, (size_t)n + 1, fmt, a);
    va_end(a);
    problems_append(p, at, text);
}

const char *problems_known_as(const config_problems *p, arena *a, const char *key, const char *word)
{
    const char *known = p->known_as ? p->known_as(p->user, a, arena_printf(a, "%s=%s", key, word)) : NULL;
    return known ? arena_printf(a, "; %s", known) : "";
}

void problems_take_error(config_problems *p, nrl_status st, const nrl_node *at)
{
    p->lacks_memory |= st == NRL_ERR_MEMORY;
    problems_append(p, at, mem_strdup(nrl_error_text()));
}

/* Orders by file, line and column; mistakes without a line (command line, missing keys) come last. */
static int problems_compare(const void *a, const void *b)
{
    const config_problem *x = a, *y = b;
    if (!x->line != !y->line) return x->line ? -1 : 1;
    int c = strcmp(x->source ? x->source : "", y->source ? y->source : "");
    if (c && x->line) return c;
    if (x->line != y->line) return x->line < y->line ? -1 : 1;
    if (x->column != y->column) return x->column < y->column ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Indents one of several mistakes, and its further lines (hints) twice. */
static void problems_print(buffer *b, const config_problem *x, bool one_of_several)
{
    if (one_of_several) buffer_puts(b, "\n  ");
    if (x->source) buffer_puts(b, x->source);
    if (x->line) buffer_print(b, ":%u:%u", (unsigned)x->line, (unsigned)x->column);
    if (x->source) buffer_puts(b, ": ");
    for (const char *line = x->text; *line;) {
        size_t n = strcspn(line, "\n");
        buffer_add(b, line, n);
        line += n;
        if (!*line) break;
        buffer_puts(b, one_of_several ? "\n    " : "\n");
        line++;
    }
}

static char *compose(config_problems *p, const char *name)
{
    buffer b = {0};
    qsort(p->list, p->n, sizeof *p->list, problems_compare);
    if (p->n > 1) buffer_print(&b, "%zu %s", p->n, name);
    for (size_t i = 0; i < p->n && i < MAX_REPORTED; i++)
        problems_print(&b, &p->list[i], p->n > 1);
    if (p->n > MAX_REPORTED) buffer_print(&b, "\n  and %zu more", p->n - MAX_REPORTED);
    return buffer_take(&b);
}

nrl_status problems_report_as(config_problems *p, nrl_status code, const char *name)
{
    if (!p->n) return NRL_OK;
    char *text = compose(p, name);
    for (size_t i = 0; i < p->n; i++) {
        free(p->list[i].source);
        free(p->list[i].text);
    }
    free(p->list);
    if (p->lacks_memory) code = NRL_ERR_MEMORY;
    *p = (config_problems){0};
    nrl_fail(code, "%s", text);
    free(text);
    return code;
}

nrl_status problems_report(config_problems *p)
{
    return problems_report_as(p, NRL_ERR_CONFIG, "mistakes in the config");
}
