/*
 * inference_model.c - nrl/inference.h: a model is opened from any of the three forms it has on disk, used, and written
 * in another.
 */
#include "base/disk.h"
#include "inference/inference_model.h"
#include "base/paths.h"
#include "base/scalar.h"
#include "base/claims.h"
#include "run/state/params.h"
#include "config/config.h"
#include "model/find.h"
#include "plugin/component.h"
#include "run/infer/export.h"
#include "inference/generator.h"
#include "inference/logits.h"
#include "run/weights/origin.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The score of a sequence classifier of transformers, whose config.json does not list parameters. */
static nrl_status add_score(nrl_inference *s, const nrl_node *config)
{
    const char *class = nrl_node_string(nrl_node_at(nrl_node_find(config, "architectures"), 0), "");
    const nrl_param_spec score = {
        .size = sizeof score, .name = "score.weight", .n_dims = 2, .dims = {1, s->model->info.width}};
    const nrl_algorithm_model add = {
        .size = sizeof add, .n_params = 1, .params = &score, .param_size = sizeof score, .drops_head = true};
    if (!strstr(class, "ForSequenceClassification"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "it is not a reward model, but a %s; expected a model trained with `algorithm: reward`, or a "
                        "sequence classifier with one label",
                        *class ? class : "model without a class in config.json");
    return model_extend(s->model, &add);
}

static nrl_status describe_model(nrl_inference *s, const nrl_node *config)
{
    const nrl_model *table;
    NRL_TRY(model_find(s->host, config, &table));
    NRL_TRY(model_create(table, config, &s->model));
    return s->scores && !model_param(s->model, "score.weight") ? add_score(s, config) : NRL_OK;
}

/* The first backend that nrl may choose and that runs here, or with `host_only` the first that computes on the host. */
static const char *first_backend(nrl_inference *s, bool host_only)
{
    const plugin **list;
    const size_t n = plugin_defaults(s->host, &s->memory, NRL_KIND_BACKEND, &list);
    for (size_t i = 0; i < n; i++) {
        const nrl_backend *table = (const nrl_backend *)list[i]->table;
        if (host_only ? !table->stream_create : plugin_probe(s->host, list[i], false) == NRL_OK) return list[i]->name;
    }
    return NULL;
}

/* Whether the backend that the run's config names is here and runs; nrl_error_text says why not. */
static bool run_backend_works(nrl_inference *s, const char *name)
{
    const plugin *p;
    return plugin_open(s->host, NRL_KIND_BACKEND, name, &p) == NRL_OK && plugin_probe(s->host, p, true) == NRL_OK;
}

/* Which backend computes, and its options: the one that was asked for; else the run's own, if it runs here; else the
 * first that computes on the host. `auto` is the first that runs here. */
static nrl_status choose_backend(nrl_inference *s, config_component *c)
{
    config_problems problems = {0};
    component_read(&s->memory, &problems, "backend", s->backend ? NULL : s->run_backend, s->backend, c);
    NRL_TRY(problems_report(&problems));
    if (c->name && strcmp(c->name, "auto") && !s->backend && !run_backend_works(s, c->name)) {
        const char *why = nrl_error_text();
        nrl_warn("the backend of the run, '%s', is not available: %.*s; using the CPU", c->name,
                 (int)strcspn(why, "\n"), why);
        *c = (config_component){0};
    }
    if (c->name && !strcmp(c->name, "auto")) {
        c->name = first_backend(s, false);
        if (!c->name) return nrl_fail(NRL_ERR_CONFIG, "no installed backend works on this machine");
    }
    if (!c->name) c->name = first_backend(s, true);
    return c->name ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "no backend for host memory is installed");
}

static void set_if_known(nrl_inference *s, const plugin *backend, nrl_node *options, const char *name, bool value)
{
    for (uint32_t i = 0; i < backend->table->n_options; i++)
        if (!strcmp(option_row(backend->table->options, i, backend->table->option_size)->name, name))
            node_set(&s->memory, options, name, node_bool(&s->memory, value));
}

