/*
 * gloo.c - collectives over TCP with Gloo's protocol: between ranks of nrl, or mixed with ranks of
 * Gloo and PyTorch. Host memory only. The README in this folder gives a reading order.
 */
#include "gloo.h"
#include <stdio.h>
#include <stdlib.h>

static const nrl_option gloo_rows[] = {
    NRL_OPT_ENUM(gloo_options, dialect, "tcp23", "tcp22|tcp23|uv",
                 "version of the protocol: tcp22 Gloo of 2022 and PyTorch <= 2.0, tcp23 PyTorch "
                 ">= 2.2, uv Gloo's libuv transport"),
    NRL_OPT_ENUM(gloo_options, peers, "nrl", "nrl|gloo",
                 "gloo: some ranks are not ranks of nrl; reduce_scatter is then an all_reduce, and groups are not "
                 "available"),
    NRL_OPT_STR(gloo_options, interface, "",
                "network interface; unset: the environment variable GLOO_SOCKET_IFNAME, or else the address of the "
                "host name"),
    NRL_OPT_STR(gloo_options, address, "", "address of this machine to listen on; overrides interface"),
    NRL_OPT_ENUM(gloo_options, family, "any", "any|ipv4|ipv6", "address family; must be the same on all ranks"),
    NRL_OPT_F64(gloo_options, timeout, "0", 0, 1e6,
                "seconds without progress after which a call fails; 0: the caller's time-out applies"),
    NRL_OPT_F64(gloo_options, rate_limit, "0", 0, 1e6, "limit of MB/s that this rank sends; 0: no limit"),
    NRL_OPT_INT(gloo_options, spin, "20", 0, 10000,
                "microseconds that a waiting thread polls for the answer to a small call before it sleeps"),
    NRL_OPT_INT(gloo_options, socket_buffer, "0", 0, 1 << 20,
                "KiB of the kernel's buffers for each connection; 0: the kernel decides"),
};

static gloo_group *new_group(gloo_engine *e, int32_t size)
{
    gloo_group *g = calloc(1, sizeof *g + (size_t)size * sizeof *g->ranks);
    if (!g) return NULL;
    g->engine = e;
    g->size = size;
    g->next = e->groups;
    e->groups = g;
    return g;
}

static nrl_status gloo_open(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                            void **self)
{
    gloo_engine *e;
    *self = NULL;
    if (world < 1 || rank < 0 || rank >= world) return nrl_fail(NRL_ERR_BUG, "gloo: rank %d of %d", rank, world);
    NRL_TRY(engine_create(options, rank, world, &e));
    gloo_group *g = new_group(e, world);
    nrl_status st = g ? meet(e, store, timeout_s) : nrl_fail(NRL_ERR_MEMORY, "no memory for a group");
    if (!st && world > 1) st = engine_start(e);
    if (st) {
        engine_destroy(e);
        nrl_add_context("gloo");
        return st;
    }
    g->rank = rank;
    for (int32_t i = 0; i < world; i++)
        g->ranks[i] = i;
    *self = g;
    return NRL_OK;
}

/* ---- groups ---- */

typedef struct {
    int64_t color, key, next_group;
    int64_t rank; /* rank in the parent group */
} split_word;

