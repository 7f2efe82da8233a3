/*
 * lora.c - low-rank adapters (Hu et al. 2021):
 *   y = x W^T + b + scale (dropout(x) A^T) B^T,   A [r,K], B [M,r],   scale = alpha / r, or alpha / sqrt(r) (rslora)
 * W + scale B A is never formed in training. A is uniform within 1/sqrt(K) (as in peft:
 * kaiming_uniform with a = sqrt 5), B is zero. Names are those of peft.
 */
#include "targets.h"
#include "base/node.h"
#include <math.h>
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

typedef struct {
    int64_t rank;
    double alpha, dropout;
    bool rslora;
    const nrl_node *targets; /* a string or a list of strings */
} lora_options;

static const nrl_option rows[] = {
    NRL_OPT_INT(lora_options, rank, "16", 1, 65536, "rank of an adapter's two matrices (peft's r)"),
    NRL_OPT_F64(lora_options, alpha, "32", 1e-9, 1e9, "the product of the matrices is multiplied by alpha / rank"),
    NRL_OPT_BOOL(lora_options, rslora, "false", "multiply by alpha / sqrt(rank) instead"),
    NRL_OPT_F64(lora_options, dropout, "0", 0, 0.999999, "dropout of the inputs of adapters, in training"),
    NRL_OPT_NODE(lora_options, targets, "all-linear",
                 "modules with adapters: all-linear, a list of (last parts of) names, or a regular expression of "
                 "whole names"),
};

/* Pairs: the name in another program, the name of the option here. */
/* clang-format off */
static const char *const known_as[] = {
    "lora_alpha", "alpha",
    "lora_dropout", "dropout",
    "lora_r", "rank",
    "lora_rank", "rank",
    "lora_target", "targets",
    "lora_target_modules", "targets",
    "peft_config", "",
    "r", "rank",
    "target_modules", "targets",
    "use_peft", "",
    "use_rslora", "rslora",
    NULL,
};
/* clang-format on */

static nrl_status lora_check(const void *options)
{
    const nrl_node *t = ((const lora_options *)options)->targets;
    if (nrl_node_kind(t) == NRL_NODE_STRING) return NRL_OK;
    if (nrl_node_kind(t) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_CONFIG, "targets: expected a string or a list of strings");
    if (!nrl_node_size(t))
        return nrl_fail(NRL_ERR_CONFIG, "targets: an empty list, expected all-linear or names of modules");
    for (size_t i = 0; i < nrl_node_size(t); i++)
        if (nrl_node_kind(nrl_node_at(t, i)) != NRL_NODE_STRING)
            return nrl_fail(NRL_ERR_CONFIG, "targets: expected strings");
    return NRL_OK;
}

/* ---- settings: {rslora, dropout, modules: [{module, rank, alpha}]} ---- */

static nrl_status lora_choose(const void *options, const nrl_adapter_model *model, nrl_arena *memory,
                              nrl_node **settings)
{
    const lora_options *o = options;
    lora_targets targets;
    NRL_TRY(targets_choose(o->targets, model, memory, &targets));
    nrl_node *map = *settings = nrl_node_new(memory, NRL_NODE_MAP), *list = nrl_node_new(memory, NRL_NODE_LIST);
    nrl_node_put(memory, map, "rslora", nrl_node_new_bool(memory, o->rslora));
    nrl_node_put(memory, map, "dropout", nrl_node_new_f64(memory, o->dropout));
    for (int64_t i = 0; i < targets.n; i++) {
        const char *module = targets.modules[i];
        nrl_node *one = nrl_node_new(memory, NRL_NODE_MAP);
        nrl_node_put(memory, one, "module", nrl_node_new_string(memory, module, strlen(module)));
        nrl_node_put(memory, one, "rank", nrl_node_new_int(memory, o->rank));
        nrl_node_put(memory, one, "alpha", nrl_node_new_f64(memory, o->alpha));
        nrl_node_append(memory, list, one);
    }
    nrl_node_put(memory, map, "modules", list);
    return NRL_OK;
}

/* Ranks and alphas may differ between modules: a config that is written from settings has those of
 * the first module. */
static const nrl_node *lora_setting(const nrl_node *settings, const char *key)
{
    const nrl_node *own = nrl_node_find(settings, key);
    return own ? own : nrl_node_find(nrl_node_at(nrl_node_find(settings, "modules"), 0), key);
}