static nrl_status open_backend(nrl_inference *s)
{
    const plugin *p;
    config_component c = {0};
    config_problems problems = {0};
    void *options;
    NRL_TRY(choose_backend(s, &c));
    NRL_TRY(plugin_open(s->host, NRL_KIND_BACKEND, c.name, &p));
    nrl_node *chosen = c.options ? node_copy(&s->memory, c.options) : node_new(&s->memory, NRL_NODE_MAP);
    set_if_known(s, p, chosen, "independent_rows", true); /* a text does not depend on what else is generated */
    set_if_known(s, p, chosen, "bf16_rows", s->precision == NRL_DTYPE_BF16);
    c.options = chosen;
    c.resolved = node_new(&s->memory, NRL_NODE_MAP);
    plugin_instance(s->host, &s->memory, &problems, NRL_KIND_BACKEND, "backend", &c, NULL, &p, &options);
    NRL_TRY(problems_report(&problems));
    const nrl_backend *table = (const nrl_backend *)p->table;
    NRL_TRY(plugin_probe(s->host, p, true));
    s->computes_on = p->name;
    return device_open(table, options, 0, &s->device);
}

/* Weights have the dtype `own`, in which they are stored or were trained, unless the caller asked for another one. On
 * the host activations are f32 in any case; if the caller asked for bf16, products may round them (bf16_rows). */
static nrl_status open_model(nrl_inference *s, const nrl_node *config, nrl_dtype own)
{
    NRL_TRY(describe_model(s, config));
    if (s->model->drops_head && !s->scores)
        return nrl_fail(NRL_ERR_CONFIG, "the model has a score head instead of an output layer, so it has no "
                                        "logits\n"
                                        "hint: nrl eval prints its accuracy on pairs");
    NRL_TRY(open_backend(s));
    NRL_TRY(ctx_create(&s->device, &s->ctx));
    const storage_spec spec = {.compute = s->precision ? s->precision : own};
    s->weights = spec.compute;
    ctx_settings_of(s->ctx)->compute = s->device.table.stream_create ? spec.compute : NRL_DTYPE_F32;
    NRL_TRY(storage_bind(s->ctx, s->model, &spec, &s->storage));
    s->work.ctx = s->ctx;
    s->work.policy = s->model;
    work_open(&s->work);
    return NRL_OK;
}

/* The description of the model in a checkpoint, without the weights. */
static nrl_status describe_checkpoint(nrl_inference *s, const checkpoint *c, const nrl_node **config)
{
    const nrl_node *made_by = checkpoint_node(c, "config");
    const char *folder = nrl_node_string(checkpoint_node(c, "tokenizer"), "");
    const nrl_node *template = nrl_node_find(nrl_node_find(made_by, "data"), "template");
    const nrl_node *reader = nrl_node_find(nrl_node_find(made_by, "model"), "tokenizer");
    if (!checkpoint_node(c, "model"))
        return nrl_fail(NRL_ERR_CORRUPT, "%s: it does not describe a model", checkpoint_dir(c));
    *config = node_copy(&s->memory, checkpoint_node(c, "model"));
    if (*folder) s->tokenizer_dir = arena_strdup(&s->memory, folder);
    const char *jinja = nrl_node_string(checkpoint_node(c, "chat_template"), NULL);
    config_problems problems = {0};
    nrl_node *resolved = node_new(&s->memory, NRL_NODE_MAP);
    s->has_template = template != NULL;
    choice_read(&s->memory, &problems, "data.template", template ? node_copy(&s->memory, template) : NULL, false,
                &s->template, resolved, "template");
    choice_read(&s->memory, &problems, "model.tokenizer", reader ? node_copy(&s->memory, reader) : NULL, true,
                &s->tokenizer_from, resolved, "tokenizer");
    NRL_TRY(problems_report(&problems));
    if (checkpoint_node(c, "new_tokens")) s->new_tokens = node_copy(&s->memory, checkpoint_node(c, "new_tokens"));
    s->tokenizer_from = tokenizer_with_tokens(&s->memory, s->tokenizer_from, s->new_tokens);
    if (jinja) s->jinja = arena_strdup(&s->memory, jinja);
    return NRL_OK;
}

