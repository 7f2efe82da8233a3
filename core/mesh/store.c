/*
 * store.c - the verbs of a store: prefixes are put together here, kinds do the rest.
 */
#include "base/arena.h"
#include "mesh/socket.h"
#include "mesh/store_kind.h"
#include "mesh/store_wire.h"
#include <stdlib.h>
#include <string.h>

#define PLUGIN_LABEL "nrl plugin"
#define SLICE_S 0.5 /* how often a waiting get looks whether it shall stop */

nrl_store *store_new(const store_kind *kind, void *self)
{
    nrl_store *s = mem_alloc(sizeof *s);
    s->kind = kind;
    s->self = self;
    return s;
}

nrl_status store_open_prefix(nrl_store *inner, const char *prefix, bool (*stopped)(void *user), void *user,
                             nrl_store **out)
{
    nrl_store *s = store_new(NULL, NULL);
    s->inner = inner;
    s->prefix = mem_strdup(prefix);
    s->stopped = stopped;
    s->user = user;
    *out = s;
    return NRL_OK;
}

void store_close(nrl_store *s)
{
    if (!s) return;
    if (s->kind) s->kind->close(s->self);
    free(s->prefix);
    free(s);
}

char *store_run_prefix(const char *run_id, int32_t number)
{
    const char *slash = *run_id ? "/" : "";
    return number > 1 ? mem_printf("nrl%s%s~%d", slash, run_id, (int)number) : mem_printf("nrl%s%s", slash, run_id);
}

nrl_status store_check_job(nrl_store *s, const char *run_id)
{
    void *job = NULL;
    size_t size;
    bool found = false;
    NRL_TRY(store_try_get(s, STORE_JOB_KEY, &found, &job, &size));
    nrl_status st = NRL_OK;
    if (found && strcmp(job, run_id) != 0)
        st = nrl_fail(NRL_ERR_CONFIG,
                      "the ranks' store belongs to job '%s', this rank is of job '%s'\n"
                      "hint: two jobs share a port; give each its own",
                      (const char *)job, run_id);
    free(job);
    return st;
}

static const nrl_store *bottom(const nrl_store *s)
{
    while (s->inner)
        s = s->inner;
    return s;
}

bool store_counts(const nrl_store *s)
{
    return bottom(s)->kind->add != NULL;
}

/* The key with all prefixes, outermost last put in front; malloc'd. */
static nrl_status whole_key(const nrl_store *s, const char *key, char **out)
{
    char *text = mem_strdup(key);
    for (; s->inner; s = s->inner) {
        char *longer = mem_printf("%s/%s", s->prefix, text);
        free(text);
        text = longer;
    }
    *out = text;
    if (strlen(text) < STORE_MAX_KEY) return NRL_OK;
    free(text);
    return nrl_fail(NRL_ERR_BUG, "a key of the store has %zu bytes, at most %d are allowed", strlen(key),
                    STORE_MAX_KEY);
}

bool nrl_store_prove(const nrl_store *s, const void *message, size_t size, uint8_t proof[NRL_PROOF_SIZE])
{
    s = bottom(s);
    if (s->secret) secret_prove(s->secret, PLUGIN_LABEL, message, size, proof);
    return s->secret != NULL;
}

bool nrl_store_verify(const nrl_store *s, const void *message, size_t size, const uint8_t proof[NRL_PROOF_SIZE])
{
    s = bottom(s);
    return s->secret && secret_verify(s->secret, PLUGIN_LABEL, message, size, proof);
}

static void free_keys(char **keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(keys[i]);
    free(keys);
}

static nrl_status whole_keys(const nrl_store *s, const char *const *keys, size_t n, char ***out)
{
    if (n > STORE_MAX_KEYS) return nrl_fail(NRL_ERR_BUG, "%zu keys in one request", n);
    char **whole = mem_alloc(n * sizeof *whole);
    for (size_t i = 0; i < n; i++) {
        nrl_status st = whole_key(s, keys[i], &whole[i]);
        if (st) {
            free_keys(whole, i);
            return st;
        }
    }
    *out = whole;
    return NRL_OK;
}

