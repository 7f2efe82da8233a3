/*
 * test_updates.c - optimizer plugins and clipping compared with PyTorch and bitsandbytes on given gradients
 * (tests/data/optim/optim.json, and updates.json by tests/parity/make_optimizers.py), in f32 on the cpu backend.
 */
#include "base/json.h"
#include "optim/clip.h"
#include "optim/updates.h"
#include "support/backend.h"
#include "support/options.h"
#include "tensor/param.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static nrl_status square_sum(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, const bool *counts, double *sum)
{
    nrl_tensor *sums;
    NRL_TRY(clip_queue(ctx, slices, n, &sums));
    return clip_add(ctx, sums, counts, sum);
}

/* f32 rounds each of six updates; largest error of values of size 1, seen: 3e-7. */
#define TOLERANCE 1e-6

enum { N_PARAMS = 2, N_STEPS = 6, MOST = 64 * 80 };

typedef struct {
    arena memory;
    plugin_host *host;
    const nrl_optimizer *table;
    void *options, *self;
    device device;
    nrl_ctx *ctx;
    nrl_param params[N_PARAMS], *list[N_PARAMS];
    nrl_part parts[N_PARAMS];
    model m;
    update_plan updates;
    nrl_slice *slices;
    int64_t n_slices;
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
    updates_unbind(&f->updates, f->ctx);
    updates_close(&f->updates);
    for (int i = 0; i < N_PARAMS; i++)
        for (int slot = 0; slot < NRL_SLOT_COUNT; slot++)
            tensor_release(f->ctx, f->params[i].slots[slot]);
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

/* Two parameters with their slots, and the states that the optimizer declares. */
static void make_params(fixture *f, const nrl_node *all_shapes)
{
    f->m = (model){.params = f->list, .n_params = N_PARAMS};
    for (int i = 0; i < N_PARAMS; i++) {
        const nrl_node *shape = nrl_node_at(all_shapes, (size_t)i);
        nrl_param *p = f->list[i] = &f->params[i];
        int64_t dims[NRL_MAX_DIMS] = {0};
        for (size_t d = 0; d < nrl_node_size(shape); d++)
            dims[d] = nrl_node_int(nrl_node_at(shape, d), 0);
        param_init(p, &f->parts[i], i ? "b" : "a", (int)nrl_node_size(shape), dims);
        p->trained = p->decay = true;
        nrl_param_bind(p, NRL_SLOT_MASTER, new_tensor(f, NRL_DTYPE_F32, p->numel));
        nrl_param_bind(p, NRL_SLOT_GRAD, new_tensor(f, NRL_DTYPE_F32, p->numel));
        nrl_param_bind(p, NRL_SLOT_WEIGHT, new_tensor(f, NRL_DTYPE_BF16, p->numel));
    }
    assert_int_equal(updates_declare(f->table, f->self, &f->m, &f->updates), NRL_OK);
    for (int i = 0; i < N_PARAMS; i++)
        for (uint32_t k = 0; k < f->updates.n_states; k++)
            nrl_param_bind(&f->params[i], (nrl_slot)(NRL_SLOT_STATE0 + k),
                           new_tensor(f, NRL_DTYPE_F32, f->params[i].numel));
    updates_place(&f->updates, NULL);
    assert_int_equal(updates_bind(&f->updates, f->ctx), NRL_OK);
    assert_int_equal(slices_build(&f->m, NULL, f->updates.n_states, &f->memory, &f->slices, &f->n_slices), NRL_OK);
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
    assert_int_equal(square_sum(f->ctx, slices, n, NULL, &sum), NRL_OK);
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
    nrl_step_params block = {sizeof block, step + 1, lr, clip.scale, sizeof(nrl_slice), 0, 0};
    assert_int_equal(updates_step(&f->updates, f->ctx, f->slices, f->n_slices, &block), NRL_OK);
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
    make_params(f, nrl_node_find(c, "shapes"));
    for (size_t i = 0; i < N_PARAMS; i++)
        write_list(f, f->slices[i].master, nrl_node_at(nrl_node_find(c, "start"), i));
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

static void factored_moments_equal_those_of_torch(void **state)
{
    updates_equal_those_of_torch(state, 9, "adafactor", "{weight_decay: 0.1}");
}

/* ---- updates.json ---- */

/* The generator of make_optimizers.py: 24 bits in [-1, 1). */
static float uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) / (1 << 23) - 1);
}

static void draw(fixture *f, uint64_t *state, float size, nrl_tensor *t)
{
    static float values[MOST];
    int64_t n = nrl_tensor_numel(t);
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++)
        values[i] = size * uniform(state);
    assert_int_equal(tensor_write(f->ctx, t, values), NRL_OK);
}

