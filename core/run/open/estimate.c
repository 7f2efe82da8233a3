/*
 * estimate.c - steps on a device that has only shapes, with the code of a real step. For `nrl check`, the largest
 * micro-batch of the first steps gives the memory that a step needs in addition to weights, gradients and optimizer
 * states; with stages, which hold several micro-batches at a time, the whole step that contains it. The backend's own
 * memory (workspaces, libraries) and a strategy's buffers are not included. For every run, a small micro-batch finds
 * operations that the model needs and the backend lacks.
 */
#include "data/data.h"
#include "optim/updates.h"
#include "run/open/session.h"
#include "tensor/device/shape_device.h"
#include <string.h>

enum { LOOK_AHEAD = 4 }; /* steps */

typedef struct {
    session *se;
    device device;
    nrl_ctx *ctx;
    storage storage;
    update_plan updates;
    nrl_parallel shown[STRATEGY_MAX];
    strategy strategy; /* only with `shown` */
    work work;
    arena memory;
    nrl_tensor *totals[NRL_MAX_TERMS];
} dry_run;

/* The batches of a step live until those of the next one are requested. */
static nrl_status read_step(session *se, int64_t step, data_step *data, nrl_batch ***largest)
{
    NRL_TRY(data_loader_step(se->train.loader, step, data));
    *largest = &data->micro_batch[0];
    for (int64_t m = 1; m < data->n_micro_batches; m++)
        if (data->micro_batch[m]->n_tokens > (**largest)->n_tokens) *largest = &data->micro_batch[m];
    return NRL_OK;
}

static nrl_status find_largest(session *se, data_step *data, nrl_batch ***largest)
{
    int64_t best = 0, most = -1;
    for (int64_t s = 0; s < LOOK_AHEAD && s < se->total_steps; s++) {
        NRL_TRY(read_step(se, s, data, largest));
        if ((**largest)->n_tokens <= most) continue;
        most = (**largest)->n_tokens;
        best = s;
    }
    return read_step(se, best, data, largest);
}

/* The log-probs of the second model, whatever their source. */
static nrl_status blank_column(void *user, size_t set, nrl_batch *batch, nrl_tensor **column)
{
    const dry_run *h = user;
    const int64_t n = batch->n_rows;
    (void)set;
    *column = NULL;
    if (batch->is_tail) return NRL_OK;
    NRL_TRY(tensor_persistent(h->ctx, NRL_DTYPE_F32, 1, &n, true, column));
    batch_set_column(batch, reference_is_teacher(h->se->algorithm) ? "teacher_logps" : "ref_logps", *column);
    return NRL_OK;
}

/* The columns that a rollout would set. */
static nrl_status add_columns(const nrl_algorithm *a, nrl_batch *b)
{
    float *values;
    if (a->rollout) NRL_TRY(batch_add_extra(b, "sampled_logps", true, &values));
    for (const char *const *name = a->rollout_columns; name && *name; name++)
        if (strcmp(*name, "weights")) NRL_TRY(batch_add_extra(b, *name, true, &values));
    return NRL_OK;
}

/* The strategies divide what the plan counts. Here only their tp_regions and the order of stages take part: exchanges
 * between ranks that have not joined do nothing. */
static void divide(dry_run *h, const strategy *s)
{
    for (int32_t i = 0; i < s->n; i++) {
        const nrl_parallel *t = s->of[i].table;
        if (!t->tp_region && !t->schedule) continue;
        nrl_parallel *shown = &h->shown[h->strategy.n];
        *shown = (nrl_parallel){.plugin = t->plugin,
                                .tp_region = t->tp_region,
                                .tokens = t->tokens,
                                .tp_region_begin = t->tp_region_begin,
                                .schedule = t->schedule};
        h->strategy.of[h->strategy.n] = s->of[i];
        h->strategy.of[h->strategy.n++].table = shown;
        h->work.strategy = &h->strategy;
    }
}

