/*
 * loss_scale.h - the factor that keeps small gradients in the range of fp16: the backward starts from scale / W, and
 * the update divides by scale. The rule is that of torch.amp.GradScaler: a step whose gradient is not finite is skipped
 * and the scale shrinks; after enough good steps in a row the scale grows. All ranks have the same scale and update it
 * with the same decisions.
 */
#ifndef OPTIM_LOSS_SCALE_H
#define OPTIM_LOSS_SCALE_H
#include "config/schema.h"

typedef struct {
    config_loss_scale rule;
    double scale;       /* of the next step; 1 unless precision is fp16 */
    int64_t good_steps; /* in a row, since the scale last changed */
    int64_t overflows;  /* steps skipped so far */
} loss_scale;

void loss_scale_start(loss_scale *s, const config_loss_scale *rule);
/* Call it after every step. `finite`: whether the step's gradient was finite. Only a dynamic scale changes.
 * NRL_ERR_DIVERGED if the scale falls below rule.min: a smaller scale would not help. [step] */
nrl_status loss_scale_update(loss_scale *s, bool finite);

#endif
