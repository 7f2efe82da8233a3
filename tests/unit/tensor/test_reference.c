/*
 * test_reference.c - results and gradients of every operation compared with PyTorch's in float64,
 * which make_reference.py wrote to tests/data/ops.json.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "support/op_cases.h"

/* A few dozen roundings of f32 (6e-8 each) on values of size one. */
#define REFERENCE_TOLERANCE 2e-6

static device the_device;
static nrl_ctx *ctx;
static arena memory;
static const nrl_node *reference;

static int open_all(void **state)
{
    const char *source = getenv("NRL_TEST_SOURCE");
    char path[4096];
    nrl_node *root;
    (void)state;
    if (!test_device_open(&the_device)) exit(77);
    snprintf(path, sizeof path, "%s/tests/data/ops.json", source ? source : ".");
    if (json_read_file(&memory, path, 1 << 20, &root)) {
        printf("%s\n", nrl_error_text());
        return -1;
    }
    reference = root;
    return ctx_create(&the_device, &ctx) ? -1 : 0;
}

static int close_all(void **state)
{
    (void)state;
    ctx_destroy(ctx);
    device_close(&the_device);
    arena_free(&memory);
    return 0;
}

static void compare(const char *name, const char *what, const nrl_node *expected, const double *values, int64_t n,
                    double *worst)
{
    assert_int_equal(nrl_node_size(expected), n);
    for (int64_t i = 0; i < n; i++) {
        double e = nrl_node_f64(nrl_node_at(expected, (size_t)i), NAN), error = fabs(values[i] - e) / (1 + fabs(e));
        if (error > *worst) *worst = error;
        if (!(error <= REFERENCE_TOLERANCE))
            fail_msg("%s: %s [%lld] is %.9g, PyTorch has %.9g", name, what, (long long)i, values[i], e);
    }
}

static void results_and_gradients_are_those_of_pytorch(void **state)
{
    int compared = 0;
    double worst = 0;
    (void)state;
    for (int i = 0; i < N_OP_CASES; i++) {
        const gradient_case *c = &op_cases[i];
        const nrl_node *expected = nrl_node_find(reference, c->name);
        if (!expected) continue; /* random or trivial */
        gradient_run g;
        nrl_status st = gradient_open(&g, ctx, c);
        if (!st) st = gradient_backward(&g, false);
        if (st) fail_msg("%s: %s", c->name, nrl_error_text());
        compare(c->name, "output", nrl_node_find(expected, "output"), g.output, g.n_output, &worst);
        for (int k = 0; k < c->n_inputs + c->n_params; k++) {
            const nrl_node *grad = nrl_node_at(nrl_node_find(expected, "grads"), (size_t)k);
            compare(c->name, "gradient", grad, g.grads[k], g.numel[k], &worst);
        }
        gradient_close(&g);
        compared++;
    }
    printf("%d cases, largest relative difference %.2g\n", compared, worst);
    assert_int_equal(compared, nrl_node_size(reference));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_and_gradients_are_those_of_pytorch)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
