/*
 * diloco.c - a strategy (NRL_KIND_PARALLEL): DiLoCo (Douillard et al. 2023). Each rank of the axis takes `every`
 * updates on its own batches; then the mean of how far the ranks went is the gradient of one step of SGD with Nesterov
 * momentum from the weights that they had in common. delta = mean over ranks (anchor - master);  v = momentum v + delta
 *   anchor -= lr (momentum v + delta);          master = anchor
 * With every = 1, lr = 1 and momentum = 0 this is the average of the ranks after each update.
 */
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>

static const nrl_mesh_axis diloco_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_BATCH,
    .name = "diloco",
    .order = 150,
};

typedef struct {
    int64_t every;
    double lr, momentum;
} diloco_options;

static const nrl_option diloco_rows[] = {
    NRL_OPT_INT(diloco_options, every, "16", 1, 1e9, "updates of each rank between two exchanges"),
    NRL_OPT_F64(diloco_options, lr, "0.7", 0, 10, "learning rate of the outer step"),
    NRL_OPT_F64(diloco_options, momentum, "0.9", 0, 1, "Nesterov momentum of the outer step"),
};

/* One trained parameter. */
typedef struct {
    nrl_param *param;
    nrl_tensor *anchor, *velocity; /* f32, as MASTER */
    nrl_tensor *own;               /* MASTER of this rank while the mean is shown; else NULL */
} diloco_slot;

typedef struct {
    diloco_options options;
    nrl_comm *comm;
    int32_t n;         /* ranks */
    uint32_t n_states; /* of the optimizer, for each parameter */
    diloco_slot *slots;
    int32_t n_slots;
    bool meets;   /* there are other ranks */
    bool differs; /* ranks have weights of their own */
    char text[96];
} diloco;

static nrl_status diloco_create(const void *options, nrl_mesh *mesh, void **self)
{
    diloco *d = calloc(1, sizeof *d);
    if (!d) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'diloco'");
    d->options = *(const diloco_options *)options;
    d->comm = nrl_mesh_comm(mesh, diloco_axis.name);
    d->n = nrl_mesh_size(mesh, diloco_axis.name);
    *self = d;
    return NRL_OK;
}

static void diloco_destroy(void *self)
{
    diloco *d = self;
    free(d->slots);
    free(d);
}

static nrl_status diloco_plan(void *self, nrl_parallel_plan *plan)
{
    diloco *d = self;
    plan->local_steps = plan->train && d->n > 1;
    d->slots = calloc((size_t)plan->n_params + 1, sizeof *d->slots);
    if (!d->slots) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'diloco'");
    d->meets = plan->local_steps;
    d->n_states = plan->n_states;
    for (int32_t i = 0; i < plan->n_params && plan->train; i++) {
        if (!nrl_param_trained(plan->params[i])) continue;
        d->slots[d->n_slots++].param = plan->params[i];
        if (d->meets) plan->buffer_bytes += 2 * nrl_param_numel(plan->params[i]) * (int64_t)sizeof(float);
    }
    snprintf(d->text, sizeof d->text, "DiLoCo: %d ranks update alone, one outer step every %lld updates", (int)d->n,
             (long long)d->options.every);
    plan->text = d->text;
    return NRL_OK;
}

static nrl_status diloco_bind(void *self, nrl_ctx *ctx)
{
    diloco *d = self;
    for (int32_t i = 0; i < d->n_slots && d->meets; i++) {
        diloco_slot *s = &d->slots[i];
        NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, nrl_param_numel(s->param), true, &s->anchor));
        NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, nrl_param_numel(s->param), true, &s->velocity));
    }
    return NRL_OK;
}

static void diloco_unbind(void *self, nrl_ctx *ctx)
{
    diloco *d = self;
    for (int32_t i = 0; i < d->n_slots; i++) {
        nrl_tensor_free(ctx, d->slots[i].anchor);
        nrl_tensor_free(ctx, d->slots[i].velocity);
        nrl_tensor_free(ctx, d->slots[i].own);
        d->slots[i].anchor = d->slots[i].velocity = d->slots[i].own = NULL;
    }
}

/* WEIGHT from MASTER, where they are not the same. */
static nrl_status diloco_refresh(nrl_ctx *ctx, nrl_param *p)
{
    nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER), *weight = nrl_param_tensor(p, NRL_SLOT_WEIGHT);
    nrl_param_touch(p);
    return master && weight && master != weight ? nrl_master_round(ctx, master, weight) : NRL_OK;
}

static nrl_status diloco_mean(const diloco *d, nrl_ctx *ctx, nrl_tensor *x, nrl_param *p)
{
    nrl_work *work = NULL;
    nrl_comm_call call = {
        .size = sizeof call, .reduce = NRL_REDUCE_OP_AVERAGE, .receive = x, .what = nrl_param_name(p)};
    NRL_TRY(nrl_comm_all_reduce(d->comm, ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

/* a x + b y */
static nrl_status diloco_mix(nrl_ctx *ctx, double a, nrl_tensor *x, double b, nrl_tensor *y, nrl_tensor **out)
{
    nrl_tensor *ax, *by;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, a, 0, &ax));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, y, b, 0, &by));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, ax, by, out);
}

