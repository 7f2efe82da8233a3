/*
 * gradcheck.c - nrl_gradcheck of nrl/host.h: tries a loss on a small made-up batch. The gradient is compared with
 * differences of the loss, the loss and the weight of a batch with those of its halves.
 */
#include "plugin/component.h"
#include "tensor/ctx.h"
#include <nrl/host.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 6, MOST_ROWS = BLOCKS * 2 * 5, VOCAB = 32, MAX_EXTRA = 8 };

typedef struct {
    const nrl_algorithm *loss;
    void *self;
    device device;
    nrl_ctx *ctx;
    const char *const *extra;
    size_t n_extra;
    double tolerance;
    /* found by the check */
    double worst; /* largest difference, relative to 1 or the gradient */
} checker;

/* ---- made-up values: functions of place alone, so parts of the batch hold the same ones ---- */

static double value_of(int64_t i, int64_t column)
{
    uint64_t x = (uint64_t)(i * 31 + column + 1) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (double)(x >> 40) / (double)(1 << 24);
}

static int64_t rows_of(int64_t segment)
{
    return 2 + segment * 7 % 4;
}

/* Blocks [first, first + n): segments of 2 to 5 target positions, each with one token before. */
static nrl_batch *make_batch(const checker *c, int64_t first, int64_t n)
{
    int64_t sides = c->loss->example_kind == 1 ? 2 : 1, n_rows = 0, row = 0, token = 0;
    for (int64_t s = first * sides; s < (first + n) * sides; s++)
        n_rows += rows_of(s);
    nrl_batch *b = batch_new(n_rows + n * sides, n_rows, n * sides);
    b->n_examples = n;
    for (int64_t s = 0; s < n * sides; s++) {
        int64_t id = first * sides + s;
        b->segment_example[s] = (int32_t)(s / sides);
        b->segment_side[s] = (int32_t)(s % sides);
        for (int64_t i = 0; i <= rows_of(id); i++, token++) {
            b->tokens[token] = (int32_t)(value_of(id * 8 + i, 0) * VOCAB);
            b->positions[token] = (int32_t)i;
            if (!i) continue;
            b->row_token[row] = (int32_t)token - 1;
            b->row_target[row] = b->tokens[token];
            b->row_segment[row] = (int32_t)s;
            b->row_weight[row++] = value_of(id * 8 + i, 1) < 0.2 ? 0.5F : 1;
        }
        b->cu_seqlens[s + 1] = (int32_t)token;
    }
    for (size_t k = 0; k < c->n_extra; k++, b->n_extra++) {
        float *values = arena_alloc(&b->memory, (size_t)(n * sides) * sizeof *values);
        for (int64_t s = 0; s < n * sides; s++)
            values[s] = (float)value_of(first * sides + s, 10 + (int64_t)k);
        b->extra[k] = (batch_extra){c->extra[k], values};
    }
    return b;
}

/* Values of a column of target positions: log-probs in (-3, 0), others in (0, 3). */
static void fill_column(const nrl_batch *b, int64_t first_segment, int64_t column, double sign, float *values)
{
    for (int64_t i = 0, k = 0; i < b->n_rows; i++, k++) {
        if (i && b->row_segment[i] != b->row_segment[i - 1]) k = 0;
        int64_t id = first_segment + b->row_segment[i];
        values[i] = (float)(sign * (0.05 + 2.9 * value_of(id * 8 + k, column)));
    }
}

/* ---- calling the loss ---- */

static nrl_status set_column(checker *c, nrl_batch *b, const char *name, const float *values, nrl_tensor **out)
{
    nrl_tensor *t;
    NRL_TRY(nrl_tensor_from_host(c->ctx, NRL_DTYPE_F32, 1, &b->n_rows, values, &t));
    batch_set_column(b, name, t);
    if (out) *out = t;
    return NRL_OK;
}

static nrl_status set_columns(checker *c, nrl_batch *b, int64_t first_segment, const float *logps, nrl_tensor **leaf)
{
    static const char *const others[] = {"ref_logps", "entropy", "sum_p2"};
    float values[MOST_ROWS];
    for (int64_t k = 0; k < 3; k++) {
        fill_column(b, first_segment, 3 + k, k == 1 ? 1 : -1, values);
        NRL_TRY(set_column(c, b, others[k], values, NULL));
    }
    return set_column(c, b, "logps", logps, leaf);
}

/* The sum of all terms for these log-probs; with `grad` also its gradient. */
static nrl_status evaluate(checker *c, nrl_batch *b, int64_t first_segment, const float *logps, double *sum,
                           double *grad)
{
    nrl_tensor *leaf, *sums[NRL_MAX_TERMS] = {0}, *ones[NRL_MAX_TERMS], *back = NULL;
    const int64_t one = 1;
    const float unit = 1;
    tape *t = tape_create();
    nrl_status st = set_columns(c, b, first_segment, logps, &leaf);
    if (st != NRL_OK) goto done;
    tensor_set_leaf(leaf);
    ctx_tape_begin(c->ctx, t);
    st = c->loss->loss(c->self, c->ctx, b, sums);
    ctx_tape_end(c->ctx);
    *sum = 0;
    for (uint32_t k = 0; st == NRL_OK && k < c->loss->n_terms; k++) {
        double value;
        st = nrl_tensor_fetch(c->ctx, sums[k], &value, 1);
        *sum += value;
        if (st == NRL_OK) st = nrl_tensor_from_host(c->ctx, NRL_DTYPE_F32, 1, &one, &unit, &ones[k]);
    }
    if (st != NRL_OK || !grad) goto done;
    NRL_TRY_DONE(tape_backward(c->ctx, t, sums, ones, (int)c->loss->n_terms, &leaf, &back, 1));
    memset(grad, 0, (size_t)b->n_rows * sizeof *grad);
    if (back) st = nrl_tensor_fetch(c->ctx, back, grad, b->n_rows);
    tensor_release(c->ctx, back);
done:
    tape_destroy(c->ctx, t);
    return st;
}

