/*
 * services.c - the functions that this library provides to runs, see nrl_run_services.
 */
#include "inference/card.h"
#include "inference/later_data.h"
#include "inference/measures.h"
#include "inference/rank_checks.h"
#include "inference/samples.h"
#include "inference/stream.h"
#include <nrl/inference.h>

const nrl_run_services *nrl_inference_services(void)
{
    static const nrl_run_services services = {.size = sizeof services,
                                              .model_card = card_of_run,
                                              .resumed = later_resumed,
                                              .measure = measures_add,
                                              .sample_metrics = samples_metrics,
                                              .samples_open = samples_open,
                                              .samples_close = samples_close,
                                              .samples_make = samples_make,
                                              .streams = &stream_table,
                                              .rank_checks = &rank_checks};
    return &services;
}
