/*
 * tensor.c - tensor parallel: ranks share each layer (Shoeybi et al. 2019, Megatron-LM). Output
 * features of a block's first matrix and input features of its last are sharded, attention by heads,
 * embedding and output layer by the vocabulary. All ranks of the axis process the same micro-batches.
 * Inputs and outputs of a block are unsharded, so every rank computes the same norms and residuals.
 *
 * A model declares what may be sharded (nrl_tp) and where the tp_regions are (nrl_op_tp_region): two
 * all-reduces of [N,D] per layer in the forward and two in the backward, in the compute dtype. This
 * file has the layouts, the tp_regions, and the sums of gradients of which each rank has a part.
 *
 * With `sequence` (Korthikanti et al. 2022) each rank has a part of the tokens between those blocks: the sums are
 * scattered, and gathered before the next block. Ranks have N / R tokens, the rest of a division one each; no padding.
 *
 * With `overlap` exchanges of the backward are under way while products are computed, as in Megatron-LM: the gathered
 * input arrives during the gradients of the inputs, which are summed during those of the weights.
 */
#include "../common/text.h"
#include <nrl/custom_op.h>
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
    bool vocabulary, sequence, overlap;
} tensor_options;

static const nrl_option tensor_rows[] = {
    NRL_OPT_BOOL(
        tensor_options, vocabulary, "true",
        "also shard the embedding and output layer if the number of ranks divides their rows; false: keep them "
        "complete on each rank"),
    NRL_OPT_BOOL(tensor_options, sequence, "false",
                 "sequence parallelism: shard the tokens of norms, dropout and residuals, which divides their memory"),
    NRL_OPT_BOOL(
        tensor_options, overlap, "true",
        "overlap communication in the backward pass with computation; false: one after the other, with identical "
        "results"),
};

/* Parameters of which each rank of `comm` has a part of the gradient. */
typedef struct {
    nrl_comm *comm;
    nrl_param **params;
    int32_t n;
    nrl_tensor *buffer, **views; /* f32 sum buffer for their gradients, created by the first step; views NULL: this
                                  * rank has none */
} partial_sums;

typedef struct {
    tensor_options options;
    nrl_mesh *mesh;
    nrl_comm *comm;
    int32_t n, rank; /* ranks of the axis; coordinate */
    int32_t sharing; /* ranks that share each key/value head */
    bool train;
    int64_t *ranges;         /* begins and ends of all placements */
    int64_t *counts;         /* [n] elements of each rank in an exchange of tokens */
    partial_sums all, heads; /* over the axis, over the ranks that share a key/value head */
    char text[320];
} tensor;

static nrl_status tensor_create(const void *options, nrl_mesh *mesh, void **self)
{
    tensor *t = calloc(1, sizeof *t);
    if (!t) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'tensor'");
    t->options = *(const tensor_options *)options;
    t->mesh = mesh;
    t->comm = nrl_mesh_comm(mesh, tensor_axis.name);
    t->n = nrl_mesh_size(mesh, tensor_axis.name);
    t->rank = nrl_mesh_coord(mesh, tensor_axis.name);
    t->sharing = 1;
    *self = t;
    return NRL_OK;
}

static void tensor_destroy(void *self)
{
    tensor *t = self;
    free(t->ranges);
    free(t->counts);
    free(t->all.params);
    free(t->all.views);
    free(t->heads.params);
    free(t->heads.views);
    free(t);
}

/* ---- layouts ---- */

/* If there are more ranks than key/value heads, R / G consecutive ranks share each of them. */
static nrl_status check_plan(tensor *t, const nrl_parallel_plan *plan)
{
    int64_t heads = plan->n_heads, kv = plan->n_kv_heads;
    if (heads % t->n)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot share the model's %lld query heads over %d ranks; expected a number of ranks that "
                        "divides %lld",
                        (long long)heads, (int)t->n, (long long)heads);
    if (kv % t->n == 0) return NRL_OK;
    if (t->n % kv)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot share the model's %lld key/value heads over %d ranks; expected a number of ranks that "
                        "divides %lld, or a multiple of it",
                        (long long)kv, (int)t->n, (long long)kv);
    t->sharing = (int32_t)(t->n / kv);
    if (!plan->train) return NRL_OK; /* no gradients to add up; a reference may share its heads differently */
    NRL_TRY(nrl_mesh_split(t->mesh, tensor_axis.name, t->sharing, "tensor head", "tensor heads"));
    t->heads.comm = nrl_mesh_comm(t->mesh, "tensor head");
    return NRL_OK;
}

