/*
 * toy.h - a strategy under test on a model without arithmetic: actions check every element of
 * WEIGHT and write known gradients, so that the results can be compared exactly.
 *
 * Values and gradients are multiples of 1/8 that are small enough for all sums to be exact, in f32
 * and in bf16; toy_sum computes the expected result on one rank. Odd sizes, a tied table, a fused
 * parameter of three parts, a frozen one, one that no unit uses, and a unit without parameters.
 */
#ifndef FSDP_TOY_H
#define FSDP_TOY_H
#include "mesh/layout.h"
#include "support/backend.h"
#include "support/local_ranks.h"
#include <math.h>
#include <nrl/optimizer.h>
#include <nrl/parallel.h>

enum { TOY_PARAMS = 11, TOY_UNITS = 7, TOY_MAX_NUMEL = 200, TOY_MAX_MICRO = 4, TOY_STEPS = 3 };
enum { TOY_EMBED = 0, TOY_FUSED = 2, TOY_FROZEN = 8 };

typedef struct {
    const nrl_parallel *table;
    const void *options;
    nrl_dtype compute;
    bool freeze;           /* parameter TOY_FROZEN */
    bool reference;        /* a model that is not trained */
    bool recompute;        /* every second unit */
    bool empty;            /* some micro-batches of some ranks have no samples */
    bool evaluate;         /* a forward pass between steps */
    bool no_backward_last; /* the last unit's norm never gets a gradient */
    bool unmarked;         /* no action says that a gradient is final */
    int32_t n_micro_batches;
    int32_t world;
} toy_case;

typedef struct {
    const toy_case *c;
    nrl_mesh *mesh;
    int32_t rank;
    device device;
    nrl_ctx *ctx;
    void *self;
    nrl_parallel_plan plan;
    nrl_param params[TOY_PARAMS], *list[TOY_PARAMS];
    nrl_part parts[TOY_PARAMS], fused[3];
    nrl_unit_uses units[TOY_UNITS];
    nrl_action actions[3 * TOY_UNITS * TOY_MAX_MICRO], forward[TOY_UNITS];
    nrl_param *final[TOY_UNITS][4];
    int64_t n_actions;
    nrl_tensor *own[4 * TOY_PARAMS]; /* what the strategy left to the core */
    int n_own;
    int64_t described;                       /* bytes of slots that layouts tell */
    float master[TOY_PARAMS][TOY_MAX_NUMEL]; /* what is expected */
} toy;

static const int64_t toy_dims[TOY_PARAMS][2] = {{7, 5},  {3, 0}, {9, 4},  {65, 0}, {1, 0}, {11, 13},
                                                {33, 0}, {5, 0}, {17, 0}, {64, 2}, {6, 4}};
static const char *const toy_unit_names[TOY_UNITS] = {"embed", "one", "two", "nothing", "three", "four", "last"};
static const int toy_uses[TOY_UNITS][4] = {{0, -1}, {1, 2, 3, -1}, {4, 5, -1}, {-1}, {6, 8, -1}, {9, -1}, {7, 0, -1}};

static inline float toy_bf16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline float toy_initial(int p, int64_t e)
{
    return (float)((p * 37 + e * 11) % 97 - 48) / 8;
}

static inline float toy_gradient(int step, int rank, int micro_batch, int unit, int p, int64_t e)
{
    return (float)((step * 17 + rank * 7 + micro_batch * 3 + unit * 5 + p * 11 + e * 13) % 16 - 8) / 8;
}

static inline bool toy_is_empty(const toy_case *c, int rank, int micro_batch)
{
    return c->empty && (rank + micro_batch) % 3 == 2;
}

static inline bool toy_is_used(int unit, int p)
{
    for (int i = 0; toy_uses[unit][i] >= 0; i++)
        if (toy_uses[unit][i] == p) return true;
    return false;
}

static inline bool toy_has_gradient(const toy_case *c, int p)
{
    return !(c->no_backward_last && p == 7);
}

/* The gradient of the global batch; the last unit adds to it in its forward action too, as a head does. */
static inline float toy_sum(const toy_case *c, int step, int p, int64_t e)
{
    float sum = 0;
    for (int r = 0; r < c->world; r++)
        for (int m = 0; m < c->n_micro_batches; m++)
            for (int u = 0; u < TOY_UNITS; u++)
                if (toy_is_used(u, p) && !toy_is_empty(c, r, m) && toy_has_gradient(c, p))
                    sum += toy_gradient(step, r, m, u, p, e) * (u == TOY_UNITS - 1 ? 2 : 1);
    return sum;
}

/* ---- making the model ---- */

