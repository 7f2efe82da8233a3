/*
 * backend_reduce.c - reduce, softmax, square_sum.
 */
#include "base/arena.h"
#include "backend.h"
#include <math.h>
#include <stdlib.h>

static const int64_t shapes[][3] = {{1, 1, 0}, {3, 17, 2}, {17, 3, 0}, {65, 65, 1}, {2, 5000, 3}, {700, 5, 0}};

typedef struct {
    double sum, max, sum_exp;
} total;

static total total_start(void)
{
    return (total){0, -INFINITY, 0};
}

static void total_add(total *t, double x)
{
    t->sum += x;
    double high = x > t->max ? x : t->max;
    t->sum_exp = t->sum_exp * exp(t->max - high) + exp(x - high);
    t->max = high;
}

static double total_value(const total *t, uint32_t op)
{
    return op == NRL_REDUCTION_SUM ? t->sum : op == NRL_REDUCTION_MAX ? t->max : t->max + log(t->sum_exp);
}

/* Without overwrite the old value takes part in the reduction. */
static double join(uint32_t op, double old, double value)
{
    if (op == NRL_REDUCTION_SUM) return old + value;
    if (op == NRL_REDUCTION_MAX) return old > value ? old : value;
    double high = old > value ? old : value;
    return high + log(exp(old - high) + exp(value - high));
}

static void check_reduce(suite *s, uint32_t op, uint32_t axis, uint32_t dtype, const int64_t shape[3], bool overwrite)
{
    static const char *const names[] = {"", "sum", "max", "log_sum_exp"};
    static const char *const axes[] = {"", "all", "rows", "columns"};
    int64_t rows = shape[0], cols = shape[1];
    suite_case(s, "%s over %s, %lld x %lld, %s, %s", names[op], axes[axis], (long long)rows, (long long)cols,
               nrl_dtype_name(dtype), overwrite ? "overwrite" : "added");
    mat *x = mat_random(s, dtype, rows, cols, shape[2], -3, 3);
    int64_t n = axis == NRL_AXIS_ALL ? 1 : axis == NRL_AXIS_ROWS ? cols : rows;
    mat *y =
        mat_random(s, NRL_DTYPE_F32, axis == NRL_AXIS_COLUMNS ? rows : 1, axis == NRL_AXIS_ROWS ? cols : 1, 0, -1, 1);
    double *want = mem_alloc((size_t)n * sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        total t = total_start();
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++)
                if (axis == NRL_AXIS_ALL || i == (axis == NRL_AXIS_ROWS ? c : r)) total_add(&t, *mat_value(x, r, c));
        want[i] = total_value(&t, op);
        if (!overwrite) want[i] = join(op, *mat_value(y, i / y->cols, i % y->cols), want[i]);
    }
    nrl_reduce_args a = {
        .size = sizeof a, .op = op, .axis = axis, .overwrite = overwrite, .x = mat_args(x), .y = mat_args(y)};
    suite_ok(s, s->ops.reduce(s->self, NULL, &a), "reduce runs");
    suite_expect(s, overwrite ? "reduce reduces the requested axis" : "reduce adds unless overwrite", y, want, 2e-6,
                 3e-6 * sqrt((double)(rows * cols)));
    free(want);
    suite_clear(s);
}

/* One row of softmax or log_softmax. */
static void softmax_row(mat *x, int64_t row, bool log_form, double *y)
{
    total t = total_start();
    for (int64_t c = 0; c < x->cols; c++)
        total_add(&t, *mat_value(x, row, c));
    double lse = total_value(&t, NRL_REDUCTION_LOG_SUM_EXP);
    for (int64_t c = 0; c < x->cols; c++) {
        double d = *mat_value(x, row, c) - lse;
        y[c] = log_form ? d : exp(d);
    }
}