/* Adapters are added to what they stand on. */
static nrl_status read_checkpoint(nrl_inference *s)
{
    checkpoint *c = s->checkpoint;
    const model_origin from = {.checkpoint = checkpoint_dir(c), .formats = &s->formats, .signer = checkpoint_signer(c)};
    const nrl_node *config, *train = nrl_node_find(checkpoint_node(c, "config"), "train");
    const bool is_bf16 = !strcmp(nrl_node_string(nrl_node_find(train, "precision"), ""), "bf16");
    const bool has_adapters = checkpoint_node(c, "adapters"); /* in bf16 the sum would lose most of them */
    s->step = checkpoint_step(c);
    NRL_TRY(describe_checkpoint(s, c, &config));
    NRL_TRY(open_model(s, config, is_bf16 && !has_adapters ? NRL_DTYPE_BF16 : NRL_DTYPE_F32));
    return origin_load(&from, s->ctx, s->model, NULL);
}

/* bf16 if every matrix of the files is, else f32. */
static nrl_dtype stored_dtype(const weight_files *w)
{
    for (int64_t i = 0; i < w->n; i++)
        if (w->tensors[i].n_dims > 1 && w->tensors[i].dtype != NRL_DTYPE_BF16) return NRL_DTYPE_F32;
    return NRL_DTYPE_BF16;
}

static nrl_status open_any(nrl_inference *s, const char *path)
{
    const nrl_node *config;
    weight_files *w;
    if (s->checkpoint) return read_checkpoint(s);
    NRL_TRY(weights_open(&s->formats, NRL_HOLDS_MODEL, path, &w));
    s->format = w->format;
    s->path = arena_strdup(&s->memory, w->info.path);
    if (w->info.companions) s->tokenizer_dir = arena_strdup(&s->memory, w->info.companions);
    nrl_status st = weights_config(w, &s->memory, &config);
    if (st == NRL_OK) st = weights_load(w);
    if (st == NRL_OK) st = open_model(s, config, stored_dtype(w));
    if (st == NRL_OK && s->scores && !weights_find(w, "score.weight"))
        st = nrl_fail(NRL_ERR_DATA, "%s: tensor 'score.weight' is missing", w->info.path);
    weights_close(w);
    const model_origin from = {.dir = s->path, .format = s->format, .formats = &s->formats};
    return st == NRL_OK ? origin_load(&from, s->ctx, s->model, NULL) : st;
}

/* A model without a tokenizer can still be exported. */
static nrl_status open_tokenizer(nrl_inference *s)
{
    const char *dir = s->tokenizer_dir;
    const config_choice choice = {.name = s->tokenizer_from.name, .source = dir, .options = s->tokenizer_from.options};
    if (dir && (choice.name || tokenizer_is_at(s->host, dir))) return tokenizer_open(s->host, &choice, &s->tokenizer);
    return NRL_OK;
}

/* The texts of a list, or of a single text, of a config; in s->memory. */
static const char **list_texts(nrl_inference *s, const nrl_node *list, size_t *n)
{
    const bool is_list = nrl_node_kind(list) == NRL_NODE_LIST;
    const size_t most = is_list ? nrl_node_size(list) : nrl_node_kind(list) == NRL_NODE_STRING;
    const char **texts = arena_alloc(&s->memory, (most + 1) * sizeof *texts);
    for (*n = 0; *n < most; ++*n)
        texts[*n] = arena_strdup(&s->memory, nrl_node_string(is_list ? nrl_node_at(list, *n) : list, ""));
    return texts;
}

