/*
 * options.c - the core's options in `optimizer:`.
 */
#include "optim/options.h"
#include <math.h>

const nrl_option optim_rows[] = {
    NRL_OPT_F64(optim_options, lr, NULL, 0, 1e3, "peak learning rate; the schedule scales it"),
    NRL_OPT_F64(optim_options, clip_norm, "1.0", 0, 1e30, "clip gradients to this global norm; 0: no clipping"),
    NRL_OPT_NODE(
        optim_options, lr_scale, "",
        "scale lr with the batch size: {rule: sqrt|linear, base_batch: 32} multiplies lr by train.global_batch / "
        "base_batch, or its square root"),
    NRL_OPT_NODE(optim_options, lr_ratios, "{}",
                 "learning rates of parameters: {PATTERN: RATIO}, such as {'*.lora_B.*': 16}, multiplies lr for those "
                 "whose names match; the last pattern that matches counts"),
};
const size_t optim_n_rows = sizeof optim_rows / sizeof *optim_rows;

typedef struct {
    int64_t rule; /* 0 sqrt, 1 linear */
    int64_t base_batch;
} lr_scale;

static const nrl_option lr_scale_rows[] = {
    NRL_OPT_ENUM(lr_scale, rule, NULL, "sqrt|linear", "how lr scales with the global batch"),
    NRL_OPT_INT(lr_scale, base_batch, NULL, 1, INT32_MAX, "the global batch for which lr was chosen"),
};

void optim_scale_lr(arena *a, config_problems *problems, int64_t global_batch, optim_options *o)
{
    lr_scale s = {0};
    const option_part part = OPTION_PART(lr_scale_rows, &s);
    o->lr_factor = 1;
    if (nrl_node_kind(o->lr_scale) <= NRL_NODE_NULL) return;
    options_fill(a, problems, "optimizer.lr_scale", o->lr_scale, &part, 1);
    if (s.base_batch) o->lr_factor = (double)global_batch / (double)s.base_batch;
    if (!s.rule) o->lr_factor = sqrt(o->lr_factor);
    o->lr *= o->lr_factor;
}
