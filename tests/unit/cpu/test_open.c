/*
 * test_open.c - the cpu backend apart from its operations: options, memory, arguments of other
 * sizes, wrong indices. The conformance suite tests the results of operations.
 */
#include "support/backend.h"
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static nrl_backend table;

/* Opens with every option 0 except those given as name, value, ..., NULL. */
static nrl_status open_with(void **self, ...)
{
    char options[256] = {0};
    va_list a;
    assert_true(table.plugin.options_size <= sizeof options);
    va_start(a, self);
    for (const char *name = va_arg(a, const char *); name; name = va_arg(a, const char *)) {
        int64_t value = va_arg(a, int);
        bool found = false;
        for (uint32_t i = 0; i < table.plugin.n_options; i++) {
            const nrl_option *o = &table.plugin.options[i];
            if (strcmp(o->name, name) != 0) continue;
            memcpy(options + o->offset, &value, sizeof value);
            found = true;
        }
        assert_true(found);
    }
    va_end(a);
    return table.open(options, 0, self);
}

static nrl_mat f32(float *data, int64_t rows, int64_t cols)
{
    return (nrl_mat){.data = data, .dtype = NRL_DTYPE_F32, .rows = rows, .cols = cols, .stride = cols};
}

static int count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    if (!d) return 1;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2; /* . and .. */
}

/* In a process of its own, as the limit stays. */
static void more_threads_than_fit_are_an_error(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        void *self;
        long pages = 0;
        FILE *f = fopen("/proc/self/statm", "r");
        if (!f || fscanf(f, "%ld", &pages) != 1) _exit(77);
        fclose(f);
        rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64u << 20); /* room for a few stacks */
        if (setrlimit(RLIMIT_AS, &(struct rlimit){most, most})) _exit(77);
        _exit(open_with(&self, "threads", 1024, NULL));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), NRL_ERR_CONFIG);
}

static void opening_starts_no_thread(void **state)
{
    void *self;
    nrl_device_info info;
    (void)state;
    int before = count_threads();
    assert_int_equal(open_with(&self, "threads", 8, NULL), NRL_OK);
    assert_int_equal(table.info(self, &info), NRL_OK);
    assert_int_equal(count_threads(), before);
    assert_int_equal(info.n_threads, 8);
    assert_true(info.peak_flops[NRL_DTYPE_F32] > 1e8);
    assert_true(info.memory_bytes > 1 << 20);
    assert_true(info.host_memory);
    table.close(self);
}

static void ranks_of_a_node_open_the_same_device(void **state)
{
    char options[256] = {0};
    void *self;
    nrl_device_info info = {.size = sizeof info};
    (void)state;
    assert_int_equal(table.open(options, 3, &self), NRL_OK);
    assert_int_equal(table.info(self, &info), NRL_OK);
    assert_int_equal(info.index, 0);
    table.close(self);
}

/* isa: 0 auto, 1 base, 2 avx2, 3 avx512 */
static void an_instruction_set_opens_or_says_which_one_is_there(void **state)
{
    (void)state;
    for (int isa = 0; isa <= 3; isa++) {
        void *self = NULL;
        nrl_status st = open_with(&self, "isa", isa, NULL);
        if (st == NRL_OK) {
            table.close(self);
            continue;
        }
        assert_int_equal(st, NRL_ERR_CONFIG);
        assert_non_null(strstr(nrl_error_text(), "its best instruction set is"));
    }
}

static void too_much_memory_says_how_much_is_free(void **state)
{
    void *self, *memory = &self;
    (void)state;
    assert_int_equal(open_with(&self, NULL), NRL_OK);
    assert_int_equal(table.alloc(self, (size_t)1 << 50, &memory), NRL_ERR_MEMORY);
    assert_null(memory);
    assert_non_null(strstr(nrl_error_text(), "cannot allocate 1024 TiB of host memory ("));
    assert_non_null(strstr(nrl_error_text(), " free)"));
    table.close(self);
}

static void an_allocation_beyond_memory_limit_names_it_and_what_is_freed_can_be_used_again(void **state)
{
    void *self, *memory[2] = {NULL};
    (void)state;
    char options[256] = {0};
    const char *limit = "10MiB";
    for (uint32_t i = 0; i < table.plugin.n_options; i++)
        if (!strcmp(table.plugin.options[i].name, "memory_limit"))
            memcpy(options + table.plugin.options[i].offset, &limit, sizeof limit);
    assert_int_equal(table.open(options, 0, &self), NRL_OK);
    assert_int_equal(table.alloc(self, 6 << 20, &memory[0]), NRL_OK);
    assert_int_equal(table.alloc(self, 6 << 20, &memory[1]), NRL_ERR_MEMORY);
    assert_string_equal(nrl_error_text(), "cannot allocate 6.0 MiB of host memory: tensors use 6.0 MiB of the 10.0 MiB "
                                          "of backend.memory_limit");
    table.free(self, memory[0]);
    assert_int_equal(table.alloc(self, 6 << 20, &memory[1]), NRL_OK);
    table.free(self, memory[1]);
    table.close(self);
}

