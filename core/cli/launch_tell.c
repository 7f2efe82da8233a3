/*
 * launch_tell.c - how a rank ended, for the other ranks and for people. A rank that is killed, or that
 * fails before it has joined, cannot say so itself; its launcher sees it first.
 */
#include "base/arena.h"
#include "cli/launch.h"
#include "mesh/store.h"
#include "mesh/word.h"
#include <stdio.h>
#include <string.h>

static const double CONNECT = 1; /* seconds */

const char *launch_end_text(const launch *l, const launch_rank *r)
{
    const char *text = r->err.first_error;
    if (r->code > 128 && r->code < 128 + NSIG)
        return arena_printf(l->a, "signal %d (%s)", r->code - 128, strsignal(r->code - 128));
    return arena_printf(l->a, "exit code %d%s%s", r->code, text ? ": " : "", text ? text : "");
}

void launch_tell(const launch *l, const launch_rank *r)
{
    nrl_store *store = NULL, *keys = NULL;
    word w = {.kind = WORD_TOLD, .code = NRL_ERR_PEER, .culprit = r->rank, .reporter = r->rank};
    const char *prefix = *l->run_id ? arena_printf(l->a, "nrl/%s", l->run_id) : "nrl";
    snprintf(w.text, sizeof w.text, "%s", launch_end_text(l, r));
    nrl_status st = store_connect(l->address, l->port, CONNECT, &store);
    if (st == NRL_OK) st = store_open_prefix(store, prefix, NULL, NULL, &keys);
    if (st == NRL_OK) word_tell(keys, &w); /* nobody to tell is no failure of ours */
    store_close(keys);
    store_close(store);
}
