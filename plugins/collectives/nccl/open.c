/*
 * open.c - creates and destroys a rank's communicator and those split from it.
 */
#include "group.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double without_pause_s = 200e-6; /* a pause of 50 us takes twice that by the timer of most systems */
static const struct timespec pause_between = {0, 50000};

nrl_status nccl_driver_check(int code, const char *what)
{
    if (code == DRIVER_DONE) return NRL_OK;
    return nrl_fail(NRL_ERR_DEVICE, "nccl: %s failed on the GPU: CUDA error %d", what, code);
}

nrl_status nccl_enter(const nccl_engine *e)
{
    return nccl_driver_check(e->driver->context_use(e->context), "choosing the device");
}

nrl_status nccl_failed(const nccl_group *g, int code, const char *what)
{
    const nccl_api *api = g->engine->api;
    const char *words = g->comm ? api->last_error(g->comm) : NULL;
    return nrl_fail(NRL_ERR_PEER, "nccl: %s failed: %s%s%s", what, api->error_text(code), words && words[0] ? ": " : "",
                    words ? words : "");
}

static nrl_status aborted_error(const char *what)
{
    return nrl_fail(NRL_ERR_PEER, "nccl: %s was aborted by this rank", what);
}

nrl_status nccl_settle(nccl_group *g, int code, double timeout_s, const char *what)
{
    nccl_engine *e = g->engine;
    const double begin = nccl_clock(), end = begin + timeout_s;
    nrl_status st = NRL_OK;
    while (!st && code == NCCL_IN_PROGRESS) {
        /* NCCL accepts most calls within microseconds, or after a thread of its own has taken them */
        if (nccl_clock() - begin < without_pause_s)
            sched_yield();
        else
            nanosleep(&pause_between, NULL);
        pthread_mutex_lock(&e->lock);
        int asked = g->comm ? e->api->async_error(g->comm, &code) : NCCL_SUCCESS;
        if (!g->comm) st = aborted_error(what);
        pthread_mutex_unlock(&e->lock);
        if (!st && asked) code = asked;
        if (!st && code == NCCL_IN_PROGRESS && nccl_clock() > end)
            st = nrl_fail(NRL_ERR_PEER, "nccl: %s took more than %g s", what, timeout_s);
    }
    if (st || code == NCCL_SUCCESS) return st;
    pthread_mutex_lock(&e->lock);
    st = nccl_failed(g, code, what);
    pthread_mutex_unlock(&e->lock);
    return st;
}

/* ---- groups ---- */

static nrl_status new_group(nccl_engine *e, nccl_group **out)
{
    nccl_group *g = calloc(1, sizeof *g);
    *out = g;
    if (!g) return nrl_fail(NRL_ERR_MEMORY, "no memory for a group");
    g->engine = e;
    atomic_store(&g->failed_peer, -1);
    pthread_mutex_lock(&e->lock);
    g->next = e->groups;
    e->groups = g;
    pthread_mutex_unlock(&e->lock);
    return nccl_driver_check(e->driver->stream_create(&g->stream, STREAM_NON_BLOCKING, STREAM_PRIORITY_HIGH),
                             "creating a stream");
}

nrl_status nccl_alloc(void *self, size_t bytes, void **out)
{
    nccl_group *g = self;
    nccl_engine *e = g->engine;
    *out = NULL;
    if (!e->registers) return NRL_OK;
    NRL_TRY(nccl_enter(e));
    nccl_buffer *b = calloc(1, sizeof *b);
    if (!b) return nrl_fail(NRL_ERR_MEMORY, "no memory for a buffer");
    const char *what = "allocating";
    int code = e->api->buffer_alloc(&b->memory, bytes);
    if (!code) {
        what = "registering";
        pthread_mutex_lock(&e->lock);
        code = g->comm ? e->api->buffer_register(g->comm, b->memory, bytes, &b->handle) : NCCL_SUCCESS;
        pthread_mutex_unlock(&e->lock);
    }
    if (code) {
        nrl_warn("nccl: %s a buffer of %zu bytes failed: %s; buffers are not registered (register_buffers)", what,
                 bytes, e->api->error_text(code));
        e->registers = false;
        if (b->memory) (void)e->api->buffer_free(b->memory);
        free(b);
        return NRL_OK;
    }
    b->next = g->buffers;
    g->buffers = b;
    *out = b->memory;
    return NRL_OK;
}

static void free_buffers(nccl_group *g)
{
    while (g->buffers) {
        nccl_buffer *b = g->buffers;
        g->buffers = b->next;
        (void)g->engine->api->buffer_free(b->memory);
        free(b);
    }
}

