/*
 * init.c - `nrl init [FILE.yaml]`: writes a commented config for a model and a data file, after it has looked at both:
 * the shape of the rows decides the algorithm, their lengths the size of samples, and the estimated memory whether
 * activations are recomputed. Asks for everything that flags do not answer. Trains nothing; checks the config before it
 * is written.
 */
#include "base/disk.h"
#include "base/file.h"
#include "base/hub.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/common/experiment.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <nrl/host.h>
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CONFIG = 4 << 20, ROUND_LENGTH = 64, LONG_SAMPLES = 4096 };

typedef struct {
    arena *a;
    nrl_environment env;
    /* answers */
    const char *file, *model, *data, *eval, *train, *out; /* train: all or lora */
    const char *columns;                                  /* data.columns, as YAML on one line; NULL = none */
    bool is_lora;
    bool has_usual_eval; /* neither a flag nor an answer chose evaluation data */
    /* what was found */
    const char *algorithm, *template, *precision;
    bool has_template; /* of its tokenizer */
    int64_t memory;    /* bytes to plan with; INT64_MAX = unknown */
    int64_t positions; /* of the model; 0 = unknown */
    nrl_node *plan;    /* of the last look */
    /* what was decided */
    int64_t max_length, micro_batch_tokens, global_batch, epochs, steps;
    int64_t too_long; /* samples that have more tokens than the model has positions */
    bool drops, recomputes;
    double lr;
    char *problem; /* error of the last look that failed; NULL = none */
} init;

/* ---- questions ---- */

/* *answer stays as it is if a flag gave it; else it becomes the answer, or the default in brackets. */
static nrl_status ask(init *w, const char **answer, const char *question, const char *otherwise)
{
    char *line = NULL;
    size_t room = 0;
    if (*answer) return NRL_OK;
    printf("%s%s%s%s ", question, otherwise ? " [" : "", otherwise ? otherwise : "", otherwise ? "]" : "");
    fflush(stdout);
    ssize_t n = getline(&line, &room, stdin);
    if (n > 0) line[strcspn(line, "\r\n")] = 0;
    if (n > 0 && *line)
        *answer = arena_strdup(w->a, line);
    else if (n > 0)
        *answer = otherwise;
    free(line);
    if (*answer) return NRL_OK;
    putchar('\n'); /* the error begins a line */
    fflush(stdout);
    return nrl_fail(NRL_ERR_CONFIG, "no answer to '%s'\nhint: `nrl init --help` lists flags that replace the questions",
                    question);
}

static nrl_status ask_all(init *w)
{
    bool is_scripted = w->model && w->data; /* a script: the other questions have defaults */
    const char *eval = "5%", *train = "all", *out = NULL;
    NRL_TRY(ask(w, &w->model, "Model directory, or org/name in the local cache of the hub?", NULL));
    NRL_TRY(ask(w, &w->data, "Training data, a file or a directory?", NULL));
    const char *stem = strrchr(w->file, '/') ? strrchr(w->file, '/') + 1 : w->file;
    out = arena_printf(w->a, "runs/%.*s", (int)strcspn(stem, "."), stem);
    if (is_scripted) {
        w->has_usual_eval = !w->eval;
        if (!w->eval) w->eval = eval;
        if (!w->train) w->train = train;
        if (!w->out) w->out = out;
    }
    NRL_TRY(ask(w, &w->eval, "Evaluation data: a file, a share of the training data, or none?", eval));
    NRL_TRY(ask(w, &w->train, "Train all weights, or lora adapters?", train));
    NRL_TRY(ask(w, &w->out, "Directory of the run?", out));
    w->is_lora = !strcmp(w->train, "lora");
    if (!w->is_lora && strcmp(w->train, "all"))
        return nrl_fail(NRL_ERR_CONFIG, "--train: '%s' is not one of: all, lora", w->train);
    return NRL_OK;
}

/* ---- a look: what `nrl check` would find ---- */