/* The dimension that is sharded; -1: none. */
static int dimension_of(const tensor *t, const nrl_param *p)
{
    switch (nrl_param_tp(p)) {
    case NRL_TP_COLUMN:
    case NRL_TP_KEY_VALUE:
        return 0;
    case NRL_TP_ROW:
        return 1;
    case NRL_TP_VOCAB:
        return t->options.vocabulary && nrl_param_dim(p, 0) % t->n == 0 ? 0 : -1;
    default:
        return -1;
    }
}

/* Even ranges: other axes rely on equal sizes. Each is that of `sharing` ranks. */
static nrl_status cut_part(const tensor *t, nrl_part *part, int dim, int32_t sharing, int64_t *ranges)
{
    const int32_t n = t->n / sharing;
    int64_t groups = part->groups > 1 && dim == 0 ? part->groups : 1, size = part->dims[dim] / groups;
    nrl_layout *l = &part->layout;
    if (l->n_placements == NRL_MAX_PLACEMENTS)
        return nrl_fail(NRL_ERR_BUG, "'%s' already has %d placements", part->name, l->n_placements);
    if (size % n)
        return nrl_fail(NRL_ERR_CONFIG, "cannot shard dimension %d of '%s': its size %lld is not divisible by %d ranks",
                        dim, part->name, (long long)size, (int)n);
    for (int32_t r = 0; r < t->n; r++) {
        ranges[r] = r / sharing * (size / n);
        ranges[t->n + r] = ranges[r] + size / n;
    }
    l->placements[l->n_placements++] = (nrl_placement){tensor_axis.name, dim, t->n, ranges, ranges + t->n};
    return NRL_OK;
}

static bool make_lists(partial_sums *p, int32_t n)
{
    p->params = calloc((size_t)n + 1, sizeof(nrl_param *));
    p->views = calloc((size_t)n + 1, sizeof(nrl_tensor *));
    return p->params && p->views;
}

static nrl_status write_layouts(tensor *t, const nrl_parallel_plan *plan)
{
    int64_t n_parts = 0, *at;
    for (int32_t i = 0; i < plan->n_params; i++)
        n_parts += nrl_param_n_parts(plan->params[i]);
    at = t->ranges = calloc((size_t)n_parts * 2 * (size_t)t->n + 1, sizeof *t->ranges);
    t->counts = calloc((size_t)t->n, sizeof *t->counts);
    t->all.comm = t->comm;
    if (!t->ranges || !t->counts || !make_lists(&t->all, plan->n_params) || !make_lists(&t->heads, plan->n_params))
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'tensor'");
    for (int32_t i = 0; i < plan->n_params; i++) {
        nrl_param *p = plan->params[i];
        const uint32_t tp = nrl_param_tp(p);
        const int32_t sharing = tp == NRL_TP_KEY_VALUE ? t->sharing : 1;
        const bool of_tokens = t->options.sequence && tp == NRL_TP_NONE && !nrl_param_of_algorithm(p);
        partial_sums *sums = sharing > 1 ? &t->heads : tp == NRL_TP_PARTIAL || of_tokens ? &t->all : NULL;
        if (sums && plan->train && nrl_param_trained(p)) sums->params[sums->n++] = p;
        int dim = dimension_of(t, p);
        for (int k = 0; k < nrl_param_n_parts(p) && dim >= 0; k++, at += 2 * t->n)
            NRL_TRY(cut_part(t, nrl_param_part(p, k), dim, sharing, at));
    }
    return NRL_OK;
}

/* ---- the line in the plan ---- */

/* Bytes that a rank sends per token: sums of [N,D], each 2 (R-1) / R of them on a ring. With `sequence` a sum is a
 * scatter and a gather of (R-1) / R each, and the backward gathers the inputs of column-parallel products once more. */
