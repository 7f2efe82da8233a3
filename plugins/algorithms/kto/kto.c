/*
 * kto.c - unpaired preferences: raises desirable answers and lowers undesirable ones, each on its
 * own (Ethayarajh et al. 2024), and apo_zero_unpaired (D'Oosterlinck et al. 2024). Names,
 * defaults and numbers are TRL's.
 *
 * a = log p(answer) - log p of the reference, s = sigmoid. A sample's loss is
 *     wanted:    desirable_weight   (1 - s(beta (a - kl)))
 *     unwanted:  undesirable_weight (1 - s(beta (kl - a)))
 * where kl = max(0, mean over a group of samples of a of their kl_pairs answers), without
 * gradient; apo_zero_unpaired has kl = 0. The step's loss is a mean over samples. TRL takes kl over
 * whatever one device holds at a time; here a group has kl_group samples, so that neither the
 * budget of a micro-batch nor the number of devices changes the loss.
 *
 * Legend: P target positions, S segments, B examples (samples), G groups.
 */
#include <math.h>
#include <nrl/nrl.h>
#include <stdlib.h>

enum { LOSS_KTO = 0, LOSS_APO_ZERO_UNPAIRED };
enum { KL_GROUP = 8 }; /* the default */

typedef struct {
    int64_t loss;
    double beta, desirable_weight, undesirable_weight;
    int64_t kl_group;
} kto_options;

static const nrl_option kto_rows[] = {
    NRL_OPT_ENUM(kto_options, loss, "kto", "kto|apo_zero_unpaired",
                 "apo_zero_unpaired has no KL term and computes no kl_pairs answers"),
    NRL_OPT_F64(kto_options, beta, "0.1", 1e-6, 1e6, "strength of the penalty for deviating from the reference"),
    NRL_OPT_F64(kto_options, desirable_weight, "1.0", 0, 1e6,
                "weight of desirable answers; if one kind is much more frequent, increase the weight of the other"),
    NRL_OPT_F64(kto_options, undesirable_weight, "1.0", 0, 1e6, "weight of undesirable answers"),
    NRL_OPT_INT(kto_options, kl_group, "8", 1, 65536,
                "samples whose kl_pairs answers form one KL term; they share a micro-batch"),
};

enum {
    METRIC_REWARD_CHOSEN = 0,
    METRIC_REWARD_REJECTED,
    METRIC_MARGIN,
    METRIC_LOGP_CHOSEN,
    METRIC_LOGP_REJECTED,
    METRIC_KL,
    N_METRICS
};

