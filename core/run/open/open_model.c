/*
 * open_model.c - creates the model of a run from config.json and checks whether the weights fit it. The weights are
 * read later, when there is a device.
 */
#include "base/json.h"
#include "model/find.h"
#include "run/open/session.h"
#include <fnmatch.h>
#include <string.h>

/* Adds the file, line and column where the config has `key` in `section` to an error. */
static nrl_status at_key(const session *se, const char *section, const char *key, nrl_status st)
{
    const nrl_node *at = nrl_node_find(nrl_node_find(se->tree, section), key);
    if (st != NRL_OK && at) nrl_add_context("%s", nrl_node_place(at));
    return st;
}

/* model.path is a directory, org/name or a checkpoint; model.config a config.json of its own. */
static nrl_status read_config(session *se, const nrl_node **out)
{
    const config_model *m = &se->config.model;
    format_scope formats = se->formats;
    se->origin.formats = &se->formats;
    se->origin.signer = se->public_key;
    se->origin.seed = (uint64_t)se->config.train.seed;
    formats.name = m->format;
    if (*m->path) {
        se->origin.formats = &formats;
        nrl_status st = origin_find(m->path, &se->model_memory, &se->origin, out);
        se->origin.formats = &se->formats;
        NRL_TRY(at_key(se, "model", "path", st));
        NRL_TRY(origin_tokenizer(&se->origin, &se->memory, &se->tokenizer_dir, &se->new_tokens));
        /* New tokens belong to the tokenizer of the model. */
        if (m->tokenizer_from.name || m->tokenizer_from.source) se->new_tokens = NULL;
        return NRL_OK;
    }
    return at_key(se, "model", "config", weights_read_config(&formats, m->config, &se->model_memory, out));
}

/* model.add_tokens and model.pad_vocab_to_multiple_of: the model gets as many rows as they need, never fewer. */
static nrl_status resize_vocabulary(session *se, const nrl_node **config)
{
    const config_model *m = &se->config.model;
    const int64_t old = nrl_node_int(nrl_node_find(*config, "vocab_size"), 0), multiple = m->pad_vocab_to_multiple_of;
    int64_t rows = old;
    if (nrl_node_kind(m->add_tokens) > NRL_NODE_NULL && nrl_node_kind(m->add_tokens) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_CONFIG, "%s: model.add_tokens: expected a list of texts",
                        nrl_node_place(m->add_tokens));
    if (nrl_node_size(m->add_tokens)) {
        if (!se->new_tokens) se->new_tokens = node_new(&se->memory, NRL_NODE_LIST);
        for (size_t i = 0; i < nrl_node_size(m->add_tokens); i++)
            node_append(&se->memory, se->new_tokens, NULL, node_copy(&se->memory, nrl_node_at(m->add_tokens, i)));
        NRL_TRY(at_key(se, "model", "add_tokens", session_open_tokenizer(se)));
        if (!se->tokenizer)
            return at_key(
                se, "model", "add_tokens",
                nrl_fail(NRL_ERR_CONFIG, "model.add_tokens: the model has no tokenizer; set model.tokenizer"));
        if (se->tokenizer->info.vocab_size > rows) rows = se->tokenizer->info.vocab_size;
    }
    rows = (rows + multiple - 1) / multiple * multiple;
    if (rows == old || old < 1) return NRL_OK; /* a model without vocab_size is refused by its plugin */
    if (se->origin.checkpoint)
        return at_key(se, "model", "path",
                      nrl_fail(NRL_ERR_CONFIG, "cannot add rows to the vocabulary of a checkpoint\n"
                                               "hint: `nrl export` it, and set model.path to the exported model"));
    nrl_node *resized = node_copy(&se->model_memory, *config);
    node_set(&se->model_memory, resized, "vocab_size", node_int(&se->model_memory, rows));
    *config = resized;
    if (se->origin.dir) se->origin.rows = old;
    telemetry_log(se->telemetry, "vocabulary %lld rows instead of %lld; %s", (long long)rows, (long long)old,
                  se->origin.dir ? "each new one is the mean of the others" : "all are random");
    return NRL_OK;
}

