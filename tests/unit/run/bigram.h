/*
 * bigram.h - what a trainer, an evaluator and the state of a run work with, opened without a run, a config or files: a
 * model of two matrices whose loss and gradient are computed here as well.
 *
 * Legend: V words, D width, P target positions.
 */
#ifndef RUN_BIGRAM_H
#define RUN_BIGRAM_H
#include "run/step/trainer.h"
#include "run/walk/storage.h"
#include "support/backend.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { V = 5, D = 3, N_MICRO = 2 };
static const double lr = 0.25;

/* ---- the parts: logits of the next word = head [V,D] * the row of embed [V,D] ---- */

typedef struct {
    nrl_param *embed, *head;
} bigram;

static inline nrl_status bigram_create(const nrl_node *config, void **self)
{
    (void)config;
    *self = calloc(1, sizeof(bigram));
    return NRL_OK;
}

static inline nrl_status bigram_layout(void *self, nrl_builder *b)
{
    bigram *m = self;
    int32_t unit;
    const int64_t width = D;
    const nrl_param_spec embed = {.size = sizeof embed, .name = "embed", .n_dims = 2, .dims = {V, D}};
    const nrl_param_spec head = {.size = sizeof head, .name = "head", .n_dims = 2, .dims = {V, D}};
    const nrl_model_info info = {.size = sizeof info, .vocab_size = V, .width = D, .n_layers = 1};
    NRL_TRY(nrl_build_unit(b, "all", &unit));
    NRL_TRY(nrl_build_param(b, unit, &embed, &m->embed));
    NRL_TRY(nrl_build_param(b, unit, &head, &m->head));
    NRL_TRY(nrl_build_carry(b, 1, &width));
    NRL_TRY(nrl_build_info(b, &info));
    const nrl_head_spec output = {.size = sizeof output, .weight = m->head, .scale = 1};
    return nrl_build_head(b, &output);
}

static inline nrl_status bigram_forward(void *self, nrl_ctx *ctx, int32_t unit, nrl_carry *carry)
{
    (void)unit;
    carry->n = 1;
    return nrl_op_embedding(ctx, ((bigram *)self)->embed, &carry->tensors[0]);
}

/* The negative log-likelihood, times a factor that a test may set. */
static inline void nll_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

static inline nrl_status nll_loss(void *factor, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_tensor *logps;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_op_sum(ctx, logps, &sums[0]));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, sums[0], -*(double *)factor, 0, &sums[0]);
}

static inline nrl_status descend(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                                 const nrl_step_params *step)
{
    (void)self;
    (void)ctx;
    for (int64_t i = 0; i < n_slices; i++) {
        const nrl_slice *s = nrl_slice_at(slices, i, step);
        float *w = nrl_tensor_mat(s->master).data;
        const float *g = nrl_tensor_mat(s->grad).data;
        for (int64_t k = 0; k < s->n; k++)
            w[k] -= (float)(step->lr * step->grad_scale * g[k]);
    }
    return NRL_OK;
}

static const nrl_model bigram_table = {.plugin = {.size = sizeof(nrl_model), .name = "bigram"},
                                       .create = bigram_create,
                                       .destroy = free,
                                       .layout = bigram_layout,
                                       .forward = bigram_forward};
static const char *const nll_needs[] = {"logps", NULL};
static const nrl_algorithm nll = {.plugin = {.size = sizeof(nrl_algorithm), .name = "nll"},
                                  .needs = nll_needs,
                                  .n_terms = 1,
                                  .weight = nll_weight,
                                  .loss = nll_loss};
static const nrl_optimizer descent = {.plugin = {.size = sizeof(nrl_optimizer), .name = "descent"},
                                      .granularity = NRL_OPTIMIZER_ELEMENT,
                                      .update = descend};

/* ---- the fixture ---- */

typedef struct {
    device device;
    nrl_ctx *ctx;
    nrl_mesh *mesh;
    model *model;
    storage storage;
    strategy strategy; /* none */
    update_plan updates;
    work work;
    bool recompute[1];
    double factor; /* of the loss */
    config_train config;
    data_shards shards;
    metric_rows metrics; /* none */
    hooks hooks;
    telemetry telemetry;
    nrl_batch *batches[N_MICRO];
    trainer trainer;
} fixture;

static const int32_t words[N_MICRO][5] = {{1, 2, 0, 4, 3}, {3, 3, 1, 2, 0}};
static const int64_t n_words[N_MICRO] = {5, 3}; /* micro-batches of 4 and 2 target positions */

static inline nrl_status initial(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    (void)user;
    uint64_t state = (unsigned char)p->name[0];
    for (int64_t i = 0; i < begin + n; i++) {
        double x = test_uniform(&state);
        if (i >= begin) out[i - begin] = (float)x;
    }
    return NRL_OK;
}

static inline nrl_batch *make_batch(const int32_t *tokens, int64_t n)
{
    nrl_batch *b = batch_new(n, n - 1, 1);
    assert_non_null(b);
    b->n_examples = 1;
    b->cu_seqlens[0] = 0;
    b->cu_seqlens[1] = (int32_t)n;
    b->segment_example[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        b->tokens[i] = tokens[i];
        b->positions[i] = (int32_t)i;
    }
    for (int32_t i = 0; i + 1 < n; i++) {
        b->row_token[i] = i;
        b->row_target[i] = tokens[i + 1];
        b->row_segment[i] = 0;
        b->row_weight[i] = 1;
    }
    return b;
}

