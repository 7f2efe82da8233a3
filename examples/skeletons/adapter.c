/*
 * @NAME@.c - a low-rank product added to each linear weight: replace it by your own adapter.
 *   y = x W^T + b + strength (x A^T) B^T,   A [rank, inputs], B [outputs, rank]
 * nrl/adapter.h describes the arguments and the contract of each member.
 */
#include <nrl/nrl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t rank;
    double strength;
} @NAME@_options;

static const nrl_option @NAME@_rows[] = {
    NRL_OPT_INT(@NAME@_options, rank, "4", 1, 65536, "columns of A and rows of B"),
    NRL_OPT_F64(@NAME@_options, strength, "1.0", 0, 100, "factor of the product that is added"),
};

/* ---- settings, which checkpoints keep: {rank, strength, modules: [{module}]} ---- */

static nrl_status @NAME@_choose(const void *options, const nrl_adapter_model *model, nrl_arena *memory,
                                nrl_node **settings)
{
    const @NAME@_options *o = options;
    nrl_node *list = nrl_node_new(memory, NRL_NODE_LIST);
    for (int64_t i = 0; i < model->n_targets; i++) { /* this example adapts every linear weight of the model */
        const nrl_adapter_target *t = (const void *)((const char *)model->targets + (size_t)i * model->target_size);
        nrl_node *one = nrl_node_new(memory, NRL_NODE_MAP);
        nrl_node_put(memory, one, "module", nrl_node_new_string(memory, t->module, strlen(t->module)));
        nrl_node_append(memory, list, one);
    }
    *settings = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, *settings, "rank", nrl_node_new_int(memory, o->rank));
    nrl_node_put(memory, *settings, "strength", nrl_node_new_f64(memory, o->strength));
    nrl_node_put(memory, *settings, "modules", list);
    return NRL_OK;
}

/* ---- an instance ---- */

enum { MAX_NAME = 256 };

typedef struct {
    char a[MAX_NAME], b[MAX_NAME]; /* names of the parameters on disk */
} @NAME@_names;

typedef struct {
    int64_t rank;
    double strength;
    @NAME@_names *names; /* [modules] */
} @NAME@_self;

static void @NAME@_destroy(void *self)
{
    free(((@NAME@_self *)self)->names);
    free(self);
}

static nrl_status @NAME@_create(const nrl_node *settings, void **self)
{
    const nrl_node *list = nrl_node_find(settings, "modules");
    size_t n = nrl_node_size(list);
    @NAME@_self *s = calloc(1, sizeof *s);
    if (s) s->names = calloc(n + 1, sizeof *s->names);
    if (!s || !s->names) {
        free(s);
        return nrl_fail(NRL_ERR_MEMORY, "cannot allocate an adapter of %zu modules", n);
    }
    s->rank = nrl_node_int(nrl_node_find(settings, "rank"), 0);
    s->strength = nrl_node_f64(nrl_node_find(settings, "strength"), NAN);
    bool valid = s->rank > 0 && isfinite(s->strength);
    for (size_t i = 0; i < n; i++) {
        const char *module = nrl_node_string(nrl_node_find(nrl_node_at(list, i), "module"), "");
        int size = snprintf(s->names[i].a, MAX_NAME, "%s.@NAME@_a", module);
        snprintf(s->names[i].b, MAX_NAME, "%s.@NAME@_b", module);
        valid = valid && *module && size < MAX_NAME;
    }
    if (!valid) {
        @NAME@_destroy(s);
        return nrl_fail(NRL_ERR_CORRUPT, "expected rank, strength, and modules with names of at most %d bytes",
                        MAX_NAME - 16);
    }
    *self = s;
    return NRL_OK;
}

/* With tensor parallelism W is divided by rows or by columns, and the parameters are divided to
 * match. */
static nrl_status @NAME@_declare(void *self, int32_t module, const nrl_adapter_target *t, nrl_adapter_builder *builder)
{
    const @NAME@_self *s = self;
    nrl_param_spec a = {.size = sizeof a,
                        .name = s->names[module].a,
                        .n_dims = 2,
                        .dims = {s->rank, t->inputs},
                        .init = NRL_INIT_UNIFORM,
                        .init_scale = 1 / sqrt((double)t->inputs)};
    nrl_param_spec b = {.size = sizeof b,
                        .name = s->names[module].b,
                        .n_dims = 2,
                        .dims = {t->outputs, s->rank},
                        .init = NRL_INIT_ZEROS};
    if (t->tp == NRL_TP_COLUMN) {
        a.tp = NRL_TP_PARTIAL;
        b.tp = NRL_TP_COLUMN;
        b.groups = t->groups;
    } else if (t->tp == NRL_TP_ROW) {
        a.tp = NRL_TP_ROW;
        b.tp = NRL_TP_PARTIAL;
    }
    NRL_TRY(nrl_adapter_build_param(builder, &a));
    return nrl_adapter_build_param(builder, &b);
}

static nrl_status @NAME@_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                                 nrl_tensor **y)
{
    const @NAME@_self *s = self;
    nrl_tensor *u; /* x A^T, [R, rank] */
    (void)module;
    NRL_TRY(nrl_op_linear(ctx, x, nrl_adapter_param(site, 0), NULL, &u));
    return nrl_adapter_product(ctx, site, x, u, nrl_adapter_param(site, 1), s->strength, y);
}

/* W += strength B A, for elements [begin, begin + n) of W. */
static void @NAME@_merge(void *self, int32_t module, const nrl_adapter_target *t, const float *const *values,
                         int64_t begin, int64_t n, float *w)
{
    const @NAME@_self *s = self;
    const float *a = values[0], *b = values[1];
    (void)module;
    for (int64_t i = begin; i < begin + n; i++) {
        int64_t row = i / t->inputs, column = i % t->inputs;
        double sum = 0;
        for (int64_t k = 0; k < s->rank; k++)
            sum += (double)b[row * s->rank + k] * (double)a[k * t->inputs + column];
        w[i - begin] += (float)(s->strength * sum);
    }
}

static const nrl_adapter @NAME@ = {
    NRL_PLUGIN(NRL_KIND_ADAPTER, nrl_adapter, @NAME@_options, @NAME@_rows, "@NAME@", "0.1",
               "one line for `nrl plugins`"),
    .starts_as_base = 1, /* B begins at zero */
    .choose = @NAME@_choose,
    .create = @NAME@_create,
    .destroy = @NAME@_destroy,
    .declare = @NAME@_declare,
    .forward = @NAME@_forward,
    .merge = @NAME@_merge,
};
NRL_EXPORT(@NAME@)
