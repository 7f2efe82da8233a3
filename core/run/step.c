/*
 * step.c - one optimizer step: fetch, weigh, run the schedule, measure, update, record. Nothing
 * persistent changes before the update, so a step that went wrong can be discarded.
 */
#include "run/internal.h"
#include <math.h>
#include <string.h>

/* The weights of all terms over the whole global batch, known before the first forward. */
static nrl_status weigh(run *r, const data_step *data, double *weights)
{
    for (int64_t m = 0; m < data->n_micro; m++) {
        double w[NRL_MAX_TERMS] = {0};
        if (data->micro[m]->is_tail) continue;
        r->algorithm->weight(r->algorithm_self, data->micro[m], w);
        for (uint32_t k = 0; k < r->algorithm->n_terms; k++) weights[k] += w[k];
    }
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
        if (!isfinite(weights[k]) || weights[k] < 0)
            return nrl_fail(NRL_ERR_PLUGIN, "algorithm '%s': weight of term %u is %g: expected a count",
                            r->algorithm->plugin.name, k, weights[k]);
    return NRL_OK;
}

/* d step loss / d sum k = 1 / W[k]: the gradient that each term's backward starts from. */
static nrl_status seed(run *r, const double *weights)
{
    const int64_t one = 1;
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++) {
        float value = weights[k] > 0 ? (float)(1.0 / weights[k]) : 0;
        if (!r->work.seeds[k])
            NRL_TRY(tensor_persistent(r->ctx, NRL_DTYPE_F32, 1, &one, true, &r->work.seeds[k]));
        NRL_TRY(tensor_write(r->ctx, r->work.seeds[k], &value));
    }
    return NRL_OK;
}

static void gradients_begin(run *r)
{
    for (int64_t i = 0; i < r->n_slices; i++) nrl_param_set_fresh(r->slices[i].param, true);
}

/* A parameter that nothing used this step has a gradient of zero, not last step's. */
static nrl_status gradients_end(run *r)
{
    for (int64_t i = 0; i < r->n_slices; i++) {
        nrl_param *p = r->slices[i].param;
        if (!nrl_param_fresh(p)) continue;
        nrl_fill_args a = {.size = sizeof a, .y = nrl_tensor_mat(nrl_param_tensor(p, NRL_SLOT_GRAD_ACC))};
        NRL_TRY(r->device.ops.fill(r->device.self, NULL, &a));
        nrl_param_set_fresh(p, false);
    }
    const nrl_parallel *s = r->work.strategy;
    return s && s->finish ? s->finish(r->work.strategy_self, r->ctx) : NRL_OK;
}

/* The step's loss from its sums; the device is waited for here. */
static nrl_status fetch_loss(run *r, nrl_tensor **totals, const double *weights, double *loss,
                             double *sums)
{
    *loss = 0;
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++) {
        if (!totals[k]) continue;
        NRL_TRY(nrl_tensor_fetch(r->ctx, totals[k], &sums[k], 1));
        if (weights[k] > 0) *loss += sums[k] / weights[k];
    }
    return NRL_OK;
}

static nrl_status update(run *r, const clip_result *clip, double lr)
{
    nrl_step_block block = {.size = sizeof block,
                            .step = r->progress.updates + 1,
                            .lr = lr,
                            .grad_scale = clip->scale};
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < r->n_slices && st == NRL_OK; i++) {
        ctx_scope_begin(r->ctx); /* temporaries of one parameter at a time */
        st = r->optimizer->update(r->optimizer_self, r->ctx, &r->slices[i], 1, &block);
        ctx_scope_end(r->ctx);
    }
    if (st != NRL_OK) nrl_note("optimizer '%s'", r->optimizer->plugin.name);
    slices_touch(r->slices, r->n_slices);
    return st;
}

/* printf shows the sign of a NaN, which means nothing. */
static double unsigned_nan(double v)
{
    return isnan(v) ? (double)NAN : v;
}

/* A loss or gradient that is not finite: stop, or leave this step out and count. */
static nrl_status diverged(run *r, double loss, double norm)
{
    const config_train *t = &r->config.train;
    loss = unsigned_nan(loss);
    norm = unsigned_nan(norm);
    int64_t step = r->progress.step + 1;
    if (t->nan == CONFIG_NAN_STOP)
        return nrl_fail(NRL_ERR_DIVERGED,
                        "loss %g, gradient norm %g\nhint: a lower optimizer.lr or a longer "
                        "warm-up; train.nan: skip leaves such steps out",
                        loss, norm);
    if (++r->progress.skipped_in_a_row >= t->nan_limit)
        return nrl_fail(NRL_ERR_DIVERGED,
                        "loss %g, gradient norm %g: %lld steps in a row were left out (train.nan_limit)",
                        loss, norm, (long long)r->progress.skipped_in_a_row);
    nrl_warn("step %lld left out: loss %g, gradient norm %g", (long long)step, loss, norm);
    return NRL_OK;
}

static double tokens_of(const data_step *data)
{
    double n = 0;
    for (int64_t m = 0; m < data->n_micro; m++) n += nrl_batch_count(data->micro[m], "tokens");
    return n;
}

/* Strict: 6 N_matmul a token that is computed, and 6 layers heads head_dim T for causal attention, T its
 * segment and twice the prefix that it sees. */
static double flops_of(const run *r, const data_step *data)
{
    const nrl_model_facts *f = &r->model->facts;
    double squares = 0, tokens = 0;
    for (int64_t m = 0; m < data->n_micro; m++) {
        const nrl_batch *b = data->micro[m];
        if (b->is_tail) continue;
        tokens += (double)b->n_tokens;
        for (int64_t s = 0; s < b->n_segments + b->n_prompts; s++) {
            double n = b->cu_seqlens[s + 1] - b->cu_seqlens[s];
            squares += n * (n + 2 * (double)batch_prefix_length(b, s));
        }
    }
    return model_flops_per_token(r->model) * tokens +
           6.0 * (double)(f->n_layers * f->n_heads * f->head_dim) * squares;
}

