/*
 * ulysses.c - attention by an exchange of tokens and heads (DeepSpeed-Ulysses, Jacobs et al. 2023). Before attention,
 * each rank gives every other rank the queries, keys and values of the other's heads for its own tokens, so that it has
 * all N tokens of its own heads; after attention the exchange goes back. Attention itself is that of one rank:
 * segments, shared prompts, windows and caps need nothing of their own, and a head's results are the same bits.
 *
 * A rank has H / R query heads and the key/value heads that they read. If there are fewer key/value heads than ranks,
 * several ranks get the same head, and its gradients are added.
 */
#include "context.h"

/* One rank's columns in q [n,H*K], k and v [n,G*K], and their total, the width of what is exchanged. */
typedef struct {
    int64_t q, n_q, kv, n_kv, width;
} share;

typedef struct {
    context *c;
    nrl_attention_spec spec;
    int64_t n; /* N, which in the backward is not that of the current batch */
} exchange;

nrl_status ulysses_check(const context *c, int64_t n_heads, int64_t n_kv_heads)
{
    if (n_heads % c->size)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot share %lld query heads over %d ranks; expected a number of ranks that divides %lld",
                        (long long)n_heads, (int)c->size, (long long)n_heads);
    if (n_kv_heads % c->size && c->size % (n_kv_heads ? n_kv_heads : 1))
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot share %lld key/value heads over %d ranks; expected a number of ranks that divides %lld "
                        "or is a multiple of it",
                        (long long)n_kv_heads, (int)c->size, (long long)n_kv_heads);
    return NRL_OK;
}

int64_t ulysses_begin(const context *c, int64_t n, int32_t rank)
{
    return n * rank / c->size;
}

static share share_of(const exchange *e, int32_t rank)
{
    const nrl_attention_spec *s = &e->spec;
    share h = {.n_q = s->n_heads / e->c->size * s->head_dim};
    h.q = h.n_q * rank;
    h.n_kv = (s->n_kv_heads > e->c->size ? s->n_kv_heads / e->c->size : 1) * s->head_dim;
    h.kv = s->n_kv_heads * rank / e->c->size * s->head_dim;
    h.width = h.n_q + 2 * h.n_kv;
    return h;
}

/* Elements that this rank sends to and receives from each rank, of rows that are `width` wide: in the direction of
 * heads it sends its own rows, and receives those of each rank. */
