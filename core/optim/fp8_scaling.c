/*
 * fp8_scaling.c - see fp8_scaling.h. The history holds exponents of scales instead of the values they are made from:
 * whole numbers, which checkpoints keep exactly.
 */
#include "optim/fp8_scaling.h"
#include "tensor/ctx.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 3, MOST_EXPONENT = 62, UNKNOWN = INT8_MAX };

nrl_status fp8_scaling_open(fp8_scaling *s, const config_fp8 *rule, const model *m, nrl_ctx *ctx, arena *a)
{
    nrl_tensor *scale, *amax;
    s->rule = *rule;
    s->params = arena_alloc(a, (size_t)m->n_params * sizeof *s->params);
    for (int32_t i = 0; i < m->n_params; i++)
        if (param_may_be_fp8(m->params[i])) s->params[s->n++] = m->params[i];
    if (!s->n)
        return nrl_fail(NRL_ERR_CONFIG,
                        "train.precision: model '%s' has no linear layers that fp8 applies to (it declares none for "
                        "tensor parallelism); expected bf16",
                        m->type);
    if (rule->recipe != CONFIG_FP8_DELAYED) s->n = 0;
    if (!s->n) return NRL_OK;
    const size_t n = (size_t)s->n * OPERANDS;
    s->exponents = arena_alloc(a, n * (size_t)rule->history);
    memset(s->exponents, UNKNOWN, n * (size_t)rule->history);
    s->host = arena_alloc(a, n * sizeof *s->host);
    NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, 1, &(int64_t){(int64_t)n}, true, &scale));
    ctx_set_fp8(ctx, false, scale, NULL);
    NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, 1, &(int64_t){(int64_t)n}, true, &amax));
    ctx_set_fp8(ctx, false, s->scale = scale, s->amax = amax);
    for (int32_t i = 0; i < s->n; i++)
        s->params[i]->fp8 = i + 1;
    return NRL_OK;
}

/* Of operand k of parameter i, in the j-th last step. */
static int8_t *exponent_at(const fp8_scaling *s, int64_t i, int64_t j, int k)
{
    return &s->exponents[(i * s->rule.history + j) * OPERANDS + k];
}

nrl_status fp8_scaling_begin(fp8_scaling *s, nrl_ctx *ctx)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int k = 0; k < OPERANDS; k++) {
            int8_t least = UNKNOWN;
            for (int64_t j = 0; j < s->rule.history; j++)
                if (*exponent_at(s, i, j, k) < least) least = *exponent_at(s, i, j, k);
            const int exponent = least - (int)s->rule.margin;
            s->host[i * OPERANDS + k] =
                least == UNKNOWN ? 0 : ldexpf(1, exponent < -MOST_EXPONENT ? -MOST_EXPONENT : exponent);
        }
    if (!s->n) return NRL_OK;
    NRL_TRY(tensor_write(ctx, s->scale, s->host));
    return nrl_tensor_fill(ctx, s->amax, 0);
}

/* 448 and 57344, the largest numbers of e4m3 and e5m2, are 1.75 times a power of two. */
static int8_t exponent_for(float amax, int operand)
{
    int of_amax;
    const int largest = operand == OPERANDS - 1 ? 15 : 8;
    if (!isfinite(amax) || amax == 0) return UNKNOWN;
    const float fraction = 2 * frexpf(amax, &of_amax);
    const int exponent = largest - (of_amax - 1) - (fraction > 1.75f);
    return (int8_t)(exponent > MOST_EXPONENT ? MOST_EXPONENT : exponent < -MOST_EXPONENT ? -MOST_EXPONENT : exponent);
}

nrl_status fp8_scaling_end(fp8_scaling *s, nrl_ctx *ctx, nrl_mesh *mesh)
{
    const int64_t n = s->n * OPERANDS, world = nrl_mesh_world(mesh);
    if (!n) return NRL_OK;
    NRL_TRY(tensor_read(ctx, s->amax, s->host));
    if (world > 1) {
        float *all = mem_alloc((size_t)(world * n) * sizeof *all);
        const nrl_status st = mesh_exchange(mesh, "scales of fp8", s->host, (size_t)n * sizeof *all, all);
        for (int64_t i = 0; i < world * n && !st; i++) /* fmaxf would drop a NaN */
            if (isnan(all[i]) || all[i] > s->host[i % n]) s->host[i % n] = all[i];
        free(all);
        NRL_TRY(st);
    }
    for (int64_t i = 0; i < s->n; i++) {
        memmove(exponent_at(s, i, 1, 0), exponent_at(s, i, 0, 0), (size_t)(s->rule.history - 1) * OPERANDS);
        for (int k = 0; k < OPERANDS; k++)
            *exponent_at(s, i, 0, k) = exponent_for(s->host[i * OPERANDS + k], k);
    }
    return NRL_OK;
}

nrl_node *fp8_scaling_node(const fp8_scaling *s, arena *a)
{
    nrl_node *map = s->n ? node_new(a, NRL_NODE_MAP) : NULL;
    for (int64_t i = 0; i < s->n; i++) {
        nrl_node *list = node_new(a, NRL_NODE_LIST);
        for (int64_t j = 0; j < s->rule.history * OPERANDS; j++)
            node_append(a, list, NULL, node_int(a, exponent_at(s, i, 0, 0)[j]));
        node_append(a, map, s->params[i]->name, list);
    }
    return map;
}

nrl_status fp8_scaling_read(fp8_scaling *s, const nrl_node *map)
{
    for (int64_t i = 0; i < s->n && map; i++) {
        const nrl_node *list = nrl_node_find(map, s->params[i]->name);
        const size_t n = nrl_node_size(list), most = (size_t)s->rule.history * OPERANDS;
        bool valid = nrl_node_kind(list) == NRL_NODE_LIST && n % OPERANDS == 0;
        for (size_t j = 0; j < n && j < most && valid; j++) {
            const int64_t e = nrl_node_int(nrl_node_at(list, j), INT64_MAX);
            valid = e == UNKNOWN || (e >= -MOST_EXPONENT && e <= MOST_EXPONENT);
            exponent_at(s, i, 0, 0)[j] = (int8_t)e;
        }
        if (!valid)
            return nrl_fail(NRL_ERR_CORRUPT, "fp8: the history of '%s' has values other than %d to %d and %d",
                            s->params[i]->name, -MOST_EXPONENT, MOST_EXPONENT, UNKNOWN);
    }
    return NRL_OK;
}
