/*
 * backend_matrix.c - fill, copy, gather, scatter and gemm.
 */
#include "base/arena.h"
#include "backend.h"
#include <math.h>
#include <stdlib.h>

static const int64_t shapes[][3] = {{1, 1, 0}, {3, 17, 2}, {17, 3, 0}, {65, 65, 1}, {2, 2100, 3}};

static double *room(int64_t n)
{
    double *p = mem_alloc((size_t)n * sizeof *p);
    return p;
}

static void check_fill(suite *s, uint32_t dtype, const int64_t shape[3], double value)
{
    suite_case(s, "fill %s with %g", nrl_dtype_name(dtype), value);
    mat *y = mat_random(s, dtype, shape[0], shape[1], shape[2], -1, 1);
    double *want = room(shape[0] * shape[1]);
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        want[i] = value;
    nrl_fill_args a = {.size = sizeof a, .y = mat_args(y), .value = value};
    suite_ok(s, s->ops.fill(s->self, NULL, &a), "fill runs");
    suite_expect(s, "fill sets every element", y, want, 0, 0);
    free(want);
    suite_clear(s);
}

static void check_copy(suite *s, uint32_t from, uint32_t to, const int64_t shape[3], bool transpose, bool accumulate,
                       double alpha)
{
    int64_t rows = shape[0], cols = shape[1];
    suite_case(s, "copy %s to %s, %lld x %lld, alpha %g%s%s", nrl_dtype_name(from), nrl_dtype_name(to), (long long)rows,
               (long long)cols, alpha, transpose ? ", transposed" : "", accumulate ? ", added" : "");
    mat *x = mat_random(s, from, transpose ? cols : rows, transpose ? rows : cols, shape[2], -3, 3);
    mat *y = mat_random(s, to, rows, cols, shape[2], -1, 1);
    double *want = room(rows * cols);
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t r = i / cols, c = i % cols;
        want[i] = alpha * *mat_value(x, transpose ? c : r, transpose ? r : c);
        if (accumulate) want[i] += *mat_value(y, r, c);
    }
    nrl_copy_args a = {.size = sizeof a,
                       .transpose = transpose,
                       .accumulate = accumulate,
                       .x = mat_args(x),
                       .y = mat_args(y),
                       .alpha = alpha};
    suite_ok(s, s->ops.copy(s->self, NULL, &a), "copy runs");
    suite_expect(s, "copy scales, converts and adds", y, want, 3e-7, 3e-7);
    free(want);
    suite_clear(s);
}

/* Rows 0, 2, 4, .. repeated, and -1. */
static int32_t *make_index(suite *s, int64_t n, int64_t rows, int32_t *host)
{
    for (int64_t i = 0; i < n; i++)
        host[i] = i % 5 == 3 ? -1 : (int32_t)((i * 7 / 2) % rows);
    return suite_array(s, host, (size_t)n * sizeof *host);
}

static void check_gather(suite *s, uint32_t from, uint32_t to, const int64_t shape[3])
{
    int64_t n = 29, cols = shape[1];
    int32_t index[29];
    suite_case(s, "gather %s to %s, %lld columns", nrl_dtype_name(from), nrl_dtype_name(to), (long long)cols);
    mat *x = mat_random(s, from, shape[0], cols, shape[2], -3, 3), *y = mat_new(s, to, n, cols, 1);
    nrl_gather_args a = {.size = sizeof a, .x = mat_args(x), .y = mat_args(y)};
    a.index = make_index(s, n, shape[0], index);
    double *want = room(n * cols);
    for (int64_t i = 0; i < n * cols; i++)
        if (index[i / cols] >= 0) want[i] = *mat_value(x, index[i / cols], i % cols);
    suite_ok(s, s->ops.gather(s->self, NULL, &a), "gather runs");
    suite_expect(s, "gather reads the rows of the index", y, want, 3e-7, 0);
    free(want);
    suite_clear(s);
}

