/*
 * sample_flags.h - the flags of `nrl sample`, `nrl chat` and `nrl serve` that say how tokens are chosen, and how the
 * model computes.
 */
#ifndef CLI_SAMPLE_FLAGS_H
#define CLI_SAMPLE_FLAGS_H
#include "base/arena.h"
#include <nrl/inference.h>

typedef struct {
    int64_t max_tokens;
    double temperature;
} sample_defaults;

/* Removes the flags from argv and fills *options, whose stop texts live in `a`. NRL_ERR_CONFIG names the flag. */
nrl_status sample_take_flags(arena *a, int *argc, char **argv, const sample_defaults *defaults,
                             nrl_sample_options *options);
/* The same for --precision and --backend. */
nrl_status sample_take_model(int *argc, char **argv, nrl_inference_options *options);
/* The backend and the precision of an open model, as a line on standard error. */
void sample_print_model(const nrl_inference *m);

#endif