/* Finds plugins where the run found them. */
static void open_host(nrl_inference *s, const nrl_environment *env)
{
    const nrl_node *config = s->checkpoint ? checkpoint_node(s->checkpoint, "config") : NULL;
    const nrl_node *plugins = nrl_node_find(config, "plugins"), *allow = nrl_node_find(plugins, "allow");
    const bool is_map = nrl_node_kind(plugins) == NRL_NODE_MAP;
    plugin_places places = {0};
    places.folders = list_texts(s, is_map ? nrl_node_find(plugins, "folders") : plugins, &places.n_folders);
    if (nrl_node_kind(allow) == NRL_NODE_LIST) places.allow = list_texts(s, allow, &places.n_allow);
    s->host = component_host(env, &places);
}

/* Finds what `path` is; a run or a checkpoint is opened. */
static nrl_status begin(nrl_inference *s, const nrl_environment *env, const char *path)
{
    const char *dir = NULL;
    sign_public_key *key = env->public_key ? arena_alloc(&s->memory, sizeof *key) : NULL;
    s->signer = key;
    nrl_status st = key ? sign_read_public(env->public_key, key) : NRL_OK;
    if (st == NRL_OK) st = origin_checkpoint(path, &s->memory, &dir);
    if (st == NRL_OK && dir) st = checkpoint_open_signed(dir, s->signer, &s->checkpoint);
    open_host(s, env);
    s->formats = (format_scope){.host = s->host, .variable = env->variable};
    if (s->checkpoint) s->run_backend = nrl_node_find(checkpoint_node(s->checkpoint, "config"), "backend");
    return st;
}

static void end(nrl_inference *s)
{
    nrl_generator_close(s->generator);
    if (s->ctx) {
        ctx_set_batch(s->ctx, NULL);
        work_close(&s->work);
        storage_free(s->ctx, s->model, &s->storage);
        ctx_destroy(s->ctx);
    }
    if (s->device.self) device_close(&s->device);
    if (s->model) model_destroy(s->model);
    chat_template_close(s->chat);
    tokenizer_close(s->tokenizer);
    checkpoint_close(s->checkpoint);
    plugin_host_destroy(s->host);
    inputs_free(&s->inputs);
    arena_free(&s->memory);
}

nrl_status nrl_inference_open(const char *path, const nrl_environment *env, nrl_inference **out)
{
    return nrl_inference_open_with(path, env, &(nrl_inference_options){.size = sizeof(nrl_inference_options)}, out);
}

nrl_status nrl_inference_open_with(const char *path, const nrl_environment *env, const nrl_inference_options *options,
                                   nrl_inference **out)
{
    nrl_inference_options o = {0};
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    *out = NULL;
    NRL_TRY(scalar_check_locale());
    if (o.precision && o.precision != NRL_DTYPE_F32 && o.precision != NRL_DTYPE_BF16)
        return nrl_fail(NRL_ERR_CONFIG, "precision: expected f32 or bf16");
    nrl_inference *s = mem_alloc(sizeof *s);
    *s = (nrl_inference){.precision = (nrl_dtype)o.precision, .scores = o.scores, .step = -1};
    if (o.backend) s->backend = arena_strdup(&s->memory, o.backend);
    nrl_status st = begin(s, env, path);
    if (st == NRL_OK) st = open_any(s, path);
    if (st == NRL_OK) st = open_tokenizer(s);
    checkpoint_close(s->checkpoint);
    s->checkpoint = NULL;
    s->run_backend = NULL;
    *out = st == NRL_OK ? s : NULL;
    if (st != NRL_OK) nrl_inference_close(s);
    return st;
}

void nrl_inference_close(nrl_inference *s)
{
    if (!s) return;
    end(s);
    free(s);
}

/* ---- use ---- */

void nrl_inference_info_fill(const nrl_inference *s, nrl_inference_info *fill)
{
    const nrl_inference_info info = {.size = fill->size,
                                     .vocab_size = logits_vocab(&s->work),
                                     .max_positions = s->model->info.max_positions,
                                     .parameters = model_n_params(s->model),
                                     .config = s->model->config,
                                     .tokenizer = s->tokenizer_dir,
                                     .backend = s->computes_on,
                                     .precision = s->weights,
                                     .step = s->step};
    memcpy(fill, &info, fill->size < sizeof info ? fill->size : sizeof info);
}

