/*
 * rules.c - short forms of options of the core's sections, and agreement between options.
 */
#include "config/rules.h"
#include "config/config.h"
#include <string.h>

/* ---- data ---- */

typedef struct {
    const char *path;
    double weight;
    int64_t limit, overlong; /* the word of overlong is checked here and read with the part */
    const nrl_node *reader, *rows, *columns, *template;
} source;

static const nrl_option source_rows[] = {
    NRL_OPT_PATH(source, path, NULL, "a file of samples"),
    NRL_OPT_F64(source, weight, "1", 1e-9, 1e9, "times that each of its samples is drawn per epoch"),
    NRL_OPT_NODE(source, reader, "", "the dataset plugin that reads it, and its options"),
    NRL_OPT_NODE(source, rows, "", "the rows FIRST:END, from 0; negative numbers count from the end"),
    NRL_OPT_INT(source, limit, "", 1, 1e15, "maximum number of rows, selected by a hash of each row"),
    NRL_OPT_NODE(source, columns, "", "replaces data.columns for these rows"),
    NRL_OPT_NODE(source, template, "", "replaces data.template for these rows"),
    NRL_OPT_ENUM(source, overlong, "", "error|drop|truncate|split", "replaces data.overlong for these rows"),
};

/* A number that was read, with the text of the config if a variable was in it. */
static nrl_node *number_as_given(nrl_node *number, const nrl_node *given)
{
    if (given) number->secret = given->secret;
    return number;
}

static nrl_node *source_node(arena *a, const nrl_node *at, nrl_node *path, const source *s)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "path", path);
    node_append(a, map, "weight", number_as_given(node_f64(a, s->weight), nrl_node_find(at, "weight")));
    if (s->reader) node_append(a, map, "reader", node_copy(a, s->reader));
    if (s->rows) node_append(a, map, "rows", node_copy(a, s->rows));
    if (s->limit) node_append(a, map, "limit", number_as_given(node_int(a, s->limit), nrl_node_find(at, "limit")));
    if (s->columns) node_append(a, map, "columns", node_copy(a, s->columns));
    if (s->template) node_append(a, map, "template", node_copy(a, s->template));
    const nrl_node *overlong = nrl_node_find(at, "overlong");
    if (overlong) node_append(a, map, "overlong", node_copy(a, overlong));
    node_copy_place(map, at);
    return map;
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

static void add_source(arena *a, config_problems *problems, const char *name, const nrl_node *item, nrl_node *list,
                       nrl_node *resolved)
{
    source s = {.weight = 1};
    const option_part part = OPTION_PART(source_rows, &s);
    const char *word = nrl_node_string(item, NULL);
    const nrl_node *path = word ? item : nrl_node_find(item, "path");
    if (word)
        s.path = node_path(a, item, word);
    else
        options_fill(a, problems, name, item, &part, 1);
    words_only(problems, "data.columns", s.columns, NRL_NODE_MAP);
    if (!s.path) return;
    node_append(a, list, NULL, source_node(a, item, node_text(a, s.path), &s));
    nrl_node *absolute = source_node(a, item, config_path_node(a, path, option_text(path)), &s);
    node_append(a, resolved, NULL, absolute);
    config_choice template;
    choice_read(a, problems, "data.template", s.template, false, &template, absolute, "template");
}

void rules_sources(arena *a, config_problems *problems, const char *name, const nrl_node **sources, nrl_node *resolved)
{
    const nrl_node *given = *sources;
    if (!given) return;
    bool is_list = given->kind == NRL_NODE_LIST;
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    nrl_node *absolute = node_set(a, resolved, strrchr(name, '.') + 1, node_new(a, NRL_NODE_LIST));
    if (is_list && !given->size) problems_add(problems, given, "%s: an empty list", name);
    for (size_t i = 0; i < (is_list ? given->size : 1); i++)
        add_source(a, problems, name, is_list ? nrl_node_at(given, i) : given, list, absolute);
    node_copy_place(list, given);
    *sources = list;
}

