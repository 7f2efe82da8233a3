/*
 * test_watch.c - measurements of the backend: launches, times between events, its pool, and values
 * of a fake NVML, which may refuse queries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cuda_backend.h"
#include "fake_driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern long emulator_launches;

static cuda *gpu;

static int open_gpu(void **state)
{
    static const cuda_options usual = {.memory_fraction = 1, .device = -1};
    (void)state;
    fake_reset();
    unsetenv("FAKE_NVML");
    return cuda_open_driver(fake_driver(), &usual, 0, &gpu) != NRL_OK;
}

static int close_gpu(void **state)
{
    (void)state;
    cuda_close(gpu);
    assert_int_equal(fake.live_events, 0);
    return 0;
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void ok(nrl_status st)
{
    if (st) print_error("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
}

/* ---- launches ---- */

static nrl_mat mat(uint32_t dtype, int64_t rows, int64_t cols)
{
    void *data = NULL;
    ok(cuda_pool_take(gpu->pool, (size_t)(rows * cols) * 8, &data));
    memset(data, 0, (size_t)(rows * cols) * 8);
    return (nrl_mat){data, dtype, 0, rows, cols, cols};
}

static void run_attention(uint32_t dtype)
{
    static const int32_t cu[] = {0, 9};
    nrl_attention_grad_args a = {.size = sizeof a,
                                 .forward = &(nrl_attention_args){.size = sizeof(nrl_attention_args),
                                                                  .n_segments = 1,
                                                                  .cu_q = cu,
                                                                  .cu_k = cu,
                                                                  .host_cu_q = cu,
                                                                  .host_cu_k = cu,
                                                                  .n_heads = 2,
                                                                  .n_kv_heads = 1,
                                                                  .head_dim = 16,
                                                                  .scale = 0.25,
                                                                  .q = mat(dtype, 9, 32),
                                                                  .k = mat(dtype, 9, 16),
                                                                  .v = mat(dtype, 9, 16),
                                                                  .y = mat(dtype, 9, 32),
                                                                  .lse = mat(NRL_DTYPE_F32, 2, 9)},
                                 .dy = mat(dtype, 9, 32),
                                 .dq = mat(dtype, 9, 32),
                                 .dk = mat(dtype, 9, 16),
                                 .dv = mat(dtype, 9, 16)};
    ok(cuda_op_attention(gpu, gpu->stream, a.forward));
    ok(cuda_op_attention_grad(gpu, gpu->stream, &a));
}

static void run_rows(void)
{
    static const int32_t index[] = {2, 0, 2};
    static const float one[3] = {0};
    const uint32_t f32 = NRL_DTYPE_F32;
    double *sum = mat(f32, 1, 1).data;
    nrl_mat weight = mat(f32, 1, 40), x = mat(f32, 3, 40);
    ok(cuda_op_scatter(gpu, gpu->stream,
                       &(nrl_scatter_args){sizeof(nrl_scatter_args), true, x, mat(f32, 5, 40), index}));
    ok(cuda_op_norm_grad(gpu, gpu->stream,
                         &(nrl_norm_grad_args){.size = sizeof(nrl_norm_grad_args),
                                               .rms = true,
                                               .x = x,
                                               .weight = weight,
                                               .rstd = mat(f32, 3, 1),
                                               .dy = mat(f32, 3, 40),
                                               .dx = mat(f32, 3, 40),
                                               .dweight = mat(f32, 1, 40),
                                               .overwrite_weight = true}));
    ok(cuda_op_square_sum(gpu, gpu->stream, &(nrl_square_sum_args){sizeof(nrl_square_sum_args), true, x, sum}));
    ok(cuda_op_reduce(
        gpu, gpu->stream,
        &(nrl_reduce_args){sizeof(nrl_reduce_args), NRL_REDUCTION_SUM, NRL_AXIS_ROWS, true, x, mat(f32, 1, 40)}));
    ok(cuda_op_softmax(gpu, gpu->stream, &(nrl_softmax_args){sizeof(nrl_softmax_args), true, x, mat(f32, 3, 40)}));
    ok(cuda_op_head_grad(gpu, gpu->stream,
                         &(nrl_head_grad_args){.size = sizeof(nrl_head_grad_args),
                                               .logits = x,
                                               .dlogits = x,
                                               .target = index,
                                               .inverse_temperature = 1,
                                               .lse = one,
                                               .dlogp = one}));
    ok(cuda_op_copy(
        gpu, gpu->stream,
        &(nrl_copy_args){.size = sizeof(nrl_copy_args), .transpose = true, .x = x, .y = mat(f32, 40, 3), .alpha = 1}));
}