static inline int toy_first_unit(int p)
{
    for (int u = 0; u < TOY_UNITS; u++)
        if (toy_is_used(u, p)) return u;
    return -1;
}

static inline void toy_params(toy *t)
{
    static const char *const part_names[] = {"q", "k", "v"};
    for (int p = 0; p < TOY_PARAMS; p++) {
        param_init(&t->params[p], &t->parts[p], "p", toy_dims[p][1] ? 2 : 1, toy_dims[p]);
        t->list[p] = &t->params[p];
        for (int64_t e = 0; e < t->params[p].numel; e++)
            t->master[p][e] = toy_initial(p, e);
    }
    for (int i = 0; i < 3; i++)
        t->fused[i] = (nrl_part){.name = part_names[i], .n_dims = 2, .dims = {3, 4}};
    t->params[TOY_FUSED].parts = t->fused;
    t->params[TOY_FUSED].n_parts = 3;
    t->params[TOY_FROZEN].trained = !t->c->freeze;
}

static inline void toy_push(toy *t, nrl_pass pass, int unit, int micro_batch)
{
    nrl_action *v = &t->actions[t->n_actions++];
    *v = (nrl_action){.size = sizeof(nrl_action),
                      .pass = pass,
                      .unit = unit,
                      .micro_batch = micro_batch,
                      .n_uses = t->units[unit].n_uses,
                      .uses = t->units[unit].uses};
    if (pass != NRL_PASS_BACKWARD || micro_batch != t->c->n_micro_batches - 1 || t->c->unmarked) return;
    for (int32_t i = 0; i < v->n_uses; i++) {
        int p = (int)(v->uses[i] - t->params);
        if (toy_first_unit(p) == unit && v->uses[i]->trained) t->final[unit][v->n_final++] = v->uses[i];
    }
    v->final = t->final[unit];
}

static inline void toy_schedule(toy *t, nrl_param *uses[TOY_UNITS][4])
{
    for (int u = 0; u < TOY_UNITS; u++) {
        int32_t n = 0;
        for (; toy_uses[u][n] >= 0; n++)
            uses[u][n] = &t->params[toy_uses[u][n]];
        t->units[u] = (nrl_unit_uses){.name = toy_unit_names[u], .n_uses = n, .uses = uses[u]};
        t->forward[u] = (nrl_action){.size = sizeof(nrl_action),
                                     .pass = NRL_PASS_FORWARD,
                                     .unit = u,
                                     .n_actions = TOY_UNITS,
                                     .n_uses = n,
                                     .uses = uses[u]};
    }
    for (int m = 0; m < t->c->n_micro_batches; m++) {
        for (int u = 0; u < TOY_UNITS; u++)
            toy_push(t, NRL_PASS_FORWARD, u, m);
        for (int u = TOY_UNITS - 1; u >= 0; u--) {
            if (t->c->recompute && u % 2) toy_push(t, NRL_PASS_RECOMPUTE, u, m);
            toy_push(t, NRL_PASS_BACKWARD, u, m);
        }
    }
    for (int64_t i = 0; i < t->n_actions; i++)
        t->actions[i].n_actions = (int32_t)t->n_actions;
}

/* ---- what the core binds, loads and counts ---- */

static inline nrl_status toy_own(toy *t, nrl_param *p, nrl_slot slot, nrl_dtype dtype, int64_t n)
{
    if (nrl_param_tensor(p, slot)) return NRL_OK;
    NRL_TRY(nrl_tensor_persistent(t->ctx, dtype, n, false, &t->own[t->n_own]));
    nrl_param_bind(p, slot, t->own[t->n_own++]);
    return NRL_OK;
}

static inline nrl_status toy_bind_rest(toy *t)
{
    bool f32 = t->c->compute == NRL_DTYPE_F32;
    for (int i = 0; i < TOY_PARAMS; i++) {
        nrl_param *p = &t->params[i];
        if (!t->plan.gathers_weights) NRL_TRY(toy_own(t, p, NRL_SLOT_WEIGHT, t->c->compute, p->numel));
        if (!t->plan.train || !p->trained) continue;
        if (f32 && !nrl_param_tensor(p, NRL_SLOT_MASTER))
            nrl_param_bind(p, NRL_SLOT_MASTER, nrl_param_tensor(p, NRL_SLOT_WEIGHT));
        NRL_TRY(toy_own(t, p, NRL_SLOT_MASTER, NRL_DTYPE_F32, p->numel));
        if (!t->plan.reduces_grads) NRL_TRY(toy_own(t, p, NRL_SLOT_GRAD, NRL_DTYPE_F32, p->numel));
        if (!nrl_param_tensor(p, NRL_SLOT_GRAD_SHARD))
            nrl_param_bind(p, NRL_SLOT_GRAD_SHARD, nrl_param_tensor(p, NRL_SLOT_GRAD));
    }
    return NRL_OK;
}

