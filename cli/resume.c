/*
 * resume.c - `nrl resume DIR[@STEP|@best] [key=value ...]`: continues the run in DIR from its newest checkpoint, or
 * from that one. For a run of a script, it prints the command instead, because the config does not contain what the
 * script does.
 */
#include "cli/verbs.h"
#include <errno.h>
#include <nrl/checkpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Opens the checkpoint `from`, or the newest one of the run `from`, or another one of `out` instead of a damaged one.
 */
static nrl_status open_undamaged(const char *out, const char *from, nrl_checkpoint **c)
{
    char **dirs;
    size_t n;
    nrl_status st = nrl_checkpoint_open(from, NULL, c);
    if (st != NRL_ERR_CORRUPT) return st;
    NRL_TRY(nrl_checkpoint_list(out, &dirs, &n));
    for (size_t i = 0; i < n && st == NRL_ERR_CORRUPT; i++)
        st = nrl_checkpoint_open(dirs[i], NULL, c);
    nrl_checkpoint_list_free(dirs, n);
    return st;
}

/* The path of the run's script, or NULL. */
static nrl_status script_of(arena *a, const char *out, const char *from, const char **script)
{
    nrl_checkpoint *c;
    struct stat s;
    *script = NULL;
    if (!stat(out, &s) && !S_ISDIR(s.st_mode))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: not a directory; expected the directory of a run\n"
                        "hint: `nrl run %s resume=auto` continues from the newest checkpoint in its `out`",
                        out, out);
    if (stat(out, &s)) return nrl_fail(NRL_ERR_CONFIG, "%s: %s; expected the directory of a run", out, strerror(errno));
    if (stat(arena_printf(a, "%s/checkpoints", out), &s))
        return nrl_fail(NRL_ERR_CONFIG, "'%s' is not a run: it contains no complete checkpoint", out);
    nrl_status st = open_undamaged(out, from, &c);
    if (st == NRL_ERR_CORRUPT) return NRL_OK; /* the resume reports it */
    NRL_TRY(st);
    const char *path = nrl_node_string(nrl_checkpoint_node(c, "script_path"), NULL);
    if (path) *script = arena_strdup(a, path);
    nrl_checkpoint_close(c);
    return NRL_OK;
}

/* Quotes a script's path as one shell word, because the printed command is meant to be typed. */
static const char *quoted(arena *a, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+,:@%-";
    size_t n = strlen(text), at = 0;
    if (n && *text != '-' && strspn(text, plain) == n) return text;
    char *to = arena_alloc(a, 4 * n + 3);
    to[at++] = '\'';
    for (const char *p = text; *p; p++) {
        if (*p != '\'')
            to[at++] = *p;
        else
            at += (size_t)sprintf(to + at, "'\\''");
    }
    to[at++] = '\'';
    to[at] = 0;
    return to;
}

static nrl_status resume(arena *a, int argc, char **argv, nrl_environment *env, const experiment_view *view)
{
    const char *script, *out = experiment_run_of(a, argv[1]), *from = out == argv[1] ? "auto" : argv[1];
    nrl_run *r = NULL;
    NRL_TRY(script_of(a, out, argv[1], &script));
    if (script) {
        printf("this run was started by a script; to continue it:\n  nrl run %s resume=%s out=%s\n", quoted(a, script),
               quoted(a, from), quoted(a, out));
        return NRL_OK;
    }
    char **words = arena_alloc(a, ((size_t)argc + 3) * sizeof *words);
    int n = 0;
    words[n++] = argv[0];
    words[n++] = arena_printf(a, "%s/config.yaml", out);
    words[n++] = arena_printf(a, "out=%s", out);
    words[n++] = arena_printf(a, "resume=%s", from);
    for (int i = 2; i < argc; i++)
        words[n++] = argv[i];
    env->signal = signals_catch();
    NRL_TRY(experiment_ranks(a, env));
    if (experiment_speaks(env)) signals_answer(env->step);
    nrl_status st = experiment_open(a, n, words, env, &r);
    if (st == NRL_OK && experiment_speaks(env)) experiment_show(r, view);
    if (st == NRL_OK) experiment_record_restart(r, env);
    if (st == NRL_OK) st = nrl_run_train(r);
    nrl_run_close(r);
    return st;
}

nrl_status cli_resume(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    experiment_view view = {0};
    experiment_environment(&a, &env);
    NRL_TRY(experiment_take_flags(&argc, argv, &env, &view));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    nrl_status st = resume(&a, argc, argv, &env, &view);
    arena_free(&a);
    return st;
}
