/*
 * pairs.c - from the log-probs of target positions to the values of chosen and rejected sides, one per
 * pair.
 */
#include "dpo.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which segments, which rows ---- */

static nrl_status grow(void **memory, int64_t *room, int64_t wanted, size_t element)
{
    if (wanted <= *room) return NRL_OK;
    void *larger = realloc(*memory, (size_t)wanted * element);
    if (!larger) return nrl_fail(NRL_ERR_MEMORY, "%lld elements for a batch's pairs", (long long)wanted);
    *memory = larger;
    *room = wanted;
    return NRL_OK;
}

/* sides[i], sides[n + i] = the chosen and the rejected segment of pair i; pairs in order of examples.
 */
static nrl_status find_sides(dpo *d, const nrl_batch *batch, int64_t *n)
{
    const int32_t *example = nrl_batch_segment_example(batch), *side = nrl_batch_segment_side(batch);
    int64_t count[2] = {0, 0}, examples = nrl_batch_n_examples(batch);
    NRL_TRY(grow((void **)&d->sides, &d->sides_room, 2 * examples, sizeof *d->sides));
    for (int64_t s = 0; s < nrl_batch_n_segments(batch); s++) {
        int64_t k = side[s] ? 1 : 0;
        if (count[k] == examples || count[k] != example[s])
            return nrl_fail(NRL_ERR_BUG, "example %d is not one chosen and one rejected segment", example[s]);
        d->sides[k * examples + count[k]++] = (int32_t)s;
    }
    if (count[0] != examples || count[1] != examples)
        return nrl_fail(NRL_ERR_BUG, "%lld chosen and %lld rejected segments in %lld pairs", (long long)count[0],
                        (long long)count[1], (long long)examples);
    *n = examples;
    return NRL_OK;
}

double dpo_chosen_count(const nrl_batch *batch, bool with_prompt)
{
    const int32_t *segment = nrl_batch_target_segments(batch), *side = nrl_batch_segment_side(batch);
    const float *weight = nrl_batch_target_weights(batch);
    double n = 0;
    for (int64_t i = 0; i < nrl_batch_n_targets(batch); i++)
        if (!side[segment[i]]) n += with_prompt ? 1 : (double)weight[i];
    return n;
}

/* Trained rows of one segment, which begins at row *i. */
static int64_t trained_rows(const nrl_batch *batch, int32_t segment, int64_t *i)
{
    const int32_t *of = nrl_batch_target_segments(batch);
    const float *weight = nrl_batch_target_weights(batch);
    int64_t n = 0;
    for (; *i < nrl_batch_n_targets(batch) && of[*i] <= segment; ++*i)
        n += of[*i] == segment && weight[*i] > 0;
    return n;
}

/* The first `shared` trained rows of a segment keep their weight; later rows are scaled by ld_alpha. */
static void scale_rows(const dpo *d, const nrl_batch *batch, int32_t segment, int64_t shared, int64_t *i)
{
    const int32_t *of = nrl_batch_target_segments(batch);
    const float *weight = nrl_batch_target_weights(batch);
    int64_t n = 0;
    for (; *i < nrl_batch_n_targets(batch) && of[*i] <= segment; ++*i) {
        if (weight[*i] > 0) n++;
        d->row_scale[*i] = weight[*i] * (n <= shared ? 1.0f : (float)d->o.ld_alpha);
    }
}

/* Row weights [P] of length-desensitised sums: l = first m answer tokens + ld_alpha times the rest, where
 * m is the length of the shorter answer. */
static nrl_status desensitised_weights(dpo *d, nrl_ctx *ctx, const nrl_batch *batch, int64_t n_pairs,
                                       nrl_tensor **weights)
{
    int64_t rows = nrl_batch_n_targets(batch), counted = 0, scaled = 0;
    NRL_TRY(grow((void **)&d->row_scale, &d->rows_room, rows, sizeof *d->row_scale));
    for (int64_t b = 0; b < n_pairs; b++) { /* the two segments of a pair are neighbours */
        int32_t x = d->sides[b], y = d->sides[n_pairs + b];
        int32_t first = x < y ? x : y, second = x < y ? y : x;
        int64_t m = trained_rows(batch, first, &counted), k = trained_rows(batch, second, &counted);
        int64_t shared = m < k ? m : k;
        scale_rows(d, batch, first, shared, &scaled);
        scale_rows(d, batch, second, shared, &scaled);
    }
    return nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &rows, d->row_scale, weights);
}

/* ---- sums per segment, then per pair ---- */

typedef struct {
    nrl_expr chosen, rejected; /* [B] */
} sides;

/* [n] elements of x [S] */
static nrl_expr gathered(nrl_expr x, const int32_t *index, int64_t n)
{
    nrl_tensor *y = NULL;
    if (x.of->status == NRL_OK) x.of->status = nrl_op_gather_rows(x.of->ctx, x.tensor, index, n, &y);
    return e_tensor(x.of, y);
}

static sides by_side(const dpo *d, const dpo_pairs *p, nrl_expr segments)
{
    return (sides){gathered(segments, d->sides, p->n), gathered(segments, d->sides + p->n, p->n)};
}

static sides sums_of(const dpo *d, const dpo_pairs *p, const nrl_batch *batch, nrl_expr rows, nrl_expr weights)
{
    return by_side(d, p, e_segment_sum(e_mul(rows, weights), batch));
}

/* f'(u) at u = policy / reference, up to a constant; x = log u. Wang et al. 2023, table 1.
 *   reverse_kl: x            forward_kl: 1 - 1/u
 *   js: log(2u / (1 + u))    alpha: (u^(alpha-1) - 1) / (alpha - 1), its exponent at most 80 */
