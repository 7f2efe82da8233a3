/*
 * adapter.c - rules for every adapter: an instance needs nothing but its settings, gradients agree
 * with finite differences, the merged weight gives the same product, and divided over ranks an
 * adapter computes the result of one rank.
 */
#include "base/json.h"
#include "compute.h"
#include "model/model.h"
#include "tensor/ctx.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, SIDE = 24, N_TARGETS = 5, N_RANKS = 2, MAX_TENSORS = 2 * (NRL_ADAPTER_MAX_PARAMS + 2) };
enum { MAX_VALUES = 4096 }; /* values of one parameter */

/* Finite differences of an f32 product over a step of STEP. */
#define STEP 1e-2
#define GRADIENT_RELATIVE 1e-2
#define GRADIENT_ABSOLUTE 2e-3
#define PRODUCT_ERROR 1e-4 /* relative and absolute: sums of SIDE products of numbers near 1, in another order */

/* A target as a later version of the header may declare it. */
typedef struct {
    nrl_adapter_target target;
    int64_t more[3];
} wide_target;

static const nrl_adapter_target targets[N_TARGETS] = {
    {sizeof *targets, NRL_TP_COLUMN, "model.layers.0.self_attn.q_proj", 24, 16, 1, 0},
    {sizeof *targets, NRL_TP_ROW, "model.layers.0.self_attn.o_proj", 16, 24, 1, 0},
    {sizeof *targets, NRL_TP_COLUMN, "model.layers.0.attn.c_attn", 24, 12, 3, 0},
    {sizeof *targets, NRL_TP_NONE, "model.layers.0.mlp.up_proj", 20, 16, 1, 0},
    {sizeof *targets, NRL_TP_ROW, "model.layers.0.mlp.down_proj", 16, 20, 1, 0},
};
static const char *const others[] = {"model.embed_tokens", "lm_head"};

typedef struct {
    const nrl_adapter *table;
    const void *options;
    conformance_report *report;
    compute compute;
    arena memory;
    nrl_node *settings; /* chosen for all targets that match the options */
    adapter_set set;
} suite;

/* One module: its weight, and the parameters that the adapter declares for it, in full size. */
typedef struct {
    int32_t module;
    const nrl_adapter_target *target;
    nrl_adapter_builder declared;
    float *values[NRL_ADAPTER_MAX_PARAMS];
    int64_t numel[NRL_ADAPTER_MAX_PARAMS];
    float w[SIDE * SIDE], bias[SIDE], x[ROWS * SIDE], c[ROWS * SIDE];
} subject;

/* The results of one rank after forward and backward of sum(c y). */
typedef struct {
    float y[ROWS * SIDE], dx[ROWS * SIDE];
    float *grad[NRL_ADAPTER_MAX_PARAMS]; /* like values, but only the share of the rank */
    int64_t outputs, inputs;             /* of the share of the rank */
} outcome;

typedef struct {
    bool has_bias;
    int32_t rank, n_ranks;
    uint64_t random; /* 0 = no random numbers */
} course;

static nrl_adapter_model scope_of(const void *list, uint32_t stride)
{
    return (nrl_adapter_model){.size = sizeof(nrl_adapter_model),
                               .target_size = stride,
                               .section = "adapter",
                               .targets = list,
                               .n_targets = N_TARGETS,
                               .others = others,
                               .n_others = 2};
}

/* ---- shares of ranks ---- */

/* The index in the full dimension of element i of a rank's share. */
static int64_t whole_index(int64_t i, int64_t size, int64_t groups, const course *c)
{
    int64_t group = size / groups, share = group / c->n_ranks;
    return i / share * group + c->rank * share + i % share;
}

/* Copies the rank's share of a matrix [rows, cols] that is divided along `dim` (-1: undivided);
 * returns its size. */
static int64_t take_share(const float *whole, int64_t rows, int64_t cols, int dim, int64_t groups, const course *c,
                          float *out)
{
    int64_t m = dim == 0 ? rows / c->n_ranks : rows, n = dim == 1 ? cols / c->n_ranks : cols;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            out[i * n + j] = whole[(dim == 0 ? whole_index(i, rows, groups, c) : i) * cols +
                                   (dim == 1 ? whole_index(j, cols, 1, c) : j)];
    return m * n;
}

