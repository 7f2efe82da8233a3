/*
 * step.c - one optimizer step, from top to bottom: weigh the batch, walk it, measure the gradients, agree with the
 * other ranks, check, update, record; trainer_step at the end calls these stages in that order. Nothing persistent
 * changes before the update, so a step that failed can be discarded.
 */
#include "base/clock.h"
#include "optim/clip.h"
#include "run/step/ranks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { FAR_LIMIT = 10 }; /* of check_divergence */

/* The state of one step. */
typedef struct {
    const data_step *data;
    metric_set *metrics;
    step_weights weights; /* of the global batch */
    double lr;
    nrl_tensor *squares; /* of clip_queue */
    bool is_decided;     /* by the device, and the update is queued */
    ranks_result *all;   /* this rank's shards, until step_share */
    clip_result clip;
    double loss, norm; /* the algorithm's loss, and that of the model's terms */
    double data_seconds, comm_seconds, comm_bytes, comm_messages;
} one_step;

/* ---- 1: the weights of all terms, from counts alone ---- */

static nrl_status step_weigh(trainer *tr, one_step *of)
{
    const trainer_parts *parts = &tr->parts;
    const work *walk = parts->work;
    const nrl_algorithm *a = walk->algorithm;
    const int32_t n_shards = parts->shards->n;
    const int64_t per_shard = of->data->n_micro_batches / n_shards;
    memset(tr->weights, 0, (size_t)n_shards * sizeof *tr->weights);
    for (int64_t m = 0; m < of->data->n_micro_batches; m++) {
        double w[NRL_MAX_TERMS] = {0}, *own = tr->weights[m / per_shard];
        if (of->data->micro_batch[m]->is_tail) continue;
        double mark = ctx_profile_mark(walk->ctx);
        a->weight(walk->algorithm_self, of->data->micro_batch[m], w);
        ctx_profile_host(walk->ctx, "loss (host)", mark);
        for (uint32_t k = 0; k < a->n_terms; k++)
            own[k] += w[k];
        terms_weigh(walk->policy, of->data->micro_batch[m], own);
    }
    for (int32_t j = 0; j < n_shards; j++)
        for (uint32_t k = 0; k < a->n_terms; k++)
            if (!isfinite(tr->weights[j][k]) || tr->weights[j][k] < 0)
                return nrl_fail(NRL_ERR_PLUGIN, "algorithm '%s': weight of term %u is %g, expected a count",
                                a->plugin.name, k, tr->weights[j][k]);
    ctx_phase_set(walk->ctx, NRL_PHASE_COMMUNICATION);
    NRL_TRY(ranks_begin_step(parts->mesh, parts->shards, tr->progress.step, tr->weights, of->weights, &tr->lr_override,
                             &tr->stop_reason));
    ctx_phase_set(walk->ctx, NRL_PHASE_HOST);
    return NRL_OK;
}

/* ---- 2: forward and backward of all micro-batches ---- */

/* A parameter that nothing used in this step gets a gradient of zero instead of that of the last step. */
static nrl_status step_finish_gradients(const work *w)
{
    const nrl_slot slot = w->gradients.buffer ? NRL_SLOT_GRAD_SHARD : NRL_SLOT_GRAD;
    for (int32_t i = 0; i < w->policy->n_params; i++) {
        nrl_param *p = w->policy->params[i];
        nrl_tensor *grad = nrl_param_tensor(p, slot);
        if (!nrl_param_grad_is_empty(p) || !grad) continue;
        NRL_TRY(nrl_tensor_fill(w->ctx, grad, 0));
        nrl_param_set_grad_is_empty(p, false);
    }
    return strategy_finish(w->strategy, w->ctx);
}

/* Starts to read what step_shard and step_share fetch. */
static nrl_status step_read_ahead(const work *w, nrl_tensor **totals, const one_step *of)
{
    nrl_tensor *list[STEP_TERMS + 1], *norm = of->is_decided ? w->decision : of->squares;
    int64_t n = 0;
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++)
        if (totals[k]) list[n++] = totals[k];
    for (int32_t i = 0; i < w->policy->n_terms; i++)
        if (w->policy->terms[i].total) list[n++] = w->policy->terms[i].total;
    if (norm) list[n++] = norm;
    return ctx_read_ahead(w->ctx, list, n);
}

