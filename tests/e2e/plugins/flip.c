/*
 * flip.c - AdamW that on rank 1 flips one bit of one weight after its fifth update, which `debug:
 * true` must find. It reads its rank from the environment, which a real plugin must not do.
 */
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

static const char *const states[] = {"exp_avg", "exp_avg_sq"};

static nrl_status update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    const nrl_adamw adamw = {.size = sizeof adamw, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    const char *rank = getenv("NRL_RANK");
    (void)self;
    for (int64_t i = 0; i < n; i++) {
        NRL_TRY(nrl_slice_adamw(ctx, nrl_slice_at(slices, i, step), &adamw, step));
        if (step->step != 5 || !rank || strcmp(rank, "1") ||
            !strstr(nrl_param_name(nrl_slice_at(slices, i, step)->param), "layers.1"))
            continue;
        unsigned char *bytes = nrl_tensor_mat(nrl_slice_at(slices, i, step)->master).data;
        bytes[0] ^= 1;
    }
    return NRL_OK;
}

static const nrl_optimizer flip = {
    NRL_PLUGIN_PLAIN(NRL_KIND_OPTIMIZER, nrl_optimizer, "flip", FLIP_VERSION, "AdamW that goes wrong on rank 1"),
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .n_states = 2,
    .state_names = states,
    .update = update,
};
NRL_EXPORT(flip)