static void check_scatter(suite *s, uint32_t from, const int64_t shape[3], bool overwrite)
{
    int64_t n = 29, cols = shape[1];
    int32_t index[29];
    suite_case(s, "scatter %s, %lld columns, %s", nrl_dtype_name(from), (long long)cols,
               overwrite ? "overwrite" : "added");
    mat *dx = mat_random(s, NRL_DTYPE_F32, shape[0], cols, shape[2], -1, 1);
    mat *dy = mat_random(s, from, n, cols, 1, -3, 3);
    nrl_scatter_args a = {.size = sizeof a, .overwrite = overwrite, .dy = mat_args(dy), .dx = mat_args(dx)};
    a.index = make_index(s, n, shape[0], index);
    double *want = room(shape[0] * cols);
    for (int64_t i = 0; !overwrite && i < shape[0] * cols; i++)
        want[i] = *mat_value(dx, i / cols, i % cols);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols && index[i] >= 0; c++)
            want[index[i] * cols + c] += *mat_value(dy, i, c);
    suite_ok(s, s->ops.scatter(s->self, NULL, &a), "scatter runs");
    suite_expect(s, overwrite ? "scatter adds equal rows" : "scatter adds unless overwrite", dx, want, 1e-6, 3e-6);
    free(want);
    suite_clear(s);
}

void suite_moves(suite *s)
{
    for (int k = 0; k < COUNT(shapes); k++) {
        for (int i = 0; s->ops.fill && i < s->n_dtypes; i++)
            check_fill(s, suite_dtypes[i], shapes[k], 0.75);
        if (s->ops.fill) check_fill(s, NRL_DTYPE_I32, shapes[k], -7);
        for (int from = 0; from < s->n_dtypes; from++)
            for (int to = 0; to < s->n_dtypes; to++) {
                for (int how = 0; s->ops.copy && how < 8; how++)
                    check_copy(s, suite_dtypes[from], suite_dtypes[to], shapes[k], how & 1, how & 2,
                               how & 4 ? -0.5 : 1);
                if (s->ops.gather) check_gather(s, suite_dtypes[from], suite_dtypes[to], shapes[k]);
            }
        for (int from = 0; s->ops.scatter && from < s->n_dtypes; from++)
            for (int overwrite = 0; overwrite < 2; overwrite++)
                check_scatter(s, suite_dtypes[from], shapes[k], overwrite);
    }
}

/* ---- gemm ---- */

typedef struct {
    int64_t m, n, k, gap;
    bool transpose_a, transpose_b, overwrite, bias;
    uint32_t a, b, c;
    double alpha;
} gemm_case;

static double dot(mat *a, mat *b, const gemm_case *g, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t p = 0; p < g->k; p++)
        sum += (g->transpose_a ? *mat_value(a, p, i) : *mat_value(a, i, p)) *
               (g->transpose_b ? *mat_value(b, j, p) : *mat_value(b, p, j));
    return sum;
}

typedef struct {
    nrl_gemm_args args;
    mat *c;
    double *want; /* freed by expect_product */
} product;

static product new_product(suite *s, const gemm_case *g)
{
    mat *a = mat_random(s, g->a, g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->gap, -1, 1);
    mat *b = mat_random(s, g->b, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->gap, -1, 1);
    mat *c = mat_random(s, g->c, g->m, g->n, g->gap, -1, 1);
    mat *bias = g->bias ? mat_random(s, g->a, 1, g->n, 0, -1, 1) : NULL;
    double *want = room(g->m * g->n);
    for (int64_t i = 0; i < g->m * g->n; i++) {
        int64_t row = i / g->n, col = i % g->n;
        want[i] = g->alpha * dot(a, b, g, row, col);
        if (!g->overwrite) want[i] += *mat_value(c, row, col);
        if (bias) want[i] += *mat_value(bias, 0, col);
    }
    return (product){{.size = sizeof(nrl_gemm_args),
                      .transpose_a = g->transpose_a,
                      .transpose_b = g->transpose_b,
                      .overwrite = g->overwrite,
                      .a = mat_args(a),
                      .b = mat_args(b),
                      .c = mat_args(c),
                      .bias = mat_args(bias),
                      .alpha = g->alpha},
                     c,
                     want};
}

static void expect_product(suite *s, const char *rule, const product *p, const gemm_case *g)
{
    suite_expect(s, rule, p->c, p->want, 2e-6, 1e-6 * (double)(g->k + 1));
    free(p->want);
}

