/*
 * leaks.h - train.leak_check: memory that is still in use after each step must not grow forever.
 */
#ifndef INFERENCE_LEAKS_H
#define INFERENCE_LEAKS_H
#include <nrl/run.h>

/* Measures the memory of this rank after a step, and adds it to the record. If it leaks, warns or returns
 * NRL_ERR_MEMORY, as train.leak_check says. */
nrl_status leaks_look(nrl_run *run, const nrl_run_event *step);

#endif
