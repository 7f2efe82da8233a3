/*
 * optimizer.c - what every optimizer promises: it updates the slices it is given, by the step parameters
 * it is given, does not care how a parameter was divided where it declares so, and keeps all that it must know in the
 * states that it declares. On a small matrix and on a larger one, whose states an optimizer may declare otherwise.
 */
#include "compute.h"
#include "tensor/ctx.h"
#include "tensor/param.h"
#include "tensor/split16.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An element in another place of a vector loop: the rounding of f32. */
#define RELATIVE 2e-6
#define ABSOLUTE 1e-9

enum { MOST = 68 * 80, N_STEPS = 3, MAX_CUTS = 5, N_TENSORS = 3 + NRL_MAX_STATES };

static const int64_t shapes[][2] = {{12, 20}, {68, 80}};

typedef struct {
    const nrl_optimizer *table;
    conformance_report *report;
    compute compute;
    const void *options;
    void *self;
    const int64_t *dims; /* [2] of the matrix */
    int n;               /* its elements */
    nrl_declaration what;
} suite;

/* A slice of a later nrl, whose struct is larger: optimizers find slices by the stride. */
typedef struct {
    nrl_slice slice;
    void *surplus[4];
} wide_slice;

/* One parameter with its storage, and the slices it is handed out in. */
typedef struct {
    nrl_param param;
    nrl_part part;
    nrl_tensor *whole[N_TENSORS]; /* master, grad, states, work */
    nrl_tensor *views[MAX_CUTS * N_TENSORS];
    int n_views;
    wide_slice slices[MAX_CUTS];
    int64_t n_slices;
    nrl_tensor *grad16, *low; /* of courses that have them */
} subject;

typedef struct {
    float master[MOST], work[MOST];
} outcome;

static bool create(suite *s, void **self)
{
    *self = (void *)s->options;
    if (!s->table->create) return true;
    return report_ok(s->report, s->table->create(s->options, self), "an instance is created from defaults");
}

static void destroy(suite *s, void *self)
{
    if (s->table->create && s->table->destroy) s->table->destroy(self);
}

/* ---- a parameter ---- */

enum { WORK = 2 + NRL_MAX_STATES };

static nrl_tensor **place(nrl_slice *s, int i)
{
    if (i == 0) return &s->master;
    if (i == 1) return &s->grad;
    return i == WORK ? &s->work : &s->states[i - 2];
}

static bool is_used(const suite *s, int i)
{
    return i < 2 || i == WORK || i - 2 < (int)s->what.n_states;
}

/* The state in place i; NULL: a tensor with one entry an element. */
static const nrl_state *state_at(const suite *s, int i)
{
    return i < 2 || i == WORK ? NULL : &s->what.states[i - 2];
}

/* Entries of tensor i for n elements. */
static int64_t entries(const suite *s, int i, int64_t n)
{
    const nrl_state *state = state_at(s, i);
    int64_t own = 1;
    if (!state || state->shape == NRL_STATE_ELEMENT) return n;
    if (state->shape == NRL_STATE_BLOCK) return (n + s->what.block - 1) / s->what.block;
    for (int d = 0; d < state->n_dims; d++)
        own *= state->dims[d];
    return own;
}

static nrl_status make_storage(suite *s, subject *x)
{
    param_init(&x->param, &x->part, "weight", 2, s->dims);
    x->param.trained = true;
    for (int i = 0; i < N_TENSORS; i++) {
        const nrl_state *state = state_at(s, i);
        nrl_dtype dtype = i == WORK ? NRL_DTYPE_BF16 : state ? (nrl_dtype)state->dtype : NRL_DTYPE_F32;
        int64_t n = entries(s, i, s->n);
        if (!is_used(s, i)) continue;
        NRL_TRY(tensor_persistent(s->compute.ctx, dtype, 1, &n, true, &x->whole[i]));
        if (state) NRL_TRY(nrl_tensor_fill(s->compute.ctx, x->whole[i], state->initial));
    }
    return NRL_OK;
}

static nrl_status cut_slice(suite *s, subject *x, int64_t begin, int64_t end, nrl_slice *slice)
{
    for (int i = 0; i < N_TENSORS; i++) {
        if (!x->whole[i]) continue;
        int64_t at = entries(s, i, begin), n = entries(s, i, end - begin);
        NRL_TRY(tensor_flat_view(s->compute.ctx, x->whole[i], at, n, &x->views[x->n_views]));
        *place(slice, i) = x->views[x->n_views++];
    }
    return NRL_OK;
}

