/*
 * schema.c - the rows of the core's sections, in the order of the user's guide. Rules between options are in rules.c.
 */
#include "config/schema.h"
#include "config/config.h"
#include "config/rules.h"
#include <string.h>
#include <unistd.h>

#define COUNT_MAX 9007199254740992.0 /* 2^53: exact in a double, so in the range checks */

static const nrl_option model_rows[] = {
    NRL_OPT_PATH(config_model, path, "",
                 "the model: a directory, a name in the hub's cache (org/name), a checkpoint, or a run (its newest "
                 "checkpoint)"),
    NRL_OPT_STR(config_model, format, "", "format plugin that reads path; unset: the one that recognises it"),
    NRL_OPT_PATH(config_model, config, "", "config.json of a model that starts from random weights"),
    NRL_OPT_NODE(
        config_model, tokenizer, "",
        "path of the tokenizer, or {name, path} where name is the plugin that reads it; unset: the model directory"),
    NRL_OPT_NODE(config_model, add_tokens, "",
                 "new tokens, a list of texts or {token: TEXT, special: true}; their embeddings are the mean of all "
                 "others. Existing tokens are skipped"),
    NRL_OPT_INT(config_model, pad_vocab_to_multiple_of, "1", 1, 1 << 20,
                "add unused rows to the embedding and the head until their number is a multiple of this"),
};

const nrl_option adapter_rows[] = {
    NRL_OPT_PATH(config_adapter, use, "", "an adapter on disk to start from; its settings are used"),
    NRL_OPT_ENUM(config_adapter, base, "full", "full|nf4|fp4|int8",
                 "how frozen matrices are stored: in the precision of the run, or quantized as in bitsandbytes (4 "
                 "bits with double quantization, 8 bits by row)"),
    NRL_OPT_NODE(config_adapter, modules_to_save, "",
                 "modules that are trained in full and saved beside the adapters, by the end of their names, such as "
                 "[embed_tokens, lm_head]; a tied head is trained with its embedding"),
};
const size_t adapter_n_rows = sizeof adapter_rows / sizeof *adapter_rows;

static const nrl_option data_rows[] = {
    NRL_OPT_NODE(
        config_data, train, NULL,
        "training data: a path, {path, weight, reader, rows, limit, columns, template, overlong}, or a list of these"),
    NRL_OPT_NODE(config_data, eval, "",
                 "evaluation data, in the same form; a share (0.1) or number of rows of data.train to hold out; or a "
                 "map from names to these, for several sets"),
    NRL_OPT_NODE(config_data, mix, "",
                 "shares of the entries of data.train in an epoch: {power: 0.5, even: true}; the share of an entry "
                 "with n rows is n^power (default 1); with even each step contains these shares"),
    NRL_OPT_INT(config_data, max_length, "1024", 1, COUNT_MAX, "maximum number of tokens of a sample"),
    NRL_OPT_ENUM(config_data, overlong, "error", "error|drop|truncate|split",
                 "what to do with longer samples; split: several samples of at most max_length"),
    NRL_OPT_NODE(config_data, template, "auto",
                 "chat template: auto (the template of the tokenizer), the name of a built-in template, the path of "
                 "a file, or {name, path} where name is the plugin"),
    NRL_OPT_ENUM(config_data, train_on, "answer", "answer|all|last",
                 "trained tokens: all answers, all tokens, or only the last answer of a conversation; messages with "
                 "weight 0 or train false are never trained"),
    NRL_OPT_BOOL(config_data, packing, "true", "pack short samples into one micro-batch"),
    NRL_OPT_BOOL(config_data, prefix_sharing, "true",
                 "compute the prompt of a pair once for both answers; not with train.neftune_alpha"),
    NRL_OPT_BOOL(config_data, shuffle, "true", "shuffle by seed and epoch; false: keep the order of the file"),
    NRL_OPT_ENUM(config_data, last_batch, "keep", "keep|drop",
                 "whether to keep the incomplete batch at the end of an epoch"),
    NRL_OPT_NODE(config_data, columns, "", "renames columns, such as {prompt: question}"),
    NRL_OPT_NODE(config_data, extra, "", "list of numeric columns that are passed to the loss"),
    NRL_OPT_INT(config_data, workers, "1", 1, 1024, "threads that tokenize"),
    NRL_OPT_INT(config_data, prefetch, "1", 0, 64, "steps that are prepared in advance"),
    NRL_OPT_PATH(config_data, cache, "", "directory of the token cache; unset: in the output directory"),
    NRL_OPT_BOOL(config_data, streaming, "false",
                 "read data.train during training, without a token cache: for files that are too large to index, and "
                 "for pipes; requires train.steps"),
    NRL_OPT_INT(config_data, shuffle_buffer, "10000", 1, INT32_MAX / 2,
                "with streaming: number of samples that are held in memory and shuffled"),
};