static int by_key(const void *a, const void *b)
{
    const split_word *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static nrl_status gloo_wait(void *self, nrl_request *r, double timeout_s, bool *done);
static void gloo_release(void *self, nrl_request *r);

static nrl_status exchange(gloo_group *g, const split_word *mine, split_word *all)
{
    bool done = false;
    nrl_request *r;
    const nrl_comm_args a = {
        .size = sizeof a, .dtype = NRL_DTYPE_U8, .send = mine, .receive = all, .count = sizeof *mine};
    NRL_TRY(gloo_all_gather(g, &a, &r));
    nrl_status st = gloo_wait(g, r, 1e9, &done);
    gloo_release(g, r);
    return st;
}

/* The new id is larger than every id that a member of the parent has seen, so no member has used it. */
static nrl_status make_group(gloo_group *parent, int64_t color, split_word *all, void **out)
{
    gloo_engine *e = parent->engine;
    int32_t n = 0;
    uint32_t id = 0;
    for (int32_t i = 0; i < parent->size; i++) {
        if ((uint32_t)all[i].next_group > id) id = (uint32_t)all[i].next_group;
        if (all[i].color == color) all[n++] = all[i];
    }
    if (id >= 1u << 24) return nrl_fail(NRL_ERR_PEER, "gloo: more than %d groups", 1 << 24);
    e->next_group = id + 1;
    if (color < 0) return NRL_OK;
    qsort(all, (size_t)n, sizeof *all, by_key);
    gloo_group *g = new_group(e, n);
    if (!g) return nrl_fail(NRL_ERR_MEMORY, "no memory for a group of %d ranks", n);
    g->id = id;
    for (int32_t i = 0; i < n; i++) {
        g->ranks[i] = parent->ranks[all[i].rank];
        if (all[i].rank == parent->rank) g->rank = i;
    }
    *out = g;
    return NRL_OK;
}

static nrl_status gloo_split(void *self, int32_t color, int32_t key, void **group)
{
    gloo_group *g = self;
    *group = NULL;
    if (g->engine->options.peers == PEERS_GLOO)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot create a group: groups are an extension of nrl, which peers: gloo excludes");
    const split_word mine = {color < 0 ? -1 : color, key, g->engine->next_group, g->rank};
    split_word *all = calloc((size_t)g->size, sizeof *all);
    if (!all) return nrl_fail(NRL_ERR_MEMORY, "no memory to split %d ranks", g->size);
    nrl_status st = exchange(g, &mine, all);
    if (!st) st = make_group(g, mine.color, all, group);
    free(all);
    return st;
}

/* Groups hold only memory, which is freed with the engine. */
static void gloo_close(void *self)
{
    gloo_group *g = self;
    if (!g || g->id) return;
    if (!g->engine->aborted) engine_send_leave(g->engine);
    engine_destroy(g->engine);
}

static void gloo_abort(void *self)
{
    gloo_group *g = self;
    engine_abort(g->engine, "aborted by this rank");
}

/* ---- requests ---- */

static nrl_status gloo_wait(void *self, nrl_request *r, double timeout_s, bool *done)
{
    gloo_group *g = self;
    engine_wait(g->engine, r, timeout_s);
    *done = atomic_load_explicit(&r->done, memory_order_acquire);
    if (!*done || r->status == NRL_OK) return NRL_OK;
    return nrl_fail(r->status, "%s", r->error);
}

static nrl_status gloo_fence(void *self, nrl_request *r, nrl_stream *stream)
{
    bool done;
    (void)stream; /* host memory: data can be used only after a wait */
    return gloo_wait(self, r, 1e9, &done);
}

static void gloo_release(void *self, nrl_request *r)
{
    gloo_engine *e = ((gloo_group *)self)->engine;
    if (!r) return;
    if (!atomic_load_explicit(&r->done, memory_order_acquire)) {
        engine_lock(e);
        bool early = !r->ended;
        if (early) r->dropped = true;
        pthread_mutex_unlock(&e->lock);
        if (early) return; /* freed when the request ends */
    }
    request_give_back(r);
}

static int32_t gloo_failed_peer(void *self)
{
    const gloo_group *g = self;
    int32_t rank = atomic_load(&g->engine->failed_peer);
    for (int32_t i = 0; i < g->size; i++)
        if (g->ranks[i] == rank) return i;
    return -1;
}

static void gloo_info(void *self, nrl_collective_info *fill)
{
    gloo_engine *e = ((gloo_group *)self)->engine;
    fill->bytes_sent = atomic_load(&e->bytes_sent);
    fill->bytes_received = atomic_load(&e->bytes_received);
    fill->text = e->text;
    if (fill->size >= sizeof *fill) fill->messages_sent = atomic_load(&e->messages_sent);
}

static nrl_status gloo_probe(void)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && __SIZEOF_POINTER__ == 8
    return NRL_OK;
#else
    return nrl_fail(NRL_ERR_PLUGIN, "gloo's protocol needs a 64-bit little-endian machine");
#endif
}

static const nrl_collective gloo = {
    NRL_PLUGIN(NRL_KIND_COLLECTIVE, nrl_collective, gloo_options, gloo_rows, "gloo", "0.1",
               "TCP, with Gloo's protocol"),
    .plugin.priority = 100,
    .host_only = true,
    .probe = gloo_probe,
    .open = gloo_open,
    .split = gloo_split,
    .close = gloo_close,
    .abort = gloo_abort,
    .barrier = gloo_barrier,
    .broadcast = gloo_broadcast,
    .all_reduce = gloo_all_reduce,
    .all_gather = gloo_all_gather,
    .reduce = gloo_reduce,
    .reduce_scatter = gloo_reduce_scatter,
    .gather = gloo_gather,
    .scatter = gloo_scatter,
    .all_to_all = gloo_all_to_all,
    .send = gloo_send,
    .recv = gloo_recv,
    .wait = gloo_wait,
    .fence = gloo_fence,
    .release = gloo_release,
    .failed_peer = gloo_failed_peer,
    .info = gloo_info,
};
NRL_EXPORT(gloo)