/* Fetches the sums of this rank. */
static nrl_status step_fetch_sums(const work *w, nrl_tensor **totals, double *sums)
{
    nrl_tensor *known[NRL_MAX_TERMS];
    double values[NRL_MAX_TERMS];
    int64_t n = 0, at = 0;
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++)
        if (totals[k]) known[n++] = totals[k];
    NRL_TRY(tensor_fetch_numbers(w->ctx, known, n, values));
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++)
        if (totals[k]) sums[k] = values[at++];
    return NRL_OK;
}

/* Whether the model draws random numbers in training, apart from its adapters. */
static bool model_is_random(const trainer *tr)
{
    return tr->parts.work->policy->is_random || tr->parts.config->neftune_alpha > 0;
}

/* The key of dropout, from seed and step; 0 (off) if nothing is dropped. */
static uint64_t random_key(const trainer *tr)
{
    const uint64_t of[] = {(uint64_t)tr->parts.config->seed, (uint64_t)tr->progress.step};
    const bool is_random = model_is_random(tr) || adapter_set_is_random(tr->parts.work->policy->adapters);
    return is_random ? XXH3_64bits(of, sizeof of) | 1 : 0;
}

/* Whether the current step is one of those in which the ranks are compared. */
static bool step_is_checked(const trainer *tr)
{
    return tr->parts.checks && (tr->progress.step + 1) % tr->parts.debug_every == 0;
}

static bool step_is_exact(const trainer *tr)
{
    return tr->parts.shards->fixed && tr->parts.device->host_memory;
}

static nrl_step_params step_params(const trainer *tr, const one_step *of, double grad_scale)
{
    return (nrl_step_params){.size = sizeof(nrl_step_params),
                             .step = tr->progress.updates + 1,
                             .lr = of->lr,
                             .grad_scale = grad_scale,
                             .slice_size = sizeof(nrl_slice),
                             .grad_norm = of->clip.norm};
}

/* Queues the update, in which the device has the factor of gradients if grad_scale is NaN. */
static nrl_status step_queue_update(trainer *tr, one_step *of, double grad_scale)
{
    const nrl_step_params params = step_params(tr, of, grad_scale);
    update_plan *u = tr->parts.updates;
    ctx_phase_set(tr->parts.work->ctx, NRL_PHASE_UPDATE);
    ctx_settings_of(tr->parts.work->ctx)->retry.allowed = false; /* an update cannot be repeated */
    tr->moved = tr->measures_update ? 0 : NAN;
    u->moved = tr->measures_update ? &tr->moved : NULL;
    u->counts = tr->slice_counts;
    nrl_status st = updates_step(u, tr->parts.work->ctx, tr->slices, tr->n_slices, &params);
    tr->measures_update = false;
    return st;
}

/* Whether the update may be queued before the host knows the numbers of the step: not where other ranks have a part of
 * the norm, the host computes the update, something reads gradients or weights in between, or a check may end the run.
 */
static bool step_may_precede(const trainer *tr)
{
    const trainer_parts *parts = &tr->parts;
    const nrl_optimizer *o = parts->updates->table;
    return nrl_mesh_world(parts->mesh) == 1 && parts->shards->n == 1 && !parts->work->strategy->plan.local_steps &&
           tr->progress.updates > 0 && tr->progress.far_steps + 1 < FAR_LIMIT && o->takes_decision && !o->perturb &&
           !parts->updates->host && !tr->measures_update && !step_is_checked(tr);
}