static int64_t launches(void)
{
    nrl_value values[64];
    size_t n;
    ok(cuda_watch_end(gpu, values, 64, &n));
    assert_true(n > 0);
    assert_string_equal(values[0].name, "launches");
    return (int64_t)values[0].value;
}

static void each_launch_is_counted_once(void **state)
{
    (void)state;
    long before = emulator_launches;
    ok(cuda_watch_begin(gpu));
    run_rows();
    run_attention(NRL_DTYPE_F32);
    run_attention(NRL_DTYPE_BF16);
    run_attention(NRL_DTYPE_F16);
    assert_true(emulator_launches - before >= 20);
    assert_int_equal(launches(), emulator_launches - before);
    ok(cuda_watch_begin(gpu)); /* from nothing again; a product is one call of its library */
    nrl_gemm_args g = {.size = sizeof g,
                       .overwrite = true,
                       .alpha = 1,
                       .a = mat(NRL_DTYPE_F32, 8, 8),
                       .b = mat(NRL_DTYPE_F32, 8, 8),
                       .c = mat(NRL_DTYPE_F32, 8, 8)};
    ok(cuda_op_gemm(gpu, gpu->stream, &g));
    assert_int_equal(launches(), 1);
}

static void many_small_tensors_share_launches(void **state)
{
    enum { N = 100 };
    nrl_adamw_args updates[N];
    nrl_square_sum_args squares[N];
    double *sums = mat(NRL_DTYPE_F32, 1, N).data;
    (void)state;
    for (int i = 0; i < N; i++) {
        const int64_t n = 8 + 3 * i;
        updates[i] = (nrl_adamw_args){.size = sizeof *updates,
                                      .master = mat(NRL_DTYPE_F32, 1, n),
                                      .grad = mat(NRL_DTYPE_F32, 1, n),
                                      .m = mat(NRL_DTYPE_F32, 1, n),
                                      .v = mat(NRL_DTYPE_F32, 1, n),
                                      .weight_decay = i % 2 ? 0.1 : 0,
                                      .correction1 = 1,
                                      .correction2 = 1};
        squares[i] = (nrl_square_sum_args){sizeof *squares, true, updates[i].grad, sums + i};
    }
    ok(cuda_watch_begin(gpu));
    ok(cuda_adamw_all(gpu, gpu->stream, updates, N));
    assert_int_equal(launches(), 3); /* of 48 tensors at most */
    ok(cuda_watch_begin(gpu));
    ok(cuda_square_sum_all(gpu, gpu->stream, squares, N));
    assert_int_equal(launches(), 4); /* two for 64 tensors at most */
}

/* ---- events ---- */

static void timed_events_tell_seconds(void **state)
{
    nrl_event *a, *b;
    double seconds;
    (void)state;
    ok(cuda_event_record_timed(gpu, NULL, &a));
    pause_ms(20);
    ok(cuda_event_record_timed(gpu, NULL, &b));
    ok(cuda_event_seconds(gpu, a, b, &seconds));
    assert_true(seconds >= 0.019 && seconds < 10);
    fake.fail_call = "event_elapsed";
    fake.fail_code = 600;
    assert_int_equal(cuda_event_seconds(gpu, a, b, &seconds), NRL_ERR_DEVICE);
    fake.fail_call = "event_create_timed";
    nrl_event *c = NULL;
    assert_int_equal(cuda_event_record_timed(gpu, NULL, &c), NRL_ERR_DEVICE);
    fake.fail_call = NULL;
    cuda_event_destroy(gpu, a);
    cuda_event_destroy(gpu, b);
}

/* ---- NVML ---- */

static cuda_watch_stats watched(const char *library, const char *bus_id, long ms)
{
    cuda_watch_stats f;
    cuda_watch_start(gpu->watch, library, bus_id);
    pause_ms(ms);
    assert_true(cuda_watch_stop(gpu->watch, &f));
    return f;
}

static void samples_are_taken_while_it_runs(void **state)
{
    cuda_watch_stats f = watched(FAKE_NVML_FILE, "0000:01:00.0", 450);
    (void)state;
    assert_true(f.sm_clock_mhz.n >= 1 && f.sm_clock_mhz.least == 1500 && f.sm_clock_mhz.most == 1500);
    assert_true(f.memory_clock_mhz.sum == 3200.0 * (double)f.memory_clock_mhz.n);
    assert_true(f.temperature_c.most == 61 && f.sm_clock_limit_mhz == 1980 && f.power_limit_w == 700);
    assert_true(f.power_w.most >= 100 && f.power_w.least >= 100 && f.power_w.least <= f.power_w.most);
    assert_true(f.energy_j == 5); /* asked at both ends */
    assert_true(f.reasons[NVML_POWER_CAP].sum == (double)f.reasons[NVML_POWER_CAP].n);
    assert_true(f.reasons[NVML_SOFTWARE_THERMAL].least == 1 && f.reasons[NVML_HARDWARE_SLOWDOWN].most == 0);
    assert_true(f.seconds >= 0.4);
}

