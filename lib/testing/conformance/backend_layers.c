/*
 * backend_layers.c - norm, rope, glu, dropout.
 */
#include "base/arena.h"
#include "backend.h"
#include <math.h>
#include <stdlib.h>

static double *room(int64_t n)
{
    double *p = mem_alloc((size_t)n * sizeof *p);
    return p;
}

/* ---- norm ---- */

typedef struct {
    int64_t rows, groups, width, gap;
    uint32_t dtype, weight_dtype;
    bool rms, residual, dsum, overwrite;
} norm_case;

typedef struct {
    mat *x, *residual, *sum, *weight, *bias, *y, *mean, *rstd;
    mat *dy, *dsum, *dx, *dweight, *dbias;
} norm_mats;

static const double NORM_EPS = 1e-5;

static norm_mats norm_new(suite *s, const norm_case *k)
{
    int64_t cols = k->groups * k->width;
    norm_mats m = {0};
    m.x = mat_random(s, k->dtype, k->rows, cols, k->gap, -2, 3);
    if (k->residual) {
        m.residual = mat_random(s, k->dtype, k->rows, cols, 0, -2, 3);
        m.sum = mat_new(s, k->dtype, k->rows, cols, k->gap);
    }
    m.weight = mat_random(s, k->weight_dtype, 1, k->width, 0, 0.5, 1.5);
    m.y = mat_new(s, k->dtype, k->rows, cols, 0);
    m.rstd = mat_new(s, NRL_DTYPE_F32, 1, k->rows * k->groups, 0);
    if (!k->rms) {
        m.bias = mat_random(s, k->weight_dtype, 1, k->width, 0, -1, 1);
        m.mean = mat_new(s, NRL_DTYPE_F32, 1, k->rows * k->groups, 0);
        m.dbias = mat_random(s, NRL_DTYPE_F32, 1, k->width, 0, -1, 1);
    }
    m.dy = mat_random(s, k->dtype, k->rows, cols, 0, -1, 1);
    if (k->dsum) m.dsum = mat_random(s, k->dtype, k->rows, cols, 2, -1, 1);
    m.dx = mat_new(s, k->dtype, k->rows, cols, k->gap);
    m.dweight = mat_random(s, NRL_DTYPE_F32, 1, k->width, 0, -1, 1);
    return m;
}

/* mean and 1 / deviation of one group of x. */
static void norm_moments(mat *x, const norm_case *k, int64_t row, int64_t group, double *mean, double *rstd)
{
    double sum = 0, square = 0;
    for (int64_t c = 0; c < k->width; c++)
        sum += *mat_value(x, row, group * k->width + c);
    *mean = k->rms ? 0 : sum / (double)k->width;
    for (int64_t c = 0; c < k->width; c++) {
        double d = *mat_value(x, row, group * k->width + c) - *mean;
        square += d * d;
    }
    *rstd = 1 / sqrt(square / (double)k->width + NORM_EPS);
}

/* y of the reference, from `x` (already the sum). */
static void norm_reference(norm_mats *m, mat *x, const norm_case *k, double *y)
{
    int64_t cols = k->groups * k->width;
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t i = 0; i < cols; i++) {
            double mean, rstd;
            norm_moments(x, k, r, i / k->width, &mean, &rstd);
            y[r * cols + i] = (*mat_value(x, r, i) - mean) * rstd * *mat_value(m->weight, 0, i % k->width);
            if (m->bias) y[r * cols + i] += *mat_value(m->bias, 0, i % k->width);
        }
}

/* The dx of one group, and its contribution to dweight and dbias. */
static void norm_slopes(norm_mats *m, mat *x, const norm_case *k, int64_t row, int64_t group, double *dx,
                        double *dweight, double *dbias)
{
    double mean, rstd, sum_g = 0, sum_gh = 0;
    norm_moments(x, k, row, group, &mean, &rstd);
    for (int64_t c = 0; c < k->width; c++) {
        int64_t i = group * k->width + c;
        double dy = *mat_value(m->dy, row, i), h = (*mat_value(x, row, i) - mean) * rstd;
        double g = dy * *mat_value(m->weight, 0, c);
        sum_g += g;
        sum_gh += g * h;
        dweight[c] += dy * h;
        dbias[c] += dy;
    }
    if (k->rms) sum_g = 0;
    for (int64_t c = 0; c < k->width; c++) {
        int64_t i = group * k->width + c;
        double h = (*mat_value(x, row, i) - mean) * rstd;
        double g = *mat_value(m->dy, row, i) * *mat_value(m->weight, 0, c);
        dx[c] = rstd * (g - (sum_g + h * sum_gh) / (double)k->width);
        if (m->dsum) dx[c] += *mat_value(m->dsum, row, i);
    }
}

