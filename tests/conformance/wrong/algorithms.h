/*
 * algorithms.h - algorithms that break one rule each, with the rule that must detect it.
 */
#ifndef WRONG_ALGORITHMS_H
#define WRONG_ALGORITHMS_H
#include <nrl/nrl.h>
#include <stdlib.h>

static void count_tokens(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

static void count_one(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    (void)batch;
    weight[0] = 1;
}

static void count_examples(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "examples");
}

static void count_nothing(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    (void)batch;
    (void)weight;
}

static nrl_status sum_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps, *weights, *each, *sum;
    (void)self;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &weights));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, logps, weights, &each));
    NRL_TRY(nrl_op_sum(ctx, each, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_NEG, sum, 0, 0, &sums[0]);
}

static nrl_status mean_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps, *mean;
    (void)self;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_op_mean(ctx, logps, &mean));
    return nrl_op_unary(ctx, NRL_UNARY_NEG, mean, 0, 0, &sums[0]);
}

/* Log-probs less their mean in the batch: what it learns depends on who shares a micro-batch. */
static nrl_status centred_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps, *mean, *centred, *square;
    (void)self;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_op_mean(ctx, logps, &mean));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, logps, mean, &centred));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, centred, 0, 0, &square));
    return nrl_op_sum(ctx, square, &sums[0]);
}

static int64_t group_of_two(void *self)
{
    (void)self;
    return 2;
}

static double start_at_one(void *self)
{
    (void)self;
    return 1;
}

/* Couples the rows of a segment and says that it does not. */
static nrl_status segment_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps, *each, *soft;
    (void)self;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_op_segment_sum(ctx, logps, nrl_batch_target_segments(batch), nrl_batch_n_targets(batch),
                               nrl_batch_n_segments(batch), &each));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, each, 0, 0, &soft));
    return nrl_op_sum(ctx, soft, &sums[0]);
}

/* exp of a large number: fine on easy batches only. */
static nrl_status overflowing_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps, *scaled, *e;
    (void)self;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, logps, -5.0, 0, &scaled));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_EXP, scaled, 0, 0, &e));
    return nrl_op_sum(ctx, e, &sums[0]);
}

static nrl_status detached_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *sum;
    NRL_TRY(sum_loss(self, ctx, batch, &sum));
    return nrl_op_detach(ctx, sum, &sums[0]);
}

/* Half of the loss has no gradient. */
static nrl_status half_detached_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *sum, *constant;
    NRL_TRY(sum_loss(self, ctx, batch, &sum));
    NRL_TRY(nrl_op_detach(ctx, sum, &constant));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, sum, constant, &sums[0]);
}

/* An operation of its own, y = x, whose backward passes on half of the gradient. */
static nrl_status halving_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *half;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, nrl_tape_grad(node, 0), 0.5, 0, &half));
    return nrl_tape_give(ctx, node, 0, half);
}

static nrl_status halving_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *sum, *constant;
    NRL_TRY(sum_loss(self, ctx, batch, &sum));
    NRL_TRY(nrl_op_detach(ctx, sum, &constant));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, constant, 1, 0, &sums[0]));
    const nrl_tape_record record = {
        .size = sizeof record, .name = "halving", .inputs = {sum}, .outputs = {sums[0]}, .backward = halving_backward};
    return nrl_tape_push(ctx, &record);
}

/* The log of the odds: infinite at p = 1. */
static nrl_status odds_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps, *weights, *p, *rest, *each, *odds;
    (void)self;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &weights));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_EXP, logps, 0, 0, &p));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, p, -1, 1, &rest));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_LOG, rest, 0, 0, &rest));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, rest, logps, &odds));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, odds, weights, &each));
    return nrl_op_sum(ctx, each, &sums[0]);
}

static nrl_status weightless_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps, *sum;
    (void)self;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_op_sum(ctx, logps, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_NEG, sum, 0, 0, &sums[0]);
}

static const nrl_metric one_metric[] = {{"confidence", "nats", NRL_REDUCE_MEAN, NRL_BETTER_LARGER}, {0}};

/* A metric that is a mean already, with the weight of a sum. */
static nrl_status mean_metric_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps, *mean;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_op_detach(ctx, logps, &logps));
    NRL_TRY(nrl_op_mean(ctx, logps, &mean));
    NRL_TRY(nrl_metric_add(ctx, 0, mean, nrl_batch_count(batch, "answer_tokens")));
    return sum_loss(self, ctx, batch, sums);
}