/* Limits the default, which is for models with a longer context. The resolved config says so too. */
static void lower_max_length(session *se, int64_t most)
{
    nrl_node *data = (nrl_node *)nrl_node_find(se->config.resolved, "data");
    telemetry_log(se->telemetry, "data.max_length is %lld, the positions of the model (default: %lld)", (long long)most,
                  (long long)se->config.data.max_length);
    se->config.data.max_length = most;
    if (data) node_set(&se->memory, data, "max_length", node_int(&se->memory, most));
}

/* Parameters that the algorithm declares. */
static nrl_status add_params(session *se)
{
    const nrl_algorithm *a = se->algorithm;
    nrl_algorithm_model add = {.size = sizeof add};
    if (!a->model) return NRL_OK;
    nrl_status st = a->model(se->algorithm_self, se->model->config, &se->model->info, &add);
    if (st == NRL_OK) st = model_extend(se->model, &add);
    if (st != NRL_OK) nrl_add_context("algorithm '%s'", a->plugin.name);
    NRL_TRY(st);
    nrl_param **list = arena_alloc(&se->memory, (size_t)(add.n_params + 1) * sizeof *list);
    for (int32_t i = 0; i < add.n_params; i++)
        list[i] = model_param(se->model, nrl_algorithm_param(&add, i)->name);
    a->bind(se->algorithm_self, list);
    return NRL_OK;
}

/* Patterns of train.trainable and then of train.freeze. */
static nrl_status choose_trained(session *se)
{
    static const char *const keys[] = {"trainable", "freeze"};
    const nrl_node *const lists[] = {se->config.train.trainable, se->config.train.freeze};
    model *m = se->model;
    for (int k = 0; k < 2; k++) {
        if (nrl_node_kind(lists[k]) > NRL_NODE_NULL && nrl_node_kind(lists[k]) != NRL_NODE_LIST)
            return nrl_fail(NRL_ERR_CONFIG, "%s: train.%s: expected a list of patterns", nrl_node_place(lists[k]),
                            keys[k]);
        for (size_t j = 0; j < nrl_node_size(lists[k]); j++) {
            const nrl_node *at = nrl_node_at(lists[k], j);
            const char *pattern = nrl_node_string(at, "");
            bool any = false;
            for (int32_t i = 0; i < m->n_own; i++) {
                nrl_param *p = m->params[i];
                bool matches = !fnmatch(pattern, p->name, 0);
                any = any || matches;
                if (!k && !j && !p->saved_whole) p->trained = false;
                if (matches) p->trained = !k;
            }
            if (!any || se->adapter)
                return nrl_fail(NRL_ERR_CONFIG, "%s: train.%s: '%s' %s%s", nrl_node_place(at), keys[k], pattern,
                                any ? "has no effect with " : "matches no parameter, such as ",
                                any ? se->config.adapter.section : m->params[m->n_own / 2]->name);
        }
    }
    return model_n_trained(m) ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "train.freeze: nothing is left to train");
}

/* optimizer.lr_ratios */
static nrl_status set_lr_ratios(session *se)
{
    const nrl_node *map = se->optimizer_options.lr_ratios;
    model *m = se->model;
    if (nrl_node_kind(map) > NRL_NODE_NULL && nrl_node_kind(map) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_CONFIG, "%s: optimizer.lr_ratios: expected a map {PATTERN: RATIO}",
                        nrl_node_place(map));
    for (size_t k = 0; k < nrl_node_size(map); k++) {
        const char *pattern = nrl_node_key(map, k), *place = nrl_node_place(nrl_node_at(map, k)), *trained = "";
        const double ratio = nrl_node_f64(nrl_node_at(map, k), -1);
        bool any = false;
        if (!(ratio > 0 && ratio <= 1e6))
            return nrl_fail(NRL_ERR_CONFIG, "%s: optimizer.lr_ratios: '%s': expected a number above 0 and at most 1e6",
                            place, pattern);
        for (int32_t i = 0; i < m->n_params; i++) {
            nrl_param *p = m->params[i];
            if (!p->trained) continue;
            trained = p->name;
            if (fnmatch(pattern, p->name, 0)) continue;
            p->lr_ratio = ratio;
            any = true;
        }
        if (!any)
            return nrl_fail(NRL_ERR_CONFIG, "%s: optimizer.lr_ratios: '%s' matches no trained parameter, such as %s",
                            place, pattern, trained);
    }
    return NRL_OK;
}

