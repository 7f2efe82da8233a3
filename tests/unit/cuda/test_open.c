/*
 * test_open.c - opening with a driver that is made of malloc: messages without a GPU, failing calls
 * that must leave nothing behind, info, copies in pieces, streams, and errors that kernels detect.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cuda_backend.h"
#include "fake_driver.h"
#include "fake_library.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cuda_options usual = {.memory_fraction = 0.5, .device = -1};

static int overwrite(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

static cuda *open_usual(void)
{
    cuda *c = NULL;
    assert_int_equal(cuda_open_driver(fake_driver(), &usual, 0, &c), NRL_OK);
    return c;
}

static void assert_probe_says(const char *text)
{
    assert_int_equal(cuda_probe_driver(fake_driver()), NRL_ERR_DEVICE);
    assert_non_null(strstr(nrl_error_text(), text));
}

static void probe_says_why_there_is_no_gpu(void **state)
{
    (void)state;
    assert_int_equal(cuda_probe_driver(fake_driver()), NRL_OK);
    fake.driver_version = 0;
    assert_probe_says("no NVIDIA driver");
    fake.driver_version = 12080;
    assert_probe_says("driver is for CUDA 12.8, and nrl was built with CUDA 13.0");
    fake.driver_version = 13020;
    fake.n_devices = 0;
    assert_probe_says("shows no GPU");
    fake.n_devices = 1;
    fake.properties.major = 7;
    fake.properties.minor = 5;
    assert_probe_says("emulated GPU is sm_75; expected sm_80 or newer");
}

static void a_device_that_is_not_there_is_named(void **state)
{
    cuda *c = NULL;
    cuda_options o = usual;
    (void)state;
    assert_int_equal(cuda_open_driver(fake_driver(), &usual, 1, &c), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "cannot use device 1: this machine has 1"));
    o.device = 3;
    assert_int_equal(cuda_open_driver(fake_driver(), &o, 0, &c), NRL_ERR_CONFIG);
    assert_null(c);
}

/* The first device may be a newer one than the one that is asked for. */
static int old_second_device(int device, cuda_properties *fill)
{
    *fill = fake.properties;
    if (device == 1) fill->major = 7;
    return CUDA_DONE;
}

static void the_device_that_is_opened_must_be_new_enough(void **state)
{
    cuda *c = NULL;
    cuda_driver driver = *fake_driver();
    (void)state;
    driver.properties = old_second_device;
    fake.n_devices = 2;
    assert_int_equal(cuda_open_driver(&driver, &usual, 1, &c), NRL_ERR_DEVICE);
    assert_non_null(strstr(nrl_error_text(), "is sm_70; expected sm_80"));
    assert_int_equal(fake.live_streams, 0);
}

static void what_a_kernel_did_is_not_blamed_on_the_next_call(void **state)
{
    (void)state;
    assert_int_equal(cuda_check(fake_driver(), 700, "gather"), NRL_ERR_DEVICE);
    assert_non_null(strstr(nrl_error_text(), "an earlier operation may be the cause"));
    assert_int_equal(cuda_check(fake_driver(), 1, "gather"), NRL_ERR_DEVICE);
    assert_null(strstr(nrl_error_text(), "before"));
}

static void a_call_that_fails_leaves_nothing_behind(void **state)
{
    static const char *const calls[] = {"versions", "count", "properties", "use", "stream_create", "allocate_host"};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int at = 1; at <= 2; at++) {
            cuda *c = NULL;
            fake_reset();
            fake.fail_call = calls[i];
            fake.fail_at = at;
            fake.fail_code = 999;
            nrl_status st = cuda_open_driver(fake_driver(), &usual, 0, &c);
            if (at == 1) assert_int_not_equal(st, NRL_OK);
            if (!st) cuda_close(c);
            assert_int_equal(fake.live_streams, 0);
            assert_int_equal(fake.live_blocks, 0);
            assert_int_equal(fake.live_host_blocks, 0);
        }
}

static void info_name_the_gpu_and_its_peak(void **state)
{
    nrl_device_info f;
    fake.properties.multiprocessors = 132;
    cuda *c = open_usual();
    (void)state;
    assert_int_equal(cuda_info(c, &f), NRL_OK);
    assert_string_equal(f.name, "emulated GPU");
    assert_string_equal(f.isa, "sm_90");
    assert_string_equal(f.library, "CUDA 13.0 (driver 13.0)");
    assert_true(f.peak_flops[NRL_DTYPE_BF16] > 989e12 && f.peak_flops[NRL_DTYPE_BF16] < 990e12);
    assert_false(f.host_memory);
    cuda_close(c);
}

