/*
 * model.c - what every model promises: it declares all that it uses, its forward is a function of
 * its parameters and the batch alone, and tokens see only earlier ones of their own segment.
 */
#include "model/model.h"
#include "base/json.h"
#include "conformance/compute.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Differences of an f32 loss near 50 over a step of STEP: rounding 2e-4; curvature is smaller. */
#define STEP 2e-2
#define GRADIENT_RELATIVE 1e-2
#define GRADIENT_ABSOLUTE 2e-3
/* One token's states, computed beside other tokens. */
#define STATE_ERROR 1e-4

enum { N_SEGMENTS = 2, MAX_PARAMS = 256, MAX_STATES = 65536, N_DIRECTIONS = 3 };
static const int64_t lengths[N_SEGMENTS] = {5, 4};

typedef struct {
    const nrl_model *table;
    const nrl_node *config;
    conformance_report *report;
    compute compute;
    arena memory;
    model *m;
    nrl_tensor *work[MAX_PARAMS], *grad[MAX_PARAMS];
} suite;

/* Hidden states of a batch, segment by segment in the order of `first`. */
typedef struct {
    int64_t n_tokens, width;
    float states[MAX_STATES];
    bool good;
} outcome;

/* ---- the config ---- */

/* Keys of the usual families; 2 layers of width 16. */
static const char usual_config[] =
    "{\"model_type\": \"%s\", \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 40,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\","
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"n_embd\": 16, \"n_layer\": 2, "
    "\"n_head\": 4,"
    " \"n_positions\": 64, \"n_ctx\": 64, \"activation_function\": \"gelu_new\","
    " \"layer_norm_epsilon\": 1e-5, \"initializer_range\": 0.02}";

static nrl_status make_config(suite *s)
{
    nrl_node *config;
    if (s->config) return NRL_OK;
    const char *text = arena_printf(&s->memory, usual_config, s->table->model_types[0]);
    NRL_TRY(json_parse(&s->memory, "a config of the usual keys", text, strlen(text), &config));
    s->config = config;
    return NRL_OK;
}

/* ---- storage ---- */

/* Norms stay near 1, everything else spreads: each parameter matters to the loss. */
static nrl_status init_values(suite *s, int i)
{
    const nrl_param *p = s->m->params[i];
    uint64_t state = (uint64_t)i + 1;
    double middle = p->init == NRL_INIT_ONES ? 1 : 0;
    float *values = mem_alloc((size_t)p->numel * sizeof *values);
    for (int64_t k = 0; k < p->numel; k++)
        values[k] = (float)(middle + compute_uniform(&state, -0.3, 0.3));
    nrl_status st = tensor_write(s->compute.ctx, s->work[i], values);
    free(values);
    return st;
}

static nrl_status bind_storage(suite *s)
{
    for (int i = 0; i < s->m->n_params; i++) {
        nrl_param *p = s->m->params[i];
        NRL_TRY(tensor_persistent(s->compute.ctx, NRL_DTYPE_F32, p->n_dims, p->dims, true,
                                  &s->work[i]));
        NRL_TRY(tensor_persistent(s->compute.ctx, NRL_DTYPE_F32, p->n_dims, p->dims, true,
                                  &s->grad[i]));
        nrl_param_bind(p, NRL_SLOT_WORK, s->work[i]);
        nrl_param_bind(p, NRL_SLOT_GRAD_ACC, s->grad[i]);
        NRL_TRY(init_values(s, i));
    }
    return NRL_OK;
}

static void free_storage(suite *s)
{
    for (int i = 0; i < MAX_PARAMS; i++) {
        tensor_release(s->compute.ctx, s->work[i]);
        tensor_release(s->compute.ctx, s->grad[i]);
    }
}

/* ---- batches ---- */

static int32_t token_of(int64_t segment, int64_t i, int64_t vocab)
{
    return (int32_t)((segment * 17 + i * 7 + 3) % vocab);
}

