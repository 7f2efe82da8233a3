/*
 * measures.h - values of a step's record that cost something or that training itself does not need.
 */
#ifndef INFERENCE_MEASURES_H
#define INFERENCE_MEASURES_H
#include <nrl/run.h>

/* nrl_run_services.measure */
nrl_status measures_add(nrl_run *run, nrl_run_event *step);

#endif