/* n_placements 0: one slice of whole tensors. */
static nrl_status make_subject(suite *s, subject *x, const int64_t *placements, int n_placements, bool decay)
{
    *x = (subject){.n_slices = n_placements + 1};
    NRL_TRY(make_storage(s, x));
    for (int k = 0; k <= n_placements; k++) {
        int64_t begin = k ? placements[k - 1] : 0, end = k < n_placements ? placements[k] : s->n;
        x->slices[k] = (wide_slice){.slice = {.param = &x->param, .n = end - begin, .decay = decay}};
        if (n_placements) NRL_TRY(cut_slice(s, x, begin, end, &x->slices[k].slice));
    }
    for (int i = 0; i < N_TENSORS && !n_placements; i++)
        *place(&x->slices->slice, i) = x->whole[i];
    return NRL_OK;
}

static void free_subject(suite *s, subject *x)
{
    for (int i = 0; i < x->n_views; i++)
        tensor_release(s->compute.ctx, x->views[i]);
    for (int i = 0; i < N_TENSORS; i++)
        tensor_release(s->compute.ctx, x->whole[i]);
    tensor_release(s->compute.ctx, x->grad16);
    tensor_release(s->compute.ctx, x->low);
}

/* ---- some steps ---- */

typedef struct {
    int64_t placements[MAX_CUTS];
    int n_placements;
    double lr, gradient_size, grad_scale;
    bool no_decay;
    bool rounds;  /* gradients are values of bf16 */
    bool encoded; /* they are that, and masters are halves */
} course;

static nrl_status set_values(suite *s, subject *x, const course *c, int64_t step)
{
    float values[MOST];
    uint64_t state = (uint64_t)(step + 7);
    for (int i = 0; i < s->n; i++)
        values[i] = (float)(c->gradient_size * compute_uniform(&state, -1, 1));
    NRL_TRY(tensor_write(s->compute.ctx, x->whole[1], values));
    if (step) return NRL_OK;
    for (int i = 0; i < s->n; i++)
        values[i] = (float)compute_uniform(&state, -1, 1);
    return tensor_write(s->compute.ctx, x->whole[0], values);
}

/* Rounds the step's gradient; an encoded course gets it so, and at its start the master as two halves. */
static nrl_status encode(suite *s, subject *x, const course *c, int64_t step)
{
    nrl_ctx *ctx = s->compute.ctx;
    const int64_t n = s->n;
    if (!c->rounds) return NRL_OK;
    if (!x->grad16) NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_BF16, 1, &n, false, &x->grad16));
    if (!x->low) NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_U16, 1, &n, false, &x->low));
    NRL_TRY(nrl_tensor_copy(ctx, x->whole[1], x->grad16));
    NRL_TRY(nrl_tensor_copy(ctx, x->grad16, x->whole[1]));
    if (!c->encoded) return NRL_OK;
    x->slices->slice.master = NULL;
    x->slices->slice.low = x->low;
    x->slices->slice.grad = x->grad16;
    return step ? NRL_OK : split16_split(ctx, x->whole[0], x->whole[WORK], x->low);
}

/* Steps first + 1 .. n_steps. */
static nrl_status take_steps(suite *s, void *self, subject *x, const course *c, int64_t first, int64_t n_steps)
{
    for (int64_t step = first; step < n_steps; step++) {
        nrl_step_params block = {sizeof block, step + 1, c->lr, c->grad_scale, sizeof(wide_slice), 0, 0};
        NRL_TRY(set_values(s, x, c, step));
        NRL_TRY(encode(s, x, c, step));
        ctx_scope_begin(s->compute.ctx);
        nrl_status st = s->table->update(self, s->compute.ctx, &x->slices->slice, x->n_slices, &block);
        ctx_scope_end(s->compute.ctx);
        NRL_TRY(st);
    }
    return c->encoded ? split16_join(s->compute.ctx, x->whole[WORK], x->low, x->whole[0]) : NRL_OK;
}

static nrl_status fetch(suite *s, const nrl_tensor *t, float *out)
{
    double values[MOST];
    NRL_TRY(nrl_tensor_fetch(s->compute.ctx, t, values, s->n));
    for (int i = 0; i < s->n; i++)
        out[i] = (float)values[i];
    return NRL_OK;
}

