/*
 * parallel.h - strategies that break one rule each, with the rule that must detect it. All
 * replicate: gradients are summed one by one after the last action.
 */
#ifndef WRONG_PARALLEL_H
#define WRONG_PARALLEL_H
#include <nrl/custom_op.h>
#include <nrl/nrl.h>
#include <stdlib.h>

enum { MOST = 64 };

typedef struct {
    nrl_mesh *mesh;
    nrl_parallel_plan plan;
    nrl_tensor *own[MOST]; /* gradients bound by a strategy of this file */
    int64_t begin[8], end[8];
    int64_t ranges[MOST * 2 * 8];
} copies;

static nrl_status make(const void *options, nrl_mesh *mesh, void **self)
{
    (void)options;
    copies *c = calloc(1, sizeof *c);
    if (!c) return nrl_fail(NRL_ERR_MEMORY, "no memory");
    c->mesh = mesh;
    *self = c;
    return NRL_OK;
}

static nrl_status whole_plan(void *self, nrl_parallel_plan *plan)
{
    copies *c = self;
    plan->text = "copies";
    c->plan = *plan;
    return NRL_OK;
}

static nrl_status sum(copies *c, nrl_ctx *ctx, uint32_t how, bool wait)
{
    for (int32_t i = 0; i < c->plan.n_params; i++) {
        nrl_work *work = NULL;
        nrl_comm_call call = {.size = sizeof call,
                              .reduce = how,
                              .receive = nrl_param_tensor(c->plan.params[i], NRL_SLOT_GRAD),
                              .what = nrl_param_name(c->plan.params[i])};
        if (!call.receive) continue;
        NRL_TRY(nrl_comm_all_reduce(nrl_mesh_comm(c->mesh, "data"), ctx, &call, &work));
        if (wait) NRL_TRY(nrl_work_wait(&work, ctx));
        while (!wait && !nrl_work_done(work))
            continue; /* done, and never given back */
    }
    return NRL_OK;
}

static nrl_status right_finish(void *self, nrl_ctx *ctx)
{
    return sum(self, ctx, NRL_REDUCE_OP_SUM, true);
}

static nrl_status right_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    const copies *c = self;
    for (int32_t i = 0; i < c->plan.n_params; i++) {
        nrl_tensor *master = nrl_param_tensor(c->plan.params[i], NRL_SLOT_MASTER);
        nrl_tensor *work = nrl_param_tensor(c->plan.params[i], NRL_SLOT_WEIGHT);
        (void)step;
        nrl_param_touch(c->plan.params[i]);
        if (master && work != master) NRL_TRY(nrl_tensor_copy(ctx, master, work));
    }
    return NRL_OK;
}

/* ---- gradients ---- */

static nrl_status local_finish(void *self, nrl_ctx *ctx)
{
    (void)self;
    (void)ctx;
    return NRL_OK;
}

static nrl_status average_finish(void *self, nrl_ctx *ctx)
{
    return sum(self, ctx, NRL_REDUCE_OP_AVERAGE, true);
}

/* Adds the shards of a rank one after another, and then the ranks: the order depends on their number. */
static int32_t four_shards(const void *options, bool *strided)
{
    (void)options;
    *strided = false;
    return 4;
}

/* ---- local steps ---- */

static nrl_status alone_plan(void *self, nrl_parallel_plan *plan)
{
    plan->local_steps = plan->train;
    return whole_plan(self, plan);
}

/* Never averages, and says that all ranks have the same. */
static nrl_status no_state(void *self, nrl_ctx *ctx, nrl_state_io *io)
{
    (void)self;
    (void)ctx;
    (void)io;
    return NRL_OK;
}

/* Shows every rank its own weights. */
static nrl_status own_average(void *self, nrl_ctx *ctx, bool begin)
{
    (void)begin;
    return right_updated(self, ctx, 0);
}

/* Shows the mean, and leaves it there. */
static nrl_status lasting_average(void *self, nrl_ctx *ctx, bool begin)
{
    copies *c = self;
    for (int32_t i = 0; begin && i < c->plan.n_params; i++) {
        nrl_work *work = NULL;
        nrl_comm_call call = {.size = sizeof call,
                              .reduce = NRL_REDUCE_OP_AVERAGE,
                              .receive = nrl_param_tensor(c->plan.params[i], NRL_SLOT_MASTER),
                              .what = nrl_param_name(c->plan.params[i])};
        if (!call.receive) continue;
        NRL_TRY(nrl_comm_all_reduce(nrl_mesh_comm(c->mesh, "data"), ctx, &call, &work));
        NRL_TRY(nrl_work_wait(&work, ctx));
    }
    return right_updated(self, ctx, 0);
}

