/*
 * cut.c - truncates a file of records to a step.
 */
#include "jsonl.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static nrl_status failed(const char *path)
{
    bool full = errno == ENOSPC || errno == EFBIG || errno == EDQUOT;
    return nrl_fail(full ? NRL_ERR_FULL : NRL_ERR_IO, "%s: %s", path, strerror(errno));
}

/* Whether a line is complete, begins as this logger writes lines, and is not beyond `step`. */
static bool is_kept(const char *line, ssize_t size, int64_t step)
{
    static const char head[] = "{\"step\": ";
    char *end;
    if (size < 3 || line[size - 1] != '\n' || line[size - 2] != '}') return false;
    if (strncmp(line, head, sizeof head - 1)) return false;
    long long n = strtoll(line + sizeof head - 1, &end, 10);
    return (*end == ',' || *end == '}') && n <= step;
}

static nrl_status copy_kept(FILE *in, FILE *out, const char *temporary, int64_t step)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    bool ok = true;
    while (ok && (size = getline(&line, &capacity, in)) > 0)
        if (is_kept(line, size, step)) ok = fwrite(line, 1, (size_t)size, out) == (size_t)size;
    ok = ok && fflush(out) == 0 && fsync(fileno(out)) == 0;
    nrl_status st = ok ? NRL_OK : failed(temporary);
    free(line);
    return st;
}

static nrl_status replace(FILE *in, const char *path, const char *temporary, int64_t step)
{
    struct stat old;
    FILE *out = fopen(temporary, "we");
    if (!out) return failed(temporary);
    if (fstat(fileno(in), &old) == 0) fchmod(fileno(out), old.st_mode & 07777);
    nrl_status st = copy_kept(in, out, temporary, step);
    if (fclose(out) != 0 && st == NRL_OK) st = failed(temporary);
    if (st == NRL_OK && rename(temporary, path) != 0) st = failed(path);
    if (st != NRL_OK) unlink(temporary);
    return st;
}

nrl_status jsonl_cut(const char *path, int64_t step)
{
    size_t n = strlen(path) + sizeof ".tmp";
    struct stat s;
    if (!stat(path, &s) && !S_ISREG(s.st_mode)) return NRL_OK; /* a pipe or a device has nothing to truncate */
    FILE *in = fopen(path, "re");
    if (!in) return errno == ENOENT ? NRL_OK : failed(path);
    char *temporary = malloc(n);
    nrl_status st = NRL_ERR_MEMORY;
    if (!temporary)
        nrl_fail(st, "out of memory for a file name");
    else {
        snprintf(temporary, n, "%s.tmp", path);
        st = replace(in, path, temporary, step);
    }
    free(temporary);
    fclose(in);
    return st;
}
