/*
 * open_device.c - the backend, memory for weights and optimizer, and the weights themselves.
 */
#include "model/find.h"
#include "run/open/session.h"
#include "tensor/device/backend_call.h"
#include "tensor/device/shape_device.h"
#include <stdlib.h>
#include <string.h>

nrl_dtype session_compute(const session *se)
{
    static const nrl_dtype dtypes[] = {[CONFIG_FP32] = NRL_DTYPE_F32,
                                       [CONFIG_BF16] = NRL_DTYPE_BF16,
                                       [CONFIG_FP16] = NRL_DTYPE_F16,
                                       [CONFIG_FP8] = NRL_DTYPE_BF16};
    return dtypes[se->config.train.precision];
}

nrl_dtype session_logits(const session *se)
{
    return se->config.train.logits == CONFIG_LOGITS_BF16 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32;
}

strategy_setup session_strategy_setup(const session *se)
{
    return (strategy_setup){.choices = &se->strategy_choices,
                            .mesh = se->mesh,
                            .m = se->model,
                            .train = !se->env.evaluate_only,
                            .quiet = !session_is_rank0(se),
                            .compute = session_compute(se),
                            .split16 = se->config.train.master == CONFIG_MASTER_SPLIT16,
                            .bf16_gradients = se->config.train.gradients == CONFIG_GRADIENTS_BF16,
                            .repeats = se->config.train.on_oom == CONFIG_OOM_RETRY,
                            .two_passes = se->optimizer->perturb != NULL,
                            .backend = se->backend,
                            .delegate = se->delegate,
                            .n_states = se->updates.n_states,
                            .block = (uint32_t)se->updates.block};
}

/* The optimizer declares its states, strategies write layouts, and these say where the states are. */
static nrl_status plan_storage(session *se, strategy_setup *setup)
{
    if (!se->env.evaluate_only) NRL_TRY(updates_declare(se->optimizer, se->optimizer_self, se->model, &se->updates));
    *setup = session_strategy_setup(se);
    NRL_TRY(strategy_open(setup, &se->strategy));
    updates_place(&se->updates, se->mesh);
    if (se->strategy.plan.offloaded_bytes) se->config.checkpoint.async = false; /* as with train.offload.optimizer */
    /* With local steps each rank has optimizer states of its own, and only the strategy saves them, from the slots. */
    if (!se->strategy.plan.local_steps || se->updates.is_plain) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "optimizer '%s' does not support sync_every: its states are not fp32 states of single elements; "
                    "expected an optimizer such as the default one, or sync_every: 1",
                    se->optimizer->plugin.name);
}

nrl_status session_plan_storage(session *se)
{
    strategy_setup setup;
    NRL_TRY(plan_storage(se, &setup));
    const storage_spec spec = strategy_storage(&se->strategy, &setup);
    storage_plan(se->model, &spec, &se->storage);
    se->storage.state_bytes += se->updates.state_bytes;
    return NRL_OK;
}

static nrl_status open_offload(session *se)
{
    const config_offload *o = &se->config.train.offloaded;
    const int64_t places[CTX_OFFLOADS] = {o->optimizer, o->activations};
    const char *folder = *o->folder ? o->folder : se->config.out;
    ctx_settings_of(se->ctx)->offload_folder = folder;
    for (int k = 0; k < CTX_OFFLOADS; k++)
        if (places[k] && !se->env.evaluate_only)
            NRL_TRY(ctx_offload_open(se->ctx, (ctx_offload)k, places[k] == CONFIG_OFFLOAD_DISK ? folder : NULL));
    return se->updater && !se->env.dry_run
               ? update_host_open(&se->device, se->updater, se->updater_options, &se->updates.host)
               : NRL_OK;
}