/* Queues the device's decision, if it can decide. A sum without weight is not part of the loss. */
static nrl_status step_decide(const trainer *tr, one_step *of, nrl_tensor **totals)
{
    work *w = tr->parts.work;
    const nrl_update_decider *decider = nrl_ctx_backend_extension(w->ctx, "update_decision");
    const int64_t n = sizeof(nrl_update_decision) / sizeof(double);
    nrl_decide_args a = {.size = sizeof a,
                         .squares = nrl_tensor_mat(of->squares).data,
                         .n_squares = nrl_tensor_numel(of->squares),
                         .scale = 1 / tr->loss_scale.scale,
                         .max_norm = tr->parts.clip_norm};
    _Static_assert(STEP_TERMS <= sizeof a.sums / sizeof *a.sums, "a decision is about all terms");
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++)
        if (totals[k] && of->weights[k] > 0) a.sums[a.n_sums++] = nrl_tensor_mat(totals[k]).data;
    for (int32_t i = 0; i < w->policy->n_terms; i++)
        if (w->policy->terms[i].total && of->weights[NRL_MAX_TERMS + i] > 0)
            a.sums[a.n_sums++] = nrl_tensor_mat(w->policy->terms[i].total).data;
    if (!decider) return NRL_OK;
    if (!w->decision) NRL_TRY(tensor_persistent(w->ctx, NRL_DTYPE_F64, 1, &n, true, &w->decision));
    a.out = nrl_tensor_mat(w->decision).data;
    of->is_decided = true;
    return decider->decide(decider->self, nrl_ctx_stream(w->ctx), &a);
}

/* Walks one shard of the batch on this rank. After the last shard the gradients are complete; `squares` are those of
 * clip_queue, for step_share. Everything is queued on the device before the host waits for it. */
static nrl_status step_shard(trainer *tr, one_step *of, int32_t shard)
{
    work *w = tr->parts.work;
    const int32_t n_shards = tr->parts.shards->n;
    nrl_tensor *totals[NRL_MAX_TERMS] = {0};
    const int64_t n = of->data->n_micro_batches / n_shards;
    double *sums = of->all[shard].sums;
    NRL_TRY(work_schedule(w, (int32_t)n, shard));
    ctx_retry *retry = &ctx_settings_of(w->ctx)->retry;
    nrl_status st = work_train(w, of->data->micro_batch + shard * n, totals);
    if (retry->lacked) tr->problem = arena_strdup(&tr->memory, nrl_error_text());
    if (shard == n_shards - 1) {
        ctx_phase_set(w->ctx, NRL_PHASE_BACKWARD);
        if (st == NRL_OK) st = step_finish_gradients(w);
        ctx_phase_set(w->ctx, NRL_PHASE_UPDATE);
        if (st == NRL_OK && retry->lacked) st = NRL_ERR_MEMORY;
        if (st == NRL_OK && !step_is_exact(tr)) st = clip_queue(w->ctx, tr->slices, tr->n_slices, &of->squares);
    }
    ctx_phase_set(w->ctx, NRL_PHASE_HOST);
    of->metrics->shard = shard;
    if (st == NRL_OK && of->squares && step_may_precede(tr)) st = step_decide(tr, of, totals);
    if (st == NRL_OK) st = step_read_ahead(w, totals, of);
    if (st == NRL_OK && of->is_decided) {
        ctx_settings_of(w->ctx)->decision = nrl_tensor_mat(w->decision).data;
        st = step_queue_update(tr, of, NAN);
        ctx_settings_of(w->ctx)->decision = NULL;
        ctx_phase_set(w->ctx, NRL_PHASE_HOST);
    }
    if (st == NRL_OK) st = metrics_collect(of->metrics, w->ctx, false);
    if (st == NRL_OK) st = step_fetch_sums(w, totals, sums);
    nrl_status taken = model_take_terms(w->policy, w->ctx, st == NRL_OK ? sums + NRL_MAX_TERMS : NULL);
    if (st == NRL_OK) st = taken;
    for (int k = 0; k < NRL_MAX_TERMS; k++)
        tensor_release(w->ctx, totals[k]);
    if (st == NRL_OK) return NRL_OK;
    tensor_release(w->ctx, of->squares);
    of->squares = NULL;
    if (st != NRL_ERR_MEMORY || !retry->lacked) return st;
    of->all->lacks = 1;
    retry->lacked = false;
    return metrics_collect(&tr->metrics, w->ctx, false); /* the repeated step begins without metrics */
}