static void check_norm_grad(suite *s, norm_mats *m, mat *x, const norm_case *k)
{
    int64_t cols = k->groups * k->width;
    double *dx = room(k->rows * cols), *dweight = room(k->width), *dbias = room(k->width);
    for (int64_t c = 0; !k->overwrite && c < k->width; c++) {
        dweight[c] = *mat_value(m->dweight, 0, c);
        if (m->dbias) dbias[c] = *mat_value(m->dbias, 0, c);
    }
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t g = 0; g < k->groups; g++)
            norm_slopes(m, x, k, r, g, dx + r * cols + g * k->width, dweight, dbias);
    nrl_norm_grad_args a = {.size = sizeof a,
                            .rms = k->rms,
                            .overwrite_weight = k->overwrite,
                            .overwrite_bias = k->overwrite,
                            .x = mat_args(x),
                            .weight = mat_args(m->weight),
                            .mean = mat_args(m->mean),
                            .rstd = mat_args(m->rstd),
                            .dy = mat_args(m->dy),
                            .dsum = mat_args(m->dsum),
                            .dx = mat_args(m->dx),
                            .dweight = mat_args(m->dweight),
                            .dbias = mat_args(m->dbias)};
    suite_ok(s, s->ops.norm_grad(s->self, NULL, &a), "norm_grad runs");
    /* with a single value there is no spread: 1 / sqrt(eps) multiplies the rounding error of a
     * difference */
    suite_expect(s, "norm_grad is the slope of norm", m->dx, dx, 1e-5, k->width == 1 ? 1e-4 : 1e-5);
    double abs = 1e-6 * (double)(k->rows * k->groups + 10);
    const char *rule = k->overwrite ? "norm_grad sums over rows" : "norm_grad adds unless overwrite";
    suite_expect(s, rule, m->dweight, dweight, 1e-5, abs);
    if (m->dbias) suite_expect(s, rule, m->dbias, dbias, 1e-5, abs);
    free(dx);
    free(dweight);
    free(dbias);
}

static void check_norm(suite *s, const norm_case *k)
{
    int64_t cols = k->groups * k->width;
    suite_case(s, "%s norm, %lld rows of %lld x %lld, %s, weight %s%s%s", k->rms ? "rms" : "layer", (long long)k->rows,
               (long long)k->groups, (long long)k->width, nrl_dtype_name(k->dtype), nrl_dtype_name(k->weight_dtype),
               k->residual ? ", residual" : "", k->overwrite ? "" : ", added");
    norm_mats m = norm_new(s, k);
    double *y = room(k->rows * cols);
    nrl_norm_args a = {.size = sizeof a,
                       .rms = k->rms,
                       .x = mat_args(m.x),
                       .residual = mat_args(m.residual),
                       .sum = mat_args(m.sum),
                       .weight = mat_args(m.weight),
                       .bias = mat_args(m.bias),
                       .y = mat_args(m.y),
                       .mean = mat_args(m.mean),
                       .rstd = mat_args(m.rstd),
                       .eps = NORM_EPS};
    suite_ok(s, s->ops.norm(s->self, NULL, &a), "norm runs");
    mat *x = m.x;
    if (k->residual) {
        for (int64_t i = 0; i < k->rows * cols; i++)
            y[i] = *mat_value(m.x, i / cols, i % cols) + *mat_value(m.residual, i / cols, i % cols);
        suite_expect(s, "norm stores the residual sum", m.sum, y, 3e-7, 3e-7);
        x = m.sum; /* the stored, rounded sum */
    }
    norm_reference(&m, x, k, y);
    suite_expect(s, "norm normalises each group", m.y, y, 1e-5, 3e-6);
    free(y);
    if (s->ops.norm_grad) check_norm_grad(s, &m, x, k);
    suite_clear(s);
}

void suite_norms(suite *s)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 1, 17}, {17, 3, 16}, {65, 1, 65}, {5, 1, 2100}, {100, 2, 64}};
    for (int k = 0; s->ops.norm && k < COUNT(shapes); k++)
        for (int how = 0; how < 16 * s->n_dtypes; how++) {
            uint32_t dtype = suite_dtypes[how / 16];
            /* emulators are slow, so 16-bit types run only half of the settings, in which each pair
             * of settings occurs */
            if (dtype != NRL_DTYPE_F32 && __builtin_parity((unsigned)how & 15)) continue;
            norm_case c = {
                shapes[k][0], shapes[k][1], shapes[k][2], how & 8 ? 3 : 0, dtype, how & 4 ? dtype : NRL_DTYPE_F32,
                how & 1,      how & 2,      how & 4,      how & 8};
            check_norm(s, &c);
        }
}

