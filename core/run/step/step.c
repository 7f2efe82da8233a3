/*
 * step.c - one optimizer step: fetch, weigh, run the schedule, measure, update, record. Nothing
 * persistent changes before the update, so a step that went wrong can be discarded.
 */
#include "run/step/debug.h"
#include "run/step/ranks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* The weights of all terms over this rank's batches, from counts alone. */
static nrl_status weigh(run *r, const data_step *data, double *weights)
{
    for (int64_t m = 0; m < data->n_micro_batches; m++) {
        double w[NRL_MAX_TERMS] = {0};
        if (data->micro_batch[m]->is_tail) continue;
        double mark = ctx_profile_mark(r->ctx);
        r->algorithm->weight(r->algorithm_self, data->micro_batch[m], w);
        ctx_profile_host(r->ctx, "loss (host)", mark);
        for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
            weights[k] += w[k];
    }
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
        if (!isfinite(weights[k]) || weights[k] < 0)
            return nrl_fail(NRL_ERR_PLUGIN, "algorithm '%s': weight of term %u is %g: expected a count",
                            r->algorithm->plugin.name, k, weights[k]);
    return NRL_OK;
}

/* d step loss / d sum k = 1 / W[k], times the loss scale: what each term's backward starts from. */
static nrl_status seed(run *r, const double *weights)
{
    const int64_t one = 1;
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++) {
        float value = weights[k] > 0 ? (float)(r->loss_scale.scale / weights[k]) : 0;
        if (!r->work.seeds[k]) NRL_TRY(tensor_persistent(r->ctx, NRL_DTYPE_F32, 1, &one, true, &r->work.seeds[k]));
        NRL_TRY(tensor_write(r->ctx, r->work.seeds[k], &value));
    }
    return NRL_OK;
}

/* Of every trained parameter, also where nothing of it is updated on this rank. */
static void gradients_begin(run *r)
{
    gradients_forget(&r->work.gradients);
    for (int32_t i = 0; i < r->model->n_params; i++)
        nrl_param_set_grad_is_empty(r->model->params[i], r->model->params[i]->trained);
}

/* A parameter that nothing used this step has a gradient of zero, not last step's. */
static nrl_status gradients_end(run *r)
{
    const nrl_slot slot = r->work.gradients.buffer ? NRL_SLOT_GRAD_SHARD : NRL_SLOT_GRAD;
    for (int32_t i = 0; i < r->model->n_params; i++) {
        nrl_param *p = r->model->params[i];
        nrl_tensor *grad = nrl_param_tensor(p, slot);
        if (!nrl_param_grad_is_empty(p) || !grad) continue;
        NRL_TRY(nrl_tensor_fill(r->ctx, grad, 0));
        nrl_param_set_grad_is_empty(p, false);
    }
    return strategy_finish(r->work.strategy, r->ctx);
}

/* This rank's sums. */
static nrl_status fetch_sums(run *r, nrl_tensor **totals, double *sums)
{
    nrl_tensor *known[NRL_MAX_TERMS];
    double values[NRL_MAX_TERMS];
    int64_t n = 0, at = 0;
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
        if (totals[k]) known[n++] = totals[k];
    NRL_TRY(tensor_fetch_numbers(r->ctx, known, n, values));
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
        if (totals[k]) sums[k] = values[at++];
    return NRL_OK;
}

static double loss_of(const run *r, const double *sums, const double *weights)
{
    double loss = 0;
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
        if (weights[k] > 0) loss += sums[k] / weights[k];
    return loss;
}

static nrl_status update(run *r, const clip_result *clip, double lr)
{
    nrl_step_params example = {
        .size = sizeof example, .step = r->progress.updates + 1, .lr = lr, .grad_scale = clip->scale};
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < r->n_slices && st == NRL_OK; i++) {
        ctx_scope_begin(r->ctx); /* temporaries of one parameter at a time */
        st = slices_update(r->ctx, r->optimizer, r->optimizer_self, &r->slices[i], &example);
        ctx_scope_end(r->ctx);
    }
    if (st != NRL_OK) nrl_add_context("optimizer '%s'", r->optimizer->plugin.name);
    slices_touch(r->slices, r->n_slices);
    ctx_phase_set(r->ctx, NRL_PHASE_COMMUNICATION);
    return st == NRL_OK ? strategy_updated(&r->strategy, r->ctx, example.step) : st;
}