/* A dry run does not check values, which are all 0, and treats the file of cached log-probs as present. */
static nrl_status open_dry_device(session *se)
{
    if (se->algorithm->rollout)
        return nrl_fail(NRL_ERR_CONFIG,
                        "algorithm '%s' generates completions, whose lengths are unknown before training",
                        se->algorithm->plugin.name);
    se->config.train.check_gradient = se->reference_options.check_initial_loss = false;
    if (se->reference_options.reference == REFERENCE_CACHED) se->reference_options.reference = REFERENCE_NONE;
    se->device = shape_device(se->backend->stream_create ? SHAPE_DEVICE_BYTES : 0, se->backend, se->delegate);
    return NRL_OK;
}

const char *session_exact_for(const session *se, arena *a)
{
    const strategy_member *width = strategy_dividing(&se->strategy, NRL_DIVIDES_WIDTH);
    if (se->shards.fixed) return "the shards of a batch are reproducible";
    if (width) return arena_printf(a, "ranks of the axis %s must compute some values identically", width->axis->name);
    for (int64_t i = 0; i < se->updates.n_units && session_world(se) > 1; i++)
        if (se->updates.units[i].what.granularity == NRL_OPTIMIZER_MATRIX && !se->updates.units[i].is_gathered)
            return arena_printf(a, "ranks must compute the updates of optimizer '%s' identically",
                                se->optimizer->plugin.name);
    return NULL;
}

nrl_status session_open_device(session *se)
{
    nrl_status st = se->env.dry_run ? open_dry_device(se) : session_probe_backend(se);
    if (st == NRL_OK && !se->env.dry_run)
        st = device_open(se->backend, se->backend_options, mesh_where(se->mesh)->local_rank, &se->device);
    if (st != NRL_OK) nrl_add_context("backend '%s'", se->backend->plugin.name);
    NRL_TRY(st);
    if (se->delegate && !se->env.dry_run)
        NRL_TRY(device_open_delegate(&se->device, se->delegate, se->delegate_options));
    if (session_compute(se) == NRL_DTYPE_F16 && !se->device.info.has_f16)
        return nrl_fail(NRL_ERR_CONFIG, "train.precision: backend '%s' does not support fp16; expected fp32 or bf16",
                        se->backend->plugin.name);
    const bool is_fp8 = se->config.train.precision == CONFIG_FP8;
    if (is_fp8 && !se->device.info.has_fp8)
        return nrl_fail(NRL_ERR_CONFIG, "train.precision: backend '%s' does not support fp8 on %s; expected bf16",
                        se->backend->plugin.name, se->device.info.name);
    const bool has_blocks = is_fp8 && se->config.train.fp8_scaling.recipe == CONFIG_FP8_BLOCK;
    if (has_blocks && !se->device.info.has_fp8_blocks)
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.fp8.recipe: backend '%s' does not support scales of blocks on %s; expected delayed or "
                        "current",
                        se->backend->plugin.name, se->device.info.name);
    if (session_logits(se) == NRL_DTYPE_BF16 && !se->device.info.bf16_logits)
        return nrl_fail(NRL_ERR_CONFIG, "train.logits: backend '%s' supports only fp32", se->backend->plugin.name);
    if (session_logits(se) == NRL_DTYPE_BF16 && work_needs(se->algorithm, "logits"))
        return nrl_fail(NRL_ERR_CONFIG, "train.logits: algorithm '%s' reads complete logits in fp32; expected fp32",
                        se->algorithm->plugin.name);
    const char *const *name = se->optimizer->ops;
    for (; name && *name && !se->env.evaluate_only; name++)
        if (!backend_has(&se->device, *name))
            return nrl_fail(NRL_ERR_CONFIG,
                            "cannot train with optimizer '%s': it needs op '%s', which backend '%s' does not have; "
                            "expected another optimizer or another backend",
                            se->optimizer->plugin.name, *name, se->backend->plugin.name);
    if (!se->env.evaluate_only) NRL_TRY(session_check_operations(se));
    NRL_TRY(ctx_create(&se->device, &se->ctx));
    ctx_settings_of(se->ctx)->no_loss_metrics = true;
    ctx_settings_of(se->ctx)->compute = session_compute(se);
    if (is_fp8) ctx_set_fp8(se->ctx, has_blocks, NULL, NULL);
    ctx_settings_of(se->ctx)->head_keep_bytes = se->config.train.logits_mb << 20;
    ctx_settings_of(se->ctx)->logits = session_logits(se);
    ctx_settings_of(se->ctx)->keeps_cheap = !se->config.train.recompute_cheap;
    ctx_settings_of(se->ctx)->noise = se->config.train.neftune_alpha;
    /* The strategy binds its own tensors; the rest is allocated. */
    strategy_setup setup;
    NRL_TRY(plan_storage(se, &setup));
    if (!se->config.train.deterministic && se->device.table.relax && !session_exact_for(se, &se->memory))
        se->device.table.relax(se->device.self);
    if (se->config.train.on_oom == CONFIG_OOM_RETRY &&
        (nrl_mesh_world(se->mesh) != mesh_n_batches(se->mesh) || se->algorithm->rollout))
        return nrl_fail(NRL_ERR_CONFIG, "train.on_oom: retry requires whole layers on each rank, and an algorithm "
                                        "that does not generate completions; expected stop");
    NRL_TRY(open_offload(se));
    NRL_TRY(strategy_bind(&se->strategy, se->ctx));
    const storage_spec spec = strategy_storage(&se->strategy, &setup);
    NRL_TRY(storage_bind(se->ctx, se->model, &spec, &se->storage));
    NRL_TRY(updates_bind(&se->updates, se->ctx));
    se->storage.state_bytes += se->updates.state_bytes;
    se->work.strategy = &se->strategy;
    se->work.stage = strategy_stage(&se->strategy, &setup);
    if (storage_buffers_gradients(&spec)) NRL_TRY(gradients_open(se->ctx, se->model, &se->work.gradients));
    NRL_TRY(origin_load(&se->origin, se->ctx, se->model, se->mesh));
    NRL_TRY(strategy_updated(&se->strategy, se->ctx, 0));
    mesh_set_loss_by_tokens(se->mesh, loss_is_separable(se->algorithm));
    se->work.ctx = se->ctx;
    se->work.policy = se->model;
    se->work.algorithm = se->algorithm;
    se->work.algorithm_self = se->algorithm_self;
    work_open(&se->work);
    return NRL_OK;
}

