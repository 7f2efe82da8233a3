/*
 * tally.c - AdamW that counts its steps in the instance: a number that only `state` brings back after a restart. Its
 * states have a version.
 */
#include <nrl/nrl.h>
#include <stdlib.h>

typedef struct {
    int64_t last, seen; /* the step of the last call; steps so far */
} tally;

static nrl_status tally_create(const void *options, void **self)
{
    (void)options;
    *self = calloc(1, sizeof(tally));
    return *self ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for optimizer 'tally'");
}

static nrl_status tally_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    const nrl_adamw adamw = {sizeof adamw, 0.9, 0.999, 1e-8, 0.1};
    tally *t = self;
    nrl_step_params own = *step;
    if (step->step != t->last) t->seen++;
    t->last = step->step;
    own.step = t->seen;
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(nrl_slice_adamw(ctx, nrl_slice_at(slices, i, step), &adamw, &own));
    return NRL_OK;
}

static nrl_status tally_state(void *self, nrl_state_io *io)
{
    return nrl_state_io_i64(io, "seen", &((tally *)self)->seen, 1);
}

static const char *const states[] = {"exp_avg", "exp_avg_sq"};

static const nrl_optimizer table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_OPTIMIZER, nrl_optimizer, "tally", "1.0", "AdamW that counts its steps itself"),
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .n_states = 2,
    .state_names = states,
    .create = tally_create,
    .destroy = free,
    .update = tally_update,
    .encoded = true,
    .state = tally_state,
    .state_version = 1,
};
NRL_EXPORT(table)