/* bf16 peak of a GPU with this name, capability and number of multiprocessors */
static double peak_of(const char *name, int major, int multiprocessors)
{
    nrl_device_info f;
    cuda_properties *p = &fake.properties;
    fake_reset();
    snprintf(p->name, sizeof p->name, "%s", name);
    p->major = major;
    p->minor = 0;
    p->multiprocessors = multiprocessors;
    cuda *c = open_usual();
    assert_int_equal(cuda_info(c, &f), NRL_OK);
    cuda_close(c);
    return f.peak_flops[NRL_DTYPE_BF16];
}

static void peaks_of_blackwell_are_known_by_capability_and_name(void **state)
{
    (void)state;
    assert_true(fabs(peak_of("NVIDIA B200", 10, 148) - 2250e12) < 1e9);
    assert_true(fabs(peak_of("NVIDIA GeForce RTX 5090", 12, 170) - 209.5e12) < 1e9);
    assert_true(peak_of("NVIDIA RTX PRO 6000", 12, 188) == 0);
}

/* Sizes around the pieces of staging, from and to pageable and pinned memory. */
static void copies_arrive_whole_whatever_their_size(void **state)
{
    static const size_t sizes[] = {1, 65536, 65537, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 13 << 20};
    cuda *c = open_usual();
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int pinned = 0; pinned < 2; pinned++) {
            size_t n = sizes[k];
            void *device = NULL, *host = NULL;
            unsigned char *back = calloc(1, n);
            assert_int_equal(cuda_pool_take(c->pool, n, &device), NRL_OK);
            if (pinned)
                assert_int_equal(cuda_staging_take(c->staging, n, &host), NRL_OK);
            else
                host = malloc(n);
            for (size_t i = 0; i < n; i++)
                ((unsigned char *)host)[i] = (unsigned char)(i * 7 + i / 251);
            int64_t copies = fake.n_copies;
            assert_int_equal(cuda_copy_bytes(c, NULL, device, host, n, NRL_COPY_TO_DEVICE), NRL_OK);
            if (pinned) assert_int_equal(fake.n_copies, copies + 1);
            assert_int_equal(cuda_copy_bytes(c, NULL, back, device, n, NRL_COPY_TO_HOST), NRL_OK);
            assert_int_equal(cuda_stream_wait(c, NULL), NRL_OK);
            assert_memory_equal(back, host, n);
            if (pinned)
                cuda_staging_give(c->staging, host);
            else
                free(host);
            free(back);
            cuda_pool_give(c->pool, device);
        }
    cuda_close(c);
    assert_int_equal(fake.live_host_blocks, 0);
    assert_int_equal(fake.live_events, 0);
}

/* Pageable memory is the caller's again when a copy returns, whenever the device makes it. */
static void copies_that_the_device_makes_late_are_waited_for(void **state)
{
    static const size_t sizes[] = {100, 65536, 65537, (4 << 20) + 1, 21 << 20};
    cuda *c = open_usual();
    (void)state;
    fake.late = true;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        void *device = NULL;
        unsigned char *host = malloc(n), *back = calloc(1, n);
        assert_int_equal(cuda_pool_take(c->pool, n, &device), NRL_OK);
        for (size_t i = 0; i < n; i++)
            host[i] = (unsigned char)(i * 5 + i / 253 + 1);
        assert_int_equal(cuda_copy_bytes(c, NULL, device, host, n, NRL_COPY_TO_DEVICE), NRL_OK);
        memset(host, 0xee, n);
        assert_int_equal(cuda_copy_bytes(c, NULL, back, device, n, NRL_COPY_TO_HOST), NRL_OK);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(back[i], (unsigned char)(i * 5 + i / 253 + 1));
        free(host);
        free(back);
        cuda_pool_give(c->pool, device);
    }
    cuda_close(c);
}

static void a_copy_that_fails_is_an_error(void **state)
{
    static const char *const calls[] = {"copy", "event_record", "event_wait"};
    size_t n = 9 << 20;
    void *device = NULL, *host = malloc(n);
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        cuda *c = open_usual();
        assert_int_equal(cuda_pool_take(c->pool, n, &device), NRL_OK);
        fake.fail_call = calls[i];
        fake.fail_code = 700;
        assert_int_equal(cuda_copy_bytes(c, NULL, host, device, n, NRL_COPY_TO_HOST), NRL_ERR_DEVICE);
        assert_non_null(strstr(nrl_error_text(), "copying 9437184 bytes failed"));
        fake.fail_call = NULL;
        cuda_close(c);
    }
    free(host);
}