/* The same in a scope of its own, with fetched metrics thrown away. */
static nrl_status try(checker *c, nrl_batch *b, int64_t first_segment, const float *logps, double *sum, double *grad)
{
    const ctx_metric *metrics;
    int64_t n;
    NRL_TRY(ctx_set_batch(c->ctx, b));
    ctx_scope_begin(c->ctx);
    nrl_status st = evaluate(c, b, first_segment, logps, sum, grad);
    if (st == NRL_OK) st = ctx_take_metrics(c->ctx, &metrics, &n);
    ctx_scope_end(c->ctx);
    b->n_columns = 0; /* their tensors are gone */
    return st;
}

/* ---- the two checks ---- */

static nrl_status check_gradient(checker *c, nrl_batch *b)
{
    const double step = 0.01; /* f32 rounding of the sum against the third derivative */
    float logps[MOST_ROWS];
    double grad[MOST_ROWS], sum, above, below;
    fill_column(b, 0, 2, -1, logps);
    NRL_TRY(try(c, b, 0, logps, &sum, grad));
    for (int64_t i = 0; i < b->n_rows; i++) {
        float kept = logps[i], high = (float)(kept + step), low = (float)(kept - step);
        logps[i] = high;
        NRL_TRY(try(c, b, 0, logps, &above, NULL));
        logps[i] = low;
        NRL_TRY(try(c, b, 0, logps, &below, NULL));
        logps[i] = kept;
        double expected = (above - below) / ((double)high - (double)low);
        double off = fabs(expected - grad[i]) / fmax(1, fabs(expected));
        if (!(off <= c->tolerance))
            return nrl_fail(NRL_ERR_CONFIG,
                            "loss '%s': the gradient of row %lld is %.6g, differences of the loss "
                            "give %.6g",
                            c->loss->plugin.name, (long long)i + 1, grad[i], expected);
        if (off > c->worst) c->worst = off;
    }
    return NRL_OK;
}

static nrl_status part(checker *c, int64_t first, int64_t n, double *sum, double *weight)
{
    float logps[MOST_ROWS];
    double weights[NRL_MAX_TERMS] = {0};
    nrl_batch *b = make_batch(c, first, n);
    int64_t first_segment = first * (c->loss->example_kind == 1 ? 2 : 1);
    fill_column(b, first_segment, 2, -1, logps);
    c->loss->weight(c->self, b, weights);
    nrl_status st = try(c, b, first_segment, logps, sum, NULL);
    *weight = 0;
    for (uint32_t k = 0; k < c->loss->n_terms; k++)
        *weight += weights[k];
    ctx_set_batch(c->ctx, NULL);
    batch_free(b);
    return st;
}

static nrl_status compare_parts(const checker *c, const char *what, double all, double x, double y)
{
    if (fabs(all - (x + y)) <= 1e-4 * fmax(1, fabs(all))) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "loss '%s': the %s of a batch is %.6g, of its halves %.6g and %.6g: expected a "
                    "sum over examples\nhint: use :sum(), not :mean(); the core divides by the weight",
                    c->loss->plugin.name, what, all, x, y);
}

static nrl_status check_sums(checker *c)
{
    double all, x, y, weight, weight_x, weight_y;
    NRL_TRY(part(c, 0, BLOCKS, &all, &weight));
    NRL_TRY(part(c, 0, BLOCKS / 2, &x, &weight_x));
    NRL_TRY(part(c, BLOCKS / 2, BLOCKS - BLOCKS / 2, &y, &weight_y));
    NRL_TRY(compare_parts(c, "loss", all, x, y));
    return compare_parts(c, "weight", weight, weight_x, weight_y);
}

static nrl_status check(checker *c)
{
    nrl_batch *b = make_batch(c, 0, BLOCKS);
    nrl_status st = check_gradient(c, b);
    ctx_set_batch(c->ctx, NULL);
    batch_free(b);
    return st == NRL_OK ? check_sums(c) : st;
}

/* ---- a device to do it on ---- */

static nrl_status with_device(checker *c, const nrl_environment *env, const char *backend)
{
    arena a = {0};
    nrl_component *component;
    nrl_status st =
        nrl_component_open(env, NRL_KIND_BACKEND, "backend", node_string(&a, backend, strlen(backend)), &component);
    if (st != NRL_OK) goto done;
    const nrl_backend *table = (const nrl_backend *)nrl_component_table(component);
    NRL_TRY_DONE(device_open(table, nrl_component_options(component), 0, &c->device));
    NRL_TRY_DONE(ctx_create(&c->device, &c->ctx));
    st = check(c);
    ctx_destroy(c->ctx);
done:
    if (c->device.self) device_close(&c->device);
    nrl_component_close(component);
    arena_free(&a);
    return st;
}

nrl_status nrl_gradcheck(const nrl_environment *env, const nrl_algorithm *loss, void *self,
                         const nrl_gradcheck_options *options, double *worst)
{
    nrl_gradcheck_options o = {0};
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    checker c = {.loss = loss,
                 .self = self,
                 .extra = o.extra,
                 .n_extra = o.n_extra,
                 .tolerance = o.tolerance > 0 ? o.tolerance : 0.005};
    if (o.n_extra > MAX_EXTRA)
        return nrl_fail(NRL_ERR_CONFIG, "cannot check loss '%s': %u extra columns; expected at most %d",
                        loss->plugin.name, o.n_extra, MAX_EXTRA);
    nrl_status st = with_device(&c, env, o.backend);
    *worst = c.worst;
    return st;
}
