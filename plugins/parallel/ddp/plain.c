/*
 * plain.c - compress: none. One in-place all_reduce per bucket, in the buckets' dtype. With a ring,
 * each of R ranks sends 2 (R-1) / R times the bucket's bytes.
 */
#include "ddp.h"

static nrl_status plain_stage(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *more)
{
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = b->grads, .what = b->what};
    *more = false;
    return nrl_comm_all_reduce(d->comm, ctx, &call, &b->work[0]);
}

const ddp_codec ddp_plain = {.stage = plain_stage};
