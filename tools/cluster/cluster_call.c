/*
 * cluster_call.c - starts programs of a cluster (sbatch, squeue, kubectl) and reads what they print.
 */
#include "cli/common/child.h"
#include "cluster.h"
#include <string.h>

nrl_status cluster_command(arena *a, const char *const *argv, const char **out)
{
    child_end end;
    NRL_TRY(child_run(a, argv, NULL, &end));
    if (end.code)
        return nrl_fail(NRL_ERR_IO, "%s failed with exit code %d: %s", argv[0], end.code,
                        *end.err ? end.err : "it printed no message");
    const size_t n = strlen(end.out);
    if (out) *out = arena_strndup(a, end.out, n - (n && end.out[n - 1] == '\n'));
    return NRL_OK;
}