static int dim_of(uint32_t tp)
{
    return tp == NRL_TP_COLUMN ? 0 : tp == NRL_TP_ROW ? 1 : -1;
}

static int64_t cols_of(const nrl_param_spec *s)
{
    return s->n_dims > 1 ? s->dims[1] : 1;
}

/* ---- one forward and backward ---- */

typedef struct {
    nrl_param w, bias, params[NRL_ADAPTER_MAX_PARAMS];
    nrl_part parts[NRL_ADAPTER_MAX_PARAMS + 2];
    nrl_tensor *tensors[MAX_TENSORS];
    int n_tensors;
    nrl_adapter_site site;
} bound;

static nrl_status bind_param(suite *s, bound *b, nrl_param *p, nrl_part *part, const char *name, int n_dims,
                             const int64_t *dims, const float *values, bool trained)
{
    nrl_ctx *ctx = s->compute.ctx;
    param_init(p, part, name, n_dims, dims);
    p->trained = trained;
    for (int k = 0; k < (trained ? 2 : 1); k++) {
        nrl_tensor *t;
        NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, n_dims, dims, true, &t));
        b->tensors[b->n_tensors++] = t;
        nrl_param_bind(p, k ? NRL_SLOT_GRAD : NRL_SLOT_WEIGHT, t);
        if (!k) NRL_TRY(tensor_write(ctx, t, values));
    }
    nrl_param_set_grad_is_empty(p, true);
    return NRL_OK;
}

static nrl_status bind_all(suite *s, void *self, const subject *x, const course *c, bound *b)
{
    const nrl_adapter_target *t = x->target;
    int dim = dim_of(t->tp);
    float share[MAX_VALUES];
    int64_t dims[2] = {t->outputs / (dim == 0 ? c->n_ranks : 1), t->inputs / (dim == 1 ? c->n_ranks : 1)};
    take_share(x->w, t->outputs, t->inputs, dim, t->groups, c, share);
    NRL_TRY(bind_param(s, b, &b->w, &b->parts[0], "weight", 2, dims, share, false));
    b->parts[0].dims[0] = t->outputs;
    b->parts[0].dims[1] = t->inputs;
    b->w.first[0] = dim == 0 ? c->rank * dims[0] : 0;
    b->w.first[1] = dim == 1 ? c->rank * dims[1] : 0;
    take_share(x->bias, t->outputs, 1, dim == 0 ? 0 : -1, t->groups, c, share);
    NRL_TRY(bind_param(s, b, &b->bias, &b->parts[1], "bias", 1, dims, share, false));
    b->site = (nrl_adapter_site){.table = s->table, .self = self, .module = x->module, .weight = &b->w};
    for (int32_t i = 0; i < x->declared.n; i++) {
        const nrl_param_spec *spec = &x->declared.specs[i];
        int64_t own[NRL_MAX_DIMS] = {spec->dims[0], spec->dims[1]}, cut = dim_of(spec->tp);
        if (cut >= 0) own[cut] /= c->n_ranks;
        take_share(x->values[i], spec->dims[0], cols_of(spec), (int)cut, spec->groups > 1 ? spec->groups : 1, c, share);
        NRL_TRY(bind_param(s, b, &b->params[i], &b->parts[2 + i], spec->name, spec->n_dims, own, share, true));
        b->site.params[b->site.n++] = &b->params[i];
    }
    b->w.adapter = &b->site;
    return NRL_OK;
}