/* The two segments, `first` in front; every token but the last of a segment is scored. */
static nrl_batch *make_batch(const suite *s, int64_t first)
{
    int64_t vocab = s->m->head.weight->dims[0], n = lengths[0] + lengths[1], at = 0, row = 0;
    nrl_batch *b = batch_new(n, n - N_SEGMENTS, N_SEGMENTS);
    b->n_blocks = N_SEGMENTS;
    for (int64_t k = 0; k < N_SEGMENTS; k++) {
        int64_t which = k ? 1 - first : first;
        b->cu_seqlens[k] = (int32_t)at;
        b->segment_block[k] = (int32_t)k;
        for (int64_t i = 0; i < lengths[which]; i++, at++) {
            b->tokens[at] = token_of(which, i, vocab);
            b->positions[at] = (int32_t)i;
            if (i + 1 == lengths[which]) continue;
            b->row_token[row] = (int32_t)at;
            b->row_target[row] = token_of(which, i + 1, vocab);
            b->row_segment[row] = (int32_t)k;
            b->row_weight[row++] = 1;
        }
    }
    b->cu_seqlens[N_SEGMENTS] = (int32_t)at;
    return b;
}

/* ---- forward ---- */

static void check_carry(suite *s, int32_t unit, const nrl_carry *carry, int64_t n_tokens)
{
    const model *m = s->m;
    bool last = unit == m->n_units - 1;
    int32_t n = last ? 1 : m->n_carry;
    report_check(s->report, carry->n >= n && (last || carry->n == n),
                 "a unit passes the declared carry", "unit '%s' passes %d tensors, expected %d",
                 m->units[unit].name, carry->n, n);
    for (int32_t i = 0; i < n && i < carry->n; i++) {
        nrl_tensor *t = carry->tensors[i];
        int64_t width = last ? m->head.weight->dims[1] : m->carry_width[i];
        nrl_mat mat = t ? nrl_tensor_mat(t) : (nrl_mat){0};
        report_check(s->report, mat.rows == n_tokens && mat.cols == width,
                     "a unit passes the declared carry",
                     "unit '%s', tensor %d: %lld x %lld, expected %lld x %lld", m->units[unit].name,
                     i, (long long)mat.rows, (long long)mat.cols, (long long)n_tokens,
                     (long long)width);
    }
}

/* Only what the unit declared is bound while it runs. */
static void bind_uses(suite *s, int32_t unit)
{
    for (int i = 0; i < s->m->n_params; i++) {
        nrl_param *p = s->m->params[i];
        bool used = unit < 0;
        for (int32_t k = 0; !used && k < s->m->units[unit].n_uses; k++)
            used = s->m->units[unit].uses[k] == p;
        if ((nrl_param_tensor(p, NRL_SLOT_WORK) != NULL) != used)
            nrl_param_bind(p, NRL_SLOT_WORK, used ? s->work[i] : NULL);
    }
}

static nrl_status forward(suite *s, bool strict, nrl_tensor **hidden)
{
    nrl_carry carry = {0};
    nrl_status st = NRL_OK;
    int64_t failed = s->report->failed;
    for (int32_t u = 0; u < s->m->n_units && st == NRL_OK; u++) {
        if (strict) bind_uses(s, u);
        st = s->m->table.forward(s->m->self, s->compute.ctx, u, &carry);
        if (strict) bind_uses(s, -1);
        if (st == NRL_OK) check_carry(s, u, &carry, nrl_batch_n_tokens(ctx_batch(s->compute.ctx)));
        if (st == NRL_OK && s->report->failed != failed)
            st = nrl_fail(NRL_ERR_PLUGIN, "a wrong carry");
    }
    *hidden = carry.tensors[0];
    return st;
}

