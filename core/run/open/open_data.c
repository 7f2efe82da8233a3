/*
 * open_data.c - tokenizer, data sets, plans and loaders of a run.
 */
#include "run/open/session.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* model.tokenizer, else the model's directory if it has one. */
nrl_status session_open_tokenizer(session *se)
{
    config_choice choice = se->config.model.tokenizer_from;
    if (se->tokenizer) return NRL_OK;
    bool is_named = choice.name || choice.source;
    if (!choice.source) choice.source = se->tokenizer_dir;
    if (!choice.source && !choice.name) return NRL_OK;
    if (!choice.source)
        return nrl_fail(NRL_ERR_CONFIG,
                        "model.tokenizer: expected a path, because the directory of the model is unknown");
    if (!is_named && !tokenizer_is_at(se->host, choice.source)) return NRL_OK;
    choice = tokenizer_with_tokens(&se->memory, choice, se->new_tokens);
    return tokenizer_open(se->host, &choice, &se->tokenizer);
}

static nrl_status check_vocabulary(const session *se)
{
    if (!se->tokenizer) return NRL_OK;
    int64_t vocab = se->model->info.vocab_size;
    if (se->tokenizer->info.vocab_size > vocab)
        return nrl_fail(NRL_ERR_DATA,
                        "the tokenizer of '%s' has ids up to %d, but the model's vocabulary has %lld: they do not "
                        "match",
                        se->tokenizer->info.folder ? se->tokenizer->info.folder : se->tokenizer->plugin,
                        se->tokenizer->info.vocab_size - 1, (long long)vocab);
    return NRL_OK;
}

/* data.cache, else a folder of the output; a call that leaves nothing behind keeps none. */
const char *session_cache_folder(session *se)
{
    struct stat s;
    if (se->env.check_only) return NULL;
    if (*se->config.data.cache) return se->config.data.cache;
    const char *own = arena_printf(&se->memory, "%s/cache", se->config.out);
    return se->env.no_output && stat(own, &s) ? NULL : own;
}

dataset_options session_dataset_options(session *se, const nrl_node *source, double held_out, const char *role)
{
    const config_data *d = &se->config.data;
    return (dataset_options){.host = se->host,
                             .source = source,
                             .held_out = held_out,
                             .is_held_out = strcmp(role, "train") != 0,
                             .size_exponent = strcmp(role, "train") ? 0 : d->mixed.power - 1,
                             .tokenizer = se->tokenizer,
                             .template = se->chat,
                             .template_problem = se->chat_problem,
                             .max_length = d->max_length,
                             .overlong = (data_overlong)d->overlong,
                             .train_on_all = d->train_on == CONFIG_TRAIN_ON_ALL,
                             .train_on_last = d->train_on == CONFIG_TRAIN_ON_LAST,
                             .generates = se->algorithm->rollout,
                             .pairs = se->algorithm->example_kind == 1,
                             .labels = se->algorithm->example_kind == 2,
                             .kl_pairs = se->algorithm->example_kind == 2 && work_needs(se->algorithm, "kl_pairs"),
                             /* the noise of NEFTune depends on the length of the whole sequence, which differs;
                                terms such as the balance of routers are means over all tokens */
                             .prefix_sharing =
                                 d->prefix_sharing && !(se->config.train.neftune_alpha > 0) && !se->model->n_terms,
                             .columns = d->columns,
                             .extra = d->extra,
                             .workers = d->workers,
                             .cache_dir = session_cache_folder(se),
                             .vocab_size = se->model->info.vocab_size,
                             .role = role,
                             .quiet = !session_is_rank0(se),
                             .signal = se->env.signal};
}

static nrl_status open_set(session *se, const nrl_node *source, double held_out, const char *role, dataset **out)
{
    const dataset_options o = session_dataset_options(se, source, held_out, role);
    return dataset_open(&o, out);
}

static nrl_status open_loader(session *se, session_data *d)
{
    const bool train = !d->name;
    const config_train *t = &se->config.train;
    const config_data *c = &se->config.data;
    const nrl_algorithm *a = se->algorithm;
    data_plan_options o = {.global_batch = t->global_batch,
                           .micro_batch_tokens = t->micro_batch ? 0 : t->micro_batch_tokens,
                           .micro_batch = t->micro_batch,
                           .group = a->group ? a->group(se->algorithm_self) : 1,
                           .shuffle = train && c->shuffle,
                           .even = train && c->mixed.even,
                           .drop_last = train && c->last_batch == CONFIG_LAST_BATCH_DROP,
                           .seed = (uint64_t)t->seed,
                           .ranks = mesh_n_batches(se->mesh),
                           .rank = mesh_batch(se->mesh),
                           .shards = se->shards};
    if (train && se->micro_batch_size) *(o.micro_batch ? &o.micro_batch : &o.micro_batch_tokens) = se->micro_batch_size;
    NRL_TRY(data_plan_create(d->set, &o, &d->plan));
    return data_loader_create(d->set, d->plan, c->prefetch, work_needs(a, "prompt_targets"), &d->loader);
}

nrl_status open_text(session *se)
{
    const config_choice *choice = &se->config.data.template_from;
    NRL_TRY(session_open_tokenizer(se));
    NRL_TRY(check_vocabulary(se));
    nrl_status st = chat_template_open(se->host, choice, se->tokenizer, &se->chat);
    if (st == NRL_OK) return NRL_OK;
    se->chat = NULL;
    if (choice->source && !strcmp(choice->source, "auto")) {
        /* only rows of messages and chat prompts need one */
        se->chat_problem = arena_strdup(&se->memory, nrl_error_text());
        return NRL_OK;
    }
    nrl_add_context("%s: data.template", nrl_node_place(nrl_node_find(nrl_node_find(se->tree, "data"), "template")));
    return st;
}

