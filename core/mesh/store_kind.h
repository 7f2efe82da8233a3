/*
 * store_kind.h - what a kind of store implements; store.c is the only caller.
 */
#ifndef MESH_STORE_KIND_H
#define MESH_STORE_KIND_H
#include "mesh/store.h"

/* Keys are whole. A member that is NULL is what the kind cannot do. */
typedef struct {
    nrl_status (*set)(void *self, const char *key, const void *value, size_t size);
    /* *found false with NRL_OK: timeout_s is over */
    nrl_status (*get)(void *self, const char *key, double timeout_s, bool *found, void **value, size_t *size);
    nrl_status (*add)(void *self, const char *key, int64_t amount, int64_t *result);
    nrl_status (*compare_set)(void *self, const char *key, const char *expected, const char *desired, char **now);
    nrl_status (*all_there)(void *self, const char *const *keys, size_t n, bool *all);
    nrl_status (*remove)(void *self, const char *key); /* one that is not there is fine */
    nrl_status (*get_all)(void *self, const char *const *keys, size_t n, char **values);
    void (*close)(void *self);
} store_kind;

struct nrl_store {
    const store_kind *kind; /* NULL for a prefix */
    void *self;
    const store_secret *secret; /* the kind's; NULL = none */
    nrl_store *inner;           /* of a prefix */
    char *prefix;
    bool (*stopped)(void *user);
    void *user;
};

nrl_store *store_new(const store_kind *kind, void *self);

#endif
