/*
 * test_updates.c - optimizer plugins and clipping compared with torch.optim on given gradients
 * (tests/data/optim/optim.json), in f32 on the cpu backend.
 */
#include "base/json.h"
#include "optim/clip.h"
#include "support/backend.h"
#include "support/options.h"
#include "tensor/param.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* f32 rounds each of six updates; largest error of values of size 1, seen: 3e-7. */
#define TOLERANCE 1e-6

enum { N_PARAMS = 2, N_STEPS = 6 };

typedef struct {
    arena memory;
    plugin_host *host;
    const nrl_optimizer *table;
    void *options, *self;
    device device;
    nrl_ctx *ctx;
    nrl_param params[N_PARAMS];
    nrl_part parts[N_PARAMS];
    nrl_slice slices[N_PARAMS];
} fixture;

static nrl_status open_optimizer(fixture *f, const char *name, const char *yaml)
{
    const void *table;
    NRL_TRY(test_options(f->host, &f->memory, NRL_KIND_OPTIMIZER, "optimizer", name, yaml, &table, &f->options));
    f->table = table;
    f->self = f->options;
    return f->table->create ? f->table->create(f->options, &f->self) : NRL_OK;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->host = test_host();
    *state = f;
    return test_device_open(&f->device) && ctx_create(&f->device, &f->ctx) == NRL_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < N_PARAMS; i++) {
        nrl_slice *s = &f->slices[i];
        nrl_tensor *all[] = {s->master, s->grad, s->states[0], s->states[1], s->work};
        for (int k = 0; k < 5; k++)
            tensor_release(f->ctx, all[k]);
    }
    if (f->self && f->table->create) f->table->destroy(f->self);
    ctx_destroy(f->ctx);
    device_close(&f->device);
    plugin_host_destroy(f->host);
    arena_free(&f->memory);
    free(f);
    return 0;
}

static nrl_tensor *new_tensor(fixture *f, nrl_dtype dtype, int64_t n)
{
    nrl_tensor *t;
    assert_int_equal(tensor_persistent(f->ctx, dtype, 1, &n, true, &t), NRL_OK);
    return t;
}

static void write_list(fixture *f, nrl_tensor *t, const nrl_node *list)
{
    float values[64];
    for (size_t i = 0; i < nrl_node_size(list); i++)
        values[i] = (float)nrl_node_f64(nrl_node_at(list, i), NAN);
    assert_int_equal(tensor_write(f->ctx, t, values), NRL_OK);
}

static void make_slices(fixture *f, const nrl_node *golden)
{
    for (size_t i = 0; i < N_PARAMS; i++) {
        const nrl_node *start = nrl_node_at(nrl_node_find(golden, "start"), i);
        int64_t n = (int64_t)nrl_node_size(start);
        param_init(&f->params[i], &f->parts[i], i ? "b" : "a", 1, &n);
        f->slices[i] = (nrl_slice){.param = &f->params[i],
                                   .n = n,
                                   .decay = true,
                                   .master = new_tensor(f, NRL_DTYPE_F32, n),
                                   .grad = new_tensor(f, NRL_DTYPE_F32, n),
                                   .states = {new_tensor(f, NRL_DTYPE_F32, n), new_tensor(f, NRL_DTYPE_F32, n)},
                                   .work = new_tensor(f, NRL_DTYPE_BF16, n)};
        write_list(f, f->slices[i].master, start);
    }
}

static void expect_list(fixture *f, const nrl_tensor *t, const nrl_node *list, double tolerance)
{
    double got[64];
    assert_int_equal(nrl_tensor_fetch(f->ctx, t, got, nrl_tensor_numel(t)), NRL_OK);
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        double want = nrl_node_f64(nrl_node_at(list, i), NAN);
        if (!(fabs(got[i] - want) <= tolerance * (1 + fabs(want))))
            fail_msg("element %zu: %.9g, expected %.9g", i, got[i], want);
    }
}

