/*
 * loss.c - the tp_region between the head and an algorithm. Two ways to the same numbers: a loss that is a
 * sum over target positions gets them chunk by chunk, so that logits are made once and never whole; any other
 * gets all log-probs of the batch on the tape, and the head keeps its logits for the way back or, beyond
 * train.logits_mb, makes them again.
 */
#include "run/walk/work.h"
#include <string.h>

static nrl_status call_loss(work *w, nrl_batch *batch, nrl_tensor **sums)
{
    const nrl_algorithm *a = w->algorithm;
    double mark = ctx_profile_mark(w->ctx);
    nrl_status st = a->loss(w->algorithm_self, w->ctx, batch, sums);
    ctx_profile_host(w->ctx, "loss (host)", mark);
    for (uint32_t k = 0; st == NRL_OK && k < a->n_terms; k++)
        if (!sums[k] || nrl_tensor_numel(sums[k]) != 1 || nrl_tensor_dtype(sums[k]) != NRL_DTYPE_F32)
            st = nrl_fail(NRL_ERR_PLUGIN, "term %u must be one f32 number, it %s", k,
                          sums[k] ? "has another shape or type" : "was not set");
    if (st != NRL_OK) nrl_add_context("loss of '%s'", a->plugin.name);
    return st;
}

static nrl_status set_columns(work *w, nrl_batch *batch, nrl_tensor *hidden)
{
    const nrl_algorithm *a = w->algorithm;
    uint32_t want = HEAD_LOGP;
    if (work_needs(a, "entropy")) want |= HEAD_ENTROPY;
    if (work_needs(a, "sum_p2")) want |= HEAD_LOG_SUM_P2;
    nrl_tensor *logps, *entropy, *sum_p2;
    NRL_TRY(head_columns(w->ctx, &w->policy->head, hidden, want, 1.0, &logps, &entropy, &sum_p2));
    batch_set_column(batch, "logps", logps);
    if (entropy) batch_set_column(batch, "entropy", entropy);
    if (sum_p2) batch_set_column(batch, "sum_p2", sum_p2);
    return NRL_OK;
}

/* totals[k] += sums[k], on the device, off any tape; totals are counted. */
static nrl_status add_totals(work *w, nrl_tensor *const *sums, nrl_tensor **totals)
{
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++) {
        nrl_tensor *next = sums[k];
        if (totals[k])
            NRL_TRY(nrl_op_binary(w->ctx, NRL_BINARY_ADD, totals[k], sums[k], &next));
        else
            NRL_TRY(nrl_op_unary(w->ctx, NRL_UNARY_AFFINE, sums[k], 1.0, 0.0, &next));
        tensor_release(w->ctx, totals[k]);
        totals[k] = tensor_retain(next);
    }
    return NRL_OK;
}

typedef struct {
    work *work;
    nrl_tensor **totals;
} chunk_call;

/* One chunk of target positions: a tape of its own from its log-probs to the sums and back. */
static nrl_status chunk_loss(void *user, nrl_ctx *ctx, nrl_batch *chunk, nrl_tensor *logps, nrl_tensor **dlogps)
{
    chunk_call *call = user;
    work *w = call->work;
    nrl_tensor *sums[NRL_MAX_TERMS] = {0};
    tape *t = tape_create();
    tensor_set_leaf(logps);
    batch_set_column(chunk, "logps", logps);
    ctx_tape_begin(ctx, t);
    nrl_status st = call_loss(w, chunk, sums);
    ctx_tape_end(ctx);
    if (st == NRL_OK) st = add_totals(w, sums, call->totals);
    if (st == NRL_OK) st = tape_backward(ctx, t, sums, w->seeds, (int)w->algorithm->n_terms, &logps, dlogps, 1);
    tape_destroy(ctx, t);
    return st;
}

/* Only log-probs can be had chunk by chunk; other columns need the whole batch. */
bool loss_is_separable(const nrl_algorithm *a)
{
    return a->tokenwise && !work_needs(a, "entropy") && !work_needs(a, "sum_p2");
}

nrl_status loss_forward(work *w, nrl_tensor *hidden, nrl_tensor **totals)
{
    ctx_phase_set(w->ctx, NRL_PHASE_HEAD); /* until the action is left */
    /* An empty micro-batch: its units are run, no loss is called, its gradient is zero. */
    if (w->micro_batch->batch->is_tail) {
        nrl_tensor *zero;
        ctx_tape_end(w->ctx);
        NRL_TRY(nrl_op_unary(w->ctx, NRL_UNARY_AFFINE, hidden, 0.0, 0.0, &zero));
        w->micro_batch->grads = (nrl_carry){.tensors = {tensor_retain(zero)}, .n = 1};
        return NRL_OK;
    }
    if (loss_is_separable(w->algorithm)) {
        chunk_call call = {w, totals};
        nrl_tensor *dhidden = NULL;
        ctx_tape_end(w->ctx);
        NRL_TRY(head_fused(w->ctx, &w->policy->head, hidden, chunk_loss, &call, &dhidden));
        w->micro_batch->grads = (nrl_carry){.tensors = {dhidden}, .n = 1};
        return NRL_OK;
    }
    nrl_tensor *sums[NRL_MAX_TERMS] = {0};
    nrl_status st = set_columns(w, w->micro_batch->batch, hidden);
    if (st == NRL_OK) st = call_loss(w, w->micro_batch->batch, sums);
    ctx_tape_end(w->ctx);
    NRL_TRY(st);
    NRL_TRY(add_totals(w, sums, totals));
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++)
        w->micro_batch->sums[k] = tensor_retain(sums[k]);
    return NRL_OK;
}

nrl_status loss_evaluate(work *w, nrl_tensor *hidden, nrl_tensor **totals)
{
    nrl_tensor *sums[NRL_MAX_TERMS] = {0};
    nrl_batch *batch = ctx_batch(w->ctx);
    NRL_TRY(set_columns(w, batch, hidden));
    NRL_TRY(call_loss(w, batch, sums));
    return add_totals(w, sums, totals);
}
