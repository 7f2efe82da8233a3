/*
 * leaks.h - train.leak_check: memory that is still in use after each step must not grow for ever.
 */
#ifndef INFERENCE_LEAKS_H
#define INFERENCE_LEAKS_H
#include <nrl/run.h>

/* Looks at the memory of this rank after a step, and adds it to the record. A warning, or NRL_ERR_MEMORY by
 * train.leak_check, if it leaks. */
nrl_status leaks_look(nrl_run *run, const nrl_run_event *step);

#endif
