/*
 * head.c - the output head in three forms: log-probs of target positions recorded on the tape, fused with a tokenwise
 * loss, and complete logits for sampling. P target positions, N tokens, D width, V vocabulary.
 */
#include "tensor/head/head.h"
#include "tensor/ops/tp_region.h"
#include "tensor/tape/tape.h"

typedef struct {
    head_spec spec;
    double temperature;
} columns_attributes;

static float *floats(const nrl_tensor *t)
{
    return t ? t->data : NULL;
}

/* Allocates dhidden in the current scope. The first chunk overwrites it; without rows it is zero. */
static nrl_status want_hidden_grad(nrl_ctx *ctx, head_work *w)
{
    NRL_TRY(tensor_like(ctx, w->hidden, &w->dhidden));
    w->overwrite_dhidden = true;
    return w->n_rows ? NRL_OK : tensor_fill(ctx, w->dhidden, 0);
}

/* With a sharded vocabulary each rank computes one addend of the gradient. */
static nrl_status whole_hidden_grad(nrl_ctx *ctx, head_work *w)
{
    return head_is_sharded(w->spec) ? tp_region_ask(ctx, NRL_TP_REGION_HEAD_IN, true, w->dhidden, &w->dhidden) : NRL_OK;
}

/* Recomputes the logits of chunks that were not kept. Saved: hidden, lse, entropy, row indices, targets, kept logits.
 * Outputs: logps, entropy, lse. */
static nrl_status columns_back(nrl_ctx *ctx, nrl_tape_node *node)
{
    const columns_attributes *a = nrl_tape_attributes(node);
    head_grads grads = {.lse = floats(nrl_tape_saved(node, 1)),
                        .entropy = floats(nrl_tape_saved(node, 2)),
                        .dlogp = floats(nrl_tape_grad(node, 0)),
                        .dentropy = floats(nrl_tape_grad(node, 1)),
                        .dlse = floats(nrl_tape_grad(node, 2))};
    head_work w;
    nrl_tensor *hidden = nrl_tape_saved(node, 0);
    NRL_TRY(head_open(ctx, &a->spec, hidden, head_dtype(ctx, hidden), nrl_tape_saved(node, 3), nrl_tape_saved(node, 4),
                      a->temperature, nrl_tape_saved(node, 5), &w));
    if (nrl_tape_wants(node, 0)) NRL_TRY(want_hidden_grad(ctx, &w));
    for (int64_t begin = 0; begin < w.n_rows; begin += w.chunk) {
        int64_t n = w.n_rows - begin < w.chunk ? w.n_rows - begin : w.chunk;
        NRL_TRY(head_chunk_again(ctx, &w, begin, n));
        NRL_TRY(head_chunk_backward(ctx, &w, begin, n, grads));
    }
    if (!w.dhidden) return NRL_OK;
    NRL_TRY(whole_hidden_grad(ctx, &w));
    return nrl_tape_give(ctx, node, 0, w.dhidden);
}

static nrl_status columns_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_phase before = ctx_phase_set(ctx, NRL_PHASE_HEAD);
    nrl_status st = columns_back(ctx, node);
    ctx_phase_set(ctx, before);
    return st;
}

static nrl_status check_batch(const nrl_ctx *ctx, const nrl_tensor *hidden)
{
    if (ctx->batch && ctx->index.row_token && hidden->rows == ctx->batch->n_tokens) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "head: hidden is %s, the batch has %lld tokens", tensor_shape(hidden).text,
                    (long long)(ctx->batch ? ctx->batch->n_tokens : 0));
}

static nrl_status columns_forward(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, const nrl_tensor *targets,
                                  double temperature, nrl_tensor *kept, head_values values)
{
    head_work w;
    const nrl_dtype dtype = head_dtype(ctx, hidden);
    NRL_TRY(head_open(ctx, head, hidden, dtype, ctx->index.row_token, targets, temperature, kept, &w));
    for (int64_t begin = 0; begin < w.n_rows; begin += w.chunk) {
        int64_t n = w.n_rows - begin < w.chunk ? w.n_rows - begin : w.chunk;
        NRL_TRY(head_chunk_product(ctx, &w, begin, n));
        NRL_TRY(head_chunk_values(ctx, &w, begin, n, values));
    }
    return NRL_OK;
}

