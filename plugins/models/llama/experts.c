/*
 * experts.c - the sparse block: the router chooses k of E experts for each token, the rows of each expert go through it
 * together, and the results are summed with the router's probabilities.
 *
 * Under tensor parallelism every rank holds a part of the inner width of all experts and routes alike, so that all
 * ranks gather the same rows; the partial products are summed once, after the rows of a token have been added. Under
 * expert parallelism a rank has some experts, and rows travel to the ranks of theirs and back.
 */
#include "llama.h"
#include <nrl/operations.h>
#include <stdlib.h>

/* The rows of all choices, sorted by expert. Row i is of token token[i]; the rows of expert e are [first[e],
 * first[e+1]); choice s of token t is row place[t*k + s]. */
typedef struct {
    int32_t *token, *place, *of_token; /* [N*k] */
    float *chosen;                     /* [N,E] 1 or 0, for the balance loss and biases; else NULL */
    int64_t n, n_tokens;               /* N*k, N */
    bool gathered;                     /* ranks have parts of the tokens */
    int64_t first[LLAMA_MAX_EXPERTS + 1];
} routes;

/* Sorts by counting; `expert` [N*k]. */
static void sort_routes(routes *r, const double *expert, const llama_experts *e)
{
    int64_t next[LLAMA_MAX_EXPERTS + 1] = {0};
    for (int64_t i = 0; i < r->n; i++)
        next[(int64_t)expert[i] + 1]++;
    for (int64_t i = 0; i < e->n; i++)
        next[i + 1] += next[i];
    for (int64_t i = 0; i <= e->n; i++)
        r->first[i] = next[i];
    for (int64_t i = 0; i < r->n; i++) {
        int64_t t = i / e->chosen, at = next[(int64_t)expert[i]]++;
        r->of_token[i] = r->token[at] = (int32_t)t;
        r->place[i] = (int32_t)at;
        if (r->chosen) r->chosen[t * e->n + (int64_t)expert[i]] = 1;
    }
}

static nrl_status find_routes(nrl_ctx *ctx, const llama_experts *e, nrl_tensor *indices, routes *r)
{
    r->n = nrl_tensor_numel(indices);
    r->n_tokens = r->n / e->chosen;
    double *expert = malloc((size_t)(r->n + 1) * sizeof *expert);
    r->token = malloc((size_t)(3 * r->n + 1) * sizeof *r->token);
    const bool chosen = e->balance != 0 || e->biased;
    if (chosen) r->chosen = calloc((size_t)(r->n_tokens * e->n + 1), sizeof *r->chosen);
    nrl_status st =
        expert && r->token && (r->chosen || !chosen)
            ? nrl_tensor_fetch(ctx, indices, expert, r->n)
            : nrl_fail(NRL_ERR_MEMORY, "out of memory for the routes of %lld tokens", (long long)r->n_tokens);
    /* A walk by shapes alone reads zeros, though no token chooses an expert twice: there experts are chosen evenly. */
    const bool shapes = st == NRL_OK && e->chosen > 1 && r->n && expert[0] == expert[1];
    for (int64_t i = 0; shapes && i < r->n; i++)
        expert[i] = (double)(i % e->n);
    if (st == NRL_OK) {
        r->place = r->token + r->n;
        r->of_token = r->place + r->n;
        sort_routes(r, expert, e);
    }
    free(expert);
    return st;
}

/* The biases [E,2I] of the rows of n experts, `first` and those behind it, each for rows[i] of them: [sum of rows,2I]
 */
static nrl_status bias_rows(nrl_ctx *ctx, nrl_tensor *biases, int64_t first, int64_t n, const int64_t *rows,
                            int64_t total, nrl_tensor **y)
{
    int32_t *index = malloc((size_t)total * sizeof *index);
    if (!index) return nrl_fail(NRL_ERR_MEMORY, "out of memory for the biases of %lld rows", (long long)total);
    for (int64_t e = 0, at = 0; e < n; e++)
        for (int64_t i = 0; i < rows[e]; i++)
            index[at++] = (int32_t)(first + e);
    nrl_status st = nrl_op_gather_rows(ctx, biases, index, total, y);
    free(index);
    return st;
}

