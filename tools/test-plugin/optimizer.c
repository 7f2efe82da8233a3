/*
 * optimizer.c - what every optimizer promises: it updates the slices it is given, by the step parameters
 * it is given, and does not care how a parameter was cut.
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

enum { ROWS = 12, COLS = 20, N = ROWS * COLS, N_STEPS = 3, MAX_CUTS = 5 };

typedef struct {
    const nrl_optimizer *table;
    conformance_report *report;
    compute compute;
    const void *options;
    void *self;
} suite;

/* One parameter with its storage, and the slices it is handed out in. */
typedef struct {
    nrl_param param;
    nrl_part part;
    nrl_tensor *whole[7]; /* master, grad, states, work */
    nrl_tensor *views[MAX_CUTS * 7];
    int n_views;
    nrl_slice slices[MAX_CUTS];
    int64_t n_slices;
    nrl_tensor *grad16, *low; /* of courses that have them */
} subject;

typedef struct {
    float master[N], work[N];
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

static nrl_tensor **place(nrl_slice *s, int i)
{
    if (i == 0) return &s->master;
    if (i == 1) return &s->grad;
    return i == 6 ? &s->work : &s->states[i - 2];
}

static bool is_used(const suite *s, int i)
{
    return i < 2 || i == 6 || i - 2 < (int)s->table->n_states;
}

static nrl_status make_storage(suite *s, subject *x)
{
    static const int64_t dims[] = {ROWS, COLS};
    param_init(&x->param, &x->part, "weight", 2, dims);
    for (int i = 0; i < 7; i++)
        if (is_used(s, i))
            NRL_TRY(tensor_persistent(s->compute.ctx, i == 6 ? NRL_DTYPE_BF16 : NRL_DTYPE_F32, 2, dims, true,
                                      &x->whole[i]));
    return NRL_OK;
}

static nrl_status cut_slice(suite *s, subject *x, int64_t begin, int64_t end, nrl_slice *slice)
{
    for (int i = 0; i < 7; i++) {
        if (!x->whole[i]) continue;
        NRL_TRY(tensor_flat_view(s->compute.ctx, x->whole[i], begin, end - begin, &x->views[x->n_views]));
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
        int64_t begin = k ? placements[k - 1] : 0, end = k < n_placements ? placements[k] : N;
        x->slices[k] = (nrl_slice){.param = &x->param, .n = end - begin, .decay = decay};
        if (n_placements) NRL_TRY(cut_slice(s, x, begin, end, &x->slices[k]));
    }
    for (int i = 0; i < 7 && !n_placements; i++)
        *place(&x->slices[0], i) = x->whole[i];
    return NRL_OK;
}

static void free_subject(suite *s, subject *x)
{
    for (int i = 0; i < x->n_views; i++)
        tensor_release(s->compute.ctx, x->views[i]);
    for (int i = 0; i < 7; i++)
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
    float values[N];
    uint64_t state = (uint64_t)(step + 7);
    for (int i = 0; i < N; i++)
        values[i] = (float)(c->gradient_size * compute_uniform(&state, -1, 1));
    NRL_TRY(tensor_write(s->compute.ctx, x->whole[1], values));
    if (step) return NRL_OK;
    for (int i = 0; i < N; i++)
        values[i] = (float)compute_uniform(&state, -1, 1);
    return tensor_write(s->compute.ctx, x->whole[0], values);
}

/* Rounds the step's gradient; an encoded course gets it so, and at its start the master as two halves. */
static nrl_status encode(suite *s, subject *x, const course *c, int64_t step)
{
    nrl_ctx *ctx = s->compute.ctx;
    const int64_t n = N;
    if (!c->rounds) return NRL_OK;
    if (!x->grad16) NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_BF16, 1, &n, false, &x->grad16));
    if (!x->low) NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_U16, 1, &n, false, &x->low));
    NRL_TRY(nrl_tensor_copy(ctx, x->whole[1], x->grad16));
    NRL_TRY(nrl_tensor_copy(ctx, x->grad16, x->whole[1]));
    if (!c->encoded) return NRL_OK;
    x->slices[0].master = NULL;
    x->slices[0].low = x->low;
    x->slices[0].grad = x->grad16;
    return step ? NRL_OK : split16_split(ctx, x->whole[0], x->whole[6], x->low);
}

static nrl_status take_steps(suite *s, void *self, subject *x, const course *c, int64_t n_steps)
{
    for (int64_t step = 0; step < n_steps; step++) {
        nrl_step_params block = {sizeof block, step + 1, c->lr, c->grad_scale};
        NRL_TRY(set_values(s, x, c, step));
        NRL_TRY(encode(s, x, c, step));
        ctx_scope_begin(s->compute.ctx);
        nrl_status st = s->table->update(self, s->compute.ctx, x->slices, x->n_slices, &block);
        ctx_scope_end(s->compute.ctx);
        NRL_TRY(st);
    }
    return c->encoded ? split16_join(s->compute.ctx, x->whole[6], x->low, x->whole[0]) : NRL_OK;
}

