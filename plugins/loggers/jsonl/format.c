/*
 * format.c - a record as one line of JSON.
 */
#include "jsonl.h"
#include "base/json.h"
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

static nrl_status add_quoted(jsonl_line *line, const char *text)
{
    buffer quoted = {.what = "a record"};
    json_add_string(&quoted, text, strlen(text));
    nrl_status st = buffer_check(&quoted);
    if (st == NRL_OK) st = add(line, quoted.text, quoted.size);
    buffer_free(&quoted);
    return st;
}

static nrl_status add_name(jsonl_line *line, const char *name)
{
    NRL_TRY(add(line, ", ", 2));
    NRL_TRY(add_quoted(line, name));
    return add(line, ": ", 2);
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

static nrl_status add_text(jsonl_line *line, const char *name, const char *text)
{
    if (!text) return NRL_OK;
    NRL_TRY(add_name(line, name));
    return add_quoted(line, text);
}

/* "samples": a list of the texts. */
static nrl_status add_samples(jsonl_line *line, const nrl_record *r)
{
    char number[96];
    NRL_TRY(add_name(line, "samples"));
    for (size_t i = 0; i < r->n_samples; i++) {
        const nrl_sample_text *s = &r->samples[i];
        int n = snprintf(number, sizeof number, "%s{\"index\": %" PRId32 ", \"tokens\": %" PRId64 ", \"cut\": %s",
                         i ? ", " : "[", s->index, s->tokens, s->is_cut ? "true" : "false");
        NRL_TRY(add(line, number, (size_t)n));
        if (!isnan(*s->score)) {
            NRL_TRY(add_name(line, "score"));
            NRL_TRY(add_number(line, *s->score));
        }
        NRL_TRY(add_text(line, "prompt", s->prompt));
        NRL_TRY(add_text(line, "text", s->text));
        NRL_TRY(add_text(line, "answer", s->answer));
        NRL_TRY(add(line, "}", 1));
    }
    return add(line, "]", 1);
}

/* "units": of what a program reports; all other names have the units of docs/records.md. */
static nrl_status add_units(jsonl_line *line, const nrl_record *r)
{
    const char *unit = r->n_values ? r->values[0].unit : NULL;
    if (!unit || !*unit || !strcmp(unit, "1") || !r->values[0].name) return NRL_OK;
    NRL_TRY(add_name(line, "units"));
    NRL_TRY(add(line, "{", 1));
    NRL_TRY(add_quoted(line, r->values[0].name));
    NRL_TRY(add(line, ": ", 2));
    NRL_TRY(add_quoted(line, unit));
    return add(line, "}", 1);
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
    if (r->kind == NRL_RECORD_SAMPLES) NRL_TRY(add_samples(line, r));
    if (r->kind == NRL_RECORD_REPORT) NRL_TRY(add_units(line, r));
    return add(line, "}\n", 2);
}
