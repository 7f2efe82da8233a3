/*
 * parallel_tp_regions.c - rules for a strategy that divides layers: with its placements and its
 * answers at the tp_regions, a small model has the log-probs of one rank, and each rank has its
 * ranges of the gradients. The model has everything that can be divided: a table that is also the
 * head, a fused projection of three groups with biases, a norm of heads, and a row-parallel product
 * with a bias. A strategy may leave each rank a part of the tokens. Each rank also computes the undivided model without
 * a strategy. Legend: N tokens, D width, H heads of K, V vocabulary.
 */
#include "parallel.h"
#include <string.h>

enum { N = 9, D = 6, H = 12, K = 2, V = 24, N_PARAMS = 7, MOST = 3 * H * K * D };
enum { TABLE = 0, NORM, QKV, QKV_BIAS, HEAD_NORM, OUT, OUT_BIAS };

static const struct {
    const char *name;
    int n_dims, groups;
    int64_t dims[2];
    nrl_tp tp;
} shapes[N_PARAMS] = {
    [TABLE] = {"table", 2, 1, {V, D}, NRL_TP_VOCAB},        [NORM] = {"norm", 1, 1, {D}, NRL_TP_NONE},
    [QKV] = {"qkv", 2, 3, {3 * H * K, D}, NRL_TP_COLUMN},   [QKV_BIAS] = {"qkv.bias", 1, 3, {3 * H * K}, NRL_TP_COLUMN},
    [HEAD_NORM] = {"head_norm", 1, 1, {K}, NRL_TP_PARTIAL}, [OUT] = {"out", 2, 1, {D, H *K}, NRL_TP_ROW},
    [OUT_BIAS] = {"out.bias", 1, 1, {D}, NRL_TP_WHOLE},
};

typedef struct {
    toy *t;
    nrl_ctx *ctx;
    nrl_param params[N_PARAMS];
    nrl_part parts[N_PARAMS];
    nrl_param *list[N_PARAMS];
    nrl_unit_uses unit;
    nrl_tensor *work[N_PARAMS], *grad[N_PARAMS];
    double logps[N];
} layers;

static void declare(layers *l)
{
    for (int i = 0; i < N_PARAMS; i++) {
        param_init(&l->params[i], &l->parts[i], shapes[i].name, shapes[i].n_dims, shapes[i].dims);
        l->params[i].tp = shapes[i].tp;
        l->params[i].index = i;
        l->parts[i].groups = shapes[i].groups;
        l->list[i] = &l->params[i];
    }
}

/* The indices in the full parameter of the elements that operations see on this rank. */
static int64_t elements(const layers *l, const nrl_param *p, int64_t *global)
{
    int64_t n = 0;
    for (int k = 0; k < layout_n_boxes(&p->parts[0]); k++) {
        layout_shard box = layout_box_of(l->t->mesh, nrl_mesh_rank(l->t->mesh), &p->parts[0], k);
        int64_t at = 0, begin, length;
        while (piece_next(&box, &at, &begin, &length))
            for (int64_t i = 0; i < length && n < MOST; i++)
                global[n++] = begin + i;
    }
    return n;
}

static nrl_status bind(layers *l)
{
    for (int i = 0; i < N_PARAMS; i++) {
        nrl_param *p = &l->params[i];
        int64_t global[MOST], n = elements(l, p, global);
        float values[MOST];
        if (n != p->numel)
            return nrl_fail(NRL_ERR_BUG, "'%s' has %lld elements of %lld", p->name, (long long)n, (long long)p->numel);
        for (int64_t k = 0; k < n; k++)
            values[k] = toy_value(p, global[k], 3) + 0.03125f;
        NRL_TRY(nrl_tensor_persistent(l->ctx, NRL_DTYPE_F32, n, false, &l->work[i]));
        NRL_TRY(nrl_tensor_persistent(l->ctx, NRL_DTYPE_F32, n, true, &l->grad[i]));
        NRL_TRY(tensor_write(l->ctx, l->work[i], values));
        nrl_param_bind(p, NRL_SLOT_WEIGHT, l->work[i]);
        nrl_param_bind(p, NRL_SLOT_GRAD, l->grad[i]);
        nrl_param_bind(p, NRL_SLOT_GRAD_SHARD, l->grad[i]);
        nrl_param_set_grad_is_empty(p, true);
    }
    return NRL_OK;
}

static void unbind(layers *l)
{
    for (int i = 0; i < N_PARAMS; i++) {
        nrl_tensor_free(l->ctx, l->work[i]);
        nrl_tensor_free(l->ctx, l->grad[i]);
    }
}