/* A path that means the same in the config, which has its own directory, and here. */
static const char *path_of(const init *w, const char *given)
{
    char *full = access(given, F_OK) || (!strchr(w->file, '/') && *given != '/') ? NULL : realpath(given, NULL);
    const char *path = full ? arena_strdup(w->a, full) : given;
    free(full);
    return path;
}

static const char *quoted(const init *w, const char *text)
{
    char *json = json_quote(text, strlen(text)); /* also YAML */
    const char *kept = arena_strdup(w->a, json);
    free(json);
    return kept;
}

/* "0.05" of "5%" or "0.05"; NULL: another answer. */
static const char *share_of(const init *w, const char *text)
{
    char *end;
    double x = strtod(text, &end);
    bool percent = *end == '%' && !end[1];
    if (end == text || (*end && !percent)) return NULL;
    return arena_printf(w->a, "%g", percent ? x / 100 : x);
}

/* The value of data.eval; NULL = none. */
static const char *eval_value(const init *w)
{
    if (!strcmp(w->eval, "none")) return NULL;
    const char *share = share_of(w, w->eval);
    return share ? share : quoted(w, path_of(w, w->eval));
}

static nrl_status keep_plan(void *user, nrl_run *r, const nrl_run_event *e)
{
    init *w = user;
    (void)r;
    if (e->kind != NRL_EVENT_PLAN) return NRL_OK;
    char *text = nrl_json_write(e->plan, 0);
    nrl_status st = json_parse(w->a, "plan", arena_strdup(w->a, text), strlen(text), &w->plan);
    nrl_free(text);
    return st;
}

/* It is copied into lines of YAML. */
static nrl_status check_columns(const char *text)
{
    size_t n = strlen(text);
    if (n > 2 && *text == '{' && text[n - 1] == '}' && !strpbrk(text, "\r\n")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "--columns: expected a map such as {prompt: question, completion: answer}, found '%s'", text);
}

/* Opens the run without a device; w->plan or w->problem. */
static nrl_status look(init *w, const char *text, const char *source)
{
    arena memory = {0};
    nrl_run *r = NULL;
    nrl_config *config = nrl_config_create(&memory);
    nrl_environment env = w->env;
    env.check_only = true;
    env.takes_warnings = true;
    env.event = keep_plan;
    env.event_user = w;
    nrl_status st = nrl_config_parse(config, source, text, strlen(text));
    if (st == NRL_OK) st = nrl_run_open(config, &env, &r);
    w->problem = st == NRL_OK ? NULL : arena_strdup(w->a, nrl_error_text());
    const nrl_open_tokenizer *tok = st == NRL_OK ? nrl_run_tokenizer(r) : NULL;
    w->has_template = tok && tok->info->chat_template;
    nrl_run_close(r);
    nrl_config_destroy(config);
    arena_free(&memory);
    return st;
}

/* A config for measuring: every row counts with the length that it has. */
static nrl_status measure(init *w, const char *algorithm, const char *template)
{
    int64_t most = w->positions ? w->positions : 1 << 20;
    char *text = arena_printf(
        w->a,
        "model: {path: %s}\ndata: {train: %s, max_length: %lld, overlong: truncate, template: %s%s%s}\n"
        "algorithm: %s\ntrain: {steps: 1, micro_batch_tokens: %lld}\noptimizer: {name: adamw, lr: 1e-5}\nout: %s\n",
        quoted(w, w->model), quoted(w, w->data), (long long)most, template, w->columns ? ", columns: " : "",
        w->columns ? w->columns : "", algorithm, (long long)most, quoted(w, w->out));
    return look(w, text, "init");
}

/* The file may be in a run, or in the local cache of the hub. */
static const char *model_config(const init *w)
{
    const char *own = arena_printf(w->a, "%s/config.json", w->model), *at = strchr(w->model, '@');
    const char *of_run = arena_printf(w->a, "%s/model/config.json", w->model);
    const char *name = at ? arena_printf(w->a, "%.*s", (int)(at - w->model), w->model) : w->model;
    if (!access(own, F_OK)) return own;
    if (!access(of_run, F_OK)) return of_run;
    if (!hub_is_name(name, strlen(name))) return own;
    const char *cache = hub_cache(w->a, cli_getenv);
    const char *repository = cache ? hub_repository(w->a, cache, "models", name, strlen(name)) : NULL;
    const char *snapshot = repository ? hub_snapshot(w->a, repository, at ? at + 1 : "main") : NULL;
    return snapshot ? arena_printf(w->a, "%s/config.json", snapshot) : own;
}