/* Rows sorted by expert -> a result for each, from the experts of all ranks; biases [E,2I], NULL = none. */
static nrl_status run_sorted(nrl_ctx *ctx, const llama_experts *c, const llama_layer *l, const routes *r,
                             nrl_tensor *biases, nrl_tensor *sorted, nrl_tensor **y)
{
    int64_t sent[LLAMA_MAX_EXPERTS], received[LLAMA_MAX_EXPERTS], rows[LLAMA_MAX_EXPERTS] = {0}, total = 0;
    nrl_param *gates[LLAMA_MAX_EXPERTS], *ups[LLAMA_MAX_EXPERTS], *downs[LLAMA_MAX_EXPERTS];
    int32_t rank;
    const int64_t own = c->n / nrl_ctx_expert_ranks(ctx, &rank);
    nrl_tensor *gate, *up;
    for (int64_t e = 0; e < c->n; e++)
        sent[e] = r->first[e + 1] - r->first[e];
    NRL_TRY(nrl_op_to_experts(ctx, sorted, sent, c->n, received, &sorted));
    for (int64_t i = 0; i < c->n; total += received[i++])
        rows[i % own] += received[i];
    for (int64_t e = 0; e < own; e++) {
        const llama_expert *expert = &l->experts[rank * own + e];
        gates[e] = expert->gate, ups[e] = expert->up, downs[e] = expert->down;
    }
    if (!total) return nrl_op_from_experts(ctx, sorted, sent, c->n, received, y); /* of [0,D] */
    NRL_TRY(nrl_op_grouped_linear(ctx, sorted, own, rows, gates, &gate));
    if (biases) {
        NRL_TRY(bias_rows(ctx, biases, rank * own, own, rows, total, &up));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, gate, up, &gate));
        NRL_TRY(nrl_op_clamped_swiglu(ctx, gate, c->slope, c->limit, &gate));
    } else {
        NRL_TRY(nrl_op_grouped_linear(ctx, sorted, own, rows, ups, &up));
        NRL_TRY(nrl_op_swiglu(ctx, gate, up, &gate));
    }
    NRL_TRY(nrl_op_grouped_linear(ctx, gate, own, rows, downs, y));
    return nrl_op_from_experts(ctx, *y, sent, c->n, received, y);
}

/* x [N,D] and weights [N,k] become inputs of what tensor parallelism divides. Where ranks have parts of the tokens,
 * both travel in one exchange, as columns of one matrix. */
static nrl_status enter_experts(nrl_ctx *ctx, const routes *r, nrl_tensor **x, nrl_tensor **weights)
{
    const int64_t widths[] = {nrl_tensor_dim(*x, 1), nrl_tensor_dim(*weights, 1)};
    nrl_tensor *parts[] = {*x, *weights}, *both;
    if (!r->gathered) {
        NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, *x, x));
        return nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, *weights, weights);
    }
    NRL_TRY(nrl_op_concat_columns(ctx, parts, 2, &both));
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, both, &both));
    NRL_TRY(nrl_op_split_columns(ctx, both, widths, 2, parts));
    *x = parts[0];
    return nrl_op_concat_columns(ctx, &parts[1], 1, weights); /* contiguous, and kept without the tokens */
}

/* x [N,D], weights [N,k] -> y [N,D], without the biases of the last products */
static nrl_status run_experts(nrl_ctx *ctx, const llama_experts *c, const llama_layer *l, const routes *r,
                              nrl_tensor *x, nrl_tensor *weights, nrl_tensor **y)
{
    const int64_t column[] = {r->n, 1};
    nrl_tensor *rows, *biases = NULL;
    if (c->biased) NRL_TRY(nrl_op_param(ctx, l->gate_up_biases, nrl_tensor_dtype(x), &biases));
    NRL_TRY(enter_experts(ctx, r, &x, &weights));
    NRL_TRY(nrl_op_gather_rows(ctx, x, r->token, r->n, &rows));
    NRL_TRY(run_sorted(ctx, c, l, r, biases, rows, &rows));
    NRL_TRY(nrl_op_gather_rows(ctx, rows, r->place, r->n, &rows));
    NRL_TRY(nrl_op_reshape(ctx, weights, 2, column, &weights));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, rows, weights, &rows));
    NRL_TRY(nrl_op_segment_sum(ctx, rows, r->of_token, r->n, r->n_tokens, y));
    return nrl_op_tp_region(ctx, NRL_TP_REGION_ROW_OUT, *y, y);
}

/* y [N,D] += the sum of the biases of a token's experts, each times the expert's weight: the product of [N,E], which is
 * the softmax of the chosen scores and 0 elsewhere, with all biases. Each rank does this for the tokens that it has. */
static nrl_status add_down_biases(nrl_ctx *ctx, const llama_layer *l, nrl_tensor *chosen, nrl_tensor *scores,
                                  nrl_tensor **y)
{
    const int64_t dims[] = {nrl_tensor_dim(scores, 0), nrl_tensor_dim(scores, 1)};
    nrl_tensor *none;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 2, dims, &none));
    NRL_TRY(nrl_tensor_fill(ctx, none, -1e30));
    NRL_TRY(nrl_op_where(ctx, chosen, scores, none, &scores));
    NRL_TRY(nrl_op_softmax(ctx, scores, &scores));
    NRL_TRY(nrl_op_cast(ctx, scores, nrl_tensor_dtype(*y), &scores));
    NRL_TRY(nrl_op_linear(ctx, scores, l->down_biases, NULL, &scores));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *y, scores, y);
}

/* stats [N,2E] += [chosen | probabilities], of the tokens of this rank */
static nrl_status add_stats(nrl_ctx *ctx, nrl_tensor *chosen, nrl_tensor *probs, nrl_tensor **stats)
{
    nrl_tensor *both[2] = {chosen, probs}, *own;
    NRL_TRY(nrl_op_concat_columns(ctx, both, 2, &own));
    NRL_TRY(nrl_op_cast(ctx, own, nrl_tensor_dtype(*stats), &own));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *stats, own, stats);
}