/* printf shows the sign of a NaN, which means nothing. */
static double unsigned_nan(double v)
{
    return isnan(v) ? (double)NAN : v;
}

/* fp16 ends at 65504: a loss that is not finite may be its fault, a gradient that of the scale. */
static const char *precision_hint(const run *r, double loss)
{
    if (run_compute(r) != NRL_DTYPE_F16) return "";
    return isfinite(loss) ? "train.loss_scale: dynamic; " : "train.precision: bf16; ";
}

/* A gradient that fp16 could not hold, of a finite loss: the step is omitted with a smaller scale. */
static nrl_status overflowed(run *r)
{
    loss_scale *s = &r->loss_scale;
    double was = s->scale;
    NRL_TRY(loss_scale_update(s, false));
    if (run_is_rank0(r) && (s->overflows == 1 || r->config.debug_every))
        run_say(r, "step %lld omitted: a gradient is not finite in fp16; loss scale %g, now %g%s",
                (long long)r->progress.step + 1, was, s->scale,
                r->config.debug_every ? "" : " (later ones are in the records alone)");
    return NRL_OK;
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
                        "warm-up; %strain.nan: skip leaves such steps out",
                        loss, norm, precision_hint(r, loss));
    if (++r->progress.skipped_in_a_row >= t->nan_limit)
        return nrl_fail(NRL_ERR_DIVERGED,
                        "loss %g, gradient norm %g: %lld steps in a row were skipped (train.nan_limit)", loss, norm,
                        (long long)r->progress.skipped_in_a_row);
    if (run_is_rank0(r)) nrl_warn("step %lld omitted: loss %g, gradient norm %g", (long long)step, loss, norm);
    return NRL_OK;
}

static double tokens_of(const data_step *data)
{
    double n = 0;
    for (int64_t m = 0; m < data->n_micro_batches; m++)
        n += nrl_batch_count(data->micro_batch[m], "tokens");
    return n;
}

