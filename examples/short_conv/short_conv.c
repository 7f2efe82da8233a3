/*
 * short_conv.c - a small language model that mixes tokens by short convolutions instead of attention, to show an
 * operation with kernels of its own (conv.c): x += down(conv(norm(x)) * gate(norm(x))).
 *
 * Units: embed, layers.0 .. layers.L-1, norm. The carry is [N,D]. N tokens, D width, K taps, V vocabulary.
 */
#include "conv.h"
#include <nrl/model.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    nrl_param *norm, *conv, *gate, *down; /* [D], [D,K], [D,D], [D,D] */
} layer;

typedef struct {
    int64_t vocab, width, n_layers, taps;
    nrl_param *embed, *norm;
    layer *layers;
} model;

static nrl_status declare(nrl_builder *b, int32_t unit, const char *name, int n_dims, int64_t rows, int64_t cols,
                          nrl_param **out)
{
    nrl_param_spec spec = {.size = sizeof spec,
                           .name = name,
                           .n_dims = n_dims,
                           .dims = {rows, cols},
                           .decay = n_dims > 1,
                           .init = n_dims > 1 ? NRL_INIT_NORMAL : NRL_INIT_ONES,
                           .init_scale = 0.05};
    return nrl_build_param(b, unit, &spec, out);
}

static nrl_status layout_layer(const model *self, nrl_builder *b, int64_t i, layer *l)
{
    const char *const names[] = {"norm.weight", "conv.weight", "gate.weight", "down.weight"};
    const int64_t cols[] = {0, self->taps, self->width, self->width};
    nrl_param **const params[] = {&l->norm, &l->conv, &l->gate, &l->down};
    char name[64];
    int32_t unit;
    snprintf(name, sizeof name, "layers.%lld", (long long)i);
    NRL_TRY(nrl_build_unit(b, name, &unit));
    for (int k = 0; k < 4; k++) {
        snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)i, names[k]);
        NRL_TRY(declare(b, unit, name, k ? 2 : 1, self->width, cols[k], params[k]));
    }
    return NRL_OK;
}

static nrl_status short_conv_layout(void *instance, nrl_builder *b)
{
    model *self = instance;
    const nrl_model_info info = {.size = sizeof info,
                                 .vocab_size = self->vocab,
                                 .width = self->width,
                                 .n_layers = self->n_layers,
                                 .max_positions = 1 << 20};
    int32_t unit;
    NRL_TRY(nrl_build_info(b, &info));
    NRL_TRY(nrl_build_carry(b, 1, &self->width));
    NRL_TRY(nrl_build_unit(b, "embed", &unit));
    NRL_TRY(declare(b, unit, "model.embed.weight", 2, self->vocab, self->width, &self->embed));
    for (int64_t i = 0; i < self->n_layers; i++)
        NRL_TRY(layout_layer(self, b, i, &self->layers[i]));
    NRL_TRY(nrl_build_unit(b, "norm", &unit));
    NRL_TRY(declare(b, unit, "model.norm.weight", 1, self->width, 0, &self->norm));
    NRL_TRY(nrl_build_use(b, unit, self->embed));
    const nrl_head_spec head = {.size = sizeof head, .weight = self->embed, .scale = 1};
    return nrl_build_head(b, &head);
}

/* The convolution computes in f32, whatever the precision of the run is. */
static nrl_status mix(nrl_ctx *ctx, const layer *l, nrl_tensor *h, nrl_tensor **y)
{
    nrl_tensor *w, *gate;
    const nrl_dtype dtype = nrl_tensor_dtype(h);
    NRL_TRY(nrl_op_linear(ctx, h, l->gate, NULL, &gate));
    NRL_TRY(nrl_op_param(ctx, l->conv, NRL_DTYPE_F32, &w));
    NRL_TRY(nrl_op_cast(ctx, h, NRL_DTYPE_F32, &h));
    NRL_TRY(short_conv(ctx, h, w, &h));
    NRL_TRY(nrl_op_cast(ctx, h, dtype, &h));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, h, gate, &h));
    return nrl_op_linear(ctx, h, l->down, NULL, y);
}

static nrl_status short_conv_forward(void *instance, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    const model *self = instance;
    nrl_tensor **x = &carry->tensors[0], *h;
    carry->n = 1;
    if (unit == 0) return nrl_op_embedding(ctx, self->embed, x);
    if (unit > self->n_layers) return nrl_op_rms_norm(ctx, *x, self->norm, 1e-5, x);
    const layer *l = &self->layers[unit - 1];
    NRL_TRY(nrl_op_rms_norm(ctx, *x, l->norm, 1e-5, &h));
    NRL_TRY(mix(ctx, l, h, &h));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *x, h, x);
}

static nrl_status read_size(const nrl_node *config, const char *key, int64_t most, int64_t *out)
{
    *out = nrl_node_int(nrl_node_find(config, key), 0);
    if (*out >= 1 && *out <= most) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "%s: '%s' is %lld, expected 1 to %lld", nrl_node_place(config), key, (long long)*out,
                    (long long)most);
}

static void short_conv_destroy(void *instance)
{
    model *self = instance;
    free(self->layers);
    free(self);
}

static nrl_status short_conv_create(const nrl_node *config, void **out)
{
    model of = {.taps = nrl_node_int(nrl_node_find(config, "conv_kernel"), 4)};
    NRL_TRY(read_size(config, "vocab_size", INT32_MAX, &of.vocab));
    NRL_TRY(read_size(config, "hidden_size", 1 << 20, &of.width));
    NRL_TRY(read_size(config, "num_hidden_layers", 1 << 12, &of.n_layers));
    if (of.taps < 1 || of.taps > 16)
        return nrl_fail(NRL_ERR_DATA, "%s: 'conv_kernel' is %lld, expected 1 to 16", nrl_node_place(config),
                        (long long)of.taps);
    model *self = malloc(sizeof *self);
    of.layers = calloc((size_t)of.n_layers, sizeof *of.layers);
    if (!self || !of.layers) {
        free(of.layers);
        free(self);
        return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    }
    *self = of;
    *out = self;
    return NRL_OK;
}

static const char *const model_types[] = {"short_conv", NULL};

static const nrl_model table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, "short_conv", "0.1", "tokens mixed by short convolutions"),
    .model_types = model_types,
    .create = short_conv_create,
    .destroy = short_conv_destroy,
    .layout = short_conv_layout,
    .forward = short_conv_forward,
};

NRL_EXPORT(table)