/* Bytes that layouts tell, as core/run counts them. */
static inline int64_t toy_described(const toy *t)
{
    int64_t bytes = 0, width = (int64_t)nrl_dtype_size(t->c->compute), f32 = 4;
    for (int i = 0; i < TOY_PARAMS; i++) {
        const nrl_param *p = &t->params[i];
        int64_t local = layout_local_numel(t->mesh, p);
        bool trained = t->plan.train && p->trained;
        if (!t->plan.gathers_weights)
            bytes += p->numel * width;
        else if (!trained)
            bytes += local * width;
        if (!trained) continue;
        bytes += f32 * (t->plan.reduces_grads ? local : p->numel);
        if (width < f32 || t->plan.gathers_weights) bytes += f32 * local;
    }
    return bytes;
}

static inline float toy_read(const nrl_tensor *t, int64_t e)
{
    nrl_mat m = nrl_tensor_mat(t);
    if (m.dtype == NRL_DTYPE_F32) return ((const float *)m.data)[e];
    uint32_t bits = (uint32_t)((const uint16_t *)m.data)[e] << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline void toy_write(const nrl_tensor *t, int64_t e, float v)
{
    nrl_mat m = nrl_tensor_mat(t);
    uint32_t bits;
    v = toy_bf16(v);
    memcpy(&bits, &v, sizeof bits);
    ((uint16_t *)m.data)[e] = (uint16_t)(bits >> 16);
}

static inline void toy_set(const nrl_tensor *t, int64_t e, float v)
{
    if (nrl_tensor_dtype(t) == NRL_DTYPE_F32)
        ((float *)nrl_tensor_mat(t).data)[e] = v;
    else
        toy_write(t, e, v);
}

static inline nrl_tensor *toy_exact(const nrl_param *p)
{
    nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER);
    return master ? master : nrl_param_tensor(p, NRL_SLOT_WEIGHT);
}

/* Calls `each` for every element of p that this rank holds: local index, index in the parameter. */
typedef nrl_status (*toy_each)(toy *t, int p, int64_t local, int64_t element, int step);
static inline nrl_status toy_held(toy *t, int p, toy_each each, int step)
{
    int64_t local = 0, before = 0;
    for (int i = 0; i < t->params[p].n_parts; i++) {
        layout_shard piece = layout_shard_of(t->mesh, t->rank, &t->params[p].parts[i], 0);
        int64_t at = 0, begin, n, numel = 1;
        while (piece_next(&piece, &at, &begin, &n))
            for (int64_t k = 0; k < n; k++)
                NRL_TRY(each(t, p, local++, before + begin + k, step));
        for (int d = 0; d < piece.n_dims; d++)
            numel *= piece.dims[d];
        before += numel;
    }
    if (local == nrl_tensor_numel(toy_exact(&t->params[p]))) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "parameter %d: the layout holds %lld elements, its slot %lld", p, (long long)local,
                    (long long)nrl_tensor_numel(toy_exact(&t->params[p])));
}

static inline nrl_status toy_load(toy *t, int p, int64_t local, int64_t element, int step)
{
    (void)step;
    toy_set(toy_exact(&t->params[p]), local, t->master[p][element]);
    return NRL_OK;
}

static inline nrl_status toy_update(toy *t, int p, int64_t local, int64_t element, int step)
{
    float expected = toy_sum(t->c, step, p, element);
    float found = toy_read(nrl_param_tensor(&t->params[p], NRL_SLOT_GRAD_SHARD), local);
    if (found != expected)
        return nrl_fail(NRL_ERR_BUG, "step %d: gradient %d[%lld] is %g, expected %g", step, p, (long long)element,
                        found, expected);
    nrl_tensor *master = toy_exact(&t->params[p]);
    toy_set(master, local, toy_read(master, local) - found);
    return NRL_OK;
}

/* ---- the walk ---- */

