/*
 * tensor.c - tensor parallel: ranks share each layer (Shoeybi et al. 2019, Megatron-LM). Output
 * features of a block's first matrix and input features of its last are sharded, attention by heads,
 * embedding and output layer by the vocabulary. All ranks of the axis process the same micro-batches.
 * Inputs and outputs of a block are unsharded, so every rank computes the same norms and residuals.
 *
 * A model declares what may be sharded (nrl_tp) and where the tp_regions are (nrl_op_tp_region): two
 * all-reduces of [N,D] per layer in the forward and two in the backward, in the compute dtype. This
 * file has the layouts, the tp_regions, and the sums of gradients of which each rank has a part.
 */
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>

static const nrl_mesh_axis tensor_axis = {
    .size = sizeof(nrl_mesh_axis),
    .divides = NRL_DIVIDES_WIDTH,
    .name = "tensor",
    .order = 400,
};

typedef struct {
    bool vocabulary;
} tensor_options;

static const nrl_option tensor_rows[] = {
    NRL_OPT_BOOL(
        tensor_options, vocabulary, "true",
        "shard embedding and output layer too if the number of ranks divides their rows; false: keep them whole"),
};

typedef struct {
    tensor_options options;
    nrl_comm *comm;
    int32_t n; /* number of ranks of the axis */
    bool train;
    int64_t *ranges;     /* begins and ends of all placements */
    nrl_param **partial; /* replicated parameters; each rank's gradient is a partial sum */
    int32_t n_partial;
    nrl_tensor *buffer, **views; /* f32 sum buffer for their gradients, created by the first step; views NULL: this
                                  * rank has none */
    char text[240];
} tensor;

static nrl_status tensor_create(const void *options, nrl_mesh *mesh, void **self)
{
    tensor *t = calloc(1, sizeof *t);
    if (!t) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'tensor'");
    t->options = *(const tensor_options *)options;
    t->comm = nrl_mesh_comm(mesh, tensor_axis.name);
    t->n = nrl_mesh_size(mesh, tensor_axis.name);
    *self = t;
    return NRL_OK;
}

static void tensor_destroy(void *self)
{
    tensor *t = self;
    free(t->ranges);
    free(t->partial);
    free(t->views);
    free(t);
}

/* ---- layouts ---- */

static nrl_status check_heads(const tensor *t, const char *kind, int64_t heads)
{
    if (heads % t->n == 0) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot share the model's %lld %s heads over %d ranks; expected a number of ranks that divides "
                    "%lld",
                    (long long)heads, kind, (int)t->n, (long long)heads);
}

static nrl_status check_plan(const tensor *t, const nrl_parallel_plan *plan)
{
    NRL_TRY(check_heads(t, "query", plan->n_heads));
    return check_heads(t, "key/value", plan->n_kv_heads);
}

/* The dimension that is sharded; -1: none. */
static int dimension_of(const tensor *t, const nrl_param *p)
{
    switch (nrl_param_tp(p)) {
    case NRL_TP_COLUMN:
        return 0;
    case NRL_TP_ROW:
        return 1;
    case NRL_TP_VOCAB:
        return t->options.vocabulary && nrl_param_dim(p, 0) % t->n == 0 ? 0 : -1;
    default:
        return -1;
    }
}

/* Even ranges: other axes rely on equal sizes. */
static nrl_status cut_part(const tensor *t, nrl_part *part, int dim, int64_t *ranges)
{
    int64_t groups = part->groups > 1 && dim == 0 ? part->groups : 1, size = part->dims[dim] / groups;
    nrl_layout *l = &part->layout;
    if (l->n_placements == NRL_MAX_PLACEMENTS)
        return nrl_fail(NRL_ERR_BUG, "'%s' already has %d placements", part->name, l->n_placements);
    if (size % t->n)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot shard dimension %d of '%s': its size %lld does not divide over %d ranks", dim,
                        part->name, (long long)size, (int)t->n);
    for (int32_t r = 0; r < t->n; r++) {
        ranges[r] = r * (size / t->n);
        ranges[t->n + r] = ranges[r] + size / t->n;
    }
    l->placements[l->n_placements++] = (nrl_placement){tensor_axis.name, dim, t->n, ranges, ranges + t->n};
    return NRL_OK;
}

