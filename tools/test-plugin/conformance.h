/*
 * conformance.h - what every plugin of a kind promises, as rules that are checked on any plugin,
 * whoever wrote it: `nrl plugins test FILE`.
 *
 * A suite calls a plugin's table as the core does and compares with plain reference code of its own.
 * A new kind is a row in suites.h.
 */
#ifndef CONFORMANCE_CONFORMANCE_H
#define CONFORMANCE_CONFORMANCE_H
#include <nrl/nrl.h>

/* A rule is a short sentence; it holds when all its checks do. */
typedef struct {
    char rule[64];
    int64_t checked, failed; /* checked 0: skipped */
    char text[448];          /* of the first failure, or why it was skipped */
} conformance_rule;

enum { CONFORMANCE_MAX_RULES = 128 };

/* Holds no pointers: it may lie in memory shared with another process, as a plugin under test may
 * crash. Zero to start with. */
typedef struct {
    conformance_rule rules[CONFORMANCE_MAX_RULES]; /* in the order they were first checked */
    int64_t n_rules, checked, failed;              /* checks */
} conformance_report;

typedef struct {
    const void *options;              /* of the plugin under test, filled */
    const nrl_backend *backend;       /* computes for algorithms, optimizers, models and strategies */
    const void *backend_options;      /* likewise filled */
    const char *folder;               /* where loggers and suites may write */
    const char *path;                 /* a tokenizer, the text of a template or rows, for its plugin; NULL = none */
    const nrl_node *model_config;     /* a parsed config.json of a few thousand parameters; NULL = one
                                         of the usual keys */
    const nrl_collective *collective; /* between the ranks of a strategy */
    const void *collective_options;   /* likewise filled */
    const char *address;              /* of a store under test; NULL: the suite tries some */
    const nrl_store_plugin *store;    /* where ranks meet */
    const void *store_options;        /* likewise filled */
} conformance_setup;

enum { SUITE_NEEDS_NOTHING = 0, SUITE_NEEDS_BACKEND = 1, SUITE_NEEDS_COLLECTIVE = 2, SUITE_NEEDS_STORE = 4 };

#define SUITE_STORE_ADDRESS "127.0.0.1:0" /* that setup.store serves */

bool conformance_has_suite(uint32_t kind);
unsigned conformance_needs(uint32_t kind); /* SUITE_NEEDS_... of the setup */
/* The suite writes to standard output where the plugin does. The kind must have a suite. */
void conformance_run(const nrl_plugin *table, const conformance_setup *setup, conformance_report *report);

#endif
