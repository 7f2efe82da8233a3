/*
 * tune.c - `nrl tune`: the largest and the fastest train.micro_batch_tokens of a config, measured. Each size is a run
 * of `nrl bench` in a process of its own, or in several under `nrl launch`, so a process that the kernel kills for its
 * memory is a result like an error, and a size that one rank has no memory for did not run.
 * Sizes double until one lacks memory or holds a whole global batch, and the last interval is bisected.
 */
#include "base/arena.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/common/child.h"
#include "cli/common/cli.h"
#include "cli/common/ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_TRIALS = 64,
    MAX_STEPS = 1000,
    MAX_RANKS = 1024,
    DEFAULT_STEPS = 3,
    SMALLEST = 256,   /* tokens of the first trial */
    PRECISION = 8,    /* bisection ends at an eighth of the largest size that ran */
    OUT_OF_MEMORY = 6 /* exit code, see `nrl help` */
};
#define AS_FAST 0.98 /* of two sizes whose speeds differ by less, the smaller one is better */

typedef struct {
    int64_t tokens;
    bool ran;
    const char *outcome; /* "ok", "out of memory", "killed", "too small" */
    double tokens_per_s, step_seconds, peak_bytes, step_tokens;
} trial;

typedef struct {
    arena memory;
    const char *nrl;  /* the program */
    char **arguments; /* FILE and overrides, ending with NULL */
    int n_arguments;
    int64_t steps, ranks;
    bool json;
    trial trials[MAX_TRIALS];
    int n;
    const char *problem; /* why the last trial failed, for lack of memory if one did */
    bool lacked;         /* memory, in some trial */
} tuner;

/* ---- a trial ---- */

/* In the child: the kernel should end this process and not the shell above it. */
static void offer_to_kernel(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = write(fd, "1000", 4);
        (void)n; /* may fail */
        close(fd);
    }
}

/* Fills a trial from what bench printed. */
static nrl_status read_bench(tuner *t, const char *text, trial *x)
{
    nrl_node *tree;
    const char *begin = strchr(text, '{'); /* behind the rank that prints it */
    if (!begin) return nrl_fail(NRL_ERR_BUG, "nrl bench printed no result");
    NRL_TRY(json_parse(&t->memory, "nrl bench", arena_strdup(&t->memory, begin), strlen(begin), &tree));
    const nrl_node *memory = nrl_node_find(tree, "memory");
    x->tokens_per_s = nrl_node_f64(nrl_node_find(tree, "tokens_per_s"), NAN);
    x->step_seconds = nrl_node_f64(nrl_node_find(tree, "step_seconds_median"), NAN);
    x->peak_bytes = nrl_node_f64(nrl_node_find(memory, t->ranks > 1 ? "most_used_peak_bytes" : "used_peak_bytes"), NAN);
    x->step_tokens = x->tokens_per_s * x->step_seconds;
    return NRL_OK;
}

/* The first error that a child printed, or its first line; with several ranks lines begin with "[RANK] ". */
static const char *reason_of(arena *a, const char *text)
{
    static const char prefix[] = "error: ";
    const char *error = strstr(text, prefix);
    if (error) text = error + sizeof prefix - 1;
    return arena_strndup(a, text, strcspn(text, "\n"));
}

static nrl_status finish_trial(tuner *t, const child_end *end, trial *x)
{
    x->ran = end->code == 0;
    x->outcome = "ok";
    if (x->ran) return read_bench(t, end->out, x);
    if (end->code == 128 + SIGKILL)
        x->outcome = "killed";
    else if (end->code == OUT_OF_MEMORY)
        x->outcome = "out of memory";
    else if (end->code == 2 &&
             (strstr(end->err, "cannot hold a sample") || strstr(end->err, "not fit into train.micro_batch_tokens")))
        x->outcome = "too small";
    else
        return nrl_fail(cli_status(end->code), "%s", *end->err ? reason_of(&t->memory, end->err) : "nrl bench failed");
    if (!t->problem || strcmp(x->outcome, "too small"))
        t->problem = reason_of(&t->memory, *end->err ? end->err : x->outcome);
    t->lacked |= strcmp(x->outcome, "too small") != 0;
    return NRL_OK;
}

