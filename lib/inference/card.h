/*
 * card.h - model cards of exports; nrl_model_card is public.
 */
#ifndef INFERENCE_CARD_H
#define INFERENCE_CARD_H
#include <nrl/run.h>

/* nrl_run_services.model_card */
char *card_of_run(nrl_run *run, const char *dir, int64_t step);

#endif