/* Bytes: the process's resident set where tensors live in host memory, else the device pool's peak. */
static int64_t memory_in_use(const run *r)
{
    long pages = 0, resident = 0;
    if (!r->device.info.host_memory) {
        ctx_memory m;
        ctx_memory_use(r->ctx, &m);
        return (int64_t)m.peak_bytes;
    }
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    fclose(f);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

static void fill_event(run *r, const data_step *data, const ranks_result *all, double loss, double norm, double lr,
                       double seconds, nrl_run_event *e)
{
    nrl_dtype compute = run_compute(r);
    double peak = r->device.info.peak_flops[compute] * nrl_mesh_world(r->mesh);
    nrl_value *v = r->values;
    size_t n = 0;
    value_append(r, v, &n, "loss", "nats", loss);
    value_append(r, v, &n, "grad_norm", "1", norm);
    value_append(r, v, &n, "lr", "1", lr);
    value_append(r, v, &n, "epoch", "1", data->epoch);
    value_append(r, v, &n, "tokens", "tokens", (double)r->progress.tokens);
    value_append(r, v, &n, "tokens_per_s", "tok/s", all->tokens / seconds);
    if (peak > 0) value_append(r, v, &n, "mfu", "1", all->flops / seconds / peak);
    value_append(r, v, &n, "mem_bytes", "bytes", (double)memory_in_use(r));
    value_append(r, v, &n, "mem_total_bytes", "bytes", (double)r->device.info.memory_bytes);
    value_append(r, v, &n, "data_fraction", "1", r->data_seconds / seconds);
    value_append(r, v, &n, "comm_fraction", "1", r->comm_seconds / seconds);
    if (nrl_mesh_world(r->mesh) > 1) value_append(r, v, &n, "comm_bytes", "bytes", r->comm_bytes);
    if (compute == NRL_DTYPE_F16) value_append(r, v, &n, "loss_scale", "1", r->loss_scale.scale);
    if (r->loss_scale.rule.dynamic) value_append(r, v, &n, "overflows", "steps", (double)r->loss_scale.overflows);
    save_tell(r, v, &n);
    metrics_append(r, "", v, &n, NULL);
    r->n_values = n;
    *e = (nrl_run_event){.size = sizeof *e,
                         .kind = NRL_EVENT_STEP,
                         .step = r->progress.step,
                         .epoch = data->epoch,
                         .loss = loss,
                         .grad_norm = norm,
                         .lr = lr,
                         .tokens = all->tokens,
                         .tokens_per_s = all->tokens / seconds,
                         .seconds = seconds,
                         .values = v,
                         .n_values = n};
}

static void release_totals(run *r, nrl_tensor **totals)
{
    for (int k = 0; k < NRL_MAX_TERMS; k++)
        tensor_release(r->ctx, totals[k]);
}

/* By seed and step; 0, off, where nothing is dropped. */
static uint64_t random_key(const run *r)
{
    const uint64_t of[] = {(uint64_t)r->config.train.seed, (uint64_t)r->progress.step};
    return adapter_set_is_random(r->model->adapters) ? XXH3_64bits(of, sizeof of) | 1 : 0;
}

/* Runs the schedule: gradients are whole afterwards, and this rank's part of the result is known; *squares
 * are those of clip_queue, for measure. `weights`: what the terms are divided by. All that a step gives a
 * device is queued before it is waited for, here and in measure. */
static nrl_status compute(run *r, const data_step *data, const double *weights, ranks_result *own, nrl_tensor **squares)
{
    nrl_tensor *totals[NRL_MAX_TERMS] = {0};
    NRL_TRY(seed(r, weights));
    NRL_TRY(work_schedule(&r->work, (int32_t)data->n_micro_batches));
    r->work.random = random_key(r);
    metrics_reset(r);
    gradients_begin(r);
    ctx_flops_set(r->ctx, 0);
    nrl_status st = work_train(&r->work, data->micro_batch, totals);
    r->flops = ctx_flops(r->ctx);
    ctx_phase_set(r->ctx, NRL_PHASE_BACKWARD);
    if (st == NRL_OK) st = gradients_end(r);
    ctx_phase_set(r->ctx, NRL_PHASE_UPDATE);
    if (st == NRL_OK) st = clip_queue(r->ctx, r->slices, r->n_slices, squares);
    ctx_phase_set(r->ctx, NRL_PHASE_HOST);
    if (st == NRL_OK) st = metrics_collect(r);
    if (st == NRL_OK) st = fetch_sums(r, totals, own->sums);
    release_totals(r, totals);
    if (st == NRL_OK) return NRL_OK;
    tensor_release(r->ctx, *squares);
    *squares = NULL;
    return st;
}

/* With reference = policy the first loss is a constant of the algorithm: another number means that the
 * two models, or their log-probs, are not what the user thinks. Dropout of adapters that start from trained values
 * (lora.use) makes the two differ; fresh ones add zero to the policy, with dropout too, and share its weights. */
static nrl_status check_initial_loss(const run *r, double loss)
{
    const nrl_algorithm *a = r->algorithm;
    if (r->progress.updates || !r->reference || !r->reference_options.check_initial_loss || !a->initial_loss ||
        !reference_is_start(r->reference))
        return NRL_OK;
    if (random_key(r) && !reference_is_shared(r->reference)) return NRL_OK;
    double known = a->initial_loss(r->algorithm_self);
    double tolerance = r->config.train.precision == CONFIG_FP32 ? 1e-4 : 2e-2;
    if (isnan(known) || fabs(loss - known) <= tolerance * fmax(1, fabs(known))) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "the first loss is %.6g, expected %.6g, which '%s' has where policy and reference are equal: the "
                    "reference's log-probs (%s) are not those of the policy\n"
                    "hint: algorithm.check_initial_loss: false trains without this comparison",
                    loss, known, a->plugin.name,
                    r->reference_options.reference == REFERENCE_CACHED ? "from data.cache" : "computed in this step");
}

