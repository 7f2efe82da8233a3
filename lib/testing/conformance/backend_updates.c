/*
 * backend_updates.c - split16 (nrl/param.h), bit-exact, quantize (nrl/optimizer.h), dequantize, and adamw: compared
 * with the published formula, and with bit-identical results for an f32 master and a split master, for tensors that
 * are updated together, and with decisions of the device.
 */
#include "base/arena.h"
#include "backend.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *room(int64_t n)
{
    double *p = mem_alloc((size_t)n * sizeof *p);
    return p;
}

/* ---- split16 ---- */

/* Lower halves around the middle, where the upper half is rounded up, and at both ends. */
static const uint16_t edges[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};

enum { UPPERS = 1 << 16, N_HALVES = UPPERS * (int)(sizeof edges / sizeof *edges) };

typedef struct {
    uint32_t wide[N_HALVES];
    uint16_t high[N_HALVES], low[N_HALVES];
} halves;

/* All NaNs with the same sign count as equal. */
static uint32_t canonical(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000 ? (bits & 0x80000000) | 0x7fc00000 : bits;
}

static uint16_t upper_of(uint32_t bits)
{
    return (uint16_t)((canonical(bits) + 0x8000) >> 16);
}

static nrl_mat row_of(const void *data, nrl_dtype dtype, int64_t n)
{
    return (nrl_mat){(void *)(uintptr_t)data, (uint32_t)dtype, 0, 1, n, n};
}

static void run_split(suite *s, bool join, const void *wide, const void *high, const void *low, int64_t n)
{
    nrl_split16_args a = {.size = sizeof a,
                          .join = join,
                          .wide = row_of(wide, NRL_DTYPE_F32, n),
                          .high = row_of(high, NRL_DTYPE_BF16, n)};
    if (low) a.low = row_of(low, NRL_DTYPE_U16, n);
    suite_ok(s, s->ops.split16(s->self, NULL, &a), "split16 runs");
}

static void check_uppers(suite *s, const halves *h, const void *device)
{
    uint16_t *got = mem_alloc(sizeof h->high);
    int64_t bad = -1;
    suite_read(s, got, device, sizeof h->high);
    for (int64_t i = 0; i < N_HALVES && bad < 0; i++)
        if (got[i] != upper_of(h->wide[i])) bad = i;
    report_check(s->report, bad < 0, "split16 rounds to nearest, ties away from zero",
                 "%s: %08x to %04x, expected %04x", s->what, bad < 0 ? 0 : h->wide[bad], bad < 0 ? 0 : got[bad],
                 bad < 0 ? 0 : upper_of(h->wide[bad]));
    free(got);
}

static void check_joined(suite *s, const halves *h, const void *device)
{
    uint32_t *got = mem_alloc(sizeof h->wide);
    int64_t bad = -1;
    suite_read(s, got, device, sizeof h->wide);
    for (int64_t i = 0; i < N_HALVES && bad < 0; i++)
        if (got[i] != canonical(h->wide[i])) bad = i;
    report_check(s->report, bad < 0, "split16 joins halves to the bits they were split from", "%s: %08x from %08x",
                 s->what, bad < 0 ? 0 : got[bad], bad < 0 ? 0 : h->wide[bad]);
    free(got);
}

static void check_halves(suite *s)
{
    halves *h = mem_alloc(sizeof *h); /* zeroed */
    for (int i = 0; i < N_HALVES; i++)
        h->wide[i] = (uint32_t)(i % UPPERS) << 16 | edges[i / UPPERS];
    suite_case(s, "split16 of all upper halves with %d lower ones", COUNT(edges));
    void *wide = suite_array(s, h->wide, sizeof h->wide), *back = suite_array(s, h->wide, sizeof h->wide);
    void *high = suite_array(s, h->high, sizeof h->high), *low = suite_array(s, h->low, sizeof h->low);
    run_split(s, false, wide, high, low, N_HALVES);
    check_uppers(s, h, high);
    run_split(s, true, back, high, low, N_HALVES);
    check_joined(s, h, back);
    suite_case(s, "split16 without lower halves");
    void *alone = suite_array(s, h->high, sizeof h->high);
    run_split(s, false, wide, alone, NULL, N_HALVES);
    check_uppers(s, h, alone);
    suite_clear(s);
    free(h);
}

