/*
 * later_data.h - what a resume restores in addition to the state of the trainer; nrl_run_set_data is public.
 */
#ifndef INFERENCE_LATER_DATA_H
#define INFERENCE_LATER_DATA_H
#include <nrl/run.h>

/* nrl_run_services.resumed */
nrl_status later_resumed(nrl_run *run, const char *checkpoint);

#endif