static clip_result clip_of(fixture *f, const nrl_slice *slices, int64_t n, double scale, double max_norm)
{
    double sum;
    assert_int_equal(clip_square_sum(f->ctx, slices, n, NULL, &sum), NRL_OK);
    return clip_decide(sum, scale, max_norm);
}

static void one_step(fixture *f, const nrl_node *golden, int64_t step)
{
    const nrl_node *grads = nrl_node_at(nrl_node_find(golden, "grads"), (size_t)step);
    const nrl_node *norms = nrl_node_find(golden, "norm_before_clip");
    const nrl_node *after = nrl_node_at(nrl_node_find(golden, "params_after_step"), (size_t)step);
    double lr = nrl_node_f64(nrl_node_find(nrl_node_find(golden, "kwargs"), "lr"), NAN);
    for (size_t i = 0; i < N_PARAMS; i++)
        write_list(f, f->slices[i].grad, nrl_node_at(grads, i));
    clip_result clip = clip_of(f, f->slices, N_PARAMS, 1, nrl_node_f64(nrl_node_find(golden, "clip"), 0));
    assert_true(clip.finite);
    if (norms) {
        double want = nrl_node_f64(nrl_node_at(norms, (size_t)step), NAN);
        assert_true(fabs(clip.norm - want) <= TOLERANCE * want);
    }
    nrl_step_params block = {sizeof block, step + 1, lr, clip.scale};
    assert_int_equal(f->table->update(f->self, f->ctx, f->slices, N_PARAMS, &block), NRL_OK);
    for (size_t i = 0; i < N_PARAMS; i++) {
        expect_list(f, f->slices[i].master, nrl_node_at(after, i), TOLERANCE);
        expect_list(f, f->slices[i].work, nrl_node_at(after, i), 0x1p-8); /* bf16 keeps 8 bits */
    }
}

static void updates_equal_those_of_torch(void **state, size_t which, const char *name, const char *yaml)
{
    fixture *f = *state;
    nrl_node *golden;
    char *path = mem_printf("%s/tests/data/optim/optim.json", getenv("NRL_TEST_SOURCE"));
    assert_int_equal(json_read_file(&f->memory, path, 1 << 20, &golden), NRL_OK);
    const nrl_node *c = nrl_node_at(nrl_node_find(golden, "optimizers"), which);
    assert_int_equal(open_optimizer(f, name, yaml), NRL_OK);
    make_slices(f, c);
    for (int64_t step = 0; step < N_STEPS; step++)
        one_step(f, c, step);
    free(path);
}

static void with_decay_updates_equal_those_of_torch(void **state)
{
    updates_equal_those_of_torch(state, 0, "adamw", "{weight_decay: 0.1, betas: [0.9, 0.95]}");
}

static void with_clipping_updates_equal_those_of_torch(void **state)
{
    updates_equal_those_of_torch(state, 1, "adamw", "{betas: [0.9, 0.95]}");
}

static void plain_gradient_descent_equals_that_of_torch(void **state)
{
    updates_equal_those_of_torch(state, 4, "sgd", "{momentum: 0}");
}

static void momentum_with_decay_equals_that_of_torch(void **state)
{
    updates_equal_those_of_torch(state, 5, "sgd", "{momentum: 0.9, weight_decay: 0.1}");
}

static void nesterov_momentum_equals_that_of_torch(void **state)
{
    updates_equal_those_of_torch(state, 6, "sgd", "{momentum: 0.9, nesterov: true}");
}

static void options_of_sgd_that_mean_nothing_are_refused(void **state)
{
    static const char *const bad[] = {"{momentum: 0, nesterov: true}", "{dampening: 0.1, nesterov: true}",
                                      "{momentum: 0, dampening: 0.1}"};
    fixture *f = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(open_optimizer(f, "sgd", bad[i]), NRL_ERR_CONFIG);
        assert_non_null(strstr(nrl_error_text(), "momentum"));
    }
}

