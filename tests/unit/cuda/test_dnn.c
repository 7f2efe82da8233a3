/*
 * test_dnn.c - attention by cuDNN with a fake of its interface that checks every attribute and
 * computes the graphs (tests/support/cuda/fake_cudnn.h): results compared with nrl's kernels,
 * cached plans, and the cases that use nrl's kernels, with their warnings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if __has_include(<cudnn_graph.h>)
#include "fake_cudnn.h"
#define dlopen fake_cudnn_dlopen
#define dlsym fake_cudnn_dlsym
#define dnn_library_table real_dnn_table
#include "library_dnn.c"
#undef dnn_library_table
#include "cuda_backend.h"
#include "fake_driver.h"
#include "fake_library.h"

enum { MOST_SEGMENTS = 5 };

typedef struct {
    int n;
    int32_t lengths[MOST_SEGMENTS];
    int64_t heads, kv_heads, width, gap;
    uint32_t dtype;
} shape;

typedef struct {
    nrl_attention_args forward;
    nrl_attention_grad_args a;
    int32_t cu[MOST_SEGMENTS + 1];
    nrl_mat *mats[9];
} problem;

static cuda *plain, *with_dnn;

static size_t bytes_of(const nrl_mat *m)
{
    return (size_t)(m->rows * m->stride) * nrl_dtype_size((nrl_dtype)m->dtype);
}

static uint32_t random_state;

/* Multiples of 1/32 in [-1, 1): exact in both dtypes. */
static uint16_t encode(uint32_t dtype)
{
    random_state = random_state * 1664525u + 1013904223u;
    float f = (float)((int)(random_state >> 26) - 32) / 32;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (dtype == NRL_DTYPE_BF16) return (uint16_t)(u >> 16);
    return (uint16_t)((u >> 16 & 0x8000) | (f != 0 ? ((u & 0x7fffffff) - (112u << 23)) >> 13 : 0));
}

static nrl_mat matrix(uint32_t dtype, int64_t rows, int64_t cols, int64_t gap, bool filled)
{
    nrl_mat m = {.dtype = dtype, .rows = rows, .cols = cols, .stride = cols + gap};
    m.data = aligned_alloc(64, (bytes_of(&m) + 64) / 64 * 64);
    memset(m.data, 0xff, bytes_of(&m));
    for (int64_t i = 0; filled && i < rows * cols; i++)
        ((uint16_t *)m.data)[i / cols * m.stride + i % cols] = encode(dtype);
    return m;
}

static bool rotated; /* problems have angles of their queries and keys */
static float cosines[128 * 8], sines[128 * 8];

static void fill(problem *p, const shape *s)
{
    random_state = 11;
    memset(p, 0, sizeof *p);
    for (int i = 0; i < s->n; i++)
        p->cu[i + 1] = p->cu[i] + s->lengths[i];
    int64_t n = p->cu[s->n], wide = s->heads * s->width, narrow = s->kv_heads * s->width;
    nrl_attention_args *f = &p->forward;
    *f = (nrl_attention_args){.size = sizeof *f,
                              .n_segments = (uint32_t)s->n,
                              .cu_q = p->cu,
                              .cu_k = p->cu,
                              .host_cu_q = p->cu,
                              .host_cu_k = p->cu,
                              .n_heads = s->heads,
                              .n_kv_heads = s->kv_heads,
                              .head_dim = s->width,
                              .scale = 0.25};
    p->a.size = sizeof p->a;
    p->a.forward = f;
    for (int i = 0; rotated && i < 128 * 8; i++) {
        cosines[i] = cosf((float)(i % 23));
        sines[i] = sinf((float)(i % 23));
    }
    if (rotated) p->a.cos = cosines;
    if (rotated) p->a.sin = sines;
    p->a.half = s->width / 2;
    f->q = matrix(s->dtype, n, wide, s->gap, true);
    f->k = matrix(s->dtype, n, narrow, s->gap, true);
    f->v = matrix(s->dtype, n, narrow, s->gap, true);
    f->y = matrix(s->dtype, n, wide, s->gap, false);
    f->lse = matrix(NRL_DTYPE_F32, s->heads, n, 3, false);
    p->a.dy = matrix(s->dtype, n, wide, s->gap, true);
    p->a.dq = matrix(s->dtype, n, wide, s->gap, false);
    p->a.dk = matrix(s->dtype, n, narrow, s->gap, false);
    p->a.dv = matrix(s->dtype, n, narrow, s->gap, false);
    nrl_mat *all[] = {&f->q, &f->k, &f->v, &f->y, &f->lse, &p->a.dy, &p->a.dq, &p->a.dk, &p->a.dv};
    memcpy(p->mats, all, sizeof all);
}

