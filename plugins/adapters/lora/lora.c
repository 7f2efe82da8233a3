/*
 * lora.c - low-rank adapters (Hu et al. 2021):
 *   y = x W^T + b + scale (dropout(x) A^T) B^T,   A [r,K], B [M,r],   scale = alpha / r, or alpha / sqrt(r) (rslora)
 * W + scale B A is never formed in training. A is uniform within 1/sqrt(K) (as in peft:
 * kaiming_uniform with a = sqrt 5), B is zero. Names are those of peft.
 *
 * With `dora` (Liu et al. 2024) each row of the weight has a trained length m [M] and the direction of W + scale B A:
 *   y = m / |W + scale B A| * (x W^T + scale (dropout(x) A^T) B^T) + b
 * where the lengths |.| of rows are constants for the gradient, as in peft (section 4.3 of the paper), and m begins
 * with those of W. With dropout, as in peft and the authors' code, with f the factor m / |W + scale B A|:
 *   y = x W^T + (f - 1) * dropout(x) W^T + f * scale (dropout(x) A^T) B^T + b
 */
#include "targets.h"
#include "base/node.h"
#include <math.h>
#include <nrl/custom_op.h>
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

enum { MAX_RANK = 65536 };
#define MAX_ALPHA 1e9

typedef struct {
    int64_t rank;
    double alpha, dropout;
    bool rslora, dora;
    const nrl_node *targets; /* a string or a list of strings */
    const nrl_node *rank_pattern, *alpha_pattern;
} lora_options;

static const nrl_option rows[] = {
    NRL_OPT_INT(lora_options, rank, "16", 1, MAX_RANK, "rank of the two matrices of an adapter (r in peft)"),
    NRL_OPT_F64(lora_options, alpha, "32", 1e-9, MAX_ALPHA,
                "the product of the two matrices is multiplied by alpha / rank"),
    NRL_OPT_BOOL(lora_options, rslora, "false",
                 "rsLoRA: multiply the product by alpha / sqrt(rank) instead of alpha / rank"),
    NRL_OPT_BOOL(lora_options, dora, "false",
                 "DoRA: train the magnitude of each row of the weight separately from its direction"),
    NRL_OPT_F64(lora_options, dropout, "0", 0, 0.999999, "dropout of the inputs of adapters during training"),
    NRL_OPT_NODE(lora_options, targets, "all-linear",
                 "modules with adapters: all-linear, a list of (last parts of) names, or a regular expression for "
                 "whole names"),
    NRL_OPT_NODE(
        lora_options, rank_pattern, "{}",
        "ranks of individual modules: a map from (last parts of) module names, or regular expressions, to ranks; the "
        "first match applies"),
    NRL_OPT_NODE(lora_options, alpha_pattern, "{}", "alphas of individual modules, in the form of rank_pattern"),
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
    "use_dora", "dora",
    "use_peft", "",
    "use_rslora", "rslora",
    NULL,
};
/* clang-format on */

static nrl_status lora_check_patterns(const char *key, const nrl_node *map, bool whole, double most)
{
    if (nrl_node_kind(map) > NRL_NODE_NULL && nrl_node_kind(map) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_CONFIG, "%s: expected a map of names to numbers", key);
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        double v = nrl_node_f64(nrl_node_at(map, i), NAN);
        if (!(v > 0 && v <= most) || (whole && v != floor(v)))
            return nrl_fail(NRL_ERR_CONFIG, "%s: the value of '%s': expected %s up to %g", key, nrl_node_key(map, i),
                            whole ? "a whole number from 1" : "a number above 0,", most);
    }
    return NRL_OK;
}