nrl_status session_open_model(session *se)
{
    const nrl_node *config;
    const nrl_model *table;
    NRL_TRY(read_config(se, &config));
    NRL_TRY(resize_vocabulary(se, &config));
    NRL_TRY(model_find(se->host, config, &table));
    NRL_TRY(model_create(table, config, &se->model));
    NRL_TRY(add_params(se));
    if (se->model->drops_head && !work_needs(se->algorithm, "hidden"))
        return at_key(se, "model", "path",
                      nrl_fail(NRL_ERR_CONFIG,
                               "algorithm '%s' reads logits, but the model has a score head instead of an output layer",
                               se->algorithm->plugin.name));
    NRL_TRY(choose_trained(se));
    NRL_TRY(open_adapter(se));
    NRL_TRY(set_lr_ratios(se));
    const nrl_param *head = se->model->head.weight;
    if (se->origin.rows && !head->trained && session_is_rank0(se))
        nrl_warn("the new rows of the vocabulary are not trained: %s %s",
                 se->adapter ? "adapter.modules_to_save does not contain the module of"
                             : "train.trainable or train.freeze leaves out",
                 head->name);
    int64_t most = se->model->info.max_positions, wanted = se->config.data.max_length;
    bool is_default = !nrl_node_find(nrl_node_find(se->tree, "data"), "max_length");
    if (most > 0 && wanted > most && is_default)
        lower_max_length(se, most);
    else if (most > 0 && wanted > most)
        return at_key(se, "data", "max_length",
                      nrl_fail(NRL_ERR_CONFIG, "data.max_length %lld is more than the %lld positions of the model",
                               (long long)wanted, (long long)most));
    /* Chooses the layers that are recomputed in backward. The first unit (embedding) and the last one (final norm and
     * head) never are: they save little and are needed at once. */
    const config_recompute *c = &se->config.train.recompute;
    int32_t n = se->model->n_units - 2;
    se->work.recompute = arena_alloc(&se->memory, (size_t)se->model->n_units);
    bool *layer = se->work.recompute + 1;
    for (int32_t i = 0; i < n; i++) {
        if (c->kind == CONFIG_RECOMPUTE_ALL) layer[i] = true;
        if (c->kind == CONFIG_RECOMPUTE_EVERY) layer[i] = i % c->every == 0;
        if (c->kind == CONFIG_RECOMPUTE_RATIO) layer[i] = i < (int32_t)(c->ratio * n + 0.5);
    }
    for (size_t k = 0; c->kind == CONFIG_RECOMPUTE_LAYERS && k < nrl_node_size(c->layers); k++) {
        const nrl_node *at = nrl_node_at(c->layers, k);
        int64_t i = nrl_node_int(at, -1);
        if (i < 0 || i >= n)
            return nrl_fail(NRL_ERR_CONFIG,
                            "%s: train.activation_checkpointing.layers: %lld: the model has layers 0 to %d",
                            nrl_node_place(at), (long long)i, n - 1);
        layer[i] = true;
    }
    return NRL_OK;
}

nrl_status open_weights(session *se)
{
    origin_reader *r;
    NRL_TRY(origin_open(&se->origin, se->model, &r));
    for (int32_t i = 0; i < se->model->n_own; i++)
        if (!origin_has(r, se->model->params[i]))
            telemetry_log(se->telemetry, "weights    '%s' is new: its values are random", se->model->params[i]->name);
    origin_close(r);
    return NRL_OK;
}