static nrl_status fetch_states(suite *s, nrl_tensor *hidden, outcome *o)
{
    int64_t n = nrl_tensor_numel(hidden);
    if (n > MAX_STATES)
        return nrl_fail(NRL_ERR_CONFIG, "the config is too large: %lld states", (long long)n);
    double *values = mem_alloc((size_t)n * sizeof *values);
    nrl_status st = nrl_tensor_fetch(s->compute.ctx, hidden, values, n);
    for (int64_t i = 0; i < n; i++)
        o->states[i] = (float)values[i];
    o->n_tokens = nrl_tensor_mat(hidden).rows;
    o->width = nrl_tensor_mat(hidden).cols;
    free(values);
    return st;
}

/* Hidden states, malloc'd; rule: what it means when this fails. */
static outcome *run_states(suite *s, nrl_batch *b, bool strict, const char *rule)
{
    outcome *o = mem_alloc(sizeof *o);
    nrl_tensor *hidden;
    ctx_scope_begin(s->compute.ctx);
    nrl_status st = ctx_set_batch(s->compute.ctx, b);
    if (st == NRL_OK) st = forward(s, strict, &hidden);
    if (st == NRL_OK) st = fetch_states(s, hidden, o);
    ctx_scope_end(s->compute.ctx);
    ctx_set_batch(s->compute.ctx, NULL);
    o->good = report_ok(s->report, st, rule);
    return o;
}

/* ---- the loss: weighted log-probs of all scored rows, and its gradient ---- */

static nrl_status weighted_sum(suite *s, nrl_tensor *logps, nrl_tensor **sum)
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

static nrl_status taped_loss(suite *s, tape *t, double *loss)
{
    nrl_ctx *ctx = s->compute.ctx;
    nrl_tensor *hidden, *logps, *entropy, *log_sum_p2, *sum, *seed;
    float one = 1;
    if (t) ctx_tape_begin(ctx, t);
    nrl_status st = forward(s, false, &hidden);
    if (st == NRL_OK)
        st = head_columns(ctx, &s->m->head, hidden, HEAD_LOGP, 1, &logps, &entropy, &log_sum_p2);
    if (st == NRL_OK) st = weighted_sum(s, logps, &sum);
    if (t) ctx_tape_end(ctx);
    NRL_TRY(st);
    NRL_TRY(nrl_tensor_fetch(ctx, sum, loss, 1));
    if (!t) return NRL_OK;
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &(int64_t){1}, &one, &seed));
    return tape_backward(ctx, t, &sum, &seed, 1, NULL, NULL, 0);
}

static nrl_status run_loss(suite *s, nrl_batch *b, bool with_gradient, double *loss)
{
    tape *t = with_gradient ? tape_create() : NULL;
    for (int i = 0; with_gradient && i < s->m->n_params; i++)
        nrl_param_set_fresh(s->m->params[i], true);
    ctx_scope_begin(s->compute.ctx);
    nrl_status st = ctx_set_batch(s->compute.ctx, b);
    if (st == NRL_OK) st = taped_loss(s, t, loss);
    if (t) tape_destroy(s->compute.ctx, t);
    ctx_scope_end(s->compute.ctx);
    ctx_set_batch(s->compute.ctx, NULL);
    return st;
}

/* d loss / d parameter along a direction of unit length, from two losses. */
static nrl_status difference(suite *s, nrl_batch *b, int i, const float *at,
                             const double *direction, double *slope)
{
    nrl_param *p = s->m->params[i];
    float *moved = mem_alloc((size_t)p->numel * sizeof *moved);
    double loss[2] = {0, 0};
    nrl_status st = NRL_OK;
    for (int side = 0; side < 2 && st == NRL_OK; side++) {
        for (int64_t k = 0; k < p->numel; k++)
            moved[k] = (float)((double)at[k] + (side ? STEP : -STEP) * direction[k]);
        st = tensor_write(s->compute.ctx, s->work[i], moved);
        nrl_param_touch(p);
        if (st == NRL_OK) st = run_loss(s, b, false, &loss[side]);
    }
    if (st == NRL_OK) st = tensor_write(s->compute.ctx, s->work[i], at);
    nrl_param_touch(p);
    free(moved);
    *slope = (loss[1] - loss[0]) / (2 * STEP);
    return st;
}

