/*
 * lora.c - low-rank adapters (Hu et al. 2021):
 *   y = x W^T + b + scale (dropout(x) A^T) B^T,   A [r,K], B [M,r],   scale = alpha / r, or alpha / sqrt(r) (rslora)
 * W + scale B A is never made in training. A is uniform within 1/sqrt(K) (as peft: kaiming_uniform with a = sqrt 5), B
 * zero. The settings are {rslora, dropout, modules: [{module, rank, alpha}]}; names are peft's.
 */
#include "base/arena.h"
#include <math.h>
#include <nrl/nrl.h>
#include <stdlib.h>

typedef struct {
    const char *names[2];
    int64_t rank;
    double scale;
} lora_module;

typedef struct {
    arena memory;
    double dropout;
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
    *self = l;
    return NRL_OK;
}

/* A and B are divided as the weight is: columns have rows of B, and each a part of A's gradient; rows have columns of
 * A, whose product is a part of what B sees. */
static nrl_status lora_declare(void *self, int32_t module, const nrl_adapter_target *t,
                               nrl_param_spec specs[NRL_ADAPTER_MAX_PARAMS], int32_t *n)
{
    const lora_module *m = &((const lora *)self)->modules[module];
    nrl_param_spec *a = &specs[0], *b = &specs[1];
    if (m->rank > t->outputs + t->inputs)
        return nrl_fail(NRL_ERR_CONFIG, "an adapter of rank %lld for '%s' [%lld, %lld], expected 1 to %lld",
                        (long long)m->rank, t->module, (long long)t->outputs, (long long)t->inputs,
                        (long long)(t->outputs + t->inputs));
    *a = (nrl_param_spec){.size = sizeof *a,
                          .name = m->names[0],
                          .n_dims = 2,
                          .dims = {m->rank, t->inputs},
                          .init = NRL_INIT_UNIFORM,
                          .init_scale = 1 / sqrt((double)t->inputs),
                          .decay = true};
    *b = (nrl_param_spec){.size = sizeof *b,
                          .name = m->names[1],
                          .n_dims = 2,
                          .dims = {t->outputs, m->rank},
                          .init = NRL_INIT_ZEROS,
                          .decay = true};
    if (t->tp == NRL_TP_COLUMN) {
        a->tp = NRL_TP_PARTIAL;
        b->tp = NRL_TP_COLUMN;
        b->groups = t->groups;
    } else if (t->tp == NRL_TP_ROW) {
        a->tp = NRL_TP_ROW;
        b->tp = NRL_TP_PARTIAL;
    }
    *n = 2;
    return NRL_OK;
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

/* Row m of B A is sum_j B[m,j] A[j,:]: rows of A are added, which compilers vectorise. */
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
    NRL_PLUGIN_PLAIN(NRL_KIND_ADAPTER, nrl_adapter, "lora", "0.1", "low-rank adapters of linear weights"),
    .create = lora_create,
    .destroy = lora_destroy,
    .declare = lora_declare,
    .forward = lora_forward,
    .merge = lora_merge,
    .random = lora_random,
};
NRL_EXPORT(table)