const nrl_open_tokenizer *nrl_inference_tokenizer(const nrl_inference *s)
{
    return s->tokenizer ? &s->tokenizer->open : NULL;
}

static nrl_status check_scores(const nrl_inference *s, bool scores)
{
    if (s->scores == scores) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, scores ? "cannot score: the model was opened without nrl_inference_options.scores"
                                           : "the model was opened to compute scores, so it has no logits");
}

nrl_status nrl_inference_scores(nrl_inference *s, const int32_t *ids, const int64_t *lengths, size_t n, float *scores)
{
    const int32_t pad = (int32_t)nrl_node_int(nrl_node_find(s->model->config, "pad_token_id"), -1);
    NRL_TRY(check_scores(s, true));
    return scores_compute(&s->work, model_param(s->model, "score.weight"), pad, ids, lengths, n, scores);
}

nrl_status nrl_inference_logits(nrl_inference *s, const int32_t *ids, const int64_t *lengths, size_t n, float *logits)
{
    NRL_TRY(check_scores(s, false));
    return logits_compute(&s->work, ids, lengths, n, logits, NULL);
}

nrl_status nrl_inference_logps(nrl_inference *s, const int32_t *ids, const int64_t *lengths, size_t n, float *logps)
{
    NRL_TRY(check_scores(s, false));
    return logits_compute(&s->work, ids, lengths, n, NULL, logps);
}

static nrl_status check_tokenizer(const nrl_inference *s)
{
    NRL_TRY(check_scores(s, false));
    if (s->tokenizer) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "cannot sample: no tokenizer was found beside the model\n"
                                    "hint: put the tokenizer.json of its Hugging Face directory there");
}

/* A file that the run named, maybe as ${env:NAME}, may be gone by now; its text is in the checkpoint. */
nrl_status nrl_inference_set_template(nrl_inference *s, const char *word)
{
    const chat_template *chat = NULL;
    nrl_status st = check_tokenizer(s);
    const config_choice own = {.source = word ? word : "auto"};
    if (st == NRL_OK && (word || !s->has_template))
        st = chat_template_open(s->host, &own, s->tokenizer, &chat);
    else if (st == NRL_OK && s->jinja && s->template.source && strpbrk(s->template.source, "/.$"))
        st = chat_template_open_text(s->host, &s->template, s->jinja, s->tokenizer, &chat);
    else if (st == NRL_OK)
        st = chat_template_open(s->host, &s->template, s->tokenizer, &chat);
    if (st != NRL_OK) return st;
    chat_template_close(s->chat);
    s->chat = chat;
    return NRL_OK;
}

nrl_status nrl_inference_sample(nrl_inference *s, const char *const *prompts, size_t n,
                                const nrl_sample_options *options, char **texts, int64_t *n_tokens)
{
    NRL_TRY(check_tokenizer(s));
    if (generator_needs_template(options) && !s->chat) NRL_TRY(nrl_inference_set_template(s, NULL));
    if (!s->generator)
        NRL_TRY(nrl_generator_open(s, &(nrl_generator_options){.size = sizeof(nrl_generator_options)}, &s->generator));
    return generator_sample(s->generator, prompts, n, options, texts, n_tokens);
}

nrl_status nrl_generator_open(nrl_inference *s, const nrl_generator_options *options, nrl_generator **out)
{
    *out = NULL;
    NRL_TRY(check_tokenizer(s));
    return generator_create(&s->work, s->tokenizer, &s->chat, options, out);
}

/* ---- import: to checkpoint 0 of a run ---- */

static void add_text(nrl_inference *s, checkpoint_writer *w, const char *key, const char *text)
{
    checkpoint_add_node(w, key, node_text(&s->memory, text));
}