static nrl_status lora_check(const void *options)
{
    const lora_options *o = options;
    const nrl_node *t = o->targets;
    NRL_TRY(lora_check_patterns("rank_pattern", o->rank_pattern, true, MAX_RANK));
    NRL_TRY(lora_check_patterns("alpha_pattern", o->alpha_pattern, false, MAX_ALPHA));
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

/* ---- settings: {rslora, dora, dropout, modules: [{module, rank, alpha}]} ---- */

/* *value: that of the first pattern that matches the module, if there is one. Every pattern must match a module. */
static nrl_status lora_apply_patterns(const nrl_adapter_model *model, const char *key, const nrl_node *map,
                                      const lora_targets *targets, double *values)
{
    for (size_t i = nrl_node_size(map); i > 0; i--) {
        const nrl_node *at = nrl_node_at(map, i - 1);
        const char *pattern = nrl_node_key(map, i - 1);
        bool *matches, any = false;
        nrl_status st = targets_match_end(pattern, targets, &matches);
        for (int64_t k = 0; st == NRL_OK && k < targets->n; k++) {
            if (matches[k]) values[k] = nrl_node_f64(at, 0);
            any = any || matches[k];
        }
        if (st == NRL_OK && !any)
            st = nrl_fail(NRL_ERR_CONFIG, "it matches no module with an adapter, such as %s", targets->modules[0]);
        free(matches);
        if (st != NRL_OK) nrl_add_context("%s: %s.%s: '%s'", nrl_node_place(at), model->section, key, pattern);
        NRL_TRY(st);
    }
    return NRL_OK;
}

static nrl_status lora_choose(const void *options, const nrl_adapter_model *model, nrl_arena *memory,
                              nrl_node **settings)
{
    const lora_options *o = options;
    lora_targets targets;
    NRL_TRY(targets_choose(o->targets, model, memory, &targets));
    nrl_node *map = *settings = nrl_node_new(memory, NRL_NODE_MAP), *list = nrl_node_new(memory, NRL_NODE_LIST);
    double *ranks = nrl_arena_alloc(memory, 2 * (size_t)targets.n * sizeof *ranks), *alphas = ranks + targets.n;
    for (int64_t i = 0; i < targets.n; i++) {
        ranks[i] = (double)o->rank;
        alphas[i] = o->alpha;
    }
    NRL_TRY(lora_apply_patterns(model, "rank_pattern", o->rank_pattern, &targets, ranks));
    NRL_TRY(lora_apply_patterns(model, "alpha_pattern", o->alpha_pattern, &targets, alphas));
    nrl_node_put(memory, map, "rslora", nrl_node_new_bool(memory, o->rslora));
    if (o->dora) nrl_node_put(memory, map, "dora", nrl_node_new_bool(memory, true));
    nrl_node_put(memory, map, "dropout", nrl_node_new_f64(memory, o->dropout));
    for (int64_t i = 0; i < targets.n; i++) {
        const char *module = targets.modules[i];
        nrl_node *one = nrl_node_new(memory, NRL_NODE_MAP);
        nrl_node_put(memory, one, "module", nrl_node_new_string(memory, module, strlen(module)));
        nrl_node_put(memory, one, "rank", nrl_node_new_int(memory, (int64_t)ranks[i]));
        nrl_node_put(memory, one, "alpha", nrl_node_new_f64(memory, alphas[i]));
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
    bool dora = nrl_node_bool(lora_setting(saved, "dora"), false);
    for (size_t i = 0; i < nrl_node_size(given); i++)
        if (strstr(nrl_node_key(given, i), "_pattern") && nrl_node_size(nrl_node_at(given, i)))
            return nrl_fail(
                NRL_ERR_CONFIG, "%s: %s.%s: the adapter of %s.use has its own ranks and alphas; remove the option",
                nrl_node_place(nrl_node_at(given, i)), model->section, nrl_node_key(given, i), model->section);
    NRL_TRY(lora_check_given(model->section, given, "dora", o->dora, dora));
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
    nrl_node_put(memory, *resolved, "rank_pattern", nrl_node_new(memory, NRL_NODE_MAP));
    nrl_node_put(memory, *resolved, "alpha_pattern", nrl_node_new(memory, NRL_NODE_MAP));
    nrl_node_put(memory, *resolved, "dora", nrl_node_new_bool(memory, dora));
    nrl_node_put(memory, *resolved, "dropout", nrl_node_new_f64(memory, dropout));
    nrl_node_put(memory, *resolved, "targets", names);
    return NRL_OK;
}

/* ---- an instance ---- */

typedef struct {
    const char *names[3]; /* A, B, m */
    int64_t rank;
    double scale;
} lora_module;

typedef struct {
    arena memory;
    double dropout;
    bool dora;
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
    l->dora = nrl_node_bool(nrl_node_find(settings, "dora"), false);
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
        m->names[2] = arena_printf(&l->memory, "base_model.model.%s.lora_magnitude_vector", module);
        m->rank = rank;
        m->scale = alpha / (rslora ? sqrt((double)rank) : (double)rank);
    }
    l->summary =
        arena_printf(&l->memory, "rank %lld, alpha %g%s", (long long)nrl_node_int(lora_setting(settings, "rank"), 0),
                     nrl_node_f64(lora_setting(settings, "alpha"), 0), rslora ? " (rslora)" : "");
    if (l->dora) l->summary = arena_printf(&l->memory, "dora, %s", l->summary);
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
    NRL_TRY(nrl_adapter_build_param(builder, &b));
    /* COLUMN: each rank has the lengths of its rows. ROW: it has all, and a part of their gradient. */
    nrl_param_spec length = {.size = sizeof length,
                             .name = m->names[2],
                             .n_dims = 1,
                             .dims = {t->outputs},
                             .init = NRL_INIT_ROW_NORM,
                             .tp = t->tp == NRL_TP_ROW ? NRL_TP_PARTIAL : b.tp,
                             .groups = b.groups};
    return ((const lora *)self)->dora ? nrl_adapter_build_param(builder, &length) : NRL_OK;
}

/* m / |W + scale B A|, [M] f32; only m has a gradient. */
static nrl_status lora_row_factors(nrl_ctx *ctx, const nrl_adapter_site *site, double scale, nrl_tensor **factors)
{
    nrl_tensor *w, *a, *b, *m, *t;
    NRL_TRY(nrl_op_param(ctx, nrl_adapter_weight(site), NRL_DTYPE_F32, &w));
    NRL_TRY(nrl_op_param(ctx, nrl_adapter_param(site, 0), NRL_DTYPE_F32, &a));
    NRL_TRY(nrl_op_param(ctx, nrl_adapter_param(site, 1), NRL_DTYPE_F32, &b));
    NRL_TRY(nrl_op_param(ctx, nrl_adapter_param(site, 2), NRL_DTYPE_F32, &m));
    NRL_TRY(nrl_op_detach(ctx, a, &a));
    NRL_TRY(nrl_op_detach(ctx, b, &b));
    NRL_TRY(nrl_op_matmul(ctx, b, a, false, false, &t)); /* [M,K] */
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, t, scale, 0, &t));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, w, t, &t));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, t, 0, 0, &t));
    NRL_TRY(nrl_op_sum_columns(ctx, t, &t));
    if (nrl_param_tp(nrl_adapter_weight(site)) == NRL_TP_ROW) /* of the columns on this rank */
        NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_SUM, t, &t));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQRT, t, 0, 0, &t));
    return nrl_op_binary(ctx, NRL_BINARY_DIV, m, t, factors);
}