static nrl_status extra_column(void *user, size_t set, nrl_batch *batch, nrl_tensor **column)
{
    return reference_column(user, set, batch, column);
}

/* Equal ids must be equal tokens. Models may come without a tokenizer: then only the sizes are compared. */
static nrl_status compare_tokens(session *se, const model_origin *o)
{
    const char *folder;
    nrl_node *new_tokens;
    tokenizer *other;
    NRL_TRY(origin_tokenizer(o, &se->memory, &folder, &new_tokens));
    if (!se->tokenizer || !folder || !tokenizer_is_at(se->host, folder)) return NRL_OK;
    const config_choice choice = tokenizer_with_tokens(&se->memory, (config_choice){.source = folder}, new_tokens);
    NRL_TRY(tokenizer_open(se->host, &choice, &other));
    nrl_status st = NRL_OK;
    for (int32_t id = 0; id < se->tokenizer->info.vocab_size && st == NRL_OK; id++) {
        uint32_t flags;
        const char *mine = tokenizer_token_text(se->tokenizer, id, &flags);
        const char *its = tokenizer_token_text(other, id, &flags);
        if (mine && (!its || strcmp(mine, its)))
            st = nrl_fail(NRL_ERR_CONFIG,
                          "token %d is '%s' in the tokenizer of '%s', but '%s' in the tokenizer of the policy", id,
                          its ? its : "none", folder, mine);
    }
    tokenizer_close(other);
    return st;
}

