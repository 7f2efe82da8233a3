/*
 * harness.c - see harness.h.
 */
#include "support/batch_check.h"
#include "harness.h"
#include <math.h>
#include <string.h>

enum { MAX_GOLDEN = 64 << 20 };

/* ---- the loss: sum of -log p over target positions ---- */

static nrl_status nll(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    (void)self;
    nrl_tensor *logps, *weights, *each, *sum;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &weights));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, logps, weights, &each));
    NRL_TRY(nrl_op_sum(ctx, each, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_NEG, sum, 0, 0, &sums[0]);
}

static const char *const needs[] = {"logps", NULL};

/* ---- opening ---- */

/* The backend that $NRL_TEST_BACKEND, a file among the plugins, names; else the CPU's. */
static const char *backend_name(parity *p)
{
    const char *file = getenv("NRL_TEST_BACKEND");
    if (!file) return "cpu";
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    return arena_printf(&p->a, "%.*s", (int)strcspn(name, "."), name);
}

/* One thread: the models are small, and tests run beside each other. */
static void open_backend(parity *p)
{
    config_problems problems = {0};
    nrl_node *map = node_new(&p->a, NRL_NODE_MAP);
    config_component c = {.name = backend_name(p), .options = map, .resolved = node_new(&p->a, NRL_NODE_MAP)};
    if (strcmp(c.name, "cpu") == 0) node_append(&p->a, map, "threads", node_int(&p->a, 1));
    const plugin *backend;
    void *options;
    p->host = plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
    plugin_instance(p->host, &p->a, &problems, NRL_KIND_BACKEND, "backend", &c, NULL, &backend, &options);
    ASSERT_OK(problems_report(&problems));
    ASSERT_OK(device_open((const nrl_backend *)backend->table, options, 0, &p->dev));
    ASSERT_OK(ctx_create(&p->dev, &p->ctx));
}

static nrl_status read_value(void *user, const nrl_param *param, int64_t begin, int64_t n, float *out)
{
    const parity *p = user;
    if (param->index >= p->m->n_own) return weights_read_tensor(p->adapter->w, param->name, begin, n, out);
    return weights_read(p->weights, p->m, param, begin, n, out);
}

static void open_model(parity *p, const char *config_name, nrl_dtype dtype)
{
    const nrl_node *config;
    const nrl_model *table;
    ASSERT_OK(weights_read_config(test_formats(), arena_printf(&p->a, "%s/%s", p->dir, config_name), &p->a, &config));
    ASSERT_OK(model_find(p->host, config, &table));
    ASSERT_OK(model_create(table, config, &p->m));
    ASSERT_OK(test_weights_open(p->dir, &p->weights));
    ASSERT_OK(weights_check(p->weights, p->m));
    if (p->adapter) ASSERT_OK(model_adapt(p->m, &p->adapter->set));
    if (p->adapter) ASSERT_OK(weights_check_adapters(p->adapter->w, p->m));
    ctx_settings_of(p->ctx)->compute = dtype;
    const storage_spec spec = {.compute = dtype, .train = true, .n_states = 2};
    ASSERT_OK(storage_bind(p->ctx, p->m, &spec, &p->store));
    ASSERT_OK(storage_load(p->ctx, p->m, NULL, read_value, p));
}

static void open_walk(parity *p)
{
    p->loss = (nrl_algorithm){.needs = needs, .n_terms = 1, .tokenwise = true, .loss = nll};
    p->loss.plugin.name = "nll";
    p->walk = (work){.ctx = p->ctx, .policy = p->m, .algorithm = &p->loss};
    p->walk.recompute = arena_alloc(&p->a, (size_t)p->m->n_units * sizeof(bool));
    work_open(&p->walk);
    ASSERT_OK(tensor_persistent(p->ctx, NRL_DTYPE_F32, 1, (int64_t[]){1}, true, &p->walk.seeds[0]));
}

static void open_all(parity *p, const char *dir, const char *config, nrl_dtype dtype)
{
    p->dir = arena_strdup(&p->a, dir);
    open_backend(p);
    open_model(p, config, dtype);
    open_walk(p);
    nrl_node *golden;
    if (json_read_file(&p->a, arena_printf(&p->a, "%s/golden.json", dir), MAX_GOLDEN, &golden) == NRL_OK)
        p->golden = golden;
}

