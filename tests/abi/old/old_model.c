/*
 * old_model.c - a small model: h = embedding; each token adds tanh(W attention(h)); the head is the embedding.
 */
#include <nrl/nrl.h>
#include <stdlib.h>

typedef struct {
    int64_t vocab, width;
    nrl_param *embed, *mix;
} old_model;

static nrl_status old_create(const nrl_node *config, void **self)
{
    old_model *m = calloc(1, sizeof *m);
    if (!m) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a model");
    m->vocab = nrl_node_int(nrl_node_find(config, "vocab_size"), 0);
    m->width = nrl_node_int(nrl_node_find(config, "hidden_size"), 0);
    if (m->vocab > 0 && m->width > 0) {
        *self = m;
        return NRL_OK;
    }
    free(m);
    return nrl_fail(NRL_ERR_DATA, "vocab_size and hidden_size: expected positive numbers");
}

static nrl_status old_layout(void *self, nrl_builder *b)
{
    old_model *m = self;
    int32_t embed, block;
    nrl_param_spec spec = {.size = sizeof spec,
                           .name = "embed",
                           .n_dims = 2,
                           .dims = {m->vocab, m->width},
                           .init = NRL_INIT_NORMAL,
                           .init_scale = 0.02,
                           .decay = true};
    const nrl_model_info info = {sizeof info, m->vocab, m->width, 1, 1, 1, m->width, 1024};
    NRL_TRY(nrl_build_unit(b, "embed", &embed));
    NRL_TRY(nrl_build_unit(b, "block", &block));
    NRL_TRY(nrl_build_param(b, embed, &spec, &m->embed));
    spec.name = "mix";
    spec.dims[0] = m->width;
    NRL_TRY(nrl_build_param(b, block, &spec, &m->mix));
    NRL_TRY(nrl_build_use(b, block, m->embed));
    NRL_TRY(nrl_build_carry(b, 1, &m->width));
    NRL_TRY(nrl_build_info(b, &info));
    return nrl_build_head(b, &(nrl_head_spec){sizeof(nrl_head_spec), m->embed, NULL, 1, 0});
}

static nrl_status old_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    old_model *m = self;
    const nrl_attention_spec spec = {.n_heads = 1, .n_kv_heads = 1, .head_dim = m->width, .scale = 0.25};
    nrl_tensor *h = carry->tensors[0], *y;
    carry->n = 1;
    if (unit == 0) return nrl_op_embedding(ctx, m->embed, &carry->tensors[0]);
    NRL_TRY(nrl_op_attention(ctx, h, h, h, &spec, &y));
    NRL_TRY(nrl_op_linear(ctx, y, m->mix, NULL, &y));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_TANH, y, 0, 0, &y));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, h, y, &carry->tensors[0]);
}

static const char *const old_types[] = {"old_model", NULL};
static const nrl_model table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, "old_model", "1.0", "a binary of an earlier nrl"),
    .model_types = old_types,
    .create = old_create,
    .destroy = free,
    .layout = old_layout,
    .forward = old_forward,
};
NRL_EXPORT(table)
