/*
 * child.c - see child.h.
 */
#include "cli/common/child.h"
#include "base/buffer.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *read_back(arena *a, FILE *f)
{
    buffer b = {0};
    char part[4096];
    rewind(f);
    for (size_t n; b.size < CHILD_OUTPUT && (n = fread(part, 1, sizeof part, f)) > 0;)
        buffer_add(&b, part, n);
    char *text = buffer_take(&b);
    const char *kept = arena_strdup(a, text ? text : "");
    free(text);
    return kept;
}

/* In files rather than pipes: no program waits for the other. */
nrl_status child_run(arena *a, const char *const *argv, void (*prepare)(void), child_end *end)
{
    FILE *printed = file_open_temporary(), *errors = file_open_temporary();
    int status = 0, failed[2] = {-1, -1}, reason = 0, nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    nrl_status st = printed && errors && nothing >= 0 && !pipe2(failed, O_CLOEXEC)
                        ? NRL_OK
                        : nrl_fail(NRL_ERR_IO, "cannot start %s: %s", argv[0], strerror(errno));
    pid_t child = st == NRL_OK ? fork() : -1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (prepare) prepare();
        dup2(nothing, STDIN_FILENO);
        dup2(fileno(printed), STDOUT_FILENO);
        dup2(fileno(errors), STDERR_FILENO);
        execvp(argv[0], (char *const *)argv);
        reason = errno;
        _exit(write(failed[1], &reason, sizeof reason) == sizeof reason ? 127 : 126);
    }
    if (st == NRL_OK) {
        close(failed[1]);
        if (child < 0 || read(failed[0], &reason, sizeof reason) == (ssize_t)sizeof reason)
            st = nrl_fail(NRL_ERR_IO, "cannot start %s: %s", argv[0], strerror(child < 0 ? errno : reason));
        close(failed[0]);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    *end = (child_end){.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    if (st == NRL_OK) end->out = read_back(a, printed);
    if (st == NRL_OK) end->err = read_back(a, errors);
    if (nothing >= 0) close(nothing);
    if (printed) fclose(printed);
    if (errors) fclose(errors);
    return st;
}
