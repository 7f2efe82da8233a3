/*
 * rules.c - agreement between options of the core's sections.
 */
#include "config/rules.h"
#include "config/config.h"
#include <string.h>

/* ---- data ---- */

typedef struct {
    const char *path;
    double weight;
    const nrl_node *reader;
} source;

static const nrl_option source_rows[] = {
    NRL_OPT_PATH(source, path, NULL, "a file of samples"),
    NRL_OPT_F64(source, weight, "1", 1e-9, 1e9, "how often its samples are drawn, next to the others"),
    NRL_OPT_NODE(source, reader, "", "the dataset plugin that reads it, and its options"),
};

static nrl_node *source_node(arena *a, const nrl_node *at, const char *path, const source *s)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "path", node_string(a, path, strlen(path)));
    node_append(a, map, "weight", node_f64(a, s->weight));
    if (s->reader) node_append(a, map, "reader", node_copy(a, s->reader));
    map->source = at->source;
    map->line = at->line;
    map->column = at->column;
    return map;
}

static void add_source(arena *a, config_problems *problems, const char *name, const nrl_node *item, nrl_node *list,
                       nrl_node *resolved)
{
    source s = {.weight = 1};
    const option_part part = OPTION_PART(source_rows, &s);
    const char *word = nrl_node_string(item, NULL);
    if (word)
        s.path = config_path(a, item, word);
    else
        options_fill(a, problems, name, item, &part, 1);
    if (!s.path) return;
    node_append(a, list, NULL, source_node(a, item, s.path, &s));
    node_append(a, resolved, NULL, source_node(a, item, config_absolute(a, s.path), &s));
}

void rules_sources(arena *a, config_problems *problems, const char *name, const nrl_node **sources, nrl_node *resolved)
{
    const nrl_node *given = *sources;
    if (!given) return;
    bool is_list = given->kind == NRL_NODE_LIST;
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    nrl_node *absolute = node_set(a, resolved, strchr(name, '.') + 1, node_new(a, NRL_NODE_LIST));
    if (is_list && !given->size) problems_add(problems, given, "%s: an empty list", name);
    for (size_t i = 0; i < (is_list ? given->size : 1); i++)
        add_source(a, problems, name, is_list ? nrl_node_at(given, i) : given, list, absolute);
    list->source = given->source;
    list->line = given->line;
    list->column = given->column;
    *sources = list;
}

static void words_only(config_problems *problems, const char *name, const nrl_node *node, nrl_node_type kind)
{
    if (!node) return;
    if (node->kind != kind) {
        problems_add(problems, node, "%s: expected a %s of words", name, node_kind_name(kind));
        return;
    }
    for (size_t i = 0; i < nrl_node_size(node); i++)
        if (nrl_node_kind(nrl_node_at(node, i)) != NRL_NODE_STRING)
            problems_add(problems, nrl_node_at(node, i), "%s: expected a word", name);
}

void rules_data(config_problems *problems, const config_data *data)
{
    words_only(problems, "data.columns", data->columns, NRL_NODE_MAP);
    words_only(problems, "data.extra", data->extra, NRL_NODE_LIST);
}

/* ---- activation checkpointing ---- */

typedef struct {
    int64_t every;
    double ratio;
    const nrl_node *layers;
} recompute_map;

static const nrl_option recompute_rows[] = {
    NRL_OPT_INT(recompute_map, every, "", 1, 1e6, "every n-th layer"),
    NRL_OPT_F64(recompute_map, ratio, "", 0, 1, "share of the layers"),
    NRL_OPT_NODE(recompute_map, layers, "", "list of layers from 0"),
};

static void check_layers(config_problems *problems, const nrl_node *layers)
{
    if (layers && layers->kind != NRL_NODE_LIST)
        problems_add(problems, layers, "train.activation_checkpointing.layers: expected a list");
    for (size_t i = 0; i < nrl_node_size(layers); i++)
        if (nrl_node_int(nrl_node_at(layers, i), -1) < 0)
            problems_add(problems, nrl_node_at(layers, i),
                         "train.activation_checkpointing.layers: expected whole numbers from 0");
}

static void recompute_from_map(arena *a, config_problems *problems, const nrl_node *node, config_recompute *out)
{
    recompute_map m = {0};
    const option_part part = OPTION_PART(recompute_rows, &m);
    if (node->size != 1) {
        problems_add(problems, node, "train.activation_checkpointing: expected one of every, ratio or layers");
        return;
    }
    options_fill(a, problems, "train.activation_checkpointing", node, &part, 1);
    check_layers(problems, m.layers);
    *out = (config_recompute){m.layers  ? CONFIG_RECOMPUTE_LAYERS
                              : m.every ? CONFIG_RECOMPUTE_EVERY
                                        : CONFIG_RECOMPUTE_RATIO,
                              m.every, m.ratio, m.layers};
}

void rules_recompute(arena *a, config_problems *problems, const nrl_node *node, config_recompute *out)
{
    const char *word = nrl_node_string(node, "");
    *out = (config_recompute){CONFIG_RECOMPUTE_NONE, 0, 0, NULL};
    if (nrl_node_kind(node) == NRL_NODE_MAP)
        recompute_from_map(a, problems, node, out);
    else if (!strcmp(word, "all"))
        out->kind = CONFIG_RECOMPUTE_ALL;
    else if (node && strcmp(word, "none"))
        problems_add(problems, node,
                     "train.activation_checkpointing: expected none, all, "
                     "{every: 4}, {ratio: 0.5} or {layers: [0, 4]}");
}

/* ---- between options ---- */

