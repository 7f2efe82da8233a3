/*
 * open_device.c - the backend, memory for weights and optimizer, and the weights themselves.
 */
#include "model/find.h"
#include "run/internal.h"

static nrl_status load_weights(run *r)
{
    storage_origin from = {
        .m = r->model, .weights = r->weights, .seed = (uint64_t)r->config.train.seed};
    nrl_status st = storage_load(r->ctx, r->model, storage_read, &from);
    hf_weights_close(r->weights);
    r->weights = NULL;
    return st;
}

nrl_status open_device(run *r)
{
    nrl_dtype compute = r->config.train.precision == CONFIG_BF16 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32;
    NRL_TRY(device_open(r->backend, r->backend_options, 0, &r->device));
    NRL_TRY(ctx_create(&r->device, &r->ctx));
    ctx_set_compute(r->ctx, compute);
    NRL_TRY(storage_bind(r->ctx, r->model, compute, !r->env.evaluate_only, r->optimizer->n_states, &r->storage));
    NRL_TRY(load_weights(r));
    r->work.ctx = r->ctx;
    r->work.policy = r->model;
    r->work.algorithm = r->algorithm;
    r->work.algorithm_self = r->algorithm_self;
    work_open(&r->work);
    if (r->env.evaluate_only) return NRL_OK;
    return slices_build(r->model, r->optimizer->n_states, &r->slice_memory, &r->slices, &r->n_slices);
}

static nrl_status extra_column(void *user, size_t set, nrl_batch *batch, nrl_tensor **column)
{
    return reference_column(user, set, batch, column);
}

/* A reference of its own: its directory says what it is. */
static nrl_status find_reference(run *r, reference_setup *setup)
{
    nrl_status st = hf_find(r->reference_options.reference_model, r->env.hf_home, &r->memory, &setup->model_dir);
    if (st == NRL_OK) st = hf_config(setup->model_dir, &r->model_memory, &setup->config);
    if (st == NRL_OK) st = model_find(r->host, setup->config, &setup->table);
    if (st != NRL_OK) nrl_note("algorithm.reference_model");
    return st;
}

nrl_status open_reference(run *r)
{
    const char *own = r->reference_options.reference_model;
    if (!work_needs(r->algorithm, "ref_logps")) return NRL_OK;
    reference_setup setup = {.options = &r->reference_options,
                             .ctx = r->ctx,
                             .policy = r->model,
                             .table = &r->model->table,
                             .config = r->model->config,
                             .max_length = r->config.data.max_length,
                             .compute = r->config.train.precision == CONFIG_BF16 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32,
                             .model_dir = r->model_dir,
                             .seed = (uint64_t)r->config.train.seed,
                             .cache_dir = run_cache_folder(r),
                             .micro_batch_tokens = r->config.train.micro_batch_tokens,
                             .prompt_rows = work_needs(r->algorithm, "prompt_rows")};
    if (*own) NRL_TRY(find_reference(r, &setup));
    const dataset *sets[] = {r->train_data, r->eval_data};
    NRL_TRY(reference_open(&setup, sets, 2, &r->reference));
    r->work.extra_column = extra_column;
    r->work.extra_user = r->reference;
    return NRL_OK;
}
