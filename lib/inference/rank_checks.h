/*
 * rank_checks.h - comparisons of the ranks of a run, for `debug: true`.
 */
#ifndef INFERENCE_RANK_CHECKS_H
#define INFERENCE_RANK_CHECKS_H
#include "run/step/trainer.h"

extern const struct nrl_rank_checks rank_checks; /* nrl_run_services.rank_checks */

#endif