static const nrl_option train_rows[] = {
    NRL_OPT_INT(config_train, steps, "0", 0, COUNT_MAX,
                "number of optimizer steps; either steps or epochs is required"),
    NRL_OPT_INT(config_train, epochs, "0", 0, COUNT_MAX,
                "number of passes over the data; either steps or epochs is required"),
    NRL_OPT_INT(config_train, global_batch, "8", 1, INT32_MAX, "samples per step over all ranks, before packing"),
    NRL_OPT_INT(config_train, micro_batch_tokens, "4096", 1, INT32_MAX,
                "tokens per forward pass; determines gradient accumulation; auto: the fastest size that fits into "
                "memory, see `nrl plan`"),
    NRL_OPT_INT(config_train, micro_batch, "0", 0, INT32_MAX,
                "samples per forward pass if data.packing is false; 0: use micro_batch_tokens"),
    NRL_OPT_ENUM(
        config_train, precision, "fp32", "fp32|bf16|fp16|fp8",
        "precision of weights and activations; master weights and sums are fp32. bf16 is several times as fast on a "
        "GPU. fp8: as bf16, but linear layers round their operands to 8 bits"),
    NRL_OPT_NODE(config_train, loss_scale, "",
                 "with fp16: dynamic (the default), a number, or {init: 65536, growth: 2, backoff: 0.5, "
                 "growth_interval: 2000, min: 6.1e-5}"),
    NRL_OPT_NODE(config_train, fp8, "",
                 "with fp8: {recipe: delayed, history: 16, margin: 0} computes scales from the largest values of the "
                 "last steps, {recipe: current} from the operand itself, {recipe: block} from each of its blocks"),
    NRL_OPT_ENUM(config_train, master, "fp32", "fp32|split16",
                 "with bf16: fp32 master weights, or (split16) only the 16 bits that rounding removes, which saves 2 "
                 "bytes per parameter with identical results"),
    NRL_OPT_ENUM(config_train, gradients, "fp32", "fp32|bf16",
                 "with bf16: precision of stored gradients; each micro-batch is summed in fp32, then rounded and "
                 "added, so fewer micro-batches per step are more precise"),
    NRL_OPT_NODE(config_train, trainable, "[]",
                 "parameters to train; all others are frozen: a list of name patterns such as '*.norm.weight'"),
    NRL_OPT_NODE(config_train, freeze, "[]", "parameters to freeze: a list of name patterns, applied after trainable"),
    NRL_OPT_F64(config_train, neftune_alpha, "0", 0, 1e6,
                "NEFTune: adds noise of up to alpha / sqrt(length * width) to the token embeddings of a sample"),
    NRL_OPT_ENUM(config_train, logits, "fp32", "fp32|bf16",
                 "with bf16: precision of logits; log-probs and sums are always fp32. bf16 uses a third of the "
                 "memory and rounds each logit to 8 bits of precision"),
    NRL_OPT_BOOL(config_train, recompute_cheap, "true",
                 "recompute norms and gated activations in the backward pass; false: keep their results, which takes "
                 "up to half more activation memory and less time, with identical results"),
    NRL_OPT_INT(config_train, logits_mb, "512", 0, 1 << 20,
                "MiB of logits of a micro-batch that are kept until the backward pass if a loss needs whole batches; "
                "others are recomputed with identical results"),
    NRL_OPT_BOOL(config_train, deterministic, "true",
                 "equal configs give bit-identical results on one machine; false: the backend may use faster sums in "
                 "a varying order (see `nrl describe BACKEND`)"),
    NRL_OPT_INT(config_train, seed, "1", 0, COUNT_MAX, "seed of the data order, random weights and sampling"),
    NRL_OPT_ENUM(config_train, nan, "stop", "stop|skip", "what to do if the loss or the gradient is not finite"),
    NRL_OPT_INT(config_train, nan_limit, "10", 1, COUNT_MAX, "stop after this many skipped steps in a row"),
    NRL_OPT_NODE(
        config_train, offload, "",
        "{optimizer: disk} keeps optimizer states and fp32 masters in a file, {activations: disk} activations; host: "
        "in host memory; none: on the device. folder: directory of the files, default: out. With optimizer: host "
        "or disk, checkpoints are written synchronously"),
    NRL_OPT_ENUM(config_train, on_oom, "stop", "stop|retry",
                 "what to do if a rank runs out of memory in the forward or backward pass; retry: all ranks repeat "
                 "the step with half of micro_batch_tokens (or micro_batch), down to one sample"),
    NRL_OPT_ENUM(
        config_train, leak_check, "warn", "off|warn|stop",
        "what to do if the memory in use after a step (tensors, or the host's heap) grows steadily; growth from "
        "longer samples, saves and evaluations does not count"),
    NRL_OPT_F64(config_train, diverge_factor, "100", 0, 1e15,
                "the run has diverged (exit 3) if its loss exceeds its first loss (at least 1) by this factor for 10 "
                "steps in a row or at the end; 0: off"),
    NRL_OPT_BOOL(config_train, check_gradient, "true",
                 "stop if the first gradient is 0, for example because the loss is detached from the model"),
    NRL_OPT_NODE(config_train, activation_checkpointing, "none",
                 "layers that recompute activations in the backward pass: none, all, {every: 4}, {ratio: 0.5} or "
                 "{layers: [0, 4]}; auto: as many as memory requires, see `nrl plan`"),
};