static void tell(const tuner *t, const trial *x)
{
    char size[SIZE_TEXT];
    if (t->json) return;
    if (x->ran)
        printf("%10lld  %10.0f  %10.3f  %10s\n", (long long)x->tokens, x->tokens_per_s, x->step_seconds,
               size_text(x->peak_bytes, size));
    else
        printf("%10lld  %s\n", (long long)x->tokens, x->outcome);
    fflush(stdout);
}

static nrl_status try_size(tuner *t, int64_t tokens, trial **out)
{
    child_end end;
    if (t->n == MAX_TRIALS) return nrl_fail(NRL_ERR_BUG, "more than %d trials", (int)MAX_TRIALS);
    trial *x = *out = &t->trials[t->n++];
    *x = (trial){.tokens = tokens};
    const char *words[] = {arena_printf(&t->memory, "train.micro_batch_tokens=%lld", (long long)tokens),
                           arena_printf(&t->memory, "train.steps=%lld", (long long)(2 * t->steps + 8)),
                           "train.epochs=0",
                           "train.micro_batch=0",
                           "train.on_oom=stop",
                           "--steps",
                           arena_printf(&t->memory, "%lld", (long long)t->steps),
                           "--json"};
    const size_t n_words = sizeof words / sizeof *words;
    const char *ranks[] = {"launch", "-n", arena_printf(&t->memory, "%lld", (long long)t->ranks), "--"};
    const size_t n_ranks = t->ranks > 1 ? sizeof ranks / sizeof *ranks : 0;
    const char **argv = arena_alloc(&t->memory, ((size_t)t->n_arguments + n_words + n_ranks + 3) * sizeof *argv);
    argv[0] = t->nrl;
    memcpy(argv + 1, ranks, n_ranks * sizeof *ranks);
    argv[1 + n_ranks] = "bench";
    for (int i = 0; i < t->n_arguments; i++)
        argv[2 + n_ranks + (size_t)i] = t->arguments[i];
    memcpy(argv + 2 + n_ranks + t->n_arguments, words, sizeof words);
    NRL_TRY(child_run(&t->memory, argv, offer_to_kernel, &end));
    NRL_TRY(finish_trial(t, &end, x));
    tell(t, x);
    return NRL_OK;
}

/* ---- the search ---- */

static nrl_status search(tuner *t, int64_t from, int64_t most)
{
    int64_t good = 0, bad = 0;
    trial *x;
    for (int64_t size = from; !bad && size <= most; size *= 2) {
        NRL_TRY(try_size(t, size, &x));
        if (x->ran) {
            good = size;
            if ((double)size >= x->step_tokens) return NRL_OK; /* one micro-batch is the whole global batch */
        } else if (strcmp(x->outcome, "too small")) {
            bad = size;
        }
    }
    /* Sizes that are too small for a sample may lie between. */
    while (bad && bad - good > (good ? good : from) / PRECISION && bad - good > 1) {
        int64_t middle = good + (bad - good) / 2;
        NRL_TRY(try_size(t, middle, &x));
        if (!x->ran && strcmp(x->outcome, "too small"))
            bad = middle;
        else
            good = middle;
    }
    return NRL_OK;
}

/* The largest size that ran, or the smallest one that is about as fast as the fastest; NULL: none ran. */
static const trial *choose(const tuner *t, bool largest)
{
    const trial *best = NULL;
    double fastest = 0;
    for (int i = 0; i < t->n; i++)
        if (t->trials[i].ran && t->trials[i].tokens_per_s > fastest) fastest = t->trials[i].tokens_per_s;
    for (int i = 0; i < t->n; i++) {
        const trial *x = &t->trials[i];
        if (!x->ran || (!largest && x->tokens_per_s < AS_FAST * fastest)) continue;
        if (!best || (largest ? x->tokens > best->tokens : x->tokens < best->tokens)) best = x;
    }
    return best;
}