static void betas_are_checked_with_the_place(void **state)
{
    static const char *const bad[] = {"betas: 0.9",         "betas: [0.9]",      "betas: [0.9, 1.0]",
                                      "betas: [-0.1, 0.9]", "betas: [0.9, abc]", "betas: [0.9, 0.9, 0.9]"};
    static const char *const names[] = {"adamw", "lion"};
    fixture *f = *state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            assert_int_equal(open_optimizer(f, names[k], bad[i]), NRL_ERR_CONFIG);
            assert_non_null(strstr(nrl_error_text(), "betas"));
            assert_non_null(strstr(nrl_error_text(), "[0.9, 0.999]"));
        }
}

static void a_gradient_that_is_not_finite_is_told(void **state)
{
    fixture *f = *state;
    float bad[3] = {1, INFINITY, 2};
    clip_result clip;
    nrl_slice s = {.n = 3, .grad = new_tensor(f, NRL_DTYPE_F32, 3)};
    assert_int_equal(tensor_write(f->ctx, s.grad, bad), NRL_OK);
    clip = clip_of(f, &s, 1, 1, 1);
    assert_false(clip.finite);
    bad[1] = NAN;
    assert_int_equal(tensor_write(f->ctx, s.grad, bad), NRL_OK);
    clip = clip_of(f, &s, 1, 1, 1);
    assert_false(clip.finite);
    tensor_release(f->ctx, s.grad);
}

static void the_norm_is_that_of_the_scaled_gradient(void **state)
{
    fixture *f = *state;
    float values[2] = {3, 4};
    clip_result clip;
    nrl_slice s = {.n = 2, .grad = new_tensor(f, NRL_DTYPE_F32, 2)};
    assert_int_equal(tensor_write(f->ctx, s.grad, values), NRL_OK);
    clip = clip_of(f, &s, 1, 0.5, 0);
    assert_true(clip.norm == 2.5 && clip.scale == 0.5);
    clip = clip_of(f, &s, 1, 0.5, 1.25);
    assert_true(fabs(clip.scale - 0.25) < 1e-6);
    clip = clip_of(f, &s, 1, 0.5, INFINITY);
    assert_true(clip.scale == 0.5);
    clip = clip_of(f, NULL, 0, 0.5, 1);
    assert_true(clip.norm == 0 && clip.finite);
    tensor_release(f->ctx, s.grad);
}

static void slices_that_another_rank_counts_do_not(void **state)
{
    fixture *f = *state;
    float values[2] = {3, 4};
    const bool counts[2] = {true, false};
    double sum;
    nrl_tensor *grad = new_tensor(f, NRL_DTYPE_F32, 2);
    nrl_slice s[2] = {{.n = 2, .grad = grad}, {.n = 2, .grad = grad}};
    assert_int_equal(tensor_write(f->ctx, grad, values), NRL_OK);
    assert_int_equal(clip_square_sum(f->ctx, s, 2, counts, &sum), NRL_OK);
    assert_true(sum == 25);
    assert_int_equal(clip_square_sum(f->ctx, s, 2, NULL, &sum), NRL_OK);
    assert_true(sum == 50);
    tensor_release(f->ctx, grad);
}

int main(void)
{
    device d;
    if (!test_device_open(&d)) return 77;
    device_close(&d);
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(with_decay_updates_equal_those_of_torch),
        CASE(with_clipping_updates_equal_those_of_torch),
        CASE(plain_gradient_descent_equals_that_of_torch),
        CASE(momentum_with_decay_equals_that_of_torch),
        CASE(nesterov_momentum_equals_that_of_torch),
        CASE(options_of_sgd_that_mean_nothing_are_refused),
        CASE(betas_are_checked_with_the_place),
        CASE(a_gradient_that_is_not_finite_is_told),
        CASE(the_norm_is_that_of_the_scaled_gradient),
        CASE(slices_that_another_rank_counts_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