/* max_position_embeddings of config.json, where there is one. */
static void read_model(init *w)
{
    nrl_node *config;
    w->precision = "fp32";
    if (json_read_file(w->a, model_config(w), MAX_CONFIG, &config) != NRL_OK) return;
    w->positions = nrl_node_int(nrl_node_find(config, "max_position_embeddings"), 0);
    if (!w->positions) w->positions = nrl_node_int(nrl_node_find(config, "n_positions"), 0);
    const char *type = nrl_node_string(nrl_node_find(config, "torch_dtype"), "");
    if (!*type) type = nrl_node_string(nrl_node_find(config, "dtype"), "");
    if (!strcmp(type, "bfloat16") || !strcmp(type, "float16")) w->precision = "bf16";
}

/* Whether the rows have the shape of another algorithm: a pair or a label is there, or is missing. */
static bool is_of_another(const char *problem)
{
    return strstr(problem, "but the algorithm ") != NULL;
}

/* The algorithm is the first one that accepts the rows; if none does, the error is that of the first one to which their
 * shape belongs. Where the tokenizer has no chat template, the format of
 * messages is the first one whose special tokens are in its vocabulary; plain needs none. A template that the tokenizer
 * has is never replaced, so its error is that of the file. */
static nrl_status find_algorithm(init *w)
{
    static const char *const algorithms[] = {"sft", "dpo", "kto"}, *const templates[] = {"auto", "chatml", "llama3",
                                                                                         "plain"};
    enum { N_ALGORITHMS = sizeof algorithms / sizeof *algorithms, N_TEMPLATES = sizeof templates / sizeof *templates };
    char *error = NULL, *of_template = NULL; /* of_template: of sft */
    nrl_status st = NRL_ERR_CONFIG;
    for (size_t t = 0; t < N_TEMPLATES; t++)
        for (size_t i = 0; i < N_ALGORITHMS; i++) {
            nrl_status now = measure(w, algorithms[i], templates[t]);
            if (now == NRL_OK && t && w->has_template) return nrl_fail(NRL_ERR_CONFIG, "%s", of_template);
            if (now == NRL_OK) {
                w->algorithm = algorithms[i];
                w->template = templates[t];
                return NRL_OK;
            }
            if (!t && !i) of_template = w->problem;
            if (i && !is_of_another(error)) continue;
            error = w->problem;
            st = now;
        }
    return nrl_fail(st, "%s", error);
}

/* Why the template was chosen. */
static const char *template_reason(const init *w)
{
    if (!strcmp(w->template, "auto")) return "the chat template of the tokenizer, for rows of messages";
    if (!strcmp(w->template, "plain"))
        return "turns begin with User: and Assistant:, because the tokenizer has neither a chat template nor tokens "
               "for one";
    return "the tokenizer has no chat template, but it has the special tokens of this one";
}

/* ---- decisions ---- */

