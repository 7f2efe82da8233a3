/*
 * jsonl.c - OUT/metrics.jsonl: one flat JSON object per record, one record per line.
 *
 *   step   finished optimizer steps, from 1; the loss is that of the batch before its update
 *   time   Unix seconds
 *   then every value of the record under its own name. Of a training step: loss, grad_norm, lr,
 *   epoch, tokens (trained on so far), tokens_per_s, mfu, mem_bytes, data_fraction and
 * comm_fraction (shares of the step spent waiting), and the algorithm's metrics; of the first step
 * after a save is complete also save_s (until it was durable), save_stall_s (what the run waited for
 * it) and of that save_snapshot_s; of an evaluation: eval_loss, eval_tokens, eval_<metric>.
 *
 * Numbers are written in the fewest digits that read back as the same double; values that are not
 * finite are the strings "NaN", "Infinity", "-Infinity". A line is written whole or not at all. A
 * resumed run first cuts the records after its step. A file that was removed or moved away while it is
 * written is noticed at the next record and begun anew.
 */
#include "jsonl.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *file;
} jsonl_options;

static const nrl_option jsonl_rows[] = {
    NRL_OPT_STR(jsonl_options, file, "metrics.jsonl",
                "file name in the run's directory; each line is {step, time, loss, grad_norm, lr, ...}"),
};

typedef struct {
    nrl_status (*claim)(void *claim_user, const char *name);
    void *claim_user;
    int fd;
    bool is_torn; /* the last line is incomplete */
    char *path;
    const char *file; /* points to the file name in path */
    jsonl_line line;
    int64_t n_written; /* records that this process wrote to the open file */
} jsonl;

static nrl_status jsonl_check(const void *options)
{
    const char *file = ((const jsonl_options *)options)->file;
    if (*file && !strchr(file, '/') && strcmp(file, ".") && strcmp(file, "..")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "file: '%s' is not a plain file name; expected a name without '/'", file);
}

static nrl_status jsonl_failed(const char *path, int error)
{
    bool full = error == ENOSPC || error == EFBIG || error == EDQUOT;
    return nrl_fail(full ? NRL_ERR_FULL : NRL_ERR_IO, "%s: %s", path, strerror(error));
}

static char *join(const char *folder, const char *file)
{
    size_t n = strlen(folder) + strlen(file) + 2;
    char *path = malloc(n);
    if (path) snprintf(path, n, "%s/%s", folder, file);
    return path;
}

static void jsonl_close(void *self)
{
    jsonl *j = self;
    if (j->fd >= 0) close(j->fd);
    free(j->line.text);
    free(j->path);
    free(j);
}

static nrl_status jsonl_claim(const jsonl *j)
{
    return j->claim ? j->claim(j->claim_user, j->file) : NRL_OK;
}

static nrl_status jsonl_open_file(jsonl *j, int flags)
{
    j->fd = open(j->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    return j->fd < 0 ? jsonl_failed(j->path, errno) : NRL_OK;
}

static nrl_status jsonl_open(const void *options, const nrl_logger_run *run, void **self)
{
    jsonl *j = calloc(1, sizeof *j);
    if (!j) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'jsonl'");
    j->fd = -1;
    if (run->size >= sizeof *run) {
        j->claim = run->claim;
        j->claim_user = run->claim_user;
    }
    j->path = join(run->out, ((const jsonl_options *)options)->file);
    nrl_status st = j->path ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'jsonl'");
    if (st == NRL_OK) j->file = strrchr(j->path, '/') + 1;
    if (st == NRL_OK) st = jsonl_claim(j);
    if (st == NRL_OK && run->resumed_step > 0) st = jsonl_cut(j->path, run->resumed_step);
    if (st == NRL_OK) st = jsonl_open_file(j, run->resumed_step > 0 ? 0 : O_TRUNC);
    if (st == NRL_OK)
        *self = j;
    else
        jsonl_close(j);
    return st;
}

/* Whether the path still leads to the open file. */
static bool jsonl_is_there(const jsonl *j)
{
    struct stat open_one, named;
    return j->fd >= 0 && !fstat(j->fd, &open_one) && !stat(j->path, &named) && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

static nrl_status jsonl_open_again(jsonl *j)
{
    bool was_open = j->fd >= 0;
    if (was_open) close(j->fd);
    j->fd = -1;
    if (was_open)
        nrl_warn("%s was removed or replaced during the run; %lld records are lost", j->path, (long long)j->n_written);
    j->n_written = 0;
    j->is_torn = false;
    NRL_TRY(jsonl_claim(j));
    return jsonl_open_file(j, 0);
}

/* A line that was written only in part is removed again. */
static nrl_status append(jsonl *j, const char *text, size_t size)
{
    struct stat before;
    size_t done = 0;
    if (fstat(j->fd, &before) != 0) return jsonl_failed(j->path, errno);
    while (done < size) {
        ssize_t n = write(j->fd, text + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int error = n < 0 ? errno : ENOSPC;
            j->is_torn = done && (!S_ISREG(before.st_mode) || ftruncate(j->fd, before.st_size) != 0);
            return jsonl_failed(j->path, error);
        }
        done += (size_t)n;
    }
    return NRL_OK;
}

static nrl_status jsonl_write(void *self, const nrl_record *record)
{
    jsonl *j = self;
    NRL_TRY(jsonl_format(&j->line, record));
    if (!jsonl_is_there(j)) NRL_TRY(jsonl_open_again(j));
    if (j->is_torn) NRL_TRY(append(j, "\n", 1));
    j->is_torn = false;
    NRL_TRY(append(j, j->line.text, j->line.size));
    j->n_written++;
    return NRL_OK;
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
