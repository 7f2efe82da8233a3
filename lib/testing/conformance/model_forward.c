/*
 * model_forward.c - a small config, parameters with values, batches of two segments, and hidden states.
 */
#include "base/json.h"
#include "model_suite.h"
#include <nrl/custom_op.h>
#include <stdlib.h>
#include <string.h>

/* ---- the config ---- */

/* Keys of common families; 2 layers of width 16. */
static const char usual_config[] =
    "{\"model_type\": \"%s\", \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 40,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\","
    " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"n_embd\": 16, \"n_layer\": 2, "
    "\"n_head\": 4,"
    " \"n_positions\": 64, \"n_ctx\": 64, \"activation_function\": \"gelu_new\","
    " \"layer_norm_epsilon\": 1e-5, \"initializer_range\": 0.02}";

nrl_status model_suite_config(model_suite *s)
{
    nrl_node *config;
    if (s->config) return NRL_OK;
    const char *own = s->table->example_config;
    const char *text = own ? own : arena_printf(&s->memory, usual_config, s->table->model_types[0]);
    NRL_TRY(json_parse(&s->memory, own ? "example_config" : "a config of the usual keys", text, strlen(text), &config));
    s->config = config;
    return NRL_OK;
}

/* ---- storage ---- */

/* Norms stay near 1 and other values are spread, so that each parameter affects the loss. */
static nrl_status init_values(model_suite *s, int i)
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

nrl_status model_suite_bind(model_suite *s)
{
    for (int i = 0; i < s->m->n_params; i++) {
        nrl_param *p = s->m->params[i];
        NRL_TRY(tensor_persistent(s->compute.ctx, NRL_DTYPE_F32, p->n_dims, p->dims, true, &s->work[i]));
        NRL_TRY(tensor_persistent(s->compute.ctx, NRL_DTYPE_F32, p->n_dims, p->dims, true, &s->grad[i]));
        nrl_param_bind(p, NRL_SLOT_WEIGHT, s->work[i]);
        nrl_param_bind(p, NRL_SLOT_GRAD, s->grad[i]);
        NRL_TRY(init_values(s, i));
    }
    return NRL_OK;
}

void model_suite_free(model_suite *s)
{
    for (int i = 0; i < MODEL_MAX_PARAMS; i++) {
        tensor_release(s->compute.ctx, s->work[i]);
        tensor_release(s->compute.ctx, s->grad[i]);
    }
}

/* ---- batches ---- */

static int32_t token_of(int64_t segment, int64_t i, int64_t vocab)
{
    return (int32_t)((segment * 17 + i * 7 + 3) % vocab);
}

/* The two segments, `first` in front; every token but the last one of a segment is a target
 * position. */
nrl_batch *model_suite_batch(const model_suite *s, int64_t first)
{
    int64_t vocab = s->m->head.weight->parts[0].dims[0], n = model_lengths[0] + model_lengths[1], at = 0, row = 0;
    nrl_batch *b = batch_new(n, n - MODEL_N_SEGMENTS, MODEL_N_SEGMENTS);
    b->n_examples = MODEL_N_SEGMENTS;
    for (int64_t k = 0; k < MODEL_N_SEGMENTS; k++) {
        int64_t which = k ? 1 - first : first;
        b->cu_seqlens[k] = (int32_t)at;
        b->segment_example[k] = (int32_t)k;
        for (int64_t i = 0; i < model_lengths[which]; i++, at++) {
            b->tokens[at] = token_of(which, i, vocab);
            b->positions[at] = (int32_t)i;
            if (i + 1 == model_lengths[which]) continue;
            b->row_token[row] = (int32_t)at;
            b->row_target[row] = token_of(which, i + 1, vocab);
            b->row_segment[row] = (int32_t)k;
            b->row_weight[row++] = 1;
        }
    }
    b->cu_seqlens[MODEL_N_SEGMENTS] = (int32_t)at;
    return b;
}

/* ---- forward ---- */

