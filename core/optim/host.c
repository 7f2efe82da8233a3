/*
 * host.c - updates on a backend in host memory (nrl_backend.updater), where the states are. Ranges of slices pass three
 * stages at the same time, on two streams and the threads of that backend:
 *
 *   copies to the host    range i + 1: the gradient, and of the master what is not on the host
 *   update                range i
 *   copies to the device  range i - 1: weights, and of the master what is not on the host
 */
#include "base/memory.h"
#include "optim/updates.h"
#include <stdlib.h>

enum { ALIGN = 64 }; /* bytes, as memory of nrl_backend.alloc */

/* A range, with tensors of both contexts. */
typedef struct {
    char *memory; /* pinned: what is not on the host */
    nrl_slice there, here;
    bool counts;
    nrl_event *arrived, *returned; /* NULL: nothing to wait for */
} host_place;

struct update_host {
    device *of, device;
    nrl_ctx *ctx; /* of `device` */
    nrl_stream *to_host, *to_device;
    char *memory;
    host_place places[UPDATE_HOST_RANGES];
};

nrl_status update_host_open(device *of, const nrl_backend *table, const void *options, struct update_host **out)
{
    struct update_host *h = mem_alloc(sizeof *h);
    const nrl_backend *t = &of->table;
    h->of = of;
    nrl_status st = device_open(table, options, (int32_t)of->info.index, &h->device);
    if (st == NRL_OK && (!h->device.info.host_memory || table->stream_create || !t->stream_create || !t->alloc_host))
        st = nrl_fail(
            NRL_ERR_PLUGIN,
            "backend '%s' delegates updates to '%s'; expected a backend with streams and pinned memory, and one in "
            "host memory without streams",
            t->plugin.name, table->plugin.name);
    if (st == NRL_OK) st = ctx_create(&h->device, &h->ctx);
    if (st == NRL_OK) st = t->stream_create(of->self, &h->to_host);
    if (st == NRL_OK) st = t->stream_create(of->self, &h->to_device);
    if (st == NRL_OK) st = t->alloc_host(of->self, UPDATE_HOST_BYTES, (void **)&h->memory);
    for (int i = 0; i < UPDATE_HOST_RANGES && st == NRL_OK; i++)
        h->places[i].memory = h->memory + (size_t)i * UPDATES_RANGE * UPDATE_HOST_ELEMENT;
    if (st == NRL_OK) {
        *out = h;
        return NRL_OK;
    }
    update_host_close(h);
    nrl_add_context("backend '%s', for updates of what train.offload.optimizer keeps on the host", table->plugin.name);
    return st;
}

void update_host_close(struct update_host *h)
{
    if (!h) return;
    const nrl_backend *t = &h->of->table;
    if (h->to_host) t->stream_destroy(h->of->self, h->to_host);
    if (h->to_device) t->stream_destroy(h->of->self, h->to_device);
    if (h->memory) t->free_host(h->of->self, h->memory);
    ctx_destroy(h->ctx);
    if (h->device.self) device_close(&h->device);
    free(h);
}

bool update_host_takes(const update_plan *u, const update_unit *x)
{
    return u->host && x->is_here && !x->is_gathered && x->what.granularity != NRL_OPTIMIZER_MATRIX &&
           x->what.block <= UPDATES_RANGE;
}

/* ---- ranges ---- */

/* Copies what the update reads, or what it has written, as far as it is not on the host. */
static nrl_status copy_range(struct update_host *h, host_place *p, bool to_host)
{
    nrl_stream *stream = to_host ? h->to_host : h->to_device;
    for (int k = 0; k < UPDATES_TENSORS; k++) {
        nrl_tensor *there = *updates_tensor(&p->there, k), *here = *updates_tensor(&p->here, k);
        const bool is_used = to_host ? k != UPDATES_WORK || p->there.low : k != UPDATES_GRAD;
        if (!there || tensor_is_elsewhere(there) || !is_used) continue;
        void *const on_device = nrl_tensor_mat(there).data, *const on_host = nrl_tensor_mat(here).data;
        NRL_TRY(h->of->table.copy(h->of->self, stream, to_host ? on_host : on_device, to_host ? on_device : on_host,
                                  (size_t)nrl_tensor_numel(there) * nrl_dtype_size(nrl_tensor_dtype(there)),
                                  to_host ? NRL_COPY_TO_HOST : NRL_COPY_TO_DEVICE));
    }
    return NRL_OK;
}

