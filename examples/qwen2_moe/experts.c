/*
 * experts.c - the sparse block: a router chooses k experts for each token, the rows of each expert go through its MLP
 * together, and the results are summed with the router's probabilities.
 */
#include "qwen2_moe.h"
#include <nrl/operations.h>
#include <stdlib.h>

static nrl_status mlp(nrl_ctx *ctx, const moe_mlp *m, nrl_tensor *x, nrl_tensor **y)
{
    nrl_tensor *gate, *up;
    NRL_TRY(nrl_op_linear(ctx, x, m->gate, NULL, &gate));
    NRL_TRY(nrl_op_linear(ctx, x, m->up, NULL, &up));
    NRL_TRY(nrl_op_swiglu(ctx, gate, up, &gate));
    return nrl_op_linear(ctx, gate, m->down, NULL, y);
}

/* Row i of the sorted rows is token token[i], those of expert e are [first[e], first[e+1]), and choice s of token t is
 * row place[t k + s]. */
typedef struct {
    int32_t *token, *place, *of_token; /* [N k] */
    float *chosen;                     /* [N,E] 1 or 0 */
    int64_t first[MAX_EXPERTS + 1];
} routes;

static nrl_status find_routes(nrl_ctx *ctx, const moe_config *c, nrl_tensor *indices, routes *r)
{
    const int64_t n = nrl_tensor_numel(indices), n_tokens = n / c->n_chosen;
    double *expert = malloc((size_t)(n + 1) * sizeof *expert);
    r->token = malloc((size_t)(3 * n + 1) * sizeof *r->token);
    r->chosen = calloc((size_t)(n_tokens * c->n_experts + 1), sizeof *r->chosen);
    nrl_status st = expert && r->token && r->chosen ? nrl_tensor_fetch(ctx, indices, expert, n)
                                                    : nrl_fail(NRL_ERR_MEMORY, "out of memory");
    int64_t at = 0;
    for (int64_t e = 0; e < c->n_experts && st == NRL_OK; e++) {
        r->place = r->token + n;
        r->of_token = r->place + n;
        r->first[e] = at;
        for (int64_t i = 0; i < n; i++) {
            r->of_token[i] = (int32_t)(i / c->n_chosen);
            if ((int64_t)expert[i] != e) continue;
            r->chosen[i / c->n_chosen * c->n_experts + e] = 1;
            r->token[at] = (int32_t)(i / c->n_chosen);
            r->place[i] = (int32_t)at++;
        }
    }
    r->first[c->n_experts] = at;
    free(expert);
    return st;
}

/* x [N,D], weights [N,k] -> y [N,D] */
static nrl_status run_experts(nrl_ctx *ctx, const moe_config *c, const moe_layer *l, const routes *r, nrl_tensor *x,
                              nrl_tensor *weights, nrl_tensor **y)
{
    const int64_t n = nrl_tensor_numel(weights), column[] = {n, 1};
    nrl_param *gates[MAX_EXPERTS], *ups[MAX_EXPERTS], *downs[MAX_EXPERTS];
    int64_t n_rows[MAX_EXPERTS];
    nrl_tensor *sorted, *gate, *up, *rows;
    for (int64_t e = 0; e < c->n_experts; e++) {
        gates[e] = l->experts[e].gate;
        ups[e] = l->experts[e].up;
        downs[e] = l->experts[e].down;
        n_rows[e] = r->first[e + 1] - r->first[e];
    }
    NRL_TRY(nrl_op_gather_rows(ctx, x, r->token, n, &sorted));
    NRL_TRY(nrl_op_grouped_linear(ctx, sorted, c->n_experts, n_rows, gates, &gate));
    NRL_TRY(nrl_op_grouped_linear(ctx, sorted, c->n_experts, n_rows, ups, &up));
    NRL_TRY(nrl_op_swiglu(ctx, gate, up, &gate));
    NRL_TRY(nrl_op_grouped_linear(ctx, gate, c->n_experts, n_rows, downs, &rows));
    NRL_TRY(nrl_op_gather_rows(ctx, rows, r->place, n, &rows));
    NRL_TRY(nrl_op_reshape(ctx, weights, 2, column, &weights));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, rows, weights, &rows));
    return nrl_op_segment_sum(ctx, rows, r->of_token, n, n / c->n_chosen, y);
}

/* stats += [chosen | probabilities] */
static nrl_status add_stats(nrl_ctx *ctx, const routes *r, nrl_tensor *probs, nrl_tensor **stats)
{
    const int64_t dims[] = {nrl_tensor_dim(probs, 0), nrl_tensor_dim(probs, 1)};
    nrl_tensor *both[2] = {NULL, probs}, *own;
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, dims, r->chosen, &both[0]));
    NRL_TRY(nrl_op_concat_columns(ctx, both, 2, &own));
    NRL_TRY(nrl_op_cast(ctx, own, nrl_tensor_dtype(*stats), &own));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *stats, own, stats);
}

nrl_status moe_block(nrl_ctx *ctx, const moe_config *c, const moe_layer *l, nrl_tensor **h, nrl_tensor **stats)
{
    nrl_tensor *probs, *weights, *indices, *sparse, *shared, *gate, *sum, *x = *h;
    const nrl_dtype dtype = nrl_tensor_dtype(x);
    routes r = {0};
    NRL_TRY(nrl_op_linear(ctx, x, l->router, NULL, &probs));
    NRL_TRY(nrl_op_cast(ctx, probs, NRL_DTYPE_F32, &probs));
    NRL_TRY(nrl_op_softmax(ctx, probs, &probs));
    NRL_TRY(nrl_op_top_k(ctx, probs, c->n_chosen, &weights, &indices));
    if (c->normalizes) {
        const int64_t column[] = {nrl_tensor_dim(weights, 0), 1};
        NRL_TRY(nrl_op_sum_columns(ctx, weights, &sum));
        NRL_TRY(nrl_op_reshape(ctx, sum, 2, column, &sum));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_DIV, weights, sum, &weights));
    }
    NRL_TRY(nrl_op_cast(ctx, weights, dtype, &weights));
    nrl_status st = find_routes(ctx, c, indices, &r);
    if (st == NRL_OK) st = run_experts(ctx, c, l, &r, x, weights, &sparse);
    if (st == NRL_OK) st = add_stats(ctx, &r, probs, stats);
    free(r.token);
    free(r.chosen);
    NRL_TRY(st);
    NRL_TRY(mlp(ctx, &l->shared, x, &shared));
    NRL_TRY(nrl_op_linear(ctx, x, l->shared_gate, NULL, &gate));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SIGMOID, gate, 0, 0, &gate));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, shared, gate, &shared));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, sparse, shared, h);
}
