/*
 * ring.c - attention by passing keys and values around the ring of ranks (Ring Attention, Liu et al. 2023). Each rank
 * keeps the queries of its tokens. In R steps the keys and values of every rank come by; attention over them is merged
 * into the result by the log-sum-exp of its scores. The backward passes keys and values around again, and with them the
 * sums of their gradients, which end at the rank whose keys they are. Heads stay whole, so their number does not
 * matter.
 *
 * Later tokens see more keys, so tokens are divided into 2 R pieces, of which rank r has pieces r and 2 R - 1 - r
 * (zigzag, Brandon et al. 2023): all ranks have about the same number of pairs of a query and a key in every step.
 */
#include "context.h"
#include <math.h>
#include <nrl/custom_op.h>

typedef struct {
    context *c;
    nrl_attention_spec spec;
    double soft_cap;
    int64_t n;              /* N, which in the backward is not that of the current batch */
    const nrl_batch *batch; /* of these tokens */
} ring;

/* One of a rank's two pieces of consecutive tokens: its first token and row, and its length. */
typedef struct {
    int64_t token, row, n;
} piece;

static piece piece_of(const context *c, int64_t n, int32_t rank, bool second)
{
    const int32_t of_all[] = {rank, 2 * c->size - 1 - rank};
    const int64_t first = n * (rank + 1) / (2 * c->size) - n * rank / (2 * c->size);
    piece p = {.token = n * of_all[second] / (2 * c->size), .row = second ? first : 0};
    p.n = n * (of_all[second] + 1) / (2 * c->size) - p.token;
    return p;
}

static int64_t rows_of(const ring *e, int32_t rank)
{
    const piece last = piece_of(e->c, e->n, rank, true);
    return last.row + last.n;
}

int64_t ring_divide(const context *c, int64_t n, int32_t *own)
{
    int64_t k = 0;
    if (n < 2 * c->size) return 0;
    for (int i = 0; i < 2; i++) {
        const piece p = piece_of(c, n, c->rank, i);
        for (int64_t t = 0; t < p.n; t++)
            own[k++] = (int32_t)(p.token + t);
    }
    return k;
}

/* ---- around the ring ---- */

/* The rank whose keys are here in a step. */
static int32_t owner_in(const ring *e, int32_t step)
{
    return (e->c->rank - step + e->c->size) % e->c->size;
}

/* Passes rows of the owner of this step to the next rank, and receives those of the rank before. */
static nrl_status pass_on(const ring *e, nrl_ctx *ctx, int32_t step, nrl_tensor *send, nrl_tensor *receive,
                          nrl_work **work)
{
    const context *c = e->c;
    int64_t *to = c->counts, *from = c->counts + c->size;
    for (int32_t r = 0; r < c->size; r++)
        to[r] = from[r] = 0;
    to[(c->rank + 1) % c->size] = rows_of(e, owner_in(e, step)) * nrl_tensor_dim(send, 1);
    from[(c->rank + c->size - 1) % c->size] = rows_of(e, owner_in(e, step + 1)) * nrl_tensor_dim(send, 1);
    const nrl_comm_call call = {.size = sizeof call,
                                .send = send,
                                .receive = receive,
                                .counts = to,
                                .receive_counts = from,
                                .what = "keys and values around the ring"};
    return nrl_comm_all_to_all(c->comm, ctx, &call, work);
}

/* Keys in the first half of the columns, values in the second. */
static nrl_status halves(nrl_ctx *ctx, nrl_tensor *both, nrl_tensor **k, nrl_tensor **v)
{
    const int64_t width = nrl_tensor_dim(both, 1);
    NRL_TRY(nrl_op_slice_columns(ctx, both, 0, width / 2, k));
    return nrl_op_slice_columns(ctx, both, width / 2, width, v);
}

/* A buffer for the keys and values of any rank. */
static nrl_status buffer(const ring *e, nrl_ctx *ctx, nrl_dtype dtype, nrl_tensor **out)
{
    int64_t most = 0;
    for (int32_t r = 0; r < e->c->size; r++)
        if (rows_of(e, r) > most) most = rows_of(e, r);
    const int64_t dims[] = {most, 2 * e->spec.n_kv_heads * e->spec.head_dim};
    return nrl_tensor_new(ctx, dtype, 2, dims, out);
}