/* Finds the model of a reference that has a directory of its own. */
static nrl_status find_reference(session *se, reference_setup *setup)
{
    setup->origin = (model_origin){.formats = &se->formats, .signer = se->public_key};
    nrl_status st =
        origin_find(se->reference_options.reference_model, &se->model_memory, &setup->origin, &setup->config);
    if (st == NRL_OK) st = model_find(se->host, setup->config, &setup->table);
    if (st == NRL_OK) st = compare_tokens(se, &setup->origin);
    if (st != NRL_OK) nrl_add_context("%s", reference_key(se->algorithm));
    return st;
}

nrl_status session_inspect_reference(session *se)
{
    reference_setup setup = {0};
    bool wanted = reference_is_needed(se->algorithm) && *se->reference_options.reference_model;
    return wanted ? find_reference(se, &setup) : NRL_OK;
}

nrl_status session_open_reference(session *se)
{
    const char *own = se->reference_options.reference_model;
    const config_train *t = &se->config.train;
    if (!reference_is_needed(se->algorithm)) return NRL_OK;
    reference_setup setup = {.options = &se->reference_options,
                             .ctx = se->ctx,
                             .mesh = se->mesh,
                             .choices = &se->strategy_choices,
                             .shards = se->shards,
                             .policy = se->model,
                             .table = &se->model->table,
                             .config = se->model->config,
                             .max_length = se->config.data.max_length,
                             .rounding = arena_printf(&se->memory, "%s %d %d %d", nrl_dtype_name(session_compute(se)),
                                                      (int)t->precision, (int)t->fp8_scaling.recipe, (int)t->logits),
                             .compute = session_compute(se),
                             .origin = se->origin,
                             .cache_dir = session_cache_folder(se),
                             .micro_batch_tokens = se->config.train.micro_batch_tokens,
                             .prompt_targets = work_needs(se->algorithm, "prompt_targets"),
                             .is_teacher = reference_is_teacher(se->algorithm),
                             .signal = se->env.signal};
    if (*own)
        NRL_TRY(find_reference(se, &setup));
    else if (se->model->adapters && !se->model->adapters->whole && !se->origin.adapter_dir)
        setup.shared = &se->work;
    if (!setup.shared && se->reference_options.reference != REFERENCE_NONE)
        NRL_TRY(origin_sampled_key(&setup.origin, &se->memory, &se->reference_key));
    const dataset **sets = arena_alloc(&se->memory, (se->n_evals + 1) * sizeof *sets);
    sets[0] = se->train.set;
    for (size_t i = 0; i < se->n_evals; i++)
        sets[i + 1] = se->evals[i].set;
    NRL_TRY(reference_open(&setup, sets, se->n_evals + 1, &se->reference));
    if (work_needs(se->algorithm, "teacher_logits")) se->work.teacher = reference_walk(se->reference);
    if (se->work.teacher && se->work.stage.comm)
        return nrl_fail(NRL_ERR_CONFIG,
                        "parallel: algorithm '%s' uses a teacher model, which cannot be divided into stages; expected "
                        "another axis",
                        se->algorithm->plugin.name);
    if (se->work.teacher && se->work.teacher->strategy->plan.gathers_weights && nrl_mesh_world(se->mesh) > 1 &&
        se->config.train.on_oom == CONFIG_OOM_RETRY)
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.on_oom: retry is not supported with a teacher model whose weights ranks gather from "
                        "each other; expected stop, or a strategy with complete weights on each rank");
    if (setup.is_teacher && !work_needs(se->algorithm, "teacher_logps")) return NRL_OK;
    se->work.extra_column = extra_column;
    se->work.extra_user = se->reference;
    return NRL_OK;
}

void session_close_device(session *se)
{
    if (!se->ctx) {
        strategy_close(&se->strategy, NULL);
    } else {
        ctx_set_batch(se->ctx, NULL);
        reference_close(se->reference);
        work_close(&se->work);
        strategy_close(&se->strategy, se->ctx);
        mesh_settle(se->mesh);
        updates_unbind(&se->updates, se->ctx);
        update_host_close(se->updates.host);
        storage_free(se->ctx, se->model, &se->storage);
        ctx_destroy(se->ctx);
    }
    if (se->device.self) device_close(&se->device);
}