/* A loss that is not finite is the NaN policy's matter. The first loss may be next to nothing (preferences already
 * learned, a script's loss around 0): it counts as 1 then. */
static bool loss_is_far(const run *r, double loss)
{
    double factor = r->config.train.diverge_factor;
    return factor > 0 && loss > factor * fmax(1, fabs(r->progress.first_loss));
}

/* One batch may be far off and the run healthy; ten in a row are not. */
static nrl_status check_divergence(run *r, double loss)
{
    enum { FAR_LIMIT = 10 };
    run_progress *p = &r->progress;
    if (!p->updates || isnan(p->first_loss)) p->first_loss = loss;
    p->far_steps = loss_is_far(r, loss) ? p->far_steps + 1 : 0;
    if (p->far_steps < FAR_LIMIT) return NRL_OK;
    return nrl_fail(NRL_ERR_DIVERGED,
                    "loss %g: %d steps in a row were above %g times the first loss, %g\n"
                    "hint: a lower optimizer.lr or a longer warm-up; train.diverge_factor: 0 goes on",
                    loss, FAR_LIMIT, r->config.train.diverge_factor, p->first_loss);
}

/* No loss that a model learns from begins with a gradient of exactly 0; one that was detached does. */
static nrl_status check_gradient(const run *r, const double *weights, double norm)
{
    bool weighs = false;
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
        weighs |= weights[k] > 0;
    if (r->progress.updates || !r->config.train.check_gradient || !weighs || norm > 0) return NRL_OK;
    return nrl_fail(
        NRL_ERR_CONFIG,
        "the first gradient is 0 for every trained parameter: the loss of '%s' does not depend on the model\n"
        "hint: a loss made of detached tensors or constants, or of samples that all weigh 0; "
        "train.check_gradient: false goes on",
        r->algorithm->plugin.name);
}

/* Local steps clip by the rank's own norm; else each element counts on one rank. */
static nrl_status measure(run *r, nrl_tensor *squares, ranks_result *own, clip_result *clip)
{
    bool local = r->strategy.plan.local_steps;
    double max_norm = r->optimizer_options.clip_norm, sum;
    NRL_TRY(clip_add(r->ctx, squares, local ? NULL : r->slice_counts, &sum));
    if (local) *clip = clip_decide(sum, 1 / r->loss_scale.scale, max_norm);
    own->square_sum = local ? 0 : sum;
    own->norm = local ? clip->norm : 0;
    own->finite = isfinite(sum);
    return NRL_OK;
}

static bool clock_says_save(const run *r)
{
    double minutes = r->config.checkpoint.every_minutes;
    return run_is_rank0(r) && minutes > 0 && now_seconds() - r->last_save_time >= 60 * minutes;
}

/* Everything that the ranks must know alike before they decide: *loss and *clip of the whole step. */
static nrl_status share(run *r, const data_step *data, const double *weights, nrl_tensor *squares, ranks_result *all,
                        double *loss, clip_result *clip)
{
    ctx_phase_set(r->ctx, NRL_PHASE_UPDATE);
    NRL_TRY(measure(r, squares, all, clip));
    all->tokens = tokens_of(data);
    all->flops = r->flops;
    all->signal = r->env.signal ? *r->env.signal : 0;
    all->save_now = clock_says_save(r);
    ctx_phase_set(r->ctx, NRL_PHASE_COMMUNICATION);
    NRL_TRY(ranks_end_step(r, all));
    ctx_phase_set(r->ctx, NRL_PHASE_HOST);
    if (!r->strategy.plan.local_steps)
        *clip = clip_decide(all->square_sum, 1 / r->loss_scale.scale, r->optimizer_options.clip_norm);
    *loss = loss_of(r, all->sums, weights);
    r->signal = (int)all->signal;
    r->save_by_clock = all->save_now > 0;
    clip->finite = clip->finite && all->finite > 0 && isfinite(*loss);
    return NRL_OK;
}