static nrl_status all_to_all(const exchange *e, nrl_ctx *ctx, bool to_heads, int64_t width, nrl_tensor *send,
                             nrl_tensor *receive)
{
    context *c = e->c;
    int64_t *mine = c->counts, *theirs = c->counts + c->size;
    nrl_work *work = NULL;
    for (int32_t r = 0; r < c->size; r++) {
        mine[r] = width * (ulysses_begin(c, e->n, c->rank + 1) - ulysses_begin(c, e->n, c->rank));
        theirs[r] = width * (ulysses_begin(c, e->n, r + 1) - ulysses_begin(c, e->n, r));
    }
    const nrl_comm_call call = {.size = sizeof call,
                                .send = send,
                                .receive = receive,
                                .counts = to_heads ? mine : theirs,
                                .receive_counts = to_heads ? theirs : mine,
                                .what = to_heads ? "tokens to heads" : "heads to tokens"};
    NRL_TRY(nrl_comm_all_to_all(c->comm, ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status columns(nrl_ctx *ctx, nrl_tensor *x, int64_t begin, int64_t n, nrl_tensor **y)
{
    nrl_tensor *plain; /* its slices are not recorded */
    NRL_TRY(nrl_op_detach(ctx, x, &plain));
    return nrl_op_slice_columns(ctx, plain, begin, begin + n, y);
}

/* Copies, or adds, columns of one matrix to columns of another. */
static nrl_status move(nrl_ctx *ctx, nrl_tensor *x, int64_t from, nrl_tensor *y, int64_t to, int64_t n, bool adds)
{
    nrl_tensor *source, *target;
    NRL_TRY(columns(ctx, x, from, n, &source));
    NRL_TRY(columns(ctx, y, to, n, &target));
    return (adds ? nrl_tensor_add : nrl_tensor_copy)(ctx, source, target);
}

static nrl_status matrix(nrl_ctx *ctx, const nrl_tensor *like, int64_t rows, int64_t cols, nrl_tensor **out)
{
    return nrl_tensor_new(ctx, nrl_tensor_dtype(like), 2, (int64_t[]){rows, cols}, out);
}

/* `sent` has a block of n rows for each rank. */
static nrl_status block_of(nrl_ctx *ctx, nrl_tensor *sent, int64_t n, int32_t rank, nrl_tensor **block)
{
    return nrl_op_slice_rows(ctx, sent, n * rank, n * (rank + 1), block);
}

/* ---- q, k, v [n, ...] of all heads to x [N, width] of this rank's ---- */

static nrl_status send_heads(const exchange *e, nrl_ctx *ctx, nrl_tensor *const *qkv, nrl_tensor *x)
{
    const int64_t n = nrl_tensor_dim(qkv[0], 0);
    nrl_tensor *send, *block;
    NRL_TRY(matrix(ctx, x, n * e->c->size, nrl_tensor_dim(x, 1), &send));
    for (int32_t r = 0; r < e->c->size; r++) {
        const share h = share_of(e, r);
        NRL_TRY(block_of(ctx, send, n, r, &block));
        NRL_TRY(move(ctx, qkv[0], h.q, block, 0, h.n_q, false));
        NRL_TRY(move(ctx, qkv[1], h.kv, block, h.n_q, h.n_kv, false));
        NRL_TRY(move(ctx, qkv[2], h.kv, block, h.n_q + h.n_kv, h.n_kv, false));
    }
    return all_to_all(e, ctx, true, nrl_tensor_dim(x, 1), send, x);
}

static nrl_status receive_gradients(const exchange *e, nrl_ctx *ctx, nrl_tensor *dx, nrl_tensor *const *dqkv)
{
    const int64_t n = nrl_tensor_dim(dqkv[0], 0);
    nrl_tensor *received, *block;
    NRL_TRY(matrix(ctx, dx, n * e->c->size, nrl_tensor_dim(dx, 1), &received));
    NRL_TRY(all_to_all(e, ctx, false, nrl_tensor_dim(dx, 1), dx, received));
    for (int32_t r = 0; r < e->c->size; r++) {
        const share h = share_of(e, r);
        const bool adds = r > 0 && h.kv == share_of(e, r - 1).kv; /* the rank before has the same head */
        NRL_TRY(block_of(ctx, received, n, r, &block));
        NRL_TRY(move(ctx, block, 0, dqkv[0], h.q, h.n_q, false));
        NRL_TRY(move(ctx, block, h.n_q, dqkv[1], h.kv, h.n_kv, adds));
        NRL_TRY(move(ctx, block, h.n_q + h.n_kv, dqkv[2], h.kv, h.n_kv, adds));
    }
    return NRL_OK;
}

static nrl_status to_heads_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *d[3];
    for (int i = 0; i < 3; i++) {
        nrl_tensor *x = nrl_tape_input(node, i);
        NRL_TRY(matrix(ctx, x, nrl_tensor_dim(x, 0), nrl_tensor_dim(x, 1), &d[i]));
    }
    nrl_scope_begin(ctx);
    nrl_status st = receive_gradients(nrl_tape_attributes(node), ctx, nrl_tape_grad(node, 0), d);
    nrl_scope_end(ctx);
    for (int i = 0; i < 3 && st == NRL_OK; i++)
        st = nrl_tape_give(ctx, node, i, d[i]);
    return st;
}

static nrl_status to_heads(const exchange *e, nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v, nrl_tensor **x)
{
    nrl_tensor *qkv[] = {q, k, v};
    NRL_TRY(matrix(ctx, q, e->n, share_of(e, e->c->rank).width, x));
    nrl_scope_begin(ctx);
    nrl_status st = send_heads(e, ctx, qkv, *x);
    nrl_scope_end(ctx);
    NRL_TRY(st);
    const nrl_tape_record r = {.size = sizeof r,
                               .name = "context.to_heads",
                               .inputs = {q, k, v},
                               .outputs = {*x},
                               .attributes = e,
                               .attributes_size = sizeof *e,
                               .backward = to_heads_backward};
    return nrl_tape_push(ctx, &r);
}

/* ---- x [N, H/R*K] of this rank's heads to y [n, H*K] of all heads, and back ---- */

static nrl_status receive_heads(const exchange *e, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *y)
{
    const int64_t n = nrl_tensor_dim(y, 0), width = nrl_tensor_dim(x, 1);
    nrl_tensor *received, *block;
    NRL_TRY(matrix(ctx, x, n * e->c->size, width, &received));
    NRL_TRY(all_to_all(e, ctx, false, width, x, received));
    for (int32_t r = 0; r < e->c->size; r++) {
        NRL_TRY(block_of(ctx, received, n, r, &block));
        NRL_TRY(move(ctx, block, 0, y, width * r, width, false));
    }
    return NRL_OK;
}

static nrl_status send_gradients(const exchange *e, nrl_ctx *ctx, nrl_tensor *dy, nrl_tensor *dx)
{
    const int64_t n = nrl_tensor_dim(dy, 0), width = nrl_tensor_dim(dx, 1);
    nrl_tensor *send, *block;
    NRL_TRY(matrix(ctx, dx, n * e->c->size, width, &send));
    for (int32_t r = 0; r < e->c->size; r++) {
        NRL_TRY(block_of(ctx, send, n, r, &block));
        NRL_TRY(move(ctx, dy, width * r, block, 0, width, false));
    }
    return all_to_all(e, ctx, true, width, send, dx);
}

static nrl_status to_tokens_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *x = nrl_tape_input(node, 0), *dx;
    NRL_TRY(matrix(ctx, x, nrl_tensor_dim(x, 0), nrl_tensor_dim(x, 1), &dx));
    nrl_scope_begin(ctx);
    nrl_status st = send_gradients(nrl_tape_attributes(node), ctx, nrl_tape_grad(node, 0), dx);
    nrl_scope_end(ctx);
    return st == NRL_OK ? nrl_tape_give(ctx, node, 0, dx) : st;
}

static nrl_status to_tokens(const exchange *e, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *y)
{
    nrl_scope_begin(ctx);
    nrl_status st = receive_heads(e, ctx, x, y);
    nrl_scope_end(ctx);
    NRL_TRY(st);
    const nrl_tape_record r = {.size = sizeof r,
                               .name = "context.to_tokens",
                               .inputs = {x},
                               .outputs = {y},
                               .attributes = e,
                               .attributes_size = sizeof *e,
                               .backward = to_tokens_backward};
    return nrl_tape_push(ctx, &r);
}

nrl_status ulysses_attention(context *c, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                             const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y)
{
    const exchange e = {c, *spec, n};
    NRL_TRY(ulysses_check(c, spec->n_heads, spec->n_kv_heads)); /* another axis may have divided the heads */
    const share h = share_of(&e, c->rank);
    nrl_attention_spec own = *spec;
    nrl_tensor *x, *heads[3], *result;
    NRL_TRY(matrix(ctx, q, nrl_tensor_dim(q, 0), nrl_tensor_dim(q, 1), y));
    NRL_TRY(to_heads(&e, ctx, q, k, v, &x));
    NRL_TRY(nrl_op_slice_columns(ctx, x, 0, h.n_q, &heads[0]));
    NRL_TRY(nrl_op_slice_columns(ctx, x, h.n_q, h.n_q + h.n_kv, &heads[1]));
    NRL_TRY(nrl_op_slice_columns(ctx, x, h.n_q + h.n_kv, h.width, &heads[2]));
    own.n_heads = h.n_q / spec->head_dim;
    own.n_kv_heads = h.n_kv / spec->head_dim;
    NRL_TRY(nrl_op_capped_attention(ctx, heads[0], heads[1], heads[2], &own, soft_cap, &result));
    return to_tokens(&e, ctx, result, *y);
}
