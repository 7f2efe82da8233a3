/*
 * stage.h - this rank's units of a model divided into stages, which may be several runs of consecutive units, and the
 * carries that it exchanges with the ranks of the units before and behind them: what a unit gave goes on to the stage
 * of the next one, the gradient of what a unit read goes back. Receives are posted ahead, unless a device executes
 * them in order; sends go on by themselves, and keep what they send until it has left. With one stage nothing here does
 * anything.
 */
#ifndef RUN_STAGE_H
#define RUN_STAGE_H
#include "mesh/mesh.h"
#include "model/model.h"
#include "run/walk/micro_batch.h"
#include <nrl/parallel.h>

enum { STAGE_IS_STEP = 1 }; /* bit of what stage_begin returns */
enum { STAGE_AHEAD = 2 };   /* receives that are posted beside the one that is waited for: the next of each pass */

typedef struct {
    uint32_t id;   /* of stage_begin */
    uint32_t pass; /* of the action */
    int32_t unit;  /* the later of the two between which it passes */
    int32_t micro_batch;
    nrl_carry carry; /* counted */
    nrl_work *works[NRL_MAX_CARRY];
} stage_message;

typedef struct {
    nrl_comm *comm;                 /* the axis that divides the depth; NULL: one stage */
    int32_t index, n;               /* on that axis */
    const int32_t *stages;          /* [n_units] whose each unit is, by index; NULL: all are this rank's */
    int32_t n_units, first_trained; /* of the model: units below the second have no backward */
    int32_t instance;
    int32_t n_carry;
    int64_t width[NRL_MAX_CARRY];
    nrl_dtype dtype;              /* of carries on their way: the compute dtype */
    uint32_t n_begun[2];          /* walks without gradients, and steps */
    stage_message *posted, *sent; /* arrays that grow */
    int32_t n_posted, n_sent, posted_room, sent_room;
} stage_link;

/* All units are this rank's. */
stage_link stage_whole(const model *m);
static inline bool stage_has(const stage_link *s, int32_t unit)
{
    return !s->stages || s->stages[unit] == s->index;
}

/* Whether the results of the last rank go back to the first one. */
bool stage_goes_around(const stage_link *s);
/* A step, or a walk without gradients (perhaps amid a step), begins on all stages alike; what tells its messages
 * from those of others. */
uint32_t stage_begin(stage_link *s, bool is_step);
/* Whether the action begins with tensors of another stage. */
bool stage_receives(const stage_link *s, const nrl_action *v);
/* Starts to receive them, `rows` tokens, unless that has been done. */
nrl_status stage_post(stage_link *s, nrl_ctx *ctx, uint32_t id, const nrl_action *v, int64_t rows);
/* Waits for them; *out is counted for the caller. */
nrl_status stage_take(stage_link *s, nrl_ctx *ctx, uint32_t id, const nrl_action *v, int64_t rows, nrl_carry *out);
/* Whether the result of the action goes to another stage. */
bool stage_sends(const stage_link *s, const nrl_action *v);
/* `carry` [rows,width] each, borrowed; NULL tensors are zeros. */
nrl_status stage_send(stage_link *s, nrl_ctx *ctx, uint32_t id, const nrl_action *v, int64_t rows,
                      const nrl_carry *carry);
/* Waits until everything has been sent. */
nrl_status stage_settle(stage_link *s, nrl_ctx *ctx);
void stage_close(stage_link *s, nrl_ctx *ctx);

#endif