static void *abort_communicator(void *self)
{
    nccl_group *g = self;
    (void)nccl_enter(g->engine);
    (void)g->engine->api->abort(g->comm);
    return NULL;
}

/* Aborts all communicators at the same time: an abort waits for the device, where a kernel of another communicator runs
 * until that one is aborted too. */
static void abort_all(nccl_engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (nccl_group *g = e->groups; g; g = g->next)
        g->has_aborter = g->comm && !pthread_create(&g->aborter, NULL, abort_communicator, g);
    for (nccl_group *g = e->groups; g; g = g->next) {
        if (g->comm && !g->has_aborter) (void)e->api->abort(g->comm);
        if (g->has_aborter) pthread_join(g->aborter, NULL);
        g->has_aborter = false;
        g->comm = NULL;
    }
    pthread_mutex_unlock(&e->lock);
}

/* Ends a communicator in two steps. Only a finalized one is destroyed; if one cannot be, all are aborted. Destroying
 * waits for the ranks of the same machine to finalize theirs, so all that may be waited for are finalized first. */
static void finalize_communicator(nccl_group *g)
{
    nccl_engine *e = g->engine;
    pthread_mutex_lock(&e->lock);
    for (const nccl_buffer *b = g->buffers; g->comm && b; b = b->next)
        (void)e->api->buffer_deregister(g->comm, b->handle);
    const bool is_there = g->comm != NULL;
    const int code = is_there ? e->api->finalize(g->comm) : NCCL_SUCCESS; /* another thread may abort */
    pthread_mutex_unlock(&e->lock);
    if (!is_there) return;
    if (nccl_settle(g, code, e->options.timeout, "closing") != NRL_OK) abort_all(e);
}

/* An abort cannot interrupt it: it holds the lock. */
static void destroy_communicator(nccl_group *g)
{
    nccl_engine *e = g->engine;
    pthread_mutex_lock(&e->lock);
    if (g->comm) (void)e->api->destroy(g->comm);
    g->comm = NULL;
    pthread_mutex_unlock(&e->lock);
}

