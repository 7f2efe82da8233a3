/*
 * log_file.h - a file of lines in the directory of a run: it belongs to the run, lines are written whole or not at all,
 * and a file that is removed or replaced during the run is noticed and begun again.
 */
#ifndef LOGGERS_LOG_FILE_H
#define LOGGERS_LOG_FILE_H
#include <nrl/logger.h>
#include <stdio.h>
#include <sys/types.h>

typedef struct {
    nrl_status (*claim)(void *claim_user, const char *name);
    void *claim_user;
    int fd;       /* -1 = not open */
    bool is_torn; /* the last line is incomplete */
    char *path;
    const char *file;  /* points to the file name in path */
    int64_t n_written; /* lines that this process wrote to the open file */
} log_file;

/* For nrl_plugin.check: the option `option` must be a plain file name. */
nrl_status log_file_check_name(const char *option, const char *name);
/* Sets the members and claims the file; opens nothing. log_file_close is needed also after an error. */
nrl_status log_file_init(log_file *f, const nrl_logger_run *run, const char *name);
nrl_status log_file_open(log_file *f, bool truncate);
/* Opens the file again if its path no longer leads to it. *is_new (may be NULL): the file was begun again. */
nrl_status log_file_keep(log_file *f, bool *is_new);
/* Appends whole lines; a part that was written is removed again. */
nrl_status log_file_append(log_file *f, const char *text, size_t size);
void log_file_close(log_file *f);

/* Copies the file through `line`, which writes a line (with its end) or nothing to `to`, and replaces it: a crash
 * leaves either the old file or the new one. A missing file is not an error; a pipe or a device stays as it is. */
nrl_status log_file_rewrite(const char *path, bool (*line)(void *user, char *line, ssize_t size, FILE *to), void *user);
nrl_status log_file_failed(const char *path, int error); /* NRL_ERR_FULL or NRL_ERR_IO */

/* The fewest digits that read back as the same double; "NaN", "Infinity" or "-Infinity". */
enum { LOG_NUMBER = 40 };
const char *log_number(double v, char text[LOG_NUMBER]);

#endif
