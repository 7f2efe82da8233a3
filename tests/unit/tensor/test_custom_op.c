/*
 * test_custom_op.c - where the kernels of a custom operation come from: its own list, then the list of the backend. The
 * backend is the CPU's with operations added to its table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/backend.h"
#include "tensor/device/shape_device.h"
#include <nrl/custom_op.h>

static device the_device;
static void *self_of_kernel;

/* y = factor x; the CPU's memory is the host's. */
static nrl_status scaled(const nrl_kernel_args *a, float factor)
{
    self_of_kernel = a->self;
    for (int64_t i = 0; i < a->outputs[0].cols; i++)
        ((float *)a->outputs[0].data)[i] = factor * ((const float *)a->inputs[0].data)[i];
    return NRL_OK;
}

static nrl_status doubled(const nrl_kernel_args *a)
{
    return scaled(a, 2);
}

static nrl_status tripled(const nrl_kernel_args *a)
{
    return scaled(a, 3);
}

static const nrl_kernel for_cpu[] = {{"other", NULL, NULL}, {"cpu", tripled, NULL}, {NULL, NULL, NULL}};
static const nrl_kernel for_other[] = {{"other", doubled, NULL}, {NULL, NULL, NULL}};
static const nrl_custom_op brought = {.size = sizeof brought,
                                      .kernel_size = sizeof *for_cpu,
                                      .name = "test.scale",
                                      .kernels = for_cpu,
                                      .saved_inputs = 1};
static const nrl_custom_op *const list[] = {&brought, NULL};

/* The first element of the operation on [1, 2], or -1 with the error's code in *st. */
static double first_of(device *d, const nrl_custom_op *op, nrl_status *st)
{
    const float x[] = {1, 2};
    const int64_t dims[] = {2};
    double got[2] = {-1, -1};
    nrl_ctx *ctx;
    nrl_tensor *in, *out;
    assert_int_equal(ctx_create(d, &ctx), NRL_OK);
    ctx_scope_begin(ctx);
    assert_int_equal(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, dims, x, &in), NRL_OK);
    assert_int_equal(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, dims, &out), NRL_OK);
    *st = nrl_op_custom(ctx, op, &in, 1, &out, 1, NULL, 0);
    if (*st == NRL_OK) assert_int_equal(nrl_tensor_fetch(ctx, out, got, 2), NRL_OK);
    ctx_scope_end(ctx);
    ctx_destroy(ctx);
    return got[0];
}

static nrl_custom_op operation(const nrl_kernel *kernels, uint32_t saved)
{
    return (nrl_custom_op){.size = sizeof(nrl_custom_op),
                           .kernel_size = sizeof(nrl_kernel),
                           .name = "test.scale",
                           .kernels = kernels,
                           .saved_inputs = saved};
}

static void a_backend_brings_kernels_for_operations_that_have_none_for_it(void **state)
{
    const nrl_custom_op op = operation(for_other, 3);
    nrl_status st;
    (void)state;
    the_device.table.custom_ops = NULL;
    assert_true(first_of(&the_device, &op, &st) < 0);
    assert_int_equal(st, NRL_ERR_PLUGIN);
    assert_non_null(strstr(nrl_error_text(), "no kernel of operation 'test.scale'; there are kernels for: other"));
    assert_true(the_device.lacked);
    the_device.table.custom_ops = list;
    assert_true(first_of(&the_device, &op, &st) == 3);
    assert_ptr_equal(self_of_kernel, the_device.self);
}

static void kernels_of_the_operation_come_first(void **state)
{
    const nrl_kernel own[] = {{"cpu", doubled, NULL}, {NULL, NULL, NULL}};
    const nrl_custom_op op = operation(own, 1);
    nrl_status st;
    (void)state;
    the_device.table.custom_ops = list;
    assert_true(first_of(&the_device, &op, &st) == 2);
}

static void a_kernel_that_reads_what_is_not_saved_is_another_operation(void **state)
{
    const nrl_custom_op op = operation(for_other, 2);
    nrl_status st;
    (void)state;
    the_device.table.custom_ops = list;
    assert_true(first_of(&the_device, &op, &st) < 0);
    assert_int_equal(st, NRL_ERR_PLUGIN);
}

static void a_dry_run_knows_them(void **state)
{
    const nrl_custom_op op = operation(for_other, 1);
    nrl_backend table = the_device.table;
    nrl_status st;
    (void)state;
    table.custom_ops = list;
    device shapes = shape_device(0, &table, NULL);
    self_of_kernel = NULL;
    first_of(&shapes, &op, &st);
    assert_int_equal(st, NRL_OK);
    assert_null(self_of_kernel); /* found, and not called */
    device_close(&shapes);
    table.custom_ops = NULL;
    shapes = shape_device(0, &table, NULL);
    first_of(&shapes, &op, &st);
    assert_int_equal(st, NRL_ERR_PLUGIN);
    device_close(&shapes);
}

static int open_device(void **state)
{
    (void)state;
    if (!test_device_open(&the_device)) exit(77);
    return the_device.info.host_memory ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&the_device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backend_brings_kernels_for_operations_that_have_none_for_it),
        cmocka_unit_test(kernels_of_the_operation_come_first),
        cmocka_unit_test(a_kernel_that_reads_what_is_not_saved_is_another_operation),
        cmocka_unit_test(a_dry_run_knows_them),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
