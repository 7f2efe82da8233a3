/*
 * powersgd.c - compress: powersgd (Vogels, Karimireddy, Jaggi 2019). A gradient matrix M [rows, cols],
 * plus the residual of earlier steps, is sent as two thin matrices of rank r:
 *     P = sum_ranks M Q;  P = orthonormal(P);  Q = sum_ranks M^T P;  the sum becomes P Q^T
 * and what the projection leaves of a rank's own M is its residual: e = M - P (M^T P)^T.
 * The next step starts from Q. Vectors and small matrices are sent whole, as is everything before
 * start_step. A step that is not finite leaves residuals and Q as they were.
 */
#include "ddp.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t rows, cols, rank;
    nrl_tensor *residual;      /* [rows cols]; NULL without error feedback */
    nrl_tensor *start;         /* Q before the step: [cols rank] */
    nrl_tensor *p, *q_own, *q; /* views of the bucket's: [rows rank], [cols rank] of this rank and of all ranks */
} matrix;

typedef struct {
    nrl_tensor *p, *q_own, *q; /* of all matrices, end to end */
    nrl_tensor *rest;          /* view into the bucket: what is sent whole; NULL = nothing */
    bool thin;                 /* this step is sent in low rank */
    bool broken;               /* P has an element that is not finite */
} low;

int64_t ddp_low_rank(const ddp_options *o, const nrl_param *p)
{
    int64_t rows = nrl_param_dim(p, 0), cols = rows ? nrl_param_numel(p) / rows : 0;
    int64_t most = rows < cols ? rows : cols;
    return o->powersgd_rank < most ? o->powersgd_rank : most;
}

bool ddp_is_low_rank(const ddp_options *o, const nrl_param *p)
{
    if (nrl_param_n_dims(p) < 2 || !nrl_param_numel(p)) return false;
    int64_t rows = nrl_param_dim(p, 0), cols = nrl_param_numel(p) / rows;
    double thin = (double)((rows + cols) * ddp_low_rank(o, p));
    return thin * o->powersgd_min_rate <= (double)nrl_param_numel(p);
}

/* ---- memory ---- */

static nrl_status new_matrix(ddp *d, nrl_ctx *ctx, ddp_slot *s)
{
    matrix *m = s->codec = calloc(1, sizeof *m);
    if (!m) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a matrix");
    m->rows = nrl_param_dim(s->param, 0);
    m->cols = nrl_param_numel(s->param) / m->rows;
    m->rank = ddp_low_rank(&d->o, s->param);
    if (d->o.error_feedback) NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, m->rows * m->cols, &m->residual));
    return ddp_tensor(ctx, NRL_DTYPE_F32, m->cols * m->rank, &m->start);
}

static nrl_status view_thin(ddp *d, nrl_ctx *ctx, const ddp_bucket *b, low *l)
{
    int64_t at_p = 0, at_q = 0;
    for (int32_t i = b->first; i < b->first + b->n_slots; i++) {
        matrix *m = d->slots[i].codec;
        if (!m) continue;
        NRL_TRY(nrl_tensor_slice(ctx, l->p, at_p, m->rows * m->rank, &m->p));
        NRL_TRY(nrl_tensor_slice(ctx, l->q_own, at_q, m->cols * m->rank, &m->q_own));
        NRL_TRY(nrl_tensor_slice(ctx, l->q, at_q, m->cols * m->rank, &m->q));
        at_p += m->rows * m->rank;
        at_q += m->cols * m->rank;
    }
    return NRL_OK;
}

static nrl_status powersgd_bind(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    low *l = b->codec = calloc(1, sizeof *l);
    int64_t n_p = 0, n_q = 0, rest = b->n;
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a bucket");
    for (int32_t i = b->first; i < b->first + b->n_slots; i++) {
        ddp_slot *s = &d->slots[i];
        if (!s->low_rank) {
            rest = s->begin < rest ? s->begin : rest;
            continue;
        }
        NRL_TRY(new_matrix(d, ctx, s));
        const matrix *m = s->codec;
        n_p += m->rows * m->rank;
        n_q += m->cols * m->rank;
    }
    if (rest < b->n) NRL_TRY(nrl_tensor_slice(ctx, b->grads, rest, b->n - rest, &l->rest));
    if (!n_p) return NRL_OK;
    NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, n_p, &l->p));
    NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, n_q, &l->q_own));
    NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, n_q, &l->q));
    return view_thin(d, ctx, b, l);
}

