/*
 * open.c - creates and destroys a rank's communicator and those split from it.
 */
#include "group.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { AT_ONCE = 32 };                                   /* polls without a pause */
static const struct timespec pause_between = {0, 50000}; /* 50 us */

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
    double end = nccl_clock() + timeout_s;
    nrl_status st = NRL_OK;
    for (int round = 0; !st && code == NCCL_IN_PROGRESS; round++) {
        if (round >= AT_ONCE) nanosleep(&pause_between, NULL); /* NCCL accepts most calls within microseconds */
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

/* A communicator without errors is finalized first; if that fails, or after an error, it is aborted. */
static void end_communicator(nccl_group *g)
{
    nccl_engine *e = g->engine;
    if (!g->comm) return;
    nrl_status st = nccl_settle(g, e->api->finalize(g->comm), e->options.timeout, "closing");
    pthread_mutex_lock(&e->lock);
    if (g->comm) (void)(st ? e->api->abort(g->comm) : e->api->destroy(g->comm));
    g->comm = NULL;
    pthread_mutex_unlock(&e->lock);
}

static void drop_group(nccl_group *g)
{
    nccl_engine *e = g->engine;
    end_communicator(g);
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

static void destroy_engine(nccl_engine *e)
{
    if (e->context) (void)e->driver->context_use(e->context);
    while (e->groups)
        drop_group(e->groups);
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
    pthread_mutex_lock(&e->lock);
    for (nccl_group *g = e->groups; g; g = g->next) {
        if (g->comm) (void)e->api->abort(g->comm);
        g->comm = NULL;
    }
    pthread_mutex_unlock(&e->lock);
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
                        "each rank of a machine needs a device of its own: start at most %d ranks here\n"
                        "if each rank sees only its own device, set collective.device: 0 and backend.device: 0",
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
    snprintf(e->text, sizeof e->text, "nccl %d.%d.%d, device %d", v / 10000, v / 100 % 100, v % 100, e->device);
    return NRL_OK;
}

static nrl_status join(nccl_group *g, const nccl_id *id, int32_t rank, int32_t world, double timeout_s)
{
    nccl_engine *e = g->engine;
    nccl_config config = NCCL_CONFIG_NON_BLOCKING;
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

nrl_status nccl_split(void *self, int32_t color, int32_t key, void **group)
{
    nccl_group *parent = self, *g = NULL;
    nccl_engine *e = parent->engine;
    nccl_config config = NCCL_CONFIG_NON_BLOCKING;
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
    if (st || color < 0) {
        drop_group(g);
        return st;
    }
    g->size = size;
    g->rank = rank;
    *group = g;
    return NRL_OK;
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
