/*
 * adapters.h - adapters that break one rule each, with the rule that must detect it. All are y = x
 * W^T + b + u B^T with u = x A^T of rank 2, with one defect.
 */
#ifndef WRONG_ADAPTERS_H
#define WRONG_ADAPTERS_H
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANK = 2, MAX_MODULES = 8 };

typedef struct {
    int n;
    char names[MAX_MODULES][2][128];
} low;

typedef struct {
    double scale;
} low_options;

static const nrl_option rows[] = {NRL_OPT_F64(low_options, scale, "1", 0, 1, "of what is added")};

static const nrl_adapter_target *target_at(const nrl_adapter_model *m, int64_t i, size_t stride)
{
    return (const void *)((const char *)m->targets + (size_t)i * stride);
}

static void add_module(nrl_arena *memory, nrl_node *list, const char *module)
{
    nrl_node *one = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, one, "module", nrl_node_new_string(memory, module, strlen(module)));
    nrl_node_append(memory, list, one);
}

static nrl_status choose_by(const nrl_adapter_model *m, size_t stride, nrl_arena *memory, nrl_node **settings)
{
    nrl_node *list = nrl_node_new(memory, NRL_NODE_LIST);
    for (int64_t i = 0; i < m->n_targets; i++)
        add_module(memory, list, stride ? target_at(m, i, stride)->module : "model.layers.9");
    *settings = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, *settings, "modules", list);
    return NRL_OK;
}

static nrl_status low_choose(const void *options, const nrl_adapter_model *m, nrl_arena *memory, nrl_node **settings)
{
    (void)options;
    return choose_by(m, m->target_size, memory, settings);
}

/* As if no later version had more members. */
static nrl_status strideless_choose(const void *options, const nrl_adapter_model *m, nrl_arena *memory,
                                    nrl_node **settings)
{
    nrl_node *list = nrl_node_new(memory, NRL_NODE_LIST);
    (void)options;
    add_module(memory, list, m->targets->module);
    if (m->target_size == sizeof *m->targets) add_module(memory, list, m->targets[1].module);
    *settings = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, *settings, "modules", list);
    return NRL_OK;
}

static nrl_status stranger_choose(const void *options, const nrl_adapter_model *m, nrl_arena *memory,
                                  nrl_node **settings)
{
    (void)options;
    return choose_by(m, 0, memory, settings);
}

static nrl_status choosy_choose(const void *options, const nrl_adapter_model *m, nrl_arena *memory, nrl_node **settings)
{
    (void)options, (void)m, (void)memory, (void)settings;
    return nrl_fail(NRL_ERR_CONFIG, "no model is good enough");
}

static nrl_status low_create(const nrl_node *settings, void **self)
{
    const nrl_node *list = nrl_node_find(settings, "modules");
    low *l = calloc(1, sizeof *l);
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "no memory");
    for (size_t i = 0; i < nrl_node_size(list) && i < MAX_MODULES; i++, l->n++)
        for (int k = 0; k < 2; k++)
            snprintf(l->names[i][k], sizeof l->names[i][k], "%s.low_%c",
                     nrl_node_string(nrl_node_find(nrl_node_at(list, i), "module"), ""), "AB"[k]);
    *self = l;
    return NRL_OK;
}

/* Names by position: settings in another order are another adapter. */
static nrl_status counting_create(const nrl_node *settings, void **self)
{
    static const char *const known[] = {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj",
                                        "model.layers.0.attn.c_attn", "model.layers.0.mlp.up_proj",
                                        "model.layers.0.mlp.down_proj"};
    NRL_TRY(low_create(settings, self));
    low *l = *self;
    for (int i = 0; i < l->n && i < 5; i++)
        for (int k = 0; k < 2; k++)
            snprintf(l->names[i][k], sizeof l->names[i][k], "%s.low_%c", known[i], "AB"[k]);
    return NRL_OK;
}

static nrl_status nameless_create(const nrl_node *settings, void **self)
{
    NRL_TRY(low_create(settings, self));
    low *l = *self;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < 2; k++)
            snprintf(l->names[i][k], sizeof l->names[i][k], "low_%c", "AB"[k]);
    return NRL_OK;
}

static nrl_status declare_as(const low *l, int32_t module, const nrl_adapter_target *t, uint32_t tp_a, uint32_t tp_b,
                             uint32_t init_b, nrl_adapter_builder *b)
{
    const nrl_param_spec first = {.size = sizeof first,
                                  .name = l->names[module][0],
                                  .n_dims = 2,
                                  .dims = {RANK, t->inputs},
                                  .init = NRL_INIT_UNIFORM,
                                  .init_scale = 0.1,
                                  .tp = tp_a};
    const nrl_param_spec second = {.size = sizeof second,
                                   .name = l->names[module][1],
                                   .n_dims = 2,
                                   .dims = {t->outputs, RANK},
                                   .init = init_b,
                                   .init_scale = 0.1,
                                   .tp = tp_b,
                                   .groups = tp_b == NRL_TP_COLUMN ? t->groups : 0};
    NRL_TRY(nrl_adapter_build_param(b, &first));
    return nrl_adapter_build_param(b, &second);
}

