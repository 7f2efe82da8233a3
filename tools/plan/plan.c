/*
 * plan.c - `nrl plan`: settings of a config by memory and predicted speed; nrl/plan.h finds them, this file prints them
 * and writes the config of the best one.
 */
#include "base/disk.h"
#include "base/escape.h"
#include "base/units.h"
#include "base/yaml.h"
#include "cli/common/cli.h"
#include "cli/common/experiment.h"
#include <math.h>
#include <nrl/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORDS = 16, MOST_COUNTS = 16, MOST_RANKS = 1 << 16, AUTO_S = 10 };

typedef struct {
    bool json;
    const char *write;
    int32_t counts[MOST_COUNTS]; /* of ranks */
    size_t n_counts;
} plan_view;

static double number(const nrl_node *map, const char *key)
{
    return nrl_node_f64(nrl_node_find(map, key), NAN);
}

/* "parallel=ddp train.micro_batch_tokens=4096", without the section that nearly all keys have. */
static const char *keys_text(arena *a, const nrl_node *candidate)
{
    const nrl_node *keys = nrl_node_find(candidate, "keys");
    const char *text = "";
    for (size_t i = 0; i < nrl_node_size(keys); i++) {
        const char *key = nrl_node_key(keys, i);
        if (!strncmp(key, "train.", 6)) key += 6;
        text = arena_printf(a, "%s%s%s=%s", text, *text ? " " : "", key, nrl_node_string(nrl_node_at(keys, i), ""));
    }
    return *text ? text : "(the config)";
}

/* nrl_plan_request.progress: a line as soon as a candidate is known. */
static void print_candidate(void *user, const nrl_node *c)
{
    const plan_view *v = user;
    arena a = {0};
    char size[SIZE_TEXT];
    if (v->json) return;
    const double bytes = number(c, "total_bytes"), speed = number(c, "tokens_per_s");
    const char *reason = nrl_node_string(nrl_node_find(c, "reason"), NULL);
    printf("%10s ", isnan(bytes) ? "-" : size_text(bytes, size));
    if (isnan(speed))
        printf("%10s %10s  ", "-", "-");
    else
        printf("%10.3f %10.0f  ", number(c, "step_seconds"), speed);
    cli_page("%s%s%s\n", keys_text(&a, c), reason ? ": " : "", reason ? reason : "");
    fflush(stdout);
    arena_free(&a);
}

static void print_kinds(const nrl_node *c)
{
    static const char *const kinds[][2] = {{"weight_bytes", "weights"},        {"master_bytes", "masters"},
                                           {"gradient_bytes", "gradients"},    {"optimizer_bytes", "optimizer"},
                                           {"strategy_bytes", "strategy"},     {"reference_bytes", "reference"},
                                           {"activation_bytes", "activations"}};
    char size[SIZE_TEXT];
    const char *comma = "";
    printf("memory     ");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const double bytes = number(c, kinds[i][0]);
        if (!(bytes > 0)) continue;
        printf("%s%s %s", comma, kinds[i][1], size_text(bytes, size));
        comma = ", ";
    }
    if (number(c, "offloaded_bytes") > 0)
        printf("; not counted: %s of offloaded data", size_text(number(c, "offloaded_bytes"), size));
    putchar('\n');
}

/* A file that says the same from any directory, as OUT/config.yaml of a run does. */
static nrl_status write_config(const char *path, const nrl_node *config)
{
    int fd;
    char *text = yaml_write(config);
    nrl_status st = disk_create(path, &fd);
    if (st == NRL_OK) st = disk_finish(fd, path, disk_write(fd, path, text, strlen(text)));
    free(text);
    return st;
}

static nrl_status show(arena *a, const plan_view *v, const nrl_plan_request *r, const nrl_node *result)
{
    const nrl_node *list = nrl_node_find(result, "candidates"), *chosen = nrl_node_find(result, "chosen");
    const bool any = nrl_node_kind(chosen) == NRL_NODE_INT;
    const nrl_node *best = any ? nrl_node_at(list, (size_t)nrl_node_f64(chosen, 0)) : NULL;
    if (v->json) {
        char *text = nrl_json_write(result, 2);
        puts(text);
        nrl_free(text);
    } else if (best) {
        printf("chosen     %s: %.0f tokens/s predicted\n", keys_text(a, best), number(best, "tokens_per_s"));
        print_kinds(best);
    }
    if (best) return v->write ? write_config(v->write, nrl_node_find(result, "config")) : NRL_OK;
    for (size_t i = 0; i < nrl_node_size(list); i++)
        if (!isnan(number(nrl_node_at(list, i), "tokens_per_s")))
            return nrl_fail(NRL_ERR_CONFIG, "no setting reaches %g tokens/s (--target-tokens-per-s)",
                            r->target_tokens_per_s);
    const char *reason = nrl_node_string(nrl_node_find(nrl_node_at(list, 0), "reason"), "no candidate");
    return nrl_fail(number(result, "memory_bytes") > 0 ? NRL_ERR_MEMORY : NRL_ERR_CONFIG,
                    "no setting fits: %s\nhint: `nrl plan FILE --try train.precision=bf16 --try adapter=lora` compares "
                    "settings that change numbers",
                    reason);
}