static void an_allocation_beyond_the_address_space_names_ulimit(void **state)
{
    void *self, *memory = NULL;
    struct rlimit was, little;
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    (void)state;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld", &pages), 1);
    fclose(f);
    assert_int_equal(open_with(&self, NULL), NRL_OK);
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    little = was;
    little.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE)) + (64 << 20);
    if (setrlimit(RLIMIT_AS, &little)) {
        print_message("skipped: the address space cannot be limited\n");
        skip();
    }
    nrl_status st = table.alloc(self, 256 << 20, &memory);
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
    if (st == NRL_OK) { /* the address sanitizer ignores it */
        print_message("skipped: the limit of the address space has no effect\n");
        skip();
    }
    assert_int_equal(st, NRL_ERR_MEMORY);
    assert_non_null(strstr(nrl_error_text(), "of address space that ulimit -v allows"));
    table.close(self);
}

typedef struct {
    nrl_fill_args known;
    uint64_t later; /* a member that this backend does not know */
} larger_fill;

static void arguments_of_a_newer_core_are_fine_while_their_new_members_are_zero(void **state)
{
    void *self;
    float y[3] = {0};
    (void)state;
    assert_int_equal(open_with(&self, NULL), NRL_OK);
    larger_fill a = {.known = {.size = sizeof a, .y = f32(y, 1, 3), .value = 2}};
    assert_int_equal(table.ops->fill(self, NULL, &a.known), NRL_OK);
    assert_true(y[0] == 2 && y[2] == 2);
    a.later = 1;
    assert_int_equal(table.ops->fill(self, NULL, &a.known), NRL_ERR_PLUGIN);
    assert_non_null(strstr(nrl_error_text(), "argument of op 'fill' at"));
    a.known.size = 0;
    assert_int_equal(table.ops->fill(self, NULL, &a.known), NRL_ERR_BUG);
    table.close(self);
}

/* Two tokens, one head. The members behind what the older core knows have values that would be refused or used. */
static void attention_of_an_older_core_is_without_what_was_added_since(void **state)
{
    void *self;
    float q[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8], lse[2], sink = 9, dsink = 3, dq[2][8], dk[2][8], dv[2][8];
    const int32_t cu[] = {0, 2};
    (void)state;
    assert_int_equal(open_with(&self, NULL), NRL_OK);
    nrl_attention_args f = {.size = sizeof f,
                            .n_segments = 1,
                            .q = f32(q, 2, 4),
                            .k = f32(q, 2, 4),
                            .v = f32(q, 2, 4),
                            .y = f32(y, 2, 4),
                            .lse = f32(lse, 1, 2),
                            .cu_q = cu,
                            .cu_k = cu,
                            .host_cu_q = cu,
                            .host_cu_k = cu,
                            .n_heads = 1,
                            .n_kv_heads = 1,
                            .head_dim = 4,
                            .scale = 0.1};
    assert_int_equal(table.ops->attention(self, NULL, &f), NRL_OK);
    for (int older = 0; older < 2; older++) {
        nrl_attention_grad_args a = {.size = sizeof a,
                                     .forward = &f,
                                     .dy = f32(q, 2, 4),
                                     .dq = f32(dq[older], 2, 4),
                                     .dk = f32(dk[older], 2, 4),
                                     .dv = f32(dv[older], 2, 4)};
        if (older) {
            f.size = offsetof(nrl_attention_args, soft_cap);
            f.soft_cap = 0.5;
            f.sinks = &sink;
            f.merge = true;
            a.size = offsetof(nrl_attention_grad_args, dsinks);
            a.dsinks = &dsink;
        }
        assert_int_equal(table.ops->attention_grad(self, NULL, &a), NRL_OK);
    }
    assert_memory_equal(dq[0], dq[1], sizeof dq[0]);
    assert_memory_equal(dk[0], dk[1], sizeof dk[0]);
    assert_memory_equal(dv[0], dv[1], sizeof dv[0]);
    assert_true(dsink == 3);
    table.close(self);
}

static void an_index_outside_the_matrix_is_an_error(void **state)
{
    void *self;
    float x[6] = {0}, y[2];
    int32_t index[1] = {3};
    (void)state;
    assert_int_equal(open_with(&self, NULL), NRL_OK);
    nrl_gather_args a = {.size = sizeof a, .x = f32(x, 3, 2), .y = f32(y, 1, 2), .index = index};
    assert_int_equal(table.ops->gather(self, NULL, &a), NRL_ERR_BUG);
    assert_non_null(strstr(nrl_error_text(), "row index 3 of a matrix of 3 rows"));
    table.close(self);
}

static void a_product_of_other_shapes_names_them(void **state)
{
    void *self;
    float a[6] = {0}, b[8] = {0}, c[8];
    (void)state;
    assert_int_equal(open_with(&self, NULL), NRL_OK);
    nrl_gemm_args g = {
        .size = sizeof g, .overwrite = true, .a = f32(a, 2, 3), .b = f32(b, 2, 4), .c = f32(c, 2, 4), .alpha = 1};
    assert_int_equal(table.ops->gemm(self, NULL, &g), NRL_ERR_BUG);
    assert_non_null(strstr(nrl_error_text(), "2x3 and 2x4 to 2x4"));
    table.close(self);
}

