/*
 * plan.c - the plan of a run as the tree of an event. nrl_plan_text (lib/base/plan_text.c) formats
 * it, docs/records.md lists its keys. Also warnings about unusual settings.
 */
#include "base/units.h"
#include "run/internal.h"
#include "run/walk/work.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *key;
    int64_t n;
} plan_number;

static nrl_node *plan_section(arena *a, nrl_node *plan, const char *key, const plan_number *numbers)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    if (key) node_append(a, plan, key, map);
    for (; numbers->key; numbers++)
        node_append_int(a, map, numbers->key, numbers->n);
    return map;
}
#define PLAN_SECTION(a, plan, key, ...) plan_section(a, plan, key, (const plan_number[]){__VA_ARGS__, {NULL, 0}})

static void plan_data(arena *a, nrl_node *plan, const char *key, const dataset *data)
{
    const dataset_report *d = dataset_info(data);
    nrl_node *map = PLAN_SECTION(
        a, plan, key, {"samples", d->n_examples}, {"tokens", d->tokens}, {"trained_tokens", d->trained_tokens},
        {"min_length", d->min_length}, {"max_length", d->max_length}, {"median_length", d->median_length},
        {"shared_tokens", d->shared_tokens}, {"dropped", d->dropped_overlong}, {"truncated", d->truncated},
        {"split", d->split}, {"untrained", d->untrainable}, {"empty", d->empty});
    nrl_node *histogram = node_new(a, NRL_NODE_LIST);
    node_append_text(a, map, "format", d->format);
    node_append(a, map, "from_cache", node_bool(a, d->from_cache));
    for (size_t k = 0; k < sizeof d->histogram / sizeof *d->histogram; k++)
        node_append(a, histogram, NULL, node_int(a, d->histogram[k]));
    node_append(a, map, "lengths", histogram);
}

/* What each entry of data.train gives to an epoch and, on average, to a step. */
static void plan_entries(arena *a, nrl_node *plan, const session *se)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    const dataset *d = se->train.set;
    int64_t epoch = 0;
    for (int64_t i = 0; i < dataset_info(d)->n_parts;) {
        const dataset_part entry = dataset_entry_at(d, &i);
        epoch += data_plan_entry_examples(&entry);
    }
    for (int64_t i = 0; i < dataset_info(d)->n_parts;) {
        const dataset_part entry = dataset_entry_at(d, &i);
        const int64_t per_epoch = data_plan_entry_examples(&entry);
        const nrl_node *source = nrl_node_at(se->config.data.train, entry.entry);
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        node_append(a, list, NULL, map);
        node_append_text(a, map, "path", nrl_node_string(nrl_node_find(source, "path"), entry.path));
        node_append(a, map, "samples", node_int(a, entry.n));
        node_append(a, map, "per_epoch", node_int(a, per_epoch));
        node_append(a, map, "per_step",
                    node_f64(a, (double)(per_epoch * se->config.train.global_batch) / (double)epoch));
    }
    if (nrl_node_size(list) > 1) node_append(a, plan, "train_entries", list);
}

static void plan_model(arena *a, nrl_node *plan, const session *se)
{
    const nrl_model_info *f = &se->model->info;
    const model *m = se->model;
    const char *from = se->origin.checkpoint ? se->origin.checkpoint : se->origin.dir;
    nrl_node *map =
        PLAN_SECTION(a, plan, "model", {"parameters", model_n_own(m)}, {"layers", f->n_layers}, {"width", f->width},
                     {"heads", f->n_heads}, {"key_value_heads", f->n_kv_heads}, {"vocabulary", f->vocab_size});
    node_append_text(a, map, "type", m->type);
    node_append_text(a, map, "weights", from);
    if (!from) node_append_int(a, map, "seed", se->config.train.seed);
    if (!m->adapters) return;
    int64_t trained = model_n_trained(m), frozen = model_n_params(m) - trained;
    int64_t size = (int64_t)nrl_dtype_size(session_compute(se)), held = 0;
    for (int32_t i = 0; i < m->n_params; i++) /* by the shapes of one rank */
        if (!m->params[i]->trained && !m->params[i]->packing) held += m->params[i]->whole;
    const adapter_set *s = m->adapters;
    map = PLAN_SECTION(a, plan, "adapter", {"modules", s->n}, {"trained", trained}, {"frozen", frozen},
                       {"trained_bytes", trained * size}, {"frozen_bytes", held * size});
    node_append_text(a, map, "name", s->table->plugin.name);
    node_append_text(a, map, "summary", s->table->summary ? s->table->summary(s->self) : NULL);
    node_append_text(a, map, "weights", se->origin.adapter_dir);
    node_append_text(a, map, "base", se->origin.quantized ? quantize_name(se->origin.quantized) : NULL);
}