static void fill_event(run *r, const data_step *data, double loss, const clip_result *clip, double lr,
                       double seconds, run_event *e)
{
    nrl_dtype compute = r->config.train.precision == CONFIG_BF16 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32;
    double peak = r->device.facts.peak_flops[compute], tokens = tokens_of(data);
    nrl_value *v = r->values;
    size_t n = 0;
    value_append(v, &n, "loss", "nats", loss);
    value_append(v, &n, "grad_norm", "1", clip->norm);
    value_append(v, &n, "lr", "1", lr);
    value_append(v, &n, "epoch", "1", data->epoch);
    value_append(v, &n, "tokens", "tokens", (double)r->progress.tokens);
    value_append(v, &n, "tokens_per_s", "tok/s", tokens / seconds);
    if (peak > 0) value_append(v, &n, "mfu", "1", flops_of(r, data) / seconds / peak);
    value_append(v, &n, "mem_bytes", "bytes", (double)memory_in_use(r));
    value_append(v, &n, "mem_total_bytes", "bytes", (double)r->device.facts.memory_bytes);
    value_append(v, &n, "data_fraction", "1", r->data_seconds / seconds);
    value_append(v, &n, "comm_fraction", "1", 0);
    metrics_append(r, "", v, &n, NULL);
    r->n_values = n;
    *e = (run_event){.step = r->progress.step, .epoch = data->epoch, .loss = loss,
                     .grad_norm = clip->norm, .lr = lr, .tokens = tokens,
                     .tokens_per_s = tokens / seconds, .seconds = seconds, .values = v, .n_values = n};
}

static void release_totals(run *r, nrl_tensor **totals)
{
    for (int k = 0; k < NRL_MAX_TERMS; k++) tensor_release(r->ctx, totals[k]);
}

/* Weigh, run the schedule: gradients are whole and the loss is known afterwards. */
static nrl_status compute(run *r, const data_step *data, double *loss, double *sums, double *weights)
{
    nrl_tensor *totals[NRL_MAX_TERMS] = {0};
    NRL_TRY(weigh(r, data, weights));
    NRL_TRY(seed(r, weights));
    NRL_TRY(work_schedule(&r->work, (int32_t)data->n_micro));
    metrics_reset(r);
    gradients_begin(r);
    nrl_status st = work_train(&r->work, data->micro, totals);
    if (st == NRL_OK) st = gradients_end(r);
    if (st == NRL_OK) st = metrics_collect(r);
    if (st == NRL_OK) st = fetch_loss(r, totals, weights, loss, sums);
    release_totals(r, totals);
    return st;
}

/* With reference = policy the first loss is a constant of the algorithm: another number means that the
 * two models, or their log-probs, are not what the user thinks. */
static nrl_status check_start(const run *r, double loss)
{
    const nrl_algorithm *a = r->algorithm;
    if (r->progress.updates || !r->reference || !r->reference_options.check_start || !a->start_loss ||
        !reference_is_start(r->reference))
        return NRL_OK;
    double known = a->start_loss(r->algorithm_self);
    double tolerance = r->config.train.precision == CONFIG_BF16 ? 2e-2 : 1e-4;
    if (isnan(known) || fabs(loss - known) <= tolerance * fmax(1, fabs(known))) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "the first loss is %.6g, but with the reference equal to the policy it must be %.6g: "
                    "the reference's log-probs are of another model or of other tokens\n"
                    "hint: a stale data.cache, or weights that changed on disk; algorithm.check_start: false goes on",
                    loss, known);
}

/* Measure, update; the event's numbers. */
static nrl_status finish(run *r, const data_step *data, double start, double lr, run_event *e)
{
    double loss = 0, sums[NRL_MAX_TERMS] = {0}, weights[NRL_MAX_TERMS] = {0};
    clip_result clip;
    NRL_TRY(compute(r, data, &loss, sums, weights));
    NRL_TRY(check_start(r, loss));
    NRL_TRY(clip_norm(r->ctx, r->slices, r->n_slices, 1.0, r->optimizer_options.clip_norm, NULL, &clip));
    bool finite = isfinite(loss) && clip.finite;
    if (finite) {
        NRL_TRY(update(r, &clip, lr));
        r->progress.updates++;
        r->progress.skipped_in_a_row = 0;
        if (r->algorithm->step_end) NRL_TRY(r->algorithm->step_end(r->algorithm_self, sums, weights));
    } else {
        NRL_TRY(diverged(r, loss, clip.norm));
    }
    r->progress.step++;
    r->progress.tokens += (int64_t)tokens_of(data);
    fill_event(r, data, loss, &clip, lr, now_seconds() - start, e);
    e->skipped = !finite;
    return NRL_OK;
}

nrl_status step_on(run *r, const data_step *data, double start, run_event *e)
{
    double lr = r->lr_override >= 0 ? r->lr_override : schedule_rate(&r->schedule, r->progress.step);
    nrl_status st = finish(r, data, start, lr, e);
    if (st != NRL_OK) nrl_note("step %lld", (long long)r->progress.step + 1);
    return st;
}

nrl_status step_take(run *r, run_event *e)
{
    double start = now_seconds(), waited = data_loader_wait_seconds(r->train_loader);
    data_step data;
    NRL_TRY(data_loader_step(r->train_loader, r->progress.step, &data));
    r->data_seconds = data_loader_wait_seconds(r->train_loader) - waited;
    return step_on(r, &data, start, e);
}
