/*
 * helper.h - the Python process that hands records to the package wandb. All functions run on the thread that sends
 * records.
 */
#ifndef WANDB_HELPER_H
#define WANDB_HELPER_H
#include "record_queue.h"
#include <stdio.h>
#include <sys/types.h>

typedef struct {
    const char *log;            /* the file that gets what it prints */
    record_queue *const *queue; /* waits end when it gives up */
    pid_t pid;                  /* 0 = not running */
    int fd;                     /* a socket, the helper's standard input; valid while it runs */
} helper;

nrl_status helper_start(helper *h);
/* Sends a line (with its end) and waits for the answer. Ends the helper if that fails. */
nrl_status helper_ask(helper *h, const char *line, size_t size);
/* Ends the input of a running helper, and waits until it has finished. */
nrl_status helper_finish(helper *h);

#endif