/* Computes this rank's part of the result. */
static nrl_status step_compute(trainer *tr, one_step *of)
{
    work *w = tr->parts.work;
    model *m = w->policy;
    const int32_t n_shards = tr->parts.shards->n;
    const double *weights = w->strategy->plan.local_steps ? tr->weights[0] : of->weights;
    const int64_t one = 1;
    /* d step loss / d sum k = 1 / W[k], times the loss scale: what each term's backward starts from. */
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++) {
        float value = weights[k] > 0 ? (float)(tr->loss_scale.scale / weights[k]) : 0;
        if (!w->seeds[k]) NRL_TRY(tensor_persistent(w->ctx, NRL_DTYPE_F32, 1, &one, true, &w->seeds[k]));
        NRL_TRY(tensor_write(w->ctx, w->seeds[k], &value));
    }
    for (int32_t i = 0; i < m->n_terms; i++) {
        nrl_loss_term *t = &m->terms[i];
        double weight = weights[NRL_MAX_TERMS + i];
        t->scale = weight > 0 ? t->coefficient * tr->loss_scale.scale / (weight * t->n_values) : 0;
    }
    w->random = random_key(tr);
    metrics_begin(of->metrics);
    gradients_forget(&w->gradients);
    for (int32_t i = 0; i < m->n_params; i++) /* also where nothing of it is updated on this rank */
        nrl_param_set_grad_is_empty(m->params[i], m->params[i]->trained);
    ctx_settings_of(w->ctx)->flops = 0;
    memset(of->all, 0, (size_t)n_shards * sizeof *of->all);
    for (int32_t shard = 0; shard < n_shards; shard++)
        NRL_TRY(step_shard(tr, of, shard));
    tr->flops = ctx_settings_of(w->ctx)->flops;
    return NRL_OK;
}

/* ---- 3: the norm, and values that all ranks must share before they decide ---- */

static nrl_status step_share(trainer *tr, one_step *of)
{
    const trainer_parts *parts = &tr->parts;
    const work *w = parts->work;
    ranks_result *all = of->all;
    bool local = w->strategy->plan.local_steps;
    double sum = 0;
    nrl_update_decision own = {0};
    _Static_assert(sizeof own == 3 * sizeof(double), "a decision is fetched as a tensor of doubles");
    ctx_phase_set(w->ctx, NRL_PHASE_UPDATE);
    /* Local steps clip by the rank's own norm; else each element counts on one rank. */
    if (of->is_decided) {
        tensor_release(w->ctx, of->squares);
        NRL_TRY(nrl_tensor_fetch(w->ctx, w->decision, &own.grad_scale, 3));
    } else
        NRL_TRY(clip_add(w->ctx, of->squares, local ? NULL : tr->slice_counts, &sum));
    ctx_read_ahead_end(w->ctx);
    /* Slices begin at multiples of EXACT_CHUNK elements of a parameter, however it is divided. */
    for (int64_t i = 0; i < tr->n_slices && step_is_exact(tr); i++)
        if (tr->slice_counts[i])
            exact_add_squares(&all->squares, nrl_tensor_mat(tr->slices[i].grad).data, tr->slices[i].n);
    if (local) of->clip = clip_decide(sum, 1 / tr->loss_scale.scale, parts->clip_norm);
    all->square_sum = local ? 0 : sum;
    all->norm = local ? of->clip.norm : 0;
    all->finite = isfinite(sum + exact_value(&all->squares));
    for (int64_t m = 0; m < of->data->n_micro_batches; m++)
        all->tokens += nrl_batch_count(of->data->micro_batch[m], "tokens");
    all->flops = tr->flops;
    all->signal = parts->signal ? *parts->signal : 0;
    all->save_now = nrl_mesh_rank(parts->mesh) == 0 && clock_seconds() >= tr->save_at;
    ctx_phase_set(w->ctx, NRL_PHASE_COMMUNICATION);
    NRL_TRY(ranks_end_step(parts->mesh, parts->shards, of->metrics, all));
    ctx_phase_set(w->ctx, NRL_PHASE_HOST);
    all->square_sum += exact_value(&all->squares);
    if (!local) of->clip = clip_decide(all->square_sum, 1 / tr->loss_scale.scale, parts->clip_norm);
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++)
        if (of->weights[k] > 0) of->loss += all->sums[k] / of->weights[k];
    of->loss += terms_loss(w->policy, all->sums, of->weights);
    tr->signal = (int)all->signal;
    tr->save_by_clock = all->save_now > 0;
    of->clip.finite = of->clip.finite && all->finite > 0 && isfinite(of->loss);
    /* The device has already decided. A GPU may round differently, so its results are used. */
    if (of->is_decided) of->clip = (clip_result){own.grad_norm, own.grad_scale, own.applies > 0};
    of->norm = local ? all->norm : of->clip.norm;
    return NRL_OK;
}