static void powersgd_unbind(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    low *l = b->codec;
    for (int32_t i = b->first; i < b->first + b->n_slots; i++) {
        matrix *m = d->slots[i].codec;
        if (!m) continue;
        nrl_tensor *owned[] = {m->residual, m->start, m->p, m->q_own, m->q};
        for (size_t k = 0; k < sizeof owned / sizeof *owned; k++)
            nrl_tensor_free(ctx, owned[k]);
        free(m);
        d->slots[i].codec = NULL;
    }
    if (!l) return;
    nrl_tensor *owned[] = {l->rest, l->p, l->q_own, l->q};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++)
        nrl_tensor_free(ctx, owned[k]);
    free(l);
    b->codec = NULL;
}

/* ---- the stages ---- */

static uint64_t key_of(const ddp_slot *s, int64_t step)
{
    uint64_t h = 14695981039346656037u ^ (uint64_t)step;
    for (const char *c = nrl_param_name(s->param); *c; c++)
        h = (h ^ (unsigned char)*c) * 1099511628211u;
    return h;
}

static nrl_status as_matrix(nrl_ctx *ctx, nrl_tensor *t, int64_t rows, int64_t cols, nrl_tensor **out)
{
    return nrl_op_reshape(ctx, t, 2, (int64_t[]){rows, cols}, out);
}

/* to = a b, or a^T b, or a b^T; the matrices are passed flat. */
static nrl_status product(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, bool ta, bool tb, nrl_tensor *to)
{
    nrl_tensor *c;
    NRL_TRY(nrl_op_matmul(ctx, a, b, ta, tb, &c));
    return nrl_tensor_copy(ctx, c, to);
}

static nrl_status sum_up(ddp *d, nrl_ctx *ctx, ddp_bucket *b, int w, nrl_tensor *send, nrl_tensor *receive)
{
    nrl_comm_call call = {
        .size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .send = send, .receive = receive, .what = b->what};
    return receive ? nrl_comm_all_reduce(d->comm, ctx, &call, &b->work[w]) : NRL_OK;
}

static nrl_status make_p(ddp *d, nrl_ctx *ctx, ddp_slot *s)
{
    matrix *m = s->codec;
    nrl_tensor *whole, *q;
    bool finite;
    if (m->residual) NRL_TRY(nrl_tensor_add(ctx, m->residual, s->view));
    if (!d->o.powersgd_warm_start) NRL_TRY(nrl_tensor_fill(ctx, m->start, 0)); /* redrawn below */
    int64_t draw_of = d->o.powersgd_warm_start ? 0 : d->steps;
    NRL_TRY(ddp_orthonormal(ctx, m->start, m->cols, m->rank, key_of(s, draw_of), &finite));
    NRL_TRY(as_matrix(ctx, s->view, m->rows, m->cols, &whole));
    NRL_TRY(as_matrix(ctx, m->start, m->cols, m->rank, &q));
    return product(ctx, whole, q, false, false, m->p);
}

static nrl_status make_q(nrl_ctx *ctx, ddp_slot *s, low *l)
{
    matrix *m = s->codec;
    nrl_tensor *whole, *p;
    bool finite;
    NRL_TRY(ddp_orthonormal(ctx, m->p, m->rows, m->rank, key_of(s, -1), &finite));
    l->broken = l->broken || !finite;
    NRL_TRY(as_matrix(ctx, s->view, m->rows, m->cols, &whole));
    NRL_TRY(as_matrix(ctx, m->p, m->rows, m->rank, &p));
    return product(ctx, whole, p, true, false, m->q_own);
}

