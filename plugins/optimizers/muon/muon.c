/*
 * muon.c - Muon (Jordan et al. 2024): steps of hidden matrices are momentum that is brought near the closest
 * semi-orthogonal matrix, by five steps of a Newton-Schulz iteration. Formulas and coefficients are those of
 * torch.optim.Muon, which computes the iteration in bf16; here it is f32.
 *   b += (1 - momentum) (g - b);  u = nesterov ? g + momentum (b - g) : b;  X = u / max(|u|, eps), wide side right
 *   A = X X^T;  X = 3.4445 X + (-4.7750 A + 2.0315 A A) X    five times
 *   w -= lr weight_decay w;  w -= lr ratio X    with ratio by adjust_lr
 * Embeddings, the output layer, norms and biases take steps of AdamW.
 */
#include "../common/betas.h"
#include "../common/vector.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_RMS_ADAMW = 0, ORIGINAL };

typedef struct {
    double momentum, weight_decay, eps, adamw_lr_ratio, adamw_eps;
    bool nesterov;
    int64_t ns_steps, adjust_lr;
    const nrl_node *adamw_betas, *adamw_for;
} muon_options;

static const nrl_option muon_rows[] = {
    NRL_OPT_F64(muon_options, momentum, "0.95", 0, 1, "decay per step of the running mean of gradients of matrices"),
    NRL_OPT_BOOL(muon_options, nesterov, "true", "Nesterov momentum"),
    NRL_OPT_INT(muon_options, ns_steps, "5", 1, 99, "steps of the Newton-Schulz iteration"),
    NRL_OPT_F64(muon_options, eps, "1e-7", 0, 1,
                "lower limit of the norm by which the momentum of a matrix is divided"),
    NRL_OPT_ENUM(muon_options, adjust_lr, "match_rms_adamw", "match_rms_adamw|original",
                 "learning rate of a matrix [R,C]: lr times 0.2 sqrt(max(R, C)), so that learning rates of AdamW can "
                 "be used; or lr times sqrt(max(1, R / C))"),
    NRL_OPT_F64(muon_options, weight_decay, "0.0", 0, 1e3,
                "weight decay of matrices: each step subtracts lr times this share of the weight; not for norms and "
                "biases"),
    NRL_OPT_NODE(muon_options, adamw_for, "[embed, wte, wpe, lm_head]",
                 "matrices whose name contains one of these are updated by AdamW, like vectors and matrices with a "
                 "row for each token of the vocabulary"),
    NRL_OPT_F64(muon_options, adamw_lr_ratio, "1.0", 0, 1e6, "the learning rate of AdamW is lr times this"),
    NRL_OPT_NODE(muon_options, adamw_betas, "[0.9, 0.999]", "decay per step of the running means of AdamW"),
    NRL_OPT_F64(muon_options, adamw_eps, "1e-8", 0, 1, "added to the square root of AdamW's second moment"),
};

typedef struct {
    const muon_options *options;
    nrl_adamw adamw;
} muon;

static nrl_status read_words(const nrl_node *list)
{
    if (!list) return NRL_OK;
    for (size_t i = 0; nrl_node_kind(list) == NRL_NODE_LIST && i < nrl_node_size(list); i++)
        if (!*nrl_node_string(nrl_node_at(list, i), ""))
            return nrl_fail(NRL_ERR_CONFIG,
                            "adamw_for: entry %zu is not a string; expected for example [embed, lm_head]", i + 1);
    if (nrl_node_kind(list) == NRL_NODE_LIST) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "adamw_for: expected a list of parts of names such as [embed, lm_head]");
}

static nrl_status muon_check(const void *options)
{
    const muon_options *o = options;
    double unused[2];
    NRL_TRY(read_words(o->adamw_for));
    nrl_status st = read_betas(o->adamw_betas, unused);
    if (st != NRL_OK) nrl_add_context("adamw_betas");
    return st;
}

static nrl_status muon_create(const void *options, void **self)
{
    const muon_options *o = options;
    double betas[2] = {0.9, 0.999};
    NRL_TRY(read_betas(o->adamw_betas, betas));
    muon *m = malloc(sizeof *m);
    if (!m) return nrl_fail(NRL_ERR_MEMORY, "out of memory for optimizer 'muon'");
    *m = (muon){o, {sizeof m->adamw, betas[0], betas[1], o->adamw_eps, o->weight_decay}};
    *self = m;
    return NRL_OK;
}

/* ---- which parameters ---- */

static bool is_named(const nrl_node *list, const char *name)
{
    static const char *const usual[] = {"embed", "wte", "wpe", "lm_head"};
    size_t n = list ? nrl_node_size(list) : sizeof usual / sizeof *usual;
    for (size_t i = 0; i < n; i++)
        if (strstr(name, list ? nrl_node_string(nrl_node_at(list, i), "") : usual[i])) return true;
    return false;
}

static bool is_hidden_matrix(const muon *m, const nrl_param *p, const nrl_part *part)
{
    return part->n_dims == 2 && nrl_param_tp(p) != NRL_TP_VOCAB && !is_named(m->options->adamw_for, part->name);
}