static inline int set_up(void **state)
{
    static const mesh_setup one = {.axes = {{"data", 1, NRL_DIVIDES_BATCH}}, .n_axes = 1};
    static const nrl_node config = {.kind = NRL_NODE_MAP};
    static const storage_spec spec = {.compute = NRL_DTYPE_F32, .train = true};
    fixture *f = *state = calloc(1, sizeof *f);
    if (!test_device_open(&f->device) || mesh_open(&one, &f->mesh) || ctx_create(&f->device, &f->ctx)) return 1;
    ctx_settings_of(f->ctx)->compute = NRL_DTYPE_F32;
    f->factor = 1;
    f->shards.n = 1;
    f->config.scale.init = 1;
    if (model_create(&bigram_table, &config, &f->model) || updates_declare(&descent, NULL, f->model, &f->updates) ||
        storage_bind(f->ctx, f->model, &spec, &f->storage) || storage_load(f->ctx, f->model, NULL, initial, NULL))
        return 1;
    updates_place(&f->updates, f->mesh);
    f->work = (work){.ctx = f->ctx,
                     .policy = f->model,
                     .algorithm = &nll,
                     .algorithm_self = &f->factor,
                     .strategy = &f->strategy,
                     .recompute = f->recompute};
    work_open(&f->work);
    for (int m = 0; m < N_MICRO; m++)
        f->batches[m] = make_batch(words[m], n_words[m]);
    return updates_bind(&f->updates, f->ctx);
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    trainer_close(&f->trainer);
    ctx_set_batch(f->ctx, NULL);
    for (int m = 0; m < N_MICRO; m++)
        batch_free(f->batches[m]);
    work_close(&f->work);
    updates_unbind(&f->updates, f->ctx);
    storage_free(f->ctx, f->model, &f->storage);
    ctx_destroy(f->ctx);
    device_close(&f->device);
    updates_close(&f->updates);
    model_destroy(f->model);
    mesh_close(f->mesh);
    free(f);
    return 0;
}

static inline trainer *open_trainer(fixture *f, double clip_norm)
{
    const trainer_parts parts = {.work = &f->work,
                                 .updates = &f->updates,
                                 .mesh = f->mesh,
                                 .shards = &f->shards,
                                 .device = &f->device.info,
                                 .config = &f->config,
                                 .metrics = &f->metrics,
                                 .compute = NRL_DTYPE_F32,
                                 .clip_norm = clip_norm,
                                 .hooks = &f->hooks,
                                 .telemetry = &f->telemetry};
    trainer_open(&f->trainer, &parts);
    f->trainer.lr_override = lr; /* in the place of a schedule */
    assert_int_equal(trainer_ready(&f->trainer, NULL), NRL_OK);
    return &f->trainer;
}

static inline nrl_status take_step(fixture *f, nrl_run_event *e, bool *done)
{
    const data_step data = {.micro_batch = f->batches, .n_micro_batches = N_MICRO};
    const step_input in = {.data = &data};
    *e = (nrl_run_event){0};
    return trainer_step(&f->trainer, &in, e, done);
}

/* ---- what is expected ---- */

typedef struct {
    double embed[V][D], head[V][D];
} matrices;

static inline matrices read_weights(const fixture *f)
{
    matrices m;
    const float *embed = nrl_tensor_mat(nrl_param_tensor(model_param(f->model, "embed"), NRL_SLOT_WEIGHT)).data;
    const float *head = nrl_tensor_mat(nrl_param_tensor(model_param(f->model, "head"), NRL_SLOT_WEIGHT)).data;
    for (int i = 0; i < V * D; i++) {
        m.embed[i / D][i % D] = embed[i];
        m.head[i / D][i % D] = head[i];
    }
    return m;
}

/* The mean over the target positions of both micro-batches, and its gradient. */
static inline double loss_of(const matrices *w, matrices *gradient)
{
    double loss = 0;
    const double n = (double)(n_words[0] + n_words[1] - 2);
    *gradient = (matrices){0};
    for (int m = 0; m < N_MICRO; m++)
        for (int64_t i = 0; i + 1 < n_words[m]; i++) {
            const int32_t from = words[m][i], to = words[m][i + 1];
            double logits[V], sum = 0;
            for (int v = 0; v < V; v++) {
                logits[v] = 0;
                for (int d = 0; d < D; d++)
                    logits[v] += w->head[v][d] * w->embed[from][d];
                sum += exp(logits[v]);
            }
            loss -= (logits[to] - log(sum)) / n;
            for (int v = 0; v < V; v++) {
                const double slope = (exp(logits[v]) / sum - (v == to)) / n;
                for (int d = 0; d < D; d++) {
                    gradient->head[v][d] += slope * w->embed[from][d];
                    gradient->embed[from][d] += slope * w->head[v][d];
                }
            }
        }
    return loss;
}

static inline double norm_of(const matrices *m)
{
    double sum = 0;
    for (int i = 0; i < V * D; i++)
        sum += m->embed[i / D][i % D] * m->embed[i / D][i % D] + m->head[i / D][i % D] * m->head[i / D][i % D];
    return sqrt(sum);
}

static inline void assert_near(double is, double expected, double tolerance)
{
    if (!(fabs(is - expected) <= tolerance)) fail_msg("%.9g, expected %.9g", is, expected);
}

#endif