static nrl_status walk(suite *s, const subject *x, const course *c, bound *b, outcome *out)
{
    nrl_ctx *ctx = s->compute.ctx;
    nrl_harness *h = s->compute.harness;
    const nrl_adapter_target *t = x->target;
    int dim = dim_of(t->tp);
    float share[ROWS * SIDE], before[SIDE * SIDE];
    nrl_tensor *input, *y, *seed, *dx = NULL;
    out->outputs = b->w.dims[0];
    out->inputs = b->w.dims[1];
    take_share(x->x, ROWS, t->inputs, dim == 1 ? 1 : -1, 1, c, share);
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){ROWS, out->inputs}, share, &input));
    for (int64_t i = 0; i < ROWS; i++) /* columns of y are divided like rows of W */
        for (int64_t j = 0; j < out->outputs; j++)
            share[i * out->outputs + j] =
                x->c[i * t->outputs + (dim == 0 ? whole_index(j, t->outputs, t->groups, c) : j)];
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){ROWS, out->outputs}, share, &seed));
    NRL_TRY(tensor_read(ctx, b->tensors[0], before));
    nrl_harness_leaf(input);
    nrl_harness_record(h);
    ctx_set_random(ctx, c->random);
    nrl_status st = nrl_op_linear(ctx, input, &b->w, c->has_bias ? &b->bias : NULL, &y);
    ctx_set_random(ctx, 0);
    nrl_harness_stop(h);
    if (st == NRL_OK && (nrl_tensor_numel(y) != ROWS * out->outputs || nrl_tensor_dim(y, -1) != out->outputs))
        st = nrl_fail(NRL_ERR_PLUGIN, "the product has %lld columns, expected %lld", (long long)nrl_tensor_dim(y, -1),
                      (long long)out->outputs);
    if (st == NRL_OK) st = tensor_read(ctx, y, out->y);
    if (st == NRL_OK) st = nrl_harness_backward(h, &y, &seed, 1, &input, &dx, 1);
    if (st == NRL_OK && dx) st = tensor_read(ctx, dx, out->dx);
    nrl_tensor_free(ctx, dx);
    for (int32_t i = 0; i < x->declared.n && st == NRL_OK; i++) {
        out->grad[i] = arena_alloc(&s->memory, (size_t)x->numel[i] * sizeof(float));
        if (!nrl_param_grad_is_empty(&b->params[i]))
            st = tensor_read(ctx, nrl_param_tensor(&b->params[i], NRL_SLOT_GRAD), out->grad[i]);
    }
    float after[SIDE * SIDE];
    if (st == NRL_OK) st = tensor_read(ctx, b->tensors[0], after);
    if (st == NRL_OK)
        report_check(s->report, !memcmp(before, after, (size_t)b->w.numel * sizeof *after),
                     "the frozen weight stays as it is", "forward or backward of '%s' changed the weight", t->module);
    return st;
}

static nrl_status run(suite *s, void *self, const subject *x, const course *c, outcome *out)
{
    bound *b = arena_alloc(&s->memory, sizeof *b);
    memset(out, 0, sizeof *out);
    nrl_scope_begin(s->compute.ctx);
    nrl_status st = bind_all(s, self, x, c, b);
    if (st == NRL_OK) st = walk(s, x, c, b, out);
    nrl_harness_forget(s->compute.harness);
    nrl_scope_end(s->compute.ctx);
    for (int i = 0; i < b->n_tensors; i++)
        tensor_release(s->compute.ctx, b->tensors[i]);
    return st;
}

/* ---- subjects ---- */

static void fill(float *out, int64_t n, uint64_t seed, double size)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)compute_uniform(&seed, -size, size);
}

static const nrl_adapter_target *find_target(const char *module)
{
    for (int i = 0; i < N_TARGETS; i++)
        if (!strcmp(targets[i].module, module)) return &targets[i];
    return NULL;
}

/* `spread` 0: the initial values of the parameters; otherwise a random number of up to that size is
 * added to each. */
