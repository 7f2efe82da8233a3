/*
 * suite.h - the rules for every plugin of a kind, which `nrl plugins test FILE` checks.
 *
 * A suite calls a plugin's table as the core does and compares the results with plain reference
 * code. A new kind is a row in suites.h.
 */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H
#include <nrl/nrl.h>

/* A rule is a short sentence; it holds when all its checks do. */
typedef struct {
    char rule[64];
    int64_t checked, failed; /* checked 0: skipped */
    char text[448];          /* of the first failure, or the reason why it was skipped */
} conformance_rule;

enum { CONFORMANCE_MAX_RULES = 128, CONFORMANCE_MAX_CASES = 512 };

typedef enum { CASE_NEW = 0, CASE_RUNNING, CASE_DONE, CASE_CRASHED } conformance_case;

/* Contains no pointers, because it may be in memory that is shared with another process: a plugin
 * under test may crash. Zero-initialise. */
typedef struct {
    conformance_rule rules[CONFORMANCE_MAX_RULES]; /* in the order of their first checks */
    int64_t n_rules, checked, failed;              /* checks */
    unsigned char cases[CONFORMANCE_MAX_CASES];    /* conformance_case, in the order of the suite */
    int32_t n_cases;                               /* that were begun by this process */
    int32_t current;                               /* the case that is running, from 1; 0 = none */
    char rule[64];                                 /* that a crash of it breaks */
} conformance_report;

typedef struct {
    const void *options;              /* of the plugin under test, filled */
    const nrl_backend *backend;       /* for suites of algorithms, optimizers, models and strategies */
    const void *backend_options;      /* likewise filled */
    const char *folder;               /* a writable directory for loggers and suites */
    const char *path;                 /* a tokenizer, the text of a template or rows, for the plugin under test; NULL
                                       * = none */
    const nrl_node *model_config;     /* a parsed config.json of a few thousand parameters; NULL = one with the common
                                       * keys */
    const nrl_collective *collective; /* between the ranks of a strategy */
    const void *collective_options;   /* likewise filled */
    const char *address;              /* of the store under test; NULL: the suite tries some */
    const nrl_store_plugin *store;    /* for ranks of the suite */
    const void *store_options;        /* likewise filled */
} conformance_setup;

enum { SUITE_NEEDS_NOTHING = 0, SUITE_NEEDS_BACKEND = 1, SUITE_NEEDS_COLLECTIVE = 2, SUITE_NEEDS_STORE = 4 };

#define SUITE_STORE_ADDRESS "127.0.0.1:0" /* an address that setup.store serves */

bool conformance_has_suite(uint32_t kind);
unsigned conformance_needs(uint32_t kind); /* the SUITE_NEEDS_... of a kind */
/* The plugin may write to standard output. The kind must have a suite. */
/* A process that crashed in a case is followed by another one with the same report, which leaves out what is done. */
void conformance_run(const nrl_plugin *table, const conformance_setup *setup, conformance_report *report);

#endif
