/*
 * samples.h - eval.samples: the functions of nrl_run_services.
 */
#ifndef INFERENCE_SAMPLES_H
#define INFERENCE_SAMPLES_H
#include <nrl/run.h>

extern const nrl_metric samples_metrics[];
nrl_status samples_open(nrl_run *run, void **samples);
void samples_close(void *samples);
nrl_status samples_make(void *samples, nrl_run *run);

#endif
