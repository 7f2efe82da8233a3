/*
 * comm.c - the calls of strategies: turns tensors into operands, and copies device tensors through host memory if the
 * collective supports only host memory.
 */
#include "base/arena.h"
#include "mesh/internal.h"
#include "tensor/ctx.h"
#include <stdlib.h>
#include <string.h>

/* ---- operands ---- */

static bool lies_together(const nrl_tensor *t)
{
    nrl_mat m = nrl_tensor_mat(t);
    return m.data && (m.rows <= 1 || m.stride == m.cols);
}

static nrl_status wrong(const nrl_comm_call *call, const char *problem)
{
    return nrl_fail(NRL_ERR_BUG, "exchange '%s': %s", call->what ? call->what : "", problem);
}

static nrl_status check_tensors(const nrl_comm_call *call)
{
    const nrl_tensor *s = call->send, *r = call->receive;
    if (!s && !r) return wrong(call, "no tensors");
    if ((s && !lies_together(s)) || (r && !lies_together(r)))
        return wrong(call, "a tensor was released or is a slice of columns");
    if (s && r && nrl_tensor_dtype(s) != nrl_tensor_dtype(r))
        return wrong(call, "the two tensors have different types");
    return NRL_OK;
}

static void *data_of(const nrl_tensor *t)
{
    return t ? nrl_tensor_mat(t).data : NULL;
}

static int64_t numel_of(const nrl_tensor *t)
{
    return t ? nrl_tensor_numel(t) : 0;
}

static nrl_comm_args operands(const nrl_comm_call *call, int64_t count)
{
    const nrl_tensor *any = call->receive ? call->receive : call->send;
    return (nrl_comm_args){.size = sizeof(nrl_comm_args),
                           .dtype = nrl_tensor_dtype(any),
                           .reduce = call->reduce,
                           .peer = call->peer,
                           .send = data_of(call->send),
                           .receive = data_of(call->receive),
                           .count = count,
                           .counts = call->counts,
                           .offsets = call->offsets,
                           .tag = call->tag};
}

/* Returns where the share of rank r begins in the tensor with all shares, and its size. */
static int64_t share_begin(const nrl_comm_call *call, int64_t count, int32_t r)
{
    int64_t begin = 0;
    if (call->offsets) return call->offsets[r];
    if (!call->counts) return count * r;
    for (int32_t k = 0; k < r; k++)
        begin += call->counts[k];
    return begin;
}

/* `whole` holds the shares of all ranks, `part` the share of this rank (NULL: in place, inside whole). */
static nrl_status check_shares(const nrl_comm *c, const nrl_comm_call *call, const nrl_tensor *whole,
                               const nrl_tensor *part, int64_t *count)
{
    if (!whole) return wrong(call, "the tensor for the shares of all ranks is missing");
    int64_t n = nrl_tensor_numel(whole);
    *count = call->counts ? call->counts[c->coord] : n / c->size;
    if (!call->counts && n != *count * c->size)
        return wrong(call, "the number of elements is not divisible by the number of ranks");
    for (int32_t r = 0; call->counts && r < c->size; r++) {
        int64_t begin = share_begin(call, *count, r);
        if (call->counts[r] < 0 || begin < 0 || begin > n || call->counts[r] > n - begin)
            return wrong(call, "the share of a rank is outside the tensor of all shares");
    }
    if (part && nrl_tensor_numel(part) != *count)
        return wrong(call, "the share of this rank and its tensor have different numbers of elements");
    return NRL_OK;
}

/* ---- staging ---- */

static nrl_status take_staged(nrl_mesh *m, size_t size, mesh_staged **out)
{
    mesh_staged *best = NULL;
    for (mesh_staged *s = m->staged; s; s = s->next) {
        if (s->used) continue;
        bool fits = s->size >= size, best_fits = best && best->size >= size;
        if (!best || (fits && (!best_fits || s->size < best->size)) || (!best_fits && !fits && s->size < best->size))
            best = s;
    }
    if (!best) {
        best = mem_alloc(sizeof *best);
        best->next = m->staged;
        m->staged = best;
    }
    if (best->size < size) {
        free(best->memory);
        best->size = 0;
        best->memory = mem_try(size, "an exchange of device memory");
        if (!best->memory) return NRL_ERR_MEMORY;
        best->size = size;
    }
    best->used = true;
    *out = best;
    return NRL_OK;
}

static size_t bytes_of(const nrl_tensor *t)
{
    return (size_t)nrl_tensor_numel(t) * nrl_dtype_size(nrl_tensor_dtype(t));
}

static void drop_staged(mesh_staged *s)
{
    if (s) s->used = false;
}