static nrl_status aborting_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    static int n;
    if (n++) abort();
    return sum_loss(self, ctx, batch, sums);
}

/* What a static variable does to a loss: each call counts one more. */
static nrl_status counting_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    static double calls;
    nrl_tensor *sum;
    NRL_TRY(sum_loss(self, ctx, batch, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, sum, 1, calls++, &sums[0]);
}

static nrl_status vector_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    (void)self;
    return nrl_batch_column(ctx, batch, "logps", &sums[0]);
}

static nrl_status silent_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    (void)self;
    (void)ctx;
    (void)batch;
    (void)sums;
    return NRL_OK;
}

/* State that forgets: saves a number that nobody reads back. */
static nrl_status forgetful_state(void *self, nrl_state_io *state_io)
{
    static double calls;
    double value = calls++;
    (void)self;
    return nrl_state_io_f64(state_io, "mean", &value, 1);
}

static nrl_status leaking_create(const void *options, void **self)
{
    (void)options;
    *self = calloc(1, 100);
    return *self ? NRL_OK : NRL_ERR_MEMORY;
}

static void leaking_destroy(void *self)
{
    (void)self;
}

static nrl_status crashing_create(const void *options, void **self)
{
    static int n;
    if (n++) abort();
    return leaking_create(options, self);
}

static const char *const logps_only[] = {"logps", NULL};
static const char *const magic[] = {"logps", "magic", NULL};
static const char *const nothing[] = {NULL};

#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_ALGORITHM, nrl_algorithm, #nm, "0", rule),                                           \
            .needs = logps_only, .n_terms = 1, .weight = count_tokens, .loss = sum_loss, __VA_ARGS__                   \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#endif
static const nrl_algorithm wrong[] = {
    WRONG(right, "nothing is wrong with it", .tokenwise = true),
    WRONG(mean, "a loss is a sum, not a mean", .loss = mean_loss),
    WRONG(weight_of_one, "a loss is a sum, not a mean", .weight = count_one),
    WRONG(centred, "parts of a batch add up", .loss = centred_loss),
    WRONG(wider_than_its_group, "parts of a batch add up", .loss = centred_loss, .group = group_of_two),
    WRONG(starting_elsewhere, "initial_loss is the loss of policy = reference", .initial_loss = start_at_one),
    WRONG(coupled, "a tokenwise loss takes any rows", .loss = segment_loss, .tokenwise = true,
          .weight = count_examples),
    WRONG(overflowing, "sums and weights are finite", .loss = overflowing_loss),
    WRONG(no_weight, "sums and weights are finite", .weight = count_nothing),
    WRONG(detached, "a gradient reaches the log-probs", .loss = detached_loss),
    WRONG(counting, "equal calls give equal sums", .loss = counting_loss),
    WRONG(vector, "each term is one f32 number", .loss = vector_loss),
    WRONG(silent, "each term is one f32 number", .loss = silent_loss),
    WRONG(half_detached, "a gradient is the slope of the loss", .loss = half_detached_loss),
    WRONG(halving, "a gradient is the slope of the loss", .loss = halving_loss),
    WRONG(odds, "log-probs of 0 give finite numbers", .loss = odds_loss),
    WRONG(weightless, "weights of target positions count", .loss = weightless_loss),
    WRONG(mean_metric, "a metric is a sum with its weight", .loss = mean_metric_loss, .metrics = one_metric),
    WRONG(aborting, "equal calls give equal sums", .loss = aborting_loss),
    WRONG(forgetful, "state comes back as it was saved", .state = forgetful_state),
    WRONG(leaking, "close gives the memory back", .create = leaking_create, .destroy = leaking_destroy),
    WRONG(crashing, "instances come and go", .create = crashing_create, .destroy = leaking_destroy),
    WRONG(magic, "needs are columns that the core fills", .needs = magic),
    WRONG(blind, "a loss reads values of the policy", .needs = nothing),
    WRONG(no_terms, "there are 1 to 4 terms", .n_terms = 0),
    WRONG(lacks_loss, "loss is NULL", .loss = NULL),
};
#pragma GCC diagnostic pop
#undef WRONG

#endif