static nrl_status write_checkpoint(nrl_inference *s, checkpoint_writer *w)
{
    const params_scope weights = {0};
    checkpoint_outcome outcome;
    bool done;
    checkpoint_begin(w, 0);
    nrl_status st = params_save(s->ctx, s->model, &weights, w);
    checkpoint_add_node(w, "model", s->model->config);
    add_text(s, w, "nrl", nrl_version());
    if (s->tokenizer_dir) add_text(s, w, "tokenizer", paths_absolute(&s->memory, s->tokenizer_dir));
    if (s->jinja) add_text(s, w, "chat_template", s->jinja);
    if (s->new_tokens) checkpoint_add_node(w, "new_tokens", s->new_tokens);
    if (st == NRL_OK)
        checkpoint_submit(w);
    else
        checkpoint_abandon(w, st);
    return checkpoint_poll(w, true, &outcome, &done);
}

/* An existing checkpoint, even a damaged one, belongs to a run. */
static nrl_status check_free(const char *out)
{
    char **dirs;
    size_t n;
    NRL_TRY(checkpoint_list(out, &dirs, &n));
    nrl_status st = n ? nrl_fail(NRL_ERR_CONFIG, "'%s' already contains a checkpoint: %s", out, dirs[0]) : NRL_OK;
    checkpoint_list_free(dirs, n);
    return st;
}

static nrl_status save_into(nrl_inference *s, const char *out)
{
    const checkpoint_writer_options options = {.out = out, .threads = 1};
    checkpoint_writer *w = NULL;
    claims c = {.is_debris = checkpoint_is_trial};
    nrl_status st = check_free(out);
    if (st == NRL_OK) st = claims_open(&c, out);
    if (st == NRL_OK) st = claims_take(&c, "checkpoints");
    if (st == NRL_OK) st = claims_flush(&c);
    claims_close(&c);
    NRL_TRY(st);
    NRL_TRY(checkpoint_writer_open(&options, &w));
    st = write_checkpoint(s, w);
    checkpoint_writer_close(w, false);
    return st;
}

nrl_status nrl_import(const char *path, const nrl_environment *env, const char *out)
{
    int lock;
    nrl_inference *s;
    const nrl_inference_options exact = {.size = sizeof exact, .precision = NRL_DTYPE_F32};
    NRL_TRY(nrl_inference_open_with(path, env, &exact, &s));
    nrl_status st = disk_make_folders("out", out);
    if (st == NRL_OK && !disk_lock_folder(out, &lock))
        st = nrl_fail(NRL_ERR_CONFIG, "a run is writing to '%s'\nhint: choose another directory", out);
    else if (st == NRL_OK) {
        st = save_into(s, out);
        if (lock >= 0) close(lock);
    }
    nrl_inference_close(s);
    return st;
}

/* ---- export: from a checkpoint tensor by tensor ---- */

/* Weights, with adapters added to what they stand on. */
static nrl_status export_weights(nrl_inference *s, checkpoint *c, const char *out, const save_options *options)
{
    const model_origin from = {.checkpoint = checkpoint_dir(c), .formats = &s->formats, .signer = checkpoint_signer(c)};
    origin_reader *reader;
    NRL_TRY(origin_open(&from, s->model, &reader));
    nrl_status st = model_save(out, s->model, origin_read, reader, options);
    origin_close(reader);
    return st;
}

/* The base is named where this run had it. */
static nrl_status export_adapters(nrl_inference *s, checkpoint *c, const char *out, const save_options *options)
{
    save_options o = *options;
    origin_stream f = {.c = c};
    adapter_set set;
    NRL_TRY(origin_adapters(c, s->host, &s->memory, &set));
    if (!set.n)
        return nrl_fail(NRL_ERR_CONFIG, "%s: contains full weights and no adapters: export it without --adapter",
                        checkpoint_dir(c));
    nrl_status adapted = model_adapt(s->model, &set);
    adapter_set_close(&set);
    NRL_TRY(adapted);
    o.adapter_base = nrl_node_string(nrl_node_find(checkpoint_node(c, "base"), "path"), NULL);
    nrl_status st = model_save(out, s->model, origin_stream_read, &f, &o);
    free(f.raw);
    return st;
}

