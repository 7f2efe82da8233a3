/*
 * resume.c - `nrl resume DIR [key=value ...]`: continues the run in DIR from its newest checkpoint. For a
 * scripted run it prints the command instead: what a script does is not in its config.
 */
#include "cli/experiment.h"
#include "checkpoint/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The path of the script that made the run, or NULL. */
static nrl_status script_of(arena *a, const char *out, const char **script)
{
    char *dir;
    checkpoint *c;
    struct stat s;
    *script = NULL;
    if (!stat(out, &s) && !S_ISDIR(s.st_mode))
        return nrl_fail(NRL_ERR_CONFIG, "%s: is no folder, expected that of a run\n"
                        "hint: nrl run %s resume=auto goes on from the newest checkpoint in its `out`", out, out);
    NRL_TRY(checkpoint_find_newest(out, &dir));
    if (!dir) return nrl_fail(NRL_ERR_CONFIG, "'%s' holds no complete checkpoint", out);
    nrl_status st = checkpoint_open(dir, &c);
    free(dir);
    NRL_TRY(st);
    const char *path = nrl_node_string(checkpoint_node(c, "script_path"), NULL);
    if (path) *script = arena_strdup(a, path);
    checkpoint_close(c);
    return NRL_OK;
}

static nrl_status resume(arena *a, int argc, char **argv)
{
    const char *script;
    run_environment env;
    run *r = NULL;
    NRL_TRY(script_of(a, argv[1], &script));
    if (script) {
        printf("this run was driven by a script; to continue it:\n  nrl run %s resume=auto out=%s\n", script,
               argv[1]);
        return NRL_OK;
    }
    char **words = arena_alloc(a, ((size_t)argc + 3) * sizeof *words);
    int n = 0;
    words[n++] = argv[0];
    words[n++] = arena_printf(a, "%s/config.yaml", argv[1]);
    words[n++] = arena_printf(a, "out=%s", argv[1]);
    words[n++] = arena_strdup(a, "resume=auto");
    for (int i = 2; i < argc; i++) words[n++] = argv[i];
    experiment_environment(a, &env);
    NRL_TRY(experiment_ranks(a, &env));
    nrl_status st = experiment_open(a, n, words, &env, &r);
    if (st == NRL_OK) st = run_train(r);
    run_close(r);
    return st;
}

nrl_status cli_resume(int argc, char **argv)
{
    arena a = {0};
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    nrl_status st = resume(&a, argc, argv);
    arena_free(&a);
    return st;
}