static bool make_subject(suite *s, const adapter_set *set, int32_t module, double spread, subject *x)
{
    static const char rule[] = "each module declares parameters";
    *x = (subject){.module = module, .target = find_target(set->modules[module])};
    nrl_status st = adapter_declare(set, module, x->target, &x->declared);
    if (!report_ok(s->report, st, rule)) return false;
    if (!report_check(s->report, x->declared.n > 0, rule, "'%s' has none", x->target->module)) return false;
    for (int32_t i = 0; i < x->declared.n; i++) {
        const nrl_param_spec *spec = &x->declared.specs[i];
        int64_t numel = spec->dims[0] * cols_of(spec), cut = dim_of(spec->tp);
        nrl_param p = {0};
        nrl_part part;
        bool fits = spec->n_dims <= 2 && numel <= MAX_VALUES && cut < spec->n_dims && spec->tp <= NRL_TP_PARTIAL &&
                    spec->tp != NRL_TP_VOCAB && spec->init > NRL_INIT_NONE && spec->init <= NRL_INIT_UNIFORM &&
                    (cut < 0 || spec->dims[cut] % (N_RANKS * (spec->groups > 1 ? spec->groups : 1)) == 0);
        if (!report_check(s->report, fits, "parameters are small vectors or matrices, with initial values",
                          "'%s' is not", spec->name))
            return false;
        x->numel[i] = numel;
        x->values[i] = arena_alloc(&s->memory, (size_t)numel * sizeof(float));
        float *more = arena_alloc(&s->memory, (size_t)numel * sizeof(float));
        param_init(&p, &part, spec->name, spec->n_dims, spec->dims);
        p.init = spec->init;
        p.init_scale = spec->init_scale;
        model_init_values(&p, 7, 0, numel, x->values[i]);
        fill(more, numel, (uint64_t)i + 11, spread);
        for (int64_t k = 0; k < numel; k++)
            x->values[i][k] += more[k];
    }
    fill(x->w, x->target->outputs * x->target->inputs, 1, 0.5);
    fill(x->bias, x->target->outputs, 2, 0.5);
    fill(x->x, ROWS * x->target->inputs, 3, 1);
    fill(x->c, ROWS * x->target->outputs, 4, 1);
    return true;
}

/* ---- rules of settings ---- */

static bool same_json(const nrl_node *a, const nrl_node *b)
{
    char *left = json_write(a, 0), *right = json_write(b, 0);
    bool same = !strcmp(left, right);
    free(left);
    free(right);
    return same;
}

static bool check_choice(suite *s)
{
    wide_target wide[N_TARGETS];
    nrl_node *again;
    memset(wide, 0x5a, sizeof wide);
    for (int i = 0; i < N_TARGETS; i++)
        wide[i].target = targets[i];
    const nrl_adapter_model plain = scope_of(targets, sizeof *targets), strided = scope_of(wide, sizeof *wide);
    if (!report_ok(s->report, s->table->choose(s->options, &plain, &s->memory, &s->settings),
                   "settings are chosen for a model"))
        return false;
    const nrl_node *list = nrl_node_find(s->settings, "modules");
    bool known = nrl_node_kind(list) == NRL_NODE_LIST && nrl_node_size(list);
    for (size_t i = 0; known && i < nrl_node_size(list); i++)
        known = find_target(nrl_node_string(nrl_node_find(nrl_node_at(list, i), "module"), ""));
    if (!report_check(s->report, known, "chosen modules are those of the model", "`modules` of the settings is not"))
        return false;
    if (report_ok(s->report, s->table->choose(s->options, &strided, &s->memory, &again),
                  "targets are read by their stride"))
        report_check(s->report, same_json(again, s->settings), "targets are read by their stride",
                     "wider targets give other settings");
    return true;
}

static nrl_status open_set(suite *s, const nrl_node *settings, adapter_set *out)
{
    const nrl_node *list = nrl_node_find(settings, "modules");
    *out = (adapter_set){.settings = settings, .table = s->table};
    out->modules = arena_alloc(&s->memory, (nrl_node_size(list) + 1) * sizeof *out->modules);
    for (size_t i = 0; i < nrl_node_size(list); i++)
        out->modules[out->n++] = nrl_node_string(nrl_node_find(nrl_node_at(list, i), "module"), "");
    return s->table->create(settings, &out->self);
}

