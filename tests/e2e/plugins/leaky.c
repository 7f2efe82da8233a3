/*
 * leaky.c - sft that keeps memory: `mib` of tensors or of malloc in each step, or once; or a work space of that size
 * for each token of the largest batch so far, as kernels have it, which is no leak.
 */
#include <nrl/expr.h>
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t what, once; /* WHAT_*; 0, or the step at which all is kept at once */
    double mib;
} leaky_options;
enum { WHAT_TENSORS = 0, WHAT_HEAP, WHAT_WORKSPACE };

static const nrl_option leaky_rows[] = {
    NRL_OPT_ENUM(leaky_options, what, "tensors", "tensors|heap|workspace", "what is kept"),
    NRL_OPT_INT(leaky_options, once, "0", 0, 1000, "0: in each step; else only in this one"),
    NRL_OPT_F64(leaky_options, mib, "1", 0, 1000, "how much"),
};

typedef struct {
    leaky_options o;
    int64_t step;
    void *kept; /* so that a leak checker does not count it: a chain */
    bool due;
    double tokens; /* of the largest batch */
} leaky;

static nrl_status leaky_create(const void *options, void **self)
{
    leaky *l = calloc(1, sizeof *l);
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "leaky");
    l->o = *(const leaky_options *)options;
    l->due = true;
    *self = l;
    return NRL_OK;
}

static void leaky_destroy(void *self)
{
    leaky *l = self;
    while (l->kept) {
        void *next = *(void **)l->kept;
        free(l->kept);
        l->kept = next;
    }
    free(l);
}

static void leaky_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

static nrl_status keep(leaky *l, nrl_ctx *ctx, double tokens)
{
    const double more_tokens = tokens > l->tokens ? tokens - l->tokens : 0;
    const size_t bytes = (size_t)(l->o.mib * 1048576 * (l->o.what == WHAT_WORKSPACE ? more_tokens : 1));
    nrl_tensor *t;
    l->tokens += more_tokens;
    l->due = false;
    l->step++;
    if (l->o.once && l->o.once != l->step) return NRL_OK;
    if (l->o.what == WHAT_TENSORS) return nrl_tensor_persistent(ctx, NRL_DTYPE_F32, (int64_t)(bytes / 4), true, &t);
    void *more = malloc(bytes + sizeof(void *));
    if (!more) return nrl_fail(NRL_ERR_MEMORY, "leaky");
    memset(more, 1, bytes);
    *(void **)more = l->kept;
    l->kept = more;
    return NRL_OK;
}

static nrl_status leaky_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    leaky *l = self;
    nrl_exprs e = {ctx, NRL_OK};
    if (l->due) NRL_TRY(keep(l, ctx, nrl_batch_count(batch, "tokens")));
    return e_store(e_neg(e_sum(e_mul(e_column(&e, batch, "logps"), e_column(&e, batch, "weights")))), &sums[0]);
}

static nrl_status leaky_step_end(void *self, const double *sums, const double *weights)
{
    (void)sums, (void)weights;
    ((leaky *)self)->due = true;
    return NRL_OK;
}

static const char *const leaky_needs[] = {"logps", NULL};

static const nrl_algorithm table = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, leaky_options, leaky_rows, "leaky", "1.0", "keeps memory"),
    .needs = leaky_needs,
    .n_terms = 1,
    .create = leaky_create,
    .destroy = leaky_destroy,
    .weight = leaky_weight,
    .loss = leaky_loss,
    .step_end = leaky_step_end,
};
NRL_EXPORT(table)