void parity_open(parity *p, const char *dir, const char *config, nrl_dtype dtype)
{
    *p = (parity){0};
    open_all(p, dir, config, dtype);
}

void parity_open_adapted(parity *p, const char *dir, const test_adapter *start, nrl_dtype dtype)
{
    *p = (parity){.adapter = start};
    open_all(p, dir, "config.json", dtype);
}

void parity_close(parity *p)
{
    ctx_set_batch(p->ctx, NULL);
    work_close(&p->walk);
    storage_free(p->ctx, p->m, &p->store);
    model_destroy(p->m);
    weights_close(p->weights);
    ctx_destroy(p->ctx);
    device_close(&p->dev);
    plugin_host_destroy(p->host);
    arena_free(&p->a);
}

const char *parity_model_dir(arena *a, const char *name)
{
    return arena_printf(a, "%s/tests/data/models/%s", getenv("NRL_TEST_SOURCE"), name);
}

double parity_item(const nrl_node *list, size_t i)
{
    double x = nrl_node_f64(nrl_node_at(list, i), NAN);
    assert_false(isnan(x));
    return x;
}

double parity_number(const nrl_node *map, const char *key)
{
    double x = nrl_node_f64(nrl_node_find(map, key), NAN);
    if (isnan(x)) fail_msg("no number '%s'", key);
    return x;
}

/* ---- batches ---- */

static void add_segment(nrl_batch *b, int64_t s, const int32_t *ids, const bool *scored, int32_t n)
{
    int32_t at = b->cu_seqlens[s];
    for (int32_t i = 0; i < n; i++) {
        b->tokens[at + i] = ids[i];
        b->positions[at + i] = i;
        if (!i || (scored && !scored[i])) continue;
        b->row_token[b->n_rows] = at + i - 1;
        b->row_target[b->n_rows] = ids[i];
        b->row_segment[b->n_rows] = (int32_t)s;
        b->row_weight[b->n_rows++] = 1;
    }
    b->cu_seqlens[s + 1] = at + n;
    b->segment_example[s] = (int32_t)s;
}

static nrl_batch *empty_batch(int64_t n_tokens, int64_t n_segments)
{
    nrl_batch *b = batch_new(n_tokens, n_tokens, n_segments);
    b->n_rows = 0; /* grows as rows are added */
    b->n_examples = n_segments;
    return b;
}

nrl_batch *parity_batch(int n, const int32_t *const *ids, const int32_t *lengths)
{
    int64_t total = 0;
    for (int i = 0; i < n; i++)
        total += lengths[i];
    nrl_batch *b = empty_batch(total, n);
    for (int i = 0; i < n; i++)
        add_segment(b, i, ids[i], NULL, lengths[i]);
    ASSERT_OK(batch_check(b, INT32_MAX));
    return b;
}

nrl_batch *parity_golden_batch(const parity *p, int first, int end, score what)
{
    const nrl_node *lengths = nrl_node_find(p->golden, "lengths");
    const nrl_node *rows = nrl_node_find(p->golden, "input_ids");
    const nrl_node *labels = nrl_node_find(p->golden, "labels");
    int64_t total = 0;
    for (int i = first; i < end; i++)
        total += nrl_node_int(nrl_node_at(lengths, (size_t)i), 0);
    nrl_batch *b = empty_batch(total, end - first);
    for (int s = first; s < end; s++) {
        int32_t ids[512], n = (int32_t)nrl_node_int(nrl_node_at(lengths, (size_t)s), 0);
        bool scored[512];
        assert_true(n > 0 && n <= 512);
        for (int32_t i = 0; i < n; i++) {
            ids[i] = (int32_t)parity_item(nrl_node_at(rows, (size_t)s), (size_t)i);
            scored[i] = what == SCORE_ALL || parity_item(nrl_node_at(labels, (size_t)s), (size_t)i) >= 0;
        }
        add_segment(b, s - first, ids, scored, n);
    }
    ASSERT_OK(batch_check(b, p->m->info.vocab_size));
    return b;
}

/* ---- computing ---- */

static double *fetch(parity *p, const nrl_tensor *t)
{
    int64_t n = nrl_tensor_numel(t);
    double *out = mem_alloc((size_t)n * sizeof *out);
    ASSERT_OK(nrl_tensor_fetch(p->ctx, t, out, n));
    return out;
}

