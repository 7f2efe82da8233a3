/*
 * local_world.h - what the ranks of local_collective.c share: one `world` under one lock. The n-th
 * call of a group is one operation of all its ranks.
 */
#ifndef SUPPORT_LOCAL_WORLD_H
#define SUPPORT_LOCAL_WORLD_H
#include "support/local_collective.h"
#include <pthread.h>
#include <time.h>

typedef struct world world;

typedef struct group {
    struct group *next; /* the next group of the world */
    world *world;
    int32_t size;
    int32_t *members; /* [size] their ranks in the world */
    int64_t *calls;   /* [size] number of calls so far */
    bool *gone;       /* [size] has closed */
    int32_t lost;     /* the rank that left and thereby ended an operation, -1: none */
} group;

struct nrl_request {
    bool done;
    nrl_status status;
    char text[256];
    group *group; /* result of a split: the new group of this rank, and its rank in it */
    int32_t rank;
};

/* A call that some ranks have not made yet, or a send or recv without its partner. */
typedef struct op {
    struct op *next;
    group *group;
    int64_t number; /* number in the group's calls; -1: send or recv */
    local_kind kind;
    bool is_send;
    int32_t first, joined;   /* the rank that was first; how many ranks have joined */
    nrl_comm_args *operands; /* [size]; their arrays are copies */
    nrl_request **requests;  /* [size], NULL: has not joined */
} op;

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t size, references;
    bool *here;         /* [size] has joined */
    int32_t aborted_by; /* -1: none */
    group *groups;      /* all groups that were created */
    op *ops;            /* in flight, oldest first */
};

group *local_group_new(world *w, int32_t size);
/* Joins `size` ranks through the store within `timeout` seconds; w->groups ends with the group of all. */
nrl_status local_world_join(nrl_store *store, int32_t rank, int32_t size, double timeout, world **w);
void local_world_leave(world *w); /* call it with the lock held; releases the lock */

op *local_op_new(group *g, local_kind kind, int64_t number, int32_t first);
/* Gives all ranks that joined the same status, with this thread's error text; the operation is
 * over. */
void local_op_end(op *o, nrl_status st);

struct timespec local_time_in(double seconds); /* of CLOCK_MONOTONIC */

#endif