/* Without pinned memory copies go straight. */
static void copies_do_without_pinned_memory(void **state)
{
    size_t n = 9 << 20;
    cuda *c = open_usual();
    void *device = NULL, *host = calloc(1, n);
    (void)state;
    fake.fail_call = "allocate_host";
    fake.fail_code = CUDA_NO_MEMORY;
    assert_int_equal(cuda_pool_take(c->pool, n, &device), NRL_OK);
    assert_int_equal(cuda_copy_bytes(c, NULL, device, host, n, NRL_COPY_TO_DEVICE), NRL_OK);
    assert_memory_equal(device, host, n);
    void *pinned = NULL;
    assert_int_equal(cuda_staging_take(c->staging, 1 << 20, &pinned), NRL_ERR_MEMORY);
    fake.fail_call = NULL;
    cuda_close(c);
    free(host);
}

static void pinned_memory_is_kept_for_the_next_who_asks(void **state)
{
    cuda *c = open_usual();
    void *first = NULL, *second = NULL;
    (void)state;
    assert_int_equal(cuda_staging_take(c->staging, 100000, &first), NRL_OK);
    cuda_staging_give(c->staging, first);
    int64_t asked = fake.n_allocate_host;
    assert_int_equal(cuda_staging_take(c->staging, 120000, &second), NRL_OK);
    assert_ptr_equal(first, second);
    assert_int_equal(fake.n_allocate_host, asked);
    cuda_close(c);
    assert_int_equal(fake.live_host_blocks, 0);
}

static void streams_and_events_pair_up(void **state)
{
    cuda *c = open_usual();
    nrl_stream *a, *b;
    nrl_event *e;
    (void)state;
    assert_int_equal(cuda_stream_create(c, &a), NRL_OK);
    assert_int_equal(cuda_stream_create(c, &b), NRL_OK);
    assert_int_equal(cuda_event_record(c, a, &e), NRL_OK);
    assert_int_equal(cuda_event_fence(c, b, e), NRL_OK);
    assert_int_equal(cuda_event_wait(c, e), NRL_OK);
    cuda_event_destroy(c, e);
    fake.fail_call = "event_record";
    fake.fail_code = 700;
    assert_int_equal(cuda_event_record(c, a, &e), NRL_ERR_DEVICE);
    fake.fail_call = NULL;
    assert_int_equal(fake.live_events, 0);
    cuda_stream_destroy(c, a);
    cuda_stream_destroy(c, b);
    assert_int_equal(fake.live_streams, 1); /* its own */
    cuda_close(c);
    assert_int_equal(fake.live_streams, 0);
}

static void scratch_memory_belongs_to_a_stream_and_goes_with_it(void **state)
{
    cuda *c = open_usual();
    nrl_stream *a, *b;
    void *of_a, *of_b, *own, *again;
    (void)state;
    assert_int_equal(cuda_stream_create(c, &a), NRL_OK);
    assert_int_equal(cuda_stream_create(c, &b), NRL_OK);
    assert_int_equal(cuda_scratch(c, a, 4096, &of_a), NRL_OK);
    assert_int_equal(cuda_scratch(c, b, 4096, &of_b), NRL_OK);
    assert_int_equal(cuda_scratch(c, c->stream, 4096, &own), NRL_OK);
    assert_true(of_a != of_b && of_a != own && of_b != own);
    assert_int_equal(cuda_scratch(c, a, 1024, &again), NRL_OK);
    assert_ptr_equal(again, of_a);
    cuda_stream_destroy(c, a);
    cuda_stream_destroy(c, b);
    for (int i = 0; i < 3 * CUDA_MAX_STREAMS; i++) { /* places are free again */
        assert_int_equal(cuda_stream_create(c, &a), NRL_OK);
        assert_int_equal(cuda_scratch(c, a, 4096, &of_a), NRL_OK);
        assert_int_equal(cuda_workspace(c, a, 4096, &of_b), NRL_OK);
        assert_ptr_not_equal(of_a, of_b);
        cuda_stream_destroy(c, a);
    }
    cuda_pool_stats held;
    cuda_pool_measure(c->pool, &held);
    assert_int_equal(held.used_bytes, 4096); /* its own stream's */
    cuda_close(c);
}