/* ---- adamw ---- */

/* work: dtype of the compute weight, 0 = none */
static void check_adamw(suite *s, int64_t n, uint32_t work, double weight_decay)
{
    suite_case(s, "adamw on %lld elements%s", (long long)n,
               work == NRL_DTYPE_BF16  ? " with a bf16 copy"
               : work == NRL_DTYPE_F16 ? " with an f16 copy"
                                       : "");
    const double lr = 1e-2, scale = 0.5, b1 = 0.9, b2 = 0.95, eps = 1e-8;
    mat *w = mat_random(s, NRL_DTYPE_F32, 1, n, 0, -2, 2), *g = mat_random(s, NRL_DTYPE_F32, 1, n, 0, -3, 3);
    mat *m = mat_random(s, NRL_DTYPE_F32, 1, n, 0, -1, 1), *v = mat_random(s, NRL_DTYPE_F32, 1, n, 0, 0.01, 2);
    mat *low = work ? mat_new(s, work, 1, n, 0) : NULL;
    double *want = room(3 * n), c1 = 1 - pow(b1, 3), c2 = 1 - pow(b2, 3);
    for (int64_t i = 0; i < n; i++) {
        double grad = *mat_value(g, 0, i) * scale, x = *mat_value(w, 0, i);
        want[n + i] = b1 * *mat_value(m, 0, i) + (1 - b1) * grad;
        want[2 * n + i] = b2 * *mat_value(v, 0, i) + (1 - b2) * grad * grad;
        x -= lr * weight_decay * x;
        want[i] = x - lr * (want[n + i] / c1) / (sqrt(want[2 * n + i] / c2) + eps);
    }
    nrl_adamw_args a = {.size = sizeof a,
                        .master = mat_args(w),
                        .grad = mat_args(g),
                        .m = mat_args(m),
                        .v = mat_args(v),
                        .work = mat_args(low),
                        .lr = lr,
                        .grad_scale = scale,
                        .beta1 = b1,
                        .beta2 = b2,
                        .eps = eps,
                        .weight_decay = weight_decay,
                        .correction1 = c1,
                        .correction2 = c2};
    suite_ok(s, s->ops.adamw(s->self, NULL, &a), "adamw runs");
    suite_expect(s, "adamw updates by the published formula", w, want, 1e-6, 2e-7);
    suite_expect(s, "adamw updates by the published formula", m, want + n, 1e-6, 2e-7);
    suite_expect(s, "adamw updates by the published formula", v, want + 2 * n, 1e-6, 2e-7);
    for (int64_t i = 0; i < n; i++)
        want[i] = *mat_value(w, 0, i);
    if (low) suite_expect(s, "adamw rounds the master into the work copy", low, want, 0, 0);
    free(want);
    suite_clear(s);
}

/* ---- the same update of a split master, with a bf16 gradient ---- */

enum { N_UPDATED = 5003, N_TIES = 64 /* masters halfway between two bf16 values */ };

#define GRAD_SCALE 0.7

/* Operands of an update, on the device. */
typedef struct {
    mat *master, *grad, *m, *v;
    void *high, *low; /* bf16 and u16 */
} operands;

