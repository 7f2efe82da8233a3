/*
 * value_head.c - supervised fine-tuning with a value head beside the output layer: the value of a sequence, a linear
 * function of the hidden state of its last token, learns the number 1.
 */
#include <nrl/expr.h>
#include <nrl/nrl.h>
#include <stdlib.h>

typedef struct {
    nrl_param_spec spec;
    nrl_param *weight; /* [1,D] */
} value_head;

static nrl_status value_create(const void *options, void **self)
{
    (void)options;
    *self = calloc(1, sizeof(value_head));
    return *self ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "no memory for the value head");
}

static nrl_status value_model(void *self, const nrl_node *config, const nrl_model_info *info, nrl_algorithm_model *out)
{
    value_head *v = self;
    (void)config;
    v->spec = (nrl_param_spec){
        .size = sizeof v->spec, .name = "v_head.weight", .n_dims = 2, .dims = {1, info->width}, .init = NRL_INIT_ZEROS};
    out->params = &v->spec;
    out->param_size = sizeof v->spec;
    out->n_params = 1;
    return NRL_OK;
}

static void value_bind(void *self, nrl_param *const *params)
{
    ((value_head *)self)->weight = params[0];
}

static void value_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
    weight[1] = nrl_batch_count(batch, "sequences");
}

static nrl_status value_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const value_head *v = self;
    const int64_t n = nrl_batch_n_segments(batch);
    const int32_t *begin = nrl_batch_cu_seqlens(batch);
    int32_t *last = malloc((size_t)(n + 1) * sizeof *last);
    nrl_exprs e = {ctx, NRL_OK};
    nrl_tensor *hidden, *values; /* [N,D]; [S,D], then [S,1] */
    if (!last) return nrl_fail(NRL_ERR_MEMORY, "no memory for the last tokens");
    for (int64_t s = 0; s < n; s++)
        last[s] = begin[s + 1] - 1;
    nrl_status st = nrl_batch_column(ctx, batch, "hidden", &hidden);
    if (st == NRL_OK) st = nrl_op_gather_rows(ctx, hidden, last, n, &values);
    free(last);
    if (st == NRL_OK) st = nrl_op_linear(ctx, values, v->weight, NULL, &values);
    if (st == NRL_OK) st = nrl_op_cast(ctx, values, NRL_DTYPE_F32, &values);
    NRL_TRY(st);
    nrl_expr weighted = e_mul(e_column(&e, batch, "logps"), e_column(&e, batch, "weights"));
    NRL_TRY(e_store(e_neg(e_sum(weighted)), &sums[0]));
    return e_store(e_sum(e_square(e_affine(e_tensor(&e, values), 1, -1))), &sums[1]);
}

static const char *const value_needs[] = {"logps", "hidden", NULL};

static const nrl_algorithm table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_ALGORITHM, nrl_algorithm, "value_head", "1.0", "sft with a value head"),
    .needs = value_needs,
    .n_terms = 2,
    .create = value_create,
    .destroy = free,
    .weight = value_weight,
    .loss = value_loss,
    .model = value_model,
    .bind = value_bind,
};
NRL_EXPORT(table)