static void check_carry(model_suite *s, int32_t unit, const nrl_carry *carry, int64_t n_tokens)
{
    const model *m = s->m;
    bool last = unit == m->n_units - 1;
    int32_t n = last ? 1 : m->n_carry;
    report_check(s->report, carry->n >= n && (last || carry->n == n), "a unit passes the declared carry",
                 "unit '%s' passes %d tensors, expected %d", m->units[unit].name, carry->n, n);
    for (int32_t i = 0; i < n && i < carry->n; i++) {
        nrl_tensor *t = carry->tensors[i];
        int64_t width = last ? m->head.weight->dims[1] : m->carry_width[i];
        nrl_mat mat = t ? nrl_tensor_mat(t) : (nrl_mat){0};
        report_check(s->report, mat.rows == n_tokens && mat.cols == width, "a unit passes the declared carry",
                     "unit '%s', tensor %d: %lld x %lld, expected %lld x %lld", m->units[unit].name, i,
                     (long long)mat.rows, (long long)mat.cols, (long long)n_tokens, (long long)width);
    }
}

/* Only the parameters that the unit declared are bound while it runs. */
static void bind_uses(model_suite *s, int32_t unit)
{
    for (int i = 0; i < s->m->n_params; i++) {
        nrl_param *p = s->m->params[i];
        bool used = unit < 0;
        for (int32_t k = 0; !used && k < s->m->units[unit].n_uses; k++)
            used = s->m->units[unit].uses[k] == p;
        if ((nrl_param_tensor(p, NRL_SLOT_WEIGHT) != NULL) != used)
            nrl_param_bind(p, NRL_SLOT_WEIGHT, used ? s->work[i] : NULL);
    }
}

nrl_status model_suite_forward(model_suite *s, bool strict, nrl_tensor **hidden)
{
    nrl_carry carry = {0};
    nrl_status st = NRL_OK;
    int64_t failed = s->report->failed;
    for (int32_t u = 0; u < s->m->n_units && st == NRL_OK; u++) {
        if (strict) bind_uses(s, u);
        st = s->m->table.forward(s->m->self, s->compute.ctx, u, &carry);
        if (strict) bind_uses(s, -1);
        int64_t rows = s->carry_rows ? s->carry_rows : nrl_batch_n_tokens(nrl_ctx_batch(s->compute.ctx));
        if (st == NRL_OK) check_carry(s, u, &carry, rows);
        if (st == NRL_OK && s->report->failed != failed) st = nrl_fail(NRL_ERR_PLUGIN, "a wrong carry");
    }
    return st == NRL_OK ? nrl_op_tp_region(s->compute.ctx, NRL_TP_REGION_WHOLE_IN, carry.tensors[0], hidden) : st;
}

static nrl_status fetch_states(model_suite *s, nrl_tensor *hidden, model_states *o)
{
    int64_t n = nrl_tensor_numel(hidden);
    if (n > MODEL_MAX_STATES) return nrl_fail(NRL_ERR_CONFIG, "the config is too large: %lld states", (long long)n);
    double *values = mem_alloc((size_t)n * sizeof *values);
    nrl_status st = nrl_tensor_fetch(s->compute.ctx, hidden, values, n);
    for (int64_t i = 0; i < n; i++)
        o->states[i] = (float)values[i];
    o->n_tokens = nrl_tensor_mat(hidden).rows;
    o->width = nrl_tensor_mat(hidden).cols;
    free(values);
    return st;
}

/* Hidden states, malloc'd; rule: the rule that a failure breaks. */
model_states *model_suite_states(model_suite *s, nrl_batch *b, bool strict, const char *rule)
{
    model_states *o = mem_alloc(sizeof *o);
    nrl_tensor *hidden;
    ctx_scope_begin(s->compute.ctx);
    nrl_status st = ctx_set_batch(s->compute.ctx, b);
    if (st == NRL_OK) st = model_suite_forward(s, strict, &hidden);
    if (st == NRL_OK) st = fetch_states(s, hidden, o);
    ctx_scope_end(s->compute.ctx);
    ctx_set_batch(s->compute.ctx, NULL);
    o->good = report_ok(s->report, st, rule);
    return o;
}