/* Copies a receive tensor to the host, too, because operations may leave parts of it unchanged. */
static nrl_status stage(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_comm_args *a, mesh_staged **send,
                        mesh_staged **receive)
{
    if (call->send) {
        NRL_TRY(take_staged(c->mesh, bytes_of(call->send), send));
        a->send = (*send)->memory;
        NRL_TRY(tensor_read(ctx, call->send, (*send)->memory));
    }
    if (!call->receive) return NRL_OK;
    NRL_TRY(take_staged(c->mesh, bytes_of(call->receive), receive));
    a->receive = (*receive)->memory;
    return tensor_read(ctx, call->receive, (*receive)->memory);
}

/* ---- calls ---- */

static nrl_status start(nrl_comm *c, nrl_ctx *ctx, mesh_op op, const nrl_comm_call *call, nrl_comm_args *a,
                        nrl_work **work)
{
    mesh_staged *send = NULL, *receive = NULL;
    if (c->mesh->planned && !c->mesh->table.wait) return NRL_OK;
    if (ctx && !c->mesh->table.host_only) a->stream = nrl_ctx_stream(ctx); /* the call follows the work queued there */
    nrl_status st = (c->mesh->table.host_only && ctx && !nrl_ctx_host_memory(ctx))
                        ? stage(c, ctx, call, a, &send, &receive)
                        : NRL_OK;
    /* in place: the share in the tensor of all shares */
    size_t element = nrl_dtype_size((nrl_dtype)a->dtype);
    size_t own = (size_t)share_begin(call, a->count, c->coord) * element;
    if (op == MESH_ALL_GATHER && !a->send) a->send = (const char *)a->receive + own;
    if (op == MESH_REDUCE_SCATTER && !a->receive) a->receive = (char *)(uintptr_t)a->send + own;
    if (op == MESH_ALL_REDUCE && !a->send) a->send = a->receive;
    if (!st) st = call_start(c, op, a, call->what, work);
    if (st) {
        drop_staged(send);
        drop_staged(receive);
        return st;
    }
    bool in_send = op == MESH_REDUCE_SCATTER && !call->receive && send; /* the result lies there */
    (*work)->staged_send = in_send ? NULL : send;
    (*work)->staged_receive = in_send ? send : receive;
    (*work)->receive = in_send ? call->send : receive ? call->receive : NULL;
    return NRL_OK;
}

/* On an axis of one rank a call is a copy. */
static nrl_status alone(nrl_ctx *ctx, const nrl_tensor *from, nrl_tensor *to)
{
    if (!from || !to || data_of(from) == data_of(to)) return NRL_OK;
    return nrl_tensor_copy(ctx, from, to);
}

nrl_status nrl_comm_all_reduce(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work)
{
    *work = NULL;
    NRL_TRY(check_tensors(call));
    if (!call->receive || (call->send && numel_of(call->send) != numel_of(call->receive)))
        return wrong(call, "all_reduce: expected two tensors of the same size, or one tensor for in-place use");
    if (c->size == 1) return alone(ctx, call->send, call->receive);
    nrl_comm_args a = operands(call, numel_of(call->receive));
    return start(c, ctx, MESH_ALL_REDUCE, call, &a, work);
}

static nrl_status check_root(const nrl_comm *c, const nrl_comm_call *call)
{
    if (call->peer >= 0 && call->peer < c->size) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "call '%s': rank %d of an axis of %d", call->what ? call->what : "", (int)call->peer,
                    (int)c->size);
}

nrl_status nrl_comm_broadcast(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work)
{
    *work = NULL;
    NRL_TRY(check_tensors(call));
    NRL_TRY(check_root(c, call));
    if (!call->receive || call->send)
        return wrong(call, "broadcast: expected only a tensor to receive, because it works in place");
    if (c->size == 1) return NRL_OK;
    nrl_comm_args a = operands(call, numel_of(call->receive));
    return start(c, ctx, MESH_BROADCAST, call, &a, work);
}

/* `whole`: the shares of all ranks; `part`: that of this rank. */
static nrl_status with_shares(nrl_comm *c, nrl_ctx *ctx, mesh_op op, const nrl_comm_call *call, const nrl_tensor *whole,
                              const nrl_tensor *part, nrl_work **work)
{
    int64_t count = 0;
    *work = NULL;
    NRL_TRY(check_tensors(call));
    NRL_TRY(check_shares(c, call, whole, part, &count));
    if (c->size == 1) return alone(ctx, call->send, call->receive);
    nrl_comm_args a = operands(call, count);
    return start(c, ctx, op, call, &a, work);
}

nrl_status nrl_comm_all_gather(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work)
{
    return with_shares(c, ctx, MESH_ALL_GATHER, call, call->receive, call->send, work);
}