static int64_t plan_int(const init *w, const char *section, const char *key)
{
    return nrl_node_int(nrl_node_find(nrl_node_find(w->plan, section), key), 0);
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Samples longer than 2^k for the smallest k that covers 99 % are rare enough to be dropped. */
static void decide_length(init *w)
{
    const nrl_node *lengths = nrl_node_find(nrl_node_find(w->plan, "train_data"), "lengths");
    int64_t longest = plan_int(w, "train_data", "max_length"), n = plan_int(w, "train_data", "samples"), sum = 0;
    w->max_length = round_up(longest, ROUND_LENGTH);
    if (longest > LONG_SAMPLES)
        for (size_t k = 0; k < nrl_node_size(lengths); k++) {
            sum += nrl_node_int(nrl_node_at(lengths, k), 0);
            if (sum * 100 < n * 99) continue;
            int64_t covered = (int64_t)2 << k;
            w->drops = covered < longest;
            if (w->drops) w->max_length = covered;
            break;
        }
    if (w->positions && w->max_length > w->positions) w->max_length = w->positions;
    w->too_long = plan_int(w, "train_data", "truncated"); /* the look had the model's length */
    if (w->too_long) w->drops = true;
    w->micro_batch_tokens = w->max_length > 4096 ? w->max_length : 4096;
}

/* Common starting points: a lower rate for larger models, ten times as much for adapters, less for preferences. kto
 * couples groups of 8 samples. */
static void decide_training(init *w)
{
    int64_t n = plan_int(w, "train_data", "samples") - w->too_long, parameters = plan_int(w, "model", "parameters");
    bool is_sft = !strcmp(w->algorithm, "sft");
    w->lr = parameters < 100000000 ? 1e-4 : parameters < 1000000000 ? 2e-5 : 1e-5;
    if (!is_sft) w->lr /= 20;
    if (w->is_lora) w->lr *= 10;
    w->epochs = is_sft && n < 50000 ? 3 : 1;
    w->global_batch = n < 160 && strcmp(w->algorithm, "kto") ? 4 : n < 800 ? 8 : n < 5000 ? 16 : n < 50000 ? 32 : 64;
    w->steps = w->epochs * ((n + w->global_batch - 1) / w->global_batch);
}

static int64_t at_least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

/* ---- the file ---- */

static void add(buffer *b, const char *key_value, const char *comment)
{
    int n = (int)strlen(key_value);
    buffer_print(b, "%s%*s# %s\n", key_value, n < 36 ? 36 - n : 1, "", comment);
}

static char *compose(const init *w)
{
    buffer b = {0};
    arena *a = w->a;
    const char *eval = eval_value(w);
    double millions = (double)plan_int(w, "model", "parameters") / 1e6;
    buffer_print(&b,
                 "# Written by `nrl init`. `nrl describe KEY` explains every key.\n"
                 "#   nrl check %s     checks it and shows the plan\n"
                 "#   nrl run %s       trains\n\nmodel:\n",
                 w->file, w->file);
    add(&b, arena_printf(a, "  path: %s", quoted(w, path_of(w, w->model))),
        arena_printf(a, "%s, %.4g million parameters",
                     nrl_node_string(nrl_node_find(nrl_node_find(w->plan, "model"), "type"), "a model"), millions));
    if (w->is_lora) {
        buffer_puts(&b, "\nadapter:\n");
        add(&b, "  name: lora", "the model is frozen; two small matrices per linear layer are trained");
        add(&b, "  rank: 16", "use more for data that differs greatly from the training data of the model");
        add(&b, "  alpha: 32", "usually twice the rank");
    }
    buffer_puts(&b, "\ndata:\n");
    add(&b, arena_printf(a, "  train: %s", quoted(w, path_of(w, w->data))),
        arena_printf(
            a, "%lld samples (%s), %lld to %lld tokens, median %lld", (long long)plan_int(w, "train_data", "samples"),
            nrl_node_string(nrl_node_find(nrl_node_find(w->plan, "train_data"), "format"), "rows"),
            (long long)plan_int(w, "train_data", "min_length"), (long long)plan_int(w, "train_data", "max_length"),
            (long long)plan_int(w, "train_data", "median_length")));
    if (w->columns)
        add(&b, arena_printf(a, "  columns: %s", w->columns), "maps keys of the row format to the keys of these rows");
    if (eval)
        add(&b, arena_printf(a, "  eval: %s", eval),
            share_of(w, w->eval) ? "this share of the rows is held out, chosen by a hash of each row"
                                 : "evaluated, never trained");
    add(&b, arena_printf(a, "  max_length: %lld", (long long)w->max_length),
        !w->drops                       ? "covers the longest sample"
        : w->max_length == w->positions ? "the limit of the model; some samples are longer"
                                        : "covers 99 % of the samples");
    add(&b, arena_printf(a, "  overlong: %s", w->drops ? "drop" : "error"),
        w->drops ? "drop: longer samples are skipped and counted; or truncate, split" : "or drop, truncate, split");
    add(&b, arena_printf(a, "  template: %s", w->template), template_reason(w));
    buffer_puts(&b, "\n");
    add(&b, arena_printf(a, "algorithm: %s", w->algorithm),
        !strcmp(w->algorithm, "sft")   ? "the rows have answers"
        : !strcmp(w->algorithm, "dpo") ? "the rows are pairs; {name: dpo, beta: 0.1, loss: sigmoid} is the default"
                                       : "the rows have labels");
    buffer_puts(&b, "\ntrain:\n");
    add(&b, arena_printf(a, "  epochs: %lld", (long long)w->epochs),
        arena_printf(a, "%lld step%s in all", (long long)w->steps, w->steps == 1 ? "" : "s"));
    add(&b, arena_printf(a, "  global_batch: %lld", (long long)w->global_batch), "samples per step, over all ranks");
    add(&b, arena_printf(a, "  micro_batch_tokens: %lld", (long long)w->micro_batch_tokens),
        "tokens per forward pass: a smaller value needs less memory and does not change results");
    add(&b, arena_printf(a, "  precision: %s", w->precision),
        strcmp(w->precision, "bf16") ? "bf16 is faster on GPUs and on CPUs with AMX, and halves activations"
                                     : "master weights are fp32");
    add(&b, arena_printf(a, "  activation_checkpointing: %s", w->recomputes ? "all" : "none"),
        w->recomputes ? "recomputes activations, because they would not fit into memory"
                      : "all: recompute activations, which needs less memory and more time");
    buffer_puts(&b, "\noptimizer:\n  name: adamw\n");
    add(&b, arena_printf(a, "  lr: %g", w->lr), "the first setting to vary: try a third and three times this value");
    buffer_puts(&b, "\nschedule:\n  name: cosine\n");
    add(&b, "  warmup_ratio: 0.05", "share of the steps in which the learning rate increases");
    if (eval) {
        buffer_puts(&b, "\neval:\n");
        add(&b, arena_printf(a, "  every: %lld", (long long)at_least_one(w->steps / 10)), "steps");
    }
    buffer_puts(&b, "\ncheckpoint:\n");
    add(&b, arena_printf(a, "  every: %lld", (long long)at_least_one(w->steps / 5)),
        "steps; `nrl resume` continues from the newest one");
    add(&b, "  keep: 2", "older ones are removed");
    buffer_print(&b, "\nout: %s\n", quoted(w, w->out));
    return buffer_take(&b);
}

/* Bytes that a step needs on this machine's memory, as far as they are known. */
static int64_t needed(const init *w)
{
    return plan_int(w, "memory", "total") + plan_int(w, "memory", "micro_batch");
}

/* Rows that are dropped or held out count in the plan alone, so the text is composed again with its steps. */
static nrl_status inspect(init *w, char **text)
{
    free(*text);
    *text = compose(w);
    NRL_TRY(look(w, *text, strchr(w->file, '/') ? "init" : w->file));
    if (plan_int(w, "train", "steps") == w->steps) return NRL_OK;
    w->steps = plan_int(w, "train", "steps");
    free(*text);
    *text = compose(w);
    return NRL_OK;
}

/* On the CPU the memory of the machine is the limit; of other devices it is only known when they are opened. */
static nrl_status plan_memory(init *w, char **text)
{
    NRL_TRY(inspect(w, text));
    if (!w->memory) {
        bool is_host = !strcmp(nrl_node_string(nrl_node_find(nrl_node_find(w->plan, "backend"), "name"), ""), "cpu");
        w->memory = is_host ? memory_available("") / 10 * 9 : INT64_MAX;
    }
    if (needed(w) <= w->memory) return NRL_OK;
    w->micro_batch_tokens = w->max_length;
    NRL_TRY(inspect(w, text));
    if (needed(w) <= w->memory) return NRL_OK;
    w->recomputes = true;
    return inspect(w, text);
}

static nrl_status write_file(const init *w, const char *text, bool overwrite)
{
    int fd = open(w->file, O_WRONLY | O_CREAT | O_CLOEXEC | (overwrite ? O_TRUNC : O_EXCL), 0666);
    if (fd < 0 && errno == EEXIST) return nrl_fail(NRL_ERR_CONFIG, "%s exists\nhint: --overwrite replaces it", w->file);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f)) ok = false;
    return ok ? NRL_OK : disk_fail(w->file, errno);
}

