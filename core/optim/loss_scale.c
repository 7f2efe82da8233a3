/*
 * loss_scale.c - the rule of torch.amp.GradScaler, in f32 like there: a scale that would overflow f32 does not grow.
 */
#include "optim/loss_scale.h"
#include <math.h>

void loss_scale_start(loss_scale *s, const config_loss_scale *rule)
{
    *s = (loss_scale){.rule = *rule, .scale = (float)rule->init};
}

static void loss_scale_grow(loss_scale *s)
{
    float grown = (float)(s->scale * s->rule.growth);
    s->good_steps = 0;
    if (isfinite(grown)) s->scale = grown;
}

static nrl_status loss_scale_back_off(loss_scale *s)
{
    s->scale = (float)(s->scale * s->rule.backoff);
    s->good_steps = 0;
    s->overflows++;
    if (s->scale >= s->rule.min) return NRL_OK;
    return nrl_fail(NRL_ERR_DIVERGED,
                    "the loss scale fell to %g, below %g (train.loss_scale.min), and gradients are still not finite\n"
                    "hint: the model computes numbers above 65504, the largest fp16, or the run has diverged; "
                    "try train.precision: bf16 or a lower optimizer.lr",
                    s->scale, s->rule.min);
}

nrl_status loss_scale_update(loss_scale *s, bool finite)
{
    if (!s->rule.dynamic) return NRL_OK;
    if (!finite) return loss_scale_back_off(s);
    if (++s->good_steps >= s->rule.growth_interval) loss_scale_grow(s);
    return NRL_OK;
}