/* ---- rope ---- */

static void check_rope(suite *s, uint32_t dtype, int64_t rows, int64_t heads, int64_t width, int64_t half, bool inverse,
                       bool in_place)
{
    int64_t cols = heads * width;
    suite_case(s, "rope, %lld rows of %lld x %lld, %lld pairs, %s%s%s", (long long)rows, (long long)heads,
               (long long)width, (long long)half, nrl_dtype_name(dtype), inverse ? ", inverse" : "",
               in_place ? ", in place" : "");
    mat *x = mat_random(s, dtype, rows, cols, 2, -2, 2);
    mat *y = in_place ? x : mat_new(s, dtype, rows, cols, 0);
    float *cosine = mem_alloc((size_t)(rows * half) * sizeof(float));
    float *sine = mem_alloc((size_t)(rows * half) * sizeof(float));
    double *want = room(rows * cols);
    for (int64_t i = 0; i < rows * half; i++) {
        double angle = suite_uniform(s, -3, 3);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t r = i / cols, c = i % cols, d = c % width;
        double v = *mat_value(x, r, c), sign = inverse ? -1 : 1;
        want[i] = v;
        if (d < half)
            want[i] = v * cosine[r * half + d] - *mat_value(x, r, c + half) * sign * sine[r * half + d];
        else if (d < 2 * half)
            want[i] = v * cosine[r * half + d - half] + *mat_value(x, r, c - half) * sign * sine[r * half + d - half];
    }
    size_t bytes = (size_t)(rows * half) * sizeof(float);
    nrl_rope_args a = {.size = sizeof a,
                       .inverse = inverse,
                       .x = mat_args(x),
                       .y = mat_args(y),
                       .cos = suite_array(s, cosine, bytes),
                       .sin = suite_array(s, sine, bytes),
                       .n_heads = heads,
                       .half = half};
    suite_ok(s, s->ops.rope(s->self, NULL, &a), "rope runs");
    suite_expect(s, "rope turns pairs half a head apart", y, want, 1e-6, 1e-6);
    free(want);
    free(cosine);
    free(sine);
    suite_clear(s);
}

/* ---- glu ---- */

static double gate_value(uint32_t act, double x)
{
    if (act == NRL_UNARY_SILU) return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void check_glu(suite *s, uint32_t act, uint32_t dtype, int64_t rows, int64_t cols, int64_t gap)
{
    int64_t n = rows * cols;
    suite_case(s, "glu with %s, %lld x %lld, %s", act == NRL_UNARY_SILU ? "silu" : "gelu_tanh", (long long)rows,
               (long long)cols, nrl_dtype_name(dtype));
    mat *gate = mat_random(s, dtype, rows, cols, gap, -6, 6);
    mat *up = mat_random(s, dtype, rows, cols, gap, -2, 2), *y = mat_new(s, dtype, rows, cols, 0);
    mat *dy = mat_random(s, dtype, rows, cols, 0, -2, 2);
    mat *dgate = mat_new(s, dtype, rows, cols, gap), *dup = mat_new(s, dtype, rows, cols, gap);
    double *want = room(3 * n);
    for (int64_t i = 0; i < n; i++) {
        double g = *mat_value(gate, i / cols, i % cols), u = *mat_value(up, i / cols, i % cols);
        double d = *mat_value(dy, i / cols, i % cols), h = 1e-5;
        want[i] = gate_value(act, g) * u;
        want[n + i] = d * u * (gate_value(act, g + h) - gate_value(act, g - h)) / (2 * h);
        want[2 * n + i] = d * gate_value(act, g);
    }
    nrl_glu_args a = {.size = sizeof a, .act = act, .gate = mat_args(gate), .up = mat_args(up), .y = mat_args(y)};
    suite_ok(s, s->ops.glu(s->self, NULL, &a), "glu runs");
    suite_expect(s, "glu is act(gate) up", y, want, 3e-6, 2e-6);
    nrl_glu_grad_args g = {.size = sizeof g,
                           .act = act,
                           .gate = mat_args(gate),
                           .up = mat_args(up),
                           .dy = mat_args(dy),
                           .dgate = mat_args(dgate),
                           .dup = mat_args(dup)};
    if (s->ops.glu_grad) {
        suite_ok(s, s->ops.glu_grad(s->self, NULL, &g), "glu_grad runs");
        suite_expect(s, "glu_grad is the slope of glu", dgate, want + n, 5e-6, 5e-6);
        suite_expect(s, "glu_grad is the slope of glu", dup, want + 2 * n, 5e-6, 5e-6);
    }
    free(want);
    suite_clear(s);
}

/* ---- dropout ---- */

enum { ROWS = 40, COLS = 251 };

/* With rows numbered in reverse, the rows have each other's masks. The elements of the matrix are
 * all kept or zero, so the zeros are compared. `a` has just run with its result in z, and z holds
 * that result again afterwards. */
static void check_dropout_rows(suite *s, nrl_dropout_args *a, mat *z)
{
    uint64_t rows[ROWS];
    int64_t differ = 0;
    mat *turned = mat_new(s, a->y.dtype, ROWS, COLS, 2);
    for (int64_t r = 0; r < ROWS; r++)
        rows[r] = (uint64_t)(ROWS - 1 - r);
    nrl_dropout_args b = *a;
    b.rows = suite_array(s, rows, sizeof rows);
    b.y = mat_args(turned);
    suite_ok(s, s->ops.dropout(s->self, NULL, &b), "dropout runs");
    mat_download(s, turned);
    mat_download(s, z);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLS; c++)
            differ += (*mat_value(turned, r, c) == 0) != (*mat_value(z, ROWS - 1 - r, c) == 0);
    report_check(s->report, differ == 0, "dropout takes the numbers of rows from `rows`", "%s: %lld", s->what,
                 (long long)differ);
}