static nrl_status new_values(nrl_ctx *ctx, uint32_t want, int64_t n, head_tensors *v)
{
    *v = (head_tensors){0};
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, n, &v->logps));
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, n, &v->lse));
    if (want & HEAD_ENTROPY) NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, n, &v->entropy));
    return want & HEAD_LOG_SUM_P2 ? tensor_vector(ctx, NRL_DTYPE_F32, n, &v->log_sum_p2) : NRL_OK;
}

static head_values arrays_of(const head_tensors *v)
{
    return (head_values){floats(v->logps), floats(v->lse), floats(v->entropy), floats(v->log_sum_p2)};
}

nrl_status head_columns(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, uint32_t want, double temperature,
                        head_tensors *values)
{
    NRL_TRY(check_batch(ctx, hidden));
    int64_t n = ctx->batch->n_rows;
    bool trained = head->weight->trained || (head->bias && head->bias->trained);
    nrl_tensor *kept = NULL, *targets;
    head_tensors v;
    NRL_TRY(head_targets(ctx, head, &targets));
    NRL_TRY(new_values(ctx, want, n, &v));
    if (tape_records(ctx) && (trained || hidden->has_grad)) { /* the logits that the backward will read */
        const nrl_dtype dtype = head_dtype(ctx, hidden);
        int64_t vocab = head->weight->dims[0], rows = head_kept_rows(ctx, dtype, n, vocab);
        if (rows) NRL_TRY(tensor_matrix(ctx, dtype, rows, head_pitch(ctx, vocab), &kept));
    }
    ctx_scope_begin(ctx); /* frees the buffers of chunks before anything else is allocated */
    nrl_status st = columns_forward(ctx, head, hidden, targets, temperature, kept, arrays_of(&v));
    ctx_scope_end(ctx);
    if (!st) st = head_combine(ctx, head, ctx->batch->row_target, &v);
    if (st) return st;
    *values = v;
    columns_attributes a = {*head, temperature};
    nrl_tape_record r = {.name = "head",
                         .inputs = {hidden},
                         .outputs = {v.logps, v.entropy, v.lse},
                         .saved = {hidden, v.lse, v.entropy, ctx->index.row_token, targets, kept},
                         .attributes = &a,
                         .attributes_size = sizeof a,
                         .backward = columns_backward};
    return tape_push(ctx, &r, trained);
}

/* ---- fused with a loss ---- */

typedef struct {
    uint32_t want;
    head_chunk_loss loss;
    void *user;
} fused_loss;

static void drop_grads(nrl_ctx *ctx, const head_tensors *g)
{
    tensor_release(ctx, g->logps);
    tensor_release(ctx, g->lse);
    tensor_release(ctx, g->entropy);
    tensor_release(ctx, g->logits);
}

