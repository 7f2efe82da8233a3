/*
 * models.h - models that break one rule each, with the rule that must detect it. All are one small
 * network: h = embedding; each token adds tanh(W mean of its segment so far); hidden states = h.
 */
#ifndef WRONG_MODELS_H
#define WRONG_MODELS_H
#include <nrl/nrl.h>
#include <stdlib.h>

enum { TOY_VOCAB = 40, TOY_WIDTH = 16 };

typedef struct {
    nrl_param *embed, *mix, *late;
} toy;

static nrl_status toy_create(const nrl_node *config, void **self)
{
    if (nrl_node_int(nrl_node_find(config, "hidden_size"), 0) != TOY_WIDTH)
        return nrl_fail(NRL_ERR_DATA, "hidden_size: expected 16");
    *self = calloc(1, sizeof(toy));
    return NRL_OK;
}

static nrl_status lenient_create(const nrl_node *config, void **self)
{
    (void)config;
    *self = calloc(1, sizeof(toy));
    return NRL_OK;
}

static nrl_status declare(toy *t, nrl_builder *b, int64_t carry_width, const char *mix_name)
{
    int32_t embed, block;
    nrl_param_spec spec = {.size = sizeof spec,
                           .name = "embed",
                           .n_dims = 2,
                           .dims = {TOY_VOCAB, TOY_WIDTH},
                           .init = NRL_INIT_NORMAL,
                           .init_scale = 0.02,
                           .decay = true};
    NRL_TRY(nrl_build_unit(b, "embed", &embed));
    NRL_TRY(nrl_build_unit(b, "block", &block));
    NRL_TRY(nrl_build_param(b, embed, &spec, &t->embed));
    spec.name = mix_name;
    spec.dims[0] = TOY_WIDTH;
    NRL_TRY(nrl_build_param(b, block, &spec, &t->mix));
    spec.name = "late";
    NRL_TRY(nrl_build_param(b, embed, &spec, &t->late));
    NRL_TRY(nrl_build_use(b, block, t->embed)); /* the head is tied */
    NRL_TRY(nrl_build_carry(b, 1, &carry_width));
    nrl_model_info info = {sizeof info, TOY_VOCAB, TOY_WIDTH, 1, 1, 1, TOY_WIDTH, 64, false};
    NRL_TRY(nrl_build_info(b, &info));
    return nrl_build_head(b, &(nrl_head_spec){sizeof(nrl_head_spec), t->embed, NULL, 1, 0});
}

static nrl_status toy_layout(void *self, nrl_builder *b)
{
    return declare(self, b, TOY_WIDTH, "mix");
}

static nrl_status narrow_layout(void *self, nrl_builder *b)
{
    return declare(self, b, TOY_WIDTH / 2, "mix");
}

static nrl_status shifting_layout(void *self, nrl_builder *b)
{
    static int calls;
    return declare(self, b, TOY_WIDTH, calls++ % 2 ? "mix" : "mixer");
}

static nrl_status embed_unit(toy *t, nrl_ctx *ctx, nrl_carry *carry)
{
    nrl_tensor *h, *more;
    NRL_TRY(nrl_op_embedding(ctx, t->embed, &h));
    NRL_TRY(nrl_op_linear(ctx, h, t->late, NULL, &more));
    carry->n = 1;
    return nrl_op_binary(ctx, NRL_BINARY_ADD, h, more, &carry->tensors[0]);
}

/* h + tanh(attention(h) W^T) */
static nrl_status block_unit(nrl_ctx *ctx, nrl_param *mix, nrl_tensor *h, nrl_tensor **out)
{
    nrl_attention_spec spec = {1, 1, TOY_WIDTH, 0, 0, 0.25};
    nrl_tensor *seen, *y, *soft;
    NRL_TRY(nrl_op_attention(ctx, h, h, h, &spec, &seen));
    NRL_TRY(nrl_op_linear(ctx, seen, mix, NULL, &y));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_TANH, y, 0, 0, &soft));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, h, soft, out);
}

static nrl_status right_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    toy *t = self;
    if (unit == 0) return embed_unit(t, ctx, carry);
    return block_unit(ctx, t->mix, carry->tensors[0], &carry->tensors[0]);
}

static nrl_status undeclared_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    toy *t = self;
    if (unit == 0) return embed_unit(t, ctx, carry);
    return block_unit(ctx, t->late, carry->tensors[0], &carry->tensors[0]);
}

