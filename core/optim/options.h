/*
 * options.h - the core's options in `optimizer:` of a config. The same map has the options of the optimizer plugin.
 */
#ifndef OPTIM_OPTIONS_H
#define OPTIM_OPTIONS_H
#include "config/options.h"

typedef struct {
    double lr;        /* the schedule's peak; as written until optim_scale_lr */
    double clip_norm; /* largest global gradient norm; 0 = no clipping */
    const nrl_node *lr_scale;
    double lr_factor;          /* by which lr was multiplied */
    const nrl_node *lr_ratios; /* {PATTERN of names of parameters: ratio} */
} optim_options;

extern const nrl_option optim_rows[];
extern const size_t optim_n_rows;

/* Applies lr_scale; mistakes in it go to `problems`. Once. */
void optim_scale_lr(arena *a, config_problems *problems, int64_t global_batch, optim_options *o);

#endif
