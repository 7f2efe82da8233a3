/*
 * reward.c - reward models: a scalar head on the last token of a sequence, trained on pairs (Bradley and Terry 1952;
 * Ouyang et al. 2022). Losses, metrics and numbers are those of TRL's RewardTrainer.
 *
 * With the rewards c of a chosen and r of a rejected answer, the loss of a pair is
 *     -log sigmoid(c - r - margin) + center_coefficient (c + r)^2
 * A step's loss is a mean over pairs. The model is exported as the class ...ForSequenceClassification of transformers,
 * with one label, and its output layer is dropped. That class reads the reward at the last token that is not the
 * padding token, and so does this loss.
 *
 * Legend: N tokens, S segments, B pairs, D width.
 */
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    double center_coefficient;
    const char *margin;
    int64_t pad_token_id;
} reward_options;

static const nrl_option reward_rows[] = {
    NRL_OPT_F64(reward_options, center_coefficient, "0.0", 0, 1e6,
                "weight of (chosen + rejected)^2, which keeps rewards around 0; TRL's center_rewards_coefficient"),
    NRL_OPT_STR(reward_options, margin, "",
                "key of data.extra with the required difference between the rewards of a row"),
    NRL_OPT_INT(reward_options, pad_token_id, "-1", -1, 1 << 30,
                "id of the padding token, for config.json; -1 = pad_token_id of the model's config.json"),
};

typedef struct {
    reward_options o;
    int32_t pad;
    const char *needs[3];
    nrl_param_spec score;
    char config[512]; /* JSON */
    nrl_param *weight;
} reward;

enum { METRIC_CHOSEN = 0, METRIC_REJECTED, METRIC_MARGIN, METRIC_ACCURACY, METRIC_MIN, METRIC_MAX, N_METRICS };

