/*
 * build.c - the builder that a model plugin's `layout` fills, and creation and destruction of models.
 * A wrong declaration of a plugin is NRL_ERR_BUG or NRL_ERR_DATA and names the parameter. Sizes come from a file, so
 * every product is checked for overflow.
 */
#include "model/model.h"
#include <stdlib.h>
#include <string.h>

/* Units and parameters grow in malloc'd arrays and move to the model's arena at the end. */
typedef struct {
    const char *name;
    int32_t n_uses, capacity;
    nrl_param **uses;
} draft_unit;

struct nrl_builder {
    model *m;
    int32_t n_units, units_capacity;
    draft_unit *units;
    int32_t n_params, params_capacity;
    nrl_param **params;
};

enum { MAX_UNITS = 1 << 16 };

static int32_t grown(int32_t n)
{
    return n ? n * 2 : 16;
}

nrl_param *model_param_new(model *m, const nrl_param_spec *spec)
{
    arena *a = &m->memory;
    nrl_param *p = arena_alloc(a, sizeof *p);
    param_init(p, arena_alloc(a, sizeof(nrl_part)), arena_strdup(a, spec->name), spec->n_dims, spec->dims);
    p->decay = spec->decay;
    p->init = spec->init;
    p->init_scale = spec->init_scale;
    return p;
}

/* ---- what plugins call ---- */

nrl_status nrl_build_unit(nrl_builder *b, const char *name, int32_t *unit)
{
    if (b->n_units == MAX_UNITS) return nrl_fail(NRL_ERR_DATA, "more than %d units", (int)MAX_UNITS);
    if (b->n_units == b->units_capacity) {
        draft_unit *all = mem_try_grow(b->units, (size_t)grown(b->n_units) * sizeof *all, "the units of a model");
        if (!all) return NRL_ERR_MEMORY;
        b->units = all;
        b->units_capacity = grown(b->n_units);
    }
    b->units[b->n_units] = (draft_unit){.name = arena_strdup(&b->m->memory, name)};
    *unit = b->n_units++;
    return NRL_OK;
}

nrl_status nrl_build_use(nrl_builder *b, int32_t unit, nrl_param *param)
{
    if (unit < 0 || unit >= b->n_units)
        return nrl_fail(NRL_ERR_BUG, "parameter '%s': unit %d is not declared", param->name, unit);
    draft_unit *u = &b->units[unit];
    for (int32_t i = 0; i < u->n_uses; i++)
        if (u->uses[i] == param) return NRL_OK;
    if (u->n_uses == u->capacity) {
        nrl_param **all = mem_try_grow(u->uses, (size_t)grown(u->n_uses) * sizeof *all, "the uses of parameters");
        if (!all) return NRL_ERR_MEMORY;
        u->uses = all;
        u->capacity = grown(u->n_uses);
    }
    u->uses[u->n_uses++] = param;
    return NRL_OK;
}

/* A copy of the specification in the size that this core knows; the plugin may know a smaller or larger struct. */
static nrl_param_spec known_spec(const nrl_param_spec *spec)
{
    nrl_param_spec s = {0};
    memcpy(&s, spec, spec->size < sizeof s ? spec->size : sizeof s);
    return s;
}

nrl_status nrl_build_param(nrl_builder *b, int32_t unit, const nrl_param_spec *spec, nrl_param **param)
{
    nrl_param_spec s = known_spec(spec);
    int64_t numel = 1;
    if (s.n_dims < 1 || s.n_dims > NRL_MAX_DIMS)
        return nrl_fail(NRL_ERR_BUG, "parameter '%s' has %d dimensions, expected 1 to %d", s.name, s.n_dims,
                        NRL_MAX_DIMS);
    for (int i = 0; i < s.n_dims; i++)
        if (s.dims[i] < 1 || __builtin_mul_overflow(numel, s.dims[i], &numel))
            return nrl_fail(NRL_ERR_DATA, "parameter '%s': dimension %d is %lld, expected a positive size", s.name, i,
                            (long long)s.dims[i]);
    if (s.groups < 0 || (s.groups > 1 && s.dims[0] % s.groups))
        return nrl_fail(NRL_ERR_BUG, "parameter '%s': dimension 0 is %lld, expected a multiple of its %d groups",
                        s.name, (long long)s.dims[0], s.groups);
    if (numel > INT64_MAX / 64)
        return nrl_fail(NRL_ERR_DATA, "parameter '%s' is too large: %lld elements", s.name, (long long)numel);
    if (s.transposed && s.n_dims != 2)
        return nrl_fail(NRL_ERR_BUG, "parameter '%s' is stored transposed and has %d dimensions, expected 2", s.name,
                        s.n_dims);
    if (b->n_params == b->params_capacity) {
        nrl_param **all = mem_try_grow(b->params, (size_t)grown(b->n_params) * sizeof *all, "a model's parameters");
        if (!all) return NRL_ERR_MEMORY;
        b->params = all;
        b->params_capacity = grown(b->n_params);
    }
    nrl_param *p = model_param_new(b->m, &s);
    p->parts[0].transposed = s.transposed;
    p->unadapted = s.unadapted;
    p->unquantized = s.unquantized;
    p->parts[0].groups = s.groups;
    p->tp = s.tp;
    p->expert = s.expert;
    p->index = b->n_params;
    b->params[b->n_params++] = *param = p;
    return nrl_build_use(b, unit, p);
}