/* y [R,M] * factors [M] */
static nrl_status lora_scale_columns(nrl_ctx *ctx, nrl_tensor *factors, nrl_tensor **y)
{
    NRL_TRY(nrl_op_reshape(ctx, factors, 2, (int64_t[]){1, nrl_tensor_numel(factors)}, &factors));
    NRL_TRY(nrl_op_cast(ctx, factors, nrl_tensor_dtype(*y), &factors));
    return nrl_op_binary(ctx, NRL_BINARY_MUL, *y, factors, y);
}

/* dropped: x after dropout, or x; u = dropped A^T */
static nrl_status lora_forward_dora(nrl_ctx *ctx, const nrl_adapter_site *site, double scale, nrl_tensor *x,
                                    nrl_tensor *dropped, nrl_tensor *u, nrl_tensor **y)
{
    nrl_tensor *factors, *added, *product;
    NRL_TRY(lora_row_factors(ctx, site, scale, &factors));
    NRL_TRY(nrl_adapter_weight_product(ctx, site, x, y));
    NRL_TRY(nrl_op_linear(ctx, u, nrl_adapter_param(site, 1), NULL, &added));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, added, scale, 0, &added));
    if (dropped == x) {
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, *y, added, y));
        NRL_TRY(lora_scale_columns(ctx, factors, y));
        return nrl_adapter_add_bias(ctx, site, *y);
    }
    NRL_TRY(lora_scale_columns(ctx, factors, &added));
    NRL_TRY(nrl_adapter_weight_product(ctx, site, dropped, &product));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, factors, 1, -1, &factors));
    NRL_TRY(lora_scale_columns(ctx, factors, &product));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, *y, product, y));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, *y, added, y));
    return nrl_adapter_add_bias(ctx, site, *y);
}

static nrl_status lora_forward(void *self, int32_t module, nrl_ctx *ctx, const nrl_adapter_site *site, nrl_tensor *x,
                               nrl_tensor **y)
{
    const lora *l = self;
    nrl_tensor *dropped = x, *u; /* u [R,r] */
    if (l->dropout > 0) NRL_TRY(nrl_adapter_dropout(ctx, site, x, l->dropout, &dropped));
    NRL_TRY(nrl_op_linear(ctx, dropped, nrl_adapter_param(site, 0), NULL, &u));
    if (l->dora) return lora_forward_dora(ctx, site, l->modules[module].scale, x, dropped, u, y);
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
    /* whole rows: see the table */
    for (int64_t row = 0; ((const lora *)self)->dora && row < n / k; row++) {
        double squares = 0;
        for (int64_t i = 0; i < k; i++)
            squares += (double)out[row * k + i] * (double)out[row * k + i];
        const double factor = squares > 0 ? (double)values[2][begin / k + row] / sqrt(squares) : 0;
        for (int64_t i = 0; i < k; i++)
            out[row * k + i] = (float)(factor * (double)out[row * k + i]);
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
    .merges_rows = 1,
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
