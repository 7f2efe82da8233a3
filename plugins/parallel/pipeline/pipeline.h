/*
 * pipeline.h - what the files of this strategy share.
 *
 *   pipeline.c  options, the table, the plan: which stage holds what
 *   split.c     units to stages
 *   order.c     in which order a stage works on micro-batches
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

/* A parameter that several stages hold, this one among them. */
typedef struct {
    nrl_param *param;
    int32_t owner; /* lowest of the stages: it sums */
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
    int64_t chunk;        /* elements of `incoming` */
    nrl_tensor *incoming; /* of the GRAD_SHARD of another stage; NULL: nothing is summed here */
    char text[240];
} pipeline;

/* ---- split.c ---- */
/* Consecutive units, at least one a stage, so that the dearest stage costs as little as can be. */
void pipeline_balance(const double *costs, int32_t n_units, int32_t n_stages, int32_t *stages);
/* By `split: [units of each stage]`, or by the model's operations. */
nrl_status pipeline_split(pipeline *p);

/* ---- order.c ---- */
typedef struct {
    bool backward;
    int32_t micro_batch;
} pipeline_turn;
/* turns [2 M]: what stage `index` of P does, one after the other. */
void pipeline_order(int64_t schedule, int32_t n_stages, int32_t index, int32_t n_micro_batches, pipeline_turn *turns);
nrl_status pipeline_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n);

/* ---- shared.c ---- */
nrl_status pipeline_find_shared(pipeline *p);
nrl_status pipeline_bind(void *self, nrl_ctx *ctx);
void pipeline_unbind(void *self, nrl_ctx *ctx);
nrl_status pipeline_finish(void *self, nrl_ctx *ctx);

#endif
