/*
 * launch.h - what `nrl launch` is about to start, and the ranks it has started. Reading order:
 * launch.c (arguments), launch_nodes.c (nodes), launch_start.c (processes), launch_watch.c
 * (until they have ended), launch_report.c (reports failures), launch_lines.c (their output), launch_again.c
 * (--max-restarts), launch_join.c (--nodes MIN:MAX). [main]
 */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H
#include "base/arena.h"
#include "cli/launch_lines.h"
#include "cli/launch_nodes.h"
#include "mesh/store.h"
#include <nrl/status.h>
#include <signal.h>
#include <sys/types.h>

typedef struct launch_meeting launch_meeting; /* launch_join.c */

typedef struct {
    int32_t rank, local_rank;
    pid_t pid;
    bool running;
    int code; /* after it has ended: its exit code, 128 + n for signal n */
    lines_source out, err;
} launch_rank;

typedef struct {
    arena *a;
    char **command;     /* "nrl", verb, arguments, NULL */
    launch_nodes nodes; /* at least one */
    launch_host *hosts; /* [n_hosts] of the config */
    size_t n_hosts;
    size_t own;                 /* index of this node */
    int32_t world, first_rank;  /* of all nodes; of this node */
    const char *store, *run_id; /* the store's address, as its plugin takes it, and the job's id */
    store_kind store_kind;      /* the plugin that serves the address */
    plugin_host *host;          /* the host of that plugin */
    bool holds_store;           /* this launcher holds the store; otherwise the first node's, or another program */
    const secret_key *secret;   /* of this job; NULL = none */
    int secret_fd;              /* descriptor from which ranks read it; -1 = no secret */
    double grace;               /* seconds between TERM and KILL, after a rank has failed */
    double signal_grace;        /* seconds between a forwarded signal and KILL; < 0 = no limit */
    sigset_t mask;              /* the signal mask that the launcher started with, for the ranks */
    launch_rank *ranks;         /* [n_ranks] of this node */
    int32_t n_ranks;
    lines_sink out, err;
    int32_t max_restarts, restarts; /* --max-restarts; how often the ranks have been started again */
    const char *first_run_id;       /* run_id of the first start */
    const char *newest;             /* launch_newest before the first start */
    const char *restart_cause;      /* why the last start failed: "rank 1: signal 9 (Killed)"; NULL = first start */
    bool was_signalled;             /* a signal was forwarded to the ranks */
    /* --nodes MIN:MAX; 0 = the nodes are known. Each start has those that are there. */
    int32_t min_nodes, max_nodes;
    const char *meet_host, *meet_at; /* where their launchers find each other */
    double join_wait;                /* seconds to wait for more than min_nodes */
    launch_meeting *meeting;         /* NULL = none */
    const char *ranks_of_nodes;      /* of the newest start: "2,2,4" */
    bool is_over;                    /* the run ended without another start of this machine */
} launch;

/* The numbers of this node's ranks, from `nodes` and `own`. */
nrl_status launch_place(launch *l);

/* A run of one rank needs no separate launcher: this process becomes that rank. */
nrl_status launch_alone(launch *l);

/* The first argument of the ranks' verb in l->command, a config, a script or a run; after it, NULL or the others. */
char **launch_argument(const launch *l);

/* What identifies the newest checkpoint of the run in `resume RUN@STEP`; "" = none, or another command. */
const char *launch_newest(const launch *l);

/* Whether the ranks are to be started again after they have ended with `code`: some rank was lost, which another start
 * may mend, and --max-restarts permits it. */
bool launch_may_restart(const launch *l, nrl_status st, int code);
/* Prepares that start, with the nodes that are there. */
nrl_status launch_again(launch *l);
/* A start has a run id of its own, and all but the first continue from the newest checkpoint. */
nrl_status launch_number(launch *l, int32_t number);
/* Appends an argument to the command of the ranks, unless it is the last one already. */
void launch_add_word(launch *l, const char *word);

/* Starts all ranks of this node; if one cannot be started, ends the others. */
nrl_status launch_start(launch *l);

/* Forwards signals and output until every rank has ended. *code is the code of the first failing rank; a
 * line on stderr names that rank if it could not report the error itself. */
nrl_status launch_watch(launch *l, int *code);

/* Records in the store how a rank ended, unless a rank has already recorded a cause: ranks that wait for
 * it, on any node, learn it at once. */
void launch_report(const launch *l, const launch_rank *r);

/* "exit code 3: its first error" or "signal 9 (Killed)"; in l->a. */
const char *launch_end_text(const launch *l, const launch_rank *r);

#endif