static outcome run_course(suite *s, void *self, const course *c, int64_t n_steps)
{
    outcome o = {0};
    subject x;
    nrl_status st = make_subject(s, &x, c->placements, c->n_placements, !c->no_decay);
    if (st == NRL_OK && n_steps == 0) st = set_values(s, &x, c, 0);
    if (st == NRL_OK) st = take_steps(s, self, &x, c, 0, n_steps);
    if (st == NRL_OK) st = fetch(s, x.whole[0], o.master);
    if (st == NRL_OK) st = fetch(s, x.whole[WORK], o.work);
    report_ok(s->report, st, "an update succeeds on ordinary slices");
    free_subject(s, &x);
    return o;
}

/* ---- rules ---- */

static const course plain = {.lr = 0.01, .gradient_size = 1, .grad_scale = 1};

static void check_cuts(suite *s, const outcome *whole)
{
    course c = plain;
    const int64_t placements[] = {1, 18, 100, 120}, blocks[] = {1, 2, 7, 12};
    bool is_block = s->what.granularity == NRL_OPTIMIZER_BLOCK;
    if (s->what.granularity == NRL_OPTIMIZER_MATRIX || (is_block && s->n <= blocks[3] * s->what.block)) {
        report_skip(s->report, "a parameter may be divided as declared",
                    "it declares that it needs more than elements");
        return;
    }
    for (int i = 0; i < 4; i++)
        c.placements[i] = is_block ? blocks[i] * s->what.block : placements[i];
    c.n_placements = 4;
    outcome o = run_course(s, s->self, &c, N_STEPS);
    for (int i = 0; i < s->n; i++)
        report_check(s->report, is_near((double)o.master[i], (double)whole->master[i], RELATIVE, ABSOLUTE),
                     "a parameter may be divided as declared", "element %d is %.9g, expected %.9g", i,
                     (double)o.master[i], (double)whole->master[i]);
}

static void check_scale(suite *s, const outcome *whole)
{
    course c = plain;
    c.gradient_size = 4; /* powers of two: exact */
    c.grad_scale = 0.25;
    outcome o = run_course(s, s->self, &c, N_STEPS);
    for (int i = 0; i < s->n; i++)
        report_check(s->report, is_near((double)o.master[i], (double)whole->master[i], RELATIVE, ABSOLUTE),
                     "the gradient is grad * grad_scale", "element %d is %.9g, expected %.9g", i, (double)o.master[i],
                     (double)whole->master[i]);
}

static void check_rates(suite *s, const outcome *start)
{
    course c = plain;
    c.lr = 0;
    outcome o = run_course(s, s->self, &c, N_STEPS);
    report_check(s->report, !memcmp(o.master, start->master, sizeof o.master), "a rate of zero moves nothing",
                 "the master changed");
    c = plain;
    c.gradient_size = 0;
    c.no_decay = true;
    o = run_course(s, s->self, &c, N_STEPS);
    report_check(s->report, !memcmp(o.master, start->master, sizeof o.master),
                 "without decay and gradient nothing moves", "the master changed");
}

static void check_direction(suite *s, const outcome *start)
{
    course c = plain;
    c.no_decay = true;
    outcome o = run_course(s, s->self, &c, 1);
    uint64_t state = 7;
    double along = 0;
    for (int i = 0; i < s->n; i++)
        along += (double)(o.master[i] - start->master[i]) * compute_uniform(&state, -1, 1);
    report_check(s->report, along < 0, "a step goes against the gradient", "change * gradient is %g", along);
}

static float to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    u = (u + 0x8000) & 0xffff0000u; /* to nearest, ties away from zero, as nrl_master_round */
    memcpy(&x, &u, 4);
    return x;
}

static void check_work(suite *s, const outcome *whole)
{
    for (int i = 0; i < s->n; i++)
        report_check(s->report, whole->work[i] == to_bf16(whole->master[i]), "work is the master, rounded",
                     "element %d is %.9g, expected %.9g", i, (double)whole->work[i], (double)to_bf16(whole->master[i]));
}

static void check_sizes(suite *s)
{
    static const double sizes[] = {1e-30, 1e-12, 1e12};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        course c = plain;
        c.gradient_size = sizes[k];
        outcome o = run_course(s, s->self, &c, N_STEPS);
        for (int i = 0; i < s->n; i++)
            report_check(s->report, isfinite(o.master[i]), "masters stay finite", "gradients of size %g give %g",
                         sizes[k], (double)o.master[i]);
    }
}