/* The gradient's own direction first, then random ones. */
static void fill_direction(int which, const double *grad, double length, int64_t n,
                           double *direction)
{
    uint64_t state = (uint64_t)which * 31 + 5;
    for (int64_t k = 0; k < n; k++)
        direction[k] = which == 0 ? grad[k] / length
                                  : (compute_uniform(&state, -1, 1) < 0 ? -1 : 1) / sqrt((double)n);
}

static nrl_status check_param(suite *s, nrl_batch *b, int i, const double *grad, const float *at)
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
        st = difference(s, b, i, at, direction, &want);
        report_check(s->report,
                     is_near(got - want, 0, 0, GRADIENT_RELATIVE * length + GRADIENT_ABSOLUTE),
                     "gradients are those of differences", "'%s': slope %.6g, the loss has %.6g",
                     p->name, got, want);
    }
    free(direction);
    return st;
}

static nrl_status check_param_gradient(suite *s, nrl_batch *b, int i)
{
    int64_t n = s->m->params[i]->numel;
    double *grad = mem_alloc((size_t)n * sizeof *grad);
    float *at = mem_alloc((size_t)n * sizeof *at);
    nrl_status st = NRL_OK;
    if (nrl_param_fresh(s->m->params[i]))
        memset(grad, 0, (size_t)n * sizeof *grad); /* nothing flowed */
    else
        st = nrl_tensor_fetch(s->compute.ctx, s->grad[i], grad, n);
    if (st == NRL_OK) st = tensor_read(s->compute.ctx, s->work[i], at);
    if (st == NRL_OK) st = check_param(s, b, i, grad, at);
    free(grad);
    free(at);
    return st;
}

static void check_gradients(suite *s)
{
    nrl_batch *b = make_batch(s, 0);
    double loss;
    nrl_status st = run_loss(s, b, true, &loss);
    for (int i = 0; i < s->m->n_params && st == NRL_OK; i++)
        st = check_param_gradient(s, b, i);
    report_ok(s->report, st, "backward succeeds");
    report_check(s->report, isfinite(loss), "states are finite", "the loss is %g", loss);
    batch_free(b);
}

/* ---- what a token may see ---- */

/* Rows [begin, end) of a against rows from `other` on of b. */
static void expect_rows(suite *s, const char *rule, const outcome *a, int64_t begin, int64_t end,
                        const outcome *b, int64_t other)
{
    if (!a->good || !b->good) return;
    for (int64_t i = begin * a->width; i < end * a->width; i++) {
        double x = (double)a->states[i], y = (double)b->states[i + (other - begin) * a->width];
        if (!report_check(s->report, is_near(x, y, STATE_ERROR, STATE_ERROR), rule,
                          "token %lld: %.7g, was %.7g", (long long)(i / a->width), x, y))
            return;
    }
}

static outcome *with_token_changed(suite *s, int64_t at)
{
    nrl_batch *b = make_batch(s, 0);
    b->tokens[at] = (int32_t)((b->tokens[at] + 1) % s->m->head.weight->dims[0]);
    outcome *o = run_states(s, b, false, "forward succeeds");
    batch_free(b);
    return o;
}

