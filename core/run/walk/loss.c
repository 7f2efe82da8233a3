/*
 * loss.c - computes the sums of an algorithm from hidden states, in two ways with the same results. A loss that is a
 * sum over target positions gets them chunk by chunk, so that logits are computed once and never exist as a whole. Any
 * other loss gets the values of the whole batch on the tape, and the head keeps its logits for the backward or, beyond
 * train.logits_mb, computes them again.
 */
#include "run/walk/work.h"
#include <string.h>

static nrl_status call_loss(work *w, nrl_batch *batch, nrl_tensor **sums)
{
    const nrl_algorithm *a = w->algorithm;
    double mark = ctx_profile_mark(w->ctx);
    ctx_settings_of(w->ctx)->no_loss_metrics = false;
    (void)nrl_fail(NRL_ERR_PLUGIN, "it failed without a message"); /* unless it calls nrl_fail itself */
    nrl_status st = a->loss(w->algorithm_self, w->ctx, batch, sums);
    ctx_settings_of(w->ctx)->no_loss_metrics = true;
    ctx_profile_host(w->ctx, "loss (host)", mark);
    for (uint32_t k = 0; st == NRL_OK && k < a->n_terms; k++)
        if (!sums[k] || nrl_tensor_numel(sums[k]) != 1 || nrl_tensor_dtype(sums[k]) != NRL_DTYPE_F32)
            st = nrl_fail(NRL_ERR_PLUGIN, "term %u must be one f32 number, it %s", k,
                          sums[k] ? "has another shape or type" : "was not set");
    if (st != NRL_OK) nrl_add_context("loss of '%s'", a->plugin.name);
    return st;
}

/* The values of the head that the algorithm asked for; 0 = it does not need the head. */
static uint32_t head_wants(const nrl_algorithm *a)
{
    return (work_needs(a, "logps") || work_needs(a, "lse") ? HEAD_LOGP : 0) |
           (work_needs(a, "entropy") ? HEAD_ENTROPY : 0) | (work_needs(a, "sum_p2") ? HEAD_LOG_SUM_P2 : 0) |
           (work_needs(a, "logits") ? HEAD_LOGITS : 0);
}

static void set_values(const work *w, nrl_batch *batch, const head_tensors *v)
{
    if (v->logps) batch_set_column(batch, "logps", v->logps);
    if (v->entropy) batch_set_column(batch, "entropy", v->entropy);
    if (v->log_sum_p2) batch_set_column(batch, "sum_p2", v->log_sum_p2);
    if (v->logits) batch_set_column(batch, "logits", v->logits);
    if (work_needs(w->algorithm, "lse")) batch_set_column(batch, "lse", v->lse);
}

static nrl_status set_columns(work *w, nrl_batch *batch, nrl_tensor *hidden)
{
    uint32_t want = head_wants(w->algorithm);
    const nrl_batch *own = ctx_batch(w->ctx);
    head_tensors v = {0};
    if (want) NRL_TRY(head_columns(w->ctx, &w->policy->head, hidden, want, 1.0, &v));
    nrl_tensor **const values[] = {&v.logps, &v.lse, &v.entropy, &v.log_sum_p2};
    for (int i = 0; i < 4 && own->whole; i++)
        if (*values[i])
            NRL_TRY(strategy_whole(w->strategy, w->ctx, own->row_number, own->n_rows, batch->n_rows, values[i]));
    if (own->whole && work_needs(w->algorithm, "hidden"))
        NRL_TRY(strategy_whole(w->strategy, w->ctx, own->token_number, own->is_copy ? 0 : own->n_tokens,
                               batch->n_tokens, &hidden));
    set_values(w, batch, &v);
    if (work_needs(w->algorithm, "hidden")) batch_set_column(batch, "hidden", hidden);
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
    nrl_tensor *hidden, **totals;
    nrl_tensor **dhidden; /* NULL: no gradients */
    nrl_tensor *teacher;  /* hidden states [N,D'] of the teacher, if there is one */
} chunk_call;

/* [n,V] f32: what a larger vocabulary of the teacher has beyond the policy's is dropped. */
static nrl_status set_teacher_logits(const chunk_call *c, nrl_ctx *ctx, nrl_batch *chunk)
{
    int64_t vocab = c->work->policy->info.vocab_size;
    nrl_tensor *logits;
    NRL_TRY(head_logits(ctx, &c->work->teacher->policy->head, c->teacher, chunk->row_token, chunk->n_rows, &logits));
    if (nrl_tensor_dim(logits, 1) > vocab) NRL_TRY(nrl_op_slice_columns(ctx, logits, 0, vocab, &logits));
    batch_set_column(chunk, "teacher_logits", logits);
    return NRL_OK;
}

