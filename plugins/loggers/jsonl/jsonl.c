/*
 * jsonl.c - OUT/metrics.jsonl: one flat JSON object per record, one record per line.
 *
 *   step   finished optimizer steps, from 1; the loss is that of the batch before its update
 *   time   Unix seconds
 *   then every value of the record under its own name. Of a training step: loss, grad_norm, lr,
 *   epoch, tokens (trained on so far), tokens_per_s, mfu, mem_bytes, data_fraction and
 *   comm_fraction (shares of the step spent waiting), and the algorithm's metrics; of the first step
 *   after a save is complete also save_s (until it was durable), save_stall_s (the time that the run
 *   waited for it) and the part of that in save_snapshot_s; of an evaluation: eval_loss, eval_tokens,
 *   eval_<metric>.
 *
 * Numbers are written in the fewest digits that read back as the same double; values that are not
 * finite are the strings "NaN", "Infinity", "-Infinity". A line is written whole or not at all. A
 * resumed run first cuts the records after its step. A file that was removed or moved away while it is
 * written is noticed at the next record and created again.
 */
#include "jsonl.h"
#include "log_file.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *file;
} jsonl_options;

static const nrl_option jsonl_rows[] = {
    NRL_OPT_STR(jsonl_options, file, "metrics.jsonl",
                "file name in the run's directory; each line is {step, time, loss, grad_norm, lr, ...}"),
};

typedef struct {
    log_file file;
    jsonl_line line;
} jsonl;

static nrl_status jsonl_check(const void *options)
{
    return log_file_check_name("file", ((const jsonl_options *)options)->file);
}

static void jsonl_close(void *self)
{
    jsonl *j = self;
    log_file_close(&j->file);
    free(j->line.text);
    free(j);
}

/* Keeps a line that is complete, begins as this logger writes lines, and is not beyond the step. */
static bool jsonl_keep(void *user, char *line, ssize_t size, FILE *to)
{
    static const char head[] = "{\"step\": ";
    const int64_t *step = user;
    char *end;
    if (size < 3 || line[size - 1] != '\n' || line[size - 2] != '}') return true;
    if (strncmp(line, head, sizeof head - 1)) return true;
    long long n = strtoll(line + sizeof head - 1, &end, 10);
    if ((*end != ',' && *end != '}') || n > *step) return true;
    return fwrite(line, 1, (size_t)size, to) == (size_t)size;
}

static nrl_status jsonl_open(const void *options, const nrl_logger_run *run, void **self)
{
    jsonl *j = calloc(1, sizeof *j);
    int64_t resumed = run->resumed_step;
    if (!j) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'jsonl'");
    nrl_status st = log_file_init(&j->file, run, ((const jsonl_options *)options)->file);
    if (st == NRL_OK && resumed > 0) st = log_file_rewrite(j->file.path, jsonl_keep, &resumed);
    if (st == NRL_OK) st = log_file_open(&j->file, resumed <= 0);
    if (st == NRL_OK)
        *self = j;
    else
        jsonl_close(j);
    return st;
}

static nrl_status jsonl_write(void *self, const nrl_record *record)
{
    jsonl *j = self;
    NRL_TRY(jsonl_format(&j->line, record));
    NRL_TRY(log_file_keep(&j->file, NULL));
    return log_file_append(&j->file, j->line.text, j->line.size);
}

static const nrl_logger jsonl_table = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, jsonl_options, jsonl_rows, "jsonl", "0.1",
               "one flat JSON object per record in OUT/metrics.jsonl"),
    .plugin.priority = 100,
    .plugin.check = jsonl_check,
    .open = jsonl_open,
    .write = jsonl_write,
    .close = jsonl_close,
};
NRL_EXPORT(jsonl_table)