static void check_sight(suite *s, const outcome *base)
{
    int64_t n = lengths[0] + lengths[1];
    nrl_batch *b = make_batch(s, 1);
    outcome *turned = run_states(s, b, false, "forward succeeds");
    outcome *last = with_token_changed(s, lengths[0] - 1), *first = with_token_changed(s, 0);
    expect_rows(s, "a segment does not know its place", turned, lengths[1], n, base, 0);
    expect_rows(s, "a segment does not know its place", turned, 0, lengths[1], base, lengths[0]);
    expect_rows(s, "no token sees a later one", last, 0, lengths[0] - 1, base, 0);
    expect_rows(s, "segments do not see each other", last, lengths[0], n, base, lengths[0]);
    expect_rows(s, "segments do not see each other", first, lengths[0], n, base, lengths[0]);
    bool reached = first->good && memcmp(first->states + (lengths[0] - 1) * first->width,
                                         base->states + (lengths[0] - 1) * base->width,
                                         (size_t)base->width * sizeof *base->states);
    report_check(s->report, reached || !first->good, "a token sees earlier ones",
                 "the last of a segment does not change with the first");
    batch_free(b);
    free(turned);
    free(last);
    free(first);
}

/* ---- instances ---- */

static void check_declarations(suite *s, const model *other)
{
    bool same = other->n_params == s->m->n_params && other->n_units == s->m->n_units;
    for (int i = 0; same && i < other->n_params; i++) {
        const nrl_param *a = s->m->params[i], *b = other->params[i];
        same = !strcmp(a->name, b->name) && a->n_dims == b->n_dims &&
               !memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof *a->dims);
    }
    report_check(s->report, same, "equal configs give equal layouts", "parameters differ");
}

static void check_instances(suite *s, nrl_batch *b, const outcome *base)
{
    model *other;
    if (!report_ok(s->report, model_create(s->table, s->config, &other),
                   "instances live side by side"))
        return;
    check_declarations(s, other);
    outcome *beside = run_states(s, b, false, "instances live side by side");
    model_destroy(other);
    outcome *after = run_states(s, b, false, "instances live side by side");
    bool same = beside->good && after->good &&
                !memcmp(beside->states, base->states, sizeof base->states) &&
                !memcmp(after->states, base->states, sizeof base->states);
    report_check(s->report, same, "equal calls give equal bits", "states differ");
    free(beside);
    free(after);
}

static void check_refusal(suite *s)
{
    nrl_node *empty = node_new(&s->memory, NRL_NODE_MAP);
    void *self = NULL;
    nrl_fail(NRL_OK, "%s", "");
    nrl_status st = s->table->create(empty, &self);
    report_check(s->report, st != NRL_OK && *nrl_error_text(),
                 "a config without sizes is refused with words", "status %d, '%s'", (int)st,
                 nrl_error_text());
    if (st == NRL_OK && s->table->destroy) s->table->destroy(self);
}

static void run_rules(suite *s)
{
    nrl_batch *b = make_batch(s, 0);
    outcome *base = run_states(s, b, false, "forward succeeds");
    if (base->good) {
        free(run_states(s, b, true, "a unit uses only what it declares"));
        check_instances(s, b, base);
        check_sight(s, base);
        check_gradients(s);
    }
    check_refusal(s);
    free(base);
    batch_free(b);
}

static bool check_table(suite *s)
{
    const nrl_model *t = s->table;
    return report_check(s->report, t->create && t->layout && t->forward,
                        "a model has create, layout and forward", "one is NULL") &&
           report_check(s->report, t->model_types && t->model_types[0],
                        "a model names the types it serves", "model_types is empty");
}

void conformance_model(const nrl_model *table, const conformance_setup *setup,
                       conformance_report *report)
{
    suite s = {.table = table, .config = setup->model_config, .report = report};
    if (!check_table(&s) || !compute_open(&s.compute, setup, report)) return;
    nrl_status st = make_config(&s);
    if (st == NRL_OK) st = model_create(table, s.config, &s.m);
    if (report_ok(report, st, "an instance is created and declares its layout") &&
        report_check(report, s.m->n_params <= MAX_PARAMS, "the config is small", "%d parameters",
                     s.m->n_params)) {
        if (report_ok(report, bind_storage(&s), "parameters have room")) run_rules(&s);
        free_storage(&s);
    }
    model_destroy(s.m);
    compute_close(&s.compute);
    arena_free(&s.memory);
}