static void expect_every(fixture *f, const nrl_tensor *t, const nrl_node *list, size_t every, double tolerance)
{
    static double got[MOST];
    assert_int_equal(nrl_tensor_fetch(f->ctx, t, got, nrl_tensor_numel(t)), NRL_OK);
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        double want = nrl_node_f64(nrl_node_at(list, i), NAN), is = got[i * every];
        if (!(fabs(is - want) <= tolerance * (1 + fabs(want))))
            fail_msg("element %zu: %.9g, expected %.9g", i * every, is, want);
    }
}

static void take_case(fixture *f, const nrl_node *c, double tolerance)
{
    uint64_t state = (uint64_t)nrl_node_int(nrl_node_find(c, "seed"), 0);
    size_t every = (size_t)nrl_node_int(nrl_node_find(c, "every"), 1);
    const nrl_node *after = nrl_node_find(c, "after");
    assert_int_equal(open_optimizer(f, nrl_node_string(nrl_node_find(c, "name"), ""),
                                    nrl_node_string(nrl_node_find(c, "options"), "")),
                     NRL_OK);
    make_params(f, nrl_node_find(c, "shapes"));
    for (int i = 0; i < N_PARAMS; i++)
        draw(f, &state, 1, f->slices[i].master);
    for (size_t step = 0; step < nrl_node_size(after); step++) {
        nrl_step_params block = {
            sizeof block, (int64_t)step + 1, nrl_node_f64(nrl_node_find(c, "lr"), NAN), 0.5, sizeof(nrl_slice), 0, 0};
        for (int i = 0; i < N_PARAMS; i++)
            draw(f, &state, (float)(2 << step % 3), f->slices[i].grad);
        assert_int_equal(updates_step(&f->updates, f->ctx, f->slices, f->n_slices, &block), NRL_OK);
        for (size_t i = 0; i < N_PARAMS; i++)
            expect_every(f, f->slices[i].master, nrl_node_at(nrl_node_at(after, step), i), every, tolerance);
    }
}

static void recorded_updates_are_equal(void **state, size_t which, const char *name, double tolerance)
{
    fixture *f = *state;
    nrl_node *recorded;
    char *path = mem_printf("%s/tests/data/optim/updates.json", getenv("NRL_TEST_SOURCE"));
    assert_int_equal(json_read_file(&f->memory, path, 1 << 20, &recorded), NRL_OK);
    const nrl_node *c = nrl_node_at(nrl_node_find(recorded, "cases"), which);
    assert_string_equal(nrl_node_string(nrl_node_find(c, "name"), ""), name);
    take_case(f, c, tolerance);
    free(path);
}

static void dampened_momentum_equals_that_of_torch(void **state)
{
    recorded_updates_are_equal(state, 0, "sgd", TOLERANCE);
}

static void signs_of_a_mean_equal_the_published_program(void **state)
{
    recorded_updates_are_equal(state, 1, "lion", TOLERANCE);
}

/* Five steps of an iteration that stretches small singular values by up to 3.4 each, in f32. */
static void orthogonal_steps_equal_those_in_double(void **state)
{
    recorded_updates_are_equal(state, 2, "muon", 2e-5);
}

static void orthogonal_steps_with_the_original_rate_equal_those_in_double(void **state)
{
    recorded_updates_are_equal(state, 3, "muon", 2e-5);
}

static void moments_of_8_bits_equal_those_of_bitsandbytes(void **state)
{
    recorded_updates_are_equal(state, 4, "adamw8bit", 1e-5);
}

static void larger_factored_moments_equal_those_of_torch(void **state)
{
    recorded_updates_are_equal(state, 5, "adafactor", TOLERANCE);
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
    assert_int_equal(square_sum(f->ctx, s, 2, counts, &sum), NRL_OK);
    assert_true(sum == 25);
    assert_int_equal(square_sum(f->ctx, s, 2, NULL, &sum), NRL_OK);
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
        CASE(factored_moments_equal_those_of_torch),
        CASE(dampened_momentum_equals_that_of_torch),
        CASE(signs_of_a_mean_equal_the_published_program),
        CASE(orthogonal_steps_equal_those_in_double),
        CASE(orthogonal_steps_with_the_original_rate_equal_those_in_double),
        CASE(moments_of_8_bits_equal_those_of_bitsandbytes),
        CASE(larger_factored_moments_equal_those_of_torch),
        CASE(options_of_sgd_that_mean_nothing_are_refused),
        CASE(betas_are_checked_with_the_place),
        CASE(a_gradient_that_is_not_finite_is_told),
        CASE(the_norm_is_that_of_the_scaled_gradient),
        CASE(slices_that_another_rank_counts_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
