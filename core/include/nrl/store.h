/*
 * store.h - where the ranks of a run meet: a rendezvous store of keys and values, as a plugin.
 *
 * A run of several ranks opens one store on each rank, at an address that the launcher gives (nrl_rank_info.store). The
 * plugin whose probe recognises the form of the address serves it; `store: NAME` in the config decides against the
 * probe. Through the store ranks join, meet for their collective, send heartbeats and learn why a run ended. A run of
 * one rank opens no store.
 *
 * Keys are text of at most NRL_STORE_MAX_KEY bytes. The core puts the job's id and the number of the run before each
 * key ("nrl/JOB/hello/0"), so a store only has to keep different keys apart. Values are bytes, at most
 * NRL_STORE_MAX_VALUE. Every value that a store returns is malloc'd with a NUL behind it; the core frees it.
 *
 * Threads: after `open` any thread may call any member at any time, so a get that waits must not hold up the others.
 * `close` is called when no call is under way. The core never asks a get to wait for longer than half a second and
 * repeats it instead; that is how waits are cancelled.
 *
 * Errors: NRL_ERR_PEER where the store is gone, silent or has no room: the run then ends. NRL_ERR_CONFIG where waiting
 * does not help: the store belongs to another job, or the secret differs. Answers must come within a few seconds.
 */
#ifndef NRL_STORE_H
#define NRL_STORE_H
#include <nrl/plugin.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
    NRL_STORE_MAX_KEY = 8192,      /* bytes, with the NUL */
    NRL_STORE_MAX_VALUE = 8 << 20, /* bytes */
    NRL_STORE_MAX_KEYS = 131072,   /* in one call of all_there or get_all */
    NRL_STORE_SECRET = 32          /* bytes */
};

/* nrl_store_setup.flags */
enum {
    NRL_STORE_OTHER_MACHINES = 1, /* some ranks are on other machines */
    NRL_STORE_FOREIGN = 2         /* another program holds the store at this address; it does not know the secret */
};

/* What open and serve are given. Borrowed until they return. */
typedef struct {
    uint32_t size;
    uint32_t flags;
    const char *address;
    const char *job;       /* id of the job, "" = it has none. NULL: whatever job its clients belong to */
    const uint8_t *secret; /* [NRL_STORE_SECRET] a key that the processes of this job share, and nobody else. Each side
                              should prove to the other that it has the key, and never send it. NULL = there is none */
    double timeout_s;      /* how long open tries: the store may start later */
    const volatile int *signal; /* not 0: open stops trying and returns NRL_ERR_STOPPED; NULL = none is looked at */
} nrl_store_setup;

typedef struct {
    nrl_plugin plugin;
    /* [any] how surely this plugin serves an address (NRL_PROBE_*); by its form, nothing is connected */
    int32_t (*probe)(const char *address);
    /* [main] connects; tries until timeout_s is over */
    nrl_status (*open)(const void *options, const nrl_store_setup *setup, void **self);
    void (*close)(void *self); /* [main] */

    /* [any] sets a key. A key that is there already: the value is replaced, or NRL_ERR_CONFIG where the store keeps the
     * first one */
    nrl_status (*set)(void *self, const char *key, const void *value, size_t size);
    /* [any] waits until the key is set, at most timeout_s (0 = looks once). NRL_OK with *found false: the time is over,
     * and *value is unset */
    nrl_status (*get)(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size);
    /* [any] sets a key to a text unless it has a value that is not empty; of several callers one wins. *now is the
     * value afterwards. An empty text changes nothing and reads the value, "" where there is none */
    nrl_status (*set_once)(void *self, const char *key, const char *text, char **now);
    nrl_status (*remove)(void *self, const char *key); /* [any] a key that is not there is fine */
    /* [any] adds to a decimal number, 0 where the key is not there, in one piece: no addition is lost. NULL: the store
     * cannot count. Its ranks send no heartbeats then, and a lost rank is noticed by time-outs alone */
    nrl_status (*add)(void *self, const char *key, int64_t amount, int64_t *result);
    /* [any] optional: whether all n keys are set. NULL: the core asks one by one */
    nrl_status (*all_there)(void *self, const char *const *keys, size_t n, bool *all);
    /* [any] optional: the values of n keys that are all set; on failure nothing is allocated */
    nrl_status (*get_all)(void *self, const char *const *keys, size_t n, char **values);

    /* Holding the store in this process, for ranks that open it: all four or none. Rank 0 or the launcher serves before
     * any rank opens. NULL: the store is held elsewhere. */
    nrl_status (*serve)(const void *options, const nrl_store_setup *setup, void **server); /* [main] */
    const char *(*server_address)(const void *server); /* [any] what the ranks open; lives as long as the server */
    int32_t (*server_clients)(void *server);           /* [any] ranks that are connected */
    void (*server_close)(void *server);                /* [main] */
} nrl_store_plugin;

#ifdef __cplusplus
}
#endif
#endif
