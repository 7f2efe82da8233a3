/*
 * op_seam.c - seams on the tape. What goes in (COLUMN_IN) comes back through a node of its own; what comes out
 * (ROW_OUT, EMBED_OUT) is summed in place, and its gradient is that of the sum: no node.
 */
#include "tensor/seam.h"
#include "tensor/tape.h"

typedef struct {
    nrl_seam seam;
    seam_answer answer;
    void *user;
} seam_attributes;

void ctx_set_seams(nrl_ctx *ctx, seam_answer answer, void *user)
{
    ctx->seams = answer;
    ctx->seams_user = user;
}

nrl_status seam_ask(nrl_ctx *ctx, nrl_seam seam, bool back, nrl_tensor *x, nrl_tensor **y)
{
    *y = x;
    return ctx->seams ? ctx->seams(ctx->seams_user, ctx, seam, back, x, y) : NRL_OK;
}

static nrl_status seam_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const seam_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *dy = nrl_tape_grad(node, 0), *mine = dy, *dx;
    if (!tape_grad_is_unshared(node, 0)) {
        NRL_TRY(tensor_like(ctx, dy, &mine));
        NRL_TRY(tensor_copy(ctx, dy, mine));
    }
    NRL_TRY(at->answer(at->user, ctx, at->seam, true, mine, &dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

static nrl_status same_again(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *output)
{
    return tensor_copy(ctx, nrl_tape_saved(node, 0), output);
}

/* x that can be made again is not kept for the sake of its other name. */
static nrl_status push(nrl_ctx *ctx, nrl_seam seam, nrl_tensor *x, nrl_tensor *y)
{
    seam_attributes at = {seam, ctx->seams, ctx->seams_user};
    bool again = x->maker != NULL;
    nrl_tape_record r = {.name = "seam",
                         .inputs = {x},
                         .outputs = {y},
                         .saved = {again ? x : NULL},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = seam_backward};
    NRL_TRY(tape_push(ctx, &r, false));
    if (again) tape_can_remake(ctx, y, same_again);
    return NRL_OK;
}

nrl_status nrl_op_seam(nrl_ctx *ctx, nrl_seam seam, nrl_tensor *x, nrl_tensor **y)
{
    bool goes_in = seam == NRL_SEAM_COLUMN_IN || seam == NRL_SEAM_HEAD_IN;
    nrl_tensor *out;
    if (seam <= NRL_SEAM_NONE || seam >= NRL_SEAM_COUNT) return nrl_fail(NRL_ERR_BUG, "there is no seam %d", (int)seam);
    NRL_TRY(seam_ask(ctx, seam, false, x, &out));
    *y = out;
    if (!seam_is_answered(ctx) || (out == x && !goes_in) || !tape_records(ctx) || !x->has_grad) return NRL_OK;
    if (out == x) *y = tensor_view(ctx, x, 0, x->n_dims, x->dims, x->stride);
    return push(ctx, seam, x, *y);
}
