/*
 * report.c - `nrl report [RUN...] [--tune FILE] [-o FILE]`: runs as one HTML file. Only reads the directories of
 * the runs.
 */
#include "report.h"
#include "base/file.h"
#include "base/inputs.h"
#include "cli/common/cli.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static nrl_status failed(const char *path, int error)
{
    bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return nrl_fail(full ? NRL_ERR_FULL : NRL_ERR_IO, "%s: %s", path, strerror(error));
}

/* Writes the whole file or nothing, because a browser may have an earlier one open. A pipe or a
 * device is written to, never replaced. */
static nrl_status write_file(const char *path, const buffer *page)
{
    struct stat s;
    bool in_place = !stat(path, &s) && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
    char *temporary = in_place ? mem_strdup(path) : file_temporary_name(path, ".tmp");
    FILE *f = fopen(temporary, in_place ? "we" : "wex");
    nrl_status st = NRL_OK;
    if (!f) {
        st = failed(path, errno);
        free(temporary);
        return st;
    }
    if (fwrite(page->text, 1, page->size, f) != page->size) st = failed(path, errno);
    if (fclose(f) && st == NRL_OK) st = failed(path, errno);
    if (st == NRL_OK && !in_place && rename(temporary, path)) st = failed(path, errno);
    if (st != NRL_OK && !in_place) unlink(temporary);
    free(temporary);
    return st;
}

static nrl_status read_and_write(arena *a, report_run *runs, size_t n, char **dirs, const char *tune, const char *path)
{
    buffer page = {0};
    inputs read = {0};
    const nrl_node *sizes = NULL;
    if (tune) inputs_add(&read, "sizes of micro-batches", tune);
    for (size_t i = 0; i < n; i++) {
        inputs_add(&read, "a run", arena_printf(a, "%s/metrics.jsonl", dirs[i]));
        inputs_add(&read, "a run", arena_printf(a, "%s/config.yaml", dirs[i]));
    }
    nrl_status free_to_write = inputs_check_file(&read, path);
    inputs_free(&read);
    NRL_TRY(free_to_write);
    for (size_t i = 0; i < n; i++)
        NRL_TRY(report_read(a, dirs[i], &runs[i]));
    if (tune) NRL_TRY(report_read_tune(a, tune, &sizes));
    report_page(&page, runs, n, NULL, sizes);
    nrl_status st = write_file(path, &page);
    if (st == NRL_OK) printf("%s: %.1f KiB, %zu run%s\n", path, (double)page.size / 1024, n, n == 1 ? "" : "s");
    buffer_free(&page);
    return st;
}

static nrl_status report_verb(int argc, char **argv)
{
    arena a = {0};
    const char *path, *tune;
    NRL_TRY(cli_take_value(&argc, argv, "-o", &path));
    NRL_TRY(cli_take_value(&argc, argv, "--tune", &tune));
    NRL_TRY(cli_expect(argc, argv, tune ? 0 : 1, -1));
    size_t n = (size_t)argc - 1;
    if (!path && n != 1)
        return nrl_fail(NRL_ERR_CONFIG, "%s require -o FILE, the file of the report",
                        n ? "several runs" : "sizes without a run");
    report_run *runs = mem_alloc((n + 1) * sizeof *runs);
    if (!path) path = arena_printf(&a, "%s/report.html", argv[1]);
    nrl_status st = read_and_write(&a, runs, n, argv + 1, tune, path);
    for (size_t i = 0; i < n; i++)
        report_free(&runs[i]);
    free(runs);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "report", report_verb);
}
