/*
 * open_data.c - tokenizer, data sets, plans and loaders of a run.
 */
#include "run/internal.h"
#include <string.h>
#include <sys/stat.h>

static bool exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

/* model.tokenizer, else the model's directory if it has one. */
static nrl_status open_tokenizer(run *r)
{
    config_choice choice = r->config.model.tokenizer_from;
    bool is_named = choice.name || choice.source;
    if (!choice.source) choice.source = r->tokenizer_dir;
    if (!choice.source && !choice.name) return NRL_OK;
    if (!choice.source)
        return nrl_fail(NRL_ERR_CONFIG, "model.tokenizer: expected a path, as no folder of the model is known");
    if (!is_named && !tokenizer_is_at(r->host, choice.source)) return NRL_OK;
    NRL_TRY(tokenizer_open(r->host, &choice, &r->tokenizer));
    int64_t vocab = r->model->info.vocab_size;
    if (r->tokenizer->info.vocab_size > vocab)
        return nrl_fail(NRL_ERR_DATA,
                        "the tokenizer of '%s' has ids up to %d, the model's vocabulary has %lld: they "
                        "do not belong together",
                        choice.source, r->tokenizer->info.vocab_size - 1, (long long)vocab);
    return NRL_OK;
}

/* data.cache, else a folder of the output; a call that leaves nothing behind keeps none. */
const char *run_cache_folder(run *r)
{
    if (r->env.check_only) return NULL;
    if (*r->config.data.cache) return r->config.data.cache;
    const char *own = arena_printf(&r->memory, "%s/cache", r->config.out);
    return r->env.no_output && !exists(own) ? NULL : own;
}

static nrl_status open_set(run *r, const nrl_node *source, const char *role, dataset **out)
{
    const config_data *d = &r->config.data;
    bool labels = r->algorithm->example_kind == 2;
    dataset_options o = {.host = r->host,
                         .source = source,
                         .tokenizer = r->tokenizer,
                         .template = r->chat,
                         .template_problem = r->chat_problem,
                         .max_length = d->max_length,
                         .overlong = (data_overlong)d->overlong,
                         .train_on_all = d->train_on == CONFIG_TRAIN_ON_ALL,
                         .train_on_last = d->train_on == CONFIG_TRAIN_ON_LAST,
                         .pairs = r->algorithm->example_kind == 1,
                         .labels = labels,
                         .kl_pairs = labels && work_needs(r->algorithm, "kl_pairs"),
                         .prefix_sharing = d->prefix_sharing,
                         .columns = d->columns,
                         .extra = d->extra,
                         .workers = d->workers,
                         .cache_dir = run_cache_folder(r),
                         .vocab_size = r->model->info.vocab_size,
                         .role = role,
                         .quiet = !run_is_rank0(r),
                         .signal = r->env.signal};
    return dataset_open(&o, out);
}

static nrl_status open_loader(run *r, const dataset *d, bool train, data_plan **plan, data_loader **loader)
{
    const config_train *t = &r->config.train;
    const config_data *c = &r->config.data;
    const nrl_algorithm *a = r->algorithm;
    data_plan_options o = {.global_batch = t->global_batch,
                           .micro_batch_tokens = t->micro_batch ? 0 : t->micro_batch_tokens,
                           .micro_batch = t->micro_batch,
                           .group = a->group ? a->group(r->algorithm_self) : 1,
                           .shuffle = train && c->shuffle,
                           .drop_last = train && c->last_batch == CONFIG_LAST_BATCH_DROP,
                           .seed = (uint64_t)t->seed,
                           .ranks = mesh_n_batches(r->mesh),
                           .rank = mesh_batch(r->mesh)};
    NRL_TRY(data_plan_create(d, &o, plan));
    return data_loader_create(d, *plan, c->prefetch, work_needs(r->algorithm, "prompt_targets"), loader);
}

nrl_status open_text(run *r)
{
    const config_choice *choice = &r->config.data.template_from;
    NRL_TRY(open_tokenizer(r));
    nrl_status st = chat_template_open(r->host, choice, r->tokenizer, &r->chat);
    if (st == NRL_OK) return NRL_OK;
    r->chat = NULL;
    if (choice->source && !strcmp(choice->source, "auto")) {
        /* only rows of messages and chat prompts need one */
        r->chat_problem = arena_strdup(&r->memory, nrl_error_text());
        return NRL_OK;
    }
    nrl_add_context("%s: data.template", nrl_node_place(nrl_node_find(nrl_node_find(r->tree, "data"), "template")));
    return st;
}

nrl_status open_train_data(run *r)
{
    return open_set(r, r->config.data.train, "train", &r->train_data);
}

nrl_status open_eval_data(run *r)
{
    if (!r->config.data.eval) return NRL_OK;
    return open_set(r, r->config.data.eval, "eval", &r->eval_data);
}

static nrl_status count_steps(run *r)
{
    const config_train *t = &r->config.train;
    int64_t per_epoch = data_plan_steps_per_epoch(r->train_plan);
    r->total_steps = t->steps;
    if (!t->steps && __builtin_mul_overflow(t->epochs, per_epoch, &r->total_steps))
        return nrl_fail(NRL_ERR_CONFIG, "train.epochs: %lld epochs of %lld steps are too many to count",
                        (long long)t->epochs, (long long)per_epoch);
    if (r->total_steps > 0) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "data.train: %lld samples give no step: global_batch is %lld and last_batch drop",
                    (long long)dataset_n_examples(r->train_data), (long long)t->global_batch);
}

void close_eval(run *r)
{
    if (r->eval_loader) data_loader_destroy(r->eval_loader);
    if (r->eval_plan) data_plan_destroy(r->eval_plan);
    if (r->eval_data) dataset_close(r->eval_data);
    r->eval_loader = NULL;
    r->eval_plan = NULL;
    r->eval_data = NULL;
}

nrl_status open_eval_file(run *r, const char *path)
{
    arena a = {0};
    nrl_status st = open_set(r, node_string(&a, path, strlen(path)), "eval", &r->eval_data);
    arena_free(&a);
    if (st == NRL_OK && r->eval_data)
        st = mesh_compare(r->mesh, "evaluated file",
                          arena_printf(&r->memory, "%s: %s\n", path, dataset_hash(r->eval_data)),
                          "every node must have the same files under the same path");
    if (st == NRL_OK) st = open_loader(r, r->eval_data, false, &r->eval_plan, &r->eval_loader);
    if (st != NRL_OK) close_eval(r);
    return st;
}

nrl_status open_loaders(run *r)
{
    NRL_TRY(open_loader(r, r->train_data, true, &r->train_plan, &r->train_loader));
    if (r->eval_data) NRL_TRY(open_loader(r, r->eval_data, false, &r->eval_plan, &r->eval_loader));
    return count_steps(r);
}