static void drop_problem(problem *p)
{
    for (int i = 0; i < 9; i++)
        free(p->mats[i]->data);
}

static void run_on(cuda *gpu, problem *p)
{
    assert_int_equal(cuda_op_attention(gpu, NULL, &p->forward), NRL_OK);
    assert_int_equal(cuda_op_attention_grad(gpu, NULL, &p->a), NRL_OK);
}

static float value(const nrl_mat *m, int64_t i)
{
    uint16_t h;
    if (m->dtype == NRL_DTYPE_F32) return ((float *)m->data)[i];
    h = ((uint16_t *)m->data)[i];
    if (m->dtype == NRL_DTYPE_BF16) {
        uint32_t u = (uint32_t)h << 16;
        float f;
        memcpy(&f, &u, sizeof f);
        return f;
    }
    int exponent = h >> 10 & 31;
    float x = (float)(exponent ? ldexp((h & 1023) + 1024, exponent - 25) : ldexp(h & 1023, -24));
    return h & 0x8000 ? -x : x;
}

/* Both round P and dS to 16 bits, but each its own sums of them: one in 2^7 (bf16) or 2^10 of terms up
 * to 1, of which up to 70 are added. What neither writes (gaps) is the same bytes. */
static void compare(const problem *a, const problem *b, uint32_t dtype)
{
    const double most = dtype == NRL_DTYPE_BF16 ? 0.06 : 0.008;
    for (int i = 0; i < 9; i++) {
        const nrl_mat *x = a->mats[i], *y = b->mats[i];
        for (int64_t k = 0; k < x->rows * x->stride; k++) {
            size_t size = nrl_dtype_size((nrl_dtype)x->dtype);
            double u = value(x, k), v = value(y, k);
            if (k % x->stride >= x->cols) {
                assert_memory_equal((char *)x->data + (size_t)k * size, (char *)y->data + (size_t)k * size, size);
                continue;
            }
            if (!(fabs(u - v) <= most + 0.02 * fabs(u)))
                fail_msg("matrix %d, number %lld: %g and %g", i, (long long)k, u, v);
        }
    }
}

static void check(const shape *s)
{
    problem a, b;
    int executed = fake_cudnn.n_executed;
    fill(&a, s);
    fill(&b, s);
    run_on(plain, &a);
    run_on(with_dnn, &b);
    if (fake_cudnn.wrong[0]) fail_msg("%s", fake_cudnn.wrong);
    assert_int_equal(fake_cudnn.n_executed, executed + 2);
    compare(&a, &b, s->dtype);
    drop_problem(&a);
    drop_problem(&b);
}

static const shape even = {
    .n = 2, .lengths = {64, 64}, .heads = 2, .kv_heads = 2, .width = 16, .dtype = NRL_DTYPE_BF16};
static const shape mixed = {
    .n = 3, .lengths = {70, 1, 33}, .heads = 4, .kv_heads = 2, .width = 16, .gap = 8, .dtype = NRL_DTYPE_BF16};

static void sequences_of_one_length_give_what_our_kernels_give(void **state)
{
    shape s = even;
    (void)state;
    check(&s);
    s.kv_heads = 1;
    s.gap = 16;
    s.dtype = NRL_DTYPE_F16;
    check(&s);
}

static void mixed_lengths_do_too(void **state)
{
    shape s = mixed;
    (void)state;
    check(&s);
    s.kv_heads = 4;
    s.dtype = NRL_DTYPE_F16;
    check(&s);
}

