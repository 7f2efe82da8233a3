/*
 * open_device.c - the backend, memory for weights and optimizer, and the weights themselves.
 */
#include "model/find.h"
#include "run/internal.h"
#include <stdlib.h>
#include <string.h>

static nrl_status load_weights(run *r)
{
    NRL_TRY(origin_load(&r->origin, r->ctx, r->model, r->mesh));
    return strategy_updated(&r->strategy, r->ctx, 0);
}

nrl_dtype run_compute(const run *r)
{
    static const nrl_dtype dtypes[] = {
        [CONFIG_FP32] = NRL_DTYPE_F32, [CONFIG_BF16] = NRL_DTYPE_BF16, [CONFIG_FP16] = NRL_DTYPE_F16};
    return dtypes[r->config.train.precision];
}

strategy_setup strategy_setup_of(const run *r)
{
    return (strategy_setup){.choices = &r->strategy_choices,
                            .mesh = r->mesh,
                            .m = r->model,
                            .train = !r->env.evaluate_only,
                            .quiet = !run_is_rank0(r),
                            .compute = run_compute(r),
                            .split16 = r->config.train.master == CONFIG_MASTER_SPLIT16,
                            .bf16_gradients = r->config.train.gradients == CONFIG_GRADIENTS_BF16,
                            .n_states = r->optimizer->n_states,
                            .granularity = r->optimizer->granularity};
}

/* The strategy plans, binds what it wants; the rest is allocated. */
static nrl_status open_storage(run *r)
{
    const strategy_setup setup = strategy_setup_of(r);
    NRL_TRY(strategy_open(&setup, &r->strategy));
    NRL_TRY(strategy_bind(&r->strategy, r->ctx));
    const storage_spec spec = strategy_storage(&r->strategy, &setup);
    NRL_TRY(storage_bind(r->ctx, r->model, &spec, &r->storage));
    r->work.strategy = &r->strategy;
    r->work.stage = strategy_stage(&r->strategy, &setup);
    if (storage_buffers_gradients(&spec)) NRL_TRY(gradients_open(r->ctx, r->model, &r->work.gradients));
    return load_weights(r);
}

static nrl_status open_slices(run *r)
{
    NRL_TRY(slices_build(r->model, r->mesh, r->optimizer->n_states, &r->slice_memory, &r->slices, &r->n_slices));
    r->slice_counts = arena_alloc(&r->slice_memory, (size_t)(r->n_slices + 1) * sizeof *r->slice_counts);
    for (int64_t i = 0; i < r->n_slices; i++)
        r->slice_counts[i] =
            layout_owner(r->mesh, nrl_mesh_rank(r->mesh), r->slices[i].param) == nrl_mesh_rank(r->mesh);
    return NRL_OK;
}

static nrl_status check_precision(const run *r)
{
    if (run_compute(r) != NRL_DTYPE_F16 || r->device.info.has_f16) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "train.precision: backend '%s' does not compute in fp16, expected fp32 or bf16",
                    r->backend->plugin.name);
}

nrl_status open_device(run *r)
{
    nrl_status st = device_open(r->backend, r->backend_options, mesh_where(r->mesh)->local_rank, &r->device);
    if (st != NRL_OK) nrl_add_context("backend '%s'", r->backend->plugin.name);
    NRL_TRY(st);
    if (!r->config.train.deterministic && r->device.table.relax) r->device.table.relax(r->device.self);
    NRL_TRY(check_precision(r));
    loss_scale_start(&r->loss_scale, &r->config.train.scale);
    NRL_TRY(ctx_create(&r->device, &r->ctx));
    ctx_set_compute(r->ctx, run_compute(r));
    ctx_set_head_keep(r->ctx, r->config.train.logits_mb << 20);
    NRL_TRY(open_storage(r));
    r->work.ctx = r->ctx;
    r->work.policy = r->model;
    r->work.algorithm = r->algorithm;
    r->work.algorithm_self = r->algorithm_self;
    work_open(&r->work);
    return r->env.evaluate_only ? NRL_OK : open_slices(r);
}

static nrl_status extra_column(void *user, size_t set, nrl_batch *batch, nrl_tensor **column)
{
    return reference_column(user, set, batch, column);
}

/* A reference of its own: its directory says what it is. */
static nrl_status find_reference(run *r, reference_setup *setup)
{
    setup->origin = (model_origin){.formats = &r->formats, .signer = r->public_key};
    nrl_status st = origin_find(r->reference_options.reference_model, &r->model_memory, &setup->origin, &setup->config);
    if (st == NRL_OK) st = model_find(r->host, setup->config, &setup->table);
    if (st != NRL_OK) nrl_add_context("algorithm.reference_model");
    return st;
}

nrl_status look_at_reference(run *r)
{
    reference_setup setup = {0};
    bool wanted = work_needs(r->algorithm, "ref_logps") && *r->reference_options.reference_model;
    return wanted ? find_reference(r, &setup) : NRL_OK;
}

/* Wherever it lies: its weights by headers and samples, a checkpoint by its manifest, an adapter by all of it. */
static nrl_status identify_reference(run *r, const model_origin *o)
{
    model_origin base = *o;
    char *lines, key[2 * HASH_TEXT] = "";
    base.adapter_dir = NULL;
    if (o->checkpoint) {
        NRL_TRY(origin_checkpoint_key(o->checkpoint, key));
    } else {
        NRL_TRY(origin_identity(&base, "", &lines));
        hash_bytes(lines, strlen(lines), key);
        free(lines);
    }
    if (o->adapter_dir) NRL_TRY(origin_adapter_key(o, key + strlen(key)));
    r->reference_key = arena_strdup(&r->memory, key);
    return NRL_OK;
}

nrl_status open_reference(run *r)
{
    const char *own = r->reference_options.reference_model;
    if (!work_needs(r->algorithm, "ref_logps")) return NRL_OK;
    reference_setup setup = {.options = &r->reference_options,
                             .ctx = r->ctx,
                             .mesh = r->mesh,
                             .choices = &r->strategy_choices,
                             .policy = r->model,
                             .table = &r->model->table,
                             .config = r->model->config,
                             .max_length = r->config.data.max_length,
                             .compute = run_compute(r),
                             .origin = r->origin,
                             .cache_dir = run_cache_folder(r),
                             .micro_batch_tokens = r->config.train.micro_batch_tokens,
                             .prompt_targets = work_needs(r->algorithm, "prompt_targets"),
                             .signal = r->env.signal};
    if (*own)
        NRL_TRY(find_reference(r, &setup));
    else if (r->model->adapters && !r->origin.adapter_dir)
        setup.shared = &r->work;
    if (!setup.shared && r->reference_options.reference != REFERENCE_NONE)
        NRL_TRY(identify_reference(r, &setup.origin));
    const dataset *sets[] = {r->train_data, r->eval_data};
    NRL_TRY(reference_open(&setup, sets, 2, &r->reference));
    r->work.extra_column = extra_column;
    r->work.extra_user = r->reference;
    return NRL_OK;
}
