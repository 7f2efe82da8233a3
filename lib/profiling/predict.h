/*
 * predict.h - the memory and the time of a config's steps, from dry runs of its ranks. Each rank is walked alone, with
 * the batches, operations and calls that it would have; their times (machine.h) then pass through a model of the ranks,
 * in which a call of a collective ends when the last rank has begun it and its data have been sent.
 */
#ifndef PROFILING_PREDICT_H
#define PROFILING_PREDICT_H
#include "profiling/machine.h"
#include "profiling/traffic.h"
#include "run/internal.h"
#include <nrl/profile.h>

typedef struct {
    nrl_run_info memory; /* of the rank that needs most; `device` and `clock` are NULL */
    int64_t tokens;      /* of a step, over all ranks */
    double seconds;      /* of a step */
    double compute;      /* in operations, on the rank that computes longest */
    double waiting;      /* for other ranks, on that rank */
    double host;         /* between operations */
    double busy;         /* processor time of a rank: operations, host, and communication; the mean over ranks */
    bool has_time;       /* false: only memory */
    int32_t n_steps;     /* that were walked */
    int32_t n_walked;    /* ranks */
    nrl_node *calls;     /* of rank 0: {call, ranks, stride, count, sent_bytes} of a step */
    nrl_node *traffic;   /* of each of them: {rank, sent_bytes, sent_messages, received_messages: [n_steps]} */
    double sent_bytes, sent_messages; /* of a step, on the rank that sends most */
    /* [n_units] of operations of the model's units, head and loss included, of a step on the ranks that were walked */
    double *unit_seconds;
    int32_t n_units;
    const nrl_node *config; /* with all defaults (nrl_run_config), ${env:NAME} as written */
} prediction;

typedef struct {
    nrl_environment env; /* of the program; ranks, dry_run and what follows from it are set here */
    int32_t ranks;       /* all on this machine, or on nodes (machine.ranks_per_node) */
    bool opens_device;   /* for its facts, even if the times come from a file */
    bool on_nodes;       /* without a description of nodes they are like this machine, with a rank a processor */
    arena *memory;       /* of prediction.traffic, .calls, .unit_seconds and .config */
} predict_setup;

/* `config` makes the config of a rank in `a`; predict destroys it. Without `times` only the memory is predicted. */
nrl_status predict(const predict_setup *setup, nrl_config *(*config)(void *user, arena *a), void *user, machine *m,
                   bool times, prediction *out);

/* Ranks of a node: of the cluster, or of a machine like this one, or all. */
int32_t predict_node(const predict_setup *setup, const machine *m);

/* Measures the calls of the config's collective between processes of this machine, started here: as many as each
 * divisor of `ranks` up to `most`, and 2, 4, .. if there are more ranks; nothing if they are known. The run is a dry
 * run that is open. */
nrl_status links_measure(machine *m, run *r, int32_t ranks, int32_t most);

#endif
