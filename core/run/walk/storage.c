/*
 * storage.c - slots of parameters on this rank: allocation by layout, loading, reading.
 */
#include "run/walk/gradients.h"
#include "run/walk/storage.h"
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

/* Elements that storage_bind allocates for a slot of p: 0 where it is bound, or nothing lies here. */
typedef int64_t (*slot_room)(const storage_spec *spec, const nrl_param *p, nrl_slot slot);

static bool is_held(const storage_spec *spec, const nrl_param *p)
{
    return layout_is_held(spec->mesh, spec->mesh ? nrl_mesh_rank(spec->mesh) : 0, p);
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

/* One buffer for a slot of all parameters, and a flat view of it a parameter: a buffer each would round
 * every matrix up to whole huge pages. */
static nrl_status bind_slot(nrl_ctx *ctx, model *m, const storage_spec *spec, nrl_slot slot, nrl_dtype dtype,
                            slot_room room, bool zero, storage *s)
{
    int64_t total = 0, at = 0;
    nrl_tensor *buffer, *view;
    for (int32_t i = 0; i < m->n_params; i++)
        total += room_of(room(spec, m->params[i], slot));
    if (!total) return NRL_OK;
    NRL_TRY(tensor_persistent(ctx, dtype, 1, &total, zero, &buffer));
    keep(s, buffer);
    for (int32_t i = 0; i < m->n_params; i++) {
        nrl_param *p = m->params[i];
        int64_t n = room(spec, p, slot);
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

/* GRAD_SHARD is GRAD, and MASTER (or HI16) is WEIGHT, where these hold the same elements in the same type. */
static void bind_aliases(const storage_spec *spec, nrl_param *p)
{
    nrl_tensor *work = nrl_param_tensor(p, NRL_SLOT_WEIGHT), *acc = nrl_param_tensor(p, NRL_SLOT_GRAD);
    if (!p->trained || !is_whole(spec, p)) return;
    if (!nrl_param_tensor(p, NRL_SLOT_GRAD_SHARD) && acc) nrl_param_bind(p, NRL_SLOT_GRAD_SHARD, acc);
    if (!nrl_param_tensor(p, NRL_SLOT_MASTER) && work && spec->compute == NRL_DTYPE_F32)
        nrl_param_bind(p, NRL_SLOT_MASTER, work);
    if (!nrl_param_tensor(p, NRL_SLOT_HI16) && work && spec->split16) nrl_param_bind(p, NRL_SLOT_HI16, work);
}

/* Of what is whole HI16 is WEIGHT already. */
static nrl_status bind_halves(nrl_ctx *ctx, model *m, const storage_spec *spec, storage *s)
{
    NRL_TRY(bind_slot(ctx, m, spec, NRL_SLOT_HI16, NRL_DTYPE_BF16, room_local, false, s));
    return bind_slot(ctx, m, spec, NRL_SLOT_LO16, NRL_DTYPE_U16, room_local, false, s);
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
    for (int32_t i = 0; i < m->n_params; i++)
        bind_aliases(spec, m->params[i]);
    NRL_TRY(bind_slot(ctx, m, spec, NRL_SLOT_GRAD_SHARD, gradient_dtype(spec), room_local, false, s));
    if (spec->split16)
        NRL_TRY(bind_halves(ctx, m, spec, s));
    else
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

/* MASTER is a place of its own unless it is WEIGHT, or (cut, f32) a range of it; so is HI16 of split16. */
static int64_t master_bytes(const storage_spec *spec, int64_t local)
{
    int64_t half = (int64_t)nrl_dtype_size(NRL_DTYPE_BF16);
    if (spec->split16) return local * (spec->gathers_weights ? 2 * half : half);
    return spec->compute == NRL_DTYPE_F32 && !spec->gathers_weights ? 0 : local * (int64_t)sizeof(float);
}

/* GRAD and, where that is not the same, GRAD_SHARD; of bf16 ones GRAD_SHARD alone. */
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

/* Elements [begin, begin + n) of p, which lie at `local` of its exact slot. */
static nrl_status load_stretch(nrl_ctx *ctx, nrl_param *p, int64_t local, int64_t begin, int64_t n,
                               weights_source source, void *user, float *buffer)
{
    for (int64_t done = 0; done < n; done += CHUNK) {
        int64_t part = n - done < CHUNK ? n - done : CHUNK;
        NRL_TRY(source(user, p, begin + done, part, buffer));
        NRL_TRY(param_exact_write(ctx, p, local + done, part, buffer));
    }
    return NRL_OK;
}

/* Calls `use` for each range of a parameter that rank `rank` holds: elements [begin, begin + n) of the whole lie
 * at `local` of its slot there. `work`: of all that operations see, whatever flat placements there are. */
typedef nrl_status (*stretch_use)(void *user, int64_t local, int64_t begin, int64_t n);

static nrl_status each_stretch(const nrl_mesh *mesh, int32_t rank, const nrl_param *p, bool work, stretch_use use,
                               void *user)
{
    int64_t local = 0, before = 0;
    for (int i = 0; i < p->n_parts; i++) {
        const nrl_part *part = &p->parts[i];
        int64_t numel = 1;
        for (int k = 0; k < layout_n_boxes(part); k++) {
            layout_shard piece = work ? layout_box_of(mesh, rank, part, k) : layout_shard_of(mesh, rank, part, k);
            int64_t at = 0, begin, n;
            for (int64_t from = 0; layout_next(&piece, &at, &begin, &n); from = at)
                NRL_TRY(use(user, local + from, before + begin, n));
            local += layout_numel(&piece);
        }
        for (int d = 0; d < part->n_dims; d++)
            numel *= part->dims[d];
        before += numel;
    }
    return NRL_OK;
}

typedef struct {
    nrl_ctx *ctx;
    nrl_param *p;
    weights_source source;
    void *user;
    float *buffer;
} loading;

static nrl_status load_one(void *user, int64_t local, int64_t begin, int64_t n)
{
    const loading *l = user;
    return load_stretch(l->ctx, l->p, local, begin, n, l->source, l->user, l->buffer);
}

static nrl_status load_param(nrl_ctx *ctx, nrl_param *p, const nrl_mesh *mesh, weights_source source, void *user,
                             float *buffer)
{
    loading l = {ctx, p, source, user, buffer};
    bool work = param_exact_numel(p) != layout_local_numel(mesh, p);
    return each_stretch(mesh, mesh ? nrl_mesh_rank(mesh) : 0, p, work, load_one, &l);
}

static int64_t largest(const model *m)
{
    int64_t n = 1;
    for (int32_t i = 0; i < m->n_params; i++)
        if (m->params[i]->numel > n) n = m->params[i]->numel;
    return n < CHUNK ? n : CHUNK;
}

nrl_status storage_load(nrl_ctx *ctx, model *m, const nrl_mesh *mesh, weights_source source, void *user)
{
    float *buffer = mem_try((size_t)largest(m) * sizeof *buffer, "weights that are loaded");
    nrl_status st = buffer ? NRL_OK : NRL_ERR_MEMORY;
    for (int32_t i = 0; i < m->n_params && st == NRL_OK; i++) {
        nrl_param *p = m->params[i];
        if (param_exact(p)) st = load_param(ctx, p, mesh, source, user, buffer);
        if (st == NRL_OK) st = param_refresh(ctx, p);
    }
    free(buffer);
    return st;
}

nrl_status storage_source(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    return param_exact_read(user, p, begin, n, out);
}

/* Stretches of [begin, begin + n) that one rank holds, in the order of its memory. */
typedef struct {
    const storage_view *view;
    const nrl_param *p;
    int64_t begin, n, packed; /* elements in `pack` so far */
    float *pack, *out;        /* out NULL: from the slot to pack; else from pack to out */
} gathering;

static nrl_status gather_one(void *user, int64_t local, int64_t begin, int64_t n)
{
    gathering *g = user;
    int64_t low = begin > g->begin ? begin : g->begin;
    int64_t high = begin + n < g->begin + g->n ? begin + n : g->begin + g->n;
    if (low >= high) return NRL_OK;
    float *pack = g->pack + g->packed;
    g->packed += high - low;
    if (g->out) {
        memcpy(g->out + (low - g->begin), pack, (size_t)(high - low) * sizeof *pack);
        return NRL_OK;
    }
    return param_exact_read(g->view->ctx, g->p, local + low - begin, high - low, pack);
}

static nrl_status count_one(void *user, int64_t local, int64_t begin, int64_t n)
{
    gathering *g = user;
    int64_t low = begin > g->begin ? begin : g->begin;
    int64_t high = begin + n < g->begin + g->n ? begin + n : g->begin + g->n;
    (void)local;
    if (low < high) g->packed += high - low;
    return NRL_OK;
}

/* What rank `rank` holds of [begin, begin + n): read there, sent to all at once. *got counts elements. */
static nrl_status gather_from(const storage_view *v, const nrl_param *p, int32_t rank, int64_t begin, int64_t n,
                              float *pack, float *out, int64_t *got)
{
    gathering g = {.view = v, .p = p, .begin = begin, .n = n, .pack = pack};
    bool mine = rank == nrl_mesh_rank(v->mesh);
    NRL_TRY(each_stretch(v->mesh, rank, p, false, mine ? gather_one : count_one, &g));
    if (!g.packed) return NRL_OK;
    NRL_TRY(mesh_broadcast(v->mesh, p->name, rank, pack, (size_t)g.packed * sizeof *pack));
    *got += g.packed;
    g.packed = 0;
    g.out = out;
    return each_stretch(v->mesh, rank, p, false, gather_one, &g);
}

nrl_status storage_gather(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    const storage_view *v = user;
    int64_t got = 0;
    if (!v->mesh || layout_is_everywhere(v->mesh, p)) return param_exact_read(v->ctx, p, begin, n, out);
    float *pack = mem_try((size_t)n * sizeof *pack, p->name);
    nrl_status st = pack ? NRL_OK : NRL_ERR_MEMORY;
    for (int32_t r = 0; r < nrl_mesh_world(v->mesh) && got < n && st == NRL_OK; r++)
        if (layout_owner(v->mesh, r, p) == r) st = gather_from(v, p, r, begin, n, pack, out, &got);
    free(pack);
    NRL_TRY(st);
    NRL_ASSERT(got, ==, n);
    return NRL_OK;
}

nrl_status storage_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    const storage_origin *o = user;
    if (o->weights) return weights_read(o->weights, o->m, p, begin, n, out);
    model_init_values(p, o->seed, begin, n, out);
    return NRL_OK;
}