static const nrl_metric reward_metrics[N_METRICS + 1] = {
    [METRIC_CHOSEN] = {"rewards/chosen", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    [METRIC_REJECTED] = {"rewards/rejected", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    [METRIC_MARGIN] = {"rewards/margins", "1", NRL_REDUCE_DIFFERENCE, NRL_BETTER_LARGER},
    [METRIC_ACCURACY] = {"rewards/accuracies", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    [METRIC_MIN] = {"rewards/min", "1", NRL_REDUCE_MIN, NRL_BETTER_NONE},
    [METRIC_MAX] = {"rewards/max", "1", NRL_REDUCE_MAX, NRL_BETTER_NONE},
};

static nrl_status reward_create(const void *options, void **self)
{
    reward *r = calloc(1, sizeof *r);
    if (!r) return nrl_fail(NRL_ERR_MEMORY, "an instance of reward");
    r->o = *(const reward_options *)options;
    r->pad = (int32_t)r->o.pad_token_id;
    r->needs[0] = "hidden";
    if (*r->o.margin) r->needs[1] = r->o.margin;
    *self = r;
    return NRL_OK;
}

static void reward_destroy(void *self)
{
    free(self);
}

static const char *const *reward_instance_needs(void *self)
{
    return ((const reward *)self)->needs;
}

/* ---- the model ---- */

/* "LlamaForCausalLM" -> "LlamaForSequenceClassification"; the class of a text model of Gemma 3 has another name. */
static nrl_status class_name(const nrl_node *config, char *out, size_t room)
{
    const char *type = nrl_node_string(nrl_node_find(config, "model_type"), "");
    const nrl_node *list = nrl_node_find(config, "architectures");
    const char *name = nrl_node_string(nrl_node_at(list, 0), ""), *end = strstr(name, "For");
    if (strstr(name, "LMHeadModel")) end = strstr(name, "LMHeadModel");
    if (!end || end == name || end - name > 100 || strpbrk(name, "\"\\"))
        return nrl_fail(NRL_ERR_DATA, "config.json: architectures is '%s', expected a class such as LlamaForCausalLM",
                        name);
    if (!strcmp(type, "gemma3_text"))
        snprintf(out, room, "Gemma3TextForSequenceClassification");
    else
        snprintf(out, room, "%.*sForSequenceClassification", (int)(end - name), name);
    return NRL_OK;
}

/* Of the types that nrl knows, those without such a class in transformers 5.24. */
static void warn_of_class(const nrl_node *config, const char *name)
{
    static const char *const without[] = {"granite", "ernie4_5", "olmoe"};
    const char *type = nrl_node_string(nrl_node_find(config, "model_type"), "");
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (!strcmp(type, without[i]))
            nrl_warn("transformers has no class %s: only nrl can load reward models of model_type %s", name, type);
}

static nrl_status reward_model(void *self, const nrl_node *config, const nrl_model_info *info, nrl_algorithm_model *out)
{
    reward *r = self;
    char name[160];
    NRL_TRY(class_name(config, name, sizeof name));
    warn_of_class(config, name);
    if (r->o.pad_token_id < 0) r->pad = (int32_t)nrl_node_int(nrl_node_find(config, "pad_token_id"), -1);
    if (r->pad < 0 || r->pad >= info->vocab_size)
        return nrl_fail(NRL_ERR_CONFIG,
                        "config.json has no pad_token_id, which transformers needs to find the last token of a "
                        "sequence\n"
                        "hint: algorithm.pad_token_id: the id of the padding token of the tokenizer, or else of its "
                        "end token");
    snprintf(r->config, sizeof r->config,
             "{\"architectures\": [\"%s\"], \"num_labels\": 1, \"id2label\": {\"0\": \"LABEL_0\"}, "
             "\"label2id\": {\"LABEL_0\": 0}, \"pad_token_id\": %d}",
             name, r->pad);
    r->score = (nrl_param_spec){.size = sizeof r->score,
                                .name = "score.weight",
                                .n_dims = 2,
                                .dims = {1, info->width},
                                .init = NRL_INIT_NORMAL,
                                .init_scale = nrl_node_f64(nrl_node_find(config, "initializer_range"), 0.02),
                                .decay = true};
    out->params = &r->score;
    out->param_size = sizeof r->score;
    out->n_params = 1;
    out->drops_head = true;
    out->config = r->config;
    return NRL_OK;
}

static void reward_bind(void *self, nrl_param *const *params)
{
    ((reward *)self)->weight = params[0];
}

/* ---- the loss ---- */

/* Host lists of one call. */
typedef struct {
    int32_t *last;              /* [S] the token where the reward is read */
    int32_t *chosen, *rejected; /* [B] segments */
} lists;

static void lists_free(lists *l)
{
    free(l->last);
    free(l->chosen);
    free(l->rejected);
}

static nrl_status lists_make(const reward *r, const nrl_batch *batch, lists *l)
{
    const int32_t *begin = nrl_batch_cu_seqlens(batch), *ids = nrl_batch_tokens(batch);
    size_t n = (size_t)nrl_batch_n_segments(batch), pairs = (size_t)nrl_batch_n_examples(batch);
    *l = (lists){malloc((n + 1) * sizeof *l->last), calloc(pairs + 1, sizeof *l->chosen),
                 calloc(pairs + 1, sizeof *l->rejected)};
    if (!l->last || !l->chosen || !l->rejected) return nrl_fail(NRL_ERR_MEMORY, "lists of %zu pairs", pairs);
    for (size_t s = 0; s < n; s++) {
        int32_t at = begin[s + 1] - 1;
        while (at > begin[s] && ids[at] == r->pad)
            at--;
        l->last[s] = at;
        (nrl_batch_segment_side(batch)[s] ? l->rejected : l->chosen)[nrl_batch_segment_example(batch)[s]] = (int32_t)s;
    }
    return NRL_OK;
}

/* Each is [B] f32. */
typedef struct {
    nrl_tensor *chosen, *rejected;
    nrl_tensor *margin; /* of the rows; NULL = 0 */
} rewards;

static nrl_status make_rewards(const reward *r, nrl_ctx *ctx, const nrl_batch *batch, const lists *l, rewards *x)
{
    int64_t n = nrl_batch_n_segments(batch), pairs = nrl_batch_n_examples(batch);
    nrl_tensor *hidden, *rows, *scores, *margin; /* [N,D], [S,D], [S], [S] */
    NRL_TRY(nrl_batch_column(ctx, batch, "hidden", &hidden));
    NRL_TRY(nrl_op_gather_rows(ctx, hidden, l->last, n, &rows));
    NRL_TRY(nrl_op_linear(ctx, rows, r->weight, NULL, &scores));
    NRL_TRY(nrl_op_cast(ctx, scores, NRL_DTYPE_F32, &scores));
    NRL_TRY(nrl_op_reshape(ctx, scores, 1, &n, &scores));
    NRL_TRY(nrl_op_gather_rows(ctx, scores, l->chosen, pairs, &x->chosen));
    NRL_TRY(nrl_op_gather_rows(ctx, scores, l->rejected, pairs, &x->rejected));
    x->margin = NULL;
    if (!*r->o.margin) return NRL_OK;
    NRL_TRY(nrl_batch_column(ctx, batch, r->o.margin, &margin));
    return nrl_op_gather_rows(ctx, margin, l->chosen, pairs, &x->margin);
}

static nrl_status make_sum(const reward *r, nrl_ctx *ctx, const rewards *x, nrl_tensor **sum)
{
    nrl_tensor *difference, *each, *both;
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, x->chosen, x->rejected, &difference));
    if (x->margin) NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, difference, x->margin, &difference));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_LOG_SIGMOID, difference, 0, 0, &each));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_NEG, each, 0, 0, &each));
    if (r->o.center_coefficient > 0) {
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, x->chosen, x->rejected, &both));
        NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, both, 0, 0, &both));
        NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, both, r->o.center_coefficient, 0, &both));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, each, both, &each));
    }
    return nrl_op_sum(ctx, each, sum);
}