/* A file or a list of files, or a number of rows or a share of them to hold out of data.train. */
static void add_eval(arena *a, config_problems *problems, config_data *data, const char *name, const nrl_node *node,
                     nrl_node *resolved)
{
    config_eval_set *e = &data->evals[data->n_evals++];
    const char *label = arena_printf(a, "data.eval%s%s", *name ? "." : "", name);
    const double n = nrl_node_f64(node, 0);
    *e = (config_eval_set){.name = name, .sources = node};
    if (nrl_node_kind(node) != NRL_NODE_INT && nrl_node_kind(node) != NRL_NODE_FLOAT) {
        rules_sources(a, problems, label, &e->sources, resolved);
        return;
    }
    if (!(n > 0) || n > 1e15 || (n >= 1 && n != (double)(int64_t)n))
        problems_add(problems, node,
                     "%s: expected a file, a share of the rows below 1, such as 0.1, a number of rows, or null", label);
    if (data->held_out > 0) problems_add(problems, node, "%s: only one set can be held out of data.train", label);
    e->held_out = data->held_out = n;
    e->sources = data->train;
    node_set(a, resolved, strrchr(label, '.') + 1, node_copy(a, node));
}

void rules_evals(arena *a, config_problems *problems, config_data *data, nrl_node *resolved)
{
    const option_part part = OPTION_PART(source_rows, NULL);
    bool is_named = nrl_node_kind(data->eval) == NRL_NODE_MAP;
    for (size_t i = 0; i < part.n_rows && is_named; i++)
        is_named = !nrl_node_find(data->eval, part.rows[i].name);
    if (!data->eval) return;
    data->evals = arena_alloc(a, (nrl_node_size(data->eval) + 1) * sizeof *data->evals);
    if (!is_named) {
        add_eval(a, problems, data, "", data->eval, resolved);
        return;
    }
    nrl_node *map = node_set(a, resolved, "eval", node_new(a, NRL_NODE_MAP));
    for (size_t i = 0; i < nrl_node_size(data->eval); i++) {
        const char *name = nrl_node_key(data->eval, i);
        const nrl_node *node = nrl_node_at(data->eval, i);
        if (!*name || name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")])
            problems_add(problems, node, "data.eval: '%s': the name of a set can contain letters, digits, _ and -",
                         name);
        else if (nrl_node_kind(node) == NRL_NODE_NULL)
            problems_add(problems, node, "data.eval.%s: expected a file", name);
        else
            add_eval(a, problems, data, name, node, map);
    }
}

static const nrl_option mix_rows[] = {
    NRL_OPT_F64(config_mix, power, "1", -10, 10, "the share of an entry with n rows is n^power; 0: equal shares"),
    NRL_OPT_BOOL(config_mix, even, "false",
                 "each step contains the share of each entry, as far as whole numbers allow"),
};

void rules_data(arena *a, config_problems *problems, config_data *data)
{
    const option_part mix = OPTION_PART(mix_rows, &data->mixed);
    options_fill(a, problems, "data.mix", data->mix, &mix, 1);
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

static const nrl_option offload_rows[] = {
    NRL_OPT_ENUM(config_offload, optimizer, "none", "none|host|disk", "states of the optimizer and fp32 masters"),
    NRL_OPT_ENUM(config_offload, activations, "none", "none|host|disk",
                 "activations that a unit saves for its backward pass"),
    NRL_OPT_STR(config_offload, folder, "", "directory of the files of `disk`; default: out"),
};

void rules_offload(arena *a, config_problems *problems, const nrl_node *node, config_offload *out)
{
    const option_part part = OPTION_PART(offload_rows, out);
    options_fill(a, problems, "train.offload", node, &part, 1);
}

/* ---- the scale of the loss: a word, a number or a map, and only with fp16 ---- */

#define SCALE_LEAST 1e-9
#define SCALE_MOST 1e30

/* The defaults of torch.amp.GradScaler, which has no minimum scale and skips steps forever on NaN. */
static const nrl_option scale_rows[] = {
    NRL_OPT_F64(config_loss_scale, init, "65536", SCALE_LEAST, SCALE_MOST, "scale of the first step"),
    NRL_OPT_F64(config_loss_scale, growth, "2", 1, 1e6, "factor after growth_interval steps without overflow"),
    NRL_OPT_F64(config_loss_scale, backoff, "0.5", 1e-6, 0.99, "factor after a gradient that is not finite"),
    NRL_OPT_INT(config_loss_scale, growth_interval, "2000", 1, 1e12, "steps without overflow until the scale grows"),
    NRL_OPT_F64(config_loss_scale, min, "6.103515625e-5", SCALE_LEAST, SCALE_MOST,
                "a smaller scale ends the run; default: 2^-14"),
};

static void dynamic_scale(arena *a, config_problems *problems, const nrl_node *map, config_loss_scale *out)
{
    const option_part part = OPTION_PART(scale_rows, out);
    options_fill(a, problems, "train.loss_scale", map, &part, 1);
    out->dynamic = true;
    if (out->init < out->min)
        problems_add(problems, map, "train.loss_scale: init %g is below min %g", out->init, out->min);
}

void rules_loss_scale(arena *a, config_problems *problems, const nrl_node *node, bool is_fp16, config_loss_scale *out)
{
    nrl_node_type kind = nrl_node_kind(node);
    double number = nrl_node_f64(node, 0);
    *out = (config_loss_scale){.init = 1};
    if (node && kind != NRL_NODE_NULL && !is_fp16)
        problems_add(problems, node, "train.loss_scale: has no effect without train.precision: fp16");
    else if (!is_fp16)
        return;
    else if (kind == NRL_NODE_MAP || kind == NRL_NODE_NONE || kind == NRL_NODE_NULL ||
             !strcmp(nrl_node_string(node, ""), "dynamic"))
        dynamic_scale(a, problems, kind == NRL_NODE_MAP ? node : NULL, out);
    else if (number >= SCALE_LEAST && number <= SCALE_MOST)
        out->init = number;
    else
        problems_add(problems, node,
                     "train.loss_scale: expected dynamic, a number from %g to %g, or "
                     "{init: 65536, growth: 2, backoff: 0.5, growth_interval: 2000, min: 6.1e-5}",
                     SCALE_LEAST, SCALE_MOST);
}

/* ---- the scales of fp8 ---- */

static const nrl_option fp8_rows[] = {
    NRL_OPT_ENUM(config_fp8, recipe, "delayed", "delayed|current|block",
                 "delayed: from the largest values of earlier steps, as in Transformer Engine; current: from the "
                 "operand itself, which is read once more; block: from each 128 values of inputs and gradients, and "
                 "each 128 x 128 of weights, as in DeepSeek-V3"),
    NRL_OPT_INT(config_fp8, history, "16", 1, 1024, "number of steps whose largest values determine a delayed scale"),
    NRL_OPT_INT(config_fp8, margin, "0", 0, 16,
                "a delayed scale is the largest that these values allow, divided by 2^margin"),
};

void rules_fp8(arena *a, config_problems *problems, const nrl_node *node, bool is_fp8, config_fp8 *out)
{
    const option_part part = OPTION_PART(fp8_rows, out);
    const bool is_set = nrl_node_kind(node) > NRL_NODE_NULL;
    if (is_set && !is_fp8) problems_add(problems, node, "train.fp8: has no effect without train.precision: fp8");
    options_fill(a, problems, "train.fp8", node, &part, 1);
    for (int i = 0; i < 2 && out->recipe != CONFIG_FP8_DELAYED; i++) {
        const nrl_node *unused = nrl_node_find(node, i ? "margin" : "history");
        if (unused)
            problems_add(problems, unused, "train.fp8: recipe %s has no %s",
                         out->recipe == CONFIG_FP8_BLOCK ? "block" : "current", i ? "margin" : "history");
    }
}

/* ---- debug ---- */

enum { DEBUG_EVERY = 10 };

typedef struct {
    int64_t every;
} debug_map;

static const nrl_option debug_rows[] = {
    NRL_OPT_INT(debug_map, every, "10", 1, 1e9, "steps between comparisons of the ranks"),
};

static int64_t rules_debug(arena *a, config_problems *problems, const nrl_node *node)
{
    debug_map m = {0};
    const option_part part = OPTION_PART(debug_rows, &m);
    if (nrl_node_kind(node) == NRL_NODE_MAP) {
        options_fill(a, problems, "debug", node, &part, 1);
        return m.every;
    }
    bool on = false;
    if (node && !option_bool(node, &on)) problems_add(problems, node, "debug: expected true, false or {every: 10}");
    return on ? DEBUG_EVERY : 0;
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

static void check_train(config_problems *problems, const nrl_node *root, const config_run *run)
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
                     "train.micro_batch counts samples and requires data.packing: false");
    if (!by_samples && t->micro_batch_tokens && t->micro_batch_tokens < run->data.max_length)
        problems_add(problems, place(root, "train", "micro_batch_tokens"),
                     "train.micro_batch_tokens: %lld cannot hold a sample of data.max_length %lld",
                     (long long)t->micro_batch_tokens, (long long)run->data.max_length);
    /* An option without effect is an error. */
    const bool is_bf16 = t->precision == CONFIG_BF16 || t->precision == CONFIG_FP8;
    if (t->master == CONFIG_MASTER_SPLIT16 && !is_bf16)
        problems_add(problems, place(root, "train", "master"), "train.master: split16 requires train.precision: bf16");
    if (t->gradients == CONFIG_GRADIENTS_BF16 && !is_bf16)
        problems_add(problems, place(root, "train", "gradients"),
                     "train.gradients: bf16 requires train.precision: bf16");
    if (t->logits == CONFIG_LOGITS_BF16 && !is_bf16)
        problems_add(problems, place(root, "train", "logits"), "train.logits: bf16 requires train.precision: bf16");
    if (t->diverge_factor > 0 && t->diverge_factor <= 1)
        problems_add(problems, place(root, "train", "diverge_factor"),
                     "train.diverge_factor: got %g, expected 0 or a number above 1", t->diverge_factor);
}

static void check_stream(config_problems *problems, const nrl_node *root, const config_run *run)
{
    const config_data *d = &run->data;
    const nrl_node *buffer = nrl_node_find(nrl_node_find(root, "data"), "shuffle_buffer");
    if (is_malformed(root, "data")) return;
    if (!d->streaming && buffer && d->shuffle_buffer != CONFIG_SHUFFLE_BUFFER)
        problems_add(problems, buffer, "data.shuffle_buffer requires data.streaming: true");
    if (!d->streaming) return;
    if (run->train.epochs)
        problems_add(problems, place(root, "train", "epochs"),
                     "train.epochs: the number of rows is not known with data.streaming; expected train.steps");
    if (d->mixed.power != 0 && d->mixed.power != 1)
        problems_add(problems, place(root, "data", "mix"),
                     "data.mix: power %g requires the number of rows, which is not known with data.streaming\n"
                     "hint: with power: 0 the shares are the weights of the entries",
                     d->mixed.power);
    if (d->mixed.even && d->mixed.power != 0)
        problems_add(problems, place(root, "data", "mix"), "data.mix: even requires power: 0 with data.streaming");
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

/* Whether model.KEY exists but is not a text, which was already reported. */
static bool is_no_text(const nrl_node *root, const char *key)
{
    nrl_node_type kind = nrl_node_kind(nrl_node_find(nrl_node_find(root, "model"), key));
    return kind != NRL_NODE_NONE && kind != NRL_NODE_NULL && kind != NRL_NODE_STRING;
}

void rules_run(arena *a, config_problems *problems, const nrl_node *root, config_run *run)
{
    bool path = run->model.path && *run->model.path, config = run->model.config && *run->model.config;
    bool has_model = nrl_node_kind(nrl_node_find(root, "model")) == NRL_NODE_MAP;
    bool exports_best = run->checkpoint.export == CONFIG_EXPORT_BEST;
    if (has_model && path && config)
        problems_add(problems, place(root, "model", "config"),
                     "model: give path or config, not both\n"
                     "hint: on the command line 'model={path: DIR}' replaces the section");
    if (has_model && !path && !config && !is_no_text(root, "path") && !is_no_text(root, "config"))
        problems_add(problems, place(root, "model", "path"), "model: path or config is required");
    check_train(problems, root, run);
    if (run->eval.every && !run->data.eval && !run->eval.samples)
        problems_add(problems, place(root, "eval", "every"), "eval.every requires data.eval or eval.samples");
    if (run->eval.samples && !run->eval.every)
        problems_add(problems, place(root, "eval", "samples"), "eval.samples requires eval.every");
    if (run->eval.early_stop && !run->eval.every)
        problems_add(problems, place(root, "eval", "early_stop"), "eval.early_stop requires eval.every");
    if (exports_best && !run->eval.every)
        problems_add(problems, place(root, "checkpoint", "export"), "checkpoint.export: best requires eval.every");
    if (exports_best && !run->checkpoint.keep_best)
        problems_add(problems, place(root, "checkpoint", "export"),
                     "checkpoint.export: best requires checkpoint.keep_best above 0");
    check_stream(problems, root, run);
    run->debug_every = rules_debug(a, problems, run->debug);
    if (run->out && !*run->out) problems_add(problems, nrl_node_find(root, "out"), "out: empty");
    if (run->out && run->name && !*run->name) run->name = last_part(a, run->out);
}
