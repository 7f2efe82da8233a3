/*
 * format.c - a record as one line of JSON.
 */
#include "jsonl.h"
#include "log_file.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static nrl_status add(jsonl_line *line, const char *text, size_t size)
{
    if (line->capacity - line->size < size) {
        size_t capacity = 2 * line->capacity + size + 256;
        char *grown = realloc(line->text, capacity);
        if (!grown) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a record");
        line->text = grown;
        line->capacity = capacity;
    }
    memcpy(line->text + line->size, text, size);
    line->size += size;
    return NRL_OK;
}

static nrl_status add_name(jsonl_line *line, const char *name)
{
    char escaped[8];
    NRL_TRY(add(line, ", \"", 3));
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        int n = c < 0x20 || c == '"' || c == '\\' ? snprintf(escaped, sizeof escaped, "\\u%04x", c)
                                                  : snprintf(escaped, sizeof escaped, "%c", c);
        NRL_TRY(add(line, escaped, (size_t)n));
    }
    return add(line, "\": ", 3);
}

static nrl_status add_number(jsonl_line *line, double v)
{
    char text[LOG_NUMBER + 2], digits[LOG_NUMBER];
    int n = snprintf(text, sizeof text, isfinite(v) ? "%s" : "\"%s\"", log_number(v, digits));
    return add(line, text, (size_t)n);
}

/* An object contains a name once: the first value is kept. */
static bool is_taken(const nrl_record *r, size_t i)
{
    const char *name = r->values[i].name;
    if (!strcmp(name, "step") || !strcmp(name, "time")) return true;
    for (size_t k = 0; k < i; k++)
        if (r->values[k].name && !strcmp(r->values[k].name, name)) return true;
    return false;
}

nrl_status jsonl_format(jsonl_line *line, const nrl_record *r)
{
    char head[64];
    line->size = 0;
    int n = snprintf(head, sizeof head, "{\"step\": %" PRId64, r->step);
    NRL_TRY(add(line, head, (size_t)n));
    NRL_TRY(add_name(line, "time"));
    NRL_TRY(add_number(line, r->time));
    for (size_t i = 0; i < r->n_values; i++) {
        if (!r->values[i].name || is_taken(r, i)) continue;
        NRL_TRY(add_name(line, r->values[i].name));
        NRL_TRY(add_number(line, r->values[i].value));
    }
    return add(line, "}\n", 2);
}
