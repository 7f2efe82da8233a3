/*
 * node.h - the nodes of a tape. Only for the files of this directory.
 */
#ifndef TENSOR_TAPE_NODE_H
#define TENSOR_TAPE_NODE_H
#include "tensor/tape/tape.h"

enum { INLINE_ATTRIBUTES = 160 };

struct tape {
    nrl_tape_node *newest;
};

/* A recorded operation. */
struct nrl_tape_node {
    nrl_tape_node *older; /* the node recorded before; also links spare nodes */
    const char *name;
    nrl_tape_backward backward;
    nrl_tensor *inputs[NRL_TAPE_MAX_OPERANDS];
    nrl_tensor *outputs[NRL_TAPE_MAX_OPERANDS];
    nrl_tensor *saved[NRL_TAPE_MAX_OPERANDS];
    tape *tape;
    uint32_t recomputable; /* bit i: saved[i] is not kept; its maker recomputes it */
    tape_remake recompute; /* recomputes outputs[0]; NULL = none */
    nrl_tensor *made;      /* outputs[0] after it was recomputed, refcounted */
    nrl_work *work;        /* after which `made` has its contents; NULL = it has */
    nrl_status (*wait)(nrl_work **work, nrl_ctx *ctx);
    tape collected;   /* see tape_collect */
    bool reads_later; /* see tape_reads_later */
    void *attributes; /* `small`, or malloc'd if they are larger */
    _Alignas(16) unsigned char small[INLINE_ATTRIBUTES];
};

#endif