static const nrl_option eval_rows[] = {
    NRL_OPT_INT(config_eval, every, "0", 0, COUNT_MAX, "steps between evaluations; 0: none"),
    NRL_OPT_INT(config_eval, early_stop, "0", 0, COUNT_MAX,
                "stop after this many evaluations without a better checkpoint.metric; 0: off"),
    NRL_OPT_NODE(config_eval, samples, "",
                 "generate text at each evaluation: {prompts: FILE or a list, n, max_tokens, temperature, top_p, "
                 "top_k, seed, limit, chat, match}; rows with an `answer` give eval_exact_match"),
};

static const nrl_option checkpoint_rows[] = {
    NRL_OPT_INT(config_checkpoint, every, "500", 0, COUNT_MAX, "steps between saves; 0: off"),
    NRL_OPT_F64(config_checkpoint, every_minutes, "0", 0, 1e6, "minutes between saves; 0: off"),
    NRL_OPT_INT(config_checkpoint, keep, "3", 0, COUNT_MAX, "number of newest checkpoints to keep; 0: all"),
    NRL_OPT_INT(config_checkpoint, keep_best, "1", 0, COUNT_MAX,
                "number of best checkpoints to keep in addition, by metric; a new best checkpoint is saved right "
                "after its evaluation"),
    NRL_OPT_STR(
        config_checkpoint, metric, "auto",
        "metric of an evaluation that ranks checkpoints: eval_loss, or eval_NAME for a metric of a plugin; auto: the "
        "metric that the algorithm declares, or else eval_loss"),
    NRL_OPT_ENUM(
        config_checkpoint, metric_mode, "auto", "auto|min|max",
        "whether a smaller or a larger metric is better; auto: as the plugin declares it, and min for eval_loss"),
    NRL_OPT_BOOL(config_checkpoint, save_at_start, "true",
                 "reserve disk space for a save before the first step, so that a full disk is noticed early"),
    NRL_OPT_ENUM(config_checkpoint, export, "last", "none|last|best",
                 "weights that are exported to OUT/model at the end; best: those of the best evaluation, which are "
                 "saved even if every is 0"),
    NRL_OPT_STR(config_checkpoint, export_format, "",
                "format plugin that writes OUT/model; unset: the format of model.path, or else the first that can "
                "write"),
    NRL_OPT_ENUM(config_checkpoint, export_dtype, "auto", "auto|f32|bf16|f16",
                 "dtype of OUT/model; auto: the dtype in the model's config.json, or else train.precision"),
    NRL_OPT_BOOL(config_checkpoint, async, "true",
                 "continue training while a checkpoint is written; needs memory for a copy of the state"),
    NRL_OPT_INT(config_checkpoint, threads, "1", 1, 64, "threads per rank that compress or decode"),
    NRL_OPT_ENUM(config_checkpoint, on_error, "stop", "stop|warn", "what to do if a save fails"),
    NRL_OPT_ENUM(config_checkpoint, mismatch, "stop", "stop|warn",
                 "what to do on resume if the model, data, tokenizer, script or a compared option (listed in each "
                 "section) differs from the checkpoint"),
    NRL_OPT_ENUM(config_checkpoint, fallback, "none", "none|previous",
                 "resume=auto with a damaged newest checkpoint: fail, or use the previous one"),
    NRL_OPT_PATH(config_checkpoint, sign, "",
                 "secret key file (`nrl checkpoint keygen FILE`) that signs each checkpoint; only rank 0 reads it"),
    NRL_OPT_PATH(config_checkpoint, public_key, "",
                 "public key file: checkpoints that the run reads (resume, model.path, reference_model) must be signed "
                 "by this key"),
};

