/*
 * model_gradient.c - compares gradients with finite differences of the loss: weighted log-probs of
 * all target positions.
 */
#include "model_suite.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Finite differences of an f32 loss near 50 over a step of STEP: the rounding error is 2e-4, the
 * curvature is smaller. */
#define STEP 2e-2
#define GRADIENT_RELATIVE 1e-2
#define GRADIENT_ABSOLUTE 2e-3

enum { N_DIRECTIONS = 3 };

static nrl_status weighted_sum(model_suite *s, nrl_tensor *logps, nrl_tensor **sum)
{
    float weights[64];
    uint64_t state = 99;
    nrl_tensor *w, *each;
    int64_t n = nrl_tensor_numel(logps);
    for (int64_t i = 0; i < n; i++)
        weights[i] = (float)compute_uniform(&state, 0.5, 1.5);
    NRL_TRY(nrl_tensor_from_host(s->compute.ctx, NRL_DTYPE_F32, 1, &n, weights, &w));
    NRL_TRY(nrl_op_binary(s->compute.ctx, NRL_BINARY_MUL, logps, w, &each));
    return nrl_op_sum(s->compute.ctx, each, sum);
}

static nrl_status taped_loss(model_suite *s, tape *t, double *loss)
{
    nrl_ctx *ctx = s->compute.ctx;
    nrl_tensor *hidden, *sum, *seed;
    head_tensors v;
    float one = 1;
    if (t) ctx_tape_begin(ctx, t);
    nrl_status st = model_suite_forward(s, false, &hidden);
    if (st == NRL_OK) st = head_columns(ctx, &s->m->head, hidden, HEAD_LOGP, 1, &v);
    if (st == NRL_OK) st = weighted_sum(s, v.logps, &sum);
    if (t) ctx_tape_end(ctx);
    NRL_TRY(st);
    NRL_TRY(nrl_tensor_fetch(ctx, sum, loss, 1));
    if (!t) return NRL_OK;
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &(int64_t){1}, &one, &seed));
    return tape_backward(ctx, t, &sum, &seed, 1, NULL, NULL, 0);
}

nrl_status model_suite_loss(model_suite *s, nrl_batch *b, bool with_gradient, double *loss)
{
    tape *t = with_gradient ? tape_create() : NULL;
    for (int i = 0; with_gradient && i < s->m->n_params; i++)
        nrl_param_set_grad_is_empty(s->m->params[i], true);
    ctx_scope_begin(s->compute.ctx);
    nrl_status st = ctx_set_batch(s->compute.ctx, b);
    if (st == NRL_OK) st = taped_loss(s, t, loss);
    if (t) tape_destroy(s->compute.ctx, t);
    ctx_scope_end(s->compute.ctx);
    ctx_set_batch(s->compute.ctx, NULL);
    return st;
}

/* d loss / d parameter along a direction of unit length, from two losses. */
static nrl_status difference(model_suite *s, nrl_batch *b, int i, const float *at, const double *direction, double step,
                             double *slope)
{
    nrl_param *p = s->m->params[i];
    float *moved = mem_alloc((size_t)p->numel * sizeof *moved);
    double loss[2] = {0, 0};
    nrl_status st = NRL_OK;
    for (int side = 0; side < 2 && st == NRL_OK; side++) {
        for (int64_t k = 0; k < p->numel; k++)
            moved[k] = (float)((double)at[k] + (side ? step : -step) * direction[k]);
        st = tensor_write(s->compute.ctx, s->work[i], moved);
        nrl_param_touch(p);
        if (st == NRL_OK) st = model_suite_loss(s, b, false, &loss[side]);
    }
    if (st == NRL_OK) st = tensor_write(s->compute.ctx, s->work[i], at);
    nrl_param_touch(p);
    free(moved);
    *slope = (loss[1] - loss[0]) / (2 * step);
    return st;
}

/* The gradient's own direction first, then random ones. */
static void fill_direction(int which, const double *grad, double length, int64_t n, double *direction)
{
    uint64_t state = (uint64_t)which * 31 + 5;
    for (int64_t k = 0; k < n; k++)
        direction[k] = which == 0 ? grad[k] / length : (compute_uniform(&state, -1, 1) < 0 ? -1 : 1) / sqrt((double)n);
}

static nrl_status check_param(model_suite *s, nrl_batch *b, int i, const double *grad, const float *at)
{
    const nrl_param *p = s->m->params[i];
    double length = 0, *direction = mem_alloc((size_t)p->numel * sizeof *direction);
    nrl_status st = NRL_OK;
    for (int64_t k = 0; k < p->numel; k++)
        length += grad[k] * grad[k];
    length = sqrt(length);
    for (int d = length > 0 ? 0 : 1; d <= N_DIRECTIONS && st == NRL_OK; d++) {
        double want, got = 0;
        fill_direction(d, grad, length, p->numel, direction);
        for (int64_t k = 0; k < p->numel; k++)
            got += grad[k] * direction[k];
        /* A router changes its choice of experts somewhere, where the loss jumps: a smaller step is less likely to
         * cross such a place, at the price of more rounding. A wrong gradient fails with every step. */
        double step = STEP, tolerance = GRADIENT_ABSOLUTE;
        st = difference(s, b, i, at, direction, step, &want);
        for (int turn = 0; turn < 2 && st == NRL_OK && !(fabs(got - want) <= GRADIENT_RELATIVE * length + tolerance);
             turn++) {
            step /= 4;
            tolerance *= 2;
            st = difference(s, b, i, at, direction, step, &want);
        }
        report_check(s->report, is_near(got - want, 0, 0, GRADIENT_RELATIVE * length + tolerance),
                     "gradients agree with finite differences", "'%s': slope %.6g, the loss has %.6g", p->name, got,
                     want);
    }
    free(direction);
    return st;
}

static nrl_status check_param_gradient(model_suite *s, nrl_batch *b, int i)
{
    int64_t n = s->m->params[i]->numel;
    double *grad = mem_alloc((size_t)n * sizeof *grad);
    float *at = mem_alloc((size_t)n * sizeof *at);
    nrl_status st = NRL_OK;
    if (nrl_param_grad_is_empty(s->m->params[i]))
        memset(grad, 0, (size_t)n * sizeof *grad); /* no gradient reached the parameter */
    else
        st = nrl_tensor_fetch(s->compute.ctx, s->grad[i], grad, n);
    if (st == NRL_OK) st = tensor_read(s->compute.ctx, s->work[i], at);
    if (st == NRL_OK) st = check_param(s, b, i, grad, at);
    free(grad);
    free(at);
    return st;
}

void model_suite_gradients(model_suite *s)
{
    nrl_batch *b = model_suite_batch(s, 0);
    double loss = 0;
    nrl_status st = model_suite_loss(s, b, true, &loss);
    for (int i = 0; i < s->m->n_params && st == NRL_OK; i++)
        st = check_param_gradient(s, b, i);
    report_ok(s->report, st, "backward succeeds");
    report_check(s->report, isfinite(loss), "states are finite", "the loss is %g", loss);
    batch_free(b);
}