/* The mean over tokens of the squared log-sum-exp of scores [N,E]: the z-loss of ST-MoE, Zoph et al. 2022, equation 5,
 * of one layer. */
static nrl_status give_z_loss(nrl_ctx *ctx, nrl_loss_term *term, nrl_tensor *scores, nrl_tensor **y)
{
    nrl_tensor *z;
    NRL_TRY(nrl_op_log_sum_exp(ctx, scores, &z));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, z, 0, 0, &z));
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_WHOLE_IN, z, &z));
    NRL_TRY(nrl_op_mean(ctx, z, &z));
    if (nrl_ctx_token_share(ctx) < 1) NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, z, nrl_ctx_token_share(ctx), 0, &z));
    NRL_TRY(nrl_op_token_sum(ctx, z, &z));
    return nrl_op_loss_term(ctx, term, z, *y, y);
}

/* Scores and probabilities [N,E] in f32, and the weights of the k largest of each row with their experts, [N,k]. */
static nrl_status route(nrl_ctx *ctx, const llama_experts *e, const llama_layer *l, nrl_tensor *x, nrl_tensor **scores,
                        nrl_tensor **probs, nrl_tensor **weights, nrl_tensor **indices)
{
    NRL_TRY(nrl_op_linear(ctx, x, l->router.weight, l->router.bias, scores));
    NRL_TRY(nrl_op_cast(ctx, *scores, NRL_DTYPE_F32, scores));
    if (!e->biased || e->balance != 0) NRL_TRY(nrl_op_softmax(ctx, *scores, probs));
    NRL_TRY(nrl_op_top_k(ctx, e->biased ? *scores : *probs, e->chosen, weights, indices));
    if (e->biased) NRL_TRY(nrl_op_softmax(ctx, *weights, weights));
    if (e->normalizes) {
        const int64_t column[] = {nrl_tensor_dim(*weights, 0), 1};
        nrl_tensor *sum;
        NRL_TRY(nrl_op_sum_columns(ctx, *weights, &sum));
        NRL_TRY(nrl_op_reshape(ctx, sum, 2, column, &sum));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_DIV, *weights, sum, weights));
    }
    return nrl_op_cast(ctx, *weights, nrl_tensor_dtype(x), weights);
}

nrl_status llama_experts_forward(const llama *self, nrl_ctx *ctx, const llama_layer *l, nrl_tensor *h,
                                 nrl_tensor **stats, nrl_tensor **y)
{
    const llama_experts *e = &self->config.experts;
    nrl_tensor *scores, *probs = NULL, *weights, *indices, *all, *chosen = NULL; /* NULL: not needed */
    routes r = {0};
    NRL_TRY(route(ctx, e, l, h, &scores, &probs, &weights, &indices));
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_WHOLE_IN, indices, &all));
    r.gathered = all != indices;
    nrl_status st = find_routes(ctx, e, all, &r);
    const int64_t dims[] = {r.n_tokens, e->n};
    if (st == NRL_OK && r.chosen) st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, dims, r.chosen, &chosen);
    if (st == NRL_OK && r.chosen) st = nrl_op_tp_region(ctx, NRL_TP_REGION_WHOLE_OUT, chosen, &chosen);
    if (st == NRL_OK && e->balance != 0) st = add_stats(ctx, chosen, probs, stats);
    if (st == NRL_OK) st = run_experts(ctx, e, l, &r, h, weights, y);
    if (st == NRL_OK && e->biased) st = add_down_biases(ctx, l, chosen, scores, y);
    if (st == NRL_OK && self->z) st = give_z_loss(ctx, self->z, scores, y);
    free(r.token);
    free(r.chosen);
    return st;
}

/* E times the sum over experts of the mean number of choices of e times its mean probability, means over the tokens of
 * all layers with experts: Fedus et al. 2021, equation 4, as transformers computes it. The choices have no gradient. */
nrl_status llama_balance_loss(const llama *self, nrl_ctx *ctx, nrl_tensor *stats, nrl_tensor **loss)
{
    const llama_config *c = &self->config;
    const int64_t n = c->experts.n;
    double rows = 0;
    nrl_tensor *chosen, *probs;
    NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_WHOLE_IN, stats, &stats));
    for (int64_t i = 0; i < c->n_layers; i++)
        if (!c->experts.dense[i]) rows += (double)nrl_tensor_dim(stats, 0) / nrl_ctx_token_share(ctx);
    NRL_TRY(nrl_op_cast(ctx, stats, NRL_DTYPE_F32, &stats));
    NRL_TRY(nrl_op_sum_rows(ctx, stats, &stats));
    NRL_TRY(nrl_op_token_sum(ctx, stats, &stats));
    NRL_TRY(nrl_op_slice_rows(ctx, stats, 0, n, &chosen));
    NRL_TRY(nrl_op_slice_rows(ctx, stats, n, 2 * n, &probs));
    NRL_TRY(nrl_op_detach(ctx, chosen, &chosen));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, chosen, probs, &probs));
    NRL_TRY(nrl_op_sum(ctx, probs, &probs));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, probs, (double)n / (rows * rows), 0, loss);
}