static void check_softmax(suite *s, bool log_form, uint32_t dtype, const int64_t shape[3])
{
    int64_t rows = shape[0], cols = shape[1], n = rows * cols;
    suite_case(s, "%ssoftmax, %lld x %lld, %s", log_form ? "log_" : "", (long long)rows, (long long)cols,
               nrl_dtype_name(dtype));
    mat *x = mat_random(s, dtype, rows, cols, shape[2], -6, 6);
    mat *y = mat_new(s, dtype, rows, cols, shape[2]), *dx = mat_new(s, dtype, rows, cols, 0);
    mat *dy = mat_random(s, dtype, rows, cols, 1, -2, 2);
    double *want = mem_alloc((size_t)n * sizeof *want);
    for (int64_t r = 0; want && r < rows; r++)
        softmax_row(x, r, log_form, want + r * cols);
    nrl_softmax_args a = {.size = sizeof a, .log = log_form, .x = mat_args(x), .y = mat_args(y)};
    suite_ok(s, s->ops.softmax(s->self, NULL, &a), "softmax runs");
    suite_expect(s, "softmax normalises over columns", y, want, 3e-6, 1e-6);
    /* the gradient starts from the stored, rounded y */
    for (int64_t r = 0; want && r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < cols; c++) {
            double g = *mat_value(dy, r, c);
            sum += log_form ? g : g * *mat_value(y, r, c);
        }
        for (int64_t c = 0; c < cols; c++) {
            double v = *mat_value(y, r, c), g = *mat_value(dy, r, c);
            want[r * cols + c] = log_form ? g - exp(v) * sum : v * (g - sum);
        }
    }
    nrl_softmax_grad_args g = {
        .size = sizeof g, .log = log_form, .y = mat_args(y), .dy = mat_args(dy), .dx = mat_args(dx)};
    if (s->ops.softmax_grad) {
        suite_ok(s, s->ops.softmax_grad(s->self, NULL, &g), "softmax_grad runs");
        suite_expect(s, "softmax_grad is the slope of softmax", dx, want, 5e-6, 5e-6);
    }
    free(want);
    suite_clear(s);
}

static void check_square_sum(suite *s, uint32_t dtype, const int64_t shape[3], bool overwrite)
{
    suite_case(s, "square_sum, %lld x %lld", (long long)shape[0], (long long)shape[1]);
    mat *x = mat_random(s, dtype, shape[0], shape[1], shape[2], -3, 3);
    double start = 5, want = overwrite ? 0 : start, got;
    double *out = suite_array(s, &start, sizeof start);
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t c = 0; c < x->cols; c++)
            want += *mat_value(x, r, c) * *mat_value(x, r, c);
    nrl_square_sum_args a = {.size = sizeof a, .overwrite = overwrite, .x = mat_args(x), .out = out};
    suite_ok(s, s->ops.square_sum(s->self, NULL, &a), "square_sum runs");
    suite_read(s, &got, out, sizeof got);
    report_check(s->report, fabs(got - want) <= 1e-6 * want, "square_sum adds up squares", "%s: %.12g, expected %.12g",
                 s->what, got, want);
    suite_clear(s);
}

void suite_reductions(suite *s)
{
    for (int k = 0; k < COUNT(shapes); k++) {
        for (int d = 0; d < s->n_dtypes; d++) {
            for (uint32_t op = 1; s->ops.reduce && op <= NRL_REDUCTION_LOG_SUM_EXP; op++)
                for (uint32_t axis = 1; axis <= NRL_AXIS_COLUMNS; axis++)
                    for (int overwrite = 0; overwrite < 2; overwrite++)
                        check_reduce(s, op, axis, suite_dtypes[d], shapes[k], overwrite);
            for (int log_form = 0; s->ops.softmax && log_form < 2; log_form++)
                check_softmax(s, log_form, suite_dtypes[d], shapes[k]);
        }
        for (int overwrite = 0; s->ops.square_sum && overwrite < 2; overwrite++) {
            check_square_sum(s, NRL_DTYPE_F32, shapes[k], overwrite);
            check_square_sum(s, NRL_DTYPE_BF16, shapes[k], overwrite);
        }
    }
}