static nrl_status rehearse(dry_run *h, nrl_batch *const *batches, int64_t n_batches, const nrl_algorithm *algorithm,
                           void *self, step_estimate *out)
{
    ctx_memory held, most;
    session *se = h->se;
    const strategy none = {0};
    strategy_setup setup = session_strategy_setup(se);
    const storage_spec spec = strategy_storage(&none, &setup);
    for (int64_t i = 0; i < n_batches; i++)
        NRL_TRY(add_columns(algorithm, batches[i]));
    NRL_TRY(ctx_create(&h->device, &h->ctx));
    ctx_settings_of(h->ctx)->compute = session_compute(se);
    ctx_settings_of(h->ctx)->head_keep_bytes = se->config.train.logits_mb << 20;
    ctx_settings_of(h->ctx)->logits = session_logits(se);
    ctx_settings_of(h->ctx)->keeps_cheap = !se->config.train.recompute_cheap;
    if (se->config.train.offloaded.activations) NRL_TRY(ctx_offload_open(h->ctx, CTX_OFFLOAD_ACTIVATIONS, NULL));
    NRL_TRY(storage_bind(h->ctx, se->model, &spec, &h->storage));
    NRL_TRY(updates_declare(se->optimizer, se->optimizer_self, se->model, &h->updates));
    updates_place(&h->updates, se->mesh);
    NRL_TRY(updates_bind(&h->updates, h->ctx));
    if (out) divide(h, &se->strategy);
    if (out) h->work.stage = strategy_stage(&se->strategy, &setup);
    h->work.ctx = h->ctx;
    h->work.policy = se->model;
    h->work.algorithm = algorithm;
    h->work.algorithm_self = self;
    h->work.recompute = se->work.recompute;
    if (reference_is_needed(algorithm)) h->work.extra_column = blank_column;
    h->work.extra_user = h;
    if (work_needs(algorithm, "teacher_logits")) h->work.teacher = &h->work; /* of the policy's size */
    work_open(&h->work);
    NRL_TRY(storage_buffers_gradients(&spec) ? gradients_open(h->ctx, se->model, &h->work.gradients) : NRL_OK);
    ctx_memory_use(h->ctx, &held);
    ctx_memory_reset_peak(h->ctx);
    const int64_t one = 1;
    const ctx_metric *metrics;
    int64_t n;
    for (uint32_t k = 0; k < algorithm->n_terms; k++)
        NRL_TRY(tensor_persistent(h->ctx, NRL_DTYPE_F32, 1, &one, true, &h->work.seeds[k]));
    for (int32_t i = 0; i < h->se->model->n_params; i++)
        nrl_param_set_grad_is_empty(h->se->model->params[i], h->se->model->params[i]->trained);
    NRL_TRY(work_schedule(&h->work, (int32_t)n_batches, 0));
    NRL_TRY(work_train(&h->work, batches, h->totals));
    NRL_TRY(ctx_take_metrics(h->ctx, &metrics, &n));
    if (out && nrl_mesh_world(se->mesh) == 1) { /* else slices would be shards, and this storage is undivided */
        /* Optimizers may allocate memory for one parameter at a time. */
        const nrl_step_params example = {
            .size = sizeof example, .step = 1, .lr = 0, .grad_scale = 1, .slice_size = sizeof(nrl_slice)};
        nrl_slice *slices;
        NRL_TRY(slices_build(se->model, se->mesh, h->updates.n_states, &h->memory, &slices, &n));
        NRL_TRY(updates_step(&h->updates, h->ctx, slices, n, &example));
    }
    if (!out) return NRL_OK;
    ctx_memory_use(h->ctx, &most);
    out->bytes = (int64_t)(most.peak_bytes - held.live_bytes);
    out->away_bytes = (int64_t)most.away_peak_bytes;
    return NRL_OK;
}

static void dry_run_close(dry_run *h)
{
    if (h->ctx) {
        for (int k = 0; k < NRL_MAX_TERMS; k++)
            tensor_release(h->ctx, h->totals[k]);
        (void)ctx_set_batch(h->ctx, NULL);
        (void)model_take_terms(h->se->model, h->ctx, NULL);
        work_close(&h->work);
        updates_unbind(&h->updates, h->ctx);
        storage_free(h->ctx, h->se->model, &h->storage);
        ctx_destroy(h->ctx);
    }
    device_close(&h->device);
    updates_close(&h->updates);
    arena_free(&h->memory);
}

/* A script's loss is not run for a check. */
nrl_status session_estimate(session *se)
{
    nrl_batch **largest;
    data_step data;
    dry_run h = {.se = se};
    se->estimate = (step_estimate){0};
    if (se->algorithm_is_script || !se->train.loader) return NRL_OK;
    h.device = shape_device(se->backend->stream_create ? SHAPE_DEVICE_BYTES : 0, se->backend, se->delegate);
    nrl_status st = find_largest(se, &data, &largest);
    if (st == NRL_OK) se->estimate.tokens = (*largest)->n_tokens;
    if (st == NRL_OK && se->strategy.n_stages > 1)
        st = rehearse(&h, data.micro_batch, data.n_micro_batches, se->algorithm, se->algorithm_self, &se->estimate);
    else if (st == NRL_OK)
        st = rehearse(&h, largest, 1, se->algorithm, se->algorithm_self, &se->estimate);
    se->estimate.known = st == NRL_OK;
    bool lacked = h.device.lacked;
    dry_run_close(&h);
    return lacked ? st : NRL_OK;
}

static nrl_status sum_of_logps(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps;
    (void)self;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    return nrl_op_sum(ctx, logps, &sums[0]);
}

/* Called before strategies divide anything: every rank needs the operations of the whole model, and those of the loss
 * on the first example. The loss of a script is not run for a check. */
nrl_status session_check_operations(session *se)
{
    static const char *const needs[] = {"logps", NULL};
    const nrl_algorithm plain = {
        .plugin.name = "logps", .needs = needs, .n_terms = 1, .tokenwise = true, .loss = sum_of_logps};
    const int64_t first = 0;
    nrl_batch *batch;
    dry_run h = {.se = se};
    NRL_TRY(data_assemble(se->train.set, &first, 1, work_needs(se->algorithm, "prompt_targets"), &batch));
    h.device = shape_device(0, se->backend, se->delegate);
    nrl_status st = rehearse(&h, &batch, 1, se->algorithm_is_script ? &plain : se->algorithm, se->algorithm_self, NULL);
    bool lacked = h.device.lacked;
    dry_run_close(&h);
    batch_free(batch);
    if (lacked) nrl_add_context("cannot train this model on backend '%s'", se->backend->plugin.name);
    return lacked ? st : NRL_OK;
}