static nrl_status wait_in(struct update_host *h, nrl_stream *stream, nrl_event **event)
{
    nrl_status st = *event ? h->of->table.event_fence(h->of->self, stream, *event) : NRL_OK;
    if (*event) h->of->table.event_destroy(h->of->self, *event);
    *event = NULL;
    return st;
}

/* Starts to copy n elements of a slice from `at` on to the host. */
static nrl_status range_fetch(struct update_host *h, nrl_ctx *ctx, host_place *p, const nrl_slice *s, int64_t at,
                              int64_t n, int64_t block)
{
    size_t used = 0;
    NRL_TRY(wait_in(h, h->to_host, &p->returned)); /* until then its memory is in use */
    NRL_TRY(updates_view(ctx, s, at, n, block, &p->there));
    p->here = p->there;
    for (int k = 0; k < UPDATES_TENSORS; k++) {
        nrl_tensor *there = *updates_tensor(&p->there, k);
        if (!there) continue;
        const nrl_dtype dtype = nrl_tensor_dtype(there);
        const bool is_shared = tensor_is_elsewhere(there);
        const size_t bytes = is_shared ? 0 : (size_t)nrl_tensor_numel(there) * nrl_dtype_size(dtype);
        used = (used + ALIGN - 1) / ALIGN * ALIGN;
        NRL_ASSERT(used + bytes, <=, (size_t)UPDATES_RANGE * UPDATE_HOST_ELEMENT);
        *updates_tensor(&p->here, k) = tensor_borrowed(
            h->ctx, dtype, nrl_tensor_numel(there), is_shared ? nrl_tensor_mat(there).data : p->memory + used, false);
        used += bytes;
    }
    NRL_TRY(copy_range(h, p, true));
    return h->of->table.event_record(h->of->self, h->to_host, &p->arrived);
}

/* Updates a range once it is there, and starts to copy the result to the device. */
static nrl_status range_update(update_plan *u, host_place *p, const nrl_step_params *step)
{
    struct update_host *h = u->host;
    NRL_TRY(h->of->table.event_wait(h->of->self, p->arrived));
    NRL_TRY(updates_one(u, h->ctx, &p->here, p->counts, step));
    NRL_TRY(copy_range(h, p, false));
    return h->of->table.event_record(h->of->self, h->to_device, &p->returned);
}

static void range_release(struct update_host *h, nrl_ctx *ctx, host_place *p)
{
    updates_release(ctx, &p->there);
    updates_release(h->ctx, &p->here);
    if (p->arrived) h->of->table.event_destroy(h->of->self, p->arrived);
    p->arrived = NULL;
}

nrl_status update_host_step(update_plan *u, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                            const nrl_step_params *step)
{
    struct update_host *h = u->host;
    nrl_stream *const stream = nrl_ctx_stream(ctx);
    const int64_t n_all = u->is_plain ? n_slices : u->n_units;
    const double mark = ctx_profile_mark(ctx);
    int64_t i = 0, at = 0, fetched = 0, updated = 0;
    nrl_event *ready = NULL; /* the gradients are complete */
    nrl_status st = h->of->table.event_record(h->of->self, stream, &ready);
    if (st == NRL_OK) st = wait_in(h, h->to_host, &ready);
    while (st == NRL_OK && (i < n_all || updated < fetched)) {
        const update_unit *x = i < n_all && !u->is_plain ? &u->units[i] : NULL;
        const nrl_slice *s = x ? &x->local : i < n_all ? &slices[i] : NULL;
        if ((x && !update_host_takes(u, x)) || (s && at >= s->n)) {
            i++;
            at = 0;
        } else if (s && fetched - updated < UPDATE_HOST_RANGES - 1) {
            const int64_t block = x && x->what.block > 1 ? x->what.block : 1, most = UPDATES_RANGE / block * block;
            const int64_t n = s->n - at < most ? s->n - at : most;
            host_place *p = &h->places[fetched++ % UPDATE_HOST_RANGES];
            p->counts = x ? x->is_saved_here : !u->counts || u->counts[i];
            st = range_fetch(h, ctx, p, s, at, n, block);
            at += n;
        } else {
            host_place *p = &h->places[updated++ % UPDATE_HOST_RANGES];
            st = range_update(u, p, step);
            range_release(h, ctx, p);
        }
    }
    for (int k = 0; k < UPDATE_HOST_RANGES; k++) {
        nrl_status waits = wait_in(h, stream, &h->places[k].returned);
        range_release(h, ctx, &h->places[k]);
        if (st == NRL_OK) st = waits;
    }
    ctx_profile_host(ctx, "updates (host)", mark);
    return st;
}