static nrl_status take_update(run *r, const ranks_result *all, const double *weights, const clip_result *clip,
                              double lr, bool look)
{
    ctx_phase_set(r->ctx, NRL_PHASE_UPDATE);
    NRL_TRY(update(r, clip, lr));
    ctx_phase_set(r->ctx, NRL_PHASE_HOST);
    if (look) NRL_TRY(debug_weights(r));
    r->progress.updates++;
    r->progress.skipped_in_a_row = 0;
    NRL_TRY(loss_scale_update(&r->loss_scale, true));
    return r->algorithm->step_end ? r->algorithm->step_end(r->algorithm_self, all->sums, weights) : NRL_OK;
}

static double bytes_sent(const run *r)
{
    int64_t sent, received;
    mesh_traffic(r->mesh, &sent, &received);
    return (double)sent;
}

/* Compute, measure, update; the event's numbers. */
static nrl_status finish(run *r, const data_step *data, double start, nrl_run_event *e, bool *done)
{
    double loss = 0, own[NRL_MAX_TERMS] = {0}, weights[NRL_MAX_TERMS];
    double waited = mesh_wait_seconds(r->mesh), sent = bytes_sent(r);
    ranks_result all = {0};
    clip_result clip = {0};
    nrl_tensor *squares = NULL;
    NRL_TRY(weigh(r, data, own));
    memcpy(weights, own, sizeof own);
    ctx_phase_set(r->ctx, NRL_PHASE_COMMUNICATION);
    NRL_TRY(ranks_begin_step(r, weights));
    ctx_phase_set(r->ctx, NRL_PHASE_HOST);
    *done = r->stop_reason != NULL;
    if (*done) return NRL_OK;
    double lr = r->lr_override >= 0 ? r->lr_override : schedule_rate(&r->schedule, r->progress.step);
    NRL_TRY(compute(r, data, r->strategy.plan.local_steps ? own : weights, &all, &squares));
    NRL_TRY(share(r, data, weights, squares, &all, &loss, &clip));
    NRL_TRY(check_initial_loss(r, loss));
    double norm = r->strategy.plan.local_steps ? all.norm : clip.norm;
    if (clip.finite) NRL_TRY(check_gradient(r, weights, norm));
    if (clip.finite) NRL_TRY(check_divergence(r, loss));
    bool look = debug_is_due(r);
    if (look) NRL_TRY(debug_data(r, data));
    if (look) NRL_TRY(debug_gradients(r));
    if (clip.finite)
        NRL_TRY(take_update(r, &all, weights, &clip, lr, look));
    else if (isfinite(loss) && r->loss_scale.rule.dynamic)
        NRL_TRY(overflowed(r));
    else
        NRL_TRY(diverged(r, loss, norm));
    r->progress.step++;
    r->progress.tokens += (int64_t)all.tokens;
    r->comm_seconds = mesh_wait_seconds(r->mesh) - waited;
    r->comm_bytes = bytes_sent(r) - sent;
    fill_event(r, data, &all, loss, norm, lr, now_seconds() - start, e);
    e->skipped = !clip.finite;
    return NRL_OK;
}

nrl_status step_on(run *r, const data_step *data, double start, nrl_run_event *e, bool *done)
{
    mesh_set_step(r->mesh, r->progress.step + 1);
    run_inside was = run_enter(r, INSIDE_LOSS);
    nrl_status st = finish(r, data, start, e, done);
    run_enter(r, was);
    if (st != NRL_OK) nrl_add_context("step %lld", (long long)r->progress.step + 1);
    return st;
}

nrl_status step_take(run *r, nrl_run_event *e, bool *done)
{
    double start = now_seconds(), waited = data_loader_wait_seconds(r->train_loader);
    data_step data;
    if (r->env.step) *r->env.step = r->progress.step + 1;
    ctx_phase_set(r->ctx, NRL_PHASE_DATA);
    NRL_TRY(data_loader_step(r->train_loader, r->progress.step, &data));
    ctx_phase_set(r->ctx, NRL_PHASE_HOST);
    r->data_seconds = data_loader_wait_seconds(r->train_loader) - waited;
    return step_on(r, &data, start, e, done);
}