static nrl_status report_sum(nrl_ctx *ctx, uint32_t index, nrl_tensor *x, double n)
{
    nrl_tensor *sum;
    NRL_TRY(nrl_op_sum(ctx, x, &sum));
    return nrl_metric_add(ctx, index, sum, n);
}

/* The largest of `sign` times all rewards, times `sign`. */
static nrl_status report_extreme(nrl_ctx *ctx, uint32_t index, nrl_tensor *c, nrl_tensor *r, double sign)
{
    int64_t n = nrl_tensor_numel(c), shape[] = {1, n};
    nrl_tensor *all;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, c, sign, 0, &c));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, r, sign, 0, &r));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MAX, c, r, &all));
    NRL_TRY(nrl_op_reshape(ctx, all, 2, shape, &all));
    NRL_TRY(nrl_op_max_columns(ctx, all, &all));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, all, sign, 0, &all));
    return nrl_metric_add(ctx, index, all, 1);
}

static nrl_status report(nrl_ctx *ctx, const rewards *x)
{
    double n = (double)nrl_tensor_numel(x->chosen);
    nrl_tensor *chosen, *rejected, *right;
    NRL_TRY(nrl_op_detach(ctx, x->chosen, &chosen));
    NRL_TRY(nrl_op_detach(ctx, x->rejected, &rejected));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_GREATER, chosen, rejected, &right));
    NRL_TRY(report_sum(ctx, METRIC_CHOSEN, chosen, n));
    NRL_TRY(report_sum(ctx, METRIC_REJECTED, rejected, n));
    NRL_TRY(report_sum(ctx, METRIC_ACCURACY, right, n));
    NRL_TRY(report_extreme(ctx, METRIC_MIN, chosen, rejected, -1));
    return report_extreme(ctx, METRIC_MAX, chosen, rejected, 1);
}

static void reward_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "pairs");
}

static nrl_status reward_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const reward *r = self;
    lists l;
    rewards x;
    nrl_status st = lists_make(r, batch, &l);
    if (st == NRL_OK) st = make_rewards(r, ctx, batch, &l, &x);
    lists_free(&l); /* the operations have copied what they need */
    NRL_TRY(st);
    NRL_TRY(make_sum(r, ctx, &x, &sums[0]));
    return report(ctx, &x);
}

static const char *const reward_needs[] = {"hidden", NULL};

static const nrl_algorithm reward_table = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, reward_options, reward_rows, "reward", "0.1",
               "reward models: scores of answers, learned from pairs"),
    .needs = reward_needs,
    .metrics = reward_metrics,
    .n_terms = 1,
    .example_kind = 1,
    .create = reward_create,
    .destroy = reward_destroy,
    .weight = reward_weight,
    .loss = reward_loss,
    .instance_needs = reward_instance_needs,
    .model = reward_model,
    .bind = reward_bind,
};
NRL_EXPORT(reward_table)