/* Adds the mean of the whole batch to each token. */
static nrl_status future_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    nrl_tensor *sum;
    NRL_TRY(right_forward(self, ctx, unit, carry));
    if (unit == 0) return NRL_OK;
    NRL_TRY(nrl_op_sum_rows(ctx, carry->tensors[0], &sum));
    NRL_TRY(nrl_op_reshape(ctx, sum, 2, (int64_t[]){1, TOY_WIDTH}, &sum));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, carry->tensors[0], sum, &carry->tensors[0]);
}

/* Each token adds the one before it in the batch, over the border between segments. */
static nrl_status leaking_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    int32_t before[64];
    nrl_tensor *shifted, *h;
    NRL_TRY(right_forward(self, ctx, unit, carry));
    h = carry->tensors[0];
    for (int32_t i = 0; i < nrl_tensor_dim(h, 0); i++)
        before[i] = i - 1;
    before[0] = 0;
    NRL_TRY(nrl_op_gather_rows(ctx, h, before, nrl_tensor_dim(h, 0), &shifted));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, h, shifted, &carry->tensors[0]);
}

/* Scales each token by its place in the batch, where it should be that in the segment. */
static nrl_status placed_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    float place[64];
    nrl_tensor *column;
    NRL_TRY(right_forward(self, ctx, unit, carry));
    int64_t dims[2] = {nrl_tensor_dim(carry->tensors[0], 0), 1};
    for (int64_t i = 0; i < dims[0]; i++)
        place[i] = (float)(1 + 0.1 * (double)i);
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, dims, place, &column));
    return nrl_op_binary(ctx, NRL_BINARY_MUL, carry->tensors[0], column, &carry->tensors[0]);
}

static nrl_status blind_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    toy *t = self;
    if (unit == 0) return embed_unit(t, ctx, carry);
    return nrl_op_linear(ctx, carry->tensors[0], t->mix, NULL, &carry->tensors[0]);
}

/* Cuts the tape between the units: parameters of the first get the tied head's gradient alone. */
static nrl_status detached_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    if (unit == 1) NRL_TRY(nrl_op_detach(ctx, carry->tensors[0], &carry->tensors[0]));
    return right_forward(self, ctx, unit, carry);
}

static nrl_status greedy_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    NRL_TRY(right_forward(self, ctx, unit, carry));
    carry->tensors[1] = carry->tensors[0];
    carry->n = 2;
    return NRL_OK;
}

static nrl_status counting_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    static double calls;
    NRL_TRY(right_forward(self, ctx, unit, carry));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, carry->tensors[0], 1, 1e-3 * calls++, &carry->tensors[0]);
}

/* ---- with a layer that two ranks may share ---- */

static nrl_status shared_layout(void *self, nrl_builder *b)
{
    toy *t = self;
    int32_t embed, block;
    const int64_t width = TOY_WIDTH;
    nrl_param_spec spec = {.size = sizeof spec,
                           .name = "embed",
                           .n_dims = 2,
                           .dims = {TOY_VOCAB, TOY_WIDTH},
                           .init = NRL_INIT_NORMAL,
                           .init_scale = 0.02,
                           .decay = true,
                           .tp = NRL_TP_VOCAB};
    NRL_TRY(nrl_build_unit(b, "embed", &embed));
    NRL_TRY(nrl_build_unit(b, "block", &block));
    NRL_TRY(nrl_build_param(b, embed, &spec, &t->embed));
    spec.name = "up";
    spec.dims[0] = 2 * TOY_WIDTH;
    spec.tp = NRL_TP_COLUMN;
    NRL_TRY(nrl_build_param(b, block, &spec, &t->mix));
    spec.name = "down";
    spec.dims[0] = TOY_WIDTH;
    spec.dims[1] = 2 * TOY_WIDTH;
    spec.tp = NRL_TP_ROW;
    NRL_TRY(nrl_build_param(b, block, &spec, &t->late));
    NRL_TRY(nrl_build_use(b, block, t->embed)); /* the head is tied */
    NRL_TRY(nrl_build_carry(b, 1, &width));
    nrl_model_info info = {sizeof info, TOY_VOCAB, TOY_WIDTH, 1, 2, 2, TOY_WIDTH / 2, 64, false};
    NRL_TRY(nrl_build_info(b, &info));
    return nrl_build_head(b, &(nrl_head_spec){sizeof(nrl_head_spec), t->embed, NULL, 1, 0});
}

/* Declares that tokens are treated by themselves. */
static nrl_status apart_layout(void *self, nrl_builder *b)
{
    NRL_TRY(shared_layout(self, b));
    nrl_model_info info = {sizeof info, TOY_VOCAB, TOY_WIDTH, 1, 2, 2, TOY_WIDTH / 2, 64, true};
    return nrl_build_info(b, &info);
}