static nrl_status write_layouts(tensor *t, const nrl_parallel_plan *plan)
{
    int64_t n_parts = 0, *at;
    for (int32_t i = 0; i < plan->n_params; i++)
        n_parts += nrl_param_n_parts(plan->params[i]);
    at = t->ranges = calloc((size_t)n_parts * 2 * (size_t)t->n + 1, sizeof *t->ranges);
    t->partial = calloc((size_t)plan->n_params + 1, sizeof(nrl_param *));
    t->views = calloc((size_t)plan->n_params + 1, sizeof(nrl_tensor *));
    if (!t->ranges || !t->partial || !t->views) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'tensor'");
    for (int32_t i = 0; i < plan->n_params; i++) {
        nrl_param *p = plan->params[i];
        int dim = dimension_of(t, p);
        if (nrl_param_tp(p) == NRL_TP_PARTIAL && plan->train && nrl_param_trained(p)) t->partial[t->n_partial++] = p;
        for (int k = 0; k < nrl_param_n_parts(p) && dim >= 0; k++, at += 2 * t->n)
            NRL_TRY(cut_part(t, nrl_param_part(p, k), dim, at));
    }
    return NRL_OK;
}

/* ---- the line in the plan ---- */

/* Bytes that a rank sends per token: sums of [N,D], each 2 (R-1) / R of them on a ring. */
static double bytes_a_token(const tensor *t, const nrl_parallel_plan *plan, bool vocabulary)
{
    double width = 0, sums = vocabulary ? 1 : 0;
    for (int32_t i = 0; i < plan->n_params; i++) {
        if (nrl_param_tp(plan->params[i]) != NRL_TP_ROW) continue;
        width = (double)nrl_param_dim(plan->params[i], 0);
        sums++;
    }
    return (plan->train ? 2 : 1) * sums * width * (double)nrl_dtype_size((nrl_dtype)plan->compute) * 2 * (t->n - 1) /
           t->n;
}

static void describe(tensor *t, nrl_parallel_plan *plan)
{
    int64_t rows = 0, matrices = 0, divided = 0;
    bool cut = false;
    for (int32_t i = 0; i < plan->n_params; i++) {
        const nrl_param *p = plan->params[i];
        bool is_sharded = dimension_of(t, p) >= 0;
        if (nrl_param_n_dims(p) > 1) matrices++;
        if (nrl_param_n_dims(p) > 1 && is_sharded) divided++;
        if (nrl_param_tp(p) != NRL_TP_VOCAB) continue;
        rows = nrl_param_dim(p, 0);
        cut = is_sharded;
    }
    int n = snprintf(t->text, sizeof t->text, "%d ranks share each layer, %lld of %lld matrices sharded", (int)t->n,
                     (long long)divided, (long long)matrices);
    if (rows)
        n += snprintf(t->text + n, sizeof t->text - (size_t)n, "; vocabulary of %lld %s", (long long)rows,
                      cut ? "divided" : "whole on each");
    snprintf(t->text + n, sizeof t->text - (size_t)n, "; %.1f KiB sent per token", bytes_a_token(t, plan, cut) / 1024);
    plan->text = t->text;
    for (int32_t i = 0; i < t->n_partial; i++)
        plan->buffer_bytes += nrl_param_numel(t->partial[i]) * (int64_t)sizeof(float);
}

static nrl_status tensor_plan(void *self, nrl_parallel_plan *plan)
{
    tensor *t = self;
    plan->takes_split16 = plan->takes_bf16_gradients = true;
    t->train = plan->train;
    plan->text = "one rank, nothing to shard";
    if (t->n == 1) return NRL_OK;
    NRL_TRY(check_plan(t, plan));
    NRL_TRY(write_layouts(t, plan));
    describe(t, plan);
    return NRL_OK;
}

/* ---- tp_regions ---- */

static nrl_status sum(tensor *t, nrl_ctx *ctx, nrl_tensor *x, const char *what)
{
    nrl_work *work = NULL;
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = x, .what = what};
    NRL_TRY(nrl_comm_all_reduce(t->comm, ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status gather(tensor *t, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    int64_t n = nrl_tensor_numel(x) * t->n;
    nrl_work *work = NULL;
    NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(x), 1, &n, y));
    nrl_comm_call call = {.size = sizeof call, .send = x, .receive = *y, .what = "statistics of the vocabulary"};
    NRL_TRY(nrl_comm_all_gather(t->comm, ctx, &call, &work));
    return nrl_work_wait(&work, ctx);
}