/* Suites with equal `random` get equal values. */
static operands new_operands(suite *s, nrl_dtype grad)
{
    static const uint16_t zeros[N_UPDATED];
    operands o = {.master = mat_random(s, NRL_DTYPE_F32, 1, N_UPDATED, 0, -2, 2),
                  .m = mat_random(s, NRL_DTYPE_F32, 1, N_UPDATED, 0, -1, 1),
                  .v = mat_random(s, NRL_DTYPE_F32, 1, N_UPDATED, 0, 0.01, 2),
                  .grad = mat_new(s, grad, 1, N_UPDATED, 0)};
    for (int i = 0; i < N_UPDATED; i++)
        mat_set(s, o.grad, 0, i, mat_round(NRL_DTYPE_BF16, suite_uniform(s, -3, 3)));
    mat_upload(s, o.grad);
    for (int i = 0; i < N_TIES; i++)
        mat_set(s, o.master, 0, i, (i % 2 ? -1 : 1) * (1 + (2 * i + 1) * 0x1p-8));
    mat_upload(s, o.master);
    o.high = suite_array(s, zeros, sizeof zeros);
    o.low = suite_array(s, zeros, sizeof zeros);
    return o;
}

static void update(suite *s, const operands *o, bool split, double lr, const nrl_update_decision *decision)
{
    nrl_adamw_args a = {.size = sizeof a,
                        .grad = mat_args(o->grad),
                        .m = mat_args(o->m),
                        .v = mat_args(o->v),
                        .work = row_of(o->high, NRL_DTYPE_BF16, N_UPDATED),
                        .lr = lr,
                        .grad_scale = decision ? NAN : GRAD_SCALE,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .eps = 1e-8,
                        .weight_decay = 0.1,
                        .correction1 = 0.3,
                        .correction2 = 0.1,
                        .decision = decision};
    if (split)
        a.low = row_of(o->low, NRL_DTYPE_U16, N_UPDATED);
    else
        a.master = mat_args(o->master);
    suite_ok(s, s->ops.adamw(s->self, NULL, &a), "adamw runs");
}

static void check_same(suite *s, const char *what, const void *a, const void *b, size_t bytes)
{
    char *first = mem_alloc(bytes), *second = mem_alloc(bytes);
    suite_read(s, first, a, bytes);
    suite_read(s, second, b, bytes);
    report_check(s->report, !memcmp(first, second, bytes), "adamw gives halves of a master the bits of the whole",
                 "%s: %s differ", s->what, what);
    free(first);
    free(second);
}

/* Nothing is updated, so the ties remain. */
static void check_ties(suite *s, const operands *o)
{
    uint16_t high[N_TIES];
    float master[N_TIES];
    int bad = 0;
    update(s, o, false, 0, NULL);
    suite_read(s, high, o->high, sizeof high);
    suite_read(s, master, o->master->device, sizeof master);
    for (int i = 0; i < N_TIES; i++) {
        uint32_t bits;
        memcpy(&bits, &master[i], sizeof bits);
        bad += high[i] != upper_of(bits) || (bits & 0xffff) != 0x8000;
    }
    report_check(s->report, !bad, "adamw rounds ties of a bf16 work copy away from zero", "%s: %d of %d do not",
                 s->what, bad, (int)N_TIES);
}

static void check_encoded(suite *s)
{
    suite_case(s, "adamw on halves with a bf16 gradient");
    uint64_t random = s->random;
    operands plain = new_operands(s, NRL_DTYPE_F32);
    s->random = random;
    operands split = new_operands(s, NRL_DTYPE_BF16);
    run_split(s, false, split.master->device, split.high, split.low, N_UPDATED);
    check_ties(s, &plain);
    update(s, &split, true, 0, NULL);
    for (int step = 0; step < 3; step++) {
        update(s, &plain, false, 1e-2, NULL);
        update(s, &split, true, 1e-2, NULL);
    }
    check_same(s, "upper halves", plain.high, split.high, N_UPDATED * sizeof(uint16_t));
    run_split(s, true, split.master->device, split.high, split.low, N_UPDATED);
    check_same(s, "masters", plain.master->device, split.master->device, N_UPDATED * sizeof(float));
    check_same(s, "first moments", plain.m->device, split.m->device, N_UPDATED * sizeof(float));
    check_same(s, "second moments", plain.v->device, split.v->device, N_UPDATED * sizeof(float));
    suite_clear(s);
}

