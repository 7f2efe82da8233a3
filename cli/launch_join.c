/*
 * launch_join.c - `nrl launch --nodes MIN:MAX`: the launchers of the machines that are there find each other before
 * each start. The launcher of the machine in --address holds a store for them. It waits for MAX launchers, or for some
 * time after MIN of them are there, and publishes the ranks of each; one that comes later takes part in the next start.
 *
 *   newest         the number of the newest start, or OVER
 *   R/seats        how many launchers have come for start R, beside that one
 *   R/seat/K       the number of ranks of launcher K, which is node K if it comes in time
 *   R/ranks        "2,2,4": the ranks of each node of start R
 */
#include "cli/launch_join.h"
#include "base/clock.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OVER "over"
static const double PATIENCE = 3600; /* seconds until the first launcher is there */
static const double LAST_NODES = 10; /* for the others to read that the run is over */

struct launch_meeting {
    store_server *server; /* NULL: on another machine */
    nrl_store *store;
    const char *address;
    int32_t number; /* of the newest start that this launcher knows; -1 = none */
};

/* ---- waiting ---- */

/* A twentieth of a second; false if a signal asks this launcher to end. Signals are held for launch_watch. */
static bool pause_goes_on(void)
{
    sigset_t waiting;
    clock_sleep(0.05);
    sigpending(&waiting);
    return !sigismember(&waiting, SIGINT) && !sigismember(&waiting, SIGTERM);
}

static nrl_status stopped(void)
{
    return nrl_fail(NRL_ERR_STOPPED, "stopped by a signal while waiting for the launchers of other machines");
}

/* ---- keys ---- */

static nrl_status put(const launch_meeting *m, const char *key, const char *text)
{
    return nrl_store_set(m->store, key, text, strlen(text) + 1);
}

/* *text is NULL if the key is not set; in the launch's memory. */
static nrl_status look(const launch *l, const char *key, const char **text)
{
    bool found = false;
    void *value = NULL;
    size_t size;
    *text = NULL;
    NRL_TRY(store_try_get(l->meeting->store, key, &found, &value, &size));
    if (!found) return NRL_OK;
    *text = arena_strndup(l->a, value, size);
    free(value);
    return NRL_OK;
}

static const char *key_of(const launch *l, const char *name, int32_t k)
{
    return k ? arena_printf(l->a, "%d/%s/%d", l->meeting->number, name, k)
             : arena_printf(l->a, "%d/%s", l->meeting->number, name);
}

/* ---- one start ---- */

/* Node 0: waits for the others, and publishes the ranks of all. */
static nrl_status gather(launch *l)
{
    launch_meeting *m = l->meeting;
    const char *list = arena_printf(l->a, "%d", l->n_ranks), *seat;
    int32_t nodes = 1;
    double enough_at = l->min_nodes <= 1 ? clock_seconds() : 0;
    m->number++;
    NRL_TRY(put(m, "newest", arena_printf(l->a, "%d", m->number)));
    fprintf(stderr, "waiting for the launchers of %d to %d machines at %s\n", l->min_nodes, l->max_nodes, m->address);
    while (nodes < l->max_nodes && !(enough_at > 0 && clock_seconds() >= enough_at + l->join_wait)) {
        NRL_TRY(look(l, key_of(l, "seat", nodes), &seat));
        if (!seat) {
            if (!pause_goes_on()) return stopped();
            continue;
        }
        list = arena_printf(l->a, "%s,%s", list, seat);
        if (++nodes == l->min_nodes) enough_at = clock_seconds();
    }
    l->own = 0;
    l->ranks_of_nodes = list;
    return put(m, key_of(l, "ranks", 0), list);
}

/* Another node: its seat in the newest start, which may be one too many. */
static nrl_status take_seat(launch *l)
{
    int64_t seat;
    NRL_TRY(nrl_store_add(l->meeting->store, key_of(l, "seats", 0), 1, &seat));
    l->own = (size_t)seat;
    return put(l->meeting, key_of(l, "seat", (int32_t)seat), arena_printf(l->a, "%d", l->n_ranks));
}