static void check_gemm(suite *s, const gemm_case *g)
{
    suite_case(s, "gemm %lld x %lld x %lld, gap %lld, a %s%s, b %s%s, c %s%s%s, alpha %g", (long long)g->m,
               (long long)g->n, (long long)g->k, (long long)g->gap, nrl_dtype_name(g->a),
               g->transpose_a ? " transposed" : "", nrl_dtype_name(g->b), g->transpose_b ? " transposed" : "",
               nrl_dtype_name(g->c), g->overwrite ? "" : " added", g->bias ? ", bias" : "", g->alpha);
    const product p = new_product(s, g);
    const char *rule = !g->overwrite ? "gemm adds to c unless overwrite"
                       : g->bias     ? "gemm adds the bias"
                                     : "gemm multiplies";
    suite_ok(s, s->ops.gemm(s->self, NULL, &p.args), "gemm runs");
    expect_product(s, rule, &p, g);
    suite_clear(s);
}

/* The products of a mixture of experts, which have different numbers of rows: with the weights, with the weights
 * transposed, and of gradients; one of each three is added to c. The largest takes more time than all others. */
static void check_gemm_all(suite *s, uint32_t ab, uint32_t c)
{
    static const int64_t rows[] = {17, 3, 1, 200, 64, 5, 30, 31, 2, 16, 48};
    product products[COUNT(rows)];
    gemm_case cases[COUNT(rows)];
    nrl_gemm_args calls[COUNT(rows)];
    suite_case(s, "gemm_all of %d products of %s to %s", COUNT(rows), nrl_dtype_name(ab), nrl_dtype_name(c));
    for (int i = 0; i < COUNT(rows); i++) {
        const int layout = i % 3;
        cases[i] = (gemm_case){.m = layout == 2 ? 24 : rows[i],
                               .n = layout == 1 ? 40 : 24,
                               .k = layout == 2 ? rows[i]
                                    : layout    ? 24
                                                : 40,
                               .transpose_a = layout == 2,
                               .transpose_b = layout == 0,
                               .overwrite = i % 4 != 1,
                               .gap = i == 4 ? 3 : 0,
                               .a = ab,
                               .b = ab,
                               .c = c,
                               .alpha = 1};
        products[i] = new_product(s, &cases[i]);
        calls[i] = products[i].args;
    }
    suite_ok(s, s->table->gemm_all(s->self, NULL, calls, COUNT(rows)), "gemm_all runs");
    for (int i = 0; i < COUNT(rows); i++)
        expect_product(s, "products made together are those of gemm", &products[i], &cases[i]);
    suite_clear(s);
}

/* Every combination of transposes, accumulation and bias for the dtypes that training has. */
static void gemm_dtypes(suite *s, const int64_t size[3], uint32_t a, uint32_t b, uint32_t c)
{
    for (int how = 0; how < 16; how++) {
        gemm_case g = {size[0], size[1], size[2], how & 8 ? 3 : 0, how & 1, how & 2, !(how & 4), how & 8, a, b, c, 1};
        check_gemm(s, &g);
        g.alpha = -0.5;
        check_gemm(s, &g);
    }
}

/* ---- gemm of operands that are rounded to 8 bits ---- */

typedef struct {
    uint32_t format, blocks; /* nrl_fp8, nrl_fp8_blocks */
    float scale;             /* 0: by the values */
    float amax;              /* of an earlier call */
} fp8_case;

/* x as the format holds it, by arithmetic on numbers instead of bits. */
static double fp8_value(uint32_t format, double x, double scale)
{
    const bool wide = format == NRL_FP8_E5M2;
    const double most = wide ? 57344 : 448;
    const int least = wide ? -14 : -6, fraction = wide ? 2 : 3;
    int exponent;
    (void)frexp(x * scale, &exponent);
    exponent = (exponent - 1 < least ? least : exponent - 1) - fraction;
    const double y = ldexp(nearbyint(ldexp(x * scale, -exponent)), exponent);
    return fmin(fmax(y, -most), most) / scale;
}

static double fp8_scale_for(uint32_t format, double amax)
{
    double scale = 0x1p62;
    while (amax * scale > (format == NRL_FP8_E5M2 ? 57344 : 448))
        scale /= 2;
    return scale;
}

/* Rounds rows [row, row + rows) and columns [col, col + cols) of the host's values with one scale; the largest before.
 */
static double fp8_round_part(mat *m, const fp8_case *how, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    double amax = 0, scale = how->scale;
    for (int64_t r = row; r < row + rows && r < m->rows; r++)
        for (int64_t c = col; c < col + cols && c < m->cols; c++)
            amax = fmax(amax, fabs(*mat_value(m, r, c)));
    if (scale == 0) scale = fp8_scale_for(how->format, amax);
    for (int64_t r = row; r < row + rows && r < m->rows; r++)
        for (int64_t c = col; c < col + cols && c < m->cols; c++)
            *mat_value(m, r, c) = fp8_value(how->format, *mat_value(m, r, c), scale);
    return amax;
}