static void tell(const init *w)
{
    char size[SIZE_TEXT], room[SIZE_TEXT];
    cli_page("\n%s, %.4g million parameters; %lld samples for %s, %lld to %lld tokens\n",
             nrl_node_string(nrl_node_find(nrl_node_find(w->plan, "model"), "type"), "model"),
             (double)plan_int(w, "model", "parameters") / 1e6, (long long)plan_int(w, "train_data", "samples"),
             w->algorithm, (long long)plan_int(w, "train_data", "min_length"),
             (long long)plan_int(w, "train_data", "max_length"));
    if (w->too_long)
        cli_page("%lld samples are longer than the model's limit of %lld tokens and will be dropped\n",
                 (long long)w->too_long, (long long)w->positions);
    cli_page("template %s: %s\n", w->template, template_reason(w));
    cli_page("%lld step%s; about %s for weights, gradients, optimizer and activations%s\n", (long long)w->steps,
             w->steps == 1 ? "" : "s", size_text((double)needed(w), size),
             w->recomputes ? ", which are recomputed" : "");
    if (needed(w) > w->memory)
        nrl_warn("this is more than the %s available to the run%s", size_text((double)w->memory, room),
                 w->is_lora ? "" : "; --train lora needs less");
    cli_page("wrote %s; next:\n  nrl check %s --sample 3\n  nrl run %s\n", w->file, w->file, w->file);
}