static void plan_train(arena *a, nrl_node *plan, const session *se)
{
    static const char *const precisions[] = {
        [CONFIG_FP32] = "fp32", [CONFIG_BF16] = "bf16", [CONFIG_FP16] = "fp16", [CONFIG_FP8] = "fp8"};
    const config_train *t = &se->config.train;
    int32_t n_recomputed = 0;
    for (int32_t u = 0; u < se->model->n_units; u++)
        n_recomputed += se->work.recompute[u];
    nrl_node *map = PLAN_SECTION(a, plan, "train", {"steps", se->total_steps}, {"global_batch", t->global_batch},
                                 {"steps_per_epoch", se->stream ? 0 : data_plan_steps_per_epoch(se->train.plan)},
                                 {"micro_batches", data_plan_n_micro_batches(se->train.plan, 0)}, {"seed", t->seed},
                                 {"layers", se->model->info.n_layers}, {"recomputed_layers", n_recomputed});
    node_append_text(a, map, "precision", precisions[t->precision]);
    node_append(a, map, "split_masters", node_bool(a, t->master == CONFIG_MASTER_SPLIT16));
    if (t->precision == CONFIG_FP16) {
        node_append(a, map, "loss_scale", node_f64(a, t->scale.init));
        node_append(a, map, "dynamic_loss_scale", node_bool(a, t->scale.dynamic));
    }
    node_append_text(a, map, "algorithm", se->algorithm->plugin.name);
    node_append_text(a, map, "optimizer", se->config.optimizer.name);
    node_append(a, map, "lr", node_f64(a, se->optimizer_options.lr));
    if (se->optimizer_options.lr_factor != 1)
        node_append(a, map, "lr_factor", node_f64(a, se->optimizer_options.lr_factor));
    node_append_text(a, map, "schedule", se->config.schedule.name);
    node_append(a, map, "clip_norm", node_f64(a, se->optimizer_options.clip_norm));
}

/* Elements of parameters that a stage holds; all without stages. */
static int64_t plan_held_by(const session *se, int32_t index)
{
    int64_t n = 0;
    for (int32_t i = 0; i < se->model->n_params; i++) {
        const bool *owner_stages = se->model->params[i]->parts[0].layout.owner_stages;
        if (!se->model->params[i]->packs && (!owner_stages || owner_stages[index])) n += se->model->params[i]->numel;
    }
    return n;
}

static void plan_ranks(arena *a, nrl_node *plan, const session *se)
{
    nrl_node *strategies = node_new(a, NRL_NODE_LIST), *stages = node_new(a, NRL_NODE_LIST);
    nrl_node *map = PLAN_SECTION(a, plan, "ranks", {"n", nrl_mesh_world(se->mesh)});
    node_append_text(a, map, "text", mesh_text(se->mesh));
    const int32_t n_micro_batches = (int32_t)data_plan_n_micro_batches(se->train.plan, 0);
    for (int32_t i = 0; i < se->strategy.n; i++) {
        const strategy_member *of = &se->strategy.of[i];
        node_append(a, strategies, NULL, map = node_new(a, NRL_NODE_MAP));
        node_append_text(a, map, "name", of->table->plugin.name);
        node_append_text(a, map, "text", of->plan.text);
        if (of->table->bubble) node_append(a, map, "bubble", node_f64(a, of->table->bubble(of->self, n_micro_batches)));
    }
    node_append(a, plan, "parallel", strategies);
    for (int32_t k = 0; se->strategy.n_stages > 1 && k < se->strategy.n_stages; k++)
        node_append(a, stages, NULL, node_int(a, plan_held_by(se, k)));
    node_append(a, plan, "stages", stages);
}