static nrl_status tensor_tp_region(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                   nrl_tensor **y)
{
    tensor *t = self;
    *y = x;
    if (t->n == 1) return NRL_OK;
    switch (tp_region) {
    case NRL_TP_REGION_COLUMN_IN:
        return back ? sum(t, ctx, x, "gradient into columns") : NRL_OK;
    case NRL_TP_REGION_HEAD_IN:
        return back ? sum(t, ctx, x, "gradient into the output layer") : NRL_OK;
    case NRL_TP_REGION_ROW_OUT:
        return back ? NRL_OK : sum(t, ctx, x, "products with rows");
    case NRL_TP_REGION_EMBED_OUT:
        return back ? NRL_OK : sum(t, ctx, x, "embedding");
    case NRL_TP_REGION_HEAD_STATS:
        return gather(t, ctx, x, y);
    default:
        return nrl_fail(NRL_ERR_PLUGIN, "strategy 'tensor' has no tp_region %u", tp_region);
    }
}

/* ---- gradients of which each rank has a part ---- */

static nrl_tensor *gradient_of(const nrl_param *p)
{
    nrl_tensor *grad = nrl_param_tensor(p, NRL_SLOT_GRAD_SHARD);
    return grad ? grad : nrl_param_tensor(p, NRL_SLOT_GRAD);
}

/* Created once, since slots keep their sizes. Another axis's flat shards are the same on every rank of this axis. */
static nrl_status make_buffer(tensor *t, nrl_ctx *ctx)
{
    int64_t n = 0, at = 0;
    for (int32_t i = 0; i < t->n_partial; i++)
        if (gradient_of(t->partial[i])) n += nrl_tensor_numel(gradient_of(t->partial[i]));
    if (!n) return NRL_OK;
    NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, n, false, &t->buffer));
    for (int32_t i = 0; i < t->n_partial; i++) {
        const nrl_tensor *grad = gradient_of(t->partial[i]);
        int64_t size = grad ? nrl_tensor_numel(grad) : 0;
        if (!size) continue;
        NRL_TRY(nrl_tensor_slice(ctx, t->buffer, at, size, &t->views[i]));
        at += size;
    }
    return NRL_OK;
}

/* Runs after the sums over the batch, which include the gradients whose parts are on this axis. */
static nrl_status tensor_finish(void *self, nrl_ctx *ctx)
{
    tensor *t = self;
    if (!t->buffer) NRL_TRY(make_buffer(t, ctx));
    if (!t->buffer) return NRL_OK;
    for (int32_t i = 0; i < t->n_partial; i++)
        if (t->views[i]) NRL_TRY(nrl_tensor_copy(ctx, gradient_of(t->partial[i]), t->views[i]));
    NRL_TRY(sum(t, ctx, t->buffer, "gradients of norms of heads"));
    for (int32_t i = 0; i < t->n_partial; i++)
        if (t->views[i]) NRL_TRY(nrl_tensor_copy(ctx, t->views[i], gradient_of(t->partial[i])));
    return NRL_OK;
}

static void tensor_unbind(void *self, nrl_ctx *ctx)
{
    tensor *t = self;
    for (int32_t i = 0; i < t->n_partial; i++) {
        nrl_tensor_free(ctx, t->views[i]);
        t->views[i] = NULL;
    }
    nrl_tensor_free(ctx, t->buffer);
    t->buffer = NULL;
}

static const nrl_parallel tensor_table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, tensor_options, tensor_rows, "tensor", "0.1",
               "ranks share each layer: attention by heads, MLP by columns and rows, vocabulary by rows"),
    .plugin.priority = 100,
    .axis = &tensor_axis,
    .create = tensor_create,
    .destroy = tensor_destroy,
    .plan = tensor_plan,
    .unbind = tensor_unbind,
    .finish = tensor_finish,
    .tp_region = tensor_tp_region,
};
NRL_EXPORT(tensor_table)