static const nrl_option script_rows[] = {
    NRL_OPT_BOOL(config_script, sandbox, "false",
                 "hide os, io, debug, package, require, load, loadfile and dofile from hooks and losses"),
    NRL_OPT_INT(config_script, loss_instructions, "200000000", 10000, COUNT_MAX,
                "maximum number of Lua instructions per call of a loss"),
    NRL_OPT_INT(config_script, loss_memory_mb, "1024", 1, 1 << 20,
                "maximum MiB per call of a loss, for Lua and for tensors"),
};

static const nrl_option launch_rows[] = {
    NRL_OPT_F64(config_launch, timeout_init, "300", 1, 86400, "seconds for all ranks to join"),
    NRL_OPT_F64(config_launch, timeout_step, "1800", 1, 604800,
                "seconds that a rank waits in one call for other ranks that are alive"),
    NRL_OPT_NODE(config_launch, nodes, "", "hosts for `nrl launch`: [{address, slots, gpus}]"),
};

/* Sections and component slots, before they are read. */
typedef struct {
    const nrl_node *model, *adapter, *data, *algorithm, *train, *optimizer, *schedule, *parallel, *backend;
    const nrl_node *checkpoint, *eval, *script, *loggers, *plugins, *collective, *store, *launch, *cluster;
} top_nodes;