static size_t count_nodes(const char *list)
{
    size_t n = 1;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

/* Another node: until a start includes this machine, or the run is over. */
static nrl_status attend(launch *l)
{
    launch_meeting *m = l->meeting;
    const int32_t before = m->number;
    const char *newest, *list;
    for (bool is_reported = false;; is_reported = true) {
        NRL_TRY(look(l, "newest", &newest));
        l->is_over = newest && !strcmp(newest, OVER);
        if (l->is_over) fprintf(stderr, "the run of the launchers at %s has ended\n", m->address);
        if (l->is_over) return NRL_OK;
        const int32_t number = newest ? (int32_t)strtol(newest, NULL, 10) : -1;
        if (number > before && number > m->number) {
            m->number = number;
            NRL_TRY(take_seat(l));
            is_reported = false;
        }
        list = NULL;
        if (m->number > before) NRL_TRY(look(l, key_of(l, "ranks", 0), &list));
        if (list && l->own < count_nodes(list)) {
            l->ranks_of_nodes = list;
            return NRL_OK;
        }
        if (!is_reported) fprintf(stderr, "waiting at %s for the next start of the run\n", m->address);
        if (!pause_goes_on()) return stopped();
    }
}

/* The nodes of this start, from "2,2,4". */
static void read_ranks(launch *l)
{
    const size_t n = count_nodes(l->ranks_of_nodes);
    const char *at = l->ranks_of_nodes;
    l->nodes = (launch_nodes){.list = arena_alloc(l->a, n * sizeof *l->nodes.list), .n = n, .room = n};
    for (size_t i = 0; i < n; i++) {
        char *end;
        l->nodes.list[i] = (launch_node){.address = "", .slots = (int32_t)strtol(at, &end, 10)};
        at = *end ? end + 1 : end;
    }
}

nrl_status launch_join(launch *l)
{
    NRL_TRY(l->meeting->server ? gather(l) : attend(l));
    if (l->is_over) return NRL_OK;
    read_ranks(l);
    NRL_TRY(launch_place(l));
    fprintf(stderr, "start %d: node %zu of %zu, ranks %d to %d of %d\n", l->meeting->number, l->own, l->nodes.n,
            l->first_rank, l->first_rank + l->n_ranks - 1, l->world);
    return launch_number(l, l->meeting->number);
}

/* ---- all starts ---- */

/* Until the first launcher is there. */
static nrl_status open_store(launch_meeting *m, const store_kind *kind, const store_setup *s)
{
    const double end = clock_seconds() + PATIENCE;
    for (bool is_reported = false;; is_reported = true) {
        nrl_status st = store_open(kind, s, &m->store);
        if (st != NRL_ERR_PEER || clock_seconds() >= end) return st;
        if (!is_reported) fprintf(stderr, "waiting for the launcher at %s\n", m->address);
        if (!pause_goes_on()) return stopped();
    }
}

/* The launcher that can hold the store at an address of this machine is node 0. */
nrl_status launch_meet(launch *l, const char *host, const char *address)
{
    const launch_nodes there = {.list = &(launch_node){.address = host}, .n = 1};
    size_t unused;
    store_kind kind;
    launch_meeting *m = l->meeting = arena_alloc(l->a, sizeof *m);
    store_setup s = {.address = address,
                     .job = l->first_run_id,
                     .secret = l->secret,
                     .flags = NRL_STORE_OTHER_MACHINES,
                     .timeout_s = 1};
    *m = (launch_meeting){.address = address, .number = -1};
    NRL_TRY(store_find(l->host, l->a, address, NULL, &kind));
    if (launch_nodes_own(&there, &unused) != NRL_OK || store_serve(&kind, &s, &m->server) != NRL_OK) m->server = NULL;
    l->holds_store = m->server != NULL;
    if (m->server) s.address = store_server_address(m->server);
    return open_store(m, &kind, &s);
}

void launch_part(launch *l)
{
    launch_meeting *m = l->meeting;
    if (!m) return;
    if (m->server && m->store) put(m, "newest", OVER);
    store_close(m->store);
    for (double end = clock_seconds() + LAST_NODES;
         m->server && store_server_clients(m->server) > 0 && clock_seconds() < end;)
        if (!pause_goes_on()) break;
    store_server_close(m->server);
}
