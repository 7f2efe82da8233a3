/*
 * store.h - the store where ranks meet: nrl_store wraps the table of a store plugin (nrl/store.h); nrl/collective.h has
 * its functions for plugins. A prefix is another store that puts "prefix/" before each key.
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

/* Finds the plugin whose probe accepts the address. NRL_ERR_CONFIG: there is none. [main] */
nrl_status store_choose(plugin_host *h, const char *address, const plugin **out);
/* The plugin that the component `named` names, with its options, in `a`; "auto" or NULL: the one of store_choose. */
nrl_status store_find(plugin_host *h, arena *a, const char *address, const config_component *named, store_kind *out);

typedef struct {
    const char *address, *job;
    const secret_key *secret; /* copied; NULL = none */
    uint32_t flags;           /* NRL_STORE_* */
    double timeout_s;
    const volatile int *signal; /* not 0: opening ends with NRL_ERR_STOPPED; may be NULL */
} store_setup;
nrl_status store_open(const store_kind *kind, const store_setup *setup, nrl_store **out);
/* Borrows `inner`. If `stopped` returns true, every waiting get ends with NRL_ERR_PEER and the text that `stopped` left
 * in the error record; it may be NULL. */
nrl_status store_open_prefix(nrl_store *inner, const char *prefix, bool (*stopped)(void *user), void *user,
                             nrl_store **out);
void store_close(nrl_store *s); /* NULL is allowed */

/* Returns the malloc'd prefix for the keys of run `number` (from 1) of a process, with the id of the job ("" = none):
 * "nrl/job", "nrl/job~2". */
char *store_run_prefix(const char *run_id, int32_t number);
#define STORE_NEWEST_KEY "newest" /* among the keys of run 1: the number of the newest run above 1 */

bool store_counts(const nrl_store *s); /* add works, and values can change */
/* Does not wait. *found is false if the key does not exist. */
nrl_status store_try_get(nrl_store *s, const char *key, bool *found, void **value, size_t *size);
/* Removes a key that all ranks have read. A missing key is not an error. */
nrl_status store_remove(nrl_store *s, const char *key);
nrl_status store_all_there(nrl_store *s, const char *const *keys, size_t n, bool *all);
/* Sets the key to `text` unless it has a non-empty value. *now is the value afterwards, malloc'd. */
nrl_status store_set_once(nrl_store *s, const char *key, const char *text, char **now);
/* Gets the values of n keys that exist, each malloc'd and NUL-terminated. Allocates nothing on failure. */
nrl_status store_get_all(nrl_store *s, const char *const *keys, size_t n, char **values);

/* ---- a store server in this process ---- */
typedef struct store_server store_server;
nrl_status store_serve(const store_kind *kind, const store_setup *setup, store_server **out);
const char *store_server_address(const store_server *s); /* for store_setup; valid as long as the server */
int32_t store_server_clients(const store_server *s);     /* ranks that are connected */
void store_server_close(store_server *s);                /* NULL is allowed; closes the connections of clients */

#endif
