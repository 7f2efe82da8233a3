/*
 * eval.c - `nrl eval FILE.yaml|RUN [key=value ...]`: the loss over data.eval, of the weights that a
 * config starts from or of the weights that a run has trained. `nrl eval SRC --task FILE`: the scores of a model in
 * multiple-choice and exact-match tasks. `nrl eval SRC --text FILE`: how well it predicts a text.
 */
#include "base/json.h"
#include "cli/common/experiment.h"
#include "cli/common/sample_flags.h"
#include "measured.h"
#include "task.h"
#include "text_score.h"
#include <errno.h>
#include <math.h>
#include <nrl/checkpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A NaN that a division makes has a sign on x86, which printf shows. */
static double without_sign(double v)
{
    return isnan(v) ? (double)NAN : v;
}

static void print_values(nrl_run *r, const nrl_value *values, size_t n)
{
    printf("%-24s ", "weights");
    cli_print(nrl_run_weights(r));
    putchar('\n');
    for (size_t i = 0; i < n; i++)
        printf("%-24s %.6g%s%s\n", values[i].name, without_sign(values[i].value),
               strcmp(values[i].unit, "1") ? " " : "", strcmp(values[i].unit, "1") ? values[i].unit : "");
}

static void print_json(arena *a, nrl_run *r, const nrl_value *values, size_t n)
{
    const char *weights = nrl_run_weights(r);
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "weights", node_text(a, weights));
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
                    "cannot evaluate '%s': it contains neither a complete checkpoint nor an exported model", folder);
}

/* The config and the weights of a run's directory or of one of its checkpoints, which may be in
 * checkpoints/after-STEP.1. */
static nrl_status find_run(arena *a, const char *path, const char **config, const char **out, const char **weights)
{
    bool one = !is_folder(path) || exists(arena_printf(a, "%s/manifest.json", path));
    if (one) NRL_TRY(open_checkpoint(a, path, weights));
    *out = one ? arena_printf(a, "%s/../..", *weights) : path;
    *config = arena_printf(a, "%s/config.yaml", *out);
    if (one && !exists(*config)) {
        *out = arena_printf(a, "%s/../../..", *weights);
        *config = arena_printf(a, "%s/config.yaml", *out);
    }
    if (!exists(*config))
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot evaluate '%s': expected a YAML file or the directory of a run with config.yaml\n"
                        "hint: nrl eval FILE.yaml 'model={path: %s}' evaluates a model on data.eval of FILE.yaml",
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
                a, "%s\nhint: this run was started by %s; run:evaluate() in that script uses its definitions", why,
                script);
        nrl_checkpoint_close(c);
    }
    return nrl_fail(st, "%s", why);
}

/* Opens a config with the values of measured.h, where its algorithm has them. */
static nrl_status open_config(arena *a, int argc, char **argv, nrl_environment *env, measured **m, nrl_run **r)
{
    nrl_config *config = nrl_config_create(a);
    nrl_status st = nrl_config_read(config, argv[1]);
    for (int i = 2; st == NRL_OK && i < argc; i++)
        nrl_config_override(config, argv[i]);
    if (st == NRL_OK) st = measured_open(env, nrl_node_find(nrl_config_root(config), "algorithm"), m);
    nrl_config_destroy(config);
    if (st == NRL_OK && *m) {
        char **words = arena_alloc(a, ((size_t)argc + 1) * sizeof *words);
        memcpy(words, argv, (size_t)argc * sizeof *words);
        words[argc] = arena_strdup(a, "algorithm=" MEASURED_NAME);
        env->find_algorithm = measured_find;
        env->algorithm_user = *m;
        st = experiment_open(a, argc + 1, words, env, r);
        if (st == NRL_OK) measured_set_tokenizer(*m, nrl_run_tokenizer(*r));
        if (st == NRL_OK) return NRL_OK;
        env->find_algorithm = NULL; /* the errors of the config as it is written */
    }
    return experiment_open(a, argc, argv, env, r);
}

static nrl_status open_run(arena *a, int argc, char **argv, nrl_environment *env, measured **m, nrl_run **r)
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
    nrl_status st = open_config(a, n, words, env, m, r);
    return st == NRL_ERR_CONFIG ? hint_at_script(a, env->weights, st) : st;
}

/* The config of a run names the weights that the run started from. */
static void warn_of_start(arena *a, const char *file)
{
    const char *slash = strrchr(file, '/');
    if (strcmp(slash ? slash + 1 : file, "config.yaml") != 0) return;
    const char *folder = slash ? arena_printf(a, "%.*s", (int)(slash - file), file) : ".";
    if (exists(arena_printf(a, "%s/checkpoints", folder)))
        nrl_warn("%s evaluates the initial weights of the run; `nrl eval %s` evaluates the trained ones", file, folder);
}

/* ---- tasks ---- */

enum { MAX_TASKS = 32, TASK_ANSWER_TOKENS = 256 };