/* Rows of data.train that are read during training, or the first ones of those that are held out. */
static nrl_status open_stream(session *se, double held_out, const char *role, dataset **out)
{
    if (se->env.services) return se->env.services->streams->open(se, held_out, role, out);
    return nrl_fail(NRL_ERR_CONFIG, "data.streaming: this program does not support streaming "
                                    "(nrl_environment.services)");
}

nrl_status open_train_data(session *se)
{
    const config_data *d = &se->config.data;
    return (d->streaming ? open_stream(se, d->held_out, "train", &se->train.set)
                         : open_set(se, d->train, d->held_out, "train", &se->train.set));
}

nrl_status open_eval_data(session *se)
{
    const config_data *c = &se->config.data;
    se->evals = arena_alloc(&se->memory, (c->n_evals + 1) * sizeof *se->evals);
    for (; se->n_evals < c->n_evals; se->n_evals++) {
        const config_eval_set *e = &c->evals[se->n_evals];
        const char *role = *e->name ? arena_printf(&se->memory, "eval.%s", e->name) : "eval";
        se->evals[se->n_evals].name = e->name;
        dataset **set = &se->evals[se->n_evals].set;
        NRL_TRY(c->streaming && e->held_out > 0 ? open_stream(se, e->held_out, role, set)
                                                : open_set(se, e->sources, e->held_out, role, set));
    }
    return NRL_OK;
}

static void close_loader(session_data *d)
{
    data_loader_destroy(d->loader);
    data_plan_destroy(d->plan);
    d->loader = NULL;
    d->plan = NULL;
}

void close_data(session_data *d)
{
    close_loader(d);
    if (d->set) dataset_close(d->set);
    *d = (session_data){0};
}

nrl_status session_set_train(session *se, dataset *set)
{
    close_data(&se->train);
    se->train.set = set;
    return open_loader(se, &se->train);
}

nrl_status open_more_data(session *se, const nrl_node *sources, const char *role, session_data *out)
{
    *out = (session_data){.name = strcmp(role, "train") ? "" : NULL};
    nrl_status st = open_set(se, sources, 0, role, &out->set);
    if (st == NRL_OK)
        st = mesh_compare(se->mesh, "other data",
                          arena_printf(&se->memory, "%s: %s\n", role, dataset_info(out->set)->hash),
                          "every node must have the same files under the same path");
    if (st == NRL_OK) st = open_loader(se, out);
    if (st != NRL_OK) close_data(out);
    return st;
}

nrl_status session_shrink_micro_batches(session *se)
{
    const config_train *t = &se->config.train;
    session_data *d = se->later.set ? &se->later : &se->train;
    int64_t size = se->micro_batch_size, least = 1;
    if (!size) size = t->micro_batch ? t->micro_batch : t->micro_batch_tokens;
    for (int64_t i = 0, n; i < dataset_info(d->set)->n_examples && !t->micro_batch; i++)
        if ((n = dataset_example_tokens(d->set, i)) > least) least = n;
    if (size <= least)
        return nrl_fail(NRL_ERR_MEMORY, "micro-batches of %lld contain one sample and cannot be smaller",
                        (long long)size);
    se->micro_batch_size = size / 2 > least ? size / 2 : least;
    close_loader(d);
    return open_loader(se, d);
}

int64_t session_updates(const session *se)
{
    return se->algorithm->updates ? se->algorithm->updates(se->algorithm_self) : 1;
}

nrl_status session_open_loaders(session *se)
{
    if (se->shards.fixed && se->config.train.on_oom == CONFIG_OOM_RETRY)
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.on_oom: retry is not supported with reproducible (parallel), because smaller "
                        "micro-batches would change the results; expected stop");
    NRL_TRY(open_loader(se, &se->train));
    for (size_t i = 0; i < se->n_evals; i++)
        NRL_TRY(open_loader(se, &se->evals[i]));
    const config_train *t = &se->config.train;
    const int64_t updates = session_updates(se);
    int64_t per_epoch = data_plan_steps_per_epoch(se->train.plan);
    if (updates > 1 && se->stream)
        return nrl_fail(NRL_ERR_CONFIG,
                        "data.streaming: algorithm '%s' uses each batch for %lld steps, but a stream provides each "
                        "batch only once",
                        se->algorithm->plugin.name, (long long)updates);
    se->total_steps = t->steps;
    if (!t->steps && (__builtin_mul_overflow(t->epochs, updates, &se->total_steps) ||
                      __builtin_mul_overflow(se->total_steps, per_epoch, &se->total_steps)))
        return nrl_fail(NRL_ERR_CONFIG, "train.epochs: %lld epochs of %lld steps are too many to count",
                        (long long)t->epochs, (long long)per_epoch);
    if (se->total_steps > 0) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA,
                    "data.train: %lld samples are less than one step: global_batch is %lld and last_batch is drop",
                    (long long)dataset_info(se->train.set)->n_examples, (long long)t->global_batch);
}

const char *session_template(const session *se, arena *a)
{
    const char *word = se->config.data.template_from.source;
    if (!se->chat || !se->tokenizer || (word && !strcmp(word, "auto"))) return NULL;
    char *jinja = chat_template_jinja(se->chat);
    const char *kept = jinja ? arena_strdup(a, jinja) : NULL;
    free(jinja);
    return kept;
}