/* ---- 4: whether the numbers are plausible ---- */

/* With reference = policy the first loss is a constant of the algorithm: another number means that the
 * two models, or their log-probs, are not what the user thinks. A model that draws random numbers makes the two differ,
 * as do dropout of adapters that start from trained values (adapter.use) and an adapter whose initial values change the
 * product; any other new adapter leaves the policy as it is, with dropout too, and shares its weights. */
static nrl_status check_initial_loss(const trainer *tr, double loss)
{
    const work *w = tr->parts.work;
    const nrl_algorithm *a = w->algorithm;
    const reference_options *o = tr->parts.reference_options;
    if (tr->progress.updates || !tr->reference || !o->check_initial_loss || !a->initial_loss ||
        !reference_is_start(tr->reference))
        return NRL_OK;
    bool is_shared = reference_is_shared(tr->reference);
    if (model_is_random(tr) || (random_key(tr) && !is_shared)) return NRL_OK;
    if (is_shared && !adapter_set_starts_as_base(w->policy->adapters)) return NRL_OK;
    double known = a->initial_loss(w->algorithm_self);
    double tolerance = tr->parts.config->precision == CONFIG_FP32 ? 1e-4 : 2e-2;
    if (isnan(known) || fabs(loss - known) <= tolerance * fmax(1, fabs(known))) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "the first loss is %.6g, expected %.6g, the loss of '%s' for an equal policy and reference: the "
                    "log-probs of the reference (%s) are not those of the policy\n"
                    "hint: algorithm.check_initial_loss: false skips this check",
                    loss, known, a->plugin.name,
                    o->reference == REFERENCE_CACHED ? "from data.cache" : "computed in this step");
}

/* A single batch may be far off in a healthy run; ten in a row are not. */
static nrl_status check_divergence(trainer *tr, double loss)
{
    run_progress *p = &tr->progress;
    double factor = tr->parts.config->diverge_factor;
    if (!p->updates || isnan(p->first_loss)) p->first_loss = loss;
    /* The NaN policy handles a loss that is not finite. The first loss may be close to 0 (preferences already learned,
     * a script's loss around 0): it then counts as 1. */
    bool is_far = factor > 0 && loss > factor * fmax(1, fabs(p->first_loss));
    p->far_steps = is_far ? p->far_steps + 1 : 0;
    if (p->far_steps < FAR_LIMIT) return NRL_OK;
    return nrl_fail(NRL_ERR_DIVERGED,
                    "loss %g: %d steps in a row were above %g times the first loss, %g\n"
                    "hint: try a lower optimizer.lr or a longer warm-up; train.diverge_factor: 0 disables this "
                    "check",
                    loss, FAR_LIMIT, factor, p->first_loss);
}

/* A loss that trains the model does not start with a gradient of exactly 0; a detached one does. */
static nrl_status check_gradient(const trainer *tr, const double *weights, double norm)
{
    const nrl_algorithm *a = tr->parts.work->algorithm;
    bool weighs = false;
    for (uint32_t k = 0; k < a->n_terms; k++)
        weighs |= weights[k] > 0;
    if (tr->progress.updates || !tr->parts.config->check_gradient || !weighs || norm > 0) return NRL_OK;
    if (a->rollout) return NRL_OK; /* generated samples may give no gradient */
    return nrl_fail(
        NRL_ERR_CONFIG,
        "the first gradient is 0 for every trained parameter: the loss of '%s' does not depend on the model\n"
        "hint: check for detached tensors, constants, or samples that all have weight 0; train.check_gradient: false "
        "disables this check",
        a->plugin.name);
}