/* Memory that was freed after work of a stream waits for the device's own one too, once that was used. */
static void the_pool_knows_the_devices_own_stream(void **state)
{
    cuda *c = open_usual();
    nrl_stream *a;
    void *memory;
    cuda_pool_stats held;
    char byte = 0;
    (void)state;
    fake.events_stay = true;
    assert_int_equal(cuda_stream_create(c, &a), NRL_OK);
    assert_int_equal(cuda_pool_take(c->pool, 4096, &memory), NRL_OK);
    assert_int_equal(cuda_copy_bytes(c, a, memory, &byte, 1, NRL_COPY_TO_DEVICE), NRL_OK);
    cuda_pool_give(c->pool, memory);
    cuda_pool_measure(c->pool, &held);
    assert_int_equal(held.waiting_bytes, 0); /* work of one stream follows */
    assert_int_equal(cuda_pool_take(c->pool, 4096, &memory), NRL_OK);
    assert_int_equal(cuda_copy_bytes(c, NULL, memory, &byte, 1, NRL_COPY_TO_DEVICE), NRL_OK);
    cuda_pool_give(c->pool, memory);
    cuda_pool_measure(c->pool, &held);
    assert_int_equal(held.waiting_bytes, 4096);
    fake.events_stay = false;
    cuda_stream_destroy(c, a);
    cuda_close(c);
}

static nrl_mat mat(void *data, uint32_t dtype, int64_t rows, int64_t cols)
{
    return (nrl_mat){data, dtype, 0, rows, cols, cols};
}

static void an_index_outside_the_matrix_is_told_at_the_next_wait(void **state)
{
    float table[3 * 4] = {0}, out[2 * 4];
    int32_t index[] = {1, 3};
    cuda *c = open_usual();
    nrl_gather_args a = {
        .size = sizeof a, .x = mat(table, NRL_DTYPE_F32, 3, 4), .y = mat(out, NRL_DTYPE_F32, 2, 4), .index = index};
    (void)state;
    assert_int_equal(cuda_op_gather(c, c->stream, &a), NRL_OK);
    assert_int_equal(cuda_stream_wait(c, NULL), NRL_ERR_BUG);
    assert_non_null(strstr(nrl_error_text(), "row index"));
    assert_int_equal(cuda_stream_wait(c, NULL), NRL_OK);
    nrl_scatter_args s = {.size = sizeof s,
                          .overwrite = true,
                          .dy = mat(out, NRL_DTYPE_F32, 2, 4),
                          .dx = mat(table, NRL_DTYPE_F32, 3, 4),
                          .index = index};
    assert_int_equal(cuda_op_scatter(c, c->stream, &s), NRL_OK);
    assert_int_equal(cuda_stream_wait(c, NULL), NRL_ERR_BUG);
    cuda_close(c);
}

static void a_launch_that_fails_names_the_operation(void **state)
{
    float x[4] = {0};
    cuda *c = open_usual();
    nrl_fill_args a = {.size = sizeof a, .y = mat(x, NRL_DTYPE_F32, 1, 4)};
    (void)state;
    fake.fail_call = "launch_error";
    fake.fail_code = 701;
    assert_int_equal(cuda_op_fill(c, c->stream, &a), NRL_ERR_DEVICE);
    assert_non_null(strstr(nrl_error_text(), "fill failed on the GPU"));
    fake.fail_call = NULL;
    cuda_close(c);
}

static void the_matrix_library_is_loaded_while_a_device_is_open(void **state)
{
    const int loads = fake_library_loads;
    (void)state;
    cuda_close(open_usual()); /* waits for the loader */
    assert_int_equal(fake_library_loads, loads + 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, overwrite)
    const struct CMUnitTest tests[] = {
        TEST(probe_says_why_there_is_no_gpu),
        TEST(a_device_that_is_not_there_is_named),
        TEST(the_device_that_is_opened_must_be_new_enough),
        TEST(what_a_kernel_did_is_not_blamed_on_the_next_call),
        TEST(a_call_that_fails_leaves_nothing_behind),
        TEST(info_name_the_gpu_and_its_peak),
        TEST(peaks_of_blackwell_are_known_by_capability_and_name),
        TEST(copies_arrive_whole_whatever_their_size),
        TEST(copies_that_the_device_makes_late_are_waited_for),
        TEST(a_copy_that_fails_is_an_error),
        TEST(copies_do_without_pinned_memory),
        TEST(pinned_memory_is_kept_for_the_next_who_asks),
        TEST(streams_and_events_pair_up),
        TEST(scratch_memory_belongs_to_a_stream_and_goes_with_it),
        TEST(the_pool_knows_the_devices_own_stream),
        TEST(an_index_outside_the_matrix_is_told_at_the_next_wait),
        TEST(a_launch_that_fails_names_the_operation),
        TEST(the_matrix_library_is_loaded_while_a_device_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
