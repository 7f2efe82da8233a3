/*
 * sample_flags.c - see sample_flags.h.
 */
#include "cli/common/sample_flags.h"
#include "cli/common/cli.h"
#include <nrl/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STOPS = 64 };

static nrl_status take_number(int *argc, char **argv, const char *flag, double or_value, double min, double max,
                              double *out)
{
    const char *text;
    char *end;
    *out = or_value;
    NRL_TRY(cli_take_value(argc, argv, flag, &text));
    if (!text) return NRL_OK;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= min && *out <= max))
        return nrl_fail(NRL_ERR_CONFIG, "%s: '%s': expected a number from %.10g to %.10g", flag, text, min, max);
    return NRL_OK;
}

static nrl_status take_stops(arena *a, int *argc, char **argv, nrl_sample_options *o)
{
    const char **stops = arena_alloc(a, MAX_STOPS * sizeof *stops);
    o->stop = stops;
    NRL_TRY(cli_take_values(argc, argv, "--stop", stops, MAX_STOPS, &o->n_stop));
    for (size_t i = 0; i < o->n_stop; i++)
        if (!*stops[i]) return nrl_fail(NRL_ERR_CONFIG, "--stop: the text is empty");
    return NRL_OK;
}

nrl_status sample_take_model(int *argc, char **argv, nrl_inference_options *options)
{
    const char *precision;
    *options = (nrl_inference_options){.size = sizeof *options};
    NRL_TRY(cli_take_value(argc, argv, "--backend", &options->backend));
    NRL_TRY(cli_take_value(argc, argv, "--precision", &precision));
    if (!precision || !strcmp(precision, "auto")) return NRL_OK;
    options->precision = !strcmp(precision, "f32") ? NRL_DTYPE_F32 : NRL_DTYPE_BF16;
    if (!strcmp(precision, "f32") || !strcmp(precision, "bf16")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "--precision: '%s': expected auto, f32 or bf16", precision);
}

void sample_print_model(const nrl_inference *m)
{
    nrl_inference_info info = {.size = sizeof info};
    nrl_inference_info_fill(m, &info);
    fprintf(stderr, "backend %s, weights %s", info.backend, nrl_dtype_name((nrl_dtype)info.precision));
    fprintf(stderr, info.step < 0 ? "\n" : ", step %lld\n", (long long)info.step);
}

nrl_status sample_take_flags(arena *a, int *argc, char **argv, const sample_defaults *defaults,
                             nrl_sample_options *options)
{
    double tokens, seed, top_k;
    NRL_TRY(take_number(argc, argv, "--max-tokens", 0, 1, 1e6, &tokens));
    NRL_TRY(take_number(argc, argv, "--temperature", defaults->temperature, 0, 100, &options->temperature));
    NRL_TRY(take_number(argc, argv, "--top-p", 1, 1e-6, 1, &options->top_p));
    NRL_TRY(take_number(argc, argv, "--top-k", 0, 0, 1e9, &top_k));
    NRL_TRY(take_number(argc, argv, "--min-p", 0, 0, 1, &options->min_p));
    NRL_TRY(take_number(argc, argv, "--repetition-penalty", 1, 1e-3, 1e3, &options->repetition_penalty));
    NRL_TRY(take_number(argc, argv, "--seed", 0, 0, 9e15, &seed));
    options->max_tokens = tokens > 0 ? (int64_t)tokens : defaults->max_tokens;
    options->fits_context = tokens <= 0;
    options->top_k = (int64_t)top_k;
    options->seed = (uint64_t)seed;
    return take_stops(a, argc, argv, options);
}