static nrl_status muon_declare(void *self, nrl_declaration *a)
{
    static const char *const names[] = {"exp_avg", "exp_avg_sq"};
    bool hidden = is_hidden_matrix(self, a->param, a->part);
    a->granularity = hidden ? NRL_OPTIMIZER_MATRIX : NRL_OPTIMIZER_ELEMENT;
    a->n_states = hidden ? 1 : 2;
    for (uint32_t k = 0; k < a->n_states; k++)
        a->states[k] = (nrl_state){
            .name = hidden ? "momentum_buffer" : names[k], .dtype = NRL_DTYPE_F32, .shape = NRL_STATE_ELEMENT};
    return NRL_OK;
}

/* ---- the update of a matrix ---- */

/* *y = x / max(norm of x, eps) */
static nrl_status normalize(nrl_ctx *ctx, nrl_tensor *x, double eps, nrl_tensor **y)
{
    nrl_tensor *norm;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, x, 0, 0, &norm));
    NRL_TRY(nrl_op_sum(ctx, norm, &norm));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQRT, norm, 0, 0, &norm));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_CLAMP, norm, eps, INFINITY, &norm));
    return nrl_op_binary(ctx, NRL_BINARY_DIV, x, norm, y);
}

/* x [R,C] with R <= C in place of *y */
static nrl_status newton_schulz_step(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    const double a = 3.4445, b = -4.7750, c = 2.0315;
    nrl_tensor *gram, *square;
    NRL_TRY(nrl_op_matmul(ctx, x, x, false, true, &gram));
    NRL_TRY(nrl_op_matmul(ctx, gram, gram, false, false, &square));
    NRL_TRY(vector_mix(ctx, b, gram, c, square, &gram));
    NRL_TRY(nrl_op_matmul(ctx, gram, x, false, false, &square));
    return vector_mix(ctx, a, x, 1, square, y);
}

/* Each step's tensors are freed before the next one. */
static nrl_status orthogonalize(const muon_options *o, nrl_ctx *ctx, nrl_tensor *x)
{
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < o->ns_steps && st == NRL_OK; i++) {
        nrl_tensor *y;
        nrl_scope_begin(ctx);
        st = newton_schulz_step(ctx, x, &y);
        if (st == NRL_OK) st = nrl_tensor_copy(ctx, y, x);
        nrl_scope_end(ctx);
    }
    return st;
}

static nrl_status update_matrix(const muon *m, nrl_ctx *ctx, nrl_slice *s, const nrl_step_params *step)
{
    const muon_options *o = m->options;
    const double rows = (double)vector_part(s)->dims[0], cols = (double)vector_part(s)->dims[1];
    const double ratio = o->adjust_lr == ORIGINAL ? sqrt(fmax(1, rows / cols)) : 0.2 * sqrt(fmax(rows, cols));
    const double decay = s->decay ? 1 - step->lr * o->weight_decay : 1;
    nrl_tensor *g, *u, *w;
    NRL_TRY(vector_scale(ctx, step->grad_scale, s->grad, &g));
    NRL_TRY(vector_mix(ctx, o->momentum, s->states[0], 1 - o->momentum, g, &u));
    NRL_TRY(nrl_tensor_copy(ctx, u, s->states[0]));
    if (o->nesterov) NRL_TRY(vector_mix(ctx, 1 - o->momentum, g, o->momentum, u, &u));
    NRL_TRY(nrl_op_reshape(ctx, u, 2, vector_part(s)->dims, &u));
    if (rows > cols) NRL_TRY(nrl_op_transpose(ctx, u, &u));
    NRL_TRY(normalize(ctx, u, o->eps, &u));
    NRL_TRY(orthogonalize(o, ctx, u));
    if (rows > cols) NRL_TRY(nrl_op_transpose(ctx, u, &u));
    NRL_TRY(nrl_op_reshape(ctx, u, 1, &s->n, &u));
    NRL_TRY(vector_mix(ctx, decay, s->master, -step->lr * ratio, u, &w));
    return vector_store(ctx, s, w);
}

static nrl_status muon_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                              const nrl_step_params *step)
{
    const muon *m = self;
    nrl_step_params adamw = *step;
    adamw.lr *= m->options->adamw_lr_ratio;
    for (int64_t i = 0; i < n_slices; i++) {
        nrl_slice *s = nrl_slice_at(slices, i, step);
        NRL_TRY(is_hidden_matrix(m, s->param, vector_part(s)) ? update_matrix(m, ctx, s, step)
                                                              : nrl_slice_adamw(ctx, s, &m->adamw, &adamw));
    }
    return NRL_OK;
}

static const nrl_optimizer table = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, muon_options, muon_rows, "muon", "0.1",
               "Muon: orthogonalized momentum for hidden matrices, AdamW for the rest"),
    .plugin.check = muon_check,
    .granularity = NRL_OPTIMIZER_MATRIX,
    .create = muon_create,
    .destroy = free,
    .declare = muon_declare,
    .update = muon_update,
};
NRL_EXPORT(table)