static uint32_t tp_of_a(const nrl_adapter_target *t)
{
    return t->tp == NRL_TP_COLUMN ? NRL_TP_PARTIAL : t->tp == NRL_TP_ROW ? NRL_TP_ROW : NRL_TP_NONE;
}

static uint32_t tp_of_b(const nrl_adapter_target *t)
{
    return t->tp == NRL_TP_COLUMN ? NRL_TP_COLUMN : t->tp == NRL_TP_ROW ? NRL_TP_PARTIAL : NRL_TP_NONE;
}

static nrl_status low_declare(void *self, int32_t module, const nrl_adapter_target *t, nrl_adapter_builder *b)
{
    return declare_as(self, module, t, tp_of_a(t), tp_of_b(t), NRL_INIT_ZEROS, b);
}

/* Ranks keep copies whose gradients are never added. */
static nrl_status parted_declare(void *self, int32_t module, const nrl_adapter_target *t, nrl_adapter_builder *b)
{
    uint32_t a = tp_of_a(t), c = tp_of_b(t);
    return declare_as(self, module, t, a == NRL_TP_PARTIAL ? NRL_TP_NONE : a, c == NRL_TP_PARTIAL ? NRL_TP_NONE : c,
                      NRL_INIT_ZEROS, b);
}

static nrl_status whole_declare(void *self, int32_t module, const nrl_adapter_target *t, nrl_adapter_builder *b)
{
    return declare_as(self, module, t, NRL_TP_NONE, NRL_TP_NONE, NRL_INIT_ZEROS, b);
}

static nrl_status moved_declare(void *self, int32_t module, const nrl_adapter_target *t, nrl_adapter_builder *b)
{
    return declare_as(self, module, t, tp_of_a(t), tp_of_b(t), NRL_INIT_UNIFORM, b);
}

static nrl_status empty_declare(void *self, int32_t module, const nrl_adapter_target *t, nrl_adapter_builder *b)
{
    (void)self, (void)module, (void)t, (void)b;
    return NRL_OK;
}

static nrl_status product(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, nrl_tensor *of, nrl_tensor **y)
{
    nrl_tensor *u;
    NRL_TRY(nrl_op_linear(ctx, of, nrl_adapter_param(site, 0), NULL, &u));
    return nrl_adapter_product(ctx, site, x, u, nrl_adapter_param(site, 1), 1, y);
}

static nrl_status low_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                              nrl_tensor **y)
{
    (void)self, (void)module;
    return product(ctx, site, x, x, y);
}

/* No gradient reaches the input, or what is below it, through the adapter. */
static nrl_status detached_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site,
                                   nrl_tensor *x, nrl_tensor **y)
{
    nrl_tensor *of;
    (void)self, (void)module;
    NRL_TRY(nrl_op_detach(ctx, x, &of));
    return product(ctx, site, x, of, y);
}

static nrl_status secret_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                                 nrl_tensor **y)
{
    nrl_tensor *of;
    (void)self, (void)module;
    NRL_TRY(nrl_adapter_dropout(ctx, site, x, 0.3, &of));
    return product(ctx, site, x, of, y);
}

/* A counter of its own in the place of the step's random numbers. */
static nrl_status drifting_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site,
                                   nrl_tensor *x, nrl_tensor **y)
{
    static int calls;
    nrl_tensor *of;
    (void)self, (void)module;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, 1 + 1e-5 * (double)(++calls % 3), 0, &of));
    return product(ctx, site, x, of, y);
}

static nrl_status biasless_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site,
                                   nrl_tensor *x, nrl_tensor **y)
{
    nrl_tensor *base, *u, *more;
    (void)self, (void)module;
    NRL_TRY(nrl_adapter_weight_product(ctx, site, x, &base));
    NRL_TRY(nrl_op_linear(ctx, x, nrl_adapter_param(site, 0), NULL, &u));
    NRL_TRY(nrl_op_linear(ctx, u, nrl_adapter_param(site, 1), NULL, &more));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, base, more, y);
}

static void merge_scaled(const nrl_adapter_target *t, const float *const *values, int64_t begin, int64_t n,
                         double scale, float *w)
{
    for (int64_t i = begin; i < begin + n; i++)
        for (int64_t j = 0; j < RANK; j++)
            w[i - begin] += (float)(scale * (double)values[1][i / t->inputs * RANK + j] *
                                    (double)values[0][j * t->inputs + i % t->inputs]);
}

