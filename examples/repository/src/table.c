/*
 * table.c - a logger: one value of every record as a line of OUT/table.csv. A resumed run first drops the lines after
 * its step, so that the file is the same as without the interruption.
 */
#include <errno.h>
#include <inttypes.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "table.csv"

/* ---- options ---- */

typedef struct {
    const char *value;
} table_options;

static const nrl_option table_rows[] = {
    NRL_OPT_STR(table_options, value, "loss", "which value is written"),
};

/* ---- the file ---- */

typedef struct {
    FILE *file;
    const char *value; /* lives as long as the instance */
} table_log;

static nrl_status table_failed(void)
{
    return nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, FILE_NAME ": %s", strerror(errno));
}

/* Returns the lines up to `step` in memory that the caller frees. */
static nrl_status table_read(const char *path, int64_t step, char **text, size_t *size)
{
    char line[256];
    FILE *in = step > 0 ? fopen(path, "r") : NULL, *kept = open_memstream(text, size);
    if (!kept) {
        if (in) fclose(in);
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for " FILE_NAME);
    }
    while (in && fgets(line, sizeof line, in)) {
        char *end;
        int64_t at = strtoll(line, &end, 10);
        if (end > line && *end == ',' && at <= step) fputs(line, kept);
    }
    if (in) fclose(in);
    return fclose(kept) ? table_failed() : NRL_OK;
}

static nrl_status table_open_file(table_log *log, const char *path, int64_t step)
{
    char *text = NULL;
    size_t size = 0;
    NRL_TRY(table_read(path, step, &text, &size));
    log->file = fopen(path, "w");
    bool good = log->file && fprintf(log->file, "step,%s\n", log->value) > 0 &&
                fwrite(text, 1, size, log->file) == size && !fflush(log->file);
    free(text);
    if (good) return NRL_OK;
    nrl_status st = table_failed();
    if (log->file) fclose(log->file);
    return st;
}

/* ---- members ---- */

static nrl_status table_open(const void *options, const nrl_logger_run *run, void **self)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/" FILE_NAME, run->out) >= (int)sizeof path)
        return nrl_fail(NRL_ERR_IO, "%s: the path is too long", run->out);
    if (run->claim) NRL_TRY(run->claim(run->claim_user, FILE_NAME));
    table_log *log = malloc(sizeof *log);
    if (!log) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'table'");
    log->value = ((const table_options *)options)->value;
    nrl_status st = table_open_file(log, path, run->resumed_step);
    if (st == NRL_OK)
        *self = log;
    else
        free(log);
    return st;
}

/* The record is the core's and is gone afterwards: copy what is kept. */
static nrl_status table_write(void *self, const nrl_record *record)
{
    table_log *log = self;
    for (size_t i = 0; i < record->n_values; i++)
        if (!strcmp(record->values[i].name, log->value))
            fprintf(log->file, "%" PRId64 ",%.17g\n", record->step, record->values[i].value);
    return fflush(log->file) ? table_failed() : NRL_OK;
}

static void table_close(void *self)
{
    table_log *log = self;
    fclose(log->file);
    free(log);
}

static const nrl_logger table = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, table_options, table_rows, "table", "1.0",
               "one value of every record, as a table"),
    .open = table_open,
    .write = table_write,
    .close = table_close,
};
NRL_EXPORT(table)