/* A second instance, from settings as they are read from a checkpoint. */
static void check_instances(suite *s)
{
    static const char rule[] = "settings are all that an instance needs";
    char *text = json_write(s->settings, 0);
    nrl_node *read, *more;
    adapter_set other = {0};
    nrl_status st = json_parse(&s->memory, "settings", text, strlen(text), &read);
    free(text);
    if (st == NRL_OK) { /* the entries of a checkpoint, with the name that the core adds, in another order */
        more = node_copy(&s->memory, read);
        nrl_node *list = node_new(&s->memory, NRL_NODE_LIST);
        const nrl_node *given = nrl_node_find(read, "modules");
        for (size_t i = nrl_node_size(given); i-- > 0;)
            node_append(&s->memory, list, NULL, node_copy(&s->memory, nrl_node_at(given, i)));
        node_set(&s->memory, more, "modules", list);
        node_append_text(&s->memory, more, "adapter", s->table->plugin.name);
        st = open_set(s, more, &other);
    }
    if (!report_ok(s->report, st, rule)) return;
    for (int32_t i = 0; i < other.n; i++) {
        subject a, b;
        int32_t k = s->set.n - 1 - i;
        if (!make_subject(s, &s->set, k, 0.5, &a) || !make_subject(s, &other, i, 0.5, &b)) break;
        bool same = a.declared.n == b.declared.n;
        for (int32_t p = 0; same && p < a.declared.n; p++)
            same = !strcmp(a.declared.specs[p].name, b.declared.specs[p].name) && a.numel[p] == b.numel[p];
        outcome x, y;
        const course c = {.has_bias = true, .n_ranks = 1};
        if (same) same = run(s, s->set.self, &a, &c, &x) == NRL_OK && run(s, other.self, &b, &c, &y) == NRL_OK;
        if (same) same = !memcmp(x.y, y.y, sizeof x.y);
        if (!report_check(s->report, same, rule, "'%s' differs in a second instance with the same settings",
                          a.target->module))
            break;
    }
    s->table->destroy(other.self);
}

static void check_names(suite *s)
{
    static const char rule[] = "names of parameters are unique and contain the module";
    const char *names[N_TARGETS * NRL_ADAPTER_MAX_PARAMS];
    int n = 0;
    for (int32_t i = 0; i < s->set.n && i < N_TARGETS; i++) {
        nrl_adapter_builder b;
        if (adapter_declare(&s->set, i, find_target(s->set.modules[i]), &b) != NRL_OK) return;
        for (int32_t k = 0; k < b.n; k++, n++) {
            names[n] = b.specs[k].name;
            bool own = strstr(names[n], s->set.modules[i]) != NULL;
            for (int j = 0; j < n; j++)
                own = own && strcmp(names[j], names[n]);
            if (!report_check(s->report, own, rule, "'%s' of '%s'", names[n], s->set.modules[i])) return;
        }
    }
}

static bool is_option(suite *s, const char *name)
{
    const nrl_plugin *p = &s->table->plugin;
    for (uint32_t i = 0; i < p->n_options; i++)
        if (!strcmp(((const nrl_option *)(const void *)((const char *)p->options + (size_t)i * p->option_size))->name,
                    name))
            return true;
    return false;
}

static void check_words(suite *s)
{
    const char *const *pair = s->table->known_as;
    for (; pair && pair[0]; pair += 2)
        report_check(s->report, pair[1] && (!*pair[1] || is_option(s, pair[1])), "aliases refer to existing options",
                     "'%s' is not an option", pair[1] ? pair[1] : "NULL");
    if (!s->table->summary) return;
    const char *text = s->table->summary(s->set.self);
    report_check(s->report, text && *text && !strchr(text, '\n'), "a summary is one line", "'%s'",
                 text ? text : "NULL");
}

static void check_adopted(suite *s)
{
    static const char rule[] = "an adapter from disk keeps its settings";
    const nrl_adapter_model scope = scope_of(targets, sizeof *targets);
    nrl_node *none = node_new(&s->memory, NRL_NODE_MAP), *settings = NULL, *resolved = NULL;
    if (!s->table->adopt) {
        report_skip(s->report, rule, "it takes them as they are");
        return;
    }
    nrl_status st = s->table->adopt(s->options, none, &scope, s->settings, &s->memory, &settings, &resolved);
    if (!report_ok(s->report, st, rule)) return;
    report_check(s->report, same_json(settings, s->settings), rule, "the settings differ");
    for (size_t i = 0; i < nrl_node_size(resolved); i++)
        report_check(s->report, is_option(s, nrl_node_key(resolved, i)),
                     "an adapter from disk gives a value for every option", "'%s' is not an option",
                     nrl_node_key(resolved, i));
    report_check(s->report, nrl_node_size(resolved) == s->table->plugin.n_options,
                 "an adapter from disk gives a value for every option", "%zu of %u", nrl_node_size(resolved),
                 s->table->plugin.n_options);
}

