/*
 * collective.h - what the files of the collective suite share: ranks that are threads of this
 * process, joined through a store on loopback; vectors with guards; calls and waits.
 *
 * Each rank counts checks in a report of its own; the reports are merged when all ranks are done.
 * After a failed call a rank is `over` and makes no further calls, because they would not match
 * those of the others.
 */
#ifndef CONFORMANCE_COLLECTIVE_H
#define CONFORMANCE_COLLECTIVE_H
#include "base/clock.h"
#include "suites.h"
#include <nrl/harness.h>
#include <stdatomic.h>

enum { RANKS_MAX = 4, DONE_SECONDS = 10, JOIN_SECONDS = 15 };

#define RULE_DONE "a call that all ranks make completes"
#define RULE_GUARD "a call writes only its result"

/* What the ranks of one part share. */
typedef struct {
    const nrl_collective *table;
    const void *options;
    int32_t world;
    nrl_store *store;
    atomic_int signals[8];       /* set by one rank, awaited by others */
    uint64_t digests[RANKS_MAX]; /* of values that must be equal on all ranks */
} collective_group;

typedef struct {
    collective_group *g;
    const nrl_collective *table;
    int32_t rank, world;
    void *self;
    conformance_report *report;
    bool over;
    bool lone; /* close without a final barrier */
} member;

typedef nrl_status (*collective_call)(void *self, const nrl_comm_args *a, nrl_request **request);

typedef enum {
    COLLECTIVE_WENT_THROUGH = 0,
    COLLECTIVE_STOPPED, /* a call of a rank failed: larger groups would not give more information */
    COLLECTIVE_HANGS    /* a rank did not return: nothing more can be tested with this plugin */
} collective_end;

/* Opens `world` ranks, runs the part on each in a thread, closes them and merges the reports. */
collective_end collective_run(const nrl_collective *table, const conformance_setup *setup, int32_t world,
                              conformance_report *report, const char *name, void (*part)(member *m));

/* ---- calls ---- */
/* Starts the call; if that fails, the rule fails and the member is over. */
bool member_start(member *m, const char *rule, collective_call call, const nrl_comm_args *a, nrl_request **request);
/* Waits until the request is done and releases it. */
bool member_finish(member *m, const char *rule, nrl_request *request);
bool member_call(member *m, const char *rule, collective_call call, const nrl_comm_args *a);
bool member_barrier(member *m);
/* Signals between ranks, without the plugin; member_await returns true if the signal was set within
 * `seconds`. */
void member_signal(member *m, int which);
bool member_await(member *m, int which, int count, double seconds);

/* ---- vectors ---- */
typedef struct {
    uint32_t dtype;
    int64_t n;
    unsigned char *memory; /* guard, elements, guard */
    void *data;            /* 64-byte aligned */
} vec;

vec vec_new(uint32_t dtype, int64_t n); /* zeros; n may be 0 */
void vec_free(vec *v);
void vec_set(vec *v, int64_t i, double value);
double vec_get(const vec *v, int64_t i);
void *vec_at(const vec *v, int64_t i);
/* n values starting at `at`: small integers that depend on rank and position, exact in every dtype. */
void vec_fill(vec *v, int64_t at, int64_t n, int32_t rank);
double vec_value(int32_t rank, int64_t i);
/* v[at + i] = vec_value(rank, from + i) for i < n. */
bool vec_expect(member *m, const char *rule, const vec *v, int64_t at, int64_t n, int32_t rank, int64_t from);
void vec_check_guards(member *m, const vec *v, const char *what);
/* The case-th way to divide a vector among ranks: even with a shorter tail, empty shares, long
 * ones. */
enum { UNEVEN_CASES = 3 };
void uneven_counts(int32_t world, int which, int64_t *counts);

/* ---- the parts, run by collective.c ---- */
void collective_moves(member *m);
void collective_uneven(member *m);
void collective_messages(member *m);
void collective_sums(member *m);
void collective_bits(member *m);
void collective_shares(member *m);
void collective_requests(member *m);
void collective_timing(member *m);
void collective_groups(member *m);
void collective_abort(member *m);
void collective_loss(member *m);

#endif