static void check_encoded(suite *s)
{
    course c = plain;
    if (!s->table->encoded) return;
    c.rounds = true;
    outcome wide = run_course(s, s->self, &c, N_STEPS);
    c.encoded = true;
    outcome halves = run_course(s, s->self, &c, N_STEPS);
    for (int i = 0; i < s->n; i++)
        report_check(s->report, is_near((double)halves.master[i], (double)wide.master[i], RELATIVE, ABSOLUTE),
                     "a master in halves moves as one in f32", "element %d is %.9g, expected %.9g", i,
                     (double)halves.master[i], (double)wide.master[i]);
}

static void check_repeats(suite *s, const outcome *whole)
{
    void *other;
    outcome again = run_course(s, s->self, &plain, N_STEPS);
    report_check(s->report, !memcmp(&again, whole, sizeof again), "equal steps give equal bits", "masters differ");
    nrl_step_params block = {sizeof block, 1, 0.01, 1, sizeof(wide_slice), 0, 0};
    report_ok(s->report, s->table->update(s->self, s->compute.ctx, NULL, 0, &block), "no slices is fine");
    if (!s->table->create || !create(s, &other)) return;
    run_course(s, other, &plain, 1);
    outcome mine = run_course(s, s->self, &plain, N_STEPS), its = run_course(s, other, &plain, N_STEPS);
    destroy(s, other);
    report_check(s->report, !memcmp(&mine, whole, sizeof mine) && !memcmp(&its, whole, sizeof its),
                 "instances live side by side", "masters differ");
}

/* ---- states ---- */

static nrl_status copy_tensor(suite *s, nrl_tensor *from, nrl_tensor *to)
{
    char *bytes = mem_alloc((size_t)nrl_tensor_numel(from) * nrl_dtype_size(nrl_tensor_dtype(from)));
    nrl_status st = tensor_read(s->compute.ctx, from, bytes);
    if (st == NRL_OK) st = tensor_write(s->compute.ctx, to, bytes);
    free(bytes);
    return st;
}

/* One more step of what `from` has after N_STEPS, on copies and by `self`; state `lost` (-1: none) is as at the start.
 */
static outcome go_on(suite *s, void *self, subject *from, int lost)
{
    outcome o = {0};
    subject x;
    nrl_status st = make_subject(s, &x, NULL, 0, true);
    for (int i = 0; i < N_TENSORS && st == NRL_OK; i++)
        if (x.whole[i] && i - 2 != lost) st = copy_tensor(s, from->whole[i], x.whole[i]);
    if (st == NRL_OK) st = take_steps(s, self, &x, &plain, N_STEPS, N_STEPS + 1);
    if (st == NRL_OK) st = fetch(s, x.whole[0], o.master);
    report_ok(s->report, st, "an update succeeds on ordinary slices");
    free_subject(s, &x);
    return o;
}

static bool is_changed(suite *s, const nrl_tensor *t, double initial)
{
    double *values = mem_alloc((size_t)nrl_tensor_numel(t) * sizeof *values);
    bool changed = false;
    if (nrl_tensor_fetch(s->compute.ctx, t, values, nrl_tensor_numel(t)) == NRL_OK)
        for (int64_t i = 0; i < nrl_tensor_numel(t); i++)
            changed |= values[i] < initial || values[i] > initial;
    free(values);
    return changed;
}

static void check_each_state(suite *s, subject *x, const outcome *on)
{
    for (uint32_t k = 0; k < s->what.n_states; k++) {
        const nrl_state *state = &s->what.states[k];
        report_check(s->report, is_changed(s, x->whole[2 + k], state->initial), "every declared state is stored",
                     "%s is as at the start after %d steps", state->name, N_STEPS);
        outcome without = go_on(s, s->self, x, (int)k);
        report_check(s->report, memcmp(without.master, on->master, sizeof on->master) != 0,
                     "a step depends on every declared state", "it is the same without %s", state->name);
    }
}

/* What a save and a load leave: weights, states and the number of the step, and a new instance. */
static void check_states(suite *s)
{
    subject x;
    void *other;
    outcome whole = run_course(s, s->self, &plain, N_STEPS + 1);
    nrl_status st = make_subject(s, &x, NULL, 0, true);
    if (st == NRL_OK) st = take_steps(s, s->self, &x, &plain, 0, N_STEPS);
    if (report_ok(s->report, st, "an update succeeds on ordinary slices") && create(s, &other)) {
        outcome on = go_on(s, other, &x, -1);
        destroy(s, other);
        if (!s->table->state) /* numbers of the instance are not copied here */
            report_check(s->report, !memcmp(on.master, whole.master, sizeof on.master),
                         "states survive a save and a load", "a step by another instance on copies differs");
        check_each_state(s, &x, &on);
    }
    free_subject(s, &x);
}