static const nrl_option top_node_rows[] = {
    NRL_OPT_NODE(top_nodes, model, NULL, "the model"),
    NRL_OPT_NODE(top_nodes, adapter, "",
                 "component: train a small number of additional parameters and freeze the model; a section named "
                 "after an adapter plugin is a short form"),
    NRL_OPT_NODE(top_nodes, data, NULL, "the data"),
    NRL_OPT_NODE(top_nodes, algorithm, "", "component: the loss; unset: the default algorithm"),
    NRL_OPT_NODE(top_nodes, train, "", "length, batch size and precision"),
    NRL_OPT_NODE(top_nodes, optimizer, NULL, "component: the optimizer, with lr and clip_norm"),
    NRL_OPT_NODE(top_nodes, schedule, "", "component: the learning-rate schedule; unset: the default schedule"),
    NRL_OPT_NODE(top_nodes, parallel, "default",
                 "component: the parallel strategy (default: the default strategy if there are several ranks; auto: "
                 "see `nrl plan`), or {AXIS: RANKS, AXIS: STRATEGY, AXIS: {name, size, options}}"),
    NRL_OPT_NODE(top_nodes, collective, "auto", "component: communication between ranks"),
    NRL_OPT_NODE(top_nodes, store, "auto",
                 "component: the store through which ranks join (auto: the plugin for the launcher's address)"),
    NRL_OPT_NODE(top_nodes, launch, "", "timeouts and hosts of ranks"),
    NRL_OPT_NODE(top_nodes, cluster, "", "the cluster job of the run, for `nrl cluster`; the run itself ignores it"),
    NRL_OPT_NODE(top_nodes, backend, "auto", "component: the device"),
    NRL_OPT_NODE(top_nodes, checkpoint, "", "when to save, and what to keep"),
    NRL_OPT_NODE(top_nodes, eval, "", "when to evaluate"),
    NRL_OPT_NODE(top_nodes, script, "", "limits for the hooks and losses of a script"),
    NRL_OPT_NODE(top_nodes, loggers, "", "components: destinations of the records; unset: the default loggers"),
    NRL_OPT_NODE(top_nodes, plugins, "",
                 "directories that are searched for plugins before the installed ones; or {folders: [DIR], allow: "
                 "[NAME, sha256:HASH]}, which permits only these in addition to the installed ones"),
};

static const nrl_option top_rows[] = {
    NRL_OPT_STR(config_run, resume, "never",
                "never, auto (the newest checkpoint in out, or a new run if there is none), or a checkpoint such as "
                "RUN@STEP; later checkpoints of out are then moved to OUT/checkpoints/after-STEP.1"),
    NRL_OPT_STR(config_run, out, NULL, "output directory of the run, relative to the working directory"),
    NRL_OPT_BOOL(config_run, overwrite, "false", "replace the files of earlier runs in out, unless the run is resumed"),
    NRL_OPT_NODE(config_run, debug, "false",
                 "compare parameters between ranks every 10 steps (or {every: n}) and log details of their groups"),
    NRL_OPT_STR(config_run, name, "", "name of the run for loggers; unset: the last part of out"),
};

#define SECTION(name, rows, help)                                                                                      \
    {                                                                                                                  \
        (name), (help), (rows), sizeof(rows) / sizeof *(rows)                                                          \
    }
static const config_section sections[] = {
    SECTION("", top_node_rows, "sections and components"),
    SECTION("", top_rows, "the run as a whole"),
    SECTION("model", model_rows, "the model: path or config"),
    SECTION("adapter", adapter_rows, "options of every adapter; the adapter plugin has further options"),
    SECTION("data", data_rows, "the data"),
    SECTION("train", train_rows, "length, batch size and precision"),
    SECTION("checkpoint", checkpoint_rows, "when to save, and what to keep"),
    SECTION("eval", eval_rows, "when to evaluate"),
    SECTION("script", script_rows, "limits for the hooks and losses of a script"),
    SECTION("launch", launch_rows, "timeouts and hosts of ranks"),
};

const config_section *config_sections(size_t *n)
{
    *n = sizeof sections / sizeof *sections;
    return sections;
}

/* ---- filling ---- */

typedef struct {
    arena *a;
    config_problems *problems;
    nrl_node *resolved;
} filler;

/* Fills one section from its parts and adds it to the resolved config. */
static nrl_node *fill_section(const filler *f, const char *name, const nrl_node *node, const option_part *parts,
                              size_t n_parts)
{
    options_fill(f->a, f->problems, name, node, parts, n_parts);
    nrl_node *resolved = node_new(f->a, NRL_NODE_MAP);
    options_resolve(f->a, node, parts, n_parts, resolved);
    return node_set(f->a, f->resolved, name, resolved);
}

static void fill_component(const filler *f, const char *name, const nrl_node *node, const char *fallback,
                           config_component *out)
{
    component_read(f->a, f->problems, name, node, fallback, out);
    if (out->resolved) node_set(f->a, f->resolved, name, out->resolved);
}

