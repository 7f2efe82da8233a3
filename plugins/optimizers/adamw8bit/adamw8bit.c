/*
 * adamw8bit.c - AdamW with moments of 8 bits (Dettmers et al. 2022): each moment is an index into a table of 256
 * numbers, times the largest magnitude of its block of 256 elements. Tables and block size are those of bitsandbytes,
 * as is the rule that parts of fewer than 4096 elements have moments in f32. The moments of one slice at a time are f32
 * while it is updated by the fused AdamW; weights see them before they are rounded.
 */
#include "../common/betas.h"
#include "../common/vector.h"
#include "base/quantize.h"
#include <pthread.h>
#include <stdlib.h>

enum { BLOCK = 256, CODES = QUANTIZE_CODES };

typedef struct {
    double weight_decay;
    const nrl_node *betas; /* [beta1, beta2] */
    double eps;
    int64_t min_8bit_size;
} adamw8bit_options;

static const nrl_option adamw8bit_rows[] = {
    NRL_OPT_F64(adamw8bit_options, weight_decay, "0.0", 0, 1e3,
                "weight decay of matrices: each step subtracts lr times this share of the weight; not for norms and "
                "biases"),
    NRL_OPT_NODE(adamw8bit_options, betas, "[0.9, 0.999]",
                 "decay per step of the running means of gradients and of their squares"),
    NRL_OPT_F64(adamw8bit_options, eps, "1e-8", 0, 1, "added to the square root of the second moment"),
    NRL_OPT_INT(adamw8bit_options, min_8bit_size, "4096", 1, 1e18,
                "parameters with fewer elements have their moments in fp32"),
};

typedef struct {
    nrl_adamw adamw;
    int64_t min_8bit_size;
} adamw8bit;

static float codes[2][CODES]; /* of the first moment, which has a sign, and of the second */

static void make_codes(void)
{
    quantize_dynamic_map(true, codes[0]);
    quantize_dynamic_map(false, codes[1]);
}

static nrl_status adamw8bit_check(const void *options)
{
    double unused[2];
    return read_betas(((const adamw8bit_options *)options)->betas, unused);
}

static nrl_status adamw8bit_create(const void *options, void **self)
{
    const adamw8bit_options *o = options;
    double betas[2] = {0.9, 0.999};
    NRL_TRY(read_betas(o->betas, betas));
    adamw8bit *a = malloc(sizeof *a);
    if (!a) return nrl_fail(NRL_ERR_MEMORY, "out of memory for optimizer 'adamw8bit'");
    a->adamw = (nrl_adamw){sizeof a->adamw, betas[0], betas[1], o->eps, o->weight_decay};
    a->min_8bit_size = o->min_8bit_size;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_codes);
    *self = a;
    return NRL_OK;
}

static bool is_quantized(const adamw8bit *a, const nrl_part *part)
{
    int64_t n = 1;
    for (int d = 0; d < part->n_dims; d++)
        n *= part->dims[d];
    return n >= a->min_8bit_size;
}

static nrl_status adamw8bit_declare(void *self, nrl_declaration *d)
{
    static const char *const names[] = {"exp_avg", "exp_avg_sq", "exp_avg_absmax", "exp_avg_sq_absmax"};
    bool quantized = is_quantized(self, d->part);
    d->granularity = quantized ? NRL_OPTIMIZER_BLOCK : NRL_OPTIMIZER_ELEMENT;
    d->block = quantized ? BLOCK : 0;
    d->n_states = quantized ? 4 : 2;
    for (uint32_t k = 0; k < d->n_states; k++)
        d->states[k] = (nrl_state){.name = names[k],
                                   .dtype = quantized && k < 2 ? NRL_DTYPE_U8 : NRL_DTYPE_F32,
                                   .shape = k < 2 ? NRL_STATE_ELEMENT : NRL_STATE_BLOCK};
    return NRL_OK;
}

static nrl_status update_quantized(const adamw8bit *a, nrl_ctx *ctx, nrl_slice *s, const nrl_step_params *step)
{
    nrl_slice wide = *s; /* with both moments in f32 */
    nrl_tensor *code[2];
    for (int k = 0; k < 2; k++) {
        NRL_TRY(nrl_quantize_code(ctx, codes[k], &code[k]));
        NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &s->n, &wide.states[k]));
        NRL_TRY(nrl_dequantize(ctx, s->states[k], s->states[2 + k], code[k], BLOCK, wide.states[k]));
    }
    NRL_TRY(nrl_slice_adamw(ctx, &wide, &a->adamw, step));
    for (int k = 0; k < 2; k++)
        NRL_TRY(nrl_quantize(ctx, wide.states[k], code[k], BLOCK, s->states[k], s->states[2 + k]));
    return NRL_OK;
}

static nrl_status adamw8bit_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                                   const nrl_step_params *step)
{
    const adamw8bit *a = self;
    for (int64_t i = 0; i < n_slices; i++) {
        nrl_slice *s = nrl_slice_at(slices, i, step);
        NRL_TRY(is_quantized(a, vector_part(s)) ? update_quantized(a, ctx, s, step)
                                                : nrl_slice_adamw(ctx, s, &a->adamw, step));
    }
    return NRL_OK;
}

static const char *const adamw8bit_ops[] = {"quantize", NULL};

static const nrl_optimizer adamw_8bit = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, adamw8bit_options, adamw8bit_rows, "adamw8bit", "0.1",
               "AdamW with moments of 8 bits, quantized in blocks"),
    .plugin.check = adamw8bit_check,
    .granularity = NRL_OPTIMIZER_BLOCK,
    .create = adamw8bit_create,
    .destroy = free,
    .update = adamw8bit_update,
    .encoded = true,
    .declare = adamw8bit_declare,
    .ops = adamw8bit_ops,
};
NRL_EXPORT(adamw_8bit)
