/*
 * parallel_record.c - a layer between a mesh and a collective that records calls, so that ranks can
 * be compared and unreleased requests can be counted. Calls in groups made by split are recorded
 * separately, because calls on different axes are not ordered.
 */
#include "parallel.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    record *r;
    void *self; /* of the real collective */
    int32_t group;
} recorded;

static uint64_t mix(uint64_t h, uint64_t word)
{
    for (int i = 0; i < 8; i++)
        h = (h ^ (word >> 8 * i & 255)) * 1099511628211u;
    return h;
}

static void note(const recorded *c, const char *name, const nrl_comm_args *a, bool even)
{
    record_group *g = &c->r->groups[c->group];
    uint64_t h = g->digest;
    for (const char *s = name; *s; s++)
        h = mix(h, (unsigned char)*s);
    h = mix(mix(h, a->dtype), a->reduce);
    if (even && !a->counts) h = mix(h, (uint64_t)a->count);
    g->digest = h;
    g->n_calls++;
}

static nrl_status done(const recorded *c, nrl_status st)
{
    if (st == NRL_OK) c->r->started++;
    return st;
}

#define RECORD(name, even)                                                                                             \
    static nrl_status record_##name(void *self, const nrl_comm_args *a, nrl_request **request)                         \
    {                                                                                                                  \
        const recorded *c = self;                                                                                      \
        note(c, #name, a, even);                                                                                       \
        return done(c, c->r->real->name(c->self, a, request));                                                         \
    }
RECORD(barrier, false)
RECORD(broadcast, true)
RECORD(all_reduce, true)
RECORD(all_gather, true)
RECORD(reduce, true)
RECORD(reduce_scatter, true)
RECORD(gather, true)
RECORD(scatter, true)
RECORD(all_to_all, true)
#undef RECORD

/* Matched by peer and tag, not by order. */
static nrl_status record_send(void *self, const nrl_comm_args *a, nrl_request **request)
{
    const recorded *c = self;
    return done(c, c->r->real->send(c->self, a, request));
}

static nrl_status record_recv(void *self, const nrl_comm_args *a, nrl_request **request)
{
    const recorded *c = self;
    return done(c, c->r->real->recv(c->self, a, request));
}

static recorded *wrap(record *r, void *real_self, int32_t color)
{
    recorded *c = calloc(1, sizeof *c);
    NRL_ASSERT(r->n_groups, <, RECORD_GROUPS);
    *c = (recorded){.r = r, .self = real_self, .group = r->n_groups};
    r->groups[r->n_groups++].color = color;
    return c;
}

static nrl_status record_open(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                              void **self)
{
    /* A mesh passes its options on; each rank has a record of its own. */
    record *r = (record *)(uintptr_t)options;
    void *real_self;
    NRL_TRY(r->real->open(r->options, store, rank, world, timeout_s, &real_self));
    *self = wrap(r, real_self, 0);
    return NRL_OK;
}

static nrl_status record_split(void *self, int32_t color, int32_t key, void **group)
{
    recorded *c = self;
    void *real_group = NULL;
    NRL_TRY(c->r->real->split(c->self, color, key, &real_group));
    *group = NULL;
    recorded *made = wrap(c->r, real_group, color);
    if (real_group)
        *group = made;
    else
        free(made);
    return NRL_OK;
}

static void record_close(void *self)
{
    recorded *c = self;
    c->r->real->close(c->self);
    free(c);
}

static void record_abort(void *self)
{
    recorded *c = self;
    c->r->real->abort(c->self);
}

static nrl_status record_wait(void *self, nrl_request *request, double timeout_s, bool *is_done)
{
    recorded *c = self;
    return c->r->real->wait(c->self, request, timeout_s, is_done);
}

static nrl_status record_fence(void *self, nrl_request *request, nrl_stream *stream)
{
    recorded *c = self;
    return c->r->real->fence(c->self, request, stream);
}

static void record_release(void *self, nrl_request *request)
{
    recorded *c = self;
    c->r->released++;
    c->r->real->release(c->self, request);
}

static int32_t record_failed_peer(void *self)
{
    recorded *c = self;
    return c->r->real->failed_peer(c->self);
}

static void record_info(void *self, nrl_collective_info *fill)
{
    recorded *c = self;
    c->r->real->info(c->self, fill);
}

#define WHERE(name) .name = real->name ? record_##name : NULL
nrl_collective record_collective(const nrl_collective *real)
{
    return (nrl_collective){
        .plugin = real->plugin,
        .host_only = real->host_only,
        .open = record_open,
        WHERE(split),
        .close = record_close,
        WHERE(abort),
        WHERE(barrier),
        WHERE(broadcast),
        WHERE(all_reduce),
        WHERE(all_gather),
        WHERE(reduce),
        WHERE(reduce_scatter),
        WHERE(gather),
        WHERE(scatter),
        WHERE(all_to_all),
        WHERE(send),
        WHERE(recv),
        WHERE(wait),
        WHERE(fence),
        WHERE(release),
        WHERE(failed_peer),
        WHERE(info),
    };
}
#undef WHERE
