/*
 * ranks.h - ranks for the tests of the gloo collective: threads of this process, each with its own
 * instance of the plugin, that join through a temporary directory.
 */
#ifndef GLOO_TEST_RANKS_H
#define GLOO_TEST_RANKS_H
#include "support/store.h"
#include <dlfcn.h>
#include <ftw.h>
#include <nrl/nrl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MAX = 8, TCP22 = 0, TCP23, UV };

static nrl_collective gloo;

/* Options of a test; what is not named has its default. */
typedef struct {
    int64_t dialect, peers, family;
    double timeout, rate_limit;
    const char *interface, *address;
    int64_t socket_buffer;
} ranks_options;

/* One rank's view. Checks return false and leave words: cmocka's jumps belong to the main thread. */
typedef struct {
    int32_t rank, size;
    void *self;
    void *shared; /* the test's */
    bool left;    /* the test closed or aborted it itself */
    char problem[400];
} ranks_one;

typedef void ranks_body(ranks_one *r);

#define CHECK(r, condition)                                                                                            \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            if (!(r)->problem[0])                                                                                      \
                snprintf((r)->problem, sizeof(r)->problem, "rank %d, line %d: %s (%s)", (r)->rank, __LINE__,           \
                         #condition, nrl_error_text());                                                                \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

static inline int ranks_load(void **state)
{
    const char *folder = getenv("NRL_PLUGIN_PATH");
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s/collectives/gloo.so", folder ? folder : ".");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        return -1;
    }
    const nrl_plugin *(*entry)(void);
    *(void **)&entry = dlsym(library, "nrl_plugin_entry");
    memcpy(&gloo, entry(), sizeof gloo);
    return 0;
}

static inline void ranks_set(void *options, const char *name, const void *value)
{
    for (uint32_t i = 0; i < gloo.plugin.n_options; i++) {
        const nrl_option *o = &gloo.plugin.options[i];
        if (strcmp(o->name, name) == 0) memcpy((char *)options + o->offset, value, 8);
    }
}

/* Enough for the plugin's struct, with the test's values. */
static inline void *ranks_plugin_options(const ranks_options *o)
{
    void *p = calloc(1, gloo.plugin.options_size);
    ranks_set(p, "dialect", &o->dialect);
    ranks_set(p, "peers", &o->peers);
    ranks_set(p, "family", &o->family);
    ranks_set(p, "timeout", &o->timeout);
    ranks_set(p, "rate_limit", &o->rate_limit);
    ranks_set(p, "interface", &o->interface);
    ranks_set(p, "address", &o->address);
    ranks_set(p, "socket_buffer", &o->socket_buffer);
    return p;
}

static inline int ranks_remove_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    (void)s;
    (void)flag;
    (void)f;
    return remove(path);
}

static inline void ranks_folder_make(char path[64])
{
    strcpy(path, "/tmp/nrl-gloo-XXXXXX");
    if (!mkdtemp(path)) abort();
}

static inline void ranks_folder_remove(const char *path)
{
    nftw(path, ranks_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

typedef struct {
    ranks_one one;
    const ranks_options *options;
    const char *folder;
    ranks_body *body;
} ranks_start;

static inline void *ranks_thread(void *arg)
{
    ranks_start *s = arg;
    nrl_store *store;
    void *options = ranks_plugin_options(s->options);
    if (test_store_open(s->folder, NULL, 20, &store) ||
        gloo.open(options, store, s->one.rank, s->one.size, 20, &s->one.self)) {
        snprintf(s->one.problem, sizeof s->one.problem, "rank %d: open: %s", s->one.rank, nrl_error_text());
    } else {
        s->body(&s->one);
        if (!s->one.left) gloo.close(s->one.self);
        store_close(store);
    }
    free(options);
    return NULL;
}

/* Runs body on `size` ranks; prints what a rank found wrong. */
static inline bool ranks_run(int32_t size, const ranks_options *options, ranks_body *body, void *shared)
{
    char folder[64];
    ranks_start s[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    bool good = true;
    ranks_folder_make(folder);
    for (int32_t i = 0; i < size; i++) {
        s[i] = (ranks_start){.options = options, .folder = folder, .body = body};
        s[i].one.rank = i;
        s[i].one.size = size;
        s[i].one.shared = shared;
        pthread_create(&threads[i], NULL, ranks_thread, &s[i]);
    }
    for (int32_t i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
        if (s[i].one.problem[0]) printf("%s\n", s[i].one.problem);
        good &= !s[i].one.problem[0];
    }
    ranks_folder_remove(folder);
    return good;
}

/* Waits long and releases. */
static inline nrl_status ranks_end(void *self, nrl_request *request)
{
    bool done = false;
    nrl_status st = gloo.wait(self, request, 60, &done);
    if (!st && !done) st = nrl_fail(NRL_ERR_PEER, "not done after a minute");
    gloo.release(self, request);
    return st;
}

#define RANKS_DO(self, name, ...) ranks_do(self, gloo.name, (nrl_comm_args){.size = sizeof(nrl_comm_args), __VA_ARGS__})

static inline nrl_status ranks_do(void *self, nrl_status (*call)(void *, const nrl_comm_args *, nrl_request **),
                                  nrl_comm_args a)
{
    nrl_request *r;
    NRL_TRY(call(self, &a, &r));
    return ranks_end(self, r);
}

#endif