static void print_scaled(const nrl_node *count, const nrl_node *c, bool is_chosen)
{
    arena a = {0};
    char memory[SIZE_TEXT], sent[SIZE_TEXT];
    const char *reason = nrl_node_string(nrl_node_find(c, "reason"), NULL);
    printf("%6d %10s ", (int)number(count, "ranks"), size_text(number(c, "total_bytes"), memory));
    if (isnan(number(c, "tokens_per_s")))
        printf("%10s %10s %5s %10s %9s  ", "-", "-", "-", "-", "-");
    else
        printf("%10.4f %10.0f %5.2f %10s %9.0f  ", number(c, "step_seconds"), number(c, "tokens_per_s"),
               number(c, "efficiency"), size_text(number(c, "sent_bytes"), sent), number(c, "sent_messages"));
    cli_page("%s%s%s%s\n", keys_text(&a, c), is_chosen ? " (fastest)" : "", reason ? ": " : "", reason ? reason : "");
    arena_free(&a);
}

/* Whether a smaller number of ranks had this setting refused too. */
static bool was_refused(arena *a, const nrl_node *counts, size_t before, const nrl_node *c)
{
    for (size_t i = 0; i < before; i++) {
        const nrl_node *list = nrl_node_find(nrl_node_at(counts, i), "candidates");
        for (size_t k = 0; k < nrl_node_size(list); k++) {
            const nrl_node *o = nrl_node_at(list, k);
            if (!nrl_node_find(o, "total_bytes") && !strcmp(keys_text(a, o), keys_text(a, c))) return true;
        }
    }
    return false;
}

/* Several numbers of ranks: a line for each and for each setting that runs; then those that are refused. */
static nrl_status show_counts(arena *a, const plan_view *v, const nrl_node *result)
{
    const nrl_node *counts = nrl_node_find(result, "counts");
    if (v->json) {
        char *text = nrl_json_write(result, 2);
        puts(text);
        nrl_free(text);
        return NRL_OK;
    }
    printf("%6s %10s %10s %10s %5s %10s %9s  settings\n", "ranks", "memory", "s a step", "tokens/s", "eff.", "sent",
           "messages");
    for (int refused = 0; refused < 2; refused++)
        for (size_t i = 0; i < nrl_node_size(counts); i++) {
            const nrl_node *count = nrl_node_at(counts, i), *list = nrl_node_find(count, "candidates");
            for (size_t k = 0; k < nrl_node_size(list); k++) {
                const nrl_node *c = nrl_node_at(list, k);
                const bool ran = nrl_node_find(c, "total_bytes");
                if (ran && !refused) print_scaled(count, c, (double)k == number(count, "chosen"));
                if (!ran && refused && !was_refused(a, counts, i, c))
                    cli_page("%6d refused: %s: %s\n", (int)number(count, "ranks"), keys_text(a, c),
                             nrl_node_string(nrl_node_find(c, "reason"), ""));
            }
        }
    return NRL_OK;
}

/* "8" or "8,64,1024". */
static nrl_status read_counts(int *argc, char **argv, plan_view *v)
{
    const char *text;
    NRL_TRY(cli_take_value(argc, argv, "--ranks", &text));
    if (!text) text = "1";
    for (const char *at = text; v->n_counts < MOST_COUNTS;) {
        char *end;
        const double n = strtod(at, &end);
        if (end == at || (*end && *end != ',') || !(n >= 1 && n <= MOST_RANKS) || n != floor(n) ||
            (v->n_counts && n <= v->counts[v->n_counts - 1]))
            break;
        v->counts[v->n_counts++] = (int32_t)n;
        if (!*end) return NRL_OK;
        at = end + 1;
    }
    return nrl_fail(NRL_ERR_CONFIG,
                    "--ranks: '%s': expected a number from 1 to %d, or up to %d ascending ones such as 8,64,1024", text,
                    MOST_RANKS, MOST_COUNTS);
}

