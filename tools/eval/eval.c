/*
 * eval.c - `nrl eval FILE.yaml|RUN [key=value ...]`: the loss over data.eval, of the weights that a
 * config starts from or of the weights that a run has trained.
 */
#include "base/json.h"
#include "cli/common/experiment.h"
#include <math.h>
#include <nrl/checkpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void print_values(nrl_run *r, const nrl_value *values, size_t n)
{
    printf("%-24s ", "weights");
    cli_print(nrl_run_weights(r));
    putchar('\n');
    for (size_t i = 0; i < n; i++)
        printf("%-24s %.6g%s%s\n", values[i].name, values[i].value, strcmp(values[i].unit, "1") ? " " : "",
               strcmp(values[i].unit, "1") ? values[i].unit : "");
}

static void print_json(arena *a, nrl_run *r, const nrl_value *values, size_t n)
{
    const char *weights = nrl_run_weights(r);
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "weights", node_string(a, weights, strlen(weights)));
    for (size_t i = 0; i < n; i++)
        node_append(a, map, values[i].name, node_f64(a, values[i].value));
    char *text = json_write(map, 0);
    puts(text);
    free(text);
}

static bool exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* The directory of a checkpoint, in `a`; `path` is one, or RUN@STEP or RUN@best, or a run. */
static nrl_status open_checkpoint(arena *a, const char *path, const char **dir)
{
    nrl_checkpoint *c;
    NRL_TRY(nrl_checkpoint_open(path, NULL, &c));
    nrl_checkpoint_info info = {.size = sizeof info};
    nrl_checkpoint_info_fill(c, &info);
    *dir = arena_strdup(a, info.dir);
    nrl_checkpoint_close(c);
    return NRL_OK;
}

/* The newest checkpoint of a run, or the model that the run exported. */
static nrl_status newest_weights(arena *a, const char *folder, const char **out)
{
    if (exists(arena_printf(a, "%s/checkpoints", folder))) {
        nrl_status st = open_checkpoint(a, folder, out);
        if (st != NRL_ERR_CONFIG) return st; /* the run has no checkpoint */
    }
    *out = arena_printf(a, "%s/model", folder);
    if (exists(arena_printf(a, "%s/config.json", *out))) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot evaluate '%s': expected a complete checkpoint or an exported model in "
                    "it, found none",
                    folder);
}

/* The config and the weights of a run's directory or of one of its checkpoints. */
static nrl_status find_run(arena *a, const char *path, const char **config, const char **out, const char **weights)
{
    bool one = !is_folder(path) || exists(arena_printf(a, "%s/manifest.json", path));
    if (one) NRL_TRY(open_checkpoint(a, path, weights));
    *out = one ? arena_printf(a, "%s/../..", *weights) : path;
    *config = arena_printf(a, "%s/config.yaml", *out);
    if (!exists(*config))
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot evaluate '%s': expected a YAML file or the directory of a run, found no "
                        "config.yaml in it\n"
                        "hint: nrl eval FILE.yaml model.path=%s evaluates a model on that file's data.eval",
                        path, path);
    return one ? NRL_OK : newest_weights(a, path, weights);
}

/* Adds a hint if the run was started by a script: what only the script defines, such as its loss,
 * is missing here. */
static nrl_status hint_at_script(arena *a, const char *weights, nrl_status st)
{
    nrl_checkpoint *c;
    char *why = arena_strdup(a, nrl_error_text());
    if (nrl_checkpoint_open(weights, NULL, &c) == NRL_OK) {
        const char *script = nrl_node_string(nrl_checkpoint_node(c, "script_path"), NULL);
        if (script)
            why = arena_printf(
                a, "%s\nhint: this run was started by %s; run:evaluate() in that script uses what the script defines",
                why, script);
        nrl_checkpoint_close(c);
    }
    return nrl_fail(st, "%s", why);
}

static nrl_status open_run(arena *a, int argc, char **argv, nrl_environment *env, nrl_run **r)
{
    const char *config, *out;
    NRL_TRY(find_run(a, argv[1], &config, &out, &env->weights));
    char **words = arena_alloc(a, ((size_t)argc + 2) * sizeof *words);
    int n = 0;
    words[n++] = argv[0];
    words[n++] = arena_strdup(a, config);
    words[n++] = arena_printf(a, "out=%s", out);
    for (int i = 2; i < argc; i++)
        words[n++] = argv[i];
    nrl_status st = experiment_open(a, n, words, env, r);
    return st == NRL_ERR_CONFIG ? hint_at_script(a, env->weights, st) : st;
}

/* The config of a run names the weights that the run started from. */
static void warn_of_start(arena *a, const char *file)
{
    const char *slash = strrchr(file, '/');
    if (strcmp(slash ? slash + 1 : file, "config.yaml") != 0) return;
    const char *folder = slash ? arena_printf(a, "%.*s", (int)(slash - file), file) : ".";
    if (exists(arena_printf(a, "%s/checkpoints", folder)))
        nrl_warn("%s names the weights that the run started from; `nrl eval %s` evaluates what it "
                 "learned",
                 file, folder);
}

static nrl_status eval_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    nrl_run *r = NULL;
    const nrl_value *values;
    size_t n;
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    experiment_environment(&a, &env);
    nrl_status st = experiment_ranks(&a, &env);
    env.quiet = env.no_output = env.evaluate_only = true;
    bool is_run = is_folder(argv[1]) || (!exists(argv[1]) && strchr(argv[1], '@'));
    if (st == NRL_OK && !is_run && experiment_speaks(&env)) warn_of_start(&a, argv[1]);
    if (st == NRL_OK) st = is_run ? open_run(&a, argc, argv, &env, &r) : experiment_open(&a, argc, argv, &env, &r);
    if (st == NRL_OK) st = nrl_run_evaluate(r, NULL, &values, &n);
    if (st == NRL_OK && experiment_speaks(&env) && json)
        print_json(&a, r, values, n);
    else if (st == NRL_OK && experiment_speaks(&env))
        print_values(r, values, n);
    nrl_run_close(r);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "eval", eval_verb);
}