/* ---- a first pass that moves the weights ---- */

/* The masters after a perturbation in pieces that end at `placements`; NULL: in one. */
static outcome perturb_once(suite *s, const course *c, const int64_t *placements, int n_placements)
{
    outcome o = {0};
    subject x;
    float grad[2][MOST], work[MOST];
    nrl_status st = make_subject(s, &x, placements, n_placements, true);
    if (st == NRL_OK) st = set_values(s, &x, c, 0);
    if (st == NRL_OK) st = fetch(s, x.whole[1], grad[0]);
    nrl_step_params block = {sizeof block, 1, c->lr, c->grad_scale, sizeof(wide_slice), 0, 10 * c->gradient_size};
    ctx_scope_begin(s->compute.ctx);
    if (st == NRL_OK) st = s->table->perturb(s->self, s->compute.ctx, &x.slices->slice, x.n_slices, &block);
    ctx_scope_end(s->compute.ctx);
    if (st == NRL_OK) st = fetch(s, x.whole[0], o.master);
    if (st == NRL_OK) st = fetch(s, x.whole[1], grad[1]);
    if (st == NRL_OK) st = fetch(s, x.whole[WORK], work);
    if (report_ok(s->report, st, "a perturbation succeeds on ordinary slices")) {
        bool kept = !memcmp(grad[0], grad[1], (size_t)s->n * sizeof **grad);
        for (uint32_t k = 0; k < s->what.n_states; k++)
            kept = kept && !is_changed(s, x.whole[2 + k], s->what.states[k].initial);
        report_check(s->report, kept, "a perturbation moves weights alone", "the gradient or a state changed");
        for (int i = 0; i < s->n; i++)
            report_check(s->report, work[i] == to_bf16(o.master[i]), "work is the master, rounded",
                         "after a perturbation element %d is %.9g, expected %.9g", i, (double)work[i],
                         (double)to_bf16(o.master[i]));
    }
    free_subject(s, &x);
    return o;
}

static void check_perturb(suite *s, const outcome *start)
{
    static const int64_t placements[] = {1, 18, 100, 120};
    course c = plain;
    if (!s->table->perturb) return;
    outcome whole = perturb_once(s, &plain, NULL, 0), pieces = perturb_once(s, &plain, placements, 4);
    bool moved = memcmp(whole.master, start->master, (size_t)s->n * sizeof *whole.master) != 0;
    report_check(s->report, moved, "a perturbation moves weights alone", "no element moved");
    for (int i = 0; i < s->n; i++)
        report_check(s->report, is_near((double)pieces.master[i], (double)whole.master[i], RELATIVE, ABSOLUTE),
                     "a perturbation works on each element alone", "element %d is %.9g in pieces, %.9g in one", i,
                     (double)pieces.master[i], (double)whole.master[i]);
    c.gradient_size = 1e-30;
    outcome small = perturb_once(s, &c, NULL, 0);
    for (int i = 0; i < s->n; i++)
        report_check(s->report, isfinite(small.master[i]), "masters stay finite",
                     "a perturbation by gradients of size 1e-30 gives %g", (double)small.master[i]);
}

static bool check_table(suite *s)
{
    const nrl_optimizer *t = s->table;
    bool good =
        report_check(s->report, t->granularity >= NRL_OPTIMIZER_ELEMENT && t->granularity <= NRL_OPTIMIZER_BLOCK,
                     "granularity is element, matrix or block", "it is %u", t->granularity);
    if (t->declare) return good;
    good = report_check(s->report, t->n_states <= NRL_MAX_STATES && (!t->n_states || t->state_names),
                        "states are named", "n_states is %u", t->n_states) &&
           good;
    for (uint32_t i = 0; good && i < t->n_states; i++)
        good = report_check(s->report, t->state_names[i] && *t->state_names[i], "states are named", "state %u", i);
    return good;
}

