/*
 * csv.c - OUT/metrics.csv: a table with a row per record and a column per value, for spreadsheets, pandas and R.
 *
 * The columns are step, time, record (train, eval or end), and then one per name in the order in which names appear.
 * When a new name appears, the file is replaced by one with that column; earlier rows have an empty cell there. A
 * resumed run keeps the columns and removes the rows after its step. Numbers as in metrics.jsonl; NaN, Infinity and
 * -Infinity.
 */
#include "base/buffer.h"
#include "log_file.h"
#include <inttypes.h>
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_COLUMNS = 4096, FIXED = 3 };

typedef struct {
    const char *file;
} csv_options;

static const nrl_option csv_rows[] = {
    NRL_OPT_STR(csv_options, file, "metrics.csv",
                "file name in the run's directory; columns are step, time, record, loss, ..."),
};

typedef struct {
    log_file file;
    char **names; /* of the columns after the fixed ones */
    size_t n_names, room;
    buffer row;
    int64_t resumed;   /* while the file is rewritten: rows after it are removed */
    size_t n_new;      /* while the file is rewritten: columns that its rows lack */
    bool is_past_head; /* while the file is read or rewritten */
} csv;

static nrl_status csv_check(const void *options)
{
    return log_file_check_name("file", ((const csv_options *)options)->file);
}

static void csv_close(void *self)
{
    csv *c = self;
    log_file_close(&c->file);
    for (size_t i = 0; i < c->n_names; i++)
        free(c->names[i]);
    free(c->names);
    buffer_free(&c->row);
    free(c);
}

/* Line ends would break the table for programs that read lines: they become spaces. */
static void add_cell(buffer *b, const char *text)
{
    bool quotes = strpbrk(text, ",\"\r\n") != NULL;
    if (quotes) buffer_puts(b, "\"");
    for (; *text; text++) {
        if (*text == '"') buffer_puts(b, "\"");
        buffer_add(b, *text == '\n' || *text == '\r' ? " " : text, 1);
    }
    if (quotes) buffer_puts(b, "\"");
}

static nrl_status csv_add_name(csv *c, const char *name, size_t size)
{
    if (c->n_names == c->room) {
        size_t room = c->room ? 2 * c->room : 32;
        char **names = realloc(c->names, room * sizeof *names);
        if (!names) return nrl_fail(NRL_ERR_MEMORY, "out of memory for columns");
        c->names = names;
        c->room = room;
    }
    char *copy = strndup(name, size);
    if (!copy) return nrl_fail(NRL_ERR_MEMORY, "out of memory for columns");
    for (char *at = copy; *at; at++)
        if (*at == '\n' || *at == '\r') *at = ' ';
    c->names[c->n_names++] = copy;
    return NRL_OK;
}

/* Equal up to what add_cell replaces. */
static bool csv_is_name(const char *column, const char *name)
{
    for (; *column && *name; column++, name++)
        if (*column != *name && !(*column == ' ' && (*name == '\n' || *name == '\r'))) return false;
    return *column == *name;
}

static ptrdiff_t csv_find(const csv *c, const char *name)
{
    for (size_t i = 0; i < c->n_names; i++)
        if (csv_is_name(c->names[i], name)) return (ptrdiff_t)i;
    return -1;
}

static const char fixed[] = "step,time,record";

/* The first line of the table: a header with all columns. */
static void csv_head(csv *c)
{
    c->row.size = 0;
    buffer_puts(&c->row, fixed);
    for (size_t i = 0; i < c->n_names; i++) {
        buffer_puts(&c->row, ",");
        add_cell(&c->row, c->names[i]);
    }
    buffer_puts(&c->row, "\n");
}

/* Reads the columns of an earlier header, as csv_head writes it. */
static nrl_status csv_read_head(csv *c, char *line)
{
    buffer cell = {0};
    nrl_status st = NRL_OK;
    char *at = line + strlen(fixed);
    while (st == NRL_OK && *at == ',' && c->n_names < MAX_COLUMNS) {
        bool quoted = *++at == '"';
        cell.size = 0;
        buffer_puts(&cell, "");
        for (at += quoted; *at && *at != '\n'; at++) {
            if (quoted && *at == '"' && at[1] != '"') break;
            if (!quoted && *at == ',') break;
            if (*at == '"') at++;
            buffer_add(&cell, at, 1);
        }
        at += quoted && *at == '"';
        st = csv_add_name(c, cell.size ? cell.text : "", cell.size);
    }
    buffer_free(&cell);
    return st;
}

/* Replaces the header, and adds empty cells to the rows that stay. */
static bool csv_rewrite_line(void *user, char *line, ssize_t size, FILE *to)
{
    csv *c = user;
    char *end;
    if (!c->is_past_head) {
        c->is_past_head = true;
        csv_head(c);
        return fwrite(c->row.text, 1, c->row.size, to) == c->row.size;
    }
    long long step = strtoll(line, &end, 10);
    if (line[size - 1] != '\n' || end == line || *end != ',' || step > c->resumed) return true;
    bool ok = fwrite(line, 1, (size_t)size - 1, to) == (size_t)size - 1;
    for (size_t i = 0; i < c->n_new && ok; i++)
        ok = fputc(',', to) != EOF;
    return ok && fputc('\n', to) != EOF;
}