/* ---- rules of the product ---- */

/* x w^T + bias, in f64. */
static double product_at(const subject *x, const float *w, int64_t row, int64_t column)
{
    double sum = (double)x->bias[column];
    for (int64_t k = 0; k < x->target->inputs; k++)
        sum += (double)x->x[row * x->target->inputs + k] * (double)w[column * x->target->inputs + k];
    return sum;
}

static void expect_product(suite *s, const char *rule, const subject *x, const float *w, const outcome *o)
{
    for (int64_t i = 0; i < ROWS * x->target->outputs; i++) {
        double want = product_at(x, w, i / x->target->outputs, i % x->target->outputs), got = (double)o->y[i];
        if (!report_check(s->report, is_near(got, want, PRODUCT_ERROR, PRODUCT_ERROR), rule,
                          "'%s': element %lld is %.7g, expected %.7g", x->target->module, (long long)i, got, want))
            return;
    }
}

static void check_initial_product(suite *s, int32_t module)
{
    static const char rule[] = "the initial product is that of the frozen weight";
    const course c = {.has_bias = true, .n_ranks = 1, .random = 5};
    subject x;
    outcome o;
    if (!s->table->starts_as_base) {
        report_skip(s->report, rule, "it does not say so");
        return;
    }
    if (!make_subject(s, &s->set, module, 0, &x) || !report_ok(s->report, run(s, s->set.self, &x, &c, &o), rule))
        return;
    expect_product(s, rule, &x, x.w, &o);
}

static void check_merge(suite *s, const subject *x, const outcome *o)
{
    static const char parts_rule[] = "any range merges as a part of the whole";
    int64_t n = x->target->outputs * x->target->inputs, step = s->table->merges_rows ? x->target->inputs : 7;
    float whole[SIDE * SIDE], parts[SIDE * SIDE];
    const float *values[NRL_ADAPTER_MAX_PARAMS] = {0};
    for (int32_t i = 0; i < x->declared.n; i++)
        values[i] = x->values[i];
    memcpy(whole, x->w, sizeof whole);
    memcpy(parts, x->w, sizeof parts);
    s->table->merge(s->set.self, x->module, x->target, values, 0, n, whole);
    for (int64_t at = 0; at < n; at += step)
        s->table->merge(s->set.self, x->module, x->target, values, at, n - at < step ? n - at : step, parts + at);
    report_check(s->report, !memcmp(whole, parts, (size_t)n * sizeof *whole), parts_rule, "'%s' does not",
                 x->target->module);
    expect_product(s, "the merged weight gives the same product", x, whole, o);
}

static double loss_of(const subject *x, const outcome *o)
{
    double sum = 0;
    for (int64_t i = 0; i < ROWS * x->target->outputs; i++)
        sum += (double)x->c[i] * (double)o->y[i];
    return sum;
}

/* Slope of the loss along the direction of unit length, for n values at `at`. */
static nrl_status slope(suite *s, subject *x, float *at, int64_t n, const double *direction, double *out)
{
    const course c = {.has_bias = true, .n_ranks = 1};
    float *start = arena_alloc(&s->memory, (size_t)n * sizeof *start);
    double loss[2] = {0, 0};
    outcome o;
    nrl_status st = NRL_OK;
    memcpy(start, at, (size_t)n * sizeof *start);
    for (int side = 0; side < 2 && st == NRL_OK; side++) {
        for (int64_t k = 0; k < n; k++)
            at[k] = (float)((double)start[k] + (side ? STEP : -STEP) * direction[k]);
        st = run(s, s->set.self, x, &c, &o);
        loss[side] = loss_of(x, &o);
    }
    memcpy(at, start, (size_t)n * sizeof *start);
    *out = (loss[1] - loss[0]) / (2 * STEP);
    return st;
}