static nrl_status diloco_outer_step(const diloco *d, nrl_ctx *ctx, diloco_slot *s)
{
    nrl_tensor *master = nrl_param_tensor(s->param, NRL_SLOT_MASTER), *delta, *v, *step, *anchor;
    const double momentum = d->options.momentum;
    if (!master) return NRL_OK;
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, s->anchor, master, &delta));
    NRL_TRY(diloco_mean(d, ctx, delta, s->param));
    NRL_TRY(diloco_mix(ctx, momentum, s->velocity, 1, delta, &v));
    NRL_TRY(diloco_mix(ctx, momentum, v, 1, delta, &step));
    NRL_TRY(diloco_mix(ctx, 1, s->anchor, -d->options.lr, step, &anchor));
    NRL_TRY(nrl_tensor_copy(ctx, v, s->velocity));
    NRL_TRY(nrl_tensor_copy(ctx, anchor, s->anchor));
    return nrl_tensor_copy(ctx, anchor, master);
}

static nrl_status diloco_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    diloco *d = self;
    const bool outer = d->meets && step > 0 && step % d->options.every == 0;
    if (step > 0) d->differs = d->meets && !outer;
    for (int32_t i = 0; i < d->n_slots; i++) {
        diloco_slot *s = &d->slots[i];
        nrl_tensor *master = nrl_param_tensor(s->param, NRL_SLOT_MASTER);
        nrl_status st = NRL_OK;
        nrl_scope_begin(ctx);
        if (outer) st = diloco_outer_step(d, ctx, s);
        if (step == 0 && master && d->meets && !d->differs) /* loaded: all ranks have the same */
            st = nrl_tensor_copy(ctx, master, s->anchor);
        if (st == NRL_OK) st = diloco_refresh(ctx, s->param);
        nrl_scope_end(ctx);
        NRL_TRY(st);
    }
    return NRL_OK;
}

static nrl_status diloco_average(void *self, nrl_ctx *ctx, bool begin)
{
    diloco *d = self;
    for (int32_t i = 0; i < d->n_slots && d->differs; i++) {
        diloco_slot *s = &d->slots[i];
        nrl_tensor *master = nrl_param_tensor(s->param, NRL_SLOT_MASTER);
        if (!master || (!begin && !s->own)) continue;
        if (begin) {
            NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, nrl_tensor_numel(master), false, &s->own));
            NRL_TRY(nrl_tensor_copy(ctx, master, s->own));
            NRL_TRY(diloco_mean(d, ctx, master, s->param));
        } else {
            NRL_TRY(nrl_tensor_copy(ctx, s->own, master));
            nrl_tensor_free(ctx, s->own);
            s->own = NULL;
        }
        NRL_TRY(diloco_refresh(ctx, s->param));
    }
    return NRL_OK;
}

static nrl_status diloco_tensor(nrl_ctx *ctx, nrl_state_io *io, const char *word, const nrl_param *p, nrl_tensor *t)
{
    char name[512];
    bool found;
    snprintf(name, sizeof name, "%s.%s", word, nrl_param_name(p));
    return t ? nrl_state_io_tensor(io, ctx, name, t, &found) : NRL_OK;
}

/* Ranks have weights and moments of their own between two outer steps. */
static nrl_status diloco_state(void *self, nrl_ctx *ctx, nrl_state_io *io)
{
    diloco *d = self;
    int64_t differs = d->differs;
    NRL_TRY(nrl_state_io_i64(io, "differs", &differs, 1));
    d->differs = differs != 0;
    for (int32_t i = 0; i < d->n_slots; i++) {
        diloco_slot *s = &d->slots[i];
        nrl_tensor *master = s->own ? s->own : nrl_param_tensor(s->param, NRL_SLOT_MASTER);
        NRL_TRY(diloco_tensor(ctx, io, "anchor", s->param, s->anchor));
        NRL_TRY(diloco_tensor(ctx, io, "velocity", s->param, s->velocity));
        NRL_TRY(diloco_tensor(ctx, io, "master", s->param, master));
        for (uint32_t k = 0; k < d->n_states && d->meets; k++) {
            char word[16];
            snprintf(word, sizeof word, "state%u", k);
            NRL_TRY(
                diloco_tensor(ctx, io, word, s->param, nrl_param_tensor(s->param, (nrl_slot)(NRL_SLOT_STATE0 + k))));
        }
        NRL_TRY(diloco_refresh(ctx, s->param));
    }
    return NRL_OK;
}

static const nrl_parallel diloco_table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, diloco_options, diloco_rows, "diloco", "0.1",
               "ranks that update alone and meet rarely"),
    .axis = &diloco_axis,
    .create = diloco_create,
    .destroy = diloco_destroy,
    .plan = diloco_plan,
    .bind = diloco_bind,
    .unbind = diloco_unbind,
    .updated = diloco_updated,
    .state = diloco_state,
    .average = diloco_average,
};
NRL_EXPORT(diloco_table)