nrl_status nrl_build_carry(nrl_builder *b, int32_t n, const int64_t *widths)
{
    if (n < 1 || n > NRL_MAX_CARRY)
        return nrl_fail(NRL_ERR_BUG, "the carry has %d tensors, expected 1 to %d", n, NRL_MAX_CARRY);
    b->m->n_carry = n;
    memcpy(b->m->carry_width, widths, (size_t)n * sizeof *widths);
    return NRL_OK;
}

nrl_status nrl_build_head(nrl_builder *b, const nrl_head_spec *head)
{
    nrl_head_spec h = {0};
    memcpy(&h, head, head->size < sizeof h ? head->size : sizeof h);
    if (!h.weight || h.weight->n_dims != 2) return nrl_fail(NRL_ERR_BUG, "the head has no weight matrix");
    b->m->head = (head_spec){h.weight, h.bias, h.scale == 0 ? 1 : h.scale, h.soft_cap};
    return NRL_OK;
}

nrl_status nrl_build_info(nrl_builder *b, const nrl_model_info *info)
{
    nrl_model_info *f = &b->m->info;
    memcpy(f, info, info->size < sizeof *f ? info->size : sizeof *f);
    f->size = sizeof *f;
    return NRL_OK;
}

nrl_status nrl_build_ignore(nrl_builder *b, const char *suffix)
{
    if (b->m->n_ignored == MODEL_MAX_NAMES)
        return nrl_fail(NRL_ERR_BUG, "more than %d ignored names", (int)MODEL_MAX_NAMES);
    b->m->ignored[b->m->n_ignored++] = arena_strdup(&b->m->memory, suffix);
    return NRL_OK;
}

nrl_status nrl_build_optional_prefix(nrl_builder *b, const char *prefix)
{
    b->m->optional_prefix = arena_strdup(&b->m->memory, prefix);
    return NRL_OK;
}

nrl_status nrl_build_loss_term(nrl_builder *b, const nrl_loss_term_spec *spec, nrl_loss_term **term)
{
    model *m = b->m;
    nrl_loss_term_spec s = {0};
    memcpy(&s, spec, spec->size < sizeof s ? spec->size : sizeof s);
    if (m->n_terms == NRL_MAX_MODEL_TERMS || s.n_values < 1)
        return nrl_fail(NRL_ERR_PLUGIN, "loss term '%s': expected at most %d terms, each with 1 or more values", s.name,
                        (int)NRL_MAX_MODEL_TERMS);
    *term = &m->terms[m->n_terms++];
    **term = (nrl_loss_term){.name = arena_strdup(&m->memory, s.name),
                             .coefficient = s.coefficient,
                             .n_values = s.n_values,
                             .sums_tokens = s.sums_tokens};
    return NRL_OK;
}

nrl_status model_take_terms(model *m, nrl_ctx *ctx, double *sums)
{
    nrl_status st = NRL_OK;
    for (int32_t i = 0; i < m->n_terms; i++) {
        nrl_loss_term *t = &m->terms[i];
        if (t->total && sums && st == NRL_OK) st = nrl_tensor_fetch(ctx, t->total, &sums[i], 1);
        tensor_release(ctx, t->total);
        t->total = NULL;
    }
    return st;
}

void nrl_build_random(nrl_builder *b)
{
    b->m->is_random = true;
}

/* ---- the model ---- */

static int by_name(const void *x, const void *y)
{
    return strcmp((*(nrl_param *const *)x)->name, (*(nrl_param *const *)y)->name);
}

static nrl_status check_layout(const model *m)
{
    if (!m->n_units) return nrl_fail(NRL_ERR_BUG, "the model declares no unit");
    if (!m->n_carry) return nrl_fail(NRL_ERR_BUG, "the model declares no carry");
    if (!m->head.weight) return nrl_fail(NRL_ERR_BUG, "the model declares no head");
    int64_t total = 0;
    for (int32_t i = 0; i < m->n_params; i++)
        if (__builtin_add_overflow(total, m->params[i]->numel, &total) || total > INT64_MAX / 64)
            return nrl_fail(NRL_ERR_DATA, "the model is too large: the number of its parameters overflows");
    size_t bytes = (size_t)m->n_params * sizeof *m->params;
    nrl_param **sorted = mem_try(bytes, "a model's parameters");
    if (!sorted) return NRL_ERR_MEMORY;
    if (bytes) memcpy(sorted, m->params, bytes);
    qsort(sorted, (size_t)m->n_params, sizeof *sorted, by_name);
    const char *twice = NULL;
    for (int32_t i = 1; i < m->n_params && !twice; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name)) twice = sorted[i]->name;
    free(sorted);
    return twice ? nrl_fail(NRL_ERR_BUG, "parameter '%s' is declared twice", twice) : NRL_OK;
}