static void free_group(nccl_group *g)
{
    nccl_engine *e = g->engine;
    free_buffers(g);
    nccl_requests_destroy(g);
    if (g->stream) (void)e->driver->stream_destroy(g->stream);
    pthread_mutex_lock(&e->lock);
    for (nccl_group **at = &e->groups; *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    pthread_mutex_unlock(&e->lock);
    free(g);
}

/* Drops a group and its ways. */
static void drop_group(nccl_group *g)
{
    nccl_group *all[5] = {g};
    int n = 1;
    for (int i = 0; i < 4; i++)
        if (g->ways[i / 2][i % 2]) all[n++] = g->ways[i / 2][i % 2];
    for (int i = 0; i < n; i++)
        finalize_communicator(all[i]);
    for (int i = 0; i < n; i++)
        destroy_communicator(all[i]);
    for (int i = 0; i < n; i++)
        free_group(all[i]);
}

static void destroy_engine(nccl_engine *e)
{
    if (e->context) (void)e->driver->context_use(e->context);
    while (e->groups) { /* a way ends with its group, which is the older of the two: the list begins with the latest */
        nccl_group *oldest = e->groups;
        while (oldest->next)
            oldest = oldest->next;
        drop_group(oldest);
    }
    if (e->word) (void)e->driver->release(e->word);
    if (e->context) (void)e->driver->context_release(e->device);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

void nccl_close(void *self)
{
    nccl_group *g = self;
    if (!g) return;
    nccl_engine *e = g->engine;
    if (g->is_world) {
        destroy_engine(e);
        return;
    }
    (void)nccl_enter(e);
    drop_group(g);
}

void nccl_abort(void *self)
{
    nccl_engine *e = ((nccl_group *)self)->engine;
    atomic_store(&e->aborted, true);
    (void)nccl_enter(e);
    abort_all(e);
}

/* ---- opening ---- */

static nrl_status take_device(nccl_engine *e, int32_t local)
{
    int n = 0;
    NRL_TRY(nccl_driver_check(e->driver->initialize(0), "starting the driver"));
    NRL_TRY(nccl_driver_check(e->driver->device_count(&n), "counting the devices"));
    int64_t device = e->options.device >= 0 ? e->options.device : local;
    if (device >= n)
        return nrl_fail(NRL_ERR_CONFIG,
                        "nccl: cannot use device %lld: this machine shows %d\n"
                        "hint: each rank of a machine needs its own device; start at most %d ranks here. If each rank "
                        "sees only its own device, set collective.device: 0 and backend.device: 0",
                        (long long)device, n, n);
    e->device = (int)device;
    NRL_TRY(nccl_driver_check(e->driver->context_retain(&e->context, e->device), "opening the device"));
    NRL_TRY(nccl_enter(e));
    return nccl_driver_check(e->driver->allocate(&e->word, sizeof(float)), "allocating device memory");
}

static nrl_status check_version(nccl_engine *e)
{
    int v = 0;
    if (e->api->version(&v) || v < NCCL_OLDEST)
        return nrl_fail(NRL_ERR_PLUGIN, "nccl: found version %d; expected 2.18 (%d) or later", v, NCCL_OLDEST);
    bool can = e->api->buffer_alloc && e->api->buffer_free && e->api->buffer_register && e->api->buffer_deregister;
    e->registers = e->options.register_buffers && can;
    snprintf(e->text, sizeof e->text, "nccl %d.%d.%d, device %d%s", v / 10000, v / 100 % 100, v % 100, e->device,
             e->registers                  ? ", registered buffers"
             : e->options.register_buffers ? ", buffers not registered (NCCL 2.19 can)"
                                           : "");
    return NRL_OK;
}

static nccl_config config_of(int64_t max_ctas)
{
    nccl_config config = NCCL_CONFIG_NON_BLOCKING;
    if (max_ctas) config.max_ctas = (int)max_ctas;
    return config;
}

static nrl_status join(nccl_group *g, const nccl_id *id, int32_t rank, int32_t world, double timeout_s)
{
    nccl_engine *e = g->engine;
    nccl_config config = config_of(e->options.max_ctas);
    g->rank = rank;
    g->size = world;
    pthread_mutex_lock(&e->lock);
    int code = e->api->init(&g->comm, world, *id, rank, &config);
    pthread_mutex_unlock(&e->lock);
    return nccl_settle(g, code, timeout_s, "joining the other ranks");
}

static nrl_status open_parts(nccl_engine *e, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                             nccl_group **out)
{
    nccl_id id;
    int32_t local;
    double end = nccl_clock() + timeout_s;
    NRL_TRY(check_version(e));
    NRL_TRY(nccl_meet(e->api, store, rank, world, timeout_s, &id, &local));
    NRL_TRY(take_device(e, local));
    NRL_TRY(check_version(e)); /* again, now with the device in the text */
    NRL_TRY(new_group(e, out));
    (*out)->is_world = true;
    double left = end - nccl_clock();
    return join(*out, &id, rank, world, left > 1 ? left : 1);
}

nrl_status nccl_open_with(const nccl_api *api, const nccl_driver *driver, const nccl_options *o, nrl_store *store,
                          int32_t rank, int32_t world, double timeout_s, void **self)
{
    *self = NULL;
    if (world < 1 || rank < 0 || rank >= world) return nrl_fail(NRL_ERR_BUG, "nccl: rank %d of %d", rank, world);
    nccl_engine *e = calloc(1, sizeof *e);
    if (!e) return nrl_fail(NRL_ERR_MEMORY, "no memory to open NCCL");
    e->api_table = *api;
    e->driver_table = *driver;
    e->api = &e->api_table;
    e->driver = &e->driver_table;
    e->options = *o;
    pthread_mutex_init(&e->lock, NULL);
    nccl_group *g = NULL;
    nrl_status st = open_parts(e, store, rank, world, timeout_s, &g);
    if (st) {
        if (g && g->comm) (void)api->abort(g->comm); /* destroy may wait for ranks that never arrive */
        if (g) g->comm = NULL;
        destroy_engine(e);
        return st;
    }
    *self = g;
    return NRL_OK;
}

/* NCCL may set a split communicator some time after its parent has accepted the call. */
static nrl_status await_child(nccl_group *g, double timeout_s)
{
    nccl_engine *e = g->engine;
    double end = nccl_clock() + timeout_s;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        bool is_there = __atomic_load_n(&g->comm, __ATOMIC_ACQUIRE) != NULL;
        pthread_mutex_unlock(&e->lock);
        if (is_there) return NRL_OK;
        if (atomic_load(&e->aborted)) return aborted_error("splitting a group");
        if (nccl_clock() > end) return nrl_fail(NRL_ERR_PEER, "nccl: splitting a group took more than %g s", timeout_s);
        nanosleep(&pause_between, NULL);
    }
}

static nrl_status split(nccl_group *parent, int32_t color, int32_t key, int64_t max_ctas, nccl_group **group)
{
    nccl_group *g = NULL;
    nccl_engine *e = parent->engine;
    nccl_config config = config_of(max_ctas);
    *group = NULL;
    NRL_TRY(nccl_enter(e));
    NRL_TRY(new_group(e, &g));
    pthread_mutex_lock(&e->lock);
    int code =
        parent->comm ? e->api->split(parent->comm, color < 0 ? -1 : color, key, &g->comm, &config) : NCCL_IN_PROGRESS;
    pthread_mutex_unlock(&e->lock);
    nrl_status st = nccl_settle(parent, code, e->options.timeout, "splitting a group");
    if (!st && color >= 0) st = await_child(g, e->options.timeout);
    if (!st && color >= 0) st = nccl_settle(g, NCCL_IN_PROGRESS, e->options.timeout, "splitting a group");
    int size = 0, rank = 0;
    if (!st && color >= 0) {
        pthread_mutex_lock(&e->lock);
        code = g->comm ? e->api->count(g->comm, &size) : NCCL_IN_PROGRESS;
        if (!code) code = e->api->user_rank(g->comm, &rank);
        if (code) st = nccl_failed(g, code, "querying a group");
        pthread_mutex_unlock(&e->lock);
    }
    if (st) return st; /* NCCL may still write g->comm: the group is dropped after its parent, with the engine */
    if (color < 0) {
        drop_group(g);
        return NRL_OK;
    }
    g->size = size;
    g->rank = rank;
    *group = g;
    return NRL_OK;
}

nrl_status nccl_split(void *self, int32_t color, int32_t key, void **group)
{
    nccl_group *g = NULL, *parent = self;
    nrl_status st = split(parent, color, key, parent->engine->options.max_ctas, &g);
    *group = g;
    return st;
}

/* ---- ways ---- */

/* Edge e of a ring of n ranks lies between the ranks e and e + 1. Edges that share a rank are connected in different
 * rounds: even ones, odd ones, and the last one of an odd ring. */
static int32_t round_of(int32_t edge, int32_t n)
{
    return edge == n - 1 && n % 2 ? 2 : edge % 2;
}

/* NCCL connects two ranks in their first exchange, and both wait until it is made. It is made here, where they call
 * together: a receive that a stage posts before the other can send would wait forever. */
static nrl_status connect_way(nccl_group *way, bool sends)
{
    nccl_engine *e = way->engine;
    const nccl_api *api = e->api;
    pthread_mutex_lock(&e->lock);
    int code = way->comm ? api->group_start() : NCCL_IN_PROGRESS;
    if (way->comm && !code) {
        void *word = (void *)e->word; /* the result is not used */
        const int32_t peer = 1 - way->rank;
        const int inner = sends ? api->send(word, 1, NCCL_F32, peer, way->comm, way->stream)
                                : api->recv(word, 1, NCCL_F32, peer, way->comm, way->stream);
        code = api->group_end();
        if (inner && inner != NCCL_IN_PROGRESS) code = inner;
    }
    pthread_mutex_unlock(&e->lock);
    return nccl_settle(way, code, e->options.timeout, "connecting two stages");
}

nrl_status nccl_connect(void *self)
{
    nccl_group *g = self;
    const int32_t n = g->size, rounds = n == 2 ? 1 : 2 + n % 2;
    for (int32_t round = 0; n > 1 && round < rounds; round++) {
        int32_t edge = -1, side = 0; /* of this rank in this round */
        for (int32_t s = 0; s < (n == 2 ? 1 : 2); s++) {
            const int32_t e = n == 2 ? 0 : (g->rank + n - s) % n;
            if (round_of(e, n) != round) continue;
            edge = e;
            side = s;
        }
        for (int back = 0; back < 2; back++) {
            nccl_group *way;
            const bool sends = (edge == g->rank) != back;
            NRL_TRY(split(g, edge, g->rank, g->engine->options.message_ctas, &way));
            if (!way) continue;
            g->ways[side][sends] = way;
            NRL_TRY(connect_way(way, sends));
        }
    }
    return NRL_OK;
}

nccl_group *nccl_way(const nccl_group *g, int32_t peer, bool sends)
{
    if (peer == (g->rank + 1) % g->size) return g->ways[0][sends];
    return peer == (g->rank + g->size - 1) % g->size ? g->ways[1][sends] : NULL;
}

/* ---- queries ---- */

int32_t nccl_failed_peer(void *self)
{
    return atomic_load(&((nccl_group *)self)->failed_peer);
}

void nccl_info(void *self, nrl_collective_info *fill)
{
    nccl_engine *e = ((nccl_group *)self)->engine;
    fill->bytes_sent = atomic_load(&e->bytes_sent);
    fill->bytes_received = atomic_load(&e->bytes_received);
    fill->text = e->text;
}
