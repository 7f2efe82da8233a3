/*
 * tape_node.h - a recorded operation, for tape.c (recording) and tape_walk.c (the way back).
 */
#ifndef TENSOR_TAPE_NODE_H
#define TENSOR_TAPE_NODE_H
#include "tensor/tape.h"

enum { INLINE_ATTRIBUTES = 160 };

struct nrl_tape_node {
    nrl_tape_node *older; /* recorded before; also links spare nodes */
    const char *name;
    nrl_tape_backward backward;
    nrl_tensor *inputs[NRL_TAPE_MAX_OPERANDS];
    nrl_tensor *outputs[NRL_TAPE_MAX_OPERANDS];
    nrl_tensor *saved[NRL_TAPE_MAX_OPERANDS];
    tape *tape;
    uint32_t recomputable; /* bit i: saved[i] is not kept, its maker makes it again */
    tape_remake recompute; /* of outputs[0]; NULL = none */
    nrl_tensor *made;      /* outputs[0] once it was recomputed, counted */
    void *attributes;      /* inside the node, or malloc'd where larger */
    _Alignas(16) unsigned char small[INLINE_ATTRIBUTES];
};

struct tape {
    nrl_tape_node *newest;
};

#endif