/* Copies the builder's arrays into the model's arena and frees them. */
static void settle(nrl_builder *b)
{
    model *m = b->m;
    m->n_units = b->n_units;
    m->units = arena_alloc(&m->memory, (size_t)b->n_units * sizeof *m->units);
    for (int32_t i = 0; i < b->n_units; i++) {
        draft_unit *u = &b->units[i];
        size_t bytes = (size_t)u->n_uses * sizeof(nrl_param *);
        m->units[i] = (model_unit){u->name, u->n_uses, arena_alloc(&m->memory, bytes)};
        if (bytes) memcpy(m->units[i].uses, u->uses, bytes);
        free(u->uses);
    }
    m->n_params = m->n_own = b->n_params;
    m->params = arena_alloc(&m->memory, (size_t)b->n_params * sizeof(nrl_param *));
    if (b->n_params) memcpy(m->params, b->params, (size_t)b->n_params * sizeof(nrl_param *));
    free(b->units);
    free(b->params);
}

nrl_status model_create(const nrl_model *table, const nrl_node *config, model **out)
{
    model *m = mem_alloc(sizeof *m);
    m->table = *table;
    m->config = config;
    m->type = nrl_node_string(nrl_node_find(config, "model_type"), "");
    nrl_status st = table->create(config, &m->self);
    if (st == NRL_OK) {
        nrl_builder b = {.m = m};
        st = table->layout(m->self, &b);
        settle(&b);
    } else {
        m->self = NULL;
    }
    if (st == NRL_OK) st = check_layout(m);
    if (st == NRL_OK) st = model_extend_again(m);
    if (st != NRL_OK) {
        nrl_add_context("model '%s'", table->plugin.name);
        model_destroy(m);
        return st;
    }
    *out = m;
    return NRL_OK;
}

void model_destroy(model *m)
{
    if (!m) return;
    if (m->self && m->table.destroy) m->table.destroy(m->self);
    if (m->adapters) m->adapters->table->destroy(m->adapters->self);
    arena_free(&m->memory);
    free(m);
}

int64_t model_n_params(const model *m)
{
    int64_t n = 0;
    for (int32_t i = 0; i < m->n_params; i++)
        if (!m->params[i]->packs) n += m->params[i]->whole;
    return n;
}

nrl_param *model_param(const model *m, const char *name)
{
    for (int32_t i = 0; i < m->n_params; i++)
        if (!strcmp(m->params[i]->name, name)) return m->params[i];
    return NULL;
}

/* Matrices of the first unit are embeddings (tokens, learned positions): looking up rows costs no multiplication,
 * unless the matrix is also the head. */
static bool is_multiplied(const model *m, const nrl_param *p)
{
    if (p == m->head.weight) return true;
    for (int32_t i = 0; i < m->units[0].n_uses; i++)
        if (m->units[0].uses[i] == p) return false;
    return p->n_dims == 2;
}

/* 2 FLOPs per element for the forward and for each gradient, of input and weight. The gradient of a frozen weight is
 * not computed. */
double model_unit_flops(const model *m, int32_t u)
{
    const model_unit *unit = &m->units[u];
    double flops = 0;
    if (u == 0 && m->n_units > 1) return 0; /* the first unit only looks up rows, also of a tied head */
    for (int32_t i = 0; i < unit->n_uses; i++) {
        const nrl_param *p = unit->uses[i]->packs ? unit->uses[i]->packs : unit->uses[i];
        if (is_multiplied(m, p)) flops += (p->trained ? 6.0 : 4.0) * (double)p->numel;
    }
    return flops;
}

int64_t model_n_own(const model *m)
{
    int64_t n = 0;
    for (int32_t i = 0; i < m->n_own; i++)
        n += m->params[i]->whole;
    return n;
}

int64_t model_n_trained(const model *m)
{
    int64_t n = 0;
    for (int32_t i = 0; i < m->n_params; i++)
        if (m->params[i]->trained) n += m->params[i]->whole;
    return n;
}

int32_t model_first_trained(const model *m)
{
    for (int32_t u = 0; u < m->n_units; u++)
        for (int32_t i = 0; i < m->units[u].n_uses; i++)
            if (m->units[u].uses[i]->trained) return u;
    return m->n_units - 1;
}
