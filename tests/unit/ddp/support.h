/*
 * support.h - ddp on a model of three units in threads: each test sets the gradients of every rank
 * and checks the results. Parameters: "up" [24,16] in unit 2, "bias" [5] in unit 1, "down" [16,40]
 * in unit 0, "tied" [7,3] in units 0 and 2, "spare" [9] in none.
 */
#ifndef DDP_SUPPORT_H
#define DDP_SUPPORT_H
#include "mesh/internal.h"
#include "support/backend.h"
#include "support/local_ranks.h"
#include "support/options.h"
#include "tensor/param.h"
#include <math.h>
#include <nrl/nrl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { UP = 0, BIAS, DOWN, TIED, SPARE, N_PARAMS, N_UNITS = 3, MOST = 640 };

/* Gradient of element i of a parameter on one rank; NaN where no backward reaches the parameter. */
typedef double (*ddp_gradient)(int64_t step, int32_t rank, int param, int64_t i);

typedef struct {
    arena memory;
    plugin_host *host;
    const nrl_parallel *table;
    void *options;
    nrl_dtype work;
} ddp_setup;

typedef struct {
    const ddp_setup *s;
    nrl_mesh *mesh;
    int32_t rank;
    device device;
    nrl_ctx *ctx;
    nrl_param params[N_PARAMS];
    nrl_part parts[N_PARAMS];
    nrl_param *list[N_PARAMS], *uses[N_UNITS][2], *final[N_UNITS][2];
    nrl_unit_uses units[N_UNITS];
    nrl_action actions[N_UNITS];
    nrl_parallel_plan plan;
    nrl_tensor *made[N_PARAMS * 4];
    int n_made;
    void *self;
} ddp_rank;

/* Finds the plugin and fills its options; an error is the status. */
static inline nrl_status ddp_setup_open(ddp_setup *s, const char *yaml)
{
    const void *table;
    *s = (ddp_setup){.host = test_host(), .work = NRL_DTYPE_F32};
    NRL_TRY(test_options(s->host, &s->memory, NRL_KIND_PARALLEL, "parallel", "ddp", yaml, &table, &s->options));
    s->table = table;
    return NRL_OK;
}

static inline void ddp_setup_close(ddp_setup *s)
{
    plugin_host_destroy(s->host);
    arena_free(&s->memory);
}

/* ---- one rank ---- */

static inline void ddp_make_model(ddp_rank *r)
{
    static const struct {
        const char *name;
        int n_dims;
        int64_t dims[2];
    } shapes[N_PARAMS] = {
        {"up", 2, {24, 16}}, {"bias", 1, {5}}, {"down", 2, {16, 40}}, {"tied", 2, {7, 3}}, {"spare", 1, {9}}};
    static const int uses[N_UNITS][2] = {{DOWN, TIED}, {BIAS, -1}, {UP, TIED}};
    for (int i = 0; i < N_PARAMS; i++) {
        param_init(&r->params[i], &r->parts[i], shapes[i].name, shapes[i].n_dims, shapes[i].dims);
        r->list[i] = &r->params[i];
    }
    for (int u = 0; u < N_UNITS; u++) {
        int n = uses[u][1] >= 0 ? 2 : 1, n_final = u == 2 ? 1 : n; /* tied is final with unit 0 */
        for (int k = 0; k < n; k++)
            r->uses[u][k] = r->final[u][k] = r->list[uses[u][k]];
        r->units[u] = (nrl_unit_uses){.name = "unit", .n_uses = n, .uses = r->uses[u]};
        r->actions[N_UNITS - 1 - u] = (nrl_action){.size = sizeof(nrl_action),
                                                   .pass = NRL_PASS_BACKWARD,
                                                   .unit = u,
                                                   .n_uses = n,
                                                   .n_final = n_final,
                                                   .n_actions = N_UNITS,
                                                   .uses = r->uses[u],
                                                   .final = r->final[u]};
    }
    r->plan = (nrl_parallel_plan){.size = sizeof r->plan,
                                  .train = true,
                                  .compute = r->s->work,
                                  .n_states = 1,
                                  .block = 1,
                                  .n_params = N_PARAMS,
                                  .n_units = N_UNITS,
                                  .params = r->list,
                                  .units = r->units};
}

static inline nrl_status ddp_bind_slot(ddp_rank *r, nrl_param *p, nrl_slot slot, nrl_dtype dtype)
{
    if (nrl_param_tensor(p, slot)) return NRL_OK;
    NRL_TRY(nrl_tensor_persistent(r->ctx, dtype, p->numel, true, &r->made[r->n_made]));
    nrl_param_bind(p, slot, r->made[r->n_made++]);
    return NRL_OK;
}

static inline nrl_status ddp_bind_rest(ddp_rank *r)
{
    for (int i = 0; i < N_PARAMS; i++) {
        nrl_param *p = r->list[i];
        NRL_TRY(ddp_bind_slot(r, p, NRL_SLOT_WEIGHT, r->s->work));
        if (r->s->work == NRL_DTYPE_F32) nrl_param_bind(p, NRL_SLOT_MASTER, nrl_param_tensor(p, NRL_SLOT_WEIGHT));
        NRL_TRY(ddp_bind_slot(r, p, NRL_SLOT_MASTER, NRL_DTYPE_F32));
        NRL_TRY(ddp_bind_slot(r, p, NRL_SLOT_STATE0, NRL_DTYPE_F32));
        NRL_TRY(ddp_bind_slot(r, p, NRL_SLOT_GRAD, NRL_DTYPE_F32));
        if (!nrl_param_tensor(p, NRL_SLOT_GRAD_SHARD))
            nrl_param_bind(p, NRL_SLOT_GRAD_SHARD, nrl_param_tensor(p, NRL_SLOT_GRAD));
    }
    return NRL_OK;
}

