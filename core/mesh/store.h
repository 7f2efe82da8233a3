/*
 * store.h - where ranks meet: key and value. What plugins see of it is in nrl/collective.h.
 *
 *   tcp      a client of a server that speaks torch.distributed's TCPStore protocol (torch 2.15): the
 *            server of rank 0 or of the launcher below, torch's own, or torchrun's
 *   folder   plain files in PyTorch's FileStore format; it cannot count, and compares with "" only
 *   prefix   another store, with "prefix/" before each key
 *
 * Any thread may call at any time: each call on a tcp store has a connection of its own (idle ones
 * are kept), so a get that waits holds up nobody. Keys have at most STORE_MAX_KEY bytes, values
 * STORE_MAX_VALUE. Errors: NRL_ERR_PEER where the server is gone, silent or refuses. [any]
 */
#ifndef MESH_STORE_H
#define MESH_STORE_H
#include "mesh/secret.h"
#include <nrl/collective.h>

enum { STORE_MAX_KEY = 8192, STORE_MAX_VALUE = 8 << 20, STORE_MAX_KEYS = 131072 };

/* Connects, trying again until timeout_s is over: the server may start late. */
nrl_status store_connect(const char *address, int32_t port, double timeout_s, nrl_store **out);

typedef struct {
    const char *address;
    int32_t port;
    double timeout_s;
    const volatile int *signal; /* not 0 ends the trying with NRL_ERR_STOPPED; NULL = none is looked at */
    const store_secret *secret; /* copied; the server must know it too. NULL = none */
} store_client_setup;
/* NRL_ERR_CONFIG at once where one side has a secret and the other has none, or another one. */
nrl_status store_connect_to(const store_client_setup *setup, nrl_store **out);
/* Where the ranks of a process's run `number` (from 1) keep their keys, by the id of the job ("" = none):
 * "nrl/job", "nrl/job~2"; malloc'd. */
char *store_run_prefix(const char *run_id, int32_t number);
/* NRL_ERR_CONFIG where the server serves another job than `run_id`. A server that serves none in particular, as
 * PyTorch's do, is fine. */
nrl_status store_check_job(nrl_store *s, const char *run_id);
#define STORE_NEWEST_KEY "newest" /* of number 1's keys: the number of the newest run above 1 */

/* The folder must be there; it serves one run. */
nrl_status store_open_folder(const char *path, nrl_store **out);
/* Borrows `inner`. A `stopped` that says true ends every waiting get with NRL_ERR_PEER and the words
 * it left in the error record; NULL = none. */
nrl_status store_open_prefix(nrl_store *inner, const char *prefix, bool (*stopped)(void *user), void *user,
                             nrl_store **out);
void store_close(nrl_store *s); /* NULL is fine */

bool store_counts(const nrl_store *s); /* add works, values can change: not a folder */
/* *found false: the key is not there; nothing waits. */
nrl_status store_try_get(nrl_store *s, const char *key, bool *found, void **value, size_t *size);
/* For words that everybody has read; one that is not there is fine. */
nrl_status store_remove(nrl_store *s, const char *key);
nrl_status store_all_there(nrl_store *s, const char *const *keys, size_t n, bool *all);
/* Stores `desired` where the value is `expected` ("" = also where there is none); *now is the value
 * afterwards, malloc'd and NUL-ended. */
nrl_status store_compare_set(nrl_store *s, const char *key, const char *expected, const char *desired, char **now);
/* n values of keys that are all there, malloc'd and NUL-ended each; nothing is allocated on failure. */
nrl_status store_get_all(nrl_store *s, const char *const *keys, size_t n, char **values);

/* ---- the server: a thread of this process ---- */
typedef struct store_server store_server;

typedef struct {
    const char *address;        /* as for socket_listen; NULL = all interfaces */
    int32_t port;               /* 0 chooses a free one */
    const char *job;            /* "" = a job without an id; NULL = whatever job its clients are of */
    const store_secret *secret; /* copied; every client must know it. NULL = none: a warning where the address is
                                   not loopback */
    bool other_machines;        /* some clients are on others */
} store_server_setup;

nrl_status store_server_open_job(const store_server_setup *setup, store_server **out);
/* The same for whatever job. */
nrl_status store_server_open(const char *address, int32_t port, store_server **out);
int32_t store_server_port(const store_server *s);
int32_t store_server_clients(store_server *s); /* open connections that asked for something */
void store_server_close(store_server *s);      /* NULL is fine; clients see the connection close */

#endif
