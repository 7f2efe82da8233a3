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
nrl_status cluster_call(const char *const *argv, const char *input, cluster_output *output)
{
    FILE *in = tmpfile(), *out = tmpfile(), *err = tmpfile();
    int status = 0, failed[2] = {-1, -1}, reason = 0;
    *output = (cluster_output){0};
    nrl_status st = in && out && err && !pipe2(failed, O_CLOEXEC)
                        ? NRL_OK
                        : nrl_fail(NRL_ERR_IO, "cannot start %s: %s", argv[0], strerror(errno));
    if (st == NRL_OK && input) {
        fputs(input, in);
        rewind(in);
    }
    pid_t child = st == NRL_OK ? fork() : -1;
    if (child == 0) {
        dup2(fileno(in), STDIN_FILENO);
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
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
    output->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (st == NRL_OK) {
        output->out = read_back(out);
        output->err = read_back(err);
    }
    if (in) fclose(in);
    if (out) fclose(out);
    if (err) fclose(err);
    return st;
}

void cluster_output_free(cluster_output *output)
{
    free(output->out);
    free(output->err);
    *output = (cluster_output){0};
}