/* Bytes of a rank. Returns those that a step needs, as far as they are known. */
static int64_t plan_memory(arena *a, nrl_node *plan, run *r)
{
    const session *se = &r->session;
    const state_parts state = run_state(r);
    const storage *s = &se->storage;
    const config_train *t = &se->config.train;
    const config_checkpoint *c = &se->config.checkpoint;
    bool copies = c->async && (c->every || c->every_minutes > 0);
    int64_t buffers = se->strategy.plan.buffer_bytes, kept = loss_is_separable(se->algorithm) ? 0 : t->logits_mb << 20;
    int64_t offloaded = session_offloaded_bytes(se);
    int64_t total = s->work_bytes + s->master_bytes + s->gradient_bytes + s->state_bytes + buffers - offloaded;
    int64_t logits = t->micro_batch_tokens * se->model->info.vocab_size * (int64_t)nrl_dtype_size(session_logits(se));
    nrl_node *map =
        PLAN_SECTION(a, plan, "memory", {"total", total}, {"weights", s->work_bytes}, {"masters", s->master_bytes},
                     {"gradients", s->gradient_bytes}, {"optimizer", s->state_bytes}, {"strategy", buffers},
                     {"offloaded", offloaded}, {"parameters", plan_held_by(se, se->strategy.index)},
                     {"gradient_buffer", s->buffer_bytes}, {"checkpoint_copy", copies ? state_bytes(&state) : 0},
                     {"logits", t->micro_batch || logits > kept ? kept : logits});
    if (se->updater) {
        node_append_text(a, map, "updated_by", se->updater->plugin.name);
        node_append_int(a, map, "update_copies", UPDATE_HOST_BYTES);
    }
    if (se->estimate.known) {
        node_append_int(a, map, "micro_batch", se->estimate.bytes);
        node_append_int(a, map, "micro_batch_tokens", se->estimate.tokens);
        node_append_int(a, map, "activations_offloaded", se->estimate.away_bytes);
    }
    if (t->offloaded.activations)
        node_append_text(a, map, "activations_in", t->offloaded.activations == CONFIG_OFFLOAD_DISK ? "disk" : "host");
    return total + se->estimate.bytes;
}

static void plan_backend(arena *a, nrl_node *plan, const session *se)
{
    static const char *const ways[] = {"a forward each step", "computed once, from a file", "none: zeros"};
    const nrl_device_info *f = &se->device.info;
    const nrl_backend *b = se->backend;
    nrl_node *map;
    if (se->reference && !se->env.check_only) { /* a check opens no device, and nothing on it */
        bool shared = reference_is_shared(se->reference);
        map = PLAN_SECTION(a, plan, "reference", {"bytes", shared ? 0 : reference_bytes(se->reference)});
        node_append_text(a, map, "log_probs", ways[se->reference_options.reference]);
        node_append(a, map, "shared", node_bool(a, shared));
    }
    map = PLAN_SECTION(a, plan, "backend", {"threads", f->n_threads});
    node_append_text(a, map, "name", b->plugin.name);
    if (!se->env.check_only) {
        node_append_text(a, map, "device", f->name);
        node_append_text(a, map, "isa", f->isa);
        node_append_text(a, map, "library", f->library);
    }
    node_append(a, map, "deterministic", node_bool(a, se->config.train.deterministic));
    const char *exact = se->config.train.deterministic || !b->relax ? NULL : session_exact_for(se, a);
    node_append_text(a, map, "exact_for", exact);
    if (!se->config.train.deterministic && b->relax && !exact) node_append_text(a, map, "relaxed", b->relaxed);
    node_append_text(a, map, "skipped", se->skipped_backends);
}

