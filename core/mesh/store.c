/*
 * store.c - the operations of a store: adds prefixes to keys and divides waits into slices; a plugin does the rest.
 */
#include "mesh/store.h"
#include "base/buffer.h"
#include "base/clock.h"
#include <nrl/run.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLUGIN_LABEL "nrl plugin"
#define SLICE_S 0.5 /* how often a waiting get checks whether it is stopped */

struct nrl_store {
    nrl_store *inner, *bottom; /* of a prefix: the store around it, and the store without prefixes; else NULL, itself */
    char *prefix;              /* before every key: "" or "OUTER/INNER/" */
    const nrl_store_plugin *table; /* of the bottom, like the members below */
    void *self;
    bool has_secret;
    secret_key secret;
    bool (*stopped)(void *user);
    void *user;
};

/* ---- choosing and opening ---- */

static int32_t store_probe(const plugin *p, const void *address)
{
    return ((const nrl_store_plugin *)p->table)->probe(address);
}

/* Reports plugins that cannot be opened only if no other plugin serves the address. */
nrl_status store_choose(plugin_host *h, const char *address, const plugin **out)
{
    buffer asked = {0};
    *out = plugin_find(h, NRL_KIND_STORE, INT32_MAX, store_probe, address, &asked);
    nrl_status st =
        *out ? NRL_OK
             : nrl_fail(NRL_ERR_CONFIG, "cannot join at '%s': no store plugin supports this address; tried: %s",
                        address, asked.text ? asked.text : "none is installed");
    buffer_free(&asked);
    return st;
}

nrl_status store_find(plugin_host *h, arena *a, const char *address, const config_component *named, store_kind *out)
{
    const plugin *p;
    config_problems problems = {0};
    config_component chosen = {0};
    void *options;
    if (!named || !strcmp(named->name, "auto")) {
        NRL_TRY(store_choose(h, address, &p));
        chosen.name = p->name;
        named = &chosen;
    }
    plugin_instance(h, a, &problems, NRL_KIND_STORE, "store", named, NULL, &p, &options);
    NRL_TRY(problems_report(&problems));
    *out = (store_kind){(const nrl_store_plugin *)p->table, options};
    return NRL_OK;
}

static nrl_store_setup setup_of(const store_setup *s)
{
    return (nrl_store_setup){.size = sizeof(nrl_store_setup),
                             .flags = s->flags,
                             .address = s->address,
                             .job = s->job,
                             .secret = s->secret ? s->secret->key : NULL,
                             .timeout_s = s->timeout_s,
                             .signal = s->signal};
}

nrl_status store_open(const store_kind *kind, const store_setup *setup, nrl_store **out)
{
    const nrl_store_setup s = setup_of(setup);
    void *self;
    NRL_TRY(kind->table->open(kind->options, &s, &self));
    nrl_store *store = mem_alloc(sizeof *store);
    *store = (nrl_store){.bottom = store,
                         .prefix = mem_strdup(""),
                         .table = kind->table,
                         .self = self,
                         .has_secret = setup->secret != NULL};
    if (setup->secret) store->secret = *setup->secret;
    *out = store;
    return NRL_OK;
}

nrl_status store_open_prefix(nrl_store *inner, const char *prefix, bool (*stopped)(void *user), void *user,
                             nrl_store **out)
{
    nrl_store *s = mem_alloc(sizeof *s);
    *s = (nrl_store){.inner = inner,
                     .bottom = inner->bottom,
                     .prefix = mem_printf("%s%s/", inner->prefix, prefix),
                     .stopped = stopped,
                     .user = user};
    *out = s;
    return NRL_OK;
}

void store_close(nrl_store *s)
{
    if (!s) return;
    if (s->table) s->table->close(s->self);
    secret_wipe(&s->secret, sizeof s->secret);
    free(s->prefix);
    free(s);
}

/* ---- holding one ---- */

struct store_server {
    nrl_store_plugin table; /* a session's server outlives the plugin host */
    void *self;
};