/* Runs one of the functions above on every matrix; temporaries are freed after each matrix. */
static nrl_status each_matrix(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool second)
{
    nrl_status st = NRL_OK;
    for (int32_t i = b->first; i < b->first + b->n_slots && st == NRL_OK; i++) {
        if (!d->slots[i].codec) continue;
        nrl_scope_begin(ctx);
        st = second ? make_q(ctx, &d->slots[i], b->codec) : make_p(d, ctx, &d->slots[i]);
        nrl_scope_end(ctx);
    }
    return st;
}

static nrl_status powersgd_stage(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *more)
{
    low *l = b->codec;
    *more = false;
    if (b->stage == 1) {
        NRL_TRY(each_matrix(d, ctx, b, true));
        return sum_up(d, ctx, b, 0, l->q_own, l->q);
    }
    l->thin = l->p && d->steps >= d->o.start_step;
    l->broken = false;
    if (!l->thin) return sum_up(d, ctx, b, 0, NULL, b->grads);
    *more = true;
    NRL_TRY(each_matrix(d, ctx, b, false));
    NRL_TRY(sum_up(d, ctx, b, 0, NULL, l->p));
    return sum_up(d, ctx, b, 1, NULL, l->rest);
}

static nrl_status powersgd_is_finite(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *finite)
{
    const low *l = b->codec;
    (void)d;
    *finite = !l->broken;
    if (*finite && l->thin) NRL_TRY(ddp_sum_is_finite(ctx, l->q, finite));
    if (!*finite) return NRL_OK;
    nrl_tensor *whole = l->thin ? l->rest : b->grads;
    return whole ? ddp_sum_is_finite(ctx, whole, finite) : NRL_OK;
}

static nrl_status settle_matrix(nrl_ctx *ctx, ddp_slot *s, bool warm_start, bool keep)
{
    matrix *m = s->codec;
    nrl_tensor *p, *q, *own, *kept;
    NRL_TRY(as_matrix(ctx, m->p, m->rows, m->rank, &p));
    NRL_TRY(as_matrix(ctx, m->q, m->cols, m->rank, &q));
    NRL_TRY(as_matrix(ctx, m->q_own, m->cols, m->rank, &own));
    if (keep && m->residual) {
        NRL_TRY(product(ctx, p, own, false, true, m->residual));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, s->view, m->residual, &kept));
        NRL_TRY(nrl_tensor_copy(ctx, kept, m->residual));
    }
    if (keep && warm_start) NRL_TRY(nrl_tensor_copy(ctx, m->q, m->start));
    return product(ctx, p, q, false, true, s->view);
}

static nrl_status powersgd_settle(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool keep)
{
    const low *l = b->codec;
    nrl_status st = NRL_OK;
    for (int32_t i = b->first; l->thin && i < b->first + b->n_slots && st == NRL_OK; i++) {
        if (!d->slots[i].codec) continue;
        nrl_scope_begin(ctx);
        st = settle_matrix(ctx, &d->slots[i], d->o.powersgd_warm_start, keep);
        nrl_scope_end(ctx);
    }
    return st;
}

static nrl_status powersgd_state(ddp *d, nrl_ctx *ctx, ddp_bucket *b, nrl_state_io *v)
{
    char name[512];
    bool found;
    for (int32_t i = b->first; i < b->first + b->n_slots; i++) {
        matrix *m = d->slots[i].codec;
        if (!m) continue;
        snprintf(name, sizeof name, "powersgd_q.%s", nrl_param_name(d->slots[i].param));
        NRL_TRY(nrl_state_io_tensor(v, ctx, name, m->start, &found));
        snprintf(name, sizeof name, "residual.%s", nrl_param_name(d->slots[i].param));
        if (m->residual) NRL_TRY(nrl_state_io_tensor(v, ctx, name, m->residual, &found));
    }
    return NRL_OK;
}

const ddp_codec ddp_powersgd = {
    .bind = powersgd_bind,
    .unbind = powersgd_unbind,
    .stage = powersgd_stage,
    .is_finite = powersgd_is_finite,
    .settle = powersgd_settle,
    .state = powersgd_state,
};
