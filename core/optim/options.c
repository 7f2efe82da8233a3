/*
 * options.c - the core's options in `optimizer:`.
 */
#include "optim/options.h"

const nrl_option optim_rows[] = {
    NRL_OPT_F64(optim_options, lr, NULL, 0, 1e3, "peak learning rate; the schedule scales it"),
    NRL_OPT_F64(optim_options, clip_norm, "1.0", 0, 1e30, "gradients are scaled down to this global norm; 0 = never"),
};
const size_t optim_n_rows = sizeof optim_rows / sizeof *optim_rows;