/* What the head is asked of the hidden states, and its answer. */
typedef struct {
    parity *p;
    const int32_t *rows; /* NULL: log-probs of the target positions */
    int64_t n;
    double *out;
} question;

static nrl_status ask_head(void *user, nrl_tensor *hidden)
{
    question *q = user;
    const head_spec *head = &q->p->m->head;
    head_tensors v;
    if (q->rows)
        NRL_TRY(head_logits(q->p->ctx, head, hidden, q->rows, q->n, &v.logps));
    else
        NRL_TRY(head_columns(q->p->ctx, head, hidden, HEAD_LOGP, 1, &v));
    q->out = fetch(q->p, v.logps);
    return NRL_OK;
}

double *parity_logps(parity *p, nrl_batch *batch)
{
    question q = {.p = p};
    ASSERT_OK(work_hidden(&p->walk, batch, ask_head, &q));
    return q.out;
}

double *parity_logits(parity *p, nrl_batch *batch, const int32_t *rows, int64_t n)
{
    question q = {.p = p, .rows = rows, .n = n};
    ASSERT_OK(work_hidden(&p->walk, batch, ask_head, &q));
    return q.out;
}

/* GRAD / scale, a power of two. */
static void unscale(parity *p, nrl_param *param, double scale)
{
    double *grad = parity_tensor(p, param, NRL_SLOT_GRAD);
    float *narrow = mem_alloc((size_t)param->numel * sizeof *narrow);
    for (int64_t i = 0; i < param->numel; i++)
        narrow[i] = (float)(grad[i] / scale);
    ASSERT_OK(tensor_write(p->ctx, nrl_param_tensor(param, NRL_SLOT_GRAD), narrow));
    free(narrow);
    free(grad);
}

double parity_train(parity *p, nrl_batch *batch, double weight)
{
    nrl_dtype compute = nrl_tensor_dtype(nrl_param_tensor(p->m->params[0], NRL_SLOT_WEIGHT));
    double scale = compute == NRL_DTYPE_F16 ? 4096 : 1; /* as the loss scale of a run */
    float seed = (float)(scale / weight);
    nrl_tensor *totals[NRL_MAX_TERMS] = {0};
    double sum;
    for (int32_t i = 0; i < p->m->n_params; i++)
        nrl_param_set_grad_is_empty(p->m->params[i], true);
    ASSERT_OK(tensor_write(p->ctx, p->walk.seeds[0], &seed));
    ASSERT_OK(work_schedule(&p->walk, 1, 0));
    ASSERT_OK(work_train(&p->walk, &batch, totals));
    ASSERT_OK(nrl_tensor_fetch(p->ctx, totals[0], &sum, 1));
    tensor_release(p->ctx, totals[0]);
    for (int32_t i = 0; i < p->m->n_params && scale != 1; i++)
        if (p->m->params[i]->trained) unscale(p, p->m->params[i], scale);
    return sum;
}

void parity_adamw(parity *p, const nrl_adamw *adamw, double lr, double scale, int64_t step)
{
    nrl_step_params block = {sizeof block, step, lr, scale, sizeof(nrl_slice), 0, 0};
    for (int32_t i = 0; i < p->m->n_params; i++) {
        nrl_param *param = p->m->params[i];
        if (!param->trained) continue;
        nrl_tensor *master = nrl_param_tensor(param, NRL_SLOT_MASTER);
        nrl_tensor *low = nrl_param_tensor(param, NRL_SLOT_WEIGHT);
        nrl_slice s = {.param = param,
                       .n = param->numel,
                       .master = master,
                       .decay = param->decay,
                       .grad = nrl_param_tensor(param, NRL_SLOT_GRAD),
                       .states = {nrl_param_tensor(param, NRL_SLOT_STATE0), nrl_param_tensor(param, NRL_SLOT_STATE1)},
                       .work = low == master ? NULL : low};
        ASSERT_OK(nrl_slice_adamw(p->ctx, &s, adamw, &block));
        nrl_param_touch(param);
    }
}

double *parity_tensor(parity *p, const nrl_param *param, nrl_slot slot)
{
    return fetch(p, nrl_param_tensor(param, slot));
}

double parity_l2(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}
