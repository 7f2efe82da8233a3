/*
 * pipeline.h - shared by the files of this strategy.
 *
 *   pipeline.c  options, the table, the plan: what each stage holds
 *   split.c     assigns units to stages
 *   order.c     order of a stage's actions
 *   shared.c    gradients of parameters that several stages hold
 *
 * Legend: P stages, M micro-batches, U units.
 */
#ifndef PIPELINE_H
#define PIPELINE_H
#include <nrl/nrl.h>

enum { PIPELINE_1F1B = 0, PIPELINE_GPIPE };

typedef struct {
    int64_t schedule;
    const nrl_node *split;
} pipeline_options;

/* A parameter that this stage and at least one other hold. */
typedef struct {
    nrl_param *param;
    int32_t owner; /* the lowest of the stages: it sums */
} pipeline_shared;

typedef struct {
    pipeline_options options;
    nrl_comm *comm;
    int32_t index, n; /* this stage of P */
    nrl_parallel_plan plan;
    int32_t *stages;    /* [U] */
    int32_t first, end; /* this stage's units */
    bool *owner_stages; /* [n_params][P] */
    pipeline_shared *shared;
    int32_t n_shared;
    int64_t chunk;        /* number of elements of `incoming` */
    nrl_tensor *incoming; /* receives another stage's GRAD_SHARD; NULL: this stage sums nothing */
    char text[240];
} pipeline;

/* ---- split.c ---- */
/* Splits consecutive units, at least one per stage, so that the most expensive stage costs as little as possible. */
void pipeline_balance(const double *costs, int32_t n_units, int32_t n_stages, int32_t *stages);
/* By `split: [units of each stage]`, or by the cost of the model's operations. */
nrl_status pipeline_split(pipeline *p);

/* ---- order.c ---- */
typedef struct {
    bool backward;
    int32_t micro_batch;
} pipeline_turn;
/* turns [2 M]: the actions of stage `index` of P, in order. */
void pipeline_order(int64_t schedule, int32_t n_stages, int32_t index, int32_t n_micro_batches, pipeline_turn *turns);
nrl_status pipeline_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n);

/* ---- shared.c ---- */
nrl_status pipeline_find_shared(pipeline *p);
nrl_status pipeline_bind(void *self, nrl_ctx *ctx);
void pipeline_unbind(void *self, nrl_ctx *ctx);
nrl_status pipeline_finish(void *self, nrl_ctx *ctx);

#endif
