/*
 * store.h - the rendezvous of the ranks of a run: a store of keys and values, as a plugin.
 *
 * Each rank of a run with several ranks opens the store at the address that the launcher gives (nrl_rank_info.store).
 * The plugin whose probe recognises the form of the address serves it, unless the config names one (`store: NAME`).
 * Ranks use the store to join, to set up their collective, to send heartbeats and to learn why a run ended. A run with
 * one rank opens no store.
 *
 * Keys are texts of at most NRL_STORE_MAX_KEY bytes. The core prefixes each key with the id of the job and the number
 * of the run ("nrl/JOB/hello/0"), so a store only has to distinguish keys. Values are bytes, at most
 * NRL_STORE_MAX_VALUE. Every value that a store returns is malloc'd and followed by a NUL; the core frees it.
 *
 * Threads: after `open` any thread may call any member at any time, so a get that waits must not block other calls.
 * `close` is called when no other call is active. The core never lets a get wait longer than half a second and repeats
 * the call instead, so that waits can be cancelled.
 *
 * Errors: NRL_ERR_PEER if the store is gone, does not answer or is full; the run then ends. NRL_ERR_CONFIG if waiting
 * cannot help: the store belongs to another job, or the secret differs. A store must answer within a few seconds.
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

/* The arguments of open and serve, borrowed until these return. */
typedef struct {
    uint32_t size;
    uint32_t flags;
    const char *address;
    const char *job;       /* id of the job, "" = it has none. NULL: accept clients of any job */
    const uint8_t *secret; /* [NRL_STORE_SECRET] a key that only the processes of this job know. Each side should prove
                              to the other that it knows the key, and never send it. NULL = none */
    double timeout_s;      /* how long open keeps trying, because the store may start later */
    const volatile int *signal; /* if *signal is not 0, open returns NRL_ERR_STOPPED; may be NULL */
} nrl_store_setup;

typedef struct {
    nrl_plugin plugin;
    /* [any] how likely (NRL_PROBE_*) this plugin serves an address; checks only its form and does not connect */
    int32_t (*probe)(const char *address);
    /* [main] connects; keeps trying for timeout_s */
    nrl_status (*open)(const void *options, const nrl_store_setup *setup, void **self);
    void (*close)(void *self); /* [main] */

    /* [any] sets a key. If the key exists, replaces its value, or fails with NRL_ERR_CONFIG if the store keeps first
     * values */
    nrl_status (*set)(void *self, const char *key, const void *value, size_t size);
    /* [any] waits at most timeout_s until the key is set (0: does not wait). NRL_OK with *found false: the key is not
     * set, and *value is undefined */
    nrl_status (*get)(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size);
    /* [any] sets a key to a text unless it has a value that is not empty; if several callers try, one succeeds. *now is
     * the value afterwards. An empty text changes nothing and reads the value, "" if there is none */
    nrl_status (*set_once)(void *self, const char *key, const char *text, char **now);
    nrl_status (*remove)(void *self, const char *key); /* [any] the key need not exist */
    /* [any] adds atomically to a decimal number, 0 if the key does not exist. NULL: the store cannot count; ranks then
     * send no heartbeats, and a lost rank is detected only by time-outs */
    nrl_status (*add)(void *self, const char *key, int64_t amount, int64_t *result);
    /* [any] optional: whether all n keys are set. NULL: the core asks one by one */
    nrl_status (*all_there)(void *self, const char *const *keys, size_t n, bool *all);
    /* [any] optional: the values of n keys, all of which are set; on failure nothing is allocated */
    nrl_status (*get_all)(void *self, const char *const *keys, size_t n, char **values);

    /* Serves the store from this process; all four or none. Rank 0 or the launcher calls serve before any rank calls
     * open. NULL: the store is held elsewhere. */
    nrl_status (*serve)(const void *options, const nrl_store_setup *setup, void **server); /* [main] */
    const char *(*server_address)(const void *server); /* [any] for open; lives as long as the server */
    int32_t (*server_clients)(void *server);           /* [any] number of connected ranks */
    void (*server_close)(void *server);                /* [main] */
} nrl_store_plugin;

#ifdef __cplusplus
}
#endif
#endif