static inline nrl_status toy_check_work(const toy *t, const nrl_action *v)
{
    for (int32_t i = 0; i < v->n_uses; i++) {
        int p = (int)(v->uses[i] - t->params);
        const nrl_tensor *work = nrl_param_tensor(v->uses[i], NRL_SLOT_WEIGHT);
        if (!work || nrl_tensor_numel(work) != v->uses[i]->numel || nrl_tensor_dtype(work) != t->c->compute)
            return nrl_fail(NRL_ERR_BUG, "unit %d, pass %u: WEIGHT of %d is not whole", v->unit, v->pass, p);
        for (int64_t e = 0; e < v->uses[i]->numel; e++) {
            float expected = t->c->compute == NRL_DTYPE_F32 ? t->master[p][e] : toy_bf16(t->master[p][e]);
            if (toy_read(work, e) != expected)
                return nrl_fail(NRL_ERR_BUG, "unit %d, pass %u: WEIGHT %d[%lld] is %g, expected %g", v->unit, v->pass,
                                p, (long long)e, toy_read(work, e), expected);
        }
    }
    return NRL_OK;
}

static inline nrl_status toy_backward(toy *t, const nrl_action *v, int step)
{
    for (int32_t i = 0; i < v->n_uses && !toy_is_empty(t->c, t->rank, v->micro_batch); i++) {
        int p = (int)(v->uses[i] - t->params);
        if (!v->uses[i]->trained || !toy_has_gradient(t->c, p)) continue;
        const nrl_tensor *acc = nrl_param_tensor(v->uses[i], NRL_SLOT_GRAD);
        if (!acc) return nrl_fail(NRL_ERR_BUG, "unit %d: no GRAD for %d", v->unit, p);
        bool grad_is_empty = nrl_param_grad_is_empty(v->uses[i]);
        for (int64_t e = 0; e < v->uses[i]->numel; e++) {
            float g = toy_gradient(step, t->rank, v->micro_batch, v->unit, p, e);
            toy_set(acc, e, grad_is_empty ? g : toy_read(acc, e) + g);
        }
        nrl_param_set_grad_is_empty(v->uses[i], false);
    }
    return NRL_OK;
}

static inline bool toy_adds(const nrl_action *v, int64_t n)
{
    return v->pass == NRL_PASS_BACKWARD || (n > TOY_UNITS && v->pass == NRL_PASS_FORWARD && v->unit == TOY_UNITS - 1);
}

static inline nrl_status toy_walk(toy *t, const nrl_action *actions, int64_t n, int step)
{
    for (int64_t i = 0; i < n; i++) {
        NRL_TRY(t->c->table->enter(t->self, t->ctx, actions, i));
        NRL_TRY(toy_check_work(t, &actions[i]));
        if (toy_adds(&actions[i], n)) NRL_TRY(toy_backward(t, &actions[i], step));
        NRL_TRY(t->c->table->leave(t->self, t->ctx, actions, i));
    }
    return NRL_OK;
}

/* What nothing used is zero; then the strategy's part. */
static inline nrl_status toy_finish(toy *t)
{
    for (int p = 0; p < TOY_PARAMS; p++) {
        nrl_tensor *acc = nrl_param_tensor(&t->params[p], NRL_SLOT_GRAD);
        if (!nrl_param_grad_is_empty(&t->params[p]) || !acc) continue;
        NRL_TRY(nrl_tensor_fill(t->ctx, acc, 0));
        nrl_param_set_grad_is_empty(&t->params[p], false);
    }
    return t->c->table->finish(t->self, t->ctx);
}

static inline nrl_status toy_step(toy *t, int step)
{
    for (int p = 0; p < TOY_PARAMS; p++)
        nrl_param_set_grad_is_empty(&t->params[p], t->params[p].trained);
    NRL_TRY(toy_walk(t, t->actions, t->n_actions, step));
    NRL_TRY(toy_finish(t));
    for (int p = 0; p < TOY_PARAMS; p++) {
        nrl_param *at = &t->params[p];
        if (!at->trained) continue;
        NRL_TRY(toy_held(t, p, toy_update, step));
        nrl_tensor *work = nrl_param_tensor(at, NRL_SLOT_WEIGHT);
        if (work && work != toy_exact(at) && nrl_tensor_numel(toy_exact(at)) == at->numel)
            NRL_TRY(nrl_tensor_copy(t->ctx, toy_exact(at), work));
        for (int64_t e = 0; e < at->numel; e++)
            t->master[p][e] -= toy_sum(t->c, step, p, e);
    }
    return t->c->table->updated(t->self, t->ctx, step);
}

/* Passes that hold what they gather have the same WEIGHT, and leave nothing behind. */
static inline nrl_status toy_generate(toy *t)
{
    ctx_memory before, after;
    if (!t->c->table->hold) return NRL_OK;
    ctx_memory_use(t->ctx, &before);
    for (int again = 0; again < 2; again++) {
        nrl_status st = t->c->table->hold(t->self, t->ctx, true);
        for (int pass = 0; pass < 3 && st == NRL_OK; pass++)
            st = toy_walk(t, t->forward, TOY_UNITS, 0);
        NRL_TRY(t->c->table->hold(t->self, t->ctx, false));
        NRL_TRY(st);
    }
    ctx_memory_use(t->ctx, &after);
    if (after.live_bytes != before.live_bytes)
        return nrl_fail(NRL_ERR_BUG, "%zu bytes are left of a hold", after.live_bytes - before.live_bytes);
    return toy_walk(t, t->forward, TOY_UNITS, 0);
}

