/*
 * pipeline.h - shared by the files of this strategy.
 *
 *   pipeline.c  options, the table, the plan: what each stage holds
 *   split.c     assigns units to stages
 *   order.c     order of a rank's actions
 *   bubble.c    how long ranks wait for each other
 *   measure.c   measures the costs of units
 *   shared.c    gradients of parameters that several stages hold
 *
 * Legend: P ranks, V stages of each, M micro-batches, U units.
 */
#ifndef PIPELINE_H
#define PIPELINE_H
#include <nrl/nrl.h>

enum { PIPELINE_1F1B = 0, PIPELINE_GPIPE, PIPELINE_INTERLEAVED, PIPELINE_ZERO_BUBBLE };
enum { PIPELINE_BY_FLOPS = 0, PIPELINE_BY_UNITS, PIPELINE_MOST_CHUNKS = 64 };

typedef struct {
    int64_t schedule, stages_per_rank, balance, measure;
    const nrl_node *split, *costs;
} pipeline_options;

typedef struct {
    int64_t schedule;
    int32_t n_ranks, n_chunks; /* P, V: stage k is chunk k / P of rank k mod P */
} pipeline_shape;

/* A parameter that this rank and at least one other hold. */
typedef struct {
    nrl_param *param;
    int32_t owner; /* the lowest of the ranks: it sums */
} pipeline_shared;

typedef struct {
    pipeline_options options;
    nrl_comm *comm;
    pipeline_shape shape;
    int32_t index, n; /* this rank of P */
    nrl_parallel_plan plan;
    int32_t *first;     /* [P V + 1] first unit of each stage; U at the end */
    int32_t *ranks;     /* [U] */
    double *costs;      /* [U] of a micro-batch, relative to each other */
    bool *owner_stages; /* [n_params][P] */
    pipeline_shared *shared;
    int32_t n_shared;
    int64_t chunk;        /* number of elements of `incoming` */
    nrl_tensor *incoming; /* receives another rank's GRAD_SHARD; NULL: this rank sums nothing */
    double *times;        /* [U][passes] shortest seconds so far; NULL: nothing is measured */
    double entered;       /* time */
    int64_t n_steps;      /* that were measured */
    nrl_tensor *probe;    /* [1] whose value is there after everything before it */
    char *text;
} pipeline;

/* ---- split.c ---- */
/* Splits consecutive units, at least one per stage, so that the most expensive stage costs as little as possible.
 * first [n_stages + 1]: first unit of each stage; n_units at the end. */
void pipeline_balance(const double *costs, int32_t n_units, int32_t n_stages, int32_t *first);
/* By `split: [units of each stage]`, or by cost. */
nrl_status pipeline_split(pipeline *p);

/* ---- order.c ---- */
typedef struct {
    uint32_t pass; /* nrl_pass */
    int32_t chunk, micro_batch;
} pipeline_turn;
/* turns, room for 3 M V: those of a rank, in order. Returns their number. */
int64_t pipeline_order(const pipeline_shape *shape, int32_t rank, int32_t n_micro_batches, pipeline_turn *turns);
nrl_status pipeline_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n);

/* ---- bubble.c ---- */
/* Time that ranks wait in a step, per time that they compute; costs [P V] of the stages for one micro-batch. */
double pipeline_wait(const pipeline_shape *shape, const double *costs, int32_t n_micro_batches);
double pipeline_bubble(void *self, int32_t n_micro_batches);

/* ---- measure.c ---- */
nrl_status pipeline_measure_bind(pipeline *p, nrl_ctx *ctx);
void pipeline_measure_unbind(pipeline *p, nrl_ctx *ctx);
nrl_status pipeline_enter(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i);
nrl_status pipeline_leave(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i);
/* At the end of a step; prints what was measured once. */
nrl_status pipeline_measure_finish(pipeline *p, nrl_ctx *ctx);

/* ---- shared.c ---- */
nrl_status pipeline_find_shared(pipeline *p);
nrl_status pipeline_bind(void *self, nrl_ctx *ctx);
void pipeline_unbind(void *self, nrl_ctx *ctx);
nrl_status pipeline_finish(void *self, nrl_ctx *ctx);

#endif