static const nrl_node *item_of(const nrl_node *list, size_t i)
{
    return nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_at(list, i) : list;
}

static size_t items_of(const nrl_node *list)
{
    if (nrl_node_kind(list) == NRL_NODE_LIST) return nrl_node_size(list);
    return nrl_node_kind(list) > NRL_NODE_NULL;
}

static void fill_loggers(const filler *f, const nrl_node *node, config_run *out)
{
    size_t n = items_of(node);
    nrl_node *resolved = node_set(f->a, f->resolved, "loggers", node_new(f->a, NRL_NODE_LIST));
    out->loggers = arena_alloc(f->a, n * sizeof *out->loggers);
    out->loggers_unset = nrl_node_kind(node) <= NRL_NODE_NULL;
    for (size_t i = 0; i < n; i++) {
        config_component *c = &out->loggers[out->n_loggers];
        component_read(f->a, f->problems, "loggers", item_of(node, i), NULL, c);
        if (!c->name) continue;
        node_append(f->a, resolved, NULL, c->resolved);
        out->n_loggers++;
    }
}

typedef struct {
    const nrl_node *folders, *allow;
} plugins_map;

static const nrl_option plugins_rows[] = {
    NRL_OPT_NODE(plugins_map, folders, "", "directories that are searched for plugins before the installed ones"),
    NRL_OPT_NODE(plugins_map, allow, "",
                 "plugins that may be opened in addition to the installed ones: NAME, KIND/NAME, sha256:HASH"),
};

/* Checks the form of hashes, because a malformed hash would never match a file. */
static bool is_allow_word(const char *text)
{
    static const char hash[] = "sha256:";
    size_t n = sizeof hash - 1;
    if (!text || !*text) return false;
    return strncmp(text, hash, n) || (strlen(text + n) == 64 && strspn(text + n, "0123456789abcdef") == 64);
}

static void fill_folders(const filler *f, const nrl_node *list, nrl_node *resolved, config_run *out)
{
    out->plugins = arena_alloc(f->a, (items_of(list) + 1) * sizeof *out->plugins);
    out->plugin_folders = list;
    for (size_t i = 0; i < items_of(list); i++) {
        const nrl_node *item = item_of(list, i);
        const char *path = nrl_node_string(item, NULL);
        if (!path) {
            problems_add(f->problems, item, "plugins: expected the path of a directory");
            continue;
        }
        out->plugins[out->n_plugins++] = node_path(f->a, item, path);
        node_append(f->a, resolved, NULL, config_path_node(f->a, item, path));
    }
}

static void fill_allow(const filler *f, const nrl_node *list, nrl_node *resolved, config_run *out)
{
    out->plugins_allow = arena_alloc(f->a, (items_of(list) + 1) * sizeof *out->plugins_allow);
    for (size_t i = 0; i < items_of(list); i++) {
        const char *word = nrl_node_string(item_of(list, i), NULL);
        if (!is_allow_word(word)) {
            problems_add(f->problems, item_of(list, i),
                         "plugins.allow: expected NAME, KIND/NAME or sha256: and 64 hex digits");
            continue;
        }
        out->plugins_allow[out->n_plugins_allow++] = word;
        node_append(f->a, resolved, NULL, node_text(f->a, word));
    }
}

/* Reads a map, or a list, which is short for {folders: list} and stays a list in the resolved config. */
static void fill_plugins(const filler *f, const nrl_node *node, config_run *out)
{
    plugins_map m = {.folders = node};
    const option_part part = OPTION_PART(plugins_rows, &m);
    nrl_node *folders = node_new(f->a, NRL_NODE_LIST);
    bool is_map = nrl_node_kind(node) == NRL_NODE_MAP;
    if (is_map) {
        m.folders = NULL;
        options_fill(f->a, f->problems, "plugins", node, &part, 1);
    }
    fill_folders(f, m.folders, folders, out);
    if (nrl_node_kind(m.allow) <= NRL_NODE_NULL) {
        node_set(f->a, f->resolved, "plugins", folders);
        return;
    }
    nrl_node *map = node_set(f->a, f->resolved, "plugins", node_new(f->a, NRL_NODE_MAP));
    node_append(f->a, map, "folders", folders);
    fill_allow(f, m.allow, node_set(f->a, map, "allow", node_new(f->a, NRL_NODE_LIST)), out);
}