static nrl_status read_number(int *argc, char **argv, const char *flag, double least, double most, double *value)
{
    const char *text;
    char *end;
    NRL_TRY(cli_take_value(argc, argv, flag, &text));
    if (!text) return NRL_OK;
    *value = strtod(text, &end);
    if (*end || !(*value >= least && *value <= most))
        return nrl_fail(NRL_ERR_CONFIG, "%s: '%s': expected a number from %g to %g", flag, text, least, most);
    return NRL_OK;
}

/* A rank has its share of the processors, as under `nrl launch`; OpenMP reads the variable when the CPU is opened. */
static void share_processors(int32_t ranks)
{
    char text[32];
    const long n = sysconf(_SC_NPROCESSORS_ONLN) / ranks;
    snprintf(text, sizeof text, "%ld", n > 0 ? n : 1);
    if (ranks > 1) setenv("OMP_NUM_THREADS", text, 0);
}

static nrl_status plan(arena *a, int argc, char **argv)
{
    nrl_environment env;
    int64_t memory = 0;
    const char *keep[MOST_WORDS], *also[MOST_WORDS];
    plan_view v = {.json = cli_take_flag(&argc, argv, "--json")};
    nrl_plan_request r = {.size = sizeof r, .keep = keep, .also = also, .progress = print_candidate, .user = &v};
    r.only_config = cli_take_flag(&argc, argv, "--as-is");
    r.only_auto = cli_take_flag(&argc, argv, "--auto");
    if (r.only_auto) r.seconds = AUTO_S;
    if (r.only_auto && r.only_config) return nrl_fail(NRL_ERR_CONFIG, "expected --as-is or --auto, not both");
    const bool fixed_batch = cli_take_flag(&argc, argv, "--fixed-batch");
    NRL_TRY(read_counts(&argc, argv, &v));
    const bool scales = v.n_counts > 1;
    if (fixed_batch && !scales) return nrl_fail(NRL_ERR_CONFIG, "--fixed-batch: expected several numbers with --ranks");
    if (scales && r.only_auto) return nrl_fail(NRL_ERR_CONFIG, "--auto: expected one number with --ranks");
    NRL_TRY(read_number(&argc, argv, "--target-tokens-per-s", 0, 1e12, &r.target_tokens_per_s));
    NRL_TRY(cli_take_size(&argc, argv, "--memory", &memory));
    NRL_TRY(cli_take_value(&argc, argv, "--machine", &r.machine));
    NRL_TRY(cli_take_value(&argc, argv, "--save-machine", &r.save_machine));
    NRL_TRY(cli_take_value(&argc, argv, "--write", &v.write));
    NRL_TRY(cli_take_values(&argc, argv, "--keep", keep, MOST_WORDS, &r.n_keep));
    NRL_TRY(cli_take_values(&argc, argv, "--try", also, MOST_WORDS, &r.n_also));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    r.memory_bytes = (double)memory;
    if (v.write && scales) return nrl_fail(NRL_ERR_CONFIG, "--write: expected one number with --ranks");
    if (v.write && !access(v.write, F_OK))
        return nrl_fail(NRL_ERR_CONFIG, "--write: %s exists; expected a new file", v.write);
    r.ranks = v.counts[0];
    share_processors(scales ? (int32_t)sysconf(_SC_NPROCESSORS_ONLN) : r.ranks);
    experiment_environment(a, &env);
    nrl_config *config = nrl_config_create(a);
    nrl_status st = nrl_config_read(config, argv[1]);
    for (int i = 2; st == NRL_OK && i < argc; i++)
        nrl_config_override(config, argv[i]);
    if (st == NRL_OK) nrl_config_substitute(config, cli_variable);
    nrl_node *result;
    if (scales) {
        r.progress = NULL;
        if (st == NRL_OK) st = nrl_plan_scale(a, config, &env, &r, v.counts, v.n_counts, fixed_batch, &result);
        if (st == NRL_OK) st = show_counts(a, &v, result);
    } else {
        if (!v.json && st == NRL_OK) printf("%10s %10s %10s  settings\n", "memory", "s a step", "tokens/s");
        if (st == NRL_OK) st = nrl_plan_search(a, config, &env, &r, &result);
        if (st == NRL_OK) st = show(a, &v, &r, result);
    }
    nrl_config_destroy(config);
    return st;
}

static nrl_status plan_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_status st = plan(&a, argc, argv);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "plan", plan_verb);
}