/* ---- 5: the update, or how a step without one is handled ---- */

/* For an optimizer that updates by the gradient at other weights (nrl_optimizer.perturb): walks the same batches with
 * those weights and restores the old ones. The record has loss, norm and metrics of the first pass, or, if the step is
 * omitted because this pass is not finite, the loss and norm that caused that. */
static nrl_status step_second_pass(trainer *tr, one_step *of)
{
    const work *w = tr->parts.work;
    const update_plan *updates = tr->parts.updates;
    const nrl_step_params params = step_params(tr, of, 1 / tr->loss_scale.scale);
    const strategy *strategies = w->strategy->plan.local_steps ? NULL : w->strategy;
    nrl_tensor **kept = mem_alloc((size_t)(tr->n_slices + 1) * sizeof(nrl_tensor *));
    one_step second = {
        .data = of->data, .metrics = &tr->unrecorded, .lr = of->lr, .all = tr->results + tr->parts.shards->n};
    memcpy(second.weights, of->weights, sizeof second.weights);
    ctx_phase_set(w->ctx, NRL_PHASE_UPDATE);
    nrl_status st = slices_perturb(w->ctx, updates->table, updates->self, tr->slices, tr->n_slices, &params, kept);
    if (st != NRL_OK) nrl_add_context("optimizer '%s'", updates->table->plugin.name);
    if (st == NRL_OK && strategies) st = strategy_updated(strategies, w->ctx, params.step);
    if (st == NRL_OK) st = step_compute(tr, &second);
    if (st == NRL_OK) st = step_share(tr, &second);
    nrl_status restored = slices_restore(w->ctx, tr->slices, tr->n_slices, kept);
    if (restored == NRL_OK && strategies) restored = strategy_updated(strategies, w->ctx, params.step);
    free(kept);
    of->clip = second.clip;
    if (!second.clip.finite) {
        of->loss = second.loss;
        of->norm = second.norm;
    }
    of->all->flops += second.all->flops;
    return st == NRL_OK ? restored : st;
}

static nrl_status step_update(trainer *tr, one_step *of, bool look)
{
    const work *w = tr->parts.work;
    const nrl_algorithm *a = w->algorithm;
    nrl_status st = of->is_decided ? NRL_OK : step_queue_update(tr, of, of->clip.scale);
    slices_touch(tr->slices, tr->n_slices);
    ctx_phase_set(w->ctx, NRL_PHASE_COMMUNICATION);
    if (st == NRL_OK) st = strategy_updated(w->strategy, w->ctx, tr->progress.updates + 1);
    if (st == NRL_OK) st = metrics_collect(&tr->metrics, w->ctx, true);
    NRL_TRY(st);
    ctx_phase_set(w->ctx, NRL_PHASE_HOST);
    if (look) NRL_TRY(tr->parts.checks->weights(tr));
    tr->progress.updates++;
    tr->progress.skipped_in_a_row = 0;
    NRL_TRY(loss_scale_update(&tr->loss_scale, true));
    return a->step_end ? a->step_end(w->algorithm_self, of->all->sums, of->weights) : NRL_OK;
}

/* A gradient that fp16 could not hold, of a finite loss: the step is omitted with a smaller scale. */
static nrl_status overflowed(trainer *tr)
{
    loss_scale *s = &tr->loss_scale;
    double was = s->scale;
    NRL_TRY(loss_scale_update(s, false));
    if (nrl_mesh_rank(tr->parts.mesh) == 0 && (s->overflows == 1 || tr->parts.debug_every))
        telemetry_log(tr->parts.telemetry,
                      "step %lld skipped: a gradient is not finite in fp16; loss scale %g, now %g%s",
                      (long long)tr->progress.step + 1, was, s->scale,
                      tr->parts.debug_every ? "" : " (later ones are only in the records)");
    return NRL_OK;
}