static nrl_status fetch(suite *s, const nrl_tensor *t, float *out)
{
    double values[N];
    NRL_TRY(nrl_tensor_fetch(s->compute.ctx, t, values, N));
    for (int i = 0; i < N; i++)
        out[i] = (float)values[i];
    return NRL_OK;
}

static outcome run_course(suite *s, void *self, const course *c, int64_t n_steps)
{
    outcome o = {0};
    subject x;
    nrl_status st = make_subject(s, &x, c->placements, c->n_placements, !c->no_decay);
    if (st == NRL_OK && n_steps == 0) st = set_values(s, &x, c, 0);
    if (st == NRL_OK) st = take_steps(s, self, &x, c, n_steps);
    if (st == NRL_OK) st = fetch(s, x.whole[0], o.master);
    if (st == NRL_OK) st = fetch(s, x.whole[6], o.work);
    report_ok(s->report, st, "an update succeeds on ordinary slices");
    free_subject(s, &x);
    return o;
}

/* ---- rules ---- */

static const course plain = {.lr = 0.01, .gradient_size = 1, .grad_scale = 1};

static void check_cuts(suite *s, const outcome *whole)
{
    course c = plain;
    static const int64_t placements[] = {1, 18, 100, 100 + COLS};
    if (s->table->granularity != NRL_OPTIMIZER_ELEMENT) {
        report_skip(s->report, "an element optimizer takes any slices", "it says that it needs whole matrices");
        return;
    }
    memcpy(c.placements, placements, sizeof placements);
    c.n_placements = 4;
    outcome o = run_course(s, s->self, &c, N_STEPS);
    for (int i = 0; i < N; i++)
        report_check(s->report, is_near((double)o.master[i], (double)whole->master[i], RELATIVE, ABSOLUTE),
                     "an element optimizer takes any slices", "element %d is %.9g, expected %.9g", i,
                     (double)o.master[i], (double)whole->master[i]);
}

static void check_scale(suite *s, const outcome *whole)
{
    course c = plain;
    c.gradient_size = 4; /* powers of two: exact */
    c.grad_scale = 0.25;
    outcome o = run_course(s, s->self, &c, N_STEPS);
    for (int i = 0; i < N; i++)
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
    for (int i = 0; i < N; i++)
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
    for (int i = 0; i < N; i++)
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
        for (int i = 0; i < N; i++)
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
    for (int i = 0; i < N; i++)
        report_check(s->report, is_near((double)halves.master[i], (double)wide.master[i], RELATIVE, ABSOLUTE),
                     "a master in halves moves as one in f32", "element %d is %.9g, expected %.9g", i,
                     (double)halves.master[i], (double)wide.master[i]);
}

static void check_repeats(suite *s, const outcome *whole)
{
    void *other;
    outcome again = run_course(s, s->self, &plain, N_STEPS);
    report_check(s->report, !memcmp(&again, whole, sizeof again), "equal steps give equal bits", "masters differ");
    nrl_step_params block = {sizeof block, 1, 0.01, 1};
    report_ok(s->report, s->table->update(s->self, s->compute.ctx, NULL, 0, &block), "no slices is fine");
    if (!s->table->create || !create(s, &other)) return;
    run_course(s, other, &plain, 1);
    outcome mine = run_course(s, s->self, &plain, N_STEPS), its = run_course(s, other, &plain, N_STEPS);
    destroy(s, other);
    report_check(s->report, !memcmp(&mine, whole, sizeof mine) && !memcmp(&its, whole, sizeof its),
                 "instances live side by side", "masters differ");
}

static bool check_table(suite *s)
{
    const nrl_optimizer *t = s->table;
    bool good =
        report_check(s->report, t->granularity == NRL_OPTIMIZER_ELEMENT || t->granularity == NRL_OPTIMIZER_MATRIX,
                     "reach is element or matrix", "it is %u", t->granularity);
    good = report_check(s->report, t->n_states <= 4 && (!t->n_states || t->state_names), "states are named",
                        "n_states is %u", t->n_states) &&
           good;
    for (uint32_t i = 0; good && i < t->n_states; i++)
        good = report_check(s->report, t->state_names[i] && *t->state_names[i], "states are named", "state %u", i);
    return good;
}

static void run_rules(suite *s)
{
    outcome start = run_course(s, s->self, &plain, 0), whole = run_course(s, s->self, &plain, N_STEPS);
    check_repeats(s, &whole);
    check_cuts(s, &whole);
    check_scale(s, &whole);
    check_rates(s, &start);
    check_direction(s, &start);
    check_work(s, &whole);
    check_sizes(s);
    check_encoded(s);
}

void conformance_optimizer(const nrl_optimizer *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.table = table, .report = report, .options = setup->options};
    if (!check_table(&s) || !compute_open(&s.compute, setup, report)) return;
    if (create(&s, &s.self)) {
        run_rules(&s);
        destroy(&s, s.self);
    }
    compute_close(&s.compute);
}