static inline nrl_status toy_train(toy *t)
{
    ctx_memory before, after;
    ctx_memory_use(t->ctx, &before);
    ctx_memory_reset_peak(t->ctx);
    for (int step = 1; step <= TOY_STEPS; step++) {
        if (t->c->evaluate) NRL_TRY(toy_walk(t, t->forward, TOY_UNITS, 0));
        if (t->plan.train) NRL_TRY(toy_step(t, step));
    }
    NRL_TRY(toy_walk(t, t->forward, TOY_UNITS, 0));
    ctx_memory_use(t->ctx, &after);
    if (after.peak_bytes != before.live_bytes)
        return nrl_fail(NRL_ERR_BUG, "steps took %zu bytes", after.peak_bytes - before.live_bytes);
    return toy_generate(t);
}

/* The pool rounds each tensor up to 64 bytes; a strategy has a handful of them. */
static inline nrl_status toy_check_bytes(toy *t)
{
    ctx_memory m;
    ctx_memory_use(t->ctx, &m);
    int64_t expected = t->described + t->plan.buffer_bytes, found = (int64_t)m.live_bytes;
    if (found >= expected && found - expected <= 64 * (t->n_own + 4)) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "bound %lld bytes, planned %lld", (long long)found, (long long)expected);
}

static inline nrl_status toy_open(toy *t)
{
    const nrl_parallel *s = t->c->table;
    NRL_TRY(s->create(t->c->options, t->mesh, &t->self));
    NRL_TRY(s->plan(t->self, &t->plan));
    NRL_TRY(s->bind(t->self, t->ctx));
    NRL_TRY(toy_bind_rest(t));
    t->described = toy_described(t);
    NRL_TRY(toy_check_bytes(t));
    for (int p = 0; p < TOY_PARAMS; p++) {
        NRL_TRY(toy_held(t, p, toy_load, 0));
        nrl_tensor *work = nrl_param_tensor(&t->params[p], NRL_SLOT_WEIGHT);
        if (work && work != toy_exact(&t->params[p]) &&
            nrl_tensor_numel(work) == nrl_tensor_numel(toy_exact(&t->params[p])))
            NRL_TRY(nrl_tensor_copy(t->ctx, toy_exact(&t->params[p]), work));
    }
    return s->updated(t->self, t->ctx, 0);
}

static inline nrl_status toy_close(toy *t, nrl_status st)
{
    ctx_memory m;
    if (t->self) t->c->table->unbind(t->self, t->ctx);
    if (t->self) t->c->table->destroy(t->self);
    for (int i = 0; i < t->n_own; i++)
        nrl_tensor_free(t->ctx, t->own[i]);
    ctx_memory_use(t->ctx, &m);
    if (st == NRL_OK && m.live_bytes) st = nrl_fail(NRL_ERR_BUG, "%zu bytes were not given back", m.live_bytes);
    ctx_destroy(t->ctx);
    device_close(&t->device);
    free(t);
    return st;
}

/* One rank of a case (user), whose n_micro_batches and world are set: plan, bind, load, steps, everything given back.
 */
static inline nrl_status toy_rank(nrl_mesh *mesh, int32_t rank, void *user)
{
    toy *t = calloc(1, sizeof *t);
    nrl_param *uses[TOY_UNITS][4];
    *t = (toy){.c = user, .mesh = mesh, .rank = rank};
    if (!test_device_open(&t->device)) return nrl_fail(NRL_ERR_BUG, "no cpu backend");
    NRL_TRY(ctx_create(&t->device, &t->ctx));
    toy_params(t);
    toy_schedule(t, uses);
    t->plan = (nrl_parallel_plan){.size = sizeof t->plan,
                                  .instance = t->c->reference,
                                  .train = !t->c->reference,
                                  .quiet = true,
                                  .compute = t->c->compute,
                                  .n_states = 0,
                                  .block = 1,
                                  .n_params = TOY_PARAMS,
                                  .n_units = TOY_UNITS,
                                  .params = t->list,
                                  .units = t->units};
    nrl_status st = toy_open(t);
    if (st == NRL_OK) st = toy_train(t);
    return toy_close(t, st);
}

#endif