/* The dtype of the files, unless the caller asked for one. */
static void choose_dtype(const nrl_inference *s, const nrl_export_options *all, save_options *o)
{
    bool is_fixed = o->dtype || all->adapters || all->encoding;
    if (!o->dtype) o->dtype = is_fixed ? NRL_DTYPE_F32 : export_dtype(s->model, NRL_DTYPE_F32);
    if (all->used_dtype) *all->used_dtype = o->dtype;
}

/* Finds the files that are copied with a model: those of the format, and those of a tokenizer that can be opened. Only
 * a different chat template needs the open tokenizer. */
static nrl_status find_companions(nrl_inference *s, save_options *o)
{
    o->copy_from = s->tokenizer_dir;
    nrl_status st = open_tokenizer(s);
    if (st != NRL_OK && (s->jinja || s->tokenizer_from.options)) return st;
    if (s->tokenizer_dir && !s->tokenizer)
        nrl_warn("the tokenizer in '%s' is not exported: %s", s->tokenizer_dir,
                 st != NRL_OK ? nrl_error_text() : "there is none, or it cannot be read");
    if (st != NRL_OK) return NRL_OK;
    if (s->tokenizer) o->files = s->tokenizer->info.files;
    return NRL_OK;
}

static nrl_status export_checkpoint(nrl_inference *s, checkpoint *c, const char *out, const nrl_export_options *all,
                                    const save_options *options)
{
    save_options o = *options;
    const nrl_node *config;
    NRL_TRY(describe_checkpoint(s, c, &config));
    NRL_TRY(describe_model(s, config));
    choose_dtype(s, all, &o);
    NRL_TRY(find_companions(s, &o));
    if (s->tokenizer) NRL_TRY(export_set_template(&s->memory, s->tokenizer, s->jinja, &o));
    if (s->tokenizer_dir) inputs_add(&s->inputs, "its tokenizer", s->tokenizer_dir);
    return all->adapters ? export_adapters(s, c, out, &o) : export_weights(s, c, out, &o);
}

static nrl_status export_any(nrl_inference *s, const char *path, const char *out, const nrl_export_options *all,
                             const format_scope *formats, const save_options *options)
{
    save_options o = *options;
    if (all->adapters)
        return nrl_fail(NRL_ERR_CONFIG, "'%s' is neither a run nor a checkpoint: --adapter exports the adapters of one",
                        path);
    NRL_TRY(open_any(s, path));
    NRL_TRY(format_for_writing(formats, NRL_HOLDS_MODEL, s->format, &o.format));
    choose_dtype(s, all, &o);
    NRL_TRY(find_companions(s, &o));
    inputs_add(&s->inputs, "the source", s->path);
    storage_view view = {.ctx = s->ctx};
    return model_save(out, s->model, storage_gather, &view, &o);
}

nrl_status nrl_export(const char *path, const nrl_environment *env, const char *dir, const nrl_export_options *options)
{
    nrl_inference s;
    nrl_export_options all = {0};
    memcpy(&all, options, options->size < sizeof all ? options->size : sizeof all);
    save_options o = {
        .replaced = {{all.card ? "README.md" : NULL, all.card}},
        .dtype = (nrl_dtype)all.dtype,
        .encoding = all.encoding,
        .overwrite = all.overwrite,
        .formats = &s.formats,
        .inputs = &s.inputs,
    };
    s = (nrl_inference){.precision = NRL_DTYPE_F32}; /* all values as they are */
    nrl_status st = begin(&s, env, path);
    format_scope formats = s.formats;
    formats.name = all.format;
    if (st == NRL_OK && s.checkpoint) {
        const model_origin origin = {
            .checkpoint = checkpoint_dir(s.checkpoint), .formats = &s.formats, .signer = s.signer};
        origin_add_inputs(&origin, "the source", &s.inputs);
        st = format_for_writing(&formats, all.adapters ? NRL_HOLDS_ADAPTER : NRL_HOLDS_MODEL, NULL, &o.format);
        if (st == NRL_OK) st = export_checkpoint(&s, s.checkpoint, dir, &all, &o);
    } else if (st == NRL_OK) {
        st = export_any(&s, path, dir, &all, &formats, &o);
    }
    end(&s);
    return st;
}