/* A value that differs from the one on disk would be ignored. */
static nrl_status lora_check_given(const char *section, const nrl_node *given, const char *key, double value,
                                   double saved)
{
    const nrl_node *at = nrl_node_find(given, key);
    if (nrl_node_kind(at) <= NRL_NODE_NULL || value == saved) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: %s.%s: the adapter of %s.use has its own value, %g; remove the option",
                    nrl_node_place(at), section, key, section, saved);
}

static nrl_status lora_adopt(const void *options, const nrl_node *given, const nrl_adapter_model *model,
                             const nrl_node *saved, nrl_arena *memory, nrl_node **settings, nrl_node **resolved)
{
    const lora_options *o = options;
    const nrl_node *modules = nrl_node_find(saved, "modules"), *at = nrl_node_find(given, "targets");
    int64_t rank = nrl_node_int(lora_setting(saved, "rank"), 0);
    double alpha = nrl_node_f64(lora_setting(saved, "alpha"), 0);
    bool rslora = nrl_node_bool(lora_setting(saved, "rslora"), false);
    NRL_TRY(lora_check_given(model->section, given, "rank", (double)o->rank, (double)rank));
    NRL_TRY(lora_check_given(model->section, given, "alpha", o->alpha, alpha));
    NRL_TRY(lora_check_given(model->section, given, "rslora", o->rslora, rslora));
    nrl_node *names = nrl_node_new(memory, NRL_NODE_LIST);
    for (size_t i = 0; i < nrl_node_size(modules); i++) {
        const char *module = nrl_node_string(nrl_node_find(nrl_node_at(modules, i), "module"), "");
        nrl_node_append(memory, names, nrl_node_new_string(memory, module, strlen(module)));
    }
    if (nrl_node_kind(at) > NRL_NODE_NULL) {
        lora_targets targets;
        NRL_TRY(targets_choose(o->targets, model, memory, &targets));
        bool same = (size_t)targets.n == nrl_node_size(names);
        for (size_t i = 0; same && i < nrl_node_size(names); i++)
            same = targets_has(&targets, nrl_node_string(nrl_node_at(names, i), ""));
        if (!same)
            return nrl_fail(NRL_ERR_CONFIG,
                            "%s: %s.targets: the adapter of %s.use has its own %d modules; remove the option",
                            nrl_node_place(at), model->section, model->section, (int)nrl_node_size(names));
    }
    /* Dropout is a setting of the run, not of the adapter: the value in the config has precedence
     * if there is one. */
    bool own_dropout = nrl_node_kind(nrl_node_find(given, "dropout")) > NRL_NODE_NULL;
    double dropout = own_dropout ? o->dropout : nrl_node_f64(lora_setting(saved, "dropout"), 0);
    *settings = node_copy(memory, saved);
    nrl_node_put(memory, *settings, "dropout", nrl_node_new_f64(memory, dropout));
    *resolved = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, *resolved, "rank", nrl_node_new_int(memory, rank));
    nrl_node_put(memory, *resolved, "alpha", nrl_node_new_f64(memory, alpha));
    nrl_node_put(memory, *resolved, "rslora", nrl_node_new_bool(memory, rslora));
    nrl_node_put(memory, *resolved, "dropout", nrl_node_new_f64(memory, dropout));
    nrl_node_put(memory, *resolved, "targets", names);
    return NRL_OK;
}

/* ---- an instance ---- */

typedef struct {
    const char *names[2];
    int64_t rank;
    double scale;
} lora_module;

typedef struct {
    arena memory;
    double dropout;
    const char *summary;
    int64_t n;
    lora_module *modules;
} lora;

static void lora_destroy(void *self)
{
    lora *l = self;
    arena_free(&l->memory);
    free(l);
}

