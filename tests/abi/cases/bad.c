/*
 * bad.c - a plugin with one defect, selected by the macro CASE_<NAME>. The table is written without
 * the macros of plugin.h, which would not allow most of these defects.
 */
#include <nrl/nrl.h>
#include <string.h>

typedef struct {
    double beta;
    int64_t mode;
} bad_options;

__attribute__((unused)) static const nrl_option bad_rows[] = {
/* one case only takes its size */
#if defined CASE_ROW_NO_NAME
    {NULL, "0.1", NULL, "", 0, 1, 0, NRL_TYPE_F64},
#elif defined CASE_ROW_TYPE
    {"beta", "0.1", NULL, "", 0, 1, 0, 77},
#elif defined CASE_ROW_OUTSIDE
    {"beta", "0.1", NULL, "", 0, 1, sizeof(bad_options), NRL_TYPE_F64},
#elif defined CASE_ROW_UNALIGNED
    {"beta", "0.1", NULL, "", 0, 1, 4, NRL_TYPE_F64},
#elif defined CASE_ROW_DEFAULT
    {"beta", "7", NULL, "", 0, 1, 0, NRL_TYPE_F64},
#elif defined CASE_ROW_ENUM
    {"mode", "a", NULL, "", 0, 0, 8, NRL_TYPE_ENUM},
#elif defined CASE_ROW_RESERVED
    {"name", "", NULL, "", 0, 0, 8, NRL_TYPE_STR},
#elif defined CASE_ROW_RANGE
    {"beta", "0.1", NULL, "", 1, 0, 0, NRL_TYPE_F64},
#else
    {"beta", "0.1", NULL, "strength", 0, 1, 0, NRL_TYPE_F64},
#endif
#ifdef CASE_ROW_SHARED
    {"gamma", "0.1", NULL, "", 0, 1, 0, NRL_TYPE_F64},
#endif
#ifdef CASE_ROW_TWICE
    {"beta", "0.1", NULL, "", 0, 1, 0, NRL_TYPE_F64},
#endif
};

__attribute__((unused)) static void bad_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self, (void)batch;
    weight[0] = 1;
}

static nrl_status bad_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    (void)self, (void)ctx, (void)batch, (void)sums;
    return NRL_OK;
}

static nrl_status bad_step_end(void *self, const double *sums, const double *weights)
{
    (void)self, (void)sums, (void)weights;
    return NRL_OK;
}

static nrl_status bad_check(const void *options)
{
    const bad_options *o = options;
    return o->beta == 0.5 ? nrl_fail(NRL_ERR_CONFIG, "beta 0.5 is not to my taste") : NRL_OK;
}

#ifdef CASE_NEWER_SYMBOL
NRL_API void nrl_of_tomorrow(void);
void *bad_use_of_tomorrow(void);
void *bad_use_of_tomorrow(void)
{
    return (void *)(uintptr_t)nrl_of_tomorrow;
}
#endif

/* The table of a newer nrl: one member more than the header has. */
typedef struct {
    nrl_algorithm known;
    const void *extra;
} newer_algorithm;

static const newer_algorithm bad = {
    .known.plugin =
        {
#ifdef CASE_ABI
            .abi = 77,
#else
            .abi = NRL_ABI,
#endif
#ifdef CASE_BUILD
            .build = 99,
#else
            .build = NRL_BUILD,
#endif
#ifdef CASE_KIND
            .kind = NRL_KIND_LOGGER,
#elif defined CASE_KIND_UNKNOWN
            .kind = 1234,
#else
            .kind = NRL_KIND_ALGORITHM,
#endif
#if defined CASE_SMALLER
            .size = offsetof(nrl_algorithm, step_end),
#elif defined CASE_TINY
            .size = 8,
#elif defined CASE_LARGER_USED || defined CASE_LARGER_ZERO
            .size = sizeof(newer_algorithm),
#else
            .size = sizeof(nrl_algorithm),
#endif
            .n_options = sizeof bad_rows / sizeof *bad_rows,
#ifdef CASE_STRIDE
            .option_size = 8,
#else
            .option_size = sizeof(nrl_option),
#endif
            .options_size = sizeof(bad_options),
#ifdef CASE_NAME
            .name = "somebody_else",
#elif !defined CASE_NO_TEXTS
            .name = NAME,
#endif
            .version = "0.1",
            .summary = "a plugin for tests",
#ifndef CASE_NULL_ROWS
            .options = bad_rows,
#endif
            .check = bad_check,
        },
    .known.n_terms = 1,
#ifndef CASE_NO_WEIGHT
    .known.weight = bad_weight,
#endif
    .known.loss = bad_loss,
    .known.step_end = bad_step_end,
#ifdef CASE_LARGER_USED
    .extra = bad_rows,
#endif
};

#ifdef CASE_NO_ENTRY
#define nrl_plugin_entry nrl_plugin_entrance
#endif
NRL_API const nrl_plugin *nrl_plugin_entry(void);
const nrl_plugin *nrl_plugin_entry(void)
{
#ifdef CASE_NO_TABLE
    return bad.extra; /* NULL */
#else
    return &bad.known.plugin;
#endif
}