/* ---- many tensors together ---- */

enum { N_TENSORS = 70, N_ROUNDED = 40 /* have a bf16 copy */, MOST_ELEMENTS = 5001 };

/* Each row is a tensor, or the start of one. */
typedef struct {
    mat *master, *grad, *m, *v, *work;
} tensors;

static tensors new_tensors(suite *s)
{
    return (tensors){.master = mat_random(s, NRL_DTYPE_F32, N_TENSORS, MOST_ELEMENTS, 0, -2, 2),
                     .grad = mat_random(s, NRL_DTYPE_F32, N_TENSORS, MOST_ELEMENTS, 0, -3, 3),
                     .m = mat_random(s, NRL_DTYPE_F32, N_TENSORS, MOST_ELEMENTS, 0, -1, 1),
                     .v = mat_random(s, NRL_DTYPE_F32, N_TENSORS, MOST_ELEMENTS, 0, 0.01, 2),
                     .work = mat_random(s, NRL_DTYPE_BF16, N_TENSORS, MOST_ELEMENTS, 0, -2, 2)};
}

/* Tensor k of a matrix. */
static nrl_mat tensor_of(const mat *all, int k)
{
    static const int64_t lengths[] = {1, 17, 8, 2049, 64, MOST_ELEMENTS, 2048}; /* a few packs or blocks */
    const size_t at = (size_t)k * MOST_ELEMENTS * nrl_dtype_size((nrl_dtype)all->dtype);
    return row_of((const char *)all->device + at, (nrl_dtype)all->dtype, lengths[k % COUNT(lengths)]);
}

static nrl_adamw_args update_of(const tensors *t, int k)
{
    nrl_adamw_args a = {.size = sizeof a,
                        .master = tensor_of(t->master, k),
                        .grad = tensor_of(t->grad, k),
                        .m = tensor_of(t->m, k),
                        .v = tensor_of(t->v, k),
                        .lr = 1e-2,
                        .grad_scale = GRAD_SCALE,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .eps = 1e-8,
                        .weight_decay = k % 3 ? 0.1 : 0,
                        .correction1 = 0.3,
                        .correction2 = 0.1};
    if (k < N_ROUNDED) a.work = tensor_of(t->work, k);
    return a;
}

static void check_equal(suite *s, const char *what, const mat *a, const mat *b)
{
    const size_t bytes = N_TENSORS * MOST_ELEMENTS * nrl_dtype_size((nrl_dtype)a->dtype);
    char *first = mem_alloc(bytes), *second = mem_alloc(bytes);
    suite_read(s, first, a->device, bytes);
    suite_read(s, second, b->device, bytes);
    report_check(s->report, !memcmp(first, second, bytes), "calls made together have the results of single ones",
                 "%s: %s differ", s->what, what);
    free(first);
    free(second);
}

/* With decisions, one that applies and one that does not: a pass that changes nothing, and a second one in which most
 * calls have a decision. */
static void check_adamw_all(suite *s, const nrl_update_decision decisions[2])
{
    suite_case(s, "adamw_all of %d tensors%s", (int)N_TENSORS, decisions ? ", with decisions" : "");
    nrl_adamw_args calls[N_TENSORS];
    const uint64_t random = s->random;
    const tensors alone = new_tensors(s);
    s->random = random;
    const tensors together = new_tensors(s);
    for (int k = 0; k < N_TENSORS; k++) {
        calls[k] = update_of(&alone, k);
        suite_ok(s, s->ops.adamw(s->self, NULL, &calls[k]), "adamw runs");
        calls[k] = update_of(&together, k);
    }
    const nrl_update_decision *on = decisions ? suite_array(s, decisions, 2 * sizeof *decisions) : NULL;
    for (int k = 0; on && k < N_TENSORS; k++)
        calls[k].decision = on + 1;
    if (on) suite_ok(s, s->table->adamw_all(s->self, NULL, calls, N_TENSORS), "adamw_all runs");
    for (int k = 0; on && k < N_TENSORS; k++) {
        calls[k].decision = k % 5 ? on : NULL;
        if (k % 5) calls[k].grad_scale = NAN;
    }
    suite_ok(s, s->table->adamw_all(s->self, NULL, calls, N_TENSORS), "adamw_all runs");
    check_equal(s, "masters", alone.master, together.master);
    check_equal(s, "first moments", alone.m, together.m);
    check_equal(s, "second moments", alone.v, together.v);
    check_equal(s, "copies", alone.work, together.work);
    suite_clear(s);
}