enum { M = 70, N = 300, K = 900 }; /* large enough to be widened in several blocks */

/* c = a b^T + bias from bf16, c in `dtype`; returned as floats. */
static void bf16_product(int bf16, uint32_t dtype, const uint16_t *a, const uint16_t *b, float *out)
{
    void *self, *c = malloc((size_t)M * N * 4);
    uint16_t bias[N];
    assert_non_null(c);
    for (int i = 0; i < N; i++)
        bias[i] = b[i * K];
    assert_int_equal(open_with(&self, "bf16", bf16, "threads", 2, NULL), NRL_OK);
    nrl_mat ma = {(void *)a, NRL_DTYPE_BF16, 0, M, K, K}, mb = {(void *)b, NRL_DTYPE_BF16, 0, N, K, K};
    nrl_mat mc = {c, dtype, 0, M, N, N}, mbias = {bias, NRL_DTYPE_BF16, 0, 1, N, N};
    nrl_gemm_args g = {
        .size = sizeof g, .transpose_b = true, .overwrite = true, .a = ma, .b = mb, .c = mc, .bias = mbias, .alpha = 1};
    assert_int_equal(table.ops->gemm(self, NULL, &g), NRL_OK);
    nrl_mat floats = f32(out, M, N);
    nrl_copy_args k = {.size = sizeof k, .x = mc, .y = floats, .alpha = 1};
    assert_int_equal(table.ops->copy(self, NULL, &k), NRL_OK);
    table.close(self);
    free(c);
}

static void bf16_products_agree_whichever_way_they_are_done(void **state)
{
    static uint16_t a[M * K], b[N * K];
    static float native[M * N], widened[M * N];
    void *self;
    uint64_t random = 1;
    (void)state;
    if (open_with(&self, "bf16", 1, NULL) != NRL_OK) {
        print_message("skipped: this CPU has no bf16 products: %s\n", nrl_error_text());
        skip();
    }
    table.close(self);
    for (int i = 0; i < (M + N) * K; i++) {
        float x = (float)test_uniform(&random);
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (i < M * K)
            a[i] = (uint16_t)(bits >> 16);
        else
            b[i - M * K] = (uint16_t)(bits >> 16);
    }
    bf16_product(1, NRL_DTYPE_F32, a, b, native);
    bf16_product(2, NRL_DTYPE_F32, a, b, widened);
    for (int i = 0; i < M * N; i++)
        assert_true(fabsf(native[i] - widened[i]) < 1e-3f); /* K terms, summed in another order */
    bf16_product(1, NRL_DTYPE_BF16, a, b, native);
    bf16_product(2, NRL_DTYPE_BF16, a, b, widened);
    for (int i = 0; i < M * N; i++)
        assert_true(fabsf(native[i] - widened[i]) <= 0.0079f * fabsf(native[i]) + 1e-3f);
}

/* Functions of all instruction sets on a sweep of the whole range, against libm. */
static void every_instruction_set_knows_exp(void **state)
{
    enum { COUNT = 20000 };
    static float x[COUNT], y[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++)
        x[i] = -103.9f + 192.5f * (float)i / COUNT;
    for (int isa = 1; isa <= 3; isa++) {
        void *self;
        if (open_with(&self, "isa", isa, NULL) != NRL_OK) continue;
        nrl_unary_args a = {.size = sizeof a, .op = NRL_UNARY_EXP, .x = f32(x, 1, COUNT), .y = f32(y, 1, COUNT)};
        assert_int_equal(table.ops->unary(self, NULL, &a), NRL_OK);
        for (int i = 0; i < COUNT; i++) {
            double want = exp(x[i]);
            assert_true(fabs(y[i] - want) <= 1.5e-7 * want + 1.5e-45);
        }
        table.close(self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_starts_no_thread),
        cmocka_unit_test(more_threads_than_fit_are_an_error),
        /* before any that opens a lesser isa: oneDNN keeps the first choice of a process */
        cmocka_unit_test(bf16_products_agree_whichever_way_they_are_done),
        cmocka_unit_test(ranks_of_a_node_open_the_same_device),
        cmocka_unit_test(an_instruction_set_opens_or_says_which_one_is_there),
        cmocka_unit_test(too_much_memory_says_how_much_is_free),
        cmocka_unit_test(an_allocation_beyond_memory_limit_names_it_and_what_is_freed_can_be_used_again),
        cmocka_unit_test(an_allocation_beyond_the_address_space_names_ulimit),
        cmocka_unit_test(arguments_of_a_newer_core_are_fine_while_their_new_members_are_zero),
        cmocka_unit_test(attention_of_an_older_core_is_without_what_was_added_since),
        cmocka_unit_test(an_index_outside_the_matrix_is_an_error),
        cmocka_unit_test(a_product_of_other_shapes_names_them),
        cmocka_unit_test(every_instruction_set_knows_exp),
    };
    if (!test_backend_table("cpu", &table)) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