/* h + down(tanh(up(attention(h)))), without the region in front of `up`, or with a plain product behind it. */
static nrl_status shared_block(toy *t, nrl_ctx *ctx, nrl_tensor *h, bool enters, bool reduces, nrl_tensor **out)
{
    nrl_attention_spec spec = {1, 1, TOY_WIDTH, 0, 0, 0.25};
    nrl_tensor *seen, *wide, *y;
    NRL_TRY(nrl_op_attention(ctx, h, h, h, &spec, &seen));
    if (enters) NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_COLUMN_IN, seen, &seen));
    NRL_TRY(nrl_op_linear(ctx, seen, t->mix, NULL, &wide));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_TANH, wide, 0, 0, &wide));
    NRL_TRY(reduces ? nrl_op_row_parallel_linear(ctx, wide, t->late, NULL, &y)
                    : nrl_op_linear(ctx, wide, t->late, NULL, &y));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, h, y, out);
}

static nrl_status regionless_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    toy *t = self;
    carry->n = 1;
    if (unit == 0) return nrl_op_embedding(ctx, t->embed, &carry->tensors[0]);
    return shared_block(t, ctx, carry->tensors[0], false, true, &carry->tensors[0]);
}

static nrl_status plain_row_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    toy *t = self;
    carry->n = 1;
    if (unit == 0) return nrl_op_embedding(ctx, t->embed, &carry->tensors[0]);
    return shared_block(t, ctx, carry->tensors[0], true, false, &carry->tensors[0]);
}

/* Attention outside of the regions. */
static nrl_status mixing_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    toy *t = self;
    carry->n = 1;
    if (unit == 0) return nrl_op_embedding(ctx, t->embed, &carry->tensors[0]);
    return shared_block(t, ctx, carry->tensors[0], true, true, &carry->tensors[0]);
}

static nrl_status leaking_create(const nrl_node *config, void **self)
{
    NRL_TRY(toy_create(config, self));
    return malloc(100) ? NRL_OK : NRL_ERR_MEMORY;
}

static nrl_status crashing_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    static int n;
    if (n++ == 2) abort(); /* the second pass */
    return right_forward(self, ctx, unit, carry);
}

static const char *const toy_types[] = {"toy", NULL};
static const char *const no_types[] = {NULL};

#define WRONG(nm, rule, types, c, l, f)                                                                                \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_MODEL, nrl_model, #nm, "0", rule), .model_types = types, .create = c,                \
                                                                     .destroy = free, .layout = l, .forward = f        \
    }
static const nrl_model wrong[] = {
    WRONG(right, "nothing is wrong with it", toy_types, toy_create, toy_layout, right_forward),
    WRONG(undeclared, "a unit uses only what it declares", toy_types, toy_create, toy_layout, undeclared_forward),
    WRONG(future, "no token sees a later one", toy_types, toy_create, toy_layout, future_forward),
    WRONG(leaking, "segments do not see each other", toy_types, toy_create, toy_layout, leaking_forward),
    WRONG(placed, "a segment does not depend on its position", toy_types, toy_create, toy_layout, placed_forward),
    WRONG(blind, "a token sees earlier ones", toy_types, toy_create, toy_layout, blind_forward),
    WRONG(detached, "gradients agree with finite differences", toy_types, toy_create, toy_layout, detached_forward),
    WRONG(greedy, "a unit passes the declared carry", toy_types, toy_create, toy_layout, greedy_forward),
    WRONG(narrow, "a unit passes the declared carry", toy_types, toy_create, narrow_layout, right_forward),
    WRONG(counting, "equal calls give bit-identical results", toy_types, toy_create, toy_layout, counting_forward),
    WRONG(shifting, "equal configs give equal layouts", toy_types, toy_create, shifting_layout, right_forward),
    WRONG(lenient, "a config without sizes is refused with an error text", toy_types, lenient_create, toy_layout,
          right_forward),
    WRONG(nameless, "a model names the types it serves", no_types, toy_create, toy_layout, right_forward),
    WRONG(regionless, "two ranks have the gradients of one rank", toy_types, toy_create, shared_layout,
          regionless_forward),
    WRONG(plain_row, "two ranks compute what one rank computes", toy_types, toy_create, shared_layout,
          plain_row_forward),
    WRONG(mixing, "ranks with parts of the tokens compute what one rank computes", toy_types, toy_create, apart_layout,
          mixing_forward),
    WRONG(hoarding, "close gives the memory back", toy_types, leaking_create, toy_layout, right_forward),
    WRONG(crashing, "a unit uses only what it declares", toy_types, toy_create, toy_layout, crashing_forward),
    WRONG(lacks_forward, "forward is NULL", toy_types, toy_create, toy_layout, NULL),
};
#undef WRONG

#endif