static void check_square_sum_all(suite *s)
{
    suite_case(s, "square_sum_all of %d tensors", (int)N_TENSORS);
    static const double zeros[2 * N_TENSORS];
    double sums[2 * N_TENSORS];
    nrl_square_sum_args calls[N_TENSORS];
    double *out = suite_array(s, zeros, sizeof zeros);
    const mat *narrow = mat_random(s, NRL_DTYPE_BF16, N_TENSORS, MOST_ELEMENTS, 0, -3, 3);
    const mat *wide = mat_random(s, NRL_DTYPE_F32, N_TENSORS, MOST_ELEMENTS, 0, -3, 3);
    for (int k = 0; k < N_TENSORS; k++) {
        calls[k] = (nrl_square_sum_args){
            .size = sizeof *calls, .overwrite = true, .x = tensor_of(k < N_ROUNDED ? narrow : wide, k), .out = out + k};
        suite_ok(s, s->ops.square_sum(s->self, NULL, &calls[k]), "square_sum runs");
        calls[k].out += N_TENSORS;
    }
    suite_ok(s, s->table->square_sum_all(s->self, NULL, calls, N_TENSORS), "square_sum_all runs");
    suite_read(s, sums, out, sizeof sums);
    report_check(s->report, sums[0] > 0 && !memcmp(sums, sums + N_TENSORS, sizeof sums / 2),
                 "calls made together have the results of single ones", "%s: it does not", s->what);
    suite_clear(s);
}

/* ---- decisions of the device ---- */

/* Squares of n slices and two sums, of which one value may be spoiled. */
static void check_decision(suite *s, const nrl_update_decider *decider, int64_t n, double max_norm, double square,
                           float sum)
{
    double *squares = room(n), total = 0;
    const float sums[] = {-3, sum};
    const double scale = -0.3;
    nrl_update_decision got = {NAN, NAN, NAN}, want;
    suite_case(s, "decision of %lld squares, at most %g, with %g and a sum of %g", (long long)n, max_norm, square,
               (double)sum);
    for (int64_t i = 0; i < n; i++)
        squares[i] = suite_uniform(s, 0, 10);
    squares[n / 2] = square;
    for (int64_t i = 0; i < n; i++)
        total += squares[i];
    want.grad_norm = sqrt(total) * fabs(scale);
    want.applies = isfinite(want.grad_norm) && isfinite(sum);
    want.grad_scale = scale * (max_norm > 0 ? fmin(1, max_norm / (want.grad_norm + 1e-6)) : 1);
    if (!(want.applies > 0)) want.grad_scale = 0;
    const float *on = suite_array(s, sums, sizeof sums);
    nrl_decide_args a = {.size = sizeof a,
                         .n_sums = 2,
                         .squares = suite_array(s, squares, (size_t)n * sizeof *squares),
                         .n_squares = n,
                         .scale = scale,
                         .max_norm = max_norm,
                         .sums = {on, on + 1},
                         .out = suite_array(s, &got, sizeof got)};
    if (suite_ok(s, decider->decide(decider->self, NULL, &a), "decide runs")) {
        suite_read(s, &got, a.out, sizeof got);
        const bool same =
            isnan(want.grad_norm) ? isnan(got.grad_norm) : !memcmp(&got.grad_norm, &want.grad_norm, sizeof(double));
        report_check(s->report,
                     same && !memcmp(&got.grad_scale, &want.grad_scale, sizeof(double)) &&
                         !memcmp(&got.applies, &want.applies, sizeof(double)),
                     "the device decides as the host does, bit for bit",
                     "%s: %.17g, %.17g, %g, expected %.17g, %.17g, %g", s->what, got.grad_norm, got.grad_scale,
                     got.applies, want.grad_norm, want.grad_scale, want.applies);
    }
    suite_clear(s);
    free(squares);
}

