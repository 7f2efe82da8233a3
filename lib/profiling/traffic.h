/*
 * traffic.h - what the calls of a collective send, by formulas, and how long they take on links of which only the
 * latency and the bandwidth are known. docs/scaling.md states the formulas and their sources.
 */
#ifndef PROFILING_TRAFFIC_H
#define PROFILING_TRAFFIC_H
#include <nrl/collective.h>

typedef enum {
    CALL_BARRIER,
    CALL_BROADCAST,
    CALL_ALL_REDUCE,
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_ALL_TO_ALL,
    CALL_SEND,
    CALL_RECV,
    N_CALLS
} call_kind;

extern const char *const call_names[N_CALLS];

/* Of one rank: payload in bytes, without headers, and messages. */
typedef struct {
    double bytes, messages, received;
} traffic;

/* What the rank with coordinate `at` of a group of `ranks` sends in a call with these operands. */
traffic traffic_of(call_kind kind, const nrl_comm_args *a, int32_t at, int32_t ranks);

/* A link: a message of b bytes takes alpha + b beta seconds. */
typedef struct {
    double alpha, beta;
} link_cost;

/* The factors of alpha and of beta in the duration of a call of `ranks` ranks: how many messages follow each other, and
 * how many bytes pass through the link of one rank meanwhile. `bytes`: of the operand; of all_gather, reduce_scatter
 * and all_to_all those of all ranks' shares. */
void traffic_rounds(call_kind kind, double bytes, int32_t ranks, double *rounds, double *through);

#endif