/* After every backward of unit 0, also where more micro-batches follow. */
static nrl_status early_leave(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    copies *c = self;
    const nrl_action *a = nrl_action_at(actions, i);
    if (a->pass < NRL_PASS_BACKWARD || a->unit) return NRL_OK;
    for (int32_t k = 0; k < c->plan.n_params; k++) {
        nrl_param *p = c->plan.params[k];
        nrl_tensor *acc = nrl_param_tensor(p, NRL_SLOT_GRAD);
        if (acc && nrl_param_grad_is_empty(p)) NRL_TRY(nrl_tensor_fill(ctx, acc, 0));
        nrl_param_set_grad_is_empty(p, false);
    }
    return sum(c, ctx, NRL_REDUCE_OP_SUM, true);
}

/* After the last BACKWARD, where some gradients of weights are still to come. */
static nrl_status hurried_leave(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    const nrl_action *a = nrl_action_at(actions, i);
    if (a->pass != NRL_PASS_BACKWARD) return NRL_OK;
    for (int64_t k = i + 1; k < a->n_actions; k++)
        if (nrl_action_at(actions, k)->pass == NRL_PASS_BACKWARD) return NRL_OK;
    return early_leave(self, ctx, actions, i);
}

/* Says that there is a gradient where none came. */
static nrl_status stale_leave(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    const copies *c = self;
    (void)ctx;
    for (int32_t k = 0; nrl_action_at(actions, i)->pass == NRL_PASS_FORWARD && k < c->plan.n_params; k++)
        if (nrl_param_trained(c->plan.params[k])) nrl_param_set_grad_is_empty(c->plan.params[k], false);
    return NRL_OK;
}

/* What is not summed yet counts twice where a rank has nothing of its own. */
static nrl_status filling_finish(void *self, nrl_ctx *ctx)
{
    copies *c = self;
    NRL_TRY(right_finish(self, ctx));
    for (int32_t i = 0; i < c->plan.n_params; i++) {
        nrl_tensor *acc = nrl_param_tensor(c->plan.params[i], NRL_SLOT_GRAD);
        if (acc && nrl_param_numel(c->plan.params[i]) == 7) NRL_TRY(nrl_tensor_fill(ctx, acc, 1e-3));
    }
    return NRL_OK;
}

static nrl_status hasty_finish(void *self, nrl_ctx *ctx)
{
    return sum(self, ctx, NRL_REDUCE_OP_SUM, false);
}

/* Rank 1 begins at the other end. */
static nrl_status unordered_finish(void *self, nrl_ctx *ctx)
{
    copies *c = self, turned = *c;
    nrl_param *list[MOST];
    for (int32_t i = 0; i < c->plan.n_params; i++)
        list[i] = c->plan.params[c->plan.n_params - 1 - i];
    if (nrl_mesh_coord(c->mesh, "data") == 1) turned.plan.params = list;
    return sum(&turned, ctx, NRL_REDUCE_OP_SUM, true);
}

/* ---- values ---- */

static nrl_status lazy_updated(void *self, nrl_ctx *ctx, int64_t step)
{
    (void)self;
    (void)ctx;
    (void)step;
    return NRL_OK;
}

/* ---- layouts: runs of flat elements, each rank from `low` to `high` of what is its own ---- */

static nrl_status cut_plan(copies *c, nrl_parallel_plan *plan, int64_t before, int64_t less)
{
    int32_t n = nrl_mesh_size(c->mesh, "data");
    int64_t one = 1;
    NRL_TRY(whole_plan(c, plan));
    for (int32_t r = 0; r < n && r < 8; r++) {
        c->begin[r] = r < n - 1 ? 0 : one;
        c->end[r] = r < n - 1 ? one : 7;
        if (r && r < n - 1) c->begin[r] = c->end[r] = one;
    }
    if (n > 1) {
        c->begin[n - 1] -= before;
        c->end[n - 1] -= less;
    }
    for (int32_t i = 0; i < plan->n_params; i++)
        for (int k = 0; k < nrl_param_n_parts(plan->params[i]); k++)
            if (nrl_param_numel(plan->params[i]) == 7)
                nrl_param_part(plan->params[i], k)->layout =
                    (nrl_layout){.n_placements = 1, .placements[0] = {"data", NRL_SHARD_FLAT, n, c->begin, c->end}};
    return NRL_OK;
}

static nrl_status holey_plan(void *self, nrl_parallel_plan *plan)
{
    return cut_plan(self, plan, 0, 1);
}

static nrl_status shared_plan(void *self, nrl_parallel_plan *plan)
{
    return cut_plan(self, plan, 1, 0);
}

static nrl_status outside_plan(void *self, nrl_parallel_plan *plan)
{
    return cut_plan(self, plan, 0, -1);
}