static nrl_batch *new_batch(void)
{
    nrl_batch *b = batch_new(N, N, 1);
    b->n_examples = 1;
    for (int32_t i = 0; i < N; i++) {
        b->tokens[i] = (i * 7 + 3) % V;
        b->positions[i] = b->row_token[i] = i;
        b->row_target[i] = (i * 11 + 1) % V;
        b->row_weight[i] = 1;
    }
    b->cu_seqlens[1] = N;
    return b;
}

/* x + out(q k + v) of heads, with dropout on x, to hidden states. */
static nrl_status hidden_states(layers *l, nrl_tensor **hidden)
{
    nrl_tensor *x, *h, *qkv, *q, *k, *v;
    ctx_set_random(l->ctx, 7);
    NRL_TRY(nrl_op_embedding(l->ctx, l->list[TABLE], &x));
    NRL_TRY(nrl_op_dropout(l->ctx, x, 0.25, &x));
    NRL_TRY(nrl_op_rms_norm(l->ctx, x, l->list[NORM], 1e-5, &h));
    NRL_TRY(nrl_op_tp_region(l->ctx, NRL_TP_REGION_COLUMN_IN, h, &h));
    NRL_TRY(nrl_op_linear(l->ctx, h, l->list[QKV], l->list[QKV_BIAS], &qkv));
    int64_t here = nrl_tensor_dim(qkv, -1) / 3;
    NRL_TRY(nrl_op_slice_columns(l->ctx, qkv, 0, here, &q));
    NRL_TRY(nrl_op_slice_columns(l->ctx, qkv, here, 2 * here, &k));
    NRL_TRY(nrl_op_slice_columns(l->ctx, qkv, 2 * here, 3 * here, &v));
    NRL_TRY(nrl_op_rms_norm(l->ctx, q, l->list[HEAD_NORM], 1e-5, &q));
    NRL_TRY(nrl_op_binary(l->ctx, NRL_BINARY_MUL, q, k, &q));
    NRL_TRY(nrl_op_binary(l->ctx, NRL_BINARY_ADD, q, v, &q));
    NRL_TRY(nrl_op_row_parallel_linear(l->ctx, q, l->list[OUT], l->list[OUT_BIAS], &h));
    NRL_TRY(nrl_op_binary(l->ctx, NRL_BINARY_ADD, x, h, hidden));
    return nrl_op_tp_region(l->ctx, NRL_TP_REGION_WHOLE_IN, *hidden, hidden);
}

static nrl_status taped(layers *l, tape *t, nrl_tensor **sum)
{
    const head_spec head = {.weight = l->list[TABLE], .scale = 1};
    nrl_tensor *hidden, *both;
    head_tensors v;
    ctx_tape_begin(l->ctx, t);
    nrl_status st = hidden_states(l, &hidden);
    if (st == NRL_OK) st = head_columns(l->ctx, &head, hidden, HEAD_LOGP | HEAD_ENTROPY, 1, &v);
    if (st == NRL_OK) st = nrl_op_binary(l->ctx, NRL_BINARY_ADD, v.logps, v.entropy, &both);
    if (st == NRL_OK) st = nrl_op_sum(l->ctx, both, sum);
    ctx_tape_end(l->ctx);
    return st == NRL_OK ? nrl_tensor_fetch(l->ctx, v.logps, l->logps, N) : st;
}

static nrl_status compute_layers(layers *l)
{
    nrl_batch *b = new_batch();
    tape *t = tape_create();
    nrl_tensor *sum, *seed;
    float one = 1;
    ctx_scope_begin(l->ctx);
    nrl_status st = ctx_set_batch(l->ctx, b);
    if (st == NRL_OK) st = taped(l, t, &sum);
    if (st == NRL_OK) st = nrl_tensor_from_host(l->ctx, NRL_DTYPE_F32, 1, &(int64_t){1}, &one, &seed);
    if (st == NRL_OK) st = tape_backward(l->ctx, t, &sum, &seed, 1, NULL, NULL, 0);
    tape_destroy(l->ctx, t);
    ctx_scope_end(l->ctx);
    ctx_set_batch(l->ctx, NULL);
    batch_free(b);
    return st;
}

/* ---- with the strategy ---- */

static nrl_status answer(void *user, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x, nrl_tensor **y)
{
    const toy *t = user;
    *y = x;
    return t->g->table->tp_region ? t->g->table->tp_region(t->self, ctx, tp_region, back, x, y) : NRL_OK;
}

static nrl_status begin(void *user, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x, nrl_tensor **y,
                        nrl_work **work)
{
    const toy *t = user;
    *work = NULL;
    return t->g->table->tp_region_begin(t->self, ctx, tp_region, back, x, y, work);
}

static void tokens(void *user, int64_t n, int64_t *begin, int64_t *end)
{
    const toy *t = user;
    t->g->table->tokens(t->self, n, begin, end);
}