nrl_status store_serve(const store_kind *kind, const store_setup *setup, store_server **out)
{
    const nrl_store_setup s = setup_of(setup);
    void *self;
    if (!kind->table->serve)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot serve a store at '%s': the store plugin '%s' has no server\n"
                        "hint: nrl launch --store ADDRESS uses an existing store",
                        setup->address, kind->table->plugin.name);
    NRL_TRY(kind->table->serve(kind->options, &s, &self));
    *out = mem_alloc(sizeof **out);
    **out = (store_server){*kind->table, self};
    return NRL_OK;
}

const char *store_server_address(const store_server *s)
{
    return s->table.server_address(s->self);
}

int32_t store_server_clients(const store_server *s)
{
    return s->table.server_clients(s->self);
}

void store_server_close(store_server *s)
{
    if (!s) return;
    s->table.server_close(s->self);
    free(s);
}

/* ---- keys ---- */

char *store_run_prefix(const char *run_id, int32_t number)
{
    const char *slash = *run_id ? "/" : "";
    return number > 1 ? mem_printf("nrl%s%s~%d", slash, run_id, (int)number) : mem_printf("nrl%s%s", slash, run_id);
}

bool store_counts(const nrl_store *s)
{
    return s->bottom->table->add != NULL;
}

/* The key with all prefixes before it. */
static nrl_status whole_key(const nrl_store *s, const char *key, char whole[NRL_STORE_MAX_KEY])
{
    if (snprintf(whole, NRL_STORE_MAX_KEY, "%s%s", s->prefix, key) < NRL_STORE_MAX_KEY) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "a key of the store has %zu bytes, expected at most %d", strlen(key),
                    NRL_STORE_MAX_KEY);
}

bool nrl_store_prove(const nrl_store *s, const void *message, size_t size, uint8_t proof[NRL_PROOF_SIZE])
{
    s = s->bottom;
    if (s->has_secret) secret_prove(&s->secret, PLUGIN_LABEL, message, size, proof);
    return s->has_secret;
}

bool nrl_store_verify(const nrl_store *s, const void *message, size_t size, const uint8_t proof[NRL_PROOF_SIZE])
{
    s = s->bottom;
    return s->has_secret && secret_verify(&s->secret, PLUGIN_LABEL, message, size, proof);
}

void nrl_job_secret_derive(const void *text, size_t size, const char *run_id, nrl_job_secret *out)
{
    secret_derive(text, size, run_id, out);
}

static nrl_status whole_keys(const nrl_store *s, const char *const *keys, size_t n, arena *a, const char ***out)
{
    char whole[NRL_STORE_MAX_KEY];
    if (n > NRL_STORE_MAX_KEYS) return nrl_fail(NRL_ERR_BUG, "%zu keys in one request", n);
    const char **list = *out = arena_alloc(a, n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        NRL_TRY(whole_key(s, keys[i], whole));
        list[i] = arena_strdup(a, whole);
    }
    return NRL_OK;
}

nrl_status nrl_store_set(nrl_store *s, const char *key, const void *value, size_t size)
{
    char whole[NRL_STORE_MAX_KEY];
    if (size > NRL_STORE_MAX_VALUE)
        return nrl_fail(NRL_ERR_BUG, "value of '%s' has %zu bytes, expected at most %d", key, size,
                        NRL_STORE_MAX_VALUE);
    NRL_TRY(whole_key(s, key, whole));
    const nrl_store *b = s->bottom;
    return b->table->set(b->self, whole, value, size);
}

static bool is_stopped(const nrl_store *s)
{
    for (; s; s = s->inner)
        if (s->stopped && s->stopped(s->user)) return true;
    return false;
}

/* Waits in slices, so that the loss of a rank ends the wait. */
static nrl_status get_sliced(nrl_store *s, const char *whole, double timeout_s, bool *found, void **value, size_t *size)
{
    const nrl_store *b = s->bottom;
    double deadline = clock_seconds() + timeout_s;
    for (;;) {
        double left = deadline - clock_seconds();
        NRL_TRY(b->table->get(b->self, whole, left < SLICE_S ? left : SLICE_S, found, value, size));
        if (*found || left < SLICE_S) return NRL_OK;
        if (is_stopped(s)) return NRL_ERR_PEER;
    }
}