static const nrl_metric kto_metrics[N_METRICS + 1] = {
    [METRIC_REWARD_CHOSEN] = {"rewards/chosen", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER}, /* of desirable answers */
    [METRIC_REWARD_REJECTED] = {"rewards/rejected", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    [METRIC_MARGIN] = {"rewards/margins", "1", NRL_REDUCE_DIFFERENCE, NRL_BETTER_LARGER},
    [METRIC_LOGP_CHOSEN] = {"logps/chosen", "nats", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    [METRIC_LOGP_REJECTED] = {"logps/rejected", "nats", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    [METRIC_KL] = {"kl", "nats", NRL_REDUCE_MEAN, NRL_BETTER_NONE}, /* neither direction is better by itself */
};

/* ---- options ---- */

static bool has_kl(const kto_options *o)
{
    return o->loss == LOSS_KTO;
}

static nrl_status kto_check(const void *options)
{
    const kto_options *o = options;
    if (!has_kl(o) && o->kl_group != KL_GROUP)
        return nrl_fail(
            NRL_ERR_CONFIG,
            "kl_group is %lld, but loss: apo_zero_unpaired has no KL term; expected loss: kto or no kl_group",
            (long long)o->kl_group);
    if (o->desirable_weight > 0 || o->undesirable_weight > 0) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "desirable_weight and undesirable_weight are both 0, so nothing would "
                                    "be trained");
}

static const char *const kto_needs[] = {"logps", "ref_logps", "kl_pairs", NULL};

static const char *const *kto_instance_needs(void *self)
{
    static const char *const without_kl[] = {"logps", "ref_logps", NULL};
    return has_kl(self) ? kto_needs : without_kl;
}

static int64_t kto_group(void *self)
{
    const kto_options *o = self;
    return has_kl(o) ? o->kl_group : 1;
}

/* At policy = reference each sigmoid is 1/2; if the two weights differ, the loss depends on the labels. */
static double kto_start_loss(void *self)
{
    const kto_options *o = self;
    return o->desirable_weight == o->undesirable_weight ? o->desirable_weight / 2 : (double)NAN;
}

/* ---- segments and groups ---- */

/* Host lists of one call. */
typedef struct {
    int64_t examples, groups;
    int32_t *own, *other; /* [B] segments of the samples, and of their kl_pairs sides */
    int32_t *group;       /* [B] ascending */
    float *share;         /* [G] 1 / samples of the group */
} lists;

static void lists_free(lists *l)
{
    free(l->own);
    free(l->other);
    free(l->group);
    free(l->share);
}

static void set_groups(const kto_options *o, lists *l)
{
    for (int64_t b = 0; b < l->examples; b++) {
        int64_t first = b / o->kl_group * o->kl_group, left = l->examples - first;
        l->group[b] = (int32_t)(b / o->kl_group);
        l->share[l->group[b]] = 1 / (float)(left < o->kl_group ? left : o->kl_group);
    }
    l->groups = l->examples ? l->group[l->examples - 1] + 1 : 0;
}

/* Each example has one sample segment and, for a KL term, one kl_pairs segment. */
static nrl_status find_segments(const kto_options *o, const nrl_batch *batch, lists *l)
{
    const int32_t *example = nrl_batch_segment_example(batch), *side = nrl_batch_segment_side(batch);
    int64_t n_own = 0, n_other = 0;
    for (int64_t s = 0; s < nrl_batch_n_segments(batch); s++) {
        int64_t *n = side[s] ? &n_other : &n_own;
        if (*n == l->examples || *n != example[s])
            return nrl_fail(NRL_ERR_BUG, "example %d has the wrong number of segments", example[s]);
        (side[s] ? l->other : l->own)[(*n)++] = (int32_t)s;
    }
    if (n_own == l->examples && n_other == (has_kl(o) ? l->examples : 0)) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "%lld samples and %lld kl_pairs sides in %lld examples", (long long)n_own,
                    (long long)n_other, (long long)l->examples);
}

static nrl_status lists_make(const kto_options *o, const nrl_batch *batch, lists *l)
{
    size_t n = (size_t)nrl_batch_n_examples(batch);
    *l = (lists){.examples = (int64_t)n,
                 .own = malloc(n * sizeof *l->own),
                 .other = malloc(n * sizeof *l->other),
                 .group = malloc(n * sizeof *l->group),
                 .share = malloc(n * sizeof *l->share)};
    if (!l->own || !l->other || !l->group || !l->share) return nrl_fail(NRL_ERR_MEMORY, "lists of %zu samples", n);
    set_groups(o, l);
    return find_segments(o, batch, l);
}

/* ---- the loss ---- */

/* Per-sample values; each is [B] f32. */
typedef struct {
    nrl_tensor *label; /* 1 = desirable, 0 = undesirable */
    nrl_tensor *logp;  /* sum of the answer's log-probs, without gradient */
    nrl_tensor *ratio; /* a: the same minus the reference's */
    nrl_tensor *kl;    /* KL of the sample's group, without gradient; NULL = 0 */
} samples;

/* y[s] = sum of w_i x_i over the rows of segment s. */
static nrl_status by_segment(nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor *rows, nrl_tensor *weights,
                             nrl_tensor **y)
{
    nrl_tensor *weighted;
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, rows, weights, &weighted));
    return nrl_op_segment_sum(ctx, weighted, nrl_batch_target_segments(batch), nrl_batch_n_targets(batch),
                              nrl_batch_n_segments(batch), y);
}

/* kl[b] = max(0, mean of ratio of the kl_pairs sides of b's group); ratio is [S]. */
static nrl_status make_kl(nrl_ctx *ctx, const lists *l, nrl_tensor *ratio, nrl_tensor **kl)
{
    nrl_tensor *constant, *each, *sum, *share, *mean, *clamped;
    NRL_TRY(nrl_op_detach(ctx, ratio, &constant));
    NRL_TRY(nrl_op_gather_rows(ctx, constant, l->other, l->examples, &each));
    NRL_TRY(nrl_op_segment_sum(ctx, each, l->group, l->examples, l->groups, &sum));
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &l->groups, l->share, &share));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, sum, share, &mean));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_RELU, mean, 0, 0, &clamped));
    return nrl_op_gather_rows(ctx, clamped, l->group, l->examples, kl);
}

/* Ratios are sums of per-token differences: the difference of two sums would carry the rounding errors of
 * sums that are a hundred times larger. */
