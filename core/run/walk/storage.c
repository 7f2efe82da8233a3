/*
 * storage.c - slots of parameters on this rank: allocation by layout, loading, reading.
 */
#include "run/walk/gradients.h"
#include "run/walk/storage.h"
#include "tensor/packed.h"
#include "tensor/split16.h"
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 1 << 20,    /* f32 elements moved at a time */
    ALIGN_ELEMENTS = 32 /* 64 bytes of bf16 */
};

/* Parameters begin at multiples of 64 bytes of the narrowest dtype inside a slot's buffer. */
static int64_t room_of(int64_t n)
{
    return (n + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

static void keep(storage *s, nrl_tensor *t)
{
    s->tensors = mem_realloc(s->tensors, (s->n + 1) * sizeof *s->tensors);
    s->tensors[s->n++] = t;
}

/* Elements that storage_bind allocates for a slot of p: 0 if it is bound, or if no element is on this rank. */
typedef int64_t (*slot_room)(const storage_spec *spec, const nrl_param *p, nrl_slot slot);

static bool is_held(const storage_spec *spec, const nrl_param *p)
{
    return !p->packing && layout_is_held(spec->mesh, spec->mesh ? nrl_mesh_rank(spec->mesh) : 0, p);
}

static int64_t room_whole(const storage_spec *spec, const nrl_param *p, nrl_slot slot)
{
    return nrl_param_tensor(p, slot) || !is_held(spec, p) ? 0 : p->numel;
}

static int64_t room_local(const storage_spec *spec, const nrl_param *p, nrl_slot slot)
{
    return nrl_param_tensor(p, slot) || !p->trained ? 0 : layout_local_numel(spec->mesh, p);
}

static int64_t room_gradient(const storage_spec *spec, const nrl_param *p, nrl_slot slot)
{
    return p->trained ? room_whole(spec, p, slot) : 0;
}

/* Allocates one buffer for a slot of all parameters, with a flat view of it for each: separate buffers would round
 * every matrix up to whole huge pages. Vectors follow all matrices, so that biases do not separate matrices that
 * nrl_op_linears can join. */
static nrl_status bind_slot(nrl_ctx *ctx, model *m, const storage_spec *spec, nrl_slot slot, nrl_dtype dtype,
                            slot_room room, bool zero, storage *s)
{
    int64_t total = 0, at = 0;
    nrl_tensor *buffer, *view;
    for (int32_t i = 0; i < m->n_params; i++)
        total += room_of(room(spec, m->params[i], slot));
    if (!total) return NRL_OK;
    bool in_update = slot == NRL_SLOT_MASTER || (slot >= NRL_SLOT_STATE0 && slot != NRL_SLOT_HI16); /* alone */
    NRL_TRY(in_update ? tensor_offloaded(ctx, dtype, total, zero, &buffer)
                      : tensor_persistent(ctx, dtype, 1, &total, zero, &buffer));
    keep(s, buffer);
    for (int32_t i = 0; i < 2 * m->n_params; i++) {
        nrl_param *p = m->params[i % m->n_params];
        int64_t n = (p->n_dims > 1) == (i < m->n_params) ? room(spec, p, slot) : 0;
        if (!n) continue;
        NRL_TRY(tensor_flat_view(ctx, buffer, at, n, &view));
        keep(s, view);
        nrl_param_bind(p, slot, view);
        at += room_of(n);
    }
    return NRL_OK;
}

static bool is_whole(const storage_spec *spec, const nrl_param *p)
{
    return layout_is_work(spec->mesh, p);
}

static nrl_dtype gradient_dtype(const storage_spec *spec)
{
    return spec->bf16_gradients ? NRL_DTYPE_BF16 : NRL_DTYPE_F32;
}

static nrl_status bind_trained(nrl_ctx *ctx, model *m, const storage_spec *spec, storage *s)
{
    const nrl_dtype f32 = NRL_DTYPE_F32;
    if (!spec->reduces_grads && !spec->bf16_gradients)
        NRL_TRY(bind_slot(ctx, m, spec, NRL_SLOT_GRAD, f32, room_gradient, false, s));
    /* Binds GRAD_SHARD to GRAD, and MASTER (or HI16) to WEIGHT, if these hold the same elements in the same type. */
    for (int32_t i = 0; i < m->n_params; i++) {
        nrl_param *p = m->params[i];
        nrl_tensor *work = nrl_param_tensor(p, NRL_SLOT_WEIGHT), *acc = nrl_param_tensor(p, NRL_SLOT_GRAD);
        if (!p->trained || !is_whole(spec, p)) continue;
        if (!nrl_param_tensor(p, NRL_SLOT_GRAD_SHARD) && acc) nrl_param_bind(p, NRL_SLOT_GRAD_SHARD, acc);
        if (!nrl_param_tensor(p, NRL_SLOT_MASTER) && work && spec->compute == NRL_DTYPE_F32)
            nrl_param_bind(p, NRL_SLOT_MASTER, work);
        if (!nrl_param_tensor(p, NRL_SLOT_HI16) && work && spec->split16) nrl_param_bind(p, NRL_SLOT_HI16, work);
    }
    NRL_TRY(bind_slot(ctx, m, spec, NRL_SLOT_GRAD_SHARD, gradient_dtype(spec), room_local, false, s));
    if (spec->split16) { /* HI16 of undivided parameters is WEIGHT already */
        NRL_TRY(bind_slot(ctx, m, spec, NRL_SLOT_HI16, NRL_DTYPE_BF16, room_local, false, s));
        NRL_TRY(bind_slot(ctx, m, spec, NRL_SLOT_LO16, NRL_DTYPE_U16, room_local, false, s));
    } else
        NRL_TRY(bind_slot(ctx, m, spec, NRL_SLOT_MASTER, f32, room_local, false, s));
    for (uint32_t k = 0; k < spec->n_states; k++)
        NRL_TRY(bind_slot(ctx, m, spec, (nrl_slot)(NRL_SLOT_STATE0 + k), f32, room_local, true, s));
    for (int32_t i = 0; i < m->n_params; i++)
        nrl_param_set_grad_is_empty(m->params[i], m->params[i]->trained);
    return NRL_OK;
}

nrl_status storage_bind(nrl_ctx *ctx, model *m, const storage_spec *spec, storage *out)
{
    nrl_status st = NRL_OK;
    storage_plan(m, spec, out);
    if (!spec->gathers_weights) st = bind_slot(ctx, m, spec, NRL_SLOT_WEIGHT, spec->compute, room_whole, false, out);
    if (st == NRL_OK && spec->train) st = bind_trained(ctx, m, spec, out);
    if (st != NRL_OK) nrl_add_context("memory of '%s'", m->type);
    return st;
}

/* The bytes of MASTER, unless it is WEIGHT or (divided, f32) a range of it, and of HI16 of split16. */
static int64_t master_bytes(const storage_spec *spec, int64_t local)
{
    int64_t half = (int64_t)nrl_dtype_size(NRL_DTYPE_BF16);
    if (spec->split16) return local * (spec->gathers_weights ? 2 * half : half);
    return spec->compute == NRL_DTYPE_F32 && !spec->gathers_weights ? 0 : local * (int64_t)sizeof(float);
}

/* The bytes of GRAD and, if it is another tensor, GRAD_SHARD; with bf16 gradients of GRAD_SHARD alone. */
static int64_t gradient_bytes(const storage_spec *spec, const nrl_param *p, int64_t local)
{
    bool alone = spec->reduces_grads || spec->bf16_gradients;
    int64_t n = alone ? local : p->numel + (is_whole(spec, p) ? 0 : local);
    return n * (int64_t)nrl_dtype_size(gradient_dtype(spec));
}

bool storage_buffers_gradients(const storage_spec *spec)
{
    return spec->train && spec->bf16_gradients && !spec->reduces_grads;
}

void storage_plan(const model *m, const storage_spec *spec, storage *out)
{
    const int64_t full = (int64_t)sizeof(float), width = (int64_t)nrl_dtype_size(spec->compute);
    out->work_bytes = out->master_bytes = out->state_bytes = 0;
    out->buffer_bytes = storage_buffers_gradients(spec) ? gradients_bytes(m) : 0;
    out->gradient_bytes = out->buffer_bytes;
    for (int32_t i = 0; i < m->n_params; i++) {
        const nrl_param *p = m->params[i];
        int64_t local = layout_local_numel(spec->mesh, p);
        if (!is_held(spec, p)) continue;
        if (!spec->gathers_weights) out->work_bytes += p->numel * width;
        if (!spec->train || !p->trained) {
            if (spec->gathers_weights) out->work_bytes += local * width;
            continue;
        }
        out->gradient_bytes += gradient_bytes(spec, p, local);
        out->master_bytes += master_bytes(spec, local);
        out->state_bytes += spec->n_states * local * full;
    }
}

void storage_free(nrl_ctx *ctx, model *m, storage *s)
{
    for (int32_t i = 0; m && i < m->n_params; i++)
        for (int slot = NRL_SLOT_WEIGHT; slot < NRL_SLOT_COUNT; slot++)
            nrl_param_bind(m->params[i], (nrl_slot)slot, NULL);
    for (size_t i = 0; i < s->n; i++)
        tensor_release(ctx, s->tensors[i]);
    free(s->tensors);
    *s = (storage){0};
}

/* Iterates over the ranges of a parameter that a rank holds: elements [begin, begin + n) of the whole parameter are at
 * `local` of its slot there. `work`: of WEIGHT as operations see it, without flat placements. */
typedef struct {
    const nrl_mesh *mesh;
    int32_t rank;
    const nrl_param *p;
    bool work;
    int64_t local, begin, n; /* the range */
    int part, box;
    int64_t at, local_before, before; /* elements of the box, of the slot and of the parameter before the next range */
} held_range;

static bool held_range_next(held_range *r)
{
    for (; r->part < r->p->n_parts; r->part++, r->box = 0) {
        const nrl_part *part = &r->p->parts[r->part];
        for (; r->box < layout_n_boxes(part); r->box++) {
            layout_shard shard = r->work ? layout_box_of(r->mesh, r->rank, part, r->box)
                                         : layout_shard_of(r->mesh, r->rank, part, r->box);
            r->local = r->local_before + r->at;
            if (piece_next(&shard, &r->at, &r->begin, &r->n)) {
                r->begin += r->before;
                return true;
            }
            r->local_before += piece_numel(&shard);
            r->at = 0;
        }
        r->before += part_numel(part);
    }
    return false;
}

/* Returns how many elements of [begin, begin + n) are in the range, from *low on. */
static int64_t held_range_overlap(const held_range *r, int64_t begin, int64_t n, int64_t *low)
{
    int64_t high = begin + n < r->begin + r->n ? begin + n : r->begin + r->n;
    *low = begin > r->begin ? begin : r->begin;
    return *low < high ? high - *low : 0;
}

/* Fills the store p of a quantized weight. The source is asked for p, and gives the values of the weight, all of them
 * on every rank: what a code stands for depends on the whole matrix. */
static nrl_status load_packed(nrl_ctx *ctx, const nrl_param *p, held_range here, weights_source source, void *user)
{
    const nrl_param *w = p->packs;
    const quantized_layout at = param_packed_layout(w);
    nrl_tensor *store = param_exact(p), *view;
    quantized_matrix v;
    if (!store) return NRL_OK;
    char *bytes = mem_try((size_t)at.bytes, p->name);
    if (!bytes) return NRL_ERR_MEMORY;
    nrl_status st = quantized_read(w->packing->kind, w->whole, w->parts[0].dims[1], source, user, p, &v);
    if (st == NRL_OK) quantized_store(&v, &at, bytes);
    for (held_range r = {.mesh = here.mesh, .rank = here.rank, .p = w, .work = true};
         st == NRL_OK && held_range_next(&r);)
        quantized_store_range(&v, &at, r.local, r.begin, r.n, bytes);
    while (st == NRL_OK && held_range_next(&here)) {
        st = tensor_flat_view(ctx, store, here.local, here.n, &view);
        if (st != NRL_OK) break;
        st = tensor_write(ctx, view, bytes + here.begin * (int64_t)nrl_dtype_size(nrl_tensor_dtype(store)));
        tensor_release(ctx, view);
    }
    quantized_free(&v);
    free(bytes);
    return st;
}

nrl_status storage_load(nrl_ctx *ctx, model *m, const nrl_mesh *mesh, weights_source source, void *user)
{
    int64_t room = 1;
    for (int32_t i = 0; i < m->n_params; i++)
        if (m->params[i]->numel > room) room = m->params[i]->numel;
    if (room > CHUNK) room = CHUNK;
    float *buffer = mem_try((size_t)room * sizeof *buffer, "weights that are loaded");
    nrl_status st = buffer ? NRL_OK : NRL_ERR_MEMORY;
    for (int32_t i = 0; i < m->n_params && st == NRL_OK; i++) {
        nrl_param *p = m->params[i];
        held_range r = {.mesh = mesh, .rank = mesh ? nrl_mesh_rank(mesh) : 0, .p = p};
        r.work = param_exact_numel(p) != layout_local_numel(mesh, p);
        if (p->packs) st = load_packed(ctx, p, r, source, user);
        while (!p->packs && param_exact(p) && st == NRL_OK && held_range_next(&r))
            for (int64_t done = 0; done < r.n && st == NRL_OK; done += CHUNK) {
                int64_t part = r.n - done < CHUNK ? r.n - done : CHUNK;
                st = source(user, p, r.begin + done, part, buffer);
                if (st == NRL_OK) st = param_exact_copy(ctx, p, r.local + done, part, NULL, buffer);
            }
        if (st == NRL_OK) st = param_refresh(ctx, p);
    }
    free(buffer);
    return st;
}

/* Sends what rank `rank` holds of [begin, begin + n) to all ranks at once, packed there. *got counts elements. */
static nrl_status gather_from(const storage_view *v, const nrl_param *p, int32_t rank, int64_t begin, int64_t n,
                              float *pack, float *out, int64_t *got)
{
    int64_t packed = 0, low, k;
    bool mine = rank == nrl_mesh_rank(v->mesh);
    for (held_range r = {.mesh = v->mesh, .rank = rank, .p = p}; held_range_next(&r); packed += k) {
        k = held_range_overlap(&r, begin, n, &low);
        if (k && mine) NRL_TRY(param_exact_copy(v->ctx, p, r.local + low - r.begin, k, pack + packed, NULL));
    }
    if (!packed) return NRL_OK;
    NRL_TRY(mesh_broadcast(v->mesh, p->name, rank, pack, (size_t)packed * sizeof *pack));
    *got += packed;
    for (held_range r = {.mesh = v->mesh, .rank = rank, .p = p}; held_range_next(&r); pack += k) {
        k = held_range_overlap(&r, begin, n, &low);
        if (k) memcpy(out + (low - begin), pack, (size_t)k * sizeof *pack);
    }
    return NRL_OK;
}

nrl_status storage_gather(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    const storage_view *v = user;
    int64_t got = 0;
    if (p->packing) return v->packed(v->packed_user, p, begin, n, out);
    if (!v->mesh || layout_is_everywhere(v->mesh, p)) return param_exact_copy(v->ctx, p, begin, n, out, NULL);
    float *pack = mem_try((size_t)n * sizeof *pack, p->name);
    nrl_status st = pack ? NRL_OK : NRL_ERR_MEMORY;
    for (int32_t r = 0; r < nrl_mesh_world(v->mesh) && got < n && st == NRL_OK; r++)
        if (layout_owner(v->mesh, r, p) == r) st = gather_from(v, p, r, begin, n, pack, out, &got);
    free(pack);
    NRL_TRY(st);
    NRL_ASSERT(got, ==, n);
    return NRL_OK;
}
