/*
 * ia3.c - (IA)^3 (Liu et al. 2022): one trained factor for each output of a linear module or, for
 * some modules, for each input:  y = l * (x W^T) + b,  or  y = (l * x) W^T + b,  where l begins as
 * 1. Merging scales rows or columns of W.
 */
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const nrl_node *outputs, *inputs; /* lists of the last parts of names */
} ia3_options;

static const nrl_option rows[] = {
    NRL_OPT_NODE(ia3_options, outputs, "[k_proj, v_proj]", "modules whose outputs are scaled: last parts of names"),
    NRL_OPT_NODE(ia3_options, inputs, "[down_proj]", "modules whose inputs are scaled"),
};

typedef struct {
    char *name; /* of the parameter */
    bool inputs;
} ia3_module;

typedef struct {
    int32_t n;
    ia3_module *modules;
} ia3;

/* ---- settings: {modules: [{module, inputs}]} ---- */

static bool ia3_names(const nrl_node *words, const char *module)
{
    const char *dot = strrchr(module, '.'), *last = dot ? dot + 1 : module;
    for (size_t i = 0; i < nrl_node_size(words); i++)
        if (!strcmp(nrl_node_string(nrl_node_at(words, i), ""), last)) return true;
    return false;
}

static nrl_status ia3_choose(const void *options, const nrl_adapter_model *model, nrl_arena *memory,
                             nrl_node **settings)
{
    const ia3_options *o = options;
    nrl_node *list = nrl_node_new(memory, NRL_NODE_LIST);
    for (int64_t i = 0; i < model->n_targets; i++) {
        const nrl_adapter_target *t = (const void *)((const char *)model->targets + (size_t)i * model->target_size);
        bool inputs = ia3_names(o->inputs, t->module);
        if (!inputs && !ia3_names(o->outputs, t->module)) continue;
        nrl_node *one = nrl_node_new(memory, NRL_NODE_MAP);
        nrl_node_put(memory, one, "module", nrl_node_new_string(memory, t->module, strlen(t->module)));
        nrl_node_put(memory, one, "inputs", nrl_node_new_bool(memory, inputs));
        nrl_node_append(memory, list, one);
    }
    if (!nrl_node_size(list))
        return nrl_fail(NRL_ERR_CONFIG, "%s: outputs and inputs match no linear module of this model", model->section);
    *settings = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, *settings, "modules", list);
    return NRL_OK;
}

static void ia3_destroy(void *self)
{
    ia3 *s = self;
    for (int32_t i = 0; i < s->n; i++)
        free(s->modules[i].name);
    free(s->modules);
    free(s);
}

static nrl_status ia3_create(const nrl_node *settings, void **self)
{
    static const char suffix[] = ".ia3_l";
    const nrl_node *list = nrl_node_find(settings, "modules");
    size_t n = nrl_node_size(list);
    ia3 *s = calloc(1, sizeof *s);
    if (s) s->modules = calloc(n + 1, sizeof *s->modules);
    if (!s || !s->modules) {
        free(s);
        return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %zu modules", n);
    }
    for (size_t i = 0; i < n; i++) {
        const char *module = nrl_node_string(nrl_node_find(nrl_node_at(list, i), "module"), "");
        size_t size = strlen(module);
        char *name = malloc(size + sizeof suffix);
        if (!name) {
            ia3_destroy(s);
            return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a name");
        }
        memcpy(name, module, size);
        memcpy(name + size, suffix, sizeof suffix);
        s->modules[s->n++] = (ia3_module){name, nrl_node_bool(nrl_node_find(nrl_node_at(list, i), "inputs"), false)};
    }
    *self = s;
    return NRL_OK;
}

/* ---- the product ---- */

/* l is a matrix of one column, so that nrl_op_linear turns it into a row and sums its gradient. It
 * is divided along the dimension that it scales; if ranks divide the other dimension, each rank has
 * a part of its gradient. */
static nrl_status ia3_declare(void *self, int32_t module, const nrl_adapter_target *t, nrl_adapter_builder *builder)
{
    const ia3_module *m = &((const ia3 *)self)->modules[module];
    nrl_param_spec l = {.size = sizeof l,
                        .name = m->name,
                        .n_dims = 2,
                        .dims = {m->inputs ? t->inputs : t->outputs, 1},
                        .init = NRL_INIT_ONES};
    if (t->tp == NRL_TP_COLUMN || t->tp == NRL_TP_ROW) {
        bool divided = m->inputs == (t->tp == NRL_TP_ROW);
        l.tp = divided ? NRL_TP_COLUMN : NRL_TP_PARTIAL;
        l.groups = divided && !m->inputs ? t->groups : 0;
    }
    return nrl_adapter_build_param(builder, &l);
}

static nrl_status ia3_scale(nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x, nrl_tensor **y)
{
    nrl_tensor *one, *l;
    NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(x), 2, (int64_t[]){1, 1}, &one));
    NRL_TRY(nrl_tensor_fill(ctx, one, 1));
    NRL_TRY(nrl_op_linear(ctx, one, nrl_adapter_param(site, 0), NULL, &l));
    return nrl_op_binary(ctx, NRL_BINARY_MUL, x, l, y);
}

static nrl_status ia3_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                              nrl_tensor **y)
{
    nrl_tensor *scaled;
    if (((const ia3 *)self)->modules[module].inputs) {
        NRL_TRY(ia3_scale(ctx, site, x, &scaled));
        return nrl_adapter_product(ctx, site, scaled, NULL, NULL, 0, y);
    }
    NRL_TRY(nrl_adapter_weight_product(ctx, site, x, &scaled));
    NRL_TRY(ia3_scale(ctx, site, scaled, y));
    return nrl_adapter_add_bias(ctx, site, *y);
}

static void ia3_merge(void *self, int32_t module, const nrl_adapter_target *t, const float *const *values,
                      int64_t begin, int64_t n, float *w)
{
    bool inputs = ((const ia3 *)self)->modules[module].inputs;
    for (int64_t i = begin; i < begin + n; i++)
        w[i - begin] *= values[0][inputs ? i % t->inputs : i / t->inputs];
}

static const nrl_adapter table = {
    NRL_PLUGIN(NRL_KIND_ADAPTER, nrl_adapter, ia3_options, rows, "ia3", "0.1", "learned factors of inputs or outputs"),
    .starts_as_base = 1,
    .choose = ia3_choose,
    .create = ia3_create,
    .destroy = ia3_destroy,
    .declare = ia3_declare,
    .forward = ia3_forward,
    .merge = ia3_merge,
};
NRL_EXPORT(table)