static void fill_sections(const filler *f, const top_nodes *n, config_run *out)
{
    const option_part model = OPTION_PART(model_rows, &out->model);
    const option_part data = OPTION_PART(data_rows, &out->data);
    const option_part train = OPTION_PART(train_rows, &out->train);
    const option_part launch = OPTION_PART(launch_rows, &out->launch);
    const option_part eval = OPTION_PART(eval_rows, &out->eval);
    const option_part checkpoint = OPTION_PART(checkpoint_rows, &out->checkpoint);
    const option_part script = OPTION_PART(script_rows, &out->script);
    nrl_node *resolved = fill_section(f, "model", n->model, &model, 1);
    choice_read(f->a, f->problems, "model.tokenizer", out->model.tokenizer, true, &out->model.tokenizer_from, resolved,
                "tokenizer");
    if (n->data) { /* a missing section was already reported; its options are not reported too */
        resolved = fill_section(f, "data", n->data, &data, 1);
        rules_sources(f->a, f->problems, "data.train", &out->data.train, resolved);
        rules_evals(f->a, f->problems, &out->data, resolved);
        rules_data(f->a, f->problems, &out->data);
        choice_read(f->a, f->problems, "data.template", out->data.template, false, &out->data.template_from, resolved,
                    "template");
    }
    fill_component(f, "algorithm", n->algorithm, "", &out->algorithm);
    fill_section(f, "train", n->train, &train, 1);
    rules_offload(f->a, f->problems, out->train.offload, &out->train.offloaded);
    rules_recompute(f->a, f->problems, out->train.activation_checkpointing, &out->train.recompute);
    rules_loss_scale(f->a, f->problems, out->train.loss_scale, out->train.precision == CONFIG_FP16, &out->train.scale);
    rules_fp8(f->a, f->problems, out->train.fp8, out->train.precision == CONFIG_FP8, &out->train.fp8_scaling);
    fill_component(f, "optimizer", n->optimizer, "", &out->optimizer);
    fill_component(f, "schedule", n->schedule, "", &out->schedule);
    out->parallel = n->parallel;
    node_set(f->a, f->resolved, "parallel", node_new(f->a, NRL_NODE_MAP)); /* filled by config_axes */
    fill_component(f, "collective", n->collective, "auto", &out->collective);
    fill_component(f, "store", n->store, "auto", &out->store);
    fill_section(f, "launch", n->launch, &launch, 1);
    fill_component(f, "backend", n->backend, "auto", &out->backend);
    fill_section(f, "checkpoint", n->checkpoint, &checkpoint, 1);
    if (out->train.offloaded.optimizer) out->checkpoint.async = false; /* which takes memory for a copy */
    fill_section(f, "eval", n->eval, &eval, 1);
    fill_section(f, "script", n->script, &script, 1);
    fill_loggers(f, n->loggers, out);
    fill_plugins(f, n->plugins, out);
}

void config_fill(arena *a, config_problems *problems, const nrl_node *root, config_run *out)
{
    top_nodes nodes = {0};
    const option_part parts[] = {OPTION_PART(top_node_rows, &nodes), OPTION_PART(top_rows, out)};
    filler f = {a, problems, node_new(a, NRL_NODE_MAP)};
    *out = (config_run){.resolved = f.resolved};
    root = rules_auto(a, problems, root);
    options_fill_known(a, problems, "", root, parts, 2);
    fill_sections(&f, &nodes, out);
    rules_run(a, problems, root, out);
    options_resolve(a, root, &parts[1], 1, f.resolved);
}