static void a_short_watch_has_one_sample(void **state)
{
    cuda_watch_stats f = watched(FAKE_NVML_FILE, "0000:01:00.0", 0);
    (void)state;
    assert_true(f.sm_clock_mhz.n >= 1 && f.power_w.n >= 1);
}

static void what_is_refused_is_absent_and_the_rest_is_there(void **state)
{
    (void)state;
    setenv("FAKE_NVML", "power,energy,reasons", 1);
    cuda_watch_stats f = watched(FAKE_NVML_FILE, "0000:01:00.0", 0);
    assert_true(f.power_w.n == 0 && isnan(f.energy_j) && f.reasons[0].n == 0);
    assert_true(f.sm_clock_mhz.n >= 1 && f.power_limit_w == 700);
    setenv("FAKE_NVML", "clock,limit,power_limit,temperature", 1);
    f = watched(FAKE_NVML_FILE, "0000:01:00.0", 0);
    assert_true(f.sm_clock_mhz.n == 0 && isnan(f.sm_clock_limit_mhz) && isnan(f.power_limit_w) && f.power_w.n >= 1);
}

static void without_nvml_only_launches_are_told(void **state)
{
    static const struct {
        const char *refuses, *library, *bus_id;
    } ways[] = {{"", "no-such-library.so.1", "0000:01:00.0"},
                {"init", FAKE_NVML_FILE, "0000:01:00.0"},
                {"handle", FAKE_NVML_FILE, "0000:01:00.0"},
                {"", FAKE_NVML_FILE, "0000:02:00.0"},
                {"", FAKE_NVML_FILE, NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        setenv("FAKE_NVML", ways[i].refuses, 1);
        cuda_watch_stats f = watched(ways[i].library, ways[i].bus_id, 0);
        assert_true(f.sm_clock_mhz.n == 0 && f.power_w.n == 0 && isnan(f.energy_j) && isnan(f.power_limit_w));
    }
}

static double value_of(const nrl_value *values, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(values[i].name, name)) return values[i].value;
    return NAN;
}

static void the_pool_is_told_by_kind(void **state)
{
    nrl_value v[64];
    size_t n;
    void *big = NULL, *scratch;
    (void)state;
    ok(cuda_watch_begin(gpu));
    ok(cuda_pool_take(gpu->pool, 40 << 20, &big));
    cuda_pool_give(gpu->pool, big);
    ok(cuda_scratch(gpu, gpu->stream, 3 << 20, &scratch));
    ok(cuda_watch_end(gpu, v, 64, &n));
    assert_true(value_of(v, n, "memory_pool_used_peak_bytes") >= 40 << 20);
    assert_true(value_of(v, n, "memory_pool_held_peak_bytes") >= value_of(v, n, "memory_pool_used_peak_bytes"));
    assert_true(value_of(v, n, "memory_workspace_bytes") == 3 << 20);
    double fragmentation = value_of(v, n, "memory_fragmentation_share");
    assert_true(fragmentation >= 0 && fragmentation < 1);
    assert_true(value_of(v, n, "memory_free_bytes") > 0);
    ok(cuda_watch_begin(gpu));
    ok(cuda_watch_end(gpu, v, 2, &n)); /* no more than there is room for */
    assert_int_equal(n, 2);
    assert_int_equal(cuda_watch_end(gpu, v, 64, &n), NRL_ERR_BUG);
    assert_int_equal(n, 0);
}

static void a_watch_that_nobody_ended_ends_with_the_device(void **state)
{
    (void)state;
    cuda_watch_start(gpu->watch, FAKE_NVML_FILE, "0000:01:00.0");
    cuda_watch_start(gpu->watch, FAKE_NVML_FILE, "0000:01:00.0");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_gpu, close_gpu)
    const struct CMUnitTest tests[] = {
        TEST(each_launch_is_counted_once),
        TEST(many_small_tensors_share_launches),
        TEST(timed_events_tell_seconds),
        TEST(samples_are_taken_while_it_runs),
        TEST(a_short_watch_has_one_sample),
        TEST(what_is_refused_is_absent_and_the_rest_is_there),
        TEST(without_nvml_only_launches_are_told),
        TEST(the_pool_is_told_by_kind),
        TEST(a_watch_that_nobody_ended_ends_with_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