static double bytes_a_token(const tensor *t, const nrl_parallel_plan *plan, bool vocabulary)
{
    double width = 0, sums = vocabulary ? 1 : 0, again = 0;
    for (int32_t i = 0; i < plan->n_params; i++) {
        if (nrl_param_tp(plan->params[i]) != NRL_TP_ROW) continue;
        width = (double)nrl_param_dim(plan->params[i], 0);
        sums++;
        if (t->options.sequence && plan->train) again += 0.5;
    }
    return ((plan->train ? 2 : 1) * sums + again) * width * (double)nrl_dtype_size((nrl_dtype)plan->compute) * 2 *
           (t->n - 1) / t->n;
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
#define append(...) text_append(t->text, sizeof t->text, __VA_ARGS__)
    *t->text = 0;
    append("%d ranks share each layer, %lld of %lld matrices sharded", (int)t->n, (long long)divided,
           (long long)matrices);
    if (rows) append("; vocabulary of %lld %s", (long long)rows, cut ? "divided" : "whole on each");
    if (t->sharing > 1) append("; %d ranks share each key/value head", (int)t->sharing);
    if (t->options.sequence) append("; tokens sharded outside attention and MLP");
    append("; %.1f KiB sent per token", bytes_a_token(t, plan, cut) / 1024);
#undef append
    plan->text = t->text;
    for (int32_t i = 0; i < t->all.n; i++)
        plan->buffer_bytes += nrl_param_numel(t->all.params[i]) * (int64_t)sizeof(float);
    for (int32_t i = 0; i < t->heads.n; i++)
        plan->buffer_bytes += nrl_param_numel(t->heads.params[i]) / (t->n / t->sharing) * (int64_t)sizeof(float);
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
    plan->shards_tokens = t->options.sequence;
    plan->overlaps = t->options.overlap;
    describe(t, plan);
    return NRL_OK;
}

/* ---- tp_regions ---- */

/* The functions of regions start an exchange; `work` is complete before *y, or x in its place, has the result. */
static nrl_status sum(nrl_comm *comm, nrl_ctx *ctx, nrl_tensor *x, const char *what, nrl_work **work)
{
    nrl_comm_call call = {.size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = x, .what = what};
    return nrl_comm_all_reduce(comm, ctx, &call, work);
}

static nrl_status gather(tensor *t, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y, nrl_work **work)
{
    int64_t n = nrl_tensor_numel(x) * t->n;
    NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(x), 1, &n, y));
    nrl_comm_call call = {.size = sizeof call, .send = x, .receive = *y, .what = "statistics of the vocabulary"};
    return nrl_comm_all_gather(t->comm, ctx, &call, work);
}

/* ---- parts of the tokens ---- */

static int64_t first_token(const tensor *t, int64_t n, int32_t rank)
{
    return n / t->n * rank + (rank < n % t->n ? rank : n % t->n);
}

static void tensor_tokens(void *self, int64_t n, int64_t *begin, int64_t *end)
{
    const tensor *t = self;
    *begin = t->options.sequence ? first_token(t, n, t->rank) : 0;
    *end = t->options.sequence ? first_token(t, n, t->rank + 1) : n;
}

/* Elements of each rank in an exchange of n tokens. */
static void count_tokens(tensor *t, int64_t n, int64_t cols)
{
    for (int32_t r = 0; r < t->n; r++)
        t->counts[r] = (first_token(t, n, r + 1) - first_token(t, n, r)) * cols;
}

/* `whole` has rows for all tokens, `part` for those of this rank; *y is x, or the tensor to fill. */
typedef struct {
    nrl_tensor *whole, *part;
    int64_t n, begin, end; /* tokens, this rank's */
    int64_t cols;
} token_rows;

/* Sets the tensor that x is, and the other one. */
static nrl_status find_rows(tensor *t, nrl_ctx *ctx, bool x_is_whole, nrl_tensor *x, nrl_tensor **y, token_rows *out)
{
    const nrl_tensor *known = x_is_whole ? x : *y;
    int64_t dims[NRL_MAX_DIMS], n_dims = nrl_tensor_n_dims(x);
    *out = (token_rows){
        .n = known != x || x_is_whole ? nrl_tensor_dim(known, 0) : nrl_batch_n_tokens(nrl_ctx_batch(ctx)), .cols = 1};
    tensor_tokens(t, out->n, &out->begin, &out->end);
    for (int64_t d = 0; d < n_dims; d++)
        dims[d] = nrl_tensor_dim(x, (int)d);
    for (int64_t d = 1; d < n_dims; d++)
        out->cols *= dims[d];
    dims[0] = x_is_whole ? out->end - out->begin : out->n;
    if (*y == x) NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(x), (int)n_dims, dims, y));
    out->whole = x_is_whole ? x : *y;
    out->part = x_is_whole ? *y : x;
    count_tokens(t, out->n, out->cols);
    return NRL_OK;
}