static void check_dropout(suite *s, uint32_t dtype)
{
    suite_case(s, "dropout, %s", nrl_dtype_name(dtype));
    mat *x = mat_random(s, dtype, ROWS, COLS, 3, 1, 2), *y = mat_new(s, dtype, ROWS, COLS, 0);
    mat *z = mat_new(s, dtype, ROWS, COLS, 1);
    nrl_dropout_args a = {.size = sizeof a, .x = mat_args(x), .y = mat_args(y), .p = 0.25, .key = 7};
    suite_ok(s, s->ops.dropout(s->self, NULL, &a), "dropout runs");
    a.y = mat_args(z);
    suite_ok(s, s->ops.dropout(s->self, NULL, &a), "dropout runs");
    check_dropout_rows(s, &a, z);
    mat_download(s, y);
    mat_download(s, z);
    int64_t kept = 0, wrong = 0, differ = 0;
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLS; c++) {
            double v = *mat_value(x, r, c) / 0.75, got = *mat_value(y, r, c);
            kept += got != 0;
            wrong += got != 0 && fabs(got - v) > 0.01 * v;
            differ += got != *mat_value(z, r, c);
        }
    double share = (double)kept / (ROWS * COLS);
    report_check(s->report, wrong == 0, "dropout scales what it keeps", "%s: %lld elements", s->what, (long long)wrong);
    report_check(s->report, differ == 0, "dropout depends only on key and element", "%s: %lld", s->what,
                 (long long)differ);
    report_check(s->report, fabs(share - 0.75) < 0.03, "dropout keeps a share of 1 - p", "%s: kept %.3f", s->what,
                 share);
    suite_clear(s);
}

void suite_layers(suite *s)
{
    static const int64_t shapes[][3] = {{1, 1, 0}, {3, 17, 2}, {65, 65, 1}, {2, 2100, 3}};
    for (int d = 0; d < s->n_dtypes; d++) {
        for (int k = 0; s->ops.glu && k < COUNT(shapes); k++) {
            check_glu(s, NRL_UNARY_SILU, suite_dtypes[d], shapes[k][0], shapes[k][1], shapes[k][2]);
            check_glu(s, NRL_UNARY_GELU_TANH, suite_dtypes[d], shapes[k][0], shapes[k][1], shapes[k][2]);
        }
        for (int how = 0; s->ops.rope && how < 4; how++) {
            check_rope(s, suite_dtypes[d], 1, 1, 2, 1, how & 1, how & 2);
            check_rope(s, suite_dtypes[d], 17, 3, 64, 32, how & 1, how & 2);
            check_rope(s, suite_dtypes[d], 65, 5, 20, 7, how & 1, how & 2);
        }
        if (s->ops.dropout) check_dropout(s, suite_dtypes[d]);
    }
}