/* Only train.deterministic: false allows a sum of dq in f32, to which kernels add by atomics. */
static void relaxed_gradients_of_queries_are_added_in_f32(void **state)
{
    (void)state;
    fake_cudnn.n_converted = 0;
    check(&even);
    assert_int_equal(fake_cudnn.n_converted, 0);
    with_dnn->relaxed = true;
    check(&even);
    assert_int_equal(fake_cudnn.n_converted, 128 * 2 * 16); /* each value of dq */
    check(&mixed);
    with_dnn->relaxed = false;
}

/* Inference keeps no log-sum-exp. */
static void results_do_not_need_a_log_sum_exp(void **state)
{
    problem a, b;
    (void)state;
    fill(&a, &mixed);
    fill(&b, &mixed);
    nrl_attention_args f = b.forward;
    f.lse.data = NULL;
    assert_int_equal(cuda_op_attention(with_dnn, NULL, &a.forward), NRL_OK);
    assert_int_equal(cuda_op_attention(with_dnn, NULL, &f), NRL_OK);
    assert_memory_equal(a.forward.y.data, f.y.data, bytes_of(&f.y));
    drop_problem(&a);
    drop_problem(&b);
}

static void plans_are_kept_by_class(void **state)
{
    shape s = mixed;
    (void)state;
    check(&s);
    int plans = fake_cudnn.n_plans;
    s.lengths[0] = 90;
    s.lengths[1] = 12;
    check(&s); /* other lengths, the same class */
    s.n = 4;
    s.lengths[3] = 5;
    check(&s);
    assert_int_equal(fake_cudnn.n_plans, plans);
    s.n = 5;
    s.lengths[4] = 5;
    check(&s); /* room for eight now */
    assert_int_equal(fake_cudnn.n_plans, plans + 2);
}

/* Runs on both and wants no call of the library. */
static void check_refused(void (*change)(problem *))
{
    problem a, b;
    int executed = fake_cudnn.n_executed;
    fill(&a, &even);
    fill(&b, &even);
    change(&a);
    change(&b);
    run_on(plain, &a);
    run_on(with_dnn, &b);
    assert_int_equal(fake_cudnn.n_executed, executed);
    for (int i = 0; i < 9; i++)
        assert_memory_equal(a.mats[i]->data, b.mats[i]->data, bytes_of(a.mats[i]));
    drop_problem(&a);
    drop_problem(&b);
}

static void with_a_window(problem *p)
{
    p->forward.window = 20;
}

static void with_a_prefix(problem *p)
{
    static const int32_t prefix[] = {-1, 0};
    p->forward.prefix = p->forward.host_prefix = prefix;
}

static void without_host_lengths(problem *p)
{
    p->forward.host_cu_q = NULL;
}

static void with_nothing(problem *p)
{
    (void)p;
}

static void what_it_is_not_asked_goes_to_our_kernels(void **state)
{
    (void)state;
    check_refused(with_a_window);
    check_refused(with_a_prefix);
    check_refused(without_host_lengths);
}

static cuda *open_again(void)
{
    const cuda_options o = {.memory_fraction = 0.9, .device = -1, .attention = CUDA_ATTENTION_CUDNN};
    cuda *gpu = NULL;
    cuda_close(with_dnn);
    assert_int_equal(cuda_open_driver(fake_driver(), &o, 0, &gpu), NRL_OK);
    return gpu;
}

static void a_library_that_is_missing_or_refuses_is_done_without(void **state)
{
    (void)state;
    fake_cudnn.no_file = 1;
    with_dnn = open_again();
    check_refused(with_nothing);
    fake_cudnn.no_file = 0;
    fake_cudnn.version = 91001;
    with_dnn = open_again();
    check_refused(with_nothing);
    fake_cudnn.version = 91900;
    fake_cudnn.create_fails = 1;
    with_dnn = open_again();
    check_refused(with_nothing);
    fake_cudnn.create_fails = 0;
    fake_cudnn.no_way = 1;
    with_dnn = open_again();
    check_refused(with_nothing);
    fake_cudnn.no_way = 0;
    fake_cudnn.workspace_bytes = (int64_t)1 << 40; /* too much */
    with_dnn = open_again();
    check_refused(with_nothing);
    fake_cudnn.workspace_bytes = 1000;
    with_dnn = open_again();
    check(&even);
}