/* y [N,C] = the rows x [n,C] of all ranks. */
static nrl_status gather_tokens(tensor *t, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y, const char *what,
                                nrl_work **work)
{
    token_rows rows;
    NRL_TRY(find_rows(t, ctx, false, x, y, &rows));
    nrl_comm_call call = {
        .size = sizeof call, .send = rows.part, .receive = rows.whole, .counts = t->counts, .what = what};
    return nrl_comm_all_gather(t->comm, ctx, &call, work);
}

/* y [n,C] = the rows of this rank's tokens in the sum of all ranks' x [N,C]. */
static nrl_status scatter_tokens(tensor *t, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y, const char *what,
                                 nrl_work **work)
{
    token_rows rows;
    NRL_TRY(find_rows(t, ctx, true, x, y, &rows));
    nrl_comm_call call = {.size = sizeof call,
                          .reduce = NRL_REDUCE_OP_SUM,
                          .send = rows.whole,
                          .receive = rows.part,
                          .counts = t->counts,
                          .what = what};
    return nrl_comm_reduce_scatter(t->comm, ctx, &call, work);
}

/* y [n,C] = the rows of this rank's tokens in x [N,C], which all ranks have. */
static nrl_status own_tokens(tensor *t, nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    token_rows rows;
    nrl_tensor *own;
    NRL_TRY(find_rows(t, ctx, true, x, y, &rows));
    NRL_TRY(nrl_tensor_slice(ctx, x, rows.begin * rows.cols, (rows.end - rows.begin) * rows.cols, &own));
    nrl_status st = nrl_tensor_copy(ctx, own, rows.part);
    nrl_tensor_free(ctx, own);
    return st;
}

/* The gradient of the hidden states, which are whole on each rank: WHOLE_IN drops the rows of other ranks' tokens, so
 * that only those of this rank are summed, in place. */
static nrl_status sum_own_tokens(tensor *t, nrl_ctx *ctx, nrl_tensor *x, nrl_work **work)
{
    count_tokens(t, nrl_tensor_dim(x, 0), nrl_tensor_dim(x, 1));
    nrl_comm_call call = {.size = sizeof call,
                          .reduce = NRL_REDUCE_OP_SUM,
                          .send = x,
                          .counts = t->counts,
                          .what = "gradient into the output layer"};
    return nrl_comm_reduce_scatter(t->comm, ctx, &call, work);
}

static nrl_status region_of_tokens(tensor *t, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                   nrl_tensor **y, nrl_work **work)
{
    switch (tp_region) {
    case NRL_TP_REGION_COLUMN_IN:
        return back ? scatter_tokens(t, ctx, x, y, "gradient into columns", work)
                    : gather_tokens(t, ctx, x, y, "columns", work);
    case NRL_TP_REGION_ROW_OUT:
        return back ? gather_tokens(t, ctx, x, y, "gradient of products with rows", work)
                    : scatter_tokens(t, ctx, x, y, "products with rows", work);
    case NRL_TP_REGION_EMBED_OUT:
        return back ? gather_tokens(t, ctx, x, y, "gradient of the embedding", work)
                    : scatter_tokens(t, ctx, x, y, "embedding", work);
    case NRL_TP_REGION_WHOLE_IN:
        return back ? own_tokens(t, ctx, x, y) : gather_tokens(t, ctx, x, y, "whole states", work);
    case NRL_TP_REGION_WHOLE_OUT:
        return back ? gather_tokens(t, ctx, x, y, "gradient of whole states", work) : own_tokens(t, ctx, x, y);
    default: /* HEAD_IN */
        return back ? sum_own_tokens(t, ctx, x, work) : NRL_OK;
    }
}

static nrl_status tensor_tp_region_begin(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                         nrl_tensor **y, nrl_work **work)
{
    tensor *t = self;
    if (t->n == 1) return NRL_OK;
    if (tp_region == NRL_TP_REGION_HEAD_STATS) return gather(t, ctx, x, y, work);
    if (tp_region == NRL_TP_REGION_SUM) return back ? NRL_OK : sum(t->comm, ctx, x, "partial sums", work);
    if (tp_region >= NRL_TP_REGION_COUNT)
        return nrl_fail(NRL_ERR_PLUGIN, "strategy 'tensor' has no tp_region %u", tp_region);
    if (t->options.sequence) return region_of_tokens(t, ctx, tp_region, back, x, y, work);
    switch (tp_region) {
    case NRL_TP_REGION_COLUMN_IN:
        return back ? sum(t->comm, ctx, x, "gradient into columns", work) : NRL_OK;
    case NRL_TP_REGION_HEAD_IN:
        return back ? sum(t->comm, ctx, x, "gradient into the output layer", work) : NRL_OK;
    case NRL_TP_REGION_ROW_OUT:
        return back ? NRL_OK : sum(t->comm, ctx, x, "products with rows", work);
    case NRL_TP_REGION_EMBED_OUT:
        return back ? NRL_OK : sum(t->comm, ctx, x, "embedding", work);
    default: /* WHOLE_IN, WHOLE_OUT */
        return NRL_OK;
    }
}

