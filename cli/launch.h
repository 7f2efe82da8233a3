/*
 * launch.h - what `nrl launch` is about to start, and the ranks it has started. Reading order:
 * launch.c (arguments), launch_nodes.c (who is where), launch_start.c (processes), launch_watch.c
 * (until they have ended), launch_tell.c (what the others hear of it), launch_lines.c (their output).
 * [main]
 */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H
#include "base/arena.h"
#include "cli/launch_lines.h"
#include "cli/launch_nodes.h"
#include "mesh/secret.h"
#include <nrl/status.h>
#include <signal.h>
#include <sys/types.h>

typedef struct {
    int32_t rank, local_rank;
    pid_t pid;
    bool running;
    int code; /* once it has ended: its exit code, 128 + n for signal n */
    lines_source out, err;
} launch_rank;

typedef struct {
    arena *a;
    char **command;               /* "nrl", verb, arguments, NULL */
    launch_nodes nodes;           /* at least one */
    size_t own;                   /* which of them this is */
    int32_t world, first_rank;    /* of all nodes; of this node */
    const char *address, *run_id; /* where the ranks meet */
    const store_secret *secret;   /* of this job; NULL = none */
    int secret_fd;                /* what the ranks take it from; -1 = there is none */
    int32_t port;
    bool holds_store;    /* this launcher does, else that of the first node */
    double grace;        /* seconds between TERM and KILL, after a rank has failed */
    double signal_grace; /* between a signal that is passed on and KILL; < 0 = no limit */
    sigset_t mask;       /* of signals, as the launcher found it: the ranks' */
    launch_rank *ranks;  /* [n_ranks] of this node */
    int32_t n_ranks;
    lines_sink out, err;
} launch;

/* A run of one rank needs no launcher beside it: this process becomes that rank. */
nrl_status launch_alone(launch *l);

/* Starts all ranks of this node; where one cannot be started, the others are ended again. */
nrl_status launch_start(launch *l);

/* Passes signals on and lines through until every rank has ended. *code is the first failing rank's;
 * a line on stderr says who failed, where the rank itself could not. */
nrl_status launch_watch(launch *l, int *code);

/* Puts how a rank ended into the store, where no rank has given a reason yet: those that wait for it,
 * on any node, learn it at once. */
void launch_tell(const launch *l, const launch_rank *r);

/* "exit code 3: its first error" or "signal 9 (Killed)"; in l->a. */
const char *launch_end_text(const launch *l, const launch_rank *r);

#endif