/* ---- memory ---- */

static nrl_status bind_own(void *self, nrl_ctx *ctx)
{
    copies *c = self;
    for (int32_t i = 0; i < c->plan.n_params; i++) {
        nrl_param *p = c->plan.params[i];
        NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, nrl_param_numel(p), true, &c->own[i]));
        nrl_param_bind(p, NRL_SLOT_GRAD, c->own[i]);
    }
    return NRL_OK;
}

static nrl_status bind_trained(void *self, nrl_ctx *ctx)
{
    return ((copies *)self)->plan.train ? bind_own(self, ctx) : NRL_OK;
}

static void give_back(void *self, nrl_ctx *ctx, bool slots, bool memory)
{
    copies *c = self;
    for (int32_t i = 0; i < c->plan.n_params; i++) {
        if (!c->own[i]) continue;
        if (slots) nrl_param_bind(c->plan.params[i], NRL_SLOT_GRAD, NULL);
        if (memory) nrl_tensor_free(ctx, c->own[i]);
    }
}

static void right_unbind(void *self, nrl_ctx *ctx)
{
    give_back(self, ctx, true, true);
}

static void clinging_unbind(void *self, nrl_ctx *ctx)
{
    give_back(self, ctx, false, true);
}

static void leaking_unbind(void *self, nrl_ctx *ctx)
{
    give_back(self, ctx, true, false);
}

static nrl_status growing_finish(void *self, nrl_ctx *ctx)
{
    nrl_tensor *forgotten;
    NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, 100, true, &forgotten));
    return right_finish(self, ctx);
}

/* Keeps the weights of the first generation for all that follow. */
static nrl_status outdated_hold(void *self, nrl_ctx *ctx, bool begin)
{
    copies *c = self;
    for (int32_t i = 0; begin && i < c->plan.n_params; i++) {
        nrl_tensor *weight = nrl_param_tensor(c->plan.params[i], NRL_SLOT_WEIGHT);
        if (c->own[i])
            NRL_TRY(nrl_tensor_copy(ctx, c->own[i], weight));
        else {
            NRL_TRY(nrl_tensor_persistent(ctx, nrl_tensor_dtype(weight), nrl_tensor_numel(weight), true, &c->own[i]));
            NRL_TRY(nrl_tensor_copy(ctx, weight, c->own[i]));
        }
    }
    return NRL_OK;
}

static nrl_status growing_hold(void *self, nrl_ctx *ctx, bool begin)
{
    nrl_tensor *forgotten;
    (void)self;
    return begin ? nrl_tensor_persistent(ctx, NRL_DTYPE_F32, 100, true, &forgotten) : NRL_OK;
}

/* ---- of the axis tensor: matrices and vocabulary divided, sums at the tp_regions ---- */

static nrl_status sharing_plan(void *self, nrl_parallel_plan *plan)
{
    copies *c = self;
    int32_t n = nrl_mesh_size(c->mesh, "tensor");
    c->plan = *plan;
    for (int32_t i = 0; i < plan->n_params; i++) {
        nrl_part *part = nrl_param_part(plan->params[i], 0);
        uint32_t tp = nrl_param_tp(plan->params[i]);
        int dim = tp == NRL_TP_ROW ? 1 : 0;
        int64_t *at = c->ranges + i * 2 * 8, size = part->dims[dim] / (dim ? 1 : part->groups) / n;
        if (tp == NRL_TP_NONE || tp == NRL_TP_PARTIAL || tp == NRL_TP_WHOLE) continue;
        for (int32_t r = 0; r < n; r++) {
            at[r] = r * size;
            at[8 + r] = at[r] + size;
        }
        part->layout = (nrl_layout){.n_placements = 1, .placements[0] = {"tensor", dim, n, at, at + 8}};
    }
    return NRL_OK;
}

