/*
 * visitor.h - the two sides of nrl_visit_*: values into a map of the manifest, and back out of it.
 */
#ifndef CHECKPOINT_VISITOR_H
#define CHECKPOINT_VISITOR_H
#include "base/node.h"
#include <nrl/algorithm.h>

/* One of the two is set. */
struct nrl_visitor {
    arena *a;             /* of `into` */
    nrl_node *into;       /* a map: values are saved */
    const nrl_node *from; /* a map: values are restored */
};

#endif