/* The node for the place of a message: the option if the config has it, else its section, else the root. */
static const nrl_node *place(const nrl_node *root, const char *section, const char *key)
{
    const nrl_node *map = nrl_node_find(root, section), *at = nrl_node_find(map, key);
    return at ? at : map ? map : root;
}

/* Whether a section is not a map, which was already reported. */
static bool is_malformed(const nrl_node *root, const char *section)
{
    nrl_node_type kind = nrl_node_kind(nrl_node_find(root, section));
    return kind != NRL_NODE_NONE && kind != NRL_NODE_NULL && kind != NRL_NODE_MAP;
}

/* Whether an option is missing, null or 0. Invalid values were already reported. */
static bool is_off(const nrl_node *root, const char *section, const char *key)
{
    const nrl_node *at = nrl_node_find(nrl_node_find(root, section), key);
    return nrl_node_kind(at) <= NRL_NODE_NULL || nrl_node_f64(at, 1) == 0;
}

static void check_lengths(config_problems *problems, const nrl_node *root, const config_run *run)
{
    const config_train *t = &run->train;
    bool by_samples = t->micro_batch > 0;
    if (is_malformed(root, "train")) return;
    if (t->steps && t->epochs) {
        const nrl_node *epochs = place(root, "train", "epochs"), *steps = place(root, "train", "steps");
        bool typed_epochs = epochs->source && steps->source && strcmp(epochs->source, steps->source) &&
                            !strcmp(epochs->source, config_command_line);
        problems_add(problems, epochs,
                     "train: give steps or epochs, not both: steps is %lld, epochs %lld\n"
                     "hint: on the command line, train.%s=0 beside %s=%lld",
                     (long long)t->steps, (long long)t->epochs, typed_epochs ? "steps" : "epochs",
                     typed_epochs ? "train.epochs" : "train.steps", (long long)(typed_epochs ? t->epochs : t->steps));
    }
    if (is_off(root, "train", "steps") && is_off(root, "train", "epochs"))
        problems_add(problems, place(root, "train", "steps"), "train: steps or epochs is required");
    if (by_samples && run->data.packing)
        problems_add(problems, place(root, "train", "micro_batch"),
                     "train.micro_batch counts samples, which needs data.packing: false");
    if (!by_samples && t->micro_batch_tokens && t->micro_batch_tokens < run->data.max_length)
        problems_add(problems, place(root, "train", "micro_batch_tokens"),
                     "train.micro_batch_tokens: %lld cannot hold a sample of data.max_length %lld",
                     (long long)t->micro_batch_tokens, (long long)run->data.max_length);
}

/* An option without effect is an error. */
static void check_precision(config_problems *problems, const nrl_node *root, const config_train *t)
{
    if (is_malformed(root, "train")) return;
    if (t->master == CONFIG_MASTER_SPLIT16 && t->precision != CONFIG_BF16)
        problems_add(problems, place(root, "train", "master"),
                     "train.master: split16 keeps fp32 masters as bf16 weights and the rest of their bits: it "
                     "needs train.precision: bf16");
    if (t->gradients == CONFIG_GRADIENTS_BF16 && t->precision != CONFIG_BF16)
        problems_add(problems, place(root, "train", "gradients"), "train.gradients: bf16 needs train.precision: bf16");
}

static void check_divergence(config_problems *problems, const nrl_node *root, const config_train *t)
{
    if (is_malformed(root, "train") || t->diverge_factor > 1 || t->diverge_factor <= 0) return;
    problems_add(problems, place(root, "train", "diverge_factor"),
                 "train.diverge_factor: a loss of %g times the first one has not diverged, expected 0 or more than 1",
                 t->diverge_factor);
}

static void check_model(config_problems *problems, const nrl_node *root, const config_model *m)
{
    bool path = m->path && *m->path, config = m->config && *m->config;
    if (!nrl_node_find(root, "model") || is_malformed(root, "model")) return;
    if (path && config)
        problems_add(problems, place(root, "model", "config"),
                     "model: give path or config, not both\n"
                     "hint: on the command line 'model={path: DIR}' replaces the section");
    if (!path && !config) problems_add(problems, place(root, "model", "path"), "model: path or config is required");
}

static void check_eval(config_problems *problems, const nrl_node *root, const config_run *run)
{
    if (run->eval.every && !run->data.eval)
        problems_add(problems, place(root, "eval", "every"), "eval.every needs data.eval");
    if (run->eval.early_stop && !run->eval.every)
        problems_add(problems, place(root, "eval", "early_stop"), "eval.early_stop needs eval.every");
}

static void check_export(config_problems *problems, const nrl_node *root, const config_run *run)
{
    if (run->checkpoint.export != CONFIG_EXPORT_BEST) return;
    if (!run->eval.every)
        problems_add(problems, place(root, "checkpoint", "export"), "checkpoint.export: best needs eval.every");
    if (!run->checkpoint.keep_best)
        problems_add(problems, place(root, "checkpoint", "export"),
                     "checkpoint.export: best needs checkpoint.keep_best above 0, as it is read from its checkpoint");
}

static const char *last_part(arena *a, const char *path)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start && path[start - 1] != '/')
        start--;
    return arena_strndup(a, path + start, n - start);
}

void rules_run(arena *a, config_problems *problems, const nrl_node *root, config_run *run)
{
    check_model(problems, root, &run->model);
    check_lengths(problems, root, run);
    check_precision(problems, root, &run->train);
    check_divergence(problems, root, &run->train);
    check_eval(problems, root, run);
    check_export(problems, root, run);
    run->debug_every = rules_debug(a, problems, run->debug);
    if (run->out && !*run->out) problems_add(problems, nrl_node_find(root, "out"), "out: empty");
    if (run->out && run->name && !*run->name) run->name = last_part(a, run->out);
}