static nrl_status sum_shares(copies *c, nrl_ctx *ctx, nrl_tensor *x)
{
    nrl_work *work = NULL;
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = x, .what = "a share"};
    NRL_TRY(nrl_comm_all_reduce(nrl_mesh_comm(c->mesh, "tensor"), ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status gather_shares(copies *c, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    int64_t n = nrl_tensor_numel(x) * nrl_mesh_size(c->mesh, "tensor");
    nrl_work *work = NULL;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &n, y));
    nrl_comm_call call = {.size = sizeof call, .send = x, .receive = *y, .what = "statistics"};
    NRL_TRY(nrl_comm_all_gather(nrl_mesh_comm(c->mesh, "tensor"), ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status answer_but(copies *c, nrl_ctx *ctx, uint32_t forgotten, uint32_t tp_region, bool back, nrl_tensor *x,
                             nrl_tensor **y)
{
    bool goes_in = tp_region == NRL_TP_REGION_COLUMN_IN || tp_region == NRL_TP_REGION_HEAD_IN;
    *y = x;
    if (tp_region == NRL_TP_REGION_HEAD_STATS) return gather_shares(c, ctx, x, y);
    return tp_region == forgotten || goes_in != back ? NRL_OK : sum_shares(c, ctx, x);
}

static nrl_status sharing_tp_region(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                    nrl_tensor **y)
{
    return answer_but(self, ctx, NRL_TP_REGION_NONE, tp_region, back, x, y);
}

static nrl_status forgets_columns_tp_region(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                            nrl_tensor **y)
{
    return answer_but(self, ctx, NRL_TP_REGION_COLUMN_IN, tp_region, back, x, y);
}

static nrl_status forgets_rows_tp_region(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                         nrl_tensor **y)
{
    return answer_but(self, ctx, NRL_TP_REGION_ROW_OUT, tp_region, back, x, y);
}

static nrl_status forgets_begun(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x, nrl_tensor **y,
                                nrl_work **work)
{
    (void)work; /* of an exchange that is complete */
    return answer_but(self, ctx, NRL_TP_REGION_COLUMN_IN, tp_region, back, x, y);
}

static nrl_status overlapped_plan(void *self, nrl_parallel_plan *plan)
{
    plan->overlaps = true;
    return sharing_plan(self, plan);
}

static nrl_status sharing_finish(void *self, nrl_ctx *ctx)
{
    copies *c = self;
    for (int32_t i = 0; i < c->plan.n_params; i++)
        if (nrl_param_tp(c->plan.params[i]) == NRL_TP_PARTIAL)
            NRL_TRY(sum_shares(c, ctx, nrl_param_tensor(c->plan.params[i], NRL_SLOT_GRAD_SHARD)));
    return NRL_OK;
}

/* ---- the same with a part of the tokens on each rank ---- */

static nrl_status token_plan(void *self, nrl_parallel_plan *plan)
{
    plan->shards_tokens = true;
    return sharing_plan(self, plan);
}

static int64_t tokens_begin(const copies *c, int64_t n, int32_t rank)
{
    return n * rank / nrl_mesh_size(c->mesh, "tensor");
}

static void token_range(void *self, int64_t n, int64_t *begin, int64_t *end)
{
    const copies *c = self;
    int32_t rank = nrl_mesh_coord(c->mesh, "tensor");
    *begin = tokens_begin(c, n, rank);
    *end = tokens_begin(c, n, rank + 1);
}

/* Dropout and noise then have the numbers of other tokens. */
static void displaced_range(void *self, int64_t n, int64_t *begin, int64_t *end)
{
    int64_t first, last;
    token_range(self, n, &first, &last);
    *begin = 0;
    *end = last - first;
}

static nrl_status token_tp_region(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                  nrl_tensor **y)
{
    copies *c = self;
    bool is_whole = tp_region == NRL_TP_REGION_WHOLE_IN || tp_region == NRL_TP_REGION_WHOLE_OUT;
    bool gathers = (tp_region == NRL_TP_REGION_COLUMN_IN || tp_region == NRL_TP_REGION_WHOLE_IN) != back;
    const int32_t size = nrl_mesh_size(c->mesh, "tensor");
    int64_t n = nrl_batch_n_tokens(nrl_ctx_batch(ctx)), counts[8], begin, end;
    if (tp_region == NRL_TP_REGION_HEAD_STATS) return gather_shares(c, ctx, x, y);
    if (tp_region == NRL_TP_REGION_HEAD_IN) return back ? sum_shares(c, ctx, x) : NRL_OK;
    int64_t dims[] = {n, nrl_tensor_dim(x, 1)};
    token_range(c, n, &begin, &end);
    for (int32_t r = 0; r < size; r++)
        counts[r] = (tokens_begin(c, n, r + 1) - tokens_begin(c, n, r)) * dims[1];
    nrl_work *work = NULL;
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .counts = counts, .what = "tokens"};
    if (!gathers) dims[0] = end - begin;
    if (*y == x) NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(x), 2, dims, y));
    call.send = x;
    call.receive = *y;
    if (is_whole && !gathers) {
        NRL_TRY(nrl_tensor_slice(ctx, x, begin * dims[1], (end - begin) * dims[1], &call.send));
        nrl_status st = nrl_tensor_copy(ctx, call.send, *y);
        nrl_tensor_free(ctx, call.send);
        return st;
    }
    NRL_TRY(
        (gathers ? nrl_comm_all_gather : nrl_comm_reduce_scatter)(nrl_mesh_comm(c->mesh, "tensor"), ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

/* Those of norms too, which each rank applies to its own tokens. */
static nrl_status token_finish(void *self, nrl_ctx *ctx)
{
    copies *c = self;
    for (int32_t i = 0; i < c->plan.n_params; i++)
        if (nrl_param_tp(c->plan.params[i]) == NRL_TP_NONE)
            NRL_TRY(sum_shares(c, ctx, nrl_param_tensor(c->plan.params[i], NRL_SLOT_GRAD_SHARD)));
    return sharing_finish(self, ctx);
}

/* ---- tokens of a micro-batch divided ---- */

static int64_t own_tokens(void *self, int64_t n, int32_t *own)
{
    const copies *c = self;
    const int32_t ranks = nrl_mesh_size(c->mesh, "data"), rank = nrl_mesh_coord(c->mesh, "data");
    int64_t n_own = 0;
    for (int64_t i = rank; i < n && n >= ranks; i += ranks)
        own[n_own++] = (int32_t)i;
    return n_own;
}

/* On every rank. */
static int64_t all_tokens(void *self, int64_t n, int32_t *own)
{
    (void)self;
    for (int64_t i = 0; i < n; i++)
        own[i] = (int32_t)i;
    return n;
}

/* Attends to nothing. */
static nrl_status blind_attention(void *self, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                  const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y)
{
    (void)self;
    (void)n;
    (void)k;
    (void)v;
    (void)spec;
    (void)soft_cap;
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, q, 0, 0, y);
}

static nrl_status sum_values(void *self, nrl_ctx *ctx, nrl_tensor *x)
{
    const copies *c = self;
    nrl_work *work = NULL;
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = x, .what = "values"};
    NRL_TRY(nrl_comm_all_reduce(nrl_mesh_comm(c->mesh, "data"), ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status keep_values(void *self, nrl_ctx *ctx, nrl_tensor *x)
{
    (void)self;
    (void)ctx;
    (void)x;
    return NRL_OK;
}

/* ---- experts ---- */

static nrl_status move_rows(void *self, nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, nrl_tensor *y,
                            const int64_t *received)
{
    const copies *c = self;
    nrl_work *work = NULL;
    int64_t counts[8], theirs[8];
    for (int32_t r = 0; r < nrl_mesh_size(c->mesh, "data"); r++) {
        counts[r] = sent[r] * nrl_tensor_dim(x, 1);
        theirs[r] = received[r] * nrl_tensor_dim(x, 1);
    }
    nrl_comm_call call = {
        .size = sizeof call, .send = x, .receive = y, .counts = counts, .receive_counts = theirs, .what = "rows"};
    NRL_TRY(nrl_comm_all_to_all(nrl_mesh_comm(c->mesh, "data"), ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status drop_rows(void *self, nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, nrl_tensor *y,
                            const int64_t *received)
{
    (void)self;
    (void)x;
    (void)sent;
    (void)received;
    return nrl_tensor_fill(ctx, y, 0);
}

/* ---- stages ---- */

typedef struct {
    nrl_mesh *mesh;
    nrl_parallel_plan plan;
    int32_t stages[64], first, end;
    bool owner_stages[MOST][8];
} staged;

static nrl_status staged_make(const void *options, nrl_mesh *mesh, void **self)
{
    (void)options;
    staged *s = calloc(1, sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "no memory");
    s->mesh = mesh;
    *self = s;
    return NRL_OK;
}

/* Unit u to stage u, what is left to the last; a stage holds what it uses, and the first the rest. */
static nrl_status staged_plan(void *self, nrl_parallel_plan *plan)
{
    staged *s = self;
    int32_t n = nrl_mesh_size(s->mesh, "pipeline"), own = nrl_mesh_coord(s->mesh, "pipeline");
    s->plan = *plan;
    s->first = s->end = -1;
    for (int32_t u = 0; u < plan->n_units; u++) {
        s->stages[u] = u < n ? u : n - 1;
        if (s->stages[u] == own && s->first < 0) s->first = u;
        if (s->stages[u] == own) s->end = u + 1;
    }
    for (int32_t i = 0; i < plan->n_params; i++) {
        bool any = false;
        for (int32_t u = 0; u < plan->n_units; u++)
            for (int32_t k = 0; k < plan->units[u].n_uses; k++)
                if (plan->units[u].uses[k] == plan->params[i]) any = s->owner_stages[i][s->stages[u]] = true;
        if (!any) s->owner_stages[i][0] = true;
        for (int k = 0; k < nrl_param_n_parts(plan->params[i]); k++)
            nrl_param_part(plan->params[i], k)->layout =
                (nrl_layout){.n_holders = nrl_mesh_size(s->mesh, "pipeline"), .owner_stages = s->owner_stages[i]};
    }
    plan->stages = s->stages;
    return NRL_OK;
}

/* The last stage has not what it shares with the first. */
static nrl_status bare_plan(void *self, nrl_parallel_plan *plan)
{
    staged *s = self;
    NRL_TRY(staged_plan(self, plan));
    for (int32_t i = 0; i < plan->n_params; i++)
        if (s->owner_stages[i][0]) s->owner_stages[i][nrl_mesh_size(s->mesh, "pipeline") - 1] = false;
    return NRL_OK;
}

static nrl_status backwards_plan(void *self, nrl_parallel_plan *plan)
{
    staged *s = self;
    NRL_TRY(staged_plan(self, plan));
    for (int32_t u = 0; u < plan->n_units; u++)
        s->stages[u] = nrl_mesh_size(s->mesh, "pipeline") - 1 - s->stages[u];
    return NRL_OK;
}

static void pass(const staged *s, uint32_t pass, int32_t micro_batch, nrl_action *actions, int64_t *n)
{
    for (int32_t k = 0; k < s->end - s->first; k++) {
        nrl_action *a = nrl_action_at(actions, (*n)++);
        a->pass = pass;
        a->micro_batch = micro_batch;
        a->unit = pass == NRL_PASS_FORWARD ? s->first + k : s->end - 1 - k;
    }
}

/* One micro-batch after another. */
static nrl_status plain_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n)
{
    for (int32_t m = 0; m < n_micro_batches; m++) {
        pass(self, NRL_PASS_FORWARD, m, actions, n);
        pass(self, NRL_PASS_BACKWARD, m, actions, n);
    }
    return NRL_OK;
}

static nrl_status forgetful_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n)
{
    return plain_schedule(self, n_micro_batches > 1 ? n_micro_batches - 1 : n_micro_batches, actions, n);
}

/* Gradients of weights before the backward that they are left over from. */
static nrl_status hasty_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n)
{
    for (int32_t m = 0; m < n_micro_batches; m++) {
        pass(self, NRL_PASS_FORWARD, m, actions, n);
        if (m) pass(self, NRL_PASS_BACKWARD_WEIGHT, m, actions, n);
        pass(self, NRL_PASS_BACKWARD, m, actions, n);
    }
    return NRL_OK;
}

/* The first stage takes micro-batches back in another order than the second gives them. */
static nrl_status crossing_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n)
{
    const staged *s = self;
    const int32_t world = nrl_mesh_size(s->mesh, "pipeline");
    if (n_micro_batches < 2 || world < 2 || nrl_mesh_coord(s->mesh, "pipeline") == world - 1)
        return plain_schedule(self, n_micro_batches, actions, n);
    for (int32_t m = 0; m < n_micro_batches; m++)
        pass(s, NRL_PASS_FORWARD, m, actions, n);
    for (int32_t m = n_micro_batches; m-- > 0;)
        pass(s, NRL_PASS_BACKWARD, m, actions, n);
    return NRL_OK;
}

/* The first stage wants a micro-batch back that the second takes after another one. */
static nrl_status waiting_schedule(void *self, int32_t n_micro_batches, nrl_action *actions, int64_t *n)
{
    const staged *s = self;
    if (n_micro_batches < 2 || nrl_mesh_coord(s->mesh, "pipeline") != 1 || nrl_mesh_size(s->mesh, "pipeline") < 3)
        return plain_schedule(self, n_micro_batches, actions, n);
    pass(s, NRL_PASS_FORWARD, 0, actions, n);
    pass(s, NRL_PASS_FORWARD, 1, actions, n);
    pass(s, NRL_PASS_BACKWARD, 0, actions, n);
    pass(s, NRL_PASS_BACKWARD, 1, actions, n);
    for (int32_t m = 2; m < n_micro_batches; m++) {
        pass(s, NRL_PASS_FORWARD, m, actions, n);
        pass(s, NRL_PASS_BACKWARD, m, actions, n);
    }
    return NRL_OK;
}

/* Sums of shared gradients are omitted. */
#define STAGED(nm, rule, ...)                                                                                          \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_PARALLEL, nrl_parallel, #nm, "0", rule), .axis = &depth_axis, .create = staged_make, \
                                                                           .destroy = free, __VA_ARGS__                \
    }
#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_PARALLEL, nrl_parallel, #nm, "0", rule), .create = make, .destroy = free,            \
                                                                           __VA_ARGS__                                 \
    }
static const nrl_mesh_axis batch_axis = {
    .size = sizeof(nrl_mesh_axis), .divides = NRL_DIVIDES_BATCH, .name = "data", .takes_rest = true};
static const nrl_mesh_axis width_axis = {.size = sizeof(nrl_mesh_axis), .divides = NRL_DIVIDES_WIDTH, .name = "tensor"};
static const nrl_mesh_axis depth_axis = {
    .size = sizeof(nrl_mesh_axis), .divides = NRL_DIVIDES_DEPTH, .name = "pipeline"};
static const nrl_mesh_axis tokens_axis = {.size = sizeof(nrl_mesh_axis), .divides = NRL_DIVIDES_TOKENS, .name = "data"};
static const nrl_mesh_axis experts_axis = {
    .size = sizeof(nrl_mesh_axis), .divides = NRL_DIVIDES_EXPERTS, .name = "data"};
static const nrl_mesh_axis divides_nothing = {.size = sizeof(nrl_mesh_axis), .name = "nothing"};
static const nrl_parallel wrong[] = {
    WRONG(right, "nothing is wrong with it", .axis = &batch_axis, .plan = whole_plan, .bind = bind_trained,
          .unbind = right_unbind, .finish = right_finish, .updated = right_updated),
    WRONG(local, "gradients are the sum over ranks", .axis = &batch_axis, .plan = whole_plan, .finish = local_finish,
          .updated = right_updated),
    WRONG(average, "gradients are the sum over ranks", .axis = &batch_axis, .plan = whole_plan,
          .finish = average_finish, .updated = right_updated),
    WRONG(ranked, "gradients have the same bits on any number of ranks", .axis = &batch_axis, .plan = whole_plan,
          .finish = right_finish, .updated = right_updated, .shards = four_shards),
    WRONG(apart, "between the calls of average MASTER is the mean over ranks", .axis = &batch_axis, .plan = alone_plan,
          .finish = local_finish, .updated = right_updated, .average = own_average),
    WRONG(aloof, "local steps reach one weight on all ranks", .axis = &batch_axis, .plan = alone_plan,
          .finish = local_finish, .updated = right_updated, .average = own_average, .state = no_state),
    WRONG(unsaved, "what differs between ranks is saved", .axis = &batch_axis, .plan = alone_plan,
          .finish = local_finish, .updated = right_updated, .average = own_average),
    WRONG(lasting, "after the calls of average MASTER is the rank's own", .axis = &batch_axis, .plan = alone_plan,
          .finish = local_finish, .updated = right_updated, .average = lasting_average),
    WRONG(early, "gradients are the sum over ranks", .axis = &batch_axis, .plan = whole_plan, .leave = early_leave,
          .updated = right_updated),
    WRONG(hurried, "gradients are the sum over ranks", .axis = &batch_axis, .plan = whole_plan, .leave = hurried_leave,
          .updated = right_updated),
    WRONG(stale, "gradients are the sum over ranks", .axis = &batch_axis, .plan = whole_plan, .bind = bind_trained,
          .unbind = right_unbind, .leave = stale_leave, .finish = right_finish, .updated = right_updated),
    WRONG(filling, "a parameter that nothing reached has gradient zero", .axis = &batch_axis, .plan = whole_plan,
          .finish = filling_finish, .updated = right_updated),
    WRONG(hasty, "every call is waited for", .axis = &batch_axis, .plan = whole_plan, .finish = hasty_finish,
          .updated = right_updated),
    WRONG(unordered, "finish succeeds", .axis = &batch_axis, .plan = whole_plan, .finish = unordered_finish,
          .updated = right_updated),
    WRONG(lazy, "WEIGHT is whole and current inside an action", .axis = &batch_axis, .plan = whole_plan,
          .finish = right_finish, .updated = lazy_updated),
    WRONG(holey, "every element lies on a rank", .axis = &batch_axis, .plan = holey_plan, .updated = right_updated),
    WRONG(shared, "shards of two ranks are the same or disjoint", .axis = &batch_axis, .plan = shared_plan,
          .updated = right_updated),
    WRONG(outside, "placements lie inside what they cut", .axis = &batch_axis, .plan = outside_plan,
          .updated = right_updated),
    WRONG(reference, "a model that is not trained has no gradients", .axis = &batch_axis, .plan = whole_plan,
          .bind = bind_own, .unbind = right_unbind, .finish = right_finish, .updated = right_updated),
    WRONG(clinging, "unbind gives every slot back", .axis = &batch_axis, .plan = whole_plan, .bind = bind_trained,
          .unbind = clinging_unbind, .finish = right_finish, .updated = right_updated),
    WRONG(leaking, "unbind frees everything allocated since bind", .axis = &batch_axis, .plan = whole_plan,
          .bind = bind_trained, .unbind = leaking_unbind, .finish = right_finish, .updated = right_updated),
    WRONG(growing, "a step leaves no memory behind", .axis = &batch_axis, .plan = whole_plan, .finish = growing_finish,
          .updated = right_updated),
    WRONG(outdated, "WEIGHT is whole and current inside an action", .axis = &batch_axis, .plan = whole_plan,
          .finish = right_finish, .updated = right_updated, .hold = outdated_hold),
    WRONG(holding_on, "the end of hold frees what was kept", .axis = &batch_axis, .plan = whole_plan,
          .finish = right_finish, .updated = right_updated, .hold = growing_hold),
    WRONG(forgets_columns, "gradients are those of one rank", .axis = &width_axis, .plan = sharing_plan,
          .tp_region = forgets_columns_tp_region, .finish = sharing_finish),
    WRONG(forgets_rows, "log-probs are those of one rank", .axis = &width_axis, .plan = sharing_plan,
          .tp_region = forgets_rows_tp_region, .finish = sharing_finish),
    WRONG(forgets_begun, "gradients are those of one rank", .axis = &width_axis, .plan = overlapped_plan,
          .tp_region = sharing_tp_region, .tp_region_begin = forgets_begun, .finish = sharing_finish),
    WRONG(beginless, "a strategy whose plan answers overlaps has tp_region_begin", .axis = &width_axis,
          .plan = overlapped_plan, .tp_region = sharing_tp_region, .finish = sharing_finish),
    WRONG(forgets_parts, "gradients are those of one rank", .axis = &width_axis, .plan = sharing_plan,
          .tp_region = sharing_tp_region),
    WRONG(forgets_norms, "gradients are those of one rank", .axis = &width_axis, .plan = token_plan,
          .tp_region = token_tp_region, .finish = sharing_finish, .tokens = token_range),
    WRONG(displaces_tokens, "log-probs are those of one rank", .axis = &width_axis, .plan = token_plan,
          .tp_region = token_tp_region, .finish = token_finish, .tokens = displaced_range),
    WRONG(attentionless, "a strategy that divides tokens has divide, attention and sum", .axis = &tokens_axis,
          .plan = whole_plan, .finish = right_finish, .updated = right_updated, .divide = own_tokens,
          .sum = sum_values),
    WRONG(overlapping, "each token is on one rank, each rank has one", .axis = &tokens_axis, .plan = whole_plan,
          .finish = right_finish, .updated = right_updated, .divide = all_tokens, .attention = blind_attention,
          .sum = sum_values),
    WRONG(blind, "attention is that of one rank", .axis = &tokens_axis, .plan = whole_plan, .finish = right_finish,
          .updated = right_updated, .divide = own_tokens, .attention = blind_attention, .sum = sum_values),
    WRONG(unadded, "sums are over the axis", .axis = &tokens_axis, .plan = whole_plan, .finish = right_finish,
          .updated = right_updated, .divide = own_tokens, .attention = blind_attention, .sum = keep_values),
    WRONG(motionless, "a strategy that divides experts has exchange", .axis = &experts_axis, .plan = whole_plan,
          .finish = right_finish, .updated = right_updated),
    WRONG(losing, "rows arrive where they are for", .axis = &experts_axis, .plan = whole_plan, .finish = right_finish,
          .updated = right_updated, .exchange = drop_rows),
    WRONG(everywhere, "gradients are the sum over ranks", .axis = &experts_axis, .plan = whole_plan,
          .finish = right_finish, .updated = right_updated, .exchange = move_rows),
    STAGED(unshared, "gradients are the sum over ranks", .plan = staged_plan, .schedule = plain_schedule),
    STAGED(bare, "a stage holds what its units use", .plan = bare_plan, .schedule = plain_schedule),
    STAGED(backwards, "stages are consecutive units, at least one", .plan = backwards_plan, .schedule = plain_schedule),
    STAGED(forgetful, "a micro-batch goes forward through a stage, then backward", .plan = staged_plan,
           .schedule = forgetful_schedule),
    STAGED(premature, "a micro-batch goes forward through a stage, then backward", .plan = staged_plan,
           .schedule = hasty_schedule),
    STAGED(crossing, "a rank sends in the order in which the other uses it", .plan = staged_plan,
           .schedule = crossing_schedule),
    STAGED(waiting, "stages do not deadlock", .plan = staged_plan, .schedule = waiting_schedule),
    WRONG(axisless, "a strategy names its axis", .plan = whole_plan, .updated = right_updated),
    WRONG(undivided, "an axis divides depth, width, batch, tokens or experts", .axis = &divides_nothing,
          .plan = whole_plan, .updated = right_updated),
    WRONG(lacks_plan, "plan is NULL", .axis = &batch_axis, .plan = NULL),
};
#undef WRONG
#undef STAGED

#endif