static nrl_status init_file(init *w, bool overwrite)
{
    struct stat s;
    char *text = NULL;
    if (!overwrite && !stat(w->file, &s))
        return nrl_fail(NRL_ERR_CONFIG, "%s exists\nhint: --overwrite replaces it", w->file);
    NRL_TRY(ask_all(w));
    read_model(w);
    NRL_TRY(find_algorithm(w));
    decide_length(w);
    decide_training(w);
    nrl_status st = plan_memory(w, &text);
    if (st != NRL_OK && w->has_usual_eval) { /* the share is a default, and there are few rows */
        w->eval = "none";
        free(text);
        text = NULL;
        st = plan_memory(w, &text);
        if (st == NRL_OK) nrl_warn("5%% of the rows are too few to hold out, so the config has no data.eval");
    }
    if (st == NRL_OK) st = write_file(w, text, overwrite);
    if (st == NRL_OK) tell(w);
    free(text);
    return st;
}

static nrl_status init_verb(int argc, char **argv)
{
    arena a = {0};
    init w = {.a = &a};
    bool overwrite = cli_take_flag(&argc, argv, "--overwrite");
    NRL_TRY(cli_take_value(&argc, argv, "--model", &w.model));
    NRL_TRY(cli_take_value(&argc, argv, "--data", &w.data));
    NRL_TRY(cli_take_value(&argc, argv, "--eval", &w.eval));
    NRL_TRY(cli_take_value(&argc, argv, "--columns", &w.columns));
    NRL_TRY(cli_take_value(&argc, argv, "--train", &w.train));
    NRL_TRY(cli_take_value(&argc, argv, "--out", &w.out));
    NRL_TRY(cli_take_size(&argc, argv, "--memory", &w.memory));
    NRL_TRY(cli_expect(argc, argv, 0, 1));
    w.file = argc > 1 ? argv[1] : "run.yaml";
    size_t n = strlen(w.file);
    if (n < 6 || strcmp(w.file + n - 5, ".yaml"))
        return nrl_fail(NRL_ERR_CONFIG, "'%s': expected the name of a new config, FILE.yaml", w.file);
    if (w.columns) NRL_TRY(check_columns(w.columns));
    experiment_environment(&a, &w.env);
    nrl_status st = init_file(&w, overwrite);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "init", init_verb);
}