/* A loss or gradient that is not finite: stop, or skip this step and count it. */
static nrl_status diverged(trainer *tr, double loss, double norm)
{
    const config_train *t = tr->parts.config;
    int64_t step = tr->progress.step + 1;
    /* fp16 ends at 65504: a loss that is not finite may be its fault, a gradient that of the scale. */
    const char *hint = tr->parts.compute != NRL_DTYPE_F16 ? ""
                       : isfinite(loss)                   ? "train.loss_scale: dynamic; "
                                                          : "train.precision: bf16; ";
    if (isnan(loss)) loss = (double)NAN; /* printf shows the sign of a NaN, which means nothing */
    if (isnan(norm)) norm = (double)NAN;
    if (t->nan == CONFIG_NAN_STOP)
        return nrl_fail(NRL_ERR_DIVERGED, "loss %g, gradient norm %g\nhint: %s; %strain.nan: skip skips such steps",
                        loss, norm,
                        tr->progress.step ? "try a lower optimizer.lr or a longer warm-up"
                                          : "nothing has been updated yet, so check the weights and the rows",
                        hint);
    if (++tr->progress.skipped_in_a_row >= t->nan_limit)
        return nrl_fail(NRL_ERR_DIVERGED,
                        "loss %g, gradient norm %g: %lld steps in a row were skipped (train.nan_limit)", loss, norm,
                        (long long)tr->progress.skipped_in_a_row);
    if (nrl_mesh_rank(tr->parts.mesh) == 0)
        nrl_warn("step %lld skipped: loss %g, gradient norm %g", (long long)step, loss, norm);
    return NRL_OK;
}

/* ---- 6: the record ---- */

/* The memory in bytes: the resident set of the process if tensors are in host memory, else the peak of the device
 * pool. */