/* Replaces the host's values of m by rounded ones; returns the largest before. down: the product sums over its rows. */
static float fp8_round_host(mat *m, const fp8_case *how, bool down)
{
    const int64_t block = NRL_FP8_BLOCK, whole = m->rows + m->cols;
    const bool is_tiles = how->blocks == NRL_FP8_TILES;
    const int64_t rows = !how->blocks ? whole : is_tiles || down ? block : 1;
    const int64_t cols = !how->blocks ? whole : is_tiles || !down ? block : 1;
    double amax = how->amax;
    for (int64_t row = 0; row < m->rows; row += rows)
        for (int64_t col = 0; col < m->cols; col += cols)
            amax = fmax(amax, fp8_round_part(m, how, row, rows, col, cols));
    return (float)amax;
}

static void check_gemm_fp8(suite *s, const gemm_case *g, const fp8_case *of_a, const fp8_case *of_b)
{
    static const char *const blocks[] = {"", " rows", " tiles"};
    suite_case(s, "gemm of fp8, %lld x %lld x %lld, gap %lld, a %s%s e%dm%d%s, b %s%s e%dm%d%s, c %s%s%s",
               (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->gap, nrl_dtype_name(g->a),
               g->transpose_a ? " transposed" : "", of_a->format == NRL_FP8_E5M2 ? 5 : 4,
               of_a->format == NRL_FP8_E5M2 ? 2 : 3, blocks[of_a->blocks], nrl_dtype_name(g->b),
               g->transpose_b ? " transposed" : "", of_b->format == NRL_FP8_E5M2 ? 5 : 4,
               of_b->format == NRL_FP8_E5M2 ? 2 : 3, blocks[of_b->blocks], nrl_dtype_name(g->c),
               g->overwrite ? "" : " added", g->bias ? ", bias" : "");
    mat *a = mat_random(s, g->a, g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->gap, -1, 1);
    mat *b = mat_random(s, g->b, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->gap, -1, 1);
    mat *c = mat_random(s, g->c, g->m, g->n, g->gap, -1, 1);
    mat *bias = g->bias ? mat_random(s, g->c, 1, g->n, 0, -1, 1) : NULL;
    double *want = room(g->m * g->n), amount = 0;
    const float amaxes[] = {fp8_round_host(a, of_a, g->transpose_a), fp8_round_host(b, of_b, !g->transpose_b)};
    for (int64_t i = 0; i < g->m * g->n; i++) {
        int64_t row = i / g->n, col = i % g->n;
        want[i] = g->alpha * dot(a, b, g, row, col);
        amount = fmax(amount, fabs(want[i]));
        if (!g->overwrite) want[i] += *mat_value(c, row, col);
        if (bias) want[i] += *mat_value(bias, 0, col);
    }
    const float scales[] = {of_a->scale, of_b->scale};
    float found[] = {of_a->amax, of_b->amax}, *scale = suite_array(s, scales, sizeof scales);
    float *amax = suite_array(s, found, sizeof found);
    nrl_gemm_args x = {.size = sizeof x,
                       .transpose_a = g->transpose_a,
                       .transpose_b = g->transpose_b,
                       .overwrite = g->overwrite,
                       .a = mat_args(a),
                       .b = mat_args(b),
                       .c = mat_args(c),
                       .bias = mat_args(bias),
                       .alpha = g->alpha,
                       .fp8_a = {.format = of_a->format, .blocks = of_a->blocks},
                       .fp8_b = {.format = of_b->format, .blocks = of_b->blocks}};
    if (!of_a->blocks) {
        x.fp8_a.scale = scale;
        x.fp8_a.amax = g->overwrite ? amax : NULL;
        x.fp8_b.scale = of_b->scale == 0 ? NULL : scale + 1;
        x.fp8_b.amax = amax + 1;
    }
    const char *rule = of_a->blocks ? "gemm rounds blocks of 128 to 8 bits" : "gemm rounds operands to 8 bits";
    suite_ok(s, s->ops.gemm(s->self, NULL, &x), "gemm of fp8 runs");
    suite_expect(s, rule, c, want, 2e-6, 1e-6 * (double)(g->k + 1) * (1 + amount));
    suite_read(s, found, amax, sizeof found);
    const bool reports_a = x.fp8_a.amax != NULL, reports_b = x.fp8_b.amax != NULL;
    const bool right =
        found[0] == (reports_a ? amaxes[0] : of_a->amax) && found[1] == (reports_b ? amaxes[1] : of_b->amax);
    report_check(s->report, right, "gemm reports the largest values", "%s: %g and %g, expected %g and %g", s->what,
                 (double)found[0], (double)found[1], (double)amaxes[0], (double)amaxes[1]);
    free(want);
    suite_clear(s);
}

/* The formats of a training step, with every combination of transposes; scales that saturate, that lose small values,
 * and that follow the values. */
static void gemm_fp8(suite *s, const int64_t size[3], bool in_blocks)
{
    static const uint32_t formats[][2] = {
        {NRL_FP8_E4M3, NRL_FP8_E4M3}, {NRL_FP8_E5M2, NRL_FP8_E4M3}, {NRL_FP8_E4M3, NRL_FP8_E5M2}};
    static const uint32_t dtypes[][3] = {{NRL_DTYPE_BF16, NRL_DTYPE_BF16, NRL_DTYPE_BF16},
                                         {NRL_DTYPE_BF16, NRL_DTYPE_BF16, NRL_DTYPE_F32},
                                         {NRL_DTYPE_F32, NRL_DTYPE_BF16, NRL_DTYPE_F32}};
    static const float scales[] = {0, 512, 0x1p-3f, 64};
    static const uint32_t blocks[][2] = {
        {NRL_FP8_ROWS, NRL_FP8_TILES}, {NRL_FP8_ROWS, NRL_FP8_ROWS}, {NRL_FP8_TILES, NRL_FP8_ROWS}};
    for (int how = 0; how < 16; how++)
        for (int f = 0; f < (in_blocks ? 1 : 3); f++) {
            const uint32_t *d = dtypes[(how + f) % 3];
            const gemm_case g = {size[0], size[1], size[2], how & 8 ? 3 : 0,   how & 1, how & 2, !(how & 4), how & 8,
                                 d[0],    d[1],    d[2],    how & 1 ? -0.5 : 1};
            fp8_case of[] = {{formats[f][0], NRL_FP8_WHOLE, scales[(how / 2 + f) % 4], how & 4 ? 0 : 9},
                             {formats[f][1], NRL_FP8_WHOLE, scales[(how + f) % 4], how & 2 ? 0 : 0.5f}};
            for (int i = 0; i < 2 && in_blocks; i++)
                of[i] = (fp8_case){.format = formats[how % 3][i], .blocks = blocks[how / 4 % 3][i]};
            check_gemm_fp8(s, &g, &of[0], &of[1]);
        }
}

void suite_gemm(suite *s)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {3, 17, 5},    {17, 3, 65}, {65, 65, 17},   {1, 130, 64},
                                       {64, 1, 100}, {200, 70, 33}, {2, 3, 0},   {16, 144, 272}, {23, 83, 519}};
    const uint32_t f32 = NRL_DTYPE_F32;
    for (int k = 0; s->ops.gemm && k < COUNT(sizes); k++) {
        gemm_dtypes(s, sizes[k], f32, f32, f32);
        for (int d = 1; d < s->n_dtypes; d++) {
            uint32_t low = suite_dtypes[d];
            gemm_dtypes(s, sizes[k], low, low, low);
            gemm_dtypes(s, sizes[k], low, low, f32);
            gemm_dtypes(s, sizes[k], low, f32, f32);
            gemm_dtypes(s, sizes[k], f32, low, low);
        }
        if (s->has_fp8 && sizes[k][2]) gemm_fp8(s, sizes[k], false);
    }
    for (int k = 0; s->ops.gemm && s->has_fp8_blocks && k < 2; k++)
        gemm_fp8(s, (const int64_t[][3]){{16, 144, 272}, {130, 17, 40}}[k], true);
    for (int d = 0; s->ops.gemm && s->table->gemm_all && d < s->n_dtypes; d++) {
        check_gemm_all(s, suite_dtypes[d], suite_dtypes[d]);
        if (suite_dtypes[d] != f32) check_gemm_all(s, suite_dtypes[d], f32);
    }
}
