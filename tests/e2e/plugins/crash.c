/*
 * crash.c - an optimizer that crashes at an update because of a bad pointer.
 */
#include <nrl/nrl.h>
#include <signal.h>

typedef struct {
    int64_t at;
} crash_options;

static const nrl_option crash_rows[] = {
    NRL_OPT_INT(crash_options, at, "3", 1, 1e9, "the update"),
};

static nrl_status update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    const crash_options *o = self;
    (void)ctx, (void)slices, (void)n;
    if (step->step == o->at) raise(SIGSEGV);
    return NRL_OK;
}

static const nrl_optimizer crash = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, crash_options, crash_rows, "crash", "1.0", "ends the process"),
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .update = update,
};
NRL_EXPORT(crash)