static const nrl_update_decision decisions[] = {{GRAD_SCALE, 1, 1}, {GRAD_SCALE, 1, 0}};

/* The same update with and without a decision, and one that does not apply. */
static void check_decided(suite *s, bool split)
{
    suite_case(s, "adamw with a decision%s", split ? " on halves" : "");
    const uint64_t random = s->random;
    float now[2][N_UPDATED];
    uint16_t high[2][N_UPDATED];
    operands o[2];
    const nrl_update_decision *on = suite_array(s, decisions, sizeof decisions);
    for (int i = 0; i < 2; i++) {
        s->random = random;
        o[i] = new_operands(s, split ? NRL_DTYPE_BF16 : NRL_DTYPE_F32);
        run_split(s, false, o[i].master->device, o[i].high, o[i].low, N_UPDATED);
    }
    for (int step = 0; step < 2; step++) { /* before the second one, an update that does not apply */
        update(s, &o[0], split, 1e-2, NULL);
        if (step) update(s, &o[1], split, 1e-2, on + 1);
        update(s, &o[1], split, 1e-2, on);
    }
    for (int i = 0; i < 2; i++) {
        suite_read(s, now[i], split ? o[i].v->device : o[i].master->device, sizeof now[i]);
        suite_read(s, high[i], o[i].high, sizeof high[i]);
    }
    report_check(s->report, !memcmp(now[0], now[1], sizeof *now) && !memcmp(high[0], high[1], sizeof *high),
                 "adamw does what a decision says", "%s", s->what);
    suite_clear(s);
}

static void check_decider(suite *s, const nrl_update_decider *decider)
{
    static const int64_t sizes[] = {1, 255, 256, 257, 1000};
    for (int k = 0; k < COUNT(sizes); k++)
        for (int clips = 0; clips < 3; clips++)
            check_decision(s, decider, sizes[k], clips == 2 ? 1e6 : clips, 2, 5);
    check_decision(s, decider, 300, 1, (double)INFINITY, 5);
    check_decision(s, decider, 300, 1, (double)NAN, 5);
    check_decision(s, decider, 300, 1, 2, INFINITY);
    check_decision(s, decider, 300, 1, 2, NAN);
    for (int split = 0; s->ops.adamw && s->ops.split16 && split < 2; split++)
        check_decided(s, split);
    if (s->ops.adamw && s->table->adamw_all) check_adamw_all(s, decisions);
}

/* ---- quantize ---- */

enum { CODES = 256, N_QUANTIZED = 300 };

typedef struct {
    float x[N_QUANTIZED], back[N_QUANTIZED], code[CODES], scale[N_QUANTIZED];
    uint8_t q[N_QUANTIZED];
} quantized;

/* Uneven steps from -1 to 1, with 0 among them. */
static void fill_quantized(suite *s, quantized *z, int64_t block)
{
    const int half = CODES / 2;
    for (int i = 0; i < CODES; i++) {
        float at = (float)(i - half) / (float)half;
        z->code[i] = i < CODES - 1 ? at * fabsf(at) : 1;
    }
    for (int i = 0; i < N_QUANTIZED; i++)
        z->x[i] = i < block ? 0 : (float)suite_uniform(s, -3, 3) * (float)suite_uniform(s, 0, 1);
}

