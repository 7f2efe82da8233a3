/*
 * rules_precision.c - train.loss_scale: a word, a number or a map, and only with fp16.
 */
#include "config/rules.h"
#include <string.h>

#define SCALE_LEAST 1e-9
#define SCALE_MOST 1e30

/* The defaults of torch.amp.GradScaler, which has no minimum scale and skips steps forever on NaN. */
static const nrl_option scale_rows[] = {
    NRL_OPT_F64(config_loss_scale, init, "65536", SCALE_LEAST, SCALE_MOST, "scale of the first step"),
    NRL_OPT_F64(config_loss_scale, growth, "2", 1, 1e6, "factor after growth_interval good steps in a row"),
    NRL_OPT_F64(config_loss_scale, backoff, "0.5", 1e-6, 0.99, "factor after a gradient that is not finite"),
    NRL_OPT_INT(config_loss_scale, growth_interval, "2000", 1, 1e12, "good steps until the scale grows"),
    NRL_OPT_F64(config_loss_scale, min, "6.103515625e-5", SCALE_LEAST, SCALE_MOST,
                "a scale below it ends the run; 2^-14 unless set"),
};

static void dynamic_scale(arena *a, config_problems *problems, const nrl_node *map, config_loss_scale *out)
{
    const option_part part = OPTION_PART(scale_rows, out);
    options_fill(a, problems, "train.loss_scale", map, &part, 1);
    out->dynamic = true;
    if (out->init < out->min)
        problems_add(problems, map, "train.loss_scale: init %g is below min %g", out->init, out->min);
}

void rules_loss_scale(arena *a, config_problems *problems, const nrl_node *node, bool is_fp16, config_loss_scale *out)
{
    nrl_node_type kind = nrl_node_kind(node);
    double number = nrl_node_f64(node, 0);
    *out = (config_loss_scale){.init = 1};
    if (node && kind != NRL_NODE_NULL && !is_fp16)
        problems_add(problems, node, "train.loss_scale: has no effect without train.precision: fp16");
    else if (!is_fp16)
        return;
    else if (kind == NRL_NODE_MAP || kind == NRL_NODE_NONE || kind == NRL_NODE_NULL ||
             !strcmp(nrl_node_string(node, ""), "dynamic"))
        dynamic_scale(a, problems, kind == NRL_NODE_MAP ? node : NULL, out);
    else if (number >= SCALE_LEAST && number <= SCALE_MOST)
        out->init = number;
    else
        problems_add(problems, node,
                     "train.loss_scale: expected dynamic, a number from %g to %g, or "
                     "{init: 65536, growth: 2, backoff: 0.5, growth_interval: 2000, min: 6.1e-5}",
                     SCALE_LEAST, SCALE_MOST);
}
