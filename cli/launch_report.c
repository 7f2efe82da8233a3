/*
 * launch_report.c - reports how a rank ended to the other ranks and to the user. A rank that is killed,
 * or that fails before it has joined, cannot report that itself; its launcher sees it first.
 */
#include "base/arena.h"
#include "cli/launch.h"
#include "mesh/mesh.h"
#include "mesh/abort_record.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double CONNECT = 1; /* seconds */

const char *launch_end_text(const launch *l, const launch_rank *r)
{
    const char *text = r->err.first_error;
    if (r->code > 128 && r->code < 128 + NSIG)
        return arena_printf(l->a, "signal %d (%s)", r->code - 128, strsignal(r->code - 128));
    return arena_printf(l->a, "exit code %d%s%s", r->code, text ? ": " : "", text ? text : "");
}

/* The number of the latest run, if ranks open several runs one after the other. */
static int32_t newest_run(nrl_store *store, const char *first_keys)
{
    nrl_store *keys;
    void *value = NULL;
    size_t size;
    bool found = false;
    if (store_open_prefix(store, first_keys, NULL, NULL, &keys) != NRL_OK) return 1;
    if (store_try_get(keys, STORE_NEWEST_KEY, &found, &value, &size) != NRL_OK) found = false;
    long number = found ? strtol(value, NULL, 10) : 1;
    free(value);
    store_close(keys);
    return number > 1 && number <= INT32_MAX ? (int32_t)number : 1;
}

/* Opens the keys where ranks look for an abort record. */
static nrl_status open_keys(const launch *l, nrl_store *store, nrl_store **keys)
{
    char *first = store_run_prefix(l->run_id, 1);
    char *newest = store_run_prefix(l->run_id, newest_run(store, first));
    nrl_status st = store_open_prefix(store, newest, NULL, NULL, keys);
    free(first);
    free(newest);
    return st;
}

void launch_report(const launch *l, const launch_rank *r)
{
    nrl_store *store = NULL, *keys = NULL;
    abort_record w = {.kind = ABORT_REPORTED, .code = NRL_ERR_PEER, .culprit = r->rank, .reporter = r->rank};
    snprintf(w.text, sizeof w.text, "%s", launch_end_text(l, r));
    const store_setup s = {.address = l->store, .job = l->run_id, .timeout_s = CONNECT, .secret = l->secret};
    nrl_status st = store_open(&l->store_kind, &s, &store);
    if (st == NRL_OK) st = open_keys(l, store, &keys);
    /* No error if there is no rank to inform, or if another process joined under this rank's number. */
    if (st == NRL_OK && !mesh_rank_is_other(keys, r->rank, r->pid)) abort_record_write(keys, &w);
    store_close(keys);
    store_close(store);
}