static void run_quantize(suite *s, bool inverse, const quantized *on, int64_t block)
{
    int64_t n_blocks = (N_QUANTIZED + block - 1) / block;
    nrl_quantize_args a = {.size = sizeof a,
                           .inverse = inverse,
                           .block = block,
                           .x = row_of(inverse ? on->back : on->x, NRL_DTYPE_F32, N_QUANTIZED),
                           .q = row_of(on->q, NRL_DTYPE_U8, N_QUANTIZED),
                           .scale = row_of(on->scale, NRL_DTYPE_F32, n_blocks),
                           .code = row_of(on->code, NRL_DTYPE_F32, CODES)};
    suite_ok(s, s->ops.quantize(s->self, NULL, &a), "quantize runs");
}

/* How far q is from x / scale beyond the nearest entry that x may have. */
static double excess(const quantized *z, int i, double scale)
{
    double x = scale > 0 ? (double)z->x[i] / scale : 0, best = 2;
    for (int k = 0; k < CODES; k++)
        if (!(x < 0 && z->code[k] >= 0)) best = fmin(best, fabs(x - (double)z->code[k]));
    return fabs(x - (double)z->code[z->q[i]]) - best;
}

static void check_quantized(suite *s, const quantized *z, int64_t block)
{
    int bad = -1, wrong_scale = -1, wrong_back = -1;
    for (int i = 0; i < N_QUANTIZED; i++) {
        double scale = 0;
        for (int64_t k = i / block * block; k < N_QUANTIZED && k < (i / block + 1) * block; k++)
            scale = fmax(scale, fabs((double)z->x[k]));
        if (z->scale[i / block] < (float)scale || z->scale[i / block] > (float)scale) wrong_scale = i;
        if (scale > 0 ? excess(z, i, scale) > 1e-6 : z->q[i] != 0) bad = i;
        float back = z->code[z->q[i]] * z->scale[i / block];
        if (z->back[i] < back || z->back[i] > back) wrong_back = i;
    }
    report_check(s->report, wrong_scale < 0, "quantize scales blocks by their largest magnitude", "%s: element %d",
                 s->what, wrong_scale);
    report_check(s->report, bad < 0, "quantize takes the nearest entry, of x below 0 one below 0", "%s: element %d",
                 s->what, bad);
    report_check(s->report, wrong_back < 0, "quantize gives back entry times scale", "%s: element %d", s->what,
                 wrong_back);
}

static void check_quantize(suite *s, int64_t block)
{
    quantized *z = mem_alloc(sizeof *z), device;
    suite_case(s, "quantize in blocks of %lld", (long long)block);
    fill_quantized(s, z, block);
    char *on = suite_array(s, z, sizeof *z);
    const quantized *there = (const quantized *)(const void *)on;
    run_quantize(s, false, there, block);
    run_quantize(s, true, there, block);
    suite_read(s, &device, on, sizeof device);
    check_quantized(s, &device, block);
    suite_clear(s);
    free(z);
}

/* ---- dequantize ---- */

typedef struct {
    float back[N_QUANTIZED], code[CODES], scale[N_QUANTIZED], nested[2], nested_code[CODES], offset;
    uint8_t q[N_QUANTIZED], nested_q[N_QUANTIZED];
} dequantized;