typedef struct {
    const char *words[MAX_TASKS], *examples, *rows;
    size_t n;
    int64_t shots, limit, max_tokens;
    bool json;
    nrl_inference_options model;
} task_flags;

static nrl_status take_number(int *argc, char **argv, const char *flag, int64_t least, int64_t *out)
{
    const char *word;
    char *end;
    NRL_TRY(cli_take_value(argc, argv, flag, &word));
    if (!word) return NRL_OK;
    *out = strtol(word, &end, 10);
    if (end == word || *end || *out < least || *out > 1000000)
        return nrl_fail(NRL_ERR_CONFIG, "%s: '%s': expected a number from %lld to 1000000", flag, word,
                        (long long)least);
    return NRL_OK;
}

static nrl_status take_task_flags(int *argc, char **argv, task_flags *f)
{
    int64_t shots = -1; /* not given */
    *f = (task_flags){.max_tokens = TASK_ANSWER_TOKENS};
    NRL_TRY(cli_take_values(argc, argv, "--task", f->words, MAX_TASKS, &f->n));
    int before = *argc;
    NRL_TRY(take_number(argc, argv, "--shots", 0, &shots));
    NRL_TRY(take_number(argc, argv, "--limit", 1, &f->limit));
    NRL_TRY(take_number(argc, argv, "--max-tokens", 1, &f->max_tokens));
    NRL_TRY(cli_take_value(argc, argv, "--examples", &f->examples));
    NRL_TRY(cli_take_value(argc, argv, "--rows", &f->rows));
    if (*argc != before && !f->n)
        return nrl_fail(NRL_ERR_CONFIG, "--shots, --examples, --limit, --max-tokens and --rows require --task FILE");
    if (shots > 0 && !f->examples) return nrl_fail(NRL_ERR_CONFIG, "--shots requires --examples FILE");
    if (shots < 0 && f->examples) return nrl_fail(NRL_ERR_CONFIG, "--examples requires --shots N");
    f->shots = shots > 0 ? shots : 0;
    return NRL_OK;
}

static void print_task(const task *t, const task_scores *s)
{
    cli_page("%-24s %lld questions of %s\n", t->name, (long long)t->n, t->file);
    if (s->n_truncated)
        printf("%-24s %lld questions: the model has fewer positions\n", "truncated at the start",
               (long long)s->n_truncated);
    for (size_t i = 0; i < s->n_metrics; i++)
        printf("%-24s %.4f +- %.4f\n", s->metrics[i].name, s->metrics[i].value, s->metrics[i].stderr_);
}

static nrl_node *task_node(arena *a, const task *t, int64_t shots, const task_scores *s)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append_text(a, map, "task", t->name);
    node_append_text(a, map, "file", t->file);
    node_append_int(a, map, "questions", t->n);
    node_append_int(a, map, "shots", shots);
    node_append_int(a, map, "truncated", s->n_truncated);
    for (size_t i = 0; i < s->n_metrics; i++) {
        node_append(a, map, s->metrics[i].name, node_f64(a, s->metrics[i].value));
        node_append(a, map, arena_printf(a, "%s_stderr", s->metrics[i].name), node_f64(a, s->metrics[i].stderr_));
    }
    return map;
}

/* Reads all files before the model is opened, so that a mistake in one is found at once. */
static nrl_status read_tasks(arena *a, const task_flags *f, task *tasks, task *examples)
{
    for (size_t i = 0; i < f->n; i++)
        NRL_TRY(task_read(a, f->words[i], f->limit, &tasks[i]));
    if (!f->examples) return NRL_OK;
    NRL_TRY(task_read(a, f->examples, f->shots, examples));
    if (examples->n < f->shots)
        return nrl_fail(NRL_ERR_DATA, "%s: %lld examples; --shots requires %lld", examples->file,
                        (long long)examples->n, (long long)f->shots);
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(tasks[i].name, examples->name) != 0)
            return nrl_fail(NRL_ERR_CONFIG, "--examples: rows of %s; expected %s as in %s", examples->name,
                            tasks[i].name, tasks[i].file);
    return NRL_OK;
}

/* The weights and where they compute: in a map, and unless it is printed as JSON as lines. */
static void add_model(arena *a, nrl_node *map, const char *source, const nrl_inference *m, bool json)
{
    nrl_inference_info info = {.size = sizeof info};
    nrl_inference_info_fill(m, &info);
    const char *precision = nrl_dtype_name((nrl_dtype)info.precision);
    node_append_text(a, map, "weights", source);
    node_append_text(a, map, "backend", info.backend);
    node_append_text(a, map, "precision", precision);
    if (!json)
        cli_page("%-24s %s\n%-24s %s\n%-24s %s\n", "weights", source, "backend", info.backend, "precision", precision);
}

