/*
 * uniform.c - random numbers that recomputation, packing and ranks do not change.
 */
#include "kernel.h"

/* splitmix64 */
static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static nrl_status uniform_forward(const nrl_kernel_args *a)
{
    const nrl_uniform_attributes *at = a->attributes;
    for (int64_t r = 0; r < a->outputs[0].rows; r++)
        for (int64_t c = 0; c < a->outputs[0].cols; c++)
            kernel_row(&a->outputs[0], r)[c] = (float)(mix(at->key ^ mix(at->rows[r] + (uint64_t)c)) >> 40) * 0x1p-24f;
    return NRL_OK;
}

static const nrl_kernel kernels[] = {{"cpu", uniform_forward, NULL}, {NULL, NULL, NULL}};
static const nrl_custom_op uniform = {
    .size = sizeof uniform, .kernel_size = sizeof *kernels, .name = "nrl.uniform", .kernels = kernels};

nrl_status nrl_op_uniform(nrl_ctx *ctx, int64_t cols, nrl_tensor **y)
{
    nrl_uniform_attributes at = {.size = sizeof at};
    nrl_tensor *out;
    *y = NULL;
    NRL_TRY(nrl_ctx_random(ctx, &at.key, &at.rows));
    if (!at.key || !at.rows) return NRL_OK;
    NRL_TRY(kernel_matrix(ctx, NRL_DTYPE_F32, nrl_batch_n_tokens(nrl_ctx_batch(ctx)), cols, &out));
    *y = out;
    return nrl_op_custom(ctx, &uniform, NULL, 0, y, 1, &at, sizeof at);
}
