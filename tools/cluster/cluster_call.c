/*
 * cluster_call.c - starts programs of a cluster (sbatch, squeue, kubectl) and reads what they print.
 */
#include "base/file.h"
#include "cluster.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_OUTPUT = 1 << 20 };

static char *read_back(FILE *f)
{
    buffer b = {0};
    char part[4096];
    rewind(f);
    for (size_t n; b.size < MOST_OUTPUT && (n = fread(part, 1, sizeof part, f)) > 0;)
        buffer_add(&b, part, n);
    return buffer_take(&b);
}

/* In files rather than pipes: no program waits for the other. */
nrl_status cluster_command(arena *a, const char *const *argv, const char **out)
{
    FILE *printed = tmpfile(), *errors = tmpfile();
    int status = 0, failed[2] = {-1, -1}, reason = 0, nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    nrl_status st = printed && errors && nothing >= 0 && !pipe2(failed, O_CLOEXEC)
                        ? NRL_OK
                        : nrl_fail(NRL_ERR_IO, "cannot start %s: %s", argv[0], strerror(errno));
    pid_t child = st == NRL_OK ? fork() : -1;
    if (child == 0) {
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
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (st == NRL_OK && code) {
        char *text = read_back(errors);
        st = nrl_fail(NRL_ERR_IO, "%s failed with exit code %d: %s", argv[0], code,
                      text && *text ? text : "it printed no reason");
        free(text);
    }
    if (st == NRL_OK && out) {
        char *text = read_back(printed);
        const size_t n = text ? strlen(text) : 0;
        *out = arena_strndup(a, text ? text : "", n - (n && text[n - 1] == '\n'));
        free(text);
    }
    if (nothing >= 0) close(nothing);
    if (printed) fclose(printed);
    if (errors) fclose(errors);
    return st;
}