static nrl_status declare(suite *s, void *self, const subject *x, nrl_declaration *d)
{
    *d = (nrl_declaration){.size = sizeof *d, .param = &x->param, .part = &x->part};
    if (s->table->declare) return s->table->declare(self, d);
    d->granularity = s->table->granularity;
    d->n_states = s->table->n_states;
    for (uint32_t k = 0; k < d->n_states; k++)
        d->states[k] =
            (nrl_state){.name = s->table->state_names[k], .dtype = NRL_DTYPE_F32, .shape = NRL_STATE_ELEMENT};
    return NRL_OK;
}

static bool is_sound(const nrl_declaration *d)
{
    bool good = d->granularity >= NRL_OPTIMIZER_ELEMENT && d->granularity <= NRL_OPTIMIZER_BLOCK &&
                d->n_states <= NRL_MAX_STATES && (d->granularity != NRL_OPTIMIZER_BLOCK || d->block > 0);
    for (uint32_t k = 0; good && k < d->n_states; k++) {
        const nrl_state *s = &d->states[k];
        good = s->name && *s->name && nrl_dtype_size((nrl_dtype)s->dtype) && s->shape >= NRL_STATE_ELEMENT &&
               s->shape <= NRL_STATE_OWN && (s->shape != NRL_STATE_BLOCK || d->block > 0) &&
               (s->shape != NRL_STATE_OWN || (d->granularity == NRL_OPTIMIZER_MATRIX && s->n_dims > 0)) &&
               (s->shape != NRL_STATE_BLOCK || d->granularity != NRL_OPTIMIZER_ELEMENT);
    }
    return good;
}

static bool same_declarations(const nrl_declaration *a, const nrl_declaration *b)
{
    bool same = a->granularity == b->granularity && a->block == b->block && a->n_states == b->n_states;
    for (uint32_t k = 0; same && k < a->n_states; k++) {
        const nrl_state *x = &a->states[k], *y = &b->states[k];
        same = !strcmp(x->name, y->name) && x->dtype == y->dtype && x->shape == y->shape && x->n_dims == y->n_dims &&
               !memcmp(x->dims, y->dims, sizeof x->dims);
    }
    return same;
}

/* s->what: of a matrix of this shape. */
static bool check_declaration(suite *s)
{
    subject x = {0};
    nrl_declaration again;
    void *other;
    param_init(&x.param, &x.part, "weight", 2, s->dims);
    x.param.trained = true;
    if (!report_ok(s->report, declare(s, s->self, &x, &s->what), "a part of a parameter gets a declaration") ||
        !report_check(s->report, is_sound(&s->what), "declarations make sense", "granularity %u, %u states",
                      s->what.granularity, s->what.n_states) ||
        !create(s, &other))
        return false;
    nrl_status st = declare(s, other, &x, &again);
    bool same = st == NRL_OK && same_declarations(&s->what, &again);
    destroy(s, other);
    return report_check(s->report, same, "instances with the same options declare the same", "two answers differ");
}

static void run_rules(suite *s)
{
    conformance_report *r = s->report;
    if (!report_begin(r, "an update succeeds on ordinary slices")) return;
    outcome start = run_course(s, s->self, &plain, 0), whole = run_course(s, s->self, &plain, N_STEPS);
    report_end(r, CASE_NEW);
    REPORT_CASE(r, "equal steps give equal bits") check_repeats(s, &whole);
    REPORT_CASE(r, "a parameter may be divided as declared") check_cuts(s, &whole);
    REPORT_CASE(r, "the gradient is grad * grad_scale") check_scale(s, &whole);
    REPORT_CASE(r, "a rate of zero moves nothing") check_rates(s, &start);
    REPORT_CASE(r, "a step goes against the gradient") check_direction(s, &start);
    REPORT_CASE(r, "work is the master, rounded") check_work(s, &whole);
    REPORT_CASE(r, "masters stay finite") check_sizes(s);
    REPORT_CASE(r, "a master in halves moves as one in f32") check_encoded(s);
    REPORT_CASE(r, "states survive a save and a load") check_states(s);
    REPORT_CASE(r, "a perturbation moves weights alone") check_perturb(s, &start);
}

void conformance_optimizer(const nrl_optimizer *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.table = table, .report = report, .options = setup->options};
    if (!check_table(&s) || !compute_open(&s.compute, setup, report)) return;
    if (create(&s, &s.self)) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            s.dims = shapes[i];
            s.n = (int)(s.dims[0] * s.dims[1]);
            if (check_declaration(&s)) run_rules(&s);
        }
        destroy(&s, s.self);
    }
    compute_close(&s.compute);
}