static nrl_expr score(const dpo_pairs *p, nrl_expr x)
{
    double k = p->o->f_alpha_divergence_coef - 1;
    switch (p->o->f_divergence_type) {
    case DPO_FORWARD_KL:
        return e_neg(e_expm1(e_neg(x)));
    case DPO_JS:
        return e_affine(e_log_sigmoid(x), 1, M_LN2);
    case DPO_ALPHA:
        if (fabs(k) < 1e-6) return x;
        x = e_clamp(scaled(x, k), -INFINITY, 80);
        return scaled(e_expm1(x), 1 / k);
    default:
        return x;
    }
}

/* Log ratios are sums of per-token differences: the difference of two sums would carry the rounding errors
 * of sums that are a hundred times larger. */
static void set_reference(const dpo *d, dpo_pairs *p, const nrl_batch *batch, nrl_expr logps, nrl_expr weights)
{
    nrl_expr column = e_column(&p->e, batch, "ref_logps");
    sides ref = sums_of(d, p, batch, column, weights);
    sides ratio = sums_of(d, p, batch, e_sub(logps, column), weights);
    p->chosen.ref = ref.chosen;
    p->rejected.ref = ref.rejected;
    p->chosen.ratio = ratio.chosen;
    p->rejected.ratio = ratio.rejected;
    p->chosen.score = score(p, ratio.chosen);
    p->rejected.score = score(p, ratio.rejected);
    p->margin = scaled(e_sub(p->chosen.score, p->rejected.score), p->o->beta);
}

/* w = w(chosen) w(rejected), w(y) = exp(mean over y's tokens of (log p - log sum_v p_v^2)). */
static void set_weighting(const dpo *d, dpo_pairs *p, const nrl_batch *batch, nrl_expr logps, nrl_expr weights)
{
    nrl_expr concentration = e_column(&p->e, batch, "sum_p2");
    sides s = sums_of(d, p, batch, e_detach(e_sub(logps, concentration)), weights);
    p->weight = e_exp(e_add(e_div(s.chosen, p->chosen.length), e_div(s.rejected, p->rejected.length)));
}

/* Sums over the chosen sides' unweighted log-probs, for the token means. */
static void set_nll(const dpo *d, dpo_pairs *p, const nrl_batch *batch, nrl_expr logps, nrl_expr weights,
                    const nrl_expr *plain_chosen)
{
    if (d->answer_weight > 0) {
        nrl_expr chosen = plain_chosen ? *plain_chosen : sums_of(d, p, batch, logps, weights).chosen;
        p->answer_nll = e_neg(e_sum(chosen));
    }
    if (d->chosen_weight > 0) p->chosen_nll = e_neg(e_sum(by_side(d, p, e_segment_sum(logps, batch)).chosen));
}

nrl_status dpo_pairs_make(dpo *d, nrl_ctx *ctx, const nrl_batch *batch, dpo_pairs *p)
{
    *p = (dpo_pairs){.e = {ctx, NRL_OK}, .o = &d->o};
    NRL_TRY(find_sides(d, batch, &p->n));
    nrl_expr logps = e_column(&p->e, batch, "logps"), weights = e_column(&p->e, batch, "weights"), used = weights;
    NRL_TRY(p->e.status);
    if (d->desensitised) NRL_TRY(desensitised_weights(d, ctx, batch, p->n, &used.tensor));
    sides n = by_side(d, p, e_segment_sum(weights, batch)), l = sums_of(d, p, batch, logps, used);
    p->chosen = (dpo_side){.logp = l.chosen, .length = n.chosen};
    p->rejected = (dpo_side){.logp = l.rejected, .length = n.rejected};
    if (d->reference) set_reference(d, p, batch, logps, used);
    if (d->weighting) set_weighting(d, p, batch, logps, weights);
    set_nll(d, p, batch, logps, weights, d->desensitised ? NULL : &p->chosen.logp);
    p->shift = d->reward_count > 0 ? d->reward_sum / d->reward_count : 0;
    return p->e.status;
}

/* ---- sorting ---- */

typedef struct {
    double value;
    int32_t index;
} ranked;

static int by_value(const void *x, const void *y)
{
    const ranked *a = x, *b = y;
    if (a->value != b->value) return a->value < b->value ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static void rank_groups(const double *values, int64_t n, int64_t group, ranked *items, int32_t *order)
{
    for (int64_t i = 0; i < n; i++)
        items[i] = (ranked){values[i], (int32_t)i};
    for (int64_t begin = 0; begin < n; begin += group)
        qsort(items + begin, (size_t)(n - begin < group ? n - begin : group), sizeof *items, by_value);
    for (int64_t i = 0; i < n; i++)
        order[i] = items[i].index;
}

nrl_expr dpo_sorted(dpo_pairs *p, nrl_expr x)
{
    nrl_exprs *e = &p->e;
    size_t n = (size_t)p->n;
    if (e->status != NRL_OK) return x;
    double *values = malloc(n * sizeof *values);
    ranked *items = malloc(n * sizeof *items);
    int32_t *order = malloc(n * sizeof *order);
    if (!values || !items || !order) e->status = nrl_fail(NRL_ERR_MEMORY, "sorting %zu pairs", n);
    if (e->status == NRL_OK) e->status = nrl_tensor_fetch(e->ctx, x.tensor, values, p->n);
    if (e->status == NRL_OK) rank_groups(values, p->n, p->o->aot_group, items, order);
    nrl_expr sorted = gathered(x, order, p->n);
    free(values);
    free(items);
    free(order);
    return sorted;
}
