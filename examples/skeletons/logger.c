/*
 * @NAME@.c - writes one value of every record as a line of a file in the run's directory: replace
 * it by your own logger. nrl/logger.h describes the arguments and the contract of each member.
 */
#include <errno.h>
#include <inttypes.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *value;
} @NAME@_options;

static const nrl_option @NAME@_rows[] = {
    NRL_OPT_STR(@NAME@_options, value, "loss", "name of the value to write"),
};

typedef struct {
    FILE *file;
    const char *value; /* lives as long as the instance */
} @NAME@_log;

/* The lines up to `step` of an earlier run, in memory that the caller frees. */
static nrl_status @NAME@_read(const char *path, int64_t step, char **text, size_t *size)
{
    char line[256], *end;
    FILE *in = step > 0 ? fopen(path, "r") : NULL, *kept = open_memstream(text, size);
    while (in && kept && fgets(line, sizeof line, in))
        if (strtoll(line, &end, 10) <= step && end > line) fputs(line, kept);
    if (in) fclose(in);
    return kept && !fclose(kept) ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for logger '@NAME@'");
}

/* A resumed run continues the file behind the step that it resumes from. */
static nrl_status @NAME@_open_file(@NAME@_log *log, const char *path, int64_t resumed_step)
{
    char *text = NULL;
    size_t size = 0;
    NRL_TRY(@NAME@_read(path, resumed_step, &text, &size));
    log->file = fopen(path, "w");
    if (log->file) fwrite(text, 1, size, log->file);
    free(text);
    return log->file ? NRL_OK : nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
}

static nrl_status @NAME@_open(const void *options, const nrl_logger_run *run, void **self)
{
    char path[4096];
    if (run->claim) NRL_TRY(run->claim(run->claim_user, "@NAME@.txt")); /* NULL: every file may be written */
    if (snprintf(path, sizeof path, "%s/@NAME@.txt", run->out) >= (int)sizeof path)
        return nrl_fail(NRL_ERR_IO, "%s: the path is too long", run->out);
    @NAME@_log *log = malloc(sizeof *log);
    if (!log) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger '@NAME@'");
    log->value = ((const @NAME@_options *)options)->value;
    nrl_status st = @NAME@_open_file(log, path, run->resumed_step);
    if (st == NRL_OK)
        *self = log;
    else
        free(log);
    return st;
}

/* The record belongs to the core and is invalid after this call: copy what must be kept. */
static nrl_status @NAME@_write(void *self, const nrl_record *record)
{
    @NAME@_log *log = self;
    for (size_t i = 0; i < record->n_values; i++)
        if (!strcmp(record->values[i].name, log->value))
            fprintf(log->file, "%" PRId64 " %g\n", record->step, record->values[i].value);
    return fflush(log->file) ? nrl_fail(NRL_ERR_IO, "@NAME@.txt: %s", strerror(errno)) : NRL_OK;
}

static void @NAME@_close(void *self)
{
    @NAME@_log *log = self;
    fclose(log->file);
    free(log);
}

static const nrl_logger @NAME@ = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, @NAME@_options, @NAME@_rows, "@NAME@", "0.1",
               "one line for `nrl plugins`"),
    .open = @NAME@_open,
    .write = @NAME@_write,
    .close = @NAME@_close,
};
NRL_EXPORT(@NAME@)