static void low_merge(void *self, int32_t module, const nrl_adapter_target *t, const float *const *values,
                      int64_t begin, int64_t n, float *w)
{
    (void)self, (void)module;
    merge_scaled(t, values, begin, n, 1, w);
}

static void halved_merge(void *self, int32_t module, const nrl_adapter_target *t, const float *const *values,
                         int64_t begin, int64_t n, float *w)
{
    (void)self, (void)module;
    merge_scaled(t, values, begin, n, 0.5, w);
}

static void from_start_merge(void *self, int32_t module, const nrl_adapter_target *t, const float *const *values,
                             int64_t begin, int64_t n, float *w)
{
    (void)self, (void)module, (void)begin;
    merge_scaled(t, values, 0, n, 1, w);
}

static nrl_status low_adopt(const void *options, const nrl_node *given, const nrl_adapter_model *m,
                            const nrl_node *saved, nrl_arena *memory, nrl_node **settings, nrl_node **resolved)
{
    (void)given, (void)saved;
    *resolved = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, *resolved, "scale", nrl_node_new_f64(memory, 1));
    return low_choose(options, m, memory, settings);
}

/* What is on disk is not what the run has. */
static nrl_status inventing_adopt(const void *options, const nrl_node *given, const nrl_adapter_model *m,
                                  const nrl_node *saved, nrl_arena *memory, nrl_node **settings, nrl_node **resolved)
{
    NRL_TRY(low_adopt(options, given, m, saved, memory, settings, resolved));
    nrl_node_put(memory, *settings, "more", nrl_node_new_bool(memory, true));
    return NRL_OK;
}

static nrl_status silent_adopt(const void *options, const nrl_node *given, const nrl_adapter_model *m,
                               const nrl_node *saved, nrl_arena *memory, nrl_node **settings, nrl_node **resolved)
{
    NRL_TRY(low_adopt(options, given, m, saved, memory, settings, resolved));
    *resolved = nrl_node_new(memory, NRL_NODE_MAP);
    return NRL_OK;
}

static const char *long_summary(const void *self)
{
    (void)self;
    return "rank 2\nand more";
}

static const char *const odd_words[] = {"lora_r", "rank", NULL};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#endif
#define WRONG(nm, rule, ...) /* what differs */                                                                        \
    {                                                                                                                  \
        NRL_PLUGIN(NRL_KIND_ADAPTER, nrl_adapter, low_options, rows, #nm, "0", rule),                                  \
            .starts_as_base = 1, .choose = low_choose, .adopt = low_adopt, .create = low_create, .destroy = free,      \
            .declare = low_declare, .forward = low_forward, .merge = low_merge, __VA_ARGS__                            \
    }
static const nrl_adapter wrong[] = {
    WRONG(right, "nothing is wrong with it", .known_as = NULL),
    WRONG(strideless, "targets are read by their stride", .choose = strideless_choose),
    WRONG(stranger, "chosen modules are those of the model", .choose = stranger_choose),
    WRONG(choosy, "settings are chosen for a model", .choose = choosy_choose),
    WRONG(counting, "settings are all that an instance needs", .create = counting_create),
    WRONG(nameless, "names of parameters are unique and contain the module", .create = nameless_create),
    WRONG(empty, "each module declares parameters", .declare = empty_declare),
    WRONG(moved, "the initial product is that of the frozen weight", .declare = moved_declare),
    WRONG(parted, "two ranks have the gradients of one rank", .declare = parted_declare),
    WRONG(whole, "two ranks compute what one rank computes", .declare = whole_declare),
    WRONG(detached, "gradients agree with finite differences", .forward = detached_forward),
    WRONG(secret, "an adapter that draws random numbers declares it", .forward = secret_forward),
    WRONG(drifting, "equal steps give equal bits", .forward = drifting_forward),
    WRONG(biasless, "the merged weight gives the same product", .forward = biasless_forward),
    WRONG(halved, "the merged weight gives the same product", .merge = halved_merge),
    WRONG(from_start, "any range merges as a part of the whole", .merge = from_start_merge),
    WRONG(inventing, "an adapter from disk keeps its settings", .adopt = inventing_adopt),
    WRONG(silent, "an adapter from disk gives a value for every option", .adopt = silent_adopt),
    WRONG(verbose, "a summary is one line", .summary = long_summary),
    WRONG(misnaming, "aliases refer to existing options", .known_as = odd_words),
    WRONG(lacks_merge, "merge is NULL", .merge = NULL),
};
#undef WRONG
#pragma GCC diagnostic pop

#endif