/* A config gives the same numbers on every device, so only a line says what a GPU could do. */
static void plan_warn_precision(const session *se)
{
    const nrl_device_info *f = &se->device.info;
    const double wide = f->peak_flops[NRL_DTYPE_F32] / 1e12, narrow = f->peak_flops[NRL_DTYPE_BF16] / 1e12;
    if (nrl_node_find(nrl_node_find(se->tree, "train"), "precision") || !f->native_bf16 || f->host_memory) return;
    if (wide > 0 && narrow > wide)
        nrl_warn(
            "train.precision is not set, so this run computes in fp32: at most %.0f TFLOP/s on %s, of %.0f in bf16",
            wide, f->name, narrow);
    else
        nrl_warn("train.precision is not set, so this run computes in fp32: %s is faster in bf16", f->name);
}

/* Warnings about settings that are usually mistakes, and about memory or devices that this machine lacks. */
static void plan_warn(session *se, int64_t bytes)
{
    char text[3][SIZE_TEXT];
    int64_t batch = se->config.train.global_batch, kept = dataset_info(se->train.set)->n_examples, total, left;
    const nrl_node *adapter = nrl_node_find(se->tree, "adapter");
    if (nrl_node_kind(adapter) == NRL_NODE_NULL && adapter->line) /* in a file; ADAPTER=null was typed on purpose */
        nrl_warn("%s: %s: is empty, so all weights are trained; {} selects the defaults", nrl_node_place(adapter),
                 se->config.adapter.section);
    if (se->optimizer_options.lr == 0) nrl_warn("optimizer.lr is 0: the weights will not change");
    plan_warn_precision(se);
    if (data_plan_steps_per_epoch(se->train.plan) == 1 && batch > kept)
        nrl_warn("train.global_batch %lld is larger than the data (%lld samples): each step is a whole epoch",
                 (long long)batch, (long long)kept);
    if (!se->env.check_only) return; /* a run asks for the memory and the device, which fails with the same facts */
    nrl_host_memory(&total, &left);
    if (!se->backend->stream_create && left >= 0 && bytes > left)
        nrl_warn("%s is more than the available %s of %s", size_text((double)bytes, text[0]),
                 size_text((double)left, text[1]), size_text((double)total, text[2]));
    if (session_probe_backend(se) != NRL_OK)
        nrl_warn("backend '%s' cannot be used on this machine: %s", se->backend->plugin.name, nrl_error_text());
}

void run_log_plan(run *r)
{
    session *se = &r->session;
    arena *a = &se->memory; /* loggers that open later are told of it too */
    if (!session_is_rank0(se)) return;
    nrl_node *plan = PLAN_SECTION(a, NULL, NULL, {"resumed_step", r->trainer.progress.step});
    node_append_text(a, plan, "nrl", NRL_VERSION);
    node_append_text(a, plan, "name", se->config.name);
    node_append_text(a, plan, "out", se->config.out);
    plan_model(a, plan, se);
    plan_data(a, plan, "train_data", se->train.set);
    if (se->stream)
        PLAN_SECTION(a, plan, "stream", {"shuffle_buffer", se->config.data.shuffle_buffer},
                     {"bytes", dataset_info(se->train.set)->bytes});
    plan_entries(a, plan, se);
    for (size_t i = 0; i < se->n_evals; i++) {
        const char *name = se->evals[i].name;
        plan_data(a, plan, *name ? arena_printf(a, "eval_data %s", name) : "eval_data", se->evals[i].set);
    }
    char *sample = dataset_sample_text(se->train.set, 0, se->tokenizer);
    node_append_text(a, plan, "sample", sample);
    free(sample);
    plan_train(a, plan, se);
    plan_ranks(a, plan, se);
    int64_t bytes = plan_memory(a, plan, r);
    plan_backend(a, plan, se);
    if (!se->env.quiet) telemetry_emit(&r->telemetry, (nrl_run_event){.kind = NRL_EVENT_PLAN, .plan = plan});
    plan_warn(se, bytes);
}
