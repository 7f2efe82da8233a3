/*
 * problems.h - collects every mistake of a config, so that all are told in one go.
 */
#ifndef CONFIG_PROBLEMS_H
#define CONFIG_PROBLEMS_H
#include "base/node.h"

typedef struct config_problem config_problem;
typedef struct {
    config_problem *list;
    size_t n, capacity;
} config_problems;

/* Adds a mistake at a node's place (NULL: no place). Use {0} to start. [main] */
void problems_add(config_problems *p, const nrl_node *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Takes this thread's error text as one more mistake: for a failed call that has its own words. */
void problems_take_error(config_problems *p, const nrl_node *at);

/* NRL_OK if there are none, else one NRL_ERR_CONFIG with all of them, sorted by place. Empties p.
 */
nrl_status problems_report(config_problems *p);
/* The same with a code of the caller's, and what several of them are called. */
nrl_status problems_report_as(config_problems *p, nrl_status code, const char *name);

#endif