static nrl_status fused_chunk(nrl_ctx *ctx, head_work *w, const fused_loss *f, int64_t begin, int64_t n)
{
    const int64_t vocab = w->spec->weight->dims[0], shape[] = {n, vocab};
    head_tensors v, grads = {0};
    NRL_TRY(new_values(ctx, f->want, n, &v));
    NRL_TRY(head_chunk_product(ctx, w, begin, n));
    /* The vectors have the rows of this chunk only: offset the pointers so that row `begin` is the first. */
    head_work here = *w;
    here.target += begin;
    NRL_TRY(head_chunk_values(ctx, &here, 0, n, arrays_of(&v)));
    nrl_batch view;
    batch_rows(ctx->batch, begin, begin + n, &view);
    NRL_TRY(head_combine(ctx, w->spec, view.row_target, &v));
    if (f->want & HEAD_LOGITS) {
        v.logits = tensor_view(ctx, w->logits, 0, 2, shape, w->logits->stride);
        NRL_TRY(head_whole_logits(ctx, w->spec, &v.logits));
    }
    nrl_status st = f->loss(f->user, ctx, &view, &v, &grads);
    bool any = grads.logps || grads.lse || grads.entropy || grads.logits; /* else the gradient of these rows is zero */
    here.index += begin;
    if (st == NRL_OK && any && w->dhidden)
        st = head_chunk_backward(ctx, &here, 0, n,
                                 (head_grads){.lse = floats(v.lse),
                                              .entropy = floats(v.entropy),
                                              .dlogp = floats(grads.logps),
                                              .dentropy = floats(grads.entropy),
                                              .dlse = floats(grads.lse),
                                              .dlogits = grads.logits});
    w->overwrite_dhidden = here.overwrite_dhidden;
    drop_grads(ctx, &grads);
    return st;
}

static nrl_status fused_chunks(nrl_ctx *ctx, head_work *w, const fused_loss *f)
{
    nrl_status st = NRL_OK;
    for (int64_t begin = 0; begin < w->n_rows && !st; begin += w->chunk) {
        int64_t n = w->n_rows - begin < w->chunk ? w->n_rows - begin : w->chunk;
        ctx_scope_begin(ctx);
        st = fused_chunk(ctx, w, f, begin, n);
        ctx_scope_end(ctx);
    }
    if (!st && w->dhidden && w->overwrite_dhidden) st = tensor_fill(ctx, w->dhidden, 0);
    return st;
}

nrl_status head_fused(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, uint32_t want, head_chunk_loss loss,
                      void *user, nrl_tensor **dhidden)
{
    NRL_TRY(check_batch(ctx, hidden));
    head_work w;
    ctx_tape_begin(ctx, NULL); /* the loss runs its own tape */
    ctx_scope_begin(ctx);
    nrl_tensor *targets;
    nrl_status st = head_targets(ctx, head, &targets);
    const nrl_dtype dtype = want & HEAD_LOGITS ? NRL_DTYPE_F32 : head_dtype(ctx, hidden);
    if (!st) st = head_open(ctx, head, hidden, dtype, ctx->index.row_token, targets, 1, NULL, &w);
    if (!st && dhidden) st = want_hidden_grad(ctx, &w);
    if (!st) st = fused_chunks(ctx, &w, &(fused_loss){want, loss, user});
    if (!st && dhidden) st = whole_hidden_grad(ctx, &w);
    if (!st && dhidden) *dhidden = tensor_retain(w.dhidden);
    ctx_scope_end(ctx);
    ctx_tape_end(ctx);
    return st;
}

/* ---- complete logits ---- */

nrl_status head_logits(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, const int32_t *rows, int64_t n,
                       nrl_tensor **logits)
{
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= hidden->rows)
            return nrl_fail(NRL_ERR_BUG, "head: row %d of hidden %s", rows[i], tensor_shape(hidden).text);
    nrl_tensor *index;
    head_work w;
    NRL_TRY(tensor_of_host(ctx, NRL_DTYPE_I32, n, rows, false, &index));
    int64_t chunk = ctx->settings.head_chunk_rows;
    ctx->settings.head_chunk_rows = n; /* one chunk, so that w.logits has all rows */
    nrl_status st = head_open(ctx, head, hidden, NRL_DTYPE_F32, index, NULL, 1, NULL, &w);
    ctx->settings.head_chunk_rows = chunk;
    if (st) return st;
    *logits = w.logits;
    if (!n) return NRL_OK;
    NRL_TRY(head_chunk_product(ctx, &w, 0, n));
    if (!head_is_plain(&w)) NRL_TRY(head_chunk_values(ctx, &w, 0, n, (head_values){0}));
    return head_whole_logits(ctx, head, logits);
}
