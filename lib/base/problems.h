/*
 * problems.h - collects all mistakes of a config, to report them in one error.
 */
#ifndef BASE_PROBLEMS_H
#define BASE_PROBLEMS_H
#include "base/node.h"

typedef struct config_problem config_problem;
typedef struct {
    config_problem *list;
    size_t n, capacity;
    /* Optional: what an unknown key is here, or a word that is not in a list (KEY=WORD): "it is optimizer.lr here" or
     * another text, in `a`; NULL = unknown. */
    const char *(*known_as)(void *user, arena *a, const char *word);
    void *user;
    bool lacks_memory; /* a call failed for lack of memory, whatever the other mistakes are */
} config_problems;

/* Adds a mistake at the place of a node (NULL: no place). Initialise the list with {0}. [main] */
void problems_add(config_problems *p, const nrl_node *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* "; it is bf16 here" for a word that the option, section or slot `key` does not have, "" if it is unknown. In `a`. */
const char *problems_known_as(const config_problems *p, arena *a, const char *key, const char *word);

/* Adds this thread's error text as a mistake, after a call that failed with `st`. */
void problems_take_error(config_problems *p, nrl_status st, const nrl_node *at);

/* Returns NRL_OK if there are no mistakes, else NRL_ERR_CONFIG with all of them, sorted by place, or NRL_ERR_MEMORY if
 * one of them is a lack of memory. Empties p. */
nrl_status problems_report(config_problems *p);
/* The same with another code, and with the name of several mistakes in the text. */
nrl_status problems_report_as(config_problems *p, nrl_status code, const char *name);

#endif