nrl_status nrl_comm_reduce_scatter(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work)
{
    return with_shares(c, ctx, MESH_REDUCE_SCATTER, call, call->send, call->receive, work);
}

nrl_status nrl_comm_all_to_all(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work)
{
    *work = NULL;
    NRL_TRY(check_tensors(call));
    int64_t n = numel_of(call->send);
    bool even = !call->counts && n == numel_of(call->receive) && n % c->size == 0;
    const int64_t *receive_counts = call->size < sizeof *call ? NULL : call->receive_counts;
    if (!call->send || !call->receive || (!even && !(call->counts && receive_counts)))
        return wrong(call, "all_to_all: expected two tensors of the same size, divisible by the ranks, or both counts");
    if (c->size == 1) return alone(ctx, call->send, call->receive);
    nrl_comm_args a = operands(call, even ? n / c->size : 0);
    a.receive_counts = receive_counts;
    return start(c, ctx, MESH_ALL_TO_ALL, call, &a, work);
}

nrl_status mesh_all_to_all(nrl_mesh *m, nrl_ctx *ctx, const char *what, nrl_tensor *send, const int64_t *counts,
                           nrl_tensor *receive, const int64_t *receive_counts)
{
    nrl_work *work = NULL;
    nrl_comm *c = mesh_all(m);
    nrl_comm_call call = {.size = sizeof call,
                          .send = send,
                          .receive = receive,
                          .counts = counts,
                          .what = what,
                          .receive_counts = receive_counts};
    NRL_TRY(nrl_comm_all_to_all(c, ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status to_one(nrl_comm *c, nrl_ctx *ctx, mesh_op op, const nrl_comm_call *call, const nrl_tensor *t,
                         nrl_work **work)
{
    *work = NULL;
    NRL_TRY(check_tensors(call));
    NRL_TRY(check_root(c, call));
    if (!t || (call->send && call->receive) || call->peer == c->coord)
        return wrong(call, "send and recv: expected one tensor and the rank of another process");
    nrl_comm_args a = operands(call, numel_of(t));
    return start(c, ctx, op, call, &a, work);
}

nrl_status nrl_comm_send(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work)
{
    return to_one(c, ctx, MESH_SEND, call, call->send, work);
}

nrl_status nrl_comm_recv(nrl_comm *c, nrl_ctx *ctx, const nrl_comm_call *call, nrl_work **work)
{
    return to_one(c, ctx, MESH_RECV, call, call->receive, work);
}

nrl_status nrl_comm_barrier(nrl_comm *c, const char *what)
{
    nrl_work *w;
    if (c->size == 1) return NRL_OK;
    NRL_TRY(call_start(c, MESH_BARRIER, &(nrl_comm_args){.size = sizeof(nrl_comm_args)}, what, &w));
    nrl_status st = call_wait(w);
    call_release(w);
    return st;
}

/* ---- tensors for calls ---- */

nrl_status nrl_comm_tensor(nrl_comm *c, nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool zero, nrl_tensor **out)
{
    const nrl_collective *t = &c->mesh->table;
    void *memory = NULL;
    if (c->size > 1 && n > 0 && t->alloc && !c->mesh->dead)
        NRL_TRY(t->alloc(c->group, (size_t)n * nrl_dtype_size(dtype), &memory));
    if (!memory) return nrl_tensor_persistent(ctx, dtype, n, zero, out);
    *out = tensor_borrowed(ctx, dtype, n, memory, true);
    nrl_status st = zero ? nrl_tensor_fill(ctx, *out, 0) : NRL_OK;
    if (st) tensor_release(ctx, *out);
    return st;
}

bool mesh_receives_early(const nrl_comm *c)
{
    return !c->mesh->table.by_order || c->mesh->table.host_only;
}

/* ---- work ---- */

/* Waits for fenced work before it waits for the device of the context. */
static nrl_status settle(void *mesh)
{
    return call_settle(mesh);
}

nrl_status nrl_work_wait(nrl_work **work, nrl_ctx *ctx)
{
    nrl_work *w = *work;
    *work = NULL;
    if (!w) return NRL_OK;
    const nrl_collective *t = &w->comm->mesh->table;
    nrl_stream *stream = ctx && !t->host_only && t->fence ? nrl_ctx_stream(ctx) : NULL;
    if (stream) {
        ctx_before_read(ctx, settle, w->comm->mesh);
        return call_fence(w, stream);
    }
    nrl_status st = call_wait(w);
    if (!st && w->receive) st = tensor_write(ctx, w->receive, w->staged_receive->memory);
    call_release(w);
    return st;
}

bool nrl_work_done(nrl_work *work)
{
    bool done = false;
    if (!work || work->comm->mesh->dead) return true;
    return work->comm->mesh->table.wait(work->comm->group, work->request, 0, &done) || done;
}