static nrl_status tensor_tp_region(void *self, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                   nrl_tensor **y)
{
    nrl_work *work = NULL;
    NRL_TRY(tensor_tp_region_begin(self, ctx, tp_region, back, x, y, &work));
    return nrl_work_wait(&work, ctx);
}

/* ---- gradients of which each rank has a part ---- */

static nrl_tensor *gradient_of(const nrl_param *p)
{
    nrl_tensor *grad = nrl_param_tensor(p, NRL_SLOT_GRAD_SHARD);
    return grad ? grad : nrl_param_tensor(p, NRL_SLOT_GRAD);
}

/* Created once, since slots keep their sizes. Another axis's flat shards are the same on every rank of this axis. */
static nrl_status make_buffer(partial_sums *p, nrl_ctx *ctx)
{
    int64_t n = 0, at = 0;
    for (int32_t i = 0; i < p->n; i++)
        if (gradient_of(p->params[i])) n += nrl_tensor_numel(gradient_of(p->params[i]));
    if (!n) return NRL_OK;
    NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, n, false, &p->buffer));
    for (int32_t i = 0; i < p->n; i++) {
        const nrl_tensor *grad = gradient_of(p->params[i]);
        int64_t size = grad ? nrl_tensor_numel(grad) : 0;
        if (!size) continue;
        NRL_TRY(nrl_tensor_slice(ctx, p->buffer, at, size, &p->views[i]));
        at += size;
    }
    return NRL_OK;
}

static nrl_status sum_gradients(partial_sums *p, nrl_ctx *ctx, const char *what)
{
    if (!p->buffer) NRL_TRY(make_buffer(p, ctx));
    if (!p->buffer) return NRL_OK;
    for (int32_t i = 0; i < p->n; i++)
        if (p->views[i]) NRL_TRY(nrl_tensor_copy(ctx, gradient_of(p->params[i]), p->views[i]));
    nrl_work *work = NULL;
    NRL_TRY(sum(p->comm, ctx, p->buffer, what, &work));
    NRL_TRY(nrl_work_wait(&work, ctx));
    for (int32_t i = 0; i < p->n; i++)
        if (p->views[i]) NRL_TRY(nrl_tensor_copy(ctx, p->views[i], gradient_of(p->params[i])));
    return NRL_OK;
}

/* Runs after the sums over the batch, which include the gradients whose parts are on this axis. */
static nrl_status tensor_finish(void *self, nrl_ctx *ctx)
{
    tensor *t = self;
    NRL_TRY(sum_gradients(&t->all, ctx, "gradients of norms"));
    return sum_gradients(&t->heads, ctx, "gradients of shared key/value heads");
}

static void unbind_sums(partial_sums *p, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < p->n; i++) {
        nrl_tensor_free(ctx, p->views[i]);
        p->views[i] = NULL;
    }
    nrl_tensor_free(ctx, p->buffer);
    p->buffer = NULL;
}

static void tensor_unbind(void *self, nrl_ctx *ctx)
{
    tensor *t = self;
    unbind_sums(&t->all, ctx);
    unbind_sums(&t->heads, ctx);
}

static const nrl_parallel tensor_table = {
    NRL_PLUGIN(NRL_KIND_PARALLEL, nrl_parallel, tensor_options, tensor_rows, "tensor", "0.1",
               "tensor parallelism: ranks share each layer: attention by heads, MLP by columns and rows, vocabulary "
               "by rows"),
    .plugin.priority = 100,
    .axis = &tensor_axis,
    .create = tensor_create,
    .destroy = tensor_destroy,
    .plan = tensor_plan,
    .unbind = tensor_unbind,
    .finish = tensor_finish,
    .tp_region = tensor_tp_region,
    .tokens = tensor_tokens,
    .tp_region_begin = tensor_tp_region_begin,
};
NRL_EXPORT(tensor_table)