static nrl_status score_tasks(arena *a, const char *source, const nrl_environment *env, const task_flags *f)
{
    task *tasks = arena_alloc(a, f->n * sizeof *tasks), examples = {0};
    nrl_node *all = node_new(a, NRL_NODE_MAP), *list = node_new(a, NRL_NODE_LIST);
    nrl_inference *m;
    FILE *rows = NULL;
    NRL_TRY(read_tasks(a, f, tasks, &examples));
    if (f->rows && !(rows = fopen(f->rows, "wxe")))
        return nrl_fail(NRL_ERR_CONFIG, "--rows: cannot create %s: %s", f->rows, strerror(errno));
    nrl_status st = nrl_inference_open_with(source, env, &f->model, &m);
    if (st == NRL_OK) add_model(a, all, source, m, f->json);
    node_append(a, all, "tasks", list);
    for (size_t i = 0; i < f->n && st == NRL_OK; i++) {
        task_scores s;
        st = task_score(a, m, &tasks[i], &examples, f->shots, f->max_tokens, rows, &s);
        if (st == NRL_OK && !f->json) print_task(&tasks[i], &s);
        if (st == NRL_OK) node_append(a, list, NULL, task_node(a, &tasks[i], f->shots, &s));
    }
    char *text = st == NRL_OK && f->json ? json_write(all, 0) : NULL;
    if (text) puts(text);
    free(text);
    if (rows && st != NRL_OK && !ftell(rows)) unlink(f->rows); /* an empty file is not in the way of another attempt */
    if (rows && fclose(rows) && st == NRL_OK) st = nrl_fail(NRL_ERR_IO, "%s: %s", f->rows, strerror(errno));
    if (m) nrl_inference_close(m);
    return st;
}

/* ---- a text ---- */

static nrl_status score_text(arena *a, const char *source, const nrl_environment *env, const char *file, int64_t window,
                             const nrl_inference_options *options, bool json)
{
    nrl_inference *m;
    text_scores s;
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    NRL_TRY(nrl_inference_open_with(source, env, options, &m));
    nrl_status st = text_score(a, m, file, window, &s);
    if (st == NRL_OK) add_model(a, map, source, m, json);
    nrl_inference_close(m);
    NRL_TRY(st);
    double n = (double)s.tokens;
    const struct {
        const char *name, *unit;
        double value;
    } values[] = {{"documents", "", (double)s.documents},
                  {"tokens", "", n},
                  {"bytes", "", (double)s.bytes},
                  {"window", " tokens", (double)s.window},
                  {"loss", " nats", s.nll / n},
                  {"perplexity", "", exp(s.nll / n)},
                  {"bits_per_byte", "", s.nll / log(2) / (double)s.bytes},
                  {"token_accuracy", "", (double)s.correct / n},
                  {"entropy", " nats", s.entropy / n}};
    node_append_text(a, map, "text", file);
    if (!json) cli_page("%-24s %s\n", "text", file);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        node_append(a, map, values[i].name, node_f64(a, values[i].value));
        if (!json) printf("%-24s %.9g%s\n", values[i].name, without_sign(values[i].value), values[i].unit);
    }
    char *text = json ? json_write(map, 0) : NULL;
    if (text) puts(text);
    free(text);
    return NRL_OK;
}

/* ---- the verb ---- */

static nrl_status eval_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    nrl_run *r = NULL;
    measured *m = NULL;
    const nrl_value *values;
    size_t n;
    task_flags tasks;
    const char *text;
    int64_t window = 0;
    NRL_TRY(cli_take_value(&argc, argv, "--text", &text));
    if (text) NRL_TRY(take_number(&argc, argv, "--window", 1, &window));
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(take_task_flags(&argc, argv, &tasks));
    tasks.json = json;
    if (tasks.n || text) NRL_TRY(sample_take_model(&argc, argv, &tasks.model));
    NRL_TRY(cli_expect(argc, argv, 1, tasks.n || text ? 1 : -1));
    experiment_environment(&a, &env);
    if (tasks.n && text) return nrl_fail(NRL_ERR_CONFIG, "give one of --task and --text");
    if (tasks.n || text) {
        nrl_status scored = tasks.n ? score_tasks(&a, argv[1], &env, &tasks)
                                    : score_text(&a, argv[1], &env, text, window, &tasks.model, json);
        arena_free(&a);
        return scored;
    }
    nrl_status st = experiment_ranks(&a, &env);
    env.quiet = env.no_output = env.evaluate_only = true;
    bool is_run = is_folder(argv[1]) || (!exists(argv[1]) && strchr(argv[1], '@'));
    if (st == NRL_OK && !is_run && experiment_speaks(&env)) warn_of_start(&a, argv[1]);
    if (st == NRL_OK) st = (is_run ? open_run : open_config)(&a, argc, argv, &env, &m, &r);
    if (st == NRL_OK) st = nrl_run_evaluate(r, NULL, &values, &n);
    if (st == NRL_OK && m) values = measured_values(&a, values, &n);
    if (st == NRL_OK && experiment_speaks(&env) && json)
        print_json(&a, r, values, n);
    else if (st == NRL_OK && experiment_speaks(&env))
        print_values(r, values, n);
    nrl_run_close(r);
    measured_close(m);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "eval", eval_verb);
}
