/*
 * replay.h - one step of a recorded run on batches made from the recording's token ids.
 */
#ifndef RUN_REPLAY_H
#define RUN_REPLAY_H
#include "support/batch_check.h"
#include "base/clock.h"
#include "support/run.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { REPLAY_MAX_MICRO = 16 };

/* The recording's micro-batches, each made by make_batch, in the place of the run's own. */
static inline void replay_step(run *r, const nrl_node *step, nrl_batch *(*make_batch)(const nrl_node *micro_batch),
                               nrl_run_event *e)
{
    const nrl_node *micro_batch = nrl_node_find(step, "micro");
    nrl_batch *batches[REPLAY_MAX_MICRO];
    data_step data = {.micro_batch = batches, .n_micro_batches = (int64_t)nrl_node_size(micro_batch)};
    assert_true(data.n_micro_batches <= REPLAY_MAX_MICRO);
    for (int64_t m = 0; m < data.n_micro_batches; m++) {
        batches[m] = make_batch(nrl_node_at(micro_batch, (size_t)m));
        assert_int_equal(batch_check(batches[m], 512), NRL_OK);
    }
    bool done;
    const step_input in = {.data = &data, .began = clock_seconds()};
    if (trainer_step(&r->trainer, &in, e, &done) != NRL_OK) fail_msg("%s", nrl_error_text());
    ctx_set_batch(r->session.ctx, NULL);
    for (int64_t m = 0; m < data.n_micro_batches; m++)
        batch_free(batches[m]);
}

#endif