/* Codes and scales are random: any byte is a code. */
static void check_dequantize(suite *s, int n_codes, int64_t block, uint32_t dtype)
{
    const bool nested = n_codes == 16;
    const int64_t n_blocks = (N_QUANTIZED + block - 1) / block;
    dequantized *z = mem_alloc(sizeof *z), *back = mem_alloc(sizeof *back);
    suite_case(s, "dequantize %d codes in blocks of %lld to %s", n_codes, (long long)block,
               nrl_dtype_name((nrl_dtype)dtype));
    for (int i = 0; i < CODES; i++) {
        z->code[i] = (float)suite_uniform(s, -1, 1);
        z->nested_code[i] = (float)suite_uniform(s, -1, 1);
    }
    for (int i = 0; i < N_QUANTIZED; i++) {
        z->q[i] = (uint8_t)suite_uniform(s, 0, 255.9);
        z->nested_q[i] = (uint8_t)suite_uniform(s, 0, 255.9);
        z->scale[i] = (float)suite_uniform(s, 0, 3);
    }
    z->nested[0] = 0.5F;
    z->nested[1] = 2;
    z->offset = 0.25F;
    char *on = suite_array(s, z, sizeof *z);
    const dequantized *there = (const dequantized *)(const void *)on;
    nrl_dequantize_args a = {.size = sizeof a,
                             .x = row_of(there->back, dtype, N_QUANTIZED),
                             .q = row_of(there->q, NRL_DTYPE_U8, nested ? (N_QUANTIZED + 1) / 2 : N_QUANTIZED),
                             .scale = nested ? row_of(there->nested_q, NRL_DTYPE_U8, n_blocks)
                                             : row_of(there->scale, NRL_DTYPE_F32, n_blocks),
                             .code = row_of(there->code, NRL_DTYPE_F32, n_codes),
                             .block = block};
    if (nested) {
        a.nested = row_of(there->nested, NRL_DTYPE_F32, 2);
        a.nested_code = row_of(there->nested_code, NRL_DTYPE_F32, CODES);
        a.offset = row_of(&there->offset, NRL_DTYPE_F32, 1);
    }
    suite_ok(s, s->ops.dequantize(s->self, NULL, &a), "dequantize runs");
    suite_read(s, back, on, sizeof *back);
    int bad = -1;
    for (int i = 0; i < N_QUANTIZED; i++) {
        int64_t b = i / block;
        int code = nested ? z->q[i / 2] >> (i % 2 ? 0 : 4) & 15 : z->q[i];
        double scale = nested ? (double)z->nested_code[z->nested_q[b]] * (double)z->nested[b / 256] + (double)z->offset
                              : (double)z->scale[b];
        double want = (double)z->code[code] * scale;
        double got = nrl_dtype_f64((nrl_dtype)dtype, (char *)back->back + (size_t)i * nrl_dtype_size((nrl_dtype)dtype));
        if (!(fabs(got - want) <= (dtype == NRL_DTYPE_F32 ? 1e-6 : 1e-2) * (1 + fabs(want)))) bad = i;
    }
    report_check(s->report, bad < 0, "dequantize gives code times scale", "%s: element %d", s->what, bad);
    suite_clear(s);
    free(z);
    free(back);
}

void suite_updates(suite *s)
{
    static const int64_t sizes[] = {1, 17, 65, 5000};
    for (int k = 0; s->ops.adamw && k < COUNT(sizes); k++)
        for (int d = 0; d < s->n_dtypes; d++) {
            uint32_t work = d ? suite_dtypes[d] : 0;
            check_adamw(s, sizes[k], work, 0.1);
            check_adamw(s, sizes[k], work, 0);
        }
    const nrl_update_decider *decider = s->table->extension ? s->table->extension(s->self, "update_decision") : NULL;
    if (decider) check_decider(s, decider);
    for (int64_t block = 64; s->ops.quantize && block <= 512; block *= 2)
        check_quantize(s, block);
    for (int d = 0; s->ops.dequantize && d < s->n_dtypes; d++) {
        check_dequantize(s, 16, 64, suite_dtypes[d]);
        check_dequantize(s, 16, 10, suite_dtypes[d]);
        check_dequantize(s, CODES, 33, suite_dtypes[d]);
        check_dequantize(s, CODES, 8, suite_dtypes[d]);
    }
    if (s->ops.split16) check_halves(s);
    if (s->ops.split16 && s->ops.adamw) check_encoded(s);
    if (s->table->adamw_all && s->ops.adamw) check_adamw_all(s, NULL);
    if (s->table->square_sum_all && s->ops.square_sum) check_square_sum_all(s);
}