static void a_workspace_takes_at_most_half_of_the_free_memory(void **state)
{
    const size_t whole = fake.properties.memory_bytes;
    (void)state;
    fake_cudnn.workspace_bytes = (int64_t)8 << 20;
    with_dnn = open_again();
    fake.properties.memory_bytes = fake.live_bytes + ((size_t)48 << 20);
    check(&even);
    with_dnn = open_again();
    fake.properties.memory_bytes = fake.live_bytes + ((size_t)12 << 20);
    check_refused(with_nothing);
    fake.properties.memory_bytes = whole;
    fake_cudnn.workspace_bytes = 1000;
    with_dnn = open_again();
    fake.fail_call = "memory_info";
    fake.fail_at = 1;
    fake.fail_code = 999;
    problem p;
    fill(&p, &even);
    assert_int_equal(cuda_op_attention(with_dnn, NULL, &p.forward), NRL_ERR_DEVICE);
    assert_non_null(strstr(nrl_error_text(), "reading the free memory"));
    assert_int_equal(cuda_op_attention(with_dnn, NULL, &p.forward), NRL_OK);
    drop_problem(&p);
}

static void a_run_that_fails_is_an_error(void **state)
{
    problem p;
    (void)state;
    fill(&p, &even);
    fake_cudnn.execute_fails = 1;
    assert_int_equal(cuda_op_attention(with_dnn, NULL, &p.forward), NRL_ERR_DEVICE);
    assert_non_null(
        strstr(nrl_error_text(), "cuDNN: attention failed: CUDNN_STATUS_EXECUTION_FAILED: the stand-in's last words"));
    fake_cudnn.execute_fails = 0;
    drop_problem(&p);
}

/* ---- attention: auto ---- */

static dnn_library wrong;
static int wrong_by;

/* The library's results, of which some have another exponent, or (wrong_by < 0) one of q's gradient is not a number. */
static nrl_status run_wrong(void *own, void *plan, const dnn_operands *at, void *stream)
{
    const dnn_library *right = real_dnn_table();
    NRL_TRY(right->run(own, plan, at, stream));
    uint16_t *result = at->operands[at->operands[DNN_DV] ? DNN_DV : DNN_Y], *dq = at->operands[DNN_DQ];
    for (int i = 0; i < 64 && wrong_by > 0; i++)
        result[i] = (uint16_t)(result[i] + wrong_by * 128); /* bf16 */
    if (dq && wrong_by < 0) dq[0] = 0x7fc0;
    return NRL_OK;
}

static cuda *open_auto(void)
{
    const cuda_options o = {.memory_fraction = 0.9, .device = -1, .attention = CUDA_ATTENTION_AUTO};
    cuda *gpu = NULL;
    assert_int_equal(cuda_open_driver(fake_driver(), &o, 0, &gpu), NRL_OK);
    return gpu;
}

/* Results of the first and of later calls are the bits of `expected`. */
static void check_same(cuda *gpu, cuda *expected, const shape *s)
{
    problem a, b;
    fill(&a, s);
    run_on(expected, &a);
    for (int call = 0; call < 3; call++) {
        fill(&b, s);
        run_on(gpu, &b);
        for (int i = 0; i < 9; i++)
            assert_memory_equal(a.mats[i]->data, b.mats[i]->data, bytes_of(a.mats[i]));
        drop_problem(&b);
    }
    drop_problem(&a);
}

static void auto_takes_what_agrees_from_the_first_call_on(void **state)
{
    (void)state;
    cuda *gpu = open_auto();
    for (int i = 0; i < 2; i++) {
        int executed = fake_cudnn.n_executed;
        check_same(gpu, with_dnn, i ? &mixed : &even);
        assert_int_equal(fake_cudnn.n_executed, executed + 2 + 6);
    }
    cuda_close(gpu);
}

