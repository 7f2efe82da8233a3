/*
 * launch_again.c - `nrl launch --max-restarts K`: after a rank is lost, all ranks start again and continue from the
 * newest checkpoint. What another start cannot mend (a mistake in the config, divergence, bad data, a damaged
 * checkpoint, lack of memory or disk) is not repeated.
 */
#include "cli/common/experiment.h"
#include "cli/common/job_secret.h"
#include "cli/launch_join.h"
#include <nrl/checkpoint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OLD_STORE_TURNS = 600 }; /* 0.1 s each: for the store of the failed start to end on another node */

bool launch_may_restart(const launch *l, nrl_status st, int code)
{
    /* exit codes: config, diverged, corrupt, memory, disk full, data, stopped by a signal */
    static const int lasting[] = {2, 3, 5, 6, 7, 65, 75};
    if (st != NRL_OK || !code || l->was_signalled || l->restarts >= l->max_restarts) return false;
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        if (code == lasting[i]) return false;
    return true;
}

/* Ranks that reach the store of the failed start would be refused, so this waits until it has ended. */
static void await_old_store(const launch *l)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    if (l->holds_store) return;
    for (int turn = 0; turn < OLD_STORE_TURNS; turn++) {
        nrl_store *store = NULL;
        const store_setup s = {.address = l->store, .job = l->run_id, .timeout_s = 1, .secret = l->secret};
        if (store_open(&l->store_kind, &s, &store) != NRL_OK) return;
        store_close(store);
        nanosleep(&pause, NULL);
    }
}

void launch_add_word(launch *l, const char *word)
{
    size_t n = 0;
    while (l->command[n])
        n++;
    if (!strcmp(l->command[n - 1], word)) return;
    char **words = arena_alloc(l->a, (n + 2) * sizeof *words);
    memcpy(words, l->command, n * sizeof *words);
    words[n] = arena_strdup(l->a, word);
    l->command = words;
}

nrl_status launch_again(launch *l)
{
    l->restarts++;
    fprintf(stderr, "restart %d of at most %d: all ranks continue from the newest checkpoint\n", l->restarts,
            l->max_restarts);
    if (l->meeting) return launch_join(l);
    await_old_store(l);
    return launch_number(l, l->restarts);
}

const char *launch_newest(const launch *l)
{
    char **dirs;
    size_t n;
    struct stat s;
    const char *word = *launch_argument(l), *run = word ? experiment_run_of(l->a, word) : NULL, *newest = "";
    if (strcmp(l->command[1], "resume") || run == word || nrl_checkpoint_list(run, &dirs, &n) != NRL_OK) return "";
    if (n && !stat(dirs[0], &s)) newest = arena_printf(l->a, "%s %llu", dirs[0], (unsigned long long)s.st_ino);
    nrl_checkpoint_list_free(dirs, n);
    return newest;
}

/* `resume RUN@STEP` moves later checkpoints aside when it continues. Until then they are still there, and a restart has
 * to begin with that step again; afterwards it continues from the newest checkpoint. A launcher that came later than
 * the first start knows only the latter. */
static void forget_step(launch *l)
{
    char **word = launch_argument(l);
    if (!*word || (l->restarts && !strcmp(launch_newest(l), l->newest))) return;
    *word = arena_strdup(l->a, experiment_run_of(l->a, *word));
}

nrl_status launch_number(launch *l, int32_t number)
{
    job_secret secret = {0};
    if (!number) return NRL_OK;
    NRL_ASSERT((l->command[1] != NULL), ==, true); /* a verb */
    if (!strcmp(l->command[1], "run")) launch_add_word(l, "resume=auto");
    if (!strcmp(l->command[1], "resume")) forget_step(l);
    l->run_id = arena_printf(l->a, "%s.%d", l->first_run_id, number);
    if (l->secret_fd >= 0) {
        ssize_t n = pread(l->secret_fd, secret.bytes, sizeof secret.bytes, 0);
        if (n <= 0) return nrl_fail(NRL_ERR_IO, "cannot read the job's secret again");
        secret.size = (size_t)n;
        l->secret = job_secret_key(l->a, &secret, l->run_id);
    }
    return NRL_OK;
}