static void check_slopes(suite *s, subject *x, const char *name, float *at, const float *grad, int64_t n)
{
    double length = 0, *direction = arena_alloc(&s->memory, (size_t)n * sizeof *direction);
    for (int64_t k = 0; k < n; k++)
        length += (double)grad[k] * (double)grad[k];
    length = sqrt(length);
    for (int d = length > 0 ? 0 : 1; d < 3; d++) {
        uint64_t state = (uint64_t)d * 31 + 5;
        double want = 0, got = 0;
        for (int64_t k = 0; k < n; k++) {
            direction[k] =
                d ? (compute_uniform(&state, -1, 1) < 0 ? -1 : 1) / sqrt((double)n) : (double)grad[k] / length;
            got += (double)grad[k] * direction[k];
        }
        if (!report_ok(s->report, slope(s, x, at, n, direction, &want), "forward and backward succeed")) return;
        report_check(s->report, is_near(got - want, 0, 0, GRADIENT_RELATIVE * length + GRADIENT_ABSOLUTE),
                     "gradients agree with finite differences", "%s of '%s': slope %.6g, the product has %.6g", name,
                     x->target->module, got, want);
    }
}

static void check_random(suite *s, const subject *x)
{
    const course first = {.has_bias = true, .n_ranks = 1, .random = 5}, second = {true, 0, 1, 9};
    outcome a, b, again;
    nrl_status st = run(s, s->set.self, x, &first, &a);
    if (st == NRL_OK) st = run(s, s->set.self, x, &second, &b);
    if (st == NRL_OK) st = run(s, s->set.self, x, &first, &again);
    if (!report_ok(s->report, st, "forward and backward succeed")) return;
    report_check(s->report, !memcmp(a.y, again.y, sizeof a.y) && !memcmp(a.dx, again.dx, sizeof a.dx),
                 "equal steps give equal bits", "'%s' is another product", x->target->module);
    bool says = s->table->random && s->table->random(s->set.self);
    report_check(s->report, says || !memcmp(a.y, b.y, sizeof a.y), "an adapter that draws random numbers declares it",
                 "`random` is false, and two steps of equal values differ");
}

/* ---- over ranks ---- */

static void expect_near(suite *s, const char *rule, const char *what, const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!report_check(s->report, is_near((double)got[i], (double)want[i], PRODUCT_ERROR, PRODUCT_ERROR), rule,
                          "%s: element %lld is %.7g, one rank has %.7g", what, (long long)i, (double)got[i],
                          (double)want[i]))
            return;
}

/* Adds a rank's share of [rows, cols], divided along dim, to the full matrix. */
static void put_share(const float *share, int64_t rows, int64_t cols, int dim, int64_t groups, const course *c,
                      float *whole)
{
    int64_t m = dim == 0 ? rows / c->n_ranks : rows, n = dim == 1 ? cols / c->n_ranks : cols;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            whole[(dim == 0 ? whole_index(i, rows, groups, c) : i) * cols +
                  (dim == 1 ? whole_index(j, cols, groups, c) : j)] += share[i * n + j];
}