/* This rank's keys and values in the first buffer, room for those of others in the second. */
static nrl_status load(const ring *e, nrl_ctx *ctx, nrl_tensor *k, nrl_tensor *v, nrl_tensor **kv)
{
    nrl_tensor *own, *to_k, *to_v;
    for (int i = 0; i < 2; i++)
        NRL_TRY(buffer(e, ctx, nrl_tensor_dtype(k), &kv[i]));
    NRL_TRY(nrl_op_slice_rows(ctx, kv[0], 0, nrl_tensor_dim(k, 0), &own));
    NRL_TRY(halves(ctx, own, &to_k, &to_v));
    NRL_TRY(nrl_tensor_copy(ctx, k, to_k));
    return nrl_tensor_copy(ctx, v, to_v);
}

/* Attention, or with `dkv` its gradients, of this rank's queries over the owner's keys `kv`. `rows` has what belongs to
 * the queries. */
static nrl_status attend(const ring *e, nrl_ctx *ctx, int32_t owner, const nrl_attention_part *rows, nrl_tensor *kv,
                         nrl_tensor *dkv)
{
    for (int i = 0; i < 4; i++) {
        const piece q = piece_of(e->c, e->n, e->c->rank, i / 2), k = piece_of(e->c, e->n, owner, i % 2);
        nrl_attention_part p = *rows;
        nrl_tensor *keys, **of_queries[] = {&p.q, &p.y, &p.dy, &p.dq};
        p.q_begin = q.token;
        p.k_begin = k.token;
        for (int t = 0; t < (dkv ? 4 : 2); t++)
            NRL_TRY(nrl_op_slice_rows(ctx, *of_queries[t], q.row, q.row + q.n, of_queries[t]));
        NRL_TRY(nrl_op_slice_columns(ctx, p.lse, q.row, q.row + q.n, &p.lse));
        NRL_TRY(nrl_op_slice_rows(ctx, kv, k.row, k.row + k.n, &keys));
        NRL_TRY(halves(ctx, keys, &p.k, &p.v));
        if (dkv) NRL_TRY(nrl_op_slice_rows(ctx, dkv, k.row, k.row + k.n, &keys));
        if (dkv) NRL_TRY(halves(ctx, keys, &p.dk, &p.dv));
        NRL_TRY((dkv ? nrl_attention_merge_grad : nrl_attention_merge)(ctx, &p));
    }
    return NRL_OK;
}

static nrl_attention_part part_of(const ring *e)
{
    return (nrl_attention_part){
        .size = sizeof(nrl_attention_part), .batch = e->batch, .spec = &e->spec, .soft_cap = e->soft_cap};
}

/* Work must end before its buffers do, whatever else has failed. */
static nrl_status both(nrl_status st, nrl_status later)
{
    return st == NRL_OK ? later : st;
}

/* ---- forward ---- */

static nrl_status forward(const ring *e, nrl_ctx *ctx, nrl_tensor *const *qkv, nrl_tensor *y, nrl_tensor *lse)
{
    const int64_t dims[] = {nrl_tensor_dim(y, 0), nrl_tensor_dim(y, 1)};
    nrl_attention_part rows = part_of(e);
    nrl_tensor *plain[3], *kv[2]; /* slices of plain ones are not recorded */
    for (int i = 0; i < 3; i++)
        NRL_TRY(nrl_op_detach(ctx, qkv[i], &plain[i]));
    NRL_TRY(load(e, ctx, plain[1], plain[2], kv));
    rows.q = plain[0];
    rows.y = y;
    rows.lse = lse;
    if (nrl_tensor_dtype(y) != NRL_DTYPE_F32) NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 2, dims, &rows.y));
    NRL_TRY(nrl_tensor_fill(ctx, rows.y, 0));
    NRL_TRY(nrl_tensor_fill(ctx, lse, -INFINITY));
    for (int32_t step = 0; step < e->c->size; step++) {
        nrl_tensor *here = kv[step % 2], *next = kv[1 - step % 2];
        nrl_work *work = NULL;
        if (step + 1 < e->c->size) NRL_TRY(pass_on(e, ctx, step, here, next, &work));
        const nrl_status st = attend(e, ctx, owner_in(e, step), &rows, here, NULL);
        NRL_TRY(both(st, nrl_work_wait(&work, ctx)));
    }
    return rows.y == y ? NRL_OK : nrl_tensor_copy(ctx, rows.y, y);
}

/* ---- backward ---- */

/* dq, and in `own` the gradients of this rank's keys and values. Gradients of other ranks' keys follow one step behind
 * their keys: while this rank computes a step, the sums of the step before are on their way. */
