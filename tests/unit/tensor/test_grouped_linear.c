/*
 * test_grouped_linear.c - ranges of rows with a weight each: gradients compared with central differences, and results
 * and gradients with those of separate products.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/context.h"
#include "support/gradient.h"

static nrl_status build_groups(const gradient_case *c, nrl_ctx *own, nrl_tensor **x, nrl_param **p, nrl_tensor **y)
{
    return nrl_op_grouped_linear(own, x[0], c->n_params, c->number, p, y);
}

/* x is read by two operations: the first gradient is written, the second is added. */
static nrl_status build_gated(const gradient_case *c, nrl_ctx *own, nrl_tensor **x, nrl_param **p, nrl_tensor **y)
{
    nrl_tensor *gate, *up;
    NRL_TRY(nrl_op_grouped_linear(own, x[0], 2, c->number, p, &gate));
    NRL_TRY(nrl_op_grouped_linear(own, x[0], 2, c->number, p + 2, &up));
    return nrl_op_swiglu(own, gate, up, y);
}

/* The same as build_groups, by slices. */
static nrl_status build_slices(const gradient_case *c, nrl_ctx *own, nrl_tensor **x, nrl_param **p, nrl_tensor **y)
{
    nrl_tensor *parts[GRADIENT_MAX], *rows;
    int n = 0;
    int64_t at = 0;
    for (int i = 0; i < c->n_params; at += c->number[i++]) {
        if (!c->number[i]) continue;
        NRL_TRY(nrl_op_slice_rows(own, x[0], at, at + c->number[i], &rows));
        NRL_TRY(nrl_op_linear(own, rows, p[i], NULL, &parts[n++]));
    }
    return nrl_op_concat_rows(own, parts, n, y);
}

static const gradient_case cases[] = {
    {"3 groups", 1, 3, {SHAPE(9, 5)}, {SHAPE(4, 5), SHAPE(4, 5), SHAPE(4, 5)}, build_groups, 0, {2, 6, 1}, {0}},
    {"a group without rows",
     1,
     3,
     {SHAPE(5, 3)},
     {SHAPE(4, 3), SHAPE(4, 3), SHAPE(4, 3)},
     build_groups,
     0,
     {2, 0, 3},
     {0}},
    {"one group", 1, 1, {SHAPE(3, 4)}, {SHAPE(2, 4)}, build_groups, 0, {3}, {0}},
    {"gated", 1, 4, {SHAPE(5, 3)}, {SHAPE(4, 3), SHAPE(4, 3), SHAPE(4, 3), SHAPE(4, 3)}, build_gated, 0, {4, 1}, {0}},
};

enum { N_CASES = sizeof cases / sizeof *cases };

static void gradients_are_slopes(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        gradient_run g;
        ctx_memory before, after;
        double worst = 0;
        ctx_memory_use(the_ctx, &before);
        assert_int_equal(gradient_open(&g, the_ctx, &cases[i]), NRL_OK);
        nrl_status st = gradient_backward(&g, false);
        if (!st) st = gradient_check_split(&g);
        if (!st) st = gradient_compare(&g, &worst);
        if (st) fail_msg("%s: %s", cases[i].name, nrl_error_text());
        gradient_close(&g);
        ctx_memory_use(the_ctx, &after);
        assert_int_equal(after.live_bytes, before.live_bytes);
    }
}

/* Output and gradients of a case with the first weight frozen or not. */
static int64_t values_of(gradient_case c, bool by_slices, bool frozen, double *out)
{
    gradient_run g;
    int64_t n = 0;
    if (by_slices) c.build = build_slices;
    assert_int_equal(gradient_open(&g, the_ctx, &c), NRL_OK);
    g.params[0].trained = !frozen;
    assert_int_equal(gradient_backward(&g, false), NRL_OK);
    memcpy(out, g.output, (size_t)g.n_output * sizeof *out);
    n = g.n_output;
    for (int i = 0; i < c.n_inputs + c.n_params; n += g.numel[i++])
        memcpy(out + n, g.grads[i], (size_t)g.numel[i] * sizeof *out);
    gradient_close(&g);
    return n;
}

static void results_are_those_of_separate_products(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++)
        for (int frozen = 0; frozen < 2; frozen++) {
            double together[256] = {0}, separate[256] = {0};
            if (cases[i].build != build_groups) continue;
            const int64_t n = values_of(cases[i], false, frozen, together);
            assert_int_equal(n, values_of(cases[i], true, frozen, separate));
            for (int64_t k = 0; k < n; k++)
                assert_true(fabs(together[k] - separate[k]) <= 1e-6 * (1 + fabs(separate[k])));
        }
}

static void wrong_numbers_of_rows_are_an_error(void **state)
{
    static const int64_t wrong[][2] = {{2, 2}, {6, -1}, {0, 0}};
    gradient_run g;
    nrl_param *p[2];
    nrl_tensor *x, *y;
    (void)state;
    assert_int_equal(gradient_open(&g, the_ctx, &cases[3]), NRL_OK);
    for (int i = 0; i < 2; i++)
        p[i] = &g.params[i];
    assert_int_equal(nrl_tensor_new(the_ctx, NRL_DTYPE_F32, 2, cases[3].inputs[0].dims, &x), NRL_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(nrl_op_grouped_linear(the_ctx, x, 2, wrong[i], p, &y), NRL_ERR_BUG);
    assert_int_equal(nrl_op_grouped_linear(the_ctx, x, 0, wrong[0], p, &y), NRL_ERR_BUG);
    gradient_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(results_are_those_of_separate_products),
        cmocka_unit_test(wrong_numbers_of_rows_are_an_error),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
