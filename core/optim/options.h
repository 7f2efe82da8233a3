/*
 * options.h - the core's options in `optimizer:` of a config. The same map has the options of the optimizer plugin.
 */
#ifndef OPTIM_OPTIONS_H
#define OPTIM_OPTIONS_H
#include <nrl/plugin.h>

typedef struct {
    double lr;        /* the schedule's peak */
    double clip_norm; /* largest global gradient norm; 0 = no clipping */
} optim_options;

extern const nrl_option optim_rows[];
extern const size_t optim_n_rows;

#endif
