/*
 * watch.h - `nrl watch`: a run in progress, as a page that updates itself (watch_serve.c) or in the terminal
 * (watch.c).
 */
#ifndef WATCH_WATCH_H
#define WATCH_WATCH_H
#include "report.h"
#include <signal.h>

typedef struct {
    const char *dir;
    const char *records; /* DIR/metrics.jsonl */
} watched;

/* A text that changes with the run's records: size and time of metrics.jsonl; "" without the file. */
void watch_version(const watched *w, char text[64]);
/* "running", "finished", "no record for 12 minutes: stopped or lost". Lives in `a`. */
const char *watch_state(arena *a, const report_run *r, double now);
/* The number of steps that the config asks for; 0 = unknown. */
double watch_total(const report_run *r);

/* Serves the page on the loopback interface until a signal of `signals` arrives. */
nrl_status watch_serve(const watched *w, int64_t port, const sigset_t *signals);

#endif
