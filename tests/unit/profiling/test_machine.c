/*
 * test_machine.c - measurements of operations: each begins with clean memory, whatever the one before it has left
 * there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "profiling/machine.h"
#include "support/backend.h"

enum { ROWS = 2000, COLS = 4, SUM = 9000 /* its second operand lies where the indices were */ };
static device dev;
static int n_called;

static nrl_status look_at(void *self, nrl_stream *stream, const nrl_binary_args *a)
{
    const float *x = a->a.data, *y = a->b.data;
    (void)self, (void)stream;
    for (int64_t i = 0; i < a->a.rows * a->a.cols; i++) {
        assert_true(x[i] == 0);
        assert_true(y[i] == 0);
    }
    n_called++;
    return NRL_OK;
}

static nrl_mat mat(void *at, int64_t rows, int64_t cols)
{
    return (nrl_mat){.data = at, .dtype = NRL_DTYPE_F32, .rows = rows, .cols = cols, .stride = cols};
}

/* Read as floats, indices are subnormal numbers. */
static void indices_are_no_operands_of_the_next_operation(void **state)
{
    (void)state;
    if (!test_device_open(&dev)) skip();
    dev.ops.binary = look_at;
    machine m = {.measures = &dev, .threads = 1};
    static char places[5]; /* addresses that differ, as those of a dry run */
    double seconds;
    const nrl_gather_args gather = {.size = sizeof gather,
                                    .x = mat(&places[0], ROWS, COLS),
                                    .y = mat(&places[1], ROWS, COLS),
                                    .index = (const void *)&places[2]};
    const nrl_binary_args sum = {.size = sizeof sum,
                                 .op = NRL_BINARY_ADD,
                                 .a = mat(&places[3], 1, SUM),
                                 .b = mat(&places[4], 1, SUM),
                                 .y = mat(&places[3], 1, SUM)};
    assert_int_equal(machine_op(&m, BACKEND_OP_gather, &gather, 0, &seconds), NRL_OK);
    assert_int_equal(machine_op(&m, BACKEND_OP_binary, &sum, 0, &seconds), NRL_OK);
    assert_true(n_called > 0);
    assert_int_equal(m.n, 2);
    machine_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_are_no_operands_of_the_next_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
