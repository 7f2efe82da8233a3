/*
 * local_world.h - what the ranks of local_collective.c share: everything lies in one `world` under one lock.
 * The n-th call of a group is one operation on all its ranks.
 */
#ifndef SUPPORT_LOCAL_WORLD_H
#define SUPPORT_LOCAL_WORLD_H
#include "support/local_collective.h"
#include <pthread.h>
#include <time.h>

typedef struct world world;

typedef struct group {
    struct group *next; /* of the world's */
    world *world;
    int32_t size;
    int32_t *members; /* [size] their ranks in the world */
    int64_t *calls;   /* [size] made so far */
    bool *gone;       /* [size] has closed */
    int32_t lost;     /* whose leaving ended an operation, -1: nobody's */
} group;

struct nrl_request {
    bool done;
    nrl_status status;
    char text[256];
    group *group; /* a split's: what this rank belongs to now, and as whom */
    int32_t rank;
};

/* A call that not all ranks have made yet; or a send or recv without its partner. */
typedef struct op {
    struct op *next;
    group *group;
    int64_t number; /* of the group's calls; -1: send or recv */
    local_kind kind;
    bool is_send;
    int32_t first, joined;   /* rank that came first; how many have come */
    nrl_comm_args *operands; /* [size]; their arrays are copies */
    nrl_request **requests;  /* [size], NULL: has not come */
} op;

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t size, references;
    bool *here;         /* [size] has joined */
    int32_t aborted_by; /* -1: nobody */
    group *groups;      /* all there ever were */
    op *ops;            /* in flight, oldest first */
};

group *local_group_new(world *w, int32_t size);
/* Joins `size` ranks through the store within `timeout` seconds; w->groups ends with the group of all. */
nrl_status local_world_join(nrl_store *store, int32_t rank, int32_t size, double timeout, world **w);
void local_world_leave(world *w); /* under the lock, which it gives up */

op *local_op_new(group *g, local_kind kind, int64_t number, int32_t first);
/* Everybody who has come gets the same status, with this thread's words; the operation is over. */
void local_op_end(op *o, nrl_status st);

struct timespec local_time_in(double seconds); /* of CLOCK_MONOTONIC */

#endif
