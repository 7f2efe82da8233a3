/*
 * loss_scale.h - the factor that keeps small gradients within fp16's range: the backward starts from
 * scale / W, the update divides by it. The rule is that of torch.amp.GradScaler: a step whose gradient
 * is not finite is omitted and the scale backs off; after enough good steps in a row it grows.
 * Every rank holds the same one and hears the same decisions.
 */
#ifndef OPTIM_LOSS_SCALE_H
#define OPTIM_LOSS_SCALE_H
#include "config/schema.h"

typedef struct {
    config_loss_scale rule;
    double scale;       /* of the next step; 1 unless precision is fp16 */
    int64_t good_steps; /* in a row, since the scale last changed */
    int64_t overflows;  /* steps omitted so far */
} loss_scale;

void loss_scale_start(loss_scale *s, const config_loss_scale *rule);
/* After a step: was its gradient finite? Only a dynamic scale changes. NRL_ERR_DIVERGED where it fell
 * below rule.min: no scale helps then. [step] */
nrl_status loss_scale_update(loss_scale *s, bool finite);

#endif