static void print_json(tuner *t, const trial *fastest, const trial *largest)
{
    arena *a = &t->memory;
    nrl_node *tree = node_new(a, NRL_NODE_MAP), *list = node_new(a, NRL_NODE_LIST);
    node_append(a, tree, "trials", list);
    for (int i = 0; i < t->n; i++) {
        const trial *x = &t->trials[i];
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        node_append(a, list, NULL, map);
        node_append_int(a, map, "micro_batch_tokens", x->tokens);
        node_append_text(a, map, "outcome", x->outcome);
        if (!x->ran) continue;
        node_append(a, map, "tokens_per_s", node_f64(a, x->tokens_per_s));
        node_append(a, map, "step_seconds", node_f64(a, x->step_seconds));
        node_append(a, map, "used_peak_bytes", node_f64(a, x->peak_bytes));
    }
    node_append_int(a, tree, "ranks", t->ranks);
    node_append_int(a, tree, "fastest", fastest->tokens);
    node_append_int(a, tree, "largest", largest->tokens);
    char *text = json_write(tree, 0);
    puts(text);
    free(text);
}

static nrl_status read_number(int *argc, char **argv, const char *flag, int64_t most, int64_t *value)
{
    const char *text;
    char *end;
    NRL_TRY(cli_take_value(argc, argv, flag, &text));
    if (!text) return NRL_OK;
    *value = strtoll(text, &end, 10);
    if (*end || *value < 1 || *value > most)
        return nrl_fail(NRL_ERR_CONFIG, "%s: '%s': expected a number from 1 to %lld", flag, text, (long long)most);
    return NRL_OK;
}

static nrl_status tune(tuner *t, int argc, char **argv)
{
    int64_t from = SMALLEST, most = INT32_MAX;
    t->steps = DEFAULT_STEPS;
    t->ranks = 1;
    t->json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(read_number(&argc, argv, "--ranks", MAX_RANKS, &t->ranks));
    NRL_TRY(read_number(&argc, argv, "--steps", MAX_STEPS, &t->steps));
    NRL_TRY(read_number(&argc, argv, "--from", INT32_MAX, &from));
    NRL_TRY(read_number(&argc, argv, "--to", INT32_MAX, &most));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    if (from > most)
        return nrl_fail(NRL_ERR_CONFIG, "--from %lld is above --to %lld", (long long)from, (long long)most);
    const char *launcher = ranks_launcher(cli_getenv);
    if (launcher)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot tune under %s: `nrl tune` starts the ranks of each size itself\nhint: `nrl tune FILE "
                        "--ranks N`, without a launcher",
                        launcher);
    const char *bin = cli_exe_dir(&t->memory);
    if (!bin) return nrl_fail(NRL_ERR_IO, "cannot find the program nrl: %s", strerror(errno));
    t->nrl = arena_printf(&t->memory, "%s/nrl", bin);
    t->arguments = argv + 1;
    t->n_arguments = argc - 1;
    if (!t->json) printf("%10s  %10s  %10s  %10s\n", "tokens", "tokens/s", "s a step", "peak");
    NRL_TRY(search(t, from, most));
    const trial *fastest = choose(t, false), *largest = choose(t, true);
    if (!fastest)
        return nrl_fail(t->lacked ? NRL_ERR_MEMORY : NRL_ERR_CONFIG, "every size of micro-batches failed: %s",
                        t->problem);
    if (t->json)
        print_json(t, fastest, largest);
    else
        printf("fastest    train.micro_batch_tokens=%lld%s\n", (long long)fastest->tokens,
               fastest == largest ? ", the largest that succeeded" : "");
    if (!t->json && fastest != largest)
        printf("largest    train.micro_batch_tokens=%lld\n", (long long)largest->tokens);
    return NRL_OK;
}

static nrl_status tune_verb(int argc, char **argv)
{
    tuner t = {0};
    nrl_status st = tune(&t, argc, argv);
    arena_free(&t.memory);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "tune", tune_verb);
}
