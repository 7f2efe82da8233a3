/*
 * stage.h - this rank's units of a model divided into stages, which may be several runs of consecutive units, and the
 * carries that it exchanges with the ranks of the units before and after them: the result of a unit goes to the stage
 * of the next unit, the gradient of its input goes back. Receives are posted ahead, unless a device executes them in
 * order; sends proceed in the background, and keep their tensors until these are sent. With one stage these functions
 * do nothing.
 */
#ifndef RUN_STAGE_H
#define RUN_STAGE_H
#include "mesh/mesh.h"
#include "model/model.h"
#include "run/walk/micro_batch.h"
#include <nrl/parallel.h>

enum { STAGE_IS_STEP = 1 }; /* bit of what stage_begin returns */
enum { STAGE_AHEAD = 2 };   /* receives posted in addition to the one that is waited for: the next of each pass */

typedef struct {
    uint32_t id;   /* of stage_begin */
    uint32_t pass; /* of the action */
    int32_t unit;  /* the later of the two units that exchange it */
    int32_t micro_batch;
    nrl_carry carry; /* counted */
    nrl_work *works[NRL_MAX_CARRY];
} stage_message;

typedef struct {
    nrl_comm *comm;                 /* the axis that divides the depth; NULL: one stage */
    int32_t index, n;               /* on that axis */
    const int32_t *stages;          /* [n_units] index of the rank of each unit; NULL: all are on this rank */
    int32_t n_units, first_trained; /* of the model: units below the second have no backward */
    int32_t instance;
    int32_t n_carry;
    int64_t width[NRL_MAX_CARRY];
    nrl_dtype dtype;              /* of carries in messages: the compute dtype */
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
/* All stages call it at the start of a step, or of a walk without gradients (perhaps within a step). Returns the id
 * that distinguishes its messages from others. */
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