nrl_status nrl_store_set(nrl_store *s, const char *key, const void *value, size_t size)
{
    char *whole;
    if (size > STORE_MAX_VALUE)
        return nrl_fail(NRL_ERR_BUG, "value of '%s' has %zu bytes, a store takes %d", key, size, STORE_MAX_VALUE);
    NRL_TRY(whole_key(s, key, &whole));
    const nrl_store *b = bottom(s);
    nrl_status st = b->kind->set(b->self, whole, value, size);
    free(whole);
    return st;
}

static bool is_stopped(const nrl_store *s)
{
    for (; s; s = s->inner)
        if (s->stopped && s->stopped(s->user)) return true;
    return false;
}

/* In slices, so that a failure_cause about a lost rank ends the wait. */
static nrl_status get_sliced(nrl_store *s, const char *whole, double timeout_s, bool *found, void **value, size_t *size)
{
    const nrl_store *b = bottom(s);
    double deadline = mesh_clock() + timeout_s;
    for (;;) {
        double left = deadline - mesh_clock();
        NRL_TRY(b->kind->get(b->self, whole, left < SLICE_S ? left : SLICE_S, found, value, size));
        if (*found || left < SLICE_S) return NRL_OK;
        if (is_stopped(s)) return NRL_ERR_PEER;
    }
}

nrl_status nrl_store_get(nrl_store *s, const char *key, double timeout_s, void **value, size_t *size)
{
    char *whole;
    bool found = false;
    NRL_TRY(whole_key(s, key, &whole));
    nrl_status st = get_sliced(s, whole, timeout_s, &found, value, size);
    if (!st && !found) st = nrl_fail(NRL_ERR_PEER, "nobody set '%s' in the store within %g s", whole, timeout_s);
    free(whole);
    return st;
}

nrl_status store_try_get(nrl_store *s, const char *key, bool *found, void **value, size_t *size)
{
    char *whole;
    NRL_TRY(whole_key(s, key, &whole));
    const nrl_store *b = bottom(s);
    nrl_status st = b->kind->get(b->self, whole, 0, found, value, size);
    free(whole);
    return st;
}

nrl_status store_remove(nrl_store *s, const char *key)
{
    char *whole;
    NRL_TRY(whole_key(s, key, &whole));
    const nrl_store *b = bottom(s);
    nrl_status st = b->kind->remove(b->self, whole);
    free(whole);
    return st;
}

static nrl_status cannot(const char *what)
{
    return nrl_fail(NRL_ERR_CONFIG, "a folder as store cannot %s; use a store with an address", what);
}

nrl_status nrl_store_add(nrl_store *s, const char *key, int64_t amount, int64_t *result)
{
    char *whole;
    const nrl_store *b = bottom(s);
    if (!b->kind->add) return cannot("count");
    NRL_TRY(whole_key(s, key, &whole));
    nrl_status st = b->kind->add(b->self, whole, amount, result);
    free(whole);
    return st;
}

nrl_status store_compare_set(nrl_store *s, const char *key, const char *expected, const char *desired, char **now)
{
    char *whole;
    const nrl_store *b = bottom(s);
    if (!b->kind->compare_set) return cannot("compare");
    NRL_TRY(whole_key(s, key, &whole));
    nrl_status st = b->kind->compare_set(b->self, whole, expected, desired, now);
    free(whole);
    return st;
}

nrl_status store_all_there(nrl_store *s, const char *const *keys, size_t n, bool *all)
{
    char **whole;
    const nrl_store *b = bottom(s);
    NRL_TRY(whole_keys(s, keys, n, &whole));
    nrl_status st = b->kind->all_there(b->self, (const char *const *)whole, n, all);
    free_keys(whole, n);
    return st;
}

nrl_status store_get_all(nrl_store *s, const char *const *keys, size_t n, char **values)
{
    char **whole;
    const nrl_store *b = bottom(s);
    NRL_TRY(whole_keys(s, keys, n, &whole));
    nrl_status st = b->kind->get_all(b->self, (const char *const *)whole, n, values);
    free_keys(whole, n);
    return st;
}