nrl_status nrl_store_get(nrl_store *s, const char *key, double timeout_s, void **value, size_t *size)
{
    char whole[NRL_STORE_MAX_KEY];
    bool found = false;
    NRL_TRY(whole_key(s, key, whole));
    nrl_status st = get_sliced(s, whole, timeout_s, &found, value, size);
    if (!st && !found) st = nrl_fail(NRL_ERR_PEER, "'%s' was not set in the store within %g s", whole, timeout_s);
    return st;
}

nrl_status store_try_get(nrl_store *s, const char *key, bool *found, void **value, size_t *size)
{
    char whole[NRL_STORE_MAX_KEY];
    NRL_TRY(whole_key(s, key, whole));
    const nrl_store *b = s->bottom;
    return b->table->get(b->self, whole, 0, found, value, size);
}

nrl_status store_remove(nrl_store *s, const char *key)
{
    char whole[NRL_STORE_MAX_KEY];
    NRL_TRY(whole_key(s, key, whole));
    const nrl_store *b = s->bottom;
    return b->table->remove(b->self, whole);
}

nrl_status nrl_store_add(nrl_store *s, const char *key, int64_t amount, int64_t *result)
{
    char whole[NRL_STORE_MAX_KEY];
    const nrl_store *b = s->bottom;
    if (!b->table->add)
        return nrl_fail(NRL_ERR_CONFIG, "cannot use counters in this store: the store plugin '%s' has none",
                        b->table->plugin.name);
    NRL_TRY(whole_key(s, key, whole));
    return b->table->add(b->self, whole, amount, result);
}

nrl_status store_set_once(nrl_store *s, const char *key, const char *text, char **now)
{
    char whole[NRL_STORE_MAX_KEY];
    const nrl_store *b = s->bottom;
    NRL_TRY(whole_key(s, key, whole));
    return b->table->set_once(b->self, whole, text, now);
}

static nrl_status all_there_by_one(const nrl_store *b, const char *const *keys, size_t n, bool *all)
{
    *all = true;
    for (size_t i = 0; i < n && *all; i++) {
        void *value;
        size_t size;
        NRL_TRY(b->table->get(b->self, keys[i], 0, all, &value, &size));
        if (*all) free(value);
    }
    return NRL_OK;
}

nrl_status store_all_there(nrl_store *s, const char *const *keys, size_t n, bool *all)
{
    const nrl_store *b = s->bottom;
    const char **whole;
    arena a = {0};
    nrl_status st = whole_keys(s, keys, n, &a, &whole);
    if (st == NRL_OK)
        st = b->table->all_there ? b->table->all_there(b->self, whole, n, all) : all_there_by_one(b, whole, n, all);
    arena_free(&a);
    return st;
}

static nrl_status get_all_by_one(const nrl_store *b, const char *const *keys, size_t n, char **values)
{
    for (size_t i = 0; i < n; i++) {
        void *value;
        size_t size;
        bool found;
        nrl_status st = b->table->get(b->self, keys[i], 0, &found, &value, &size);
        if (st == NRL_OK && !found) st = nrl_fail(NRL_ERR_PEER, "'%s' is not in the ranks' store", keys[i]);
        if (st != NRL_OK) {
            while (i)
                free(values[--i]);
            return st;
        }
        values[i] = value;
    }
    return NRL_OK;
}

nrl_status store_get_all(nrl_store *s, const char *const *keys, size_t n, char **values)
{
    const nrl_store *b = s->bottom;
    const char **whole;
    arena a = {0};
    nrl_status st = whole_keys(s, keys, n, &a, &whole);
    if (st == NRL_OK)
        st = b->table->get_all ? b->table->get_all(b->self, whole, n, values) : get_all_by_one(b, whole, n, values);
    arena_free(&a);
    return st;
}