void config_fill_adapter(arena *a, config_problems *problems, const nrl_node *root, const char *section,
                         config_run *run)
{
    const option_part parts[] = {OPTION_PART(top_node_rows, NULL), OPTION_PART(top_rows, NULL)};
    config_component *c = &run->adapter.component;
    run->adapter = (config_adapter){.section = section, .use = ""};
    options_check_keys(a, problems, "", root, parts, 2);
    component_read(a, problems, section, nrl_node_find(root, "adapter"), NULL, c);
    if (c->resolved) node_set(a, run->resolved, "adapter", c->resolved);
}

/* ---- a section that is named after an adapter plugin ---- */

static bool is_typed(const nrl_node *n)
{
    return n && n->source && !strcmp(n->source, config_command_line);
}

/* Merges the section of an adapter into the component `to`. The command line overrides files; the order of two files is
 * not known here, so an option that both have is a mistake. `key` is the place of the options in the section. */
static void fold_options(arena *a, config_problems *problems, const char *section, const char *key, nrl_node *to,
                         const nrl_node *own)
{
    for (size_t i = 0; i < nrl_node_size(own); i++) {
        const nrl_node *mine = nrl_node_at(own, i);
        nrl_node *other = (nrl_node *)nrl_node_find(to, nrl_node_key(own, i));
        const char *name = arena_printf(a, "%s.%s", key, nrl_node_key(own, i));
        if (nrl_node_kind(mine) == NRL_NODE_MAP && nrl_node_kind(other) == NRL_NODE_MAP)
            fold_options(a, problems, section, name, other, mine);
        else if (!other || (is_typed(mine) && !is_typed(other)))
            node_set(a, to, nrl_node_key(own, i), node_copy(a, mine));
        else if (is_typed(mine) == is_typed(other) && problems)
            problems_add(problems, mine, "%s%s: %s also has the option adapter%s; expected one of them", section, name,
                         nrl_node_place(other), name);
    }
}

static const nrl_node *fold_one(arena *a, config_problems *problems, const char *name, const nrl_node *root)
{
    nrl_node *own = node_copy(a, nrl_node_find(root, name)), *tree = node_without(a, root, name);
    const nrl_node *adapter = nrl_node_find(tree, "adapter");
    const nrl_node *word = nrl_node_kind(adapter) == NRL_NODE_MAP ? nrl_node_find(adapter, "name") : adapter;
    const char *other = nrl_node_string(word, NULL);
    bool is_other = other && strcmp(other, name), is_off = nrl_node_kind(adapter) == NRL_NODE_NULL;
    if (is_typed(adapter) && !is_typed(own) && (is_off || own->kind == NRL_NODE_NULL)) return tree;
    if (own->kind == NRL_NODE_NULL) { /* switched off */
        if (!is_other) node_set(a, tree, "adapter", own);
        return tree;
    }
    if (own->kind != NRL_NODE_MAP || is_other) {
        if (!problems) return tree;
        if (is_other)
            problems_add(problems, own,
                         "%s: the config also has the adapter '%s'; expected one adapter\n"
                         "hint: %s=null removes this one",
                         name, other, name);
        else
            problems_add(problems, own, "%s: expected a map of options, found %s", name, node_kind_name(own->kind));
        return tree;
    }
    const bool has_options = nrl_node_kind(adapter) == NRL_NODE_MAP;
    nrl_node *map = has_options ? node_copy(a, adapter) : node_new(a, NRL_NODE_MAP);
    node_copy_place(map, own);
    fold_options(a, problems, name, "", map, own);
    if (!nrl_node_find(map, "name")) node_append_text(a, map, "name", name);
    node_set(a, tree, "adapter", map);
    return tree;
}

const nrl_node *config_fold_adapter(arena *a, config_problems *problems, const char *const *names, size_t n,
                                    const nrl_node *root, const char **section)
{
    *section = "adapter";
    for (size_t i = 0; i < n; i++) {
        if (!nrl_node_find(root, names[i])) continue;
        root = fold_one(a, problems, names[i], root);
        *section = names[i];
    }
    return root;
}