/* Differentiates one chunk of target positions, on a tape of its own from the values of the head to the sums and
 * back. */
static nrl_status chunk_loss(void *user, nrl_ctx *ctx, nrl_batch *chunk, const head_tensors *v, head_tensors *grads)
{
    chunk_call *call = user;
    work *w = call->work;
    nrl_tensor *sums[NRL_MAX_TERMS] = {0}, *leaves[4], **to[4], *back[4];
    int n = 0;
    set_values(w, chunk, v);
    if (w->teacher) NRL_TRY(set_teacher_logits(call, ctx, chunk));
    if (!call->dhidden) {
        NRL_TRY(call_loss(w, chunk, sums));
        return add_totals(w, sums, call->totals);
    }
    nrl_tensor *const values[] = {v->logps, v->lse, v->entropy, v->logits};
    nrl_tensor **const places[] = {&grads->logps, &grads->lse, &grads->entropy, &grads->logits};
    for (int i = 0; i < 4; i++) {
        if (!values[i]) continue;
        tensor_set_leaf(values[i]);
        leaves[n] = values[i];
        to[n++] = places[i];
    }
    tape *t = tape_create();
    ctx_tape_begin(ctx, t);
    nrl_status st = call_loss(w, chunk, sums);
    ctx_tape_end(ctx);
    if (st == NRL_OK) st = add_totals(w, sums, call->totals);
    if (st == NRL_OK) st = tape_backward(ctx, t, sums, w->seeds, (int)w->algorithm->n_terms, leaves, back, n);
    for (int i = 0; i < n && st == NRL_OK; i++)
        *to[i] = back[i];
    tape_destroy(ctx, t);
    return st;
}

/* Hidden states belong to the whole batch; everything else that a loss may read is of one target position. */
bool loss_is_separable(const nrl_algorithm *a)
{
    return a->tokenwise && !work_needs(a, "hidden");
}

static nrl_status use_chunks(void *user, nrl_tensor *teacher)
{
    chunk_call *c = user;
    work *w = c->work;
    c->teacher = teacher;
    ctx_phase_set(w->ctx, NRL_PHASE_HEAD);
    if (ctx_batch(w->ctx)->is_tail) return NRL_OK;
    return head_fused(w->ctx, &w->policy->head, c->hidden, head_wants(w->algorithm), chunk_loss, c, c->dhidden);
}

/* Runs inside the last action of the teacher, if there is one, so that the parameters of its head are there too. Also
 * called for empty micro-batches, on which a sharded teacher has its actions. */
static nrl_status run_chunks(chunk_call *c)
{
    work *w = c->work;
    if (!w->teacher) return use_chunks(c, NULL);
    ctx_phase_set(w->ctx, NRL_PHASE_REFERENCE);
    return work_hidden(w->teacher, ctx_batch(w->ctx), use_chunks, c);
}

nrl_status loss_forward(work *w, nrl_tensor *hidden, nrl_tensor **totals)
{
    ctx_phase_set(w->ctx, NRL_PHASE_HEAD); /* the phase lasts until the action is left */
    /* For an empty micro-batch the units run, but no loss is called, and its gradient is zero. */
    if (w->micro_batch->batch->is_tail) {
        nrl_tensor *zero;
        ctx_tape_end(w->ctx);
        if (w->teacher) NRL_TRY(run_chunks(&(chunk_call){w, hidden, totals, NULL, NULL}));
        NRL_TRY(nrl_op_unary(w->ctx, NRL_UNARY_AFFINE, hidden, 0.0, 0.0, &zero));
        w->micro_batch->grads = (nrl_carry){.tensors = {tensor_retain(zero)}, .n = 1};
        return NRL_OK;
    }
    if (loss_is_separable(w->algorithm)) {
        nrl_tensor *dhidden = NULL;
        ctx_tape_end(w->ctx);
        NRL_TRY(run_chunks(&(chunk_call){w, hidden, totals, &dhidden, NULL}));
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
    if (batch->is_tail && !w->teacher) return NRL_OK;
    if (loss_is_separable(w->algorithm)) return run_chunks(&(chunk_call){w, hidden, totals, NULL, NULL});
    if (batch->whole) batch = batch->whole;
    NRL_TRY(set_columns(w, batch, hidden));
    NRL_TRY(call_loss(w, batch, sums));
    return add_totals(w, sums, totals);
}