static nrl_status make_samples(const kto_options *o, nrl_ctx *ctx, const nrl_batch *batch, const lists *l, samples *x)
{
    nrl_tensor *logps, *ref, *weights, *labels, *constant, *rows, *logp, *ratio;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_batch_column(ctx, batch, "ref_logps", &ref));
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &weights));
    NRL_TRY(nrl_batch_column(ctx, batch, "label", &labels));
    NRL_TRY(nrl_op_detach(ctx, logps, &constant));
    NRL_TRY(by_segment(ctx, batch, constant, weights, &logp));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, logps, ref, &rows));
    NRL_TRY(by_segment(ctx, batch, rows, weights, &ratio));
    NRL_TRY(nrl_op_gather_rows(ctx, labels, l->own, l->examples, &x->label));
    NRL_TRY(nrl_op_gather_rows(ctx, logp, l->own, l->examples, &x->logp));
    NRL_TRY(nrl_op_gather_rows(ctx, ratio, l->own, l->examples, &x->ratio));
    x->kl = NULL;
    return has_kl(o) ? make_kl(ctx, l, ratio, &x->kl) : NRL_OK;
}

/* With y the label, both losses are w(y) s(-beta (2y - 1) (a - kl)), where w(1) = desirable_weight and
 * w(0) = undesirable_weight. */
static nrl_status make_sum(const kto_options *o, nrl_ctx *ctx, const samples *x, nrl_tensor **sum)
{
    nrl_tensor *slope, *weight, *shifted = x->ratio, *logit, *each, *weighted;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x->label, -2 * o->beta, o->beta, &slope));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x->label, o->desirable_weight - o->undesirable_weight,
                         o->undesirable_weight, &weight));
    if (x->kl) NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, x->ratio, x->kl, &shifted));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, shifted, slope, &logit));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SIGMOID, logit, 0, 0, &each));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, each, weight, &weighted));
    return nrl_op_sum(ctx, weighted, sum);
}

/* ---- metrics ---- */

/* Adds k times the sum of `values` over the samples whose `chosen` is 1; n is their number. */
static nrl_status report_kind(nrl_ctx *ctx, uint32_t index, nrl_tensor *values, nrl_tensor *chosen, double k, double n)
{
    nrl_tensor *picked, *scaled, *sum;
    if (n <= 0) return NRL_OK;
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, values, chosen, &picked));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, picked, k, 0, &scaled));
    NRL_TRY(nrl_op_sum(ctx, scaled, &sum));
    return nrl_metric_add(ctx, index, sum, n);
}

static nrl_status report(const kto_options *o, nrl_ctx *ctx, const nrl_batch *batch, const samples *x)
{
    double n = nrl_batch_count(batch, "examples"), wanted = nrl_batch_count(batch, "desirable");
    nrl_tensor *ratio, *unwanted, *sum;
    NRL_TRY(nrl_op_detach(ctx, x->ratio, &ratio));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x->label, -1, 1, &unwanted));
    NRL_TRY(report_kind(ctx, METRIC_REWARD_CHOSEN, ratio, x->label, o->beta, wanted));
    NRL_TRY(report_kind(ctx, METRIC_REWARD_REJECTED, ratio, unwanted, o->beta, n - wanted));
    NRL_TRY(report_kind(ctx, METRIC_LOGP_CHOSEN, x->logp, x->label, 1, wanted));
    NRL_TRY(report_kind(ctx, METRIC_LOGP_REJECTED, x->logp, unwanted, 1, n - wanted));
    if (!x->kl) return NRL_OK;
    NRL_TRY(nrl_op_sum(ctx, x->kl, &sum));
    return nrl_metric_add(ctx, METRIC_KL, sum, n);
}

/* ---- the plugin ---- */

static void kto_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "examples");
}

static nrl_status kto_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const kto_options *o = self;
    lists l;
    samples x;
    nrl_status st = lists_make(o, batch, &l);
    if (st == NRL_OK) st = make_samples(o, ctx, batch, &l, &x);
    lists_free(&l); /* the operations have copied what they need */
    NRL_TRY(st);
    NRL_TRY(make_sum(o, ctx, &x, &sums[0]));
    return report(o, ctx, batch, &x);
}

/* The KL estimate is a constant of the loss. */
static bool kto_detaches(void *self)
{
    return has_kl(self);
}

static const nrl_algorithm kto_table = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, kto_options, kto_rows, "kto", "0.1",
               "unpaired preferences: answers labelled desirable or undesirable"),
    .plugin.check = kto_check,
    .needs = kto_needs,
    .metrics = kto_metrics,
    .n_terms = 1,
    .example_kind = 2,
    .weight = kto_weight,
    .loss = kto_loss,
    .instance_needs = kto_instance_needs,
    .initial_loss = kto_start_loss,
    .group = kto_group,
    .detaches = kto_detaches,
};
NRL_EXPORT(kto_table)