static int64_t memory_in_use(nrl_ctx *ctx, const nrl_device_info *info)
{
    long pages = 0, resident = 0;
    if (!info->host_memory) {
        ctx_memory m;
        ctx_memory_use(ctx, &m);
        return (int64_t)m.peak_bytes;
    }
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    fclose(f);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

/* Fills the record: the loss is that of the weights before the update, and the tokens include those of the step. */
static void step_record(trainer *tr, const one_step *of, double seconds, nrl_run_event *e)
{
    const trainer_parts *parts = &tr->parts;
    const int32_t world = nrl_mesh_world(parts->mesh);
    double peak = parts->device->peak_flops[parts->compute] * world;
    value_list *v = &tr->values;
    v->n = 0;
    values_add(v, "loss", "nats", of->loss);
    values_add(v, "grad_norm", "1", of->norm);
    values_add(v, "lr", "1", of->lr);
    values_add(v, "epoch", "1", of->data->epoch);
    values_add(v, "tokens", "tokens", (double)tr->progress.tokens);
    values_add(v, "tokens_per_s", "tok/s", of->all->tokens / seconds);
    if (peak > 0) values_add(v, "mfu", "1", of->all->flops / seconds / peak);
    values_add(v, "mem_bytes", "bytes", (double)memory_in_use(parts->work->ctx, parts->device));
    values_add(v, "mem_total_bytes", "bytes", (double)parts->device->memory_bytes);
    values_add(v, "data_fraction", "1", of->data_seconds / seconds);
    values_add(v, "comm_fraction", "1", of->comm_seconds / seconds);
    if (world > 1) values_add(v, "comm_bytes", "bytes", of->comm_bytes);
    if (of->comm_messages > 0) values_add(v, "comm_messages", "messages", of->comm_messages);
    if (parts->compute == NRL_DTYPE_F16) values_add(v, "loss_scale", "1", tr->loss_scale.scale);
    if (tr->loss_scale.rule.dynamic) values_add(v, "overflows", "steps", (double)tr->loss_scale.overflows);
    for (size_t i = 0; i < tr->n_notes; i++)
        values_add(v, tr->notes[i].name, tr->notes[i].unit, tr->notes[i].value);
    tr->n_notes = 0;
    terms_record(parts->work->policy, of->all->sums, of->weights, "", v, NULL);
    values_add_metrics(v, &tr->metrics, "", NULL);
    *e = (nrl_run_event){.size = sizeof *e,
                         .kind = NRL_EVENT_STEP,
                         .step = tr->progress.step,
                         .epoch = of->data->epoch,
                         .loss = of->loss,
                         .grad_norm = of->norm,
                         .lr = of->lr,
                         .tokens = of->all->tokens,
                         .tokens_per_s = of->all->tokens / seconds,
                         .seconds = seconds,
                         .skipped = !of->clip.finite,
                         .values = v->list,
                         .n_values = v->n};
}

/* ---- the step ---- */

static nrl_status step_run(trainer *tr, one_step *of, double start, nrl_run_event *e, bool *done)
{
    const trainer_parts *parts = &tr->parts;
    const work *w = parts->work;
    const double waited = mesh_wait_seconds(parts->mesh);
    if (!tr->sent.size) tr->sent = mesh_traffic(parts->mesh);
    NRL_TRY(step_weigh(tr, of));
    *done = tr->stop_reason != NULL;
    if (*done) return NRL_OK;
    of->lr = tr->lr_override;
    if (of->lr < 0) NRL_TRY(schedule_rate(&tr->schedule, tr->progress.step, &of->lr));
    NRL_TRY(step_compute(tr, of));
    NRL_TRY(step_share(tr, of));
    tr->lacked = of->all->lacks > 0;
    if (tr->lacked) return NRL_OK;
    ctx_settings_of(w->ctx)->retry.allowed = false; /* a second pass has other weights */
    NRL_TRY(check_initial_loss(tr, of->loss - terms_loss(w->policy, of->all->sums, of->weights)));
    if (of->clip.finite) NRL_TRY(check_gradient(tr, of->weights, of->norm));
    if (of->clip.finite) NRL_TRY(check_divergence(tr, of->loss));
    const bool look = step_is_checked(tr);
    if (look) NRL_TRY(parts->checks->data(tr, of->data));
    if (look) NRL_TRY(parts->checks->gradients(tr));
    if (of->clip.finite && parts->updates->table->perturb) NRL_TRY(step_second_pass(tr, of));
    NRL_TRY(fp8_scaling_end(&tr->fp8, w->ctx, parts->mesh));
    if (of->clip.finite)
        NRL_TRY(step_update(tr, of, look));
    else if (isfinite(of->loss) && tr->loss_scale.rule.dynamic)
        NRL_TRY(overflowed(tr));
    else
        NRL_TRY(diverged(tr, of->loss, of->norm));
    NRL_TRY(ranks_late_metrics(parts->mesh, parts->shards, &tr->metrics, w->algorithm->step_end));
    tr->progress.step++;
    tr->progress.tokens += (int64_t)of->all->tokens;
    of->comm_seconds = mesh_wait_seconds(parts->mesh) - waited;
    const nrl_collective_info sent = mesh_traffic(parts->mesh);
    of->comm_bytes = (double)(sent.bytes_sent - tr->sent.bytes_sent);
    of->comm_messages = (double)(sent.messages_sent - tr->sent.messages_sent);
    tr->sent = sent; /* communication that an update starts ends after its record, and counts in the next one */
    step_record(tr, of, clock_seconds() - start, e);
    return NRL_OK;
}

nrl_status trainer_step(trainer *tr, const step_input *in, nrl_run_event *e, bool *done)
{
    const trainer_parts *parts = &tr->parts;
    one_step of = {.data = in->data,
                   .metrics = &tr->metrics,
                   .clip = {.norm = NAN},
                   .all = tr->results,
                   .data_seconds = in->data_seconds};
    mesh_set_step(parts->mesh, tr->progress.step + 1);
    run_inside was = hooks_enter(parts->hooks, INSIDE_LOSS);
    tr->lacked = false;
    tr->problem = NULL;
    nrl_status st = step_run(tr, &of, in->began, e, done);
    hooks_enter(parts->hooks, was);
    if (st != NRL_OK) nrl_add_context("step %lld", (long long)tr->progress.step + 1);
    return st;
}