static nrl_status plan(layers *l)
{
    toy *t = l->t;
    l->unit = (nrl_unit_uses){.name = "layers", .n_uses = N_PARAMS, .uses = l->list};
    t->plan = (nrl_parallel_plan){.size = sizeof t->plan,
                                  .train = true,
                                  .quiet = true,
                                  .compute = NRL_DTYPE_F32,
                                  .n_params = N_PARAMS,
                                  .n_units = 1,
                                  .params = l->list,
                                  .units = &l->unit,
                                  .n_heads = H,
                                  .n_kv_heads = H};
    NRL_TRY(t->g->table->plan(t->self, &t->plan));
    report_check(t->report, !t->plan.overlaps || t->g->table->tp_region_begin,
                 "a strategy whose plan answers overlaps has tp_region_begin", "tp_region_begin is NULL");
    for (int i = 0; i < N_PARAMS; i++)
        layout_settle(t->mesh, &l->params[i]);
    return NRL_OK;
}

static nrl_status walk(layers *l)
{
    const nrl_parallel *s = l->t->g->table;
    nrl_action actions[] = {
        {.size = sizeof *actions, .pass = NRL_PASS_FORWARD, .n_actions = 2, .n_uses = N_PARAMS, .uses = l->list},
        {.size = sizeof *actions,
         .pass = NRL_PASS_BACKWARD,
         .n_actions = 2,
         .n_uses = N_PARAMS,
         .uses = l->list,
         .n_final = N_PARAMS,
         .final = l->list}};
    if (s->enter) NRL_TRY(s->enter(l->t->self, l->ctx, actions, 0));
    const ctx_tp_regions regions = {.answer = answer,
                                    .begin = l->t->plan.overlaps && s->tp_region_begin ? begin : NULL,
                                    .wait = nrl_work_wait,
                                    .tokens = l->t->plan.shards_tokens && s->tokens ? tokens : NULL,
                                    .user = l->t};
    ctx_settings_of(l->ctx)->tp_regions = regions;
    nrl_status st = compute_layers(l);
    ctx_settings_of(l->ctx)->tp_regions = (ctx_tp_regions){0};
    NRL_TRY(st);
    if (s->leave) NRL_TRY(s->leave(l->t->self, l->ctx, actions, 1));
    return s->finish ? s->finish(l->t->self, l->ctx) : NRL_OK;
}

/* ---- comparison with one rank ---- */

static void compare_gradients(layers *l, layers *whole, int i)
{
    int64_t global[MOST], n = elements(l, &l->params[i], global);
    double mine[MOST], all[MOST];
    if (!toy_ok(l->t, nrl_tensor_fetch(l->ctx, l->grad[i], mine, n), "gradients are those of one rank")) return;
    if (!toy_ok(l->t, nrl_tensor_fetch(l->ctx, whole->grad[i], all, whole->params[i].numel),
                "gradients are those of one rank"))
        return;
    for (int64_t k = 0; k < n; k++)
        report_check(l->t->report, is_near(mine[k], all[global[k]], 1e-4, 1e-4), "gradients are those of one rank",
                     "%d ranks: element %lld of '%s' is %g on rank %d, expected %g", l->t->world, (long long)global[k],
                     l->params[i].name, mine[k], l->t->rank, all[global[k]]);
}

static void compare(layers *l, layers *whole)
{
    for (int i = 0; i < N; i++)
        report_check(l->t->report, is_near(l->logps[i], whole->logps[i], 1e-5, 1e-5), "log-probs are those of one rank",
                     "%d ranks: row %d is %g on rank %d, expected %g", l->t->world, i, l->logps[i], l->t->rank,
                     whole->logps[i]);
    for (int i = 0; i < N_PARAMS && !l->t->over; i++)
        compare_gradients(l, whole, i);
}

void parallel_tp_regions(toy *t)
{
    const nrl_parallel *s = t->g->table;
    layers mine = {.t = t}, whole = {.t = t};
    if (!compute_open(&t->compute, t->g->setup, t->report)) {
        t->over = true;
        return;
    }
    mine.ctx = whole.ctx = t->compute.ctx;
    declare(&mine);
    declare(&whole);
    if (!toy_ok(t, s->create(t->g->setup->options, t->mesh, &t->self), "an instance is created")) return;
    if (!toy_ok(t, plan(&mine), "a plan is made")) return;
    if (toy_ok(t, bind(&mine), "slots are as large as the layout says") &&
        toy_ok(t, bind(&whole), "the backend computes") && toy_ok(t, compute_layers(&whole), "the backend computes") &&
        toy_ok(t, walk(&mine), "tp_regions are answered"))
        compare(&mine, &whole);
    if (s->unbind) s->unbind(t->self, t->compute.ctx);
    unbind(&mine);
    unbind(&whole);
}