static inline nrl_status ddp_rank_open(ddp_rank *r, const ddp_setup *s, nrl_mesh *mesh, int32_t rank)
{
    const nrl_parallel *t = s->table;
    *r = (ddp_rank){.s = s, .mesh = mesh, .rank = rank};
    if (!test_device_open(&r->device)) return nrl_fail(NRL_ERR_DEVICE, "no backend");
    NRL_TRY(ctx_create(&r->device, &r->ctx));
    ddp_make_model(r);
    NRL_TRY(t->create(s->options, mesh, &r->self));
    NRL_TRY(t->plan(r->self, &r->plan));
    NRL_TRY(t->bind(r->self, r->ctx));
    return ddp_bind_rest(r);
}

static inline void ddp_rank_close(ddp_rank *r)
{
    const nrl_parallel *t = r->s->table;
    if (r->self) t->unbind(r->self, r->ctx);
    if (r->self) t->destroy(r->self);
    for (int i = 0; i < r->n_made; i++)
        nrl_tensor_free(r->ctx, r->made[i]);
    if (r->ctx) ctx_destroy(r->ctx);
    device_close(&r->device);
}

/* ---- a step ---- */

static inline nrl_status ddp_add_gradient(ddp_rank *r, int param, int64_t step, ddp_gradient gradient)
{
    nrl_param *p = r->list[param];
    float values[MOST];
    if (isnan(gradient(step, r->rank, param, -1))) return NRL_OK; /* element -1: is there any? */
    for (int64_t i = 0; i < p->numel; i++)
        values[i] = (float)gradient(step, r->rank, param, i);
    p->grad_is_empty = false;
    return tensor_write(r->ctx, nrl_param_tensor(p, NRL_SLOT_GRAD), values);
}

/* Of actions [begin, end) of N_UNITS. Tied gets its gradient in unit 0. */
static inline nrl_status ddp_actions(ddp_rank *r, int begin, int end, int64_t step, ddp_gradient gradient)
{
    for (int i = begin; i < end; i++) {
        const nrl_action *v = &r->actions[i];
        for (int k = 0; k < v->n_final; k++)
            NRL_TRY(ddp_add_gradient(r, (int)(v->final[k] - r->params), step, gradient));
        NRL_TRY(r->s->table->leave(r->self, r->ctx, r->actions, i));
    }
    return NRL_OK;
}

static inline nrl_status ddp_finish_step(ddp_rank *r)
{
    for (int i = 0; i < N_PARAMS; i++) {
        if (!r->list[i]->grad_is_empty) continue;
        NRL_TRY(nrl_tensor_fill(r->ctx, nrl_param_tensor(r->list[i], NRL_SLOT_GRAD), 0));
        r->list[i]->grad_is_empty = false;
    }
    return r->s->table->finish(r->self, r->ctx);
}

static inline nrl_status ddp_step(ddp_rank *r, int64_t step, ddp_gradient gradient)
{
    for (int i = 0; i < N_PARAMS; i++)
        r->list[i]->grad_is_empty = true;
    NRL_TRY(ddp_actions(r, 0, N_UNITS, step, gradient));
    return ddp_finish_step(r);
}

/* ---- looking ---- */

static inline nrl_status ddp_fetch(ddp_rank *r, int param, nrl_slot slot, double *values)
{
    return nrl_tensor_fetch(r->ctx, nrl_param_tensor(r->list[param], slot), values, r->list[param]->numel);
}

static inline double ddp_sum_of(int32_t world, int64_t step, int param, int64_t i, ddp_gradient gradient)
{
    double sum = 0;
    for (int32_t r = 0; r < world; r++)
        if (!isnan(gradient(step, r, param, -1))) sum += gradient(step, r, param, i);
    return sum;
}

/* What a thread says in the place of an assertion. */
#define EXPECT(holds, ...)                                                                                             \
    do {                                                                                                               \
        if (!(holds)) return nrl_fail(NRL_ERR_BUG, __VA_ARGS__);                                                       \
    } while (0)

#define RUN(world, body, s)                                                                                            \
    do {                                                                                                               \
        nrl_status run_status_ = local_ranks_run(world, body, s);                                                      \
        if (run_status_) fail_msg("%s", nrl_error_text());                                                             \
    } while (0)

static inline double ddp_draw(uint64_t key)
{
    uint64_t state = key * 2654435761u + 12345;
    for (int k = 0; k < 3; k++)
        (void)test_uniform(&state);
    return test_uniform(&state);
}

/* Opens the plugin with options, runs `body` on so many ranks. */
static inline void ddp_run(const char *yaml, nrl_dtype work, int32_t world,
                           nrl_status (*body)(nrl_mesh *, int32_t, void *))
{
    ddp_setup s;
    nrl_status st = ddp_setup_open(&s, yaml);
    if (st) fail_msg("%s", nrl_error_text());
    s.work = work;
    RUN(world, body, &s);
    ddp_setup_close(&s);
}

#endif