static nrl_status lora_create(const nrl_node *settings, void **self)
{
    const nrl_node *list = nrl_node_find(settings, "modules");
    size_t n = nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_size(list) : 0;
    bool rslora = nrl_node_bool(nrl_node_find(settings, "rslora"), false);
    lora *l = mem_alloc(sizeof *l);
    l->dropout = nrl_node_f64(nrl_node_find(settings, "dropout"), 0);
    l->modules = arena_alloc(&l->memory, (n + 1) * sizeof *l->modules);
    for (size_t i = 0; i < n; i++) {
        const nrl_node *at = nrl_node_at(list, i);
        const char *module = nrl_node_string(nrl_node_find(at, "module"), "");
        int64_t rank = nrl_node_int(nrl_node_find(at, "rank"), 0);
        double alpha = nrl_node_f64(nrl_node_find(at, "alpha"), NAN);
        if (!*module || rank < 1 || !isfinite(alpha)) {
            lora_destroy(l);
            return nrl_fail(NRL_ERR_CORRUPT, "adapter %zu: no module, rank and alpha", i);
        }
        lora_module *m = &l->modules[l->n++];
        for (int k = 0; k < 2; k++)
            m->names[k] = arena_printf(&l->memory, "base_model.model.%s.lora_%c.weight", module, "AB"[k]);
        m->rank = rank;
        m->scale = alpha / (rslora ? sqrt((double)rank) : (double)rank);
    }
    l->summary =
        arena_printf(&l->memory, "rank %lld, alpha %g%s", (long long)nrl_node_int(lora_setting(settings, "rank"), 0),
                     nrl_node_f64(lora_setting(settings, "alpha"), 0), rslora ? " (rslora)" : "");
    if (l->dropout > 0) l->summary = arena_printf(&l->memory, "%s, dropout %g", l->summary, l->dropout);
    *self = l;
    return NRL_OK;
}

static const char *lora_summary(const void *self)
{
    return ((const lora *)self)->summary;
}

/* A and B are divided like the weight. COLUMN: each rank has rows of B, and a part of the gradient
 * of A. ROW: each rank has columns of A, whose product is a partial sum of the input of B. */
static nrl_status lora_declare(void *self, int32_t module, const nrl_adapter_target *t, nrl_adapter_builder *builder)
{
    const lora_module *m = &((const lora *)self)->modules[module];
    if (m->rank > t->outputs + t->inputs)
        return nrl_fail(NRL_ERR_CONFIG, "an adapter of rank %lld for '%s' [%lld, %lld], expected 1 to %lld",
                        (long long)m->rank, t->module, (long long)t->outputs, (long long)t->inputs,
                        (long long)(t->outputs + t->inputs));
    nrl_param_spec a = {.size = sizeof a,
                        .name = m->names[0],
                        .n_dims = 2,
                        .dims = {m->rank, t->inputs},
                        .init = NRL_INIT_UNIFORM,
                        .init_scale = 1 / sqrt((double)t->inputs),
                        .decay = true};
    nrl_param_spec b = {.size = sizeof b,
                        .name = m->names[1],
                        .n_dims = 2,
                        .dims = {t->outputs, m->rank},
                        .init = NRL_INIT_ZEROS,
                        .decay = true};
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

static nrl_status lora_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                               nrl_tensor **y)
{
    const lora *l = self;
    nrl_tensor *dropped = x, *u; /* u [R,r] */
    if (l->dropout > 0) NRL_TRY(nrl_adapter_dropout(ctx, site, x, l->dropout, &dropped));
    NRL_TRY(nrl_op_linear(ctx, dropped, nrl_adapter_param(site, 0), NULL, &u));
    return nrl_adapter_product(ctx, site, x, u, nrl_adapter_param(site, 1), l->modules[module].scale, y);
}

/* Row m of B A is sum_j B[m,j] A[j,:]: whole rows of A are added, which compilers vectorise. */
static void lora_merge(void *self, int32_t module, const nrl_adapter_target *t, const float *const *values,
                       int64_t begin, int64_t n, float *out)
{
    const lora_module *m = &((const lora *)self)->modules[module];
    const float *a = values[0], *b = values[1];
    int64_t k = t->inputs;
    for (int64_t done = 0; done < n;) {
        int64_t row = (begin + done) / k, column = (begin + done) % k;
        int64_t part = k - column < n - done ? k - column : n - done;
        for (int64_t j = 0; j < m->rank; j++) {
            const float factor = (float)(m->scale * (double)b[row * m->rank + j]), *from = a + j * k + column;
            for (int64_t i = 0; i < part; i++)
                out[done + i] += factor * from[i];
        }
        done += part;
    }
}

static bool lora_random(const void *self)
{
    return ((const lora *)self)->dropout > 0;
}

static const nrl_adapter table = {
    NRL_PLUGIN(NRL_KIND_ADAPTER, nrl_adapter, lora_options, rows, "lora", "0.1", "low-rank adapters of linear weights"),
    .plugin.check = lora_check,
    .starts_as_base = 1,
    .choose = lora_choose,
    .adopt = lora_adopt,
    .create = lora_create,
    .destroy = lora_destroy,
    .declare = lora_declare,
    .forward = lora_forward,
    .merge = lora_merge,
    .random = lora_random,
    .summary = lora_summary,
    .known_as = known_as,
};
NRL_EXPORT(table)