static void auto_keeps_our_kernels_where_results_differ_or_fail(void **state)
{
    const dnn_library *right = fake_dnn_library;
    (void)state;
    wrong = *right;
    wrong.run = run_wrong;
    fake_dnn_library = &wrong;
    for (int fails = 0; fails < 2; fails++) {
        cuda *gpu = open_auto();
        int executed = fake_cudnn.n_executed;
        wrong_by = 1;
        fake_cudnn.execute_fails = fails;
        check_same(gpu, plain, &even);
        assert_true(fake_cudnn.n_executed <= executed + 2); /* one trial of each */
        fake_cudnn.execute_fails = 0;
        cuda_close(gpu);
    }
    wrong_by = -1;
    cuda *gpu = open_auto();
    problem a, b;
    fill(&a, &even);
    fill(&b, &even);
    run_on(plain, &a);
    run_on(gpu, &b);
    compare(&a, &b, even.dtype); /* forward by the library, gradients by our kernels */
    drop_problem(&a);
    drop_problem(&b);
    cuda_close(gpu);
    wrong_by = 0;
    gpu = open_auto();
    check_same(gpu, with_dnn, &even);
    cuda_close(gpu);
    fake_dnn_library = right;
}

static void auto_takes_little_memory_and_does_without_a_library(void **state)
{
    (void)state;
    fake_cudnn.workspace_bytes = (int64_t)(fake.properties.memory_bytes / 64 + 1000);
    cuda *gpu = open_auto();
    int executed = fake_cudnn.n_executed;
    check_same(gpu, plain, &even);
    cuda_close(gpu);
    fake_cudnn.workspace_bytes = 1000;
    fake_cudnn.no_file = 1;
    gpu = open_auto();
    check_same(gpu, plain, &even);
    cuda_close(gpu);
    fake_cudnn.no_file = 0;
    assert_int_equal(fake_cudnn.n_executed, executed);
}

/* Trials compare gradients before they are rotated. */
static void gradients_are_rotated_back_whoever_computes_them(void **state)
{
    problem a, b;
    (void)state;
    fill(&a, &mixed);
    rotated = true;
    check(&mixed);
    fill(&b, &mixed);
    run_on(with_dnn, &a);
    run_on(with_dnn, &b);
    assert_memory_not_equal(a.a.dq.data, b.a.dq.data, bytes_of(&a.a.dq));
    assert_memory_equal(a.a.dv.data, b.a.dv.data, bytes_of(&a.a.dv));
    drop_problem(&a);
    drop_problem(&b);
    cuda *gpu = open_auto();
    check_same(gpu, with_dnn, &mixed);
    cuda_close(gpu);
    rotated = false;
}

static int open_both(void **state)
{
    cuda_options o = {.memory_fraction = 0.9, .device = -1, .attention = CUDA_ATTENTION_FLASH};
    (void)state;
    fake_reset();
    fake_cudnn = (fake_cudnn_state){.version = 91900, .workspace_bytes = 1000};
    fake_dnn_library = real_dnn_table();
    if (cuda_open_driver(fake_driver(), &o, 0, &plain)) return -1;
    o.attention = CUDA_ATTENTION_CUDNN;
    return cuda_open_driver(fake_driver(), &o, 0, &with_dnn) ? -1 : 0;
}

static int close_both(void **state)
{
    (void)state;
    cuda_close(plain);
    cuda_close(with_dnn);
    return fake_cudnn.live; /* descriptors and handles */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_of_one_length_give_what_our_kernels_give),
        cmocka_unit_test(mixed_lengths_do_too),
        cmocka_unit_test(relaxed_gradients_of_queries_are_added_in_f32),
        cmocka_unit_test(results_do_not_need_a_log_sum_exp),
        cmocka_unit_test(plans_are_kept_by_class),
        cmocka_unit_test(what_it_is_not_asked_goes_to_our_kernels),
        cmocka_unit_test(a_library_that_is_missing_or_refuses_is_done_without),
        cmocka_unit_test(a_workspace_takes_at_most_half_of_the_free_memory),
        cmocka_unit_test(a_run_that_fails_is_an_error),
        cmocka_unit_test(auto_takes_what_agrees_from_the_first_call_on),
        cmocka_unit_test(gradients_are_rotated_back_whoever_computes_them),
        cmocka_unit_test(auto_keeps_our_kernels_where_results_differ_or_fail),
        cmocka_unit_test(auto_takes_little_memory_and_does_without_a_library),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
#else
int main(void)
{
    print_message("skipped: cudnn_graph.h is not on this machine\n");
    return 77;
}
#endif
