/*
 * store.h - where ranks meet: a store plugin's table (nrl/store.h) behind nrl_store, whose functions for plugins are in
 * nrl/collective.h. A prefix is another store, with "prefix/" before each key.
 *
 * Any thread may call at any time, except open and close. Errors as in nrl/store.h. [any]
 */
#ifndef MESH_STORE_H
#define MESH_STORE_H
#include "base/secret.h"
#include "plugin/host.h"
#include <nrl/collective.h>
#include <nrl/store.h>

/* A plugin with its options. */
typedef struct {
    const nrl_store_plugin *table;
    const void *options;
} store_kind;

/* The plugin whose probe serves the address. NRL_ERR_CONFIG: none does. [main] */
nrl_status store_choose(plugin_host *h, const char *address, const plugin **out);
/* The same with the initial values of its options, in `a`. */
nrl_status store_find(plugin_host *h, arena *a, const char *address, store_kind *out);

typedef struct {
    const char *address, *job;
    const secret_key *secret; /* copied; NULL = none */
    uint32_t flags;           /* NRL_STORE_* */
    double timeout_s;
    const volatile int *signal; /* not 0 ends the trying with NRL_ERR_STOPPED; NULL = none is looked at */
} store_setup;
nrl_status store_open(const store_kind *kind, const store_setup *setup, nrl_store **out);
/* Borrows `inner`. A `stopped` that returns true ends every waiting get with NRL_ERR_PEER and the words
 * it left in the error record; NULL = none. */
nrl_status store_open_prefix(nrl_store *inner, const char *prefix, bool (*stopped)(void *user), void *user,
                             nrl_store **out);
void store_close(nrl_store *s); /* NULL is fine */

/* Where the ranks of a process's run `number` (from 1) keep their keys, by the id of the job ("" = none):
 * "nrl/job", "nrl/job~2"; malloc'd. */
char *store_run_prefix(const char *run_id, int32_t number);
#define STORE_NEWEST_KEY "newest" /* of number 1's keys: the number of the newest run above 1 */

bool store_counts(const nrl_store *s); /* add works, and values can change */
/* *found false: the key is not there; nothing waits. */
nrl_status store_try_get(nrl_store *s, const char *key, bool *found, void **value, size_t *size);
/* For words that everybody has read; one that is not there is fine. */
nrl_status store_remove(nrl_store *s, const char *key);
nrl_status store_all_there(nrl_store *s, const char *const *keys, size_t n, bool *all);
/* Sets the key to `text` unless it has a value that is not empty; *now is the value afterwards, malloc'd. */
nrl_status store_set_once(nrl_store *s, const char *key, const char *text, char **now);
/* n values of keys that are all there, malloc'd and NUL-ended each; nothing is allocated on failure. */
nrl_status store_get_all(nrl_store *s, const char *const *keys, size_t n, char **values);

/* ---- a store that this process holds ---- */
typedef struct store_server store_server;
nrl_status store_serve(const store_kind *kind, const store_setup *setup, store_server **out);
const char *store_server_address(const store_server *s); /* for store_setup; lives as long as the server */
int32_t store_server_clients(const store_server *s);     /* ranks that are connected */
void store_server_close(store_server *s);                /* NULL is fine; clients see the connection close */

#endif