static nrl_status csv_rewrite(csv *c, int64_t resumed, size_t n_new)
{
    c->resumed = resumed;
    c->n_new = n_new;
    c->is_past_head = false;
    return log_file_rewrite(c->file.path, csv_rewrite_line, c);
}

/* The file of an earlier run that this one continues. A file that is not such a table is replaced. */
static nrl_status csv_resume(csv *c, int64_t step, bool *has_head)
{
    FILE *in = fopen(c->file.path, "re");
    char *line = NULL;
    size_t capacity = 0;
    nrl_status st = NRL_OK;
    *has_head = false;
    if (!in) return NRL_OK;
    ssize_t size = getline(&line, &capacity, in);
    fclose(in);
    if (size > (ssize_t)strlen(fixed) && !strncmp(line, fixed, strlen(fixed)) && line[size - 1] == '\n') {
        *has_head = true;
        st = csv_read_head(c, line);
        if (st == NRL_OK) st = csv_rewrite(c, step, 0);
    }
    free(line);
    return st;
}

static nrl_status csv_open(const void *options, const nrl_logger_run *run, void **self)
{
    csv *c = calloc(1, sizeof *c);
    bool has_head = false;
    if (!c) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'csv'");
    c->row.what = "a row of logger 'csv'";
    nrl_status st = log_file_init(&c->file, run, ((const csv_options *)options)->file);
    if (st == NRL_OK && run->resumed_step > 0) st = csv_resume(c, run->resumed_step, &has_head);
    if (st == NRL_OK) st = log_file_open(&c->file, !has_head);
    if (st == NRL_OK)
        *self = c;
    else
        csv_close(c);
    return st;
}

static bool csv_is_first(const nrl_record *r, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (r->values[k].name && !strcmp(r->values[k].name, r->values[i].name)) return false;
    return true;
}

/* Adds a column for each new name of the record; *n_new counts them. */
static nrl_status csv_add_columns(csv *c, const nrl_record *r, size_t *n_new)
{
    for (size_t i = 0; i < r->n_values; i++) {
        const char *name = r->values[i].name;
        if (!name || csv_find(c, name) >= 0) continue;
        if (c->n_names == MAX_COLUMNS)
            return nrl_fail(NRL_ERR_IO, "%s: more than %d columns", c->file.path, MAX_COLUMNS);
        NRL_TRY(csv_add_name(c, name, strlen(name)));
        ++*n_new;
    }
    return NRL_OK;
}

static void csv_row(csv *c, const nrl_record *r)
{
    static const char *const kinds[] = {[NRL_RECORD_TRAIN] = "train",
                                        [NRL_RECORD_EVAL] = "eval",
                                        [NRL_RECORD_END] = "end",
                                        [NRL_RECORD_REPORT] = "report"};
    const char *kind = r->kind < sizeof kinds / sizeof *kinds && kinds[r->kind] ? kinds[r->kind] : "other";
    char number[LOG_NUMBER];
    c->row.size = 0;
    buffer_print(&c->row, "%" PRId64 ",%s,%s", r->step, log_number(r->time, number), kind);
    for (size_t k = 0; k < c->n_names; k++) {
        buffer_puts(&c->row, ",");
        for (size_t i = 0; i < r->n_values; i++)
            if (r->values[i].name && csv_is_name(c->names[k], r->values[i].name) && csv_is_first(r, i)) {
                buffer_puts(&c->row, log_number(r->values[i].value, number));
                break;
            }
    }
    buffer_puts(&c->row, "\n");
}

static nrl_status csv_write(void *self, const nrl_record *r)
{
    csv *c = self;
    size_t n_new = 0;
    bool is_new;
    if (r->kind == NRL_RECORD_SAMPLES) return NRL_OK; /* texts are not numbers */
    NRL_TRY(log_file_keep(&c->file, &is_new));
    NRL_TRY(csv_add_columns(c, r, &n_new));
    off_t size = lseek(c->file.fd, 0, SEEK_END);
    if (!size || (size < 0 && n_new)) { /* a new file, or a pipe */
        csv_head(c);
        NRL_TRY(log_file_append(&c->file, c->row.text, c->row.size));
    } else if (size > 0 && n_new) {
        nrl_status st = csv_rewrite(c, INT64_MAX, n_new);
        for (; st != NRL_OK && n_new; n_new--) /* the columns are added when the next record is written */
            free(c->names[--c->n_names]);
        NRL_TRY(st);
        close(c->file.fd);
        NRL_TRY(log_file_open(&c->file, false));
    }
    csv_row(c, r);
    NRL_TRY(buffer_check(&c->row));
    return log_file_append(&c->file, c->row.text, c->row.size);
}

static const nrl_logger csv_table = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, csv_options, csv_rows, "csv", "0.1",
               "a table with a row per record in OUT/metrics.csv"),
    .plugin.check = csv_check,
    .open = csv_open,
    .write = csv_write,
    .close = csv_close,
};
NRL_EXPORT(csv_table)