/* Each rank computes with the share that the strategy of an axis that divides the width gives it. */
static void check_ranks(suite *s, const subject *x)
{
    static const char rule[] = "two ranks compute what one rank computes",
                      grads[] = "two ranks have the gradients of one rank";
    const nrl_adapter_target *t = x->target;
    int dim = dim_of(t->tp);
    float y[ROWS * SIDE] = {0}, dx[ROWS * SIDE] = {0}, *grad[NRL_ADAPTER_MAX_PARAMS] = {0};
    course one = {.has_bias = dim != 1, .n_ranks = 1};
    outcome whole = {0}, part = {0};
    if (dim < 0 || !report_ok(s->report, run(s, s->set.self, x, &one, &whole), rule)) return;
    for (int32_t i = 0; i < x->declared.n; i++)
        grad[i] = arena_alloc(&s->memory, (size_t)x->numel[i] * sizeof(float));
    for (int32_t rank = 0; rank < N_RANKS; rank++) {
        const course c = {.has_bias = one.has_bias, .rank = rank, .n_ranks = N_RANKS};
        if (!report_ok(s->report, run(s, s->set.self, x, &c, &part), rule)) return;
        put_share(part.y, ROWS, t->outputs, dim == 0 ? 1 : -1, t->groups, &c, y);
        put_share(part.dx, ROWS, t->inputs, dim == 1 ? 1 : -1, 1, &c, dx);
        for (int32_t i = 0; i < x->declared.n; i++) {
            const nrl_param_spec *spec = &x->declared.specs[i];
            if (spec->tp == NRL_TP_NONE) /* each rank has the full gradient, otherwise the copies would diverge */
                expect_near(s, grads, spec->name, part.grad[i], whole.grad[i], x->numel[i]);
            if (spec->tp != NRL_TP_NONE || rank == 0)
                put_share(part.grad[i], spec->dims[0], cols_of(spec), dim_of(spec->tp),
                          spec->groups > 1 ? spec->groups : 1, &c, grad[i]);
        }
    }
    expect_near(s, rule, t->module, y, whole.y, ROWS * t->outputs);
    expect_near(s, rule, "gradient of its input", dx, whole.dx, ROWS * t->inputs);
    for (int32_t i = 0; i < x->declared.n; i++)
        expect_near(s, grads, x->declared.specs[i].name, grad[i], whole.grad[i], x->numel[i]);
}

/* ---- all rules ---- */

static void check_module(suite *s, int32_t module)
{
    const course c = {.has_bias = true, .n_ranks = 1};
    subject x;
    outcome o;
    if (!make_subject(s, &s->set, module, 0.5, &x)) return;
    size_t before = nrl_harness_live_bytes(s->compute.harness);
    if (!report_ok(s->report, run(s, s->set.self, &x, &c, &o), "forward and backward succeed")) return;
    report_check(s->report, nrl_harness_live_bytes(s->compute.harness) == before, "no tensor is left allocated",
                 "%zu more bytes are in use", nrl_harness_live_bytes(s->compute.harness) - before);
    check_merge(s, &x, &o);
    check_slopes(s, &x, "the input", x.x, o.dx, ROWS * x.target->inputs);
    for (int32_t i = 0; i < x.declared.n; i++)
        check_slopes(s, &x, x.declared.specs[i].name, x.values[i], o.grad[i], x.numel[i]);
    check_random(s, &x);
    check_ranks(s, &x);
    check_initial_product(s, module);
}

static nrl_status use_batch(suite *s, nrl_batch **b)
{
    const int32_t cu[] = {0, ROWS}, token[] = {0}, zero[] = {0};
    const float weight[] = {1};
    const nrl_harness_batch spec = {.size = sizeof spec,
                                    .n_tokens = ROWS,
                                    .n_rows = 1,
                                    .n_segments = 1,
                                    .n_examples = 1,
                                    .cu_seqlens = cu,
                                    .row_token = token,
                                    .row_target = zero,
                                    .row_segment = zero,
                                    .row_weight = weight,
                                    .segment_example = zero};
    NRL_TRY(nrl_harness_batch_create(&spec, b));
    return nrl_harness_use_batch(s->compute.harness, *b);
}

void conformance_adapter(const nrl_adapter *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.table = table, .options = setup->options, .report = report};
    nrl_batch *b = NULL;
    if (!compute_open(&s.compute, setup, report)) return;
    if (check_choice(&s) && report_ok(report, open_set(&s, s.settings, &s.set), "an instance is created") &&
        report_ok(report, use_batch(&s, &b), "the backend opens")) {
        REPORT_CASE(report, "names of parameters are unique and contain the module") check_names(&s);
        REPORT_CASE(report, "aliases refer to existing options") check_words(&s);
        REPORT_CASE(report, "an adapter from disk keeps its settings") check_adopted(&s);
        REPORT_CASE(report, "instances live side by side") check_instances(&s);
        for (int32_t i = 0; i < s.set.n; i++)
            REPORT_CASE(report, "an adapted product is computed") check_module(&s, i);
        nrl_harness_use_batch(s.compute.harness, NULL);
    }
    if (s.set.self) table->destroy(s.set.self);
    nrl_harness_batch_free(b);
    compute_close(&s.compute);
    arena_free(&s.memory);
}