static nrl_status gradients(const ring *e, nrl_ctx *ctx, const nrl_attention_part *rows, nrl_tensor *const *kv,
                            nrl_tensor *own)
{
    const int32_t last = e->c->size - 1;
    nrl_tensor *sums[2], *arrived;
    nrl_work *sums_work = NULL;
    for (int i = 0; i < 2; i++)
        NRL_TRY(buffer(e, ctx, NRL_DTYPE_F32, &sums[i]));
    NRL_TRY(buffer(e, ctx, NRL_DTYPE_F32, &arrived));
    NRL_TRY(nrl_tensor_fill(ctx, arrived, 0));
    nrl_status st = nrl_tensor_fill(ctx, own, 0);
    for (int32_t step = 0; step <= last && st == NRL_OK; step++) {
        nrl_tensor *here = kv[step % 2], *next = kv[1 - step % 2], *sum = step ? sums[step % 2] : own;
        nrl_work *work = NULL;
        if (step < last) st = pass_on(e, ctx, step, here, next, &work);
        if (st == NRL_OK && step) st = nrl_tensor_fill(ctx, sum, 0);
        if (st == NRL_OK) st = attend(e, ctx, owner_in(e, step), rows, here, sum);
        st = both(st, nrl_work_wait(&work, ctx));
        st = both(st, nrl_work_wait(&sums_work, ctx));
        if (st == NRL_OK && step > 1) st = nrl_tensor_add(ctx, arrived, sum);
        if (st == NRL_OK && step) st = pass_on(e, ctx, step, sum, arrived, &sums_work);
    }
    st = both(st, nrl_work_wait(&sums_work, ctx));
    return st == NRL_OK ? nrl_tensor_add(ctx, arrived, own) : st;
}

/* Saved: q, k, v, y, lse. */
static nrl_status backward_into(const ring *e, nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *const *d)
{
    nrl_attention_part rows = part_of(e);
    nrl_tensor *kv[2], *all, *own, *dk, *dv;
    const int64_t n = nrl_tensor_dim(d[0], 0), dims[] = {n, nrl_tensor_dim(d[0], 1)};
    rows.q = nrl_tape_saved(node, 0);
    rows.y = nrl_tape_saved(node, 3);
    rows.lse = nrl_tape_saved(node, 4);
    rows.dy = nrl_tape_grad(node, 0);
    rows.dq = d[0];
    NRL_TRY(load(e, ctx, nrl_tape_saved(node, 1), nrl_tape_saved(node, 2), kv));
    if (nrl_tensor_dtype(d[0]) != NRL_DTYPE_F32) NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 2, dims, &rows.dq));
    NRL_TRY(nrl_tensor_fill(ctx, rows.dq, 0));
    NRL_TRY(buffer(e, ctx, NRL_DTYPE_F32, &all));
    NRL_TRY(gradients(e, ctx, &rows, kv, all));
    NRL_TRY(nrl_op_slice_rows(ctx, all, 0, n, &own));
    NRL_TRY(halves(ctx, own, &dk, &dv));
    NRL_TRY(nrl_tensor_copy(ctx, dk, d[1]));
    NRL_TRY(nrl_tensor_copy(ctx, dv, d[2]));
    return rows.dq == d[0] ? NRL_OK : nrl_tensor_copy(ctx, rows.dq, d[0]);
}

static nrl_status backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *d[3];
    for (int i = 0; i < 3; i++) {
        nrl_tensor *x = nrl_tape_input(node, i);
        const int64_t dims[] = {nrl_tensor_dim(x, 0), nrl_tensor_dim(x, 1)};
        NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(x), 2, dims, &d[i]));
    }
    nrl_scope_begin(ctx);
    nrl_status st = backward_into(nrl_tape_attributes(node), ctx, node, d);
    nrl_scope_end(ctx);
    for (int i = 0; i < 3 && st == NRL_OK; i++)
        st = nrl_tape_give(ctx, node, i, d[i]);
    return st;
}

nrl_status ring_attention(context *c, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                          const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y)
{
    const ring e = {c, *spec, soft_cap, n, nrl_ctx_batch(ctx)};
    const int64_t rows = nrl_tensor_dim(q, 0);
    nrl_tensor *lse, *qkv[] = {q, k, v};
    NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(q), 2, (int64_t[]){rows, nrl_tensor_dim(q, 1)}, y));
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 2, (int64_t[]){spec->n_heads, rows}, &lse));
    nrl_scope_begin(ctx);
    nrl_status st = forward(&e, ctx, qkv, *y, lse);
    nrl_scope_end(ctx);
    NRL_TRY(st);
    const nrl_tape_record r = {.size = sizeof r,
                               .name = "context.ring",
                               .inputs = {q, k, v},
                               .outputs = {*y},
                               .saved = {q, k, v, *y, lse},
                               .attributes = &e,
                               .attributes_size = sizeof e,
                               .backward = backward};
    return nrl_tape_push(ctx, &r);
}
