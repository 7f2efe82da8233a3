/*
 * test_library_lt.c - the calls of library_lt.c to cuBLASLt, with a fake library: sizes of
 * attributes as in cublasLt.h, shapes and leading dimensions, dtypes of the table in the
 * documentation of cublasLtMatmul, freed objects, and error texts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if __has_include(<cublasLt.h>)
#define dlopen stand_in_dlopen
#define dlsym stand_in_dlsym
#define gemm_library_table library_lt_table
#include "library_lt.c"

/* ---- the stand-in ---- */

typedef struct {
    int compute, scale, transpose_a, transpose_b, epilogue, bias_type;
    const void *bias, *scale_a, *scale_b;
    cublasLtMatmulMatrixScale_t mode_a, mode_b;
} product;

static struct {
    int live, no_way, missing_symbol, n_opened, no_file;
    cublasStatus_t heuristic_code, result_state;
    uint32_t alignments[4], reductions;
    uint64_t workspace;
    cudaDataType_t types[4]; /* a, b, c, d as the heuristic saw them */
    bool multiplied;
    float alpha, beta;
    product seen;
    cublasLtMatmulAlgo_t algorithm; /* of the last product */
    cublasStatus_t check_code;
    size_t checked_workspace;
} lt_fake;

typedef struct {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t stride;
} matrix;

static cublasStatus_t fake_Create(cublasLtHandle_t *h)
{
    lt_fake.live++;
    *h = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop(void *p)
{
    lt_fake.live--;
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_Destroy(cublasLtHandle_t h)
{
    return drop(h);
}

static cublasStatus_t fake_MatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType_t scale)
{
    product *p = calloc(1, sizeof *p);
    lt_fake.live++;
    *p = (product){.compute = c, .scale = scale, .bias_type = -1};
    *d = (cublasLtMatmulDesc_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_MatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return drop(d);
}

static cublasStatus_t fake_MatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                                  const void *value, size_t size)
{
    product *p = (product *)d;
    void *to = name == CUBLASLT_MATMUL_DESC_TRANSA            ? (void *)&p->transpose_a
               : name == CUBLASLT_MATMUL_DESC_TRANSB          ? (void *)&p->transpose_b
               : name == CUBLASLT_MATMUL_DESC_EPILOGUE        ? (void *)&p->epilogue
               : name == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE  ? (void *)&p->bias_type
               : name == CUBLASLT_MATMUL_DESC_BIAS_POINTER    ? (void *)&p->bias
               : name == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ? (void *)&p->scale_a
               : name == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER ? (void *)&p->scale_b
               : name == CUBLASLT_MATMUL_DESC_A_SCALE_MODE    ? (void *)&p->mode_a
               : name == CUBLASLT_MATMUL_DESC_B_SCALE_MODE    ? (void *)&p->mode_b
                                                              : NULL;
    assert_non_null(to);
    const bool is_pointer = name == CUBLASLT_MATMUL_DESC_BIAS_POINTER || name == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
                            name == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER;
    assert_int_equal(size, is_pointer ? 8 : 4);
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* A leading dimension is at least the number of rows, columns lying one after another. */
static cublasStatus_t fake_MatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t type, uint64_t rows,
                                              uint64_t cols, int64_t stride)
{
    matrix *m = malloc(sizeof *m);
    assert_true(rows > 0 && cols > 0 && stride >= (int64_t)rows);
    lt_fake.live++;
    *m = (matrix){type, rows, cols, stride};
    *l = (cublasLtMatrixLayout_t)m;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_MatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return drop(l);
}

static cublasStatus_t fake_MatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    lt_fake.live++;
    *p = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_MatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return drop(p);
}

static cublasStatus_t fake_MatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                        cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                        size_t size)
{
    (void)p;
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        assert_int_equal(size, 8);
        memcpy(&lt_fake.workspace, value, size);
        return CUBLAS_STATUS_SUCCESS;
    }
    if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        assert_int_equal(size, 4);
        memcpy(&lt_fake.reductions, value, size);
        return CUBLAS_STATUS_SUCCESS;
    }
    assert_in_range(name, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
    assert_int_equal(size, 4);
    memcpy(&lt_fake.alignments[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_fp8(cudaDataType_t type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

/* What the documentation demands of fp8: a transposed and b not, not both e5m2, c and d of bf16 or f32, a bias of bf16;
 * scales of blocks for both or for none, and not of tiles for both. */
static void check_fp8(const product *p, const matrix *a, const matrix *b, const matrix *d)
{
    assert_true(is_fp8(b->type) && (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3));
    assert_true(p->transpose_a == CUBLAS_OP_T && p->transpose_b == CUBLAS_OP_N);
    assert_true(d->type == CUDA_R_16BF || d->type == CUDA_R_32F);
    assert_true(p->compute == CUBLAS_COMPUTE_32F && p->scale_a && p->scale_b);
    assert_true(!p->mode_a == !p->mode_b);
    assert_true(p->mode_a != CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F || p->mode_b != p->mode_a);
    if (p->epilogue == CUBLASLT_EPILOGUE_BIAS) assert_int_equal(p->bias_type, CUDA_R_16BF);
}

/* The rows of the documentation's table that have f32 sums and scale: a and b of one type; c, d and bias
 * of it or f32; TF32 for f32 alone. */
static void check_types(const product *p, cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d)
{
    assert_true(!p->scale_a && !p->scale_b);
    assert_int_equal(p->scale, CUDA_R_32F);
    assert_int_equal(a, b);
    assert_int_equal(c, d);
    assert_true(d == a || d == CUDA_R_32F);
    assert_true(p->compute == CUBLAS_COMPUTE_32F || (p->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a == CUDA_R_32F));
    if (p->epilogue == CUBLASLT_EPILOGUE_BIAS) assert_int_equal(p->bias_type, d);
}

static cublasStatus_t fake_MatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                                  cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                                  cublasLtMatrixLayout_t to, cublasLtMatmulPreference_t p, int most,
                                                  cublasLtMatmulHeuristicResult_t results[], int *n)
{
    const product *is = (const product *)d;
    const matrix *left = (const matrix *)a, *right = (const matrix *)b, *out = (const matrix *)to;
    (void)h, (void)p;
    if (is_fp8(left->type))
        check_fp8(is, left, right, out);
    else
        check_types(is, left->type, right->type, ((const matrix *)c)->type, out->type);
    uint64_t depth = is->transpose_a == CUBLAS_OP_T ? left->rows : left->cols;
    assert_int_equal(is->transpose_a == CUBLAS_OP_T ? left->cols : left->rows, out->rows);
    assert_int_equal(is->transpose_b == CUBLAS_OP_T ? right->rows : right->cols, out->cols);
    assert_int_equal(is->transpose_b == CUBLAS_OP_T ? right->cols : right->rows, depth);
    if (is->epilogue == CUBLASLT_EPILOGUE_BIAS) /* "depend on its value to determine expected alignment" */
        assert_true(is->bias && (uintptr_t)is->bias % 16 == 0);
    *n = lt_fake.no_way ? 0 : most < 3 ? most : 3;
    memset(results, 0, (size_t)most * sizeof *results);
    for (int i = 0; i < *n; i++) {
        results[i].state = i == 1 ? CUBLAS_STATUS_NOT_SUPPORTED : lt_fake.result_state;
        memset(&results[i].algo, 0x10 + i, sizeof results[i].algo);
    }
    lt_fake.seen = *is;
    return lt_fake.heuristic_code;
}

static cublasStatus_t fake_MatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                           cublasLtMatrixLayout_t to, const cublasLtMatmulAlgo_t *algo,
                                           cublasLtMatmulHeuristicResult_t *result)
{
    (void)h, (void)a, (void)b, (void)c, (void)to, (void)algo;
    assert_non_null(d);
    memset(result, 0, sizeof *result);
    result->workspaceSize = lt_fake.checked_workspace;
    return lt_fake.check_code;
}

static size_t fake_GetVersion(void)
{
    return 130100;
}

static cublasStatus_t fake_Matmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                                  cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                                  const void *c, cublasLtMatrixLayout_t lc, void *out, cublasLtMatrixLayout_t ld,
                                  const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                                  cudaStream_t stream)
{
    (void)h, (void)la, (void)lb, (void)stream;
    memcpy(&lt_fake.algorithm, algo, sizeof lt_fake.algorithm);
    assert_true(a && b && c == out && lc == ld); /* in place: one layout */
    assert_true((uintptr_t)workspace % 256 == 0 && workspace_bytes <= lt_fake.workspace);
    lt_fake.multiplied = true;
    lt_fake.alpha = *(const float *)alpha;
    lt_fake.beta = *(const float *)beta;
    lt_fake.seen = *(const product *)d;
    return CUBLAS_STATUS_SUCCESS;
}

void *stand_in_dlopen(const char *name, int flags)
{
    (void)flags;
    if (!strstr(name, ".so.13") || lt_fake.no_file) return NULL;
    lt_fake.n_opened++;
    return &lt_fake;
}

void *stand_in_dlsym(void *file, const char *symbol)
{
    assert_ptr_equal(file, &lt_fake);
#define LT_STAND_IN(name)                                                                                              \
    if (!strcmp(symbol, "cublasLt" #name)) {                                                                           \
        __typeof__(&cublasLt##name) call = fake_##name;                                                                \
        void *found;                                                                                                   \
        memcpy(&found, &call, sizeof found);                                                                           \
        return lt_fake.missing_symbol ? NULL : found;                                                                  \
    }
    LT_CALLS(LT_STAND_IN)
    return NULL;
}

/* ---- the tests ---- */

static void *library;

static int open_library(void **state)
{
    (void)state;
    memset(&lt_fake, 0, sizeof lt_fake);
    return library_lt_table()->open(&library) == NRL_OK ? 0 : -1;
}

static int close_library(void **state)
{
    (void)state;
    library_lt_table()->close(library);
    return lt_fake.live;
}

static const gemm_product usual = {.rows = 48,
                                   .cols = 33,
                                   .depth = 20,
                                   .left_stride = 64,
                                   .right_stride = 24,
                                   .out_stride = 48,
                                   .type = NRL_DTYPE_BF16,
                                   .out_type = NRL_DTYPE_BF16,
                                   .left_alignment = 16,
                                   .right_alignment = 2,
                                   .out_alignment = 8};

static void run(const gemm_product *p)
{
    const gemm_library *table = library_lt_table();
    _Alignas(256) char workspace[256];
    char operand[4] = {0};
    void *plan = NULL;
    assert_int_equal(table->plan(library, p, sizeof workspace, NULL, &plan), NRL_OK);
    assert_non_null(plan);
    const float scales[2] = {1, 2};
    gemm_operands at = {.left = operand, .right = operand, .bias = p->has_bias ? workspace : NULL, .out = operand};
    if (p->left_fp8) at.left_scale = &scales[0];
    if (p->left_fp8) at.right_scale = &scales[1];
    lt_fake.multiplied = false;
    assert_int_equal(table->run(library, plan, 0.5f, &at, workspace, sizeof workspace, NULL), NRL_OK);
    assert_true(lt_fake.multiplied && lt_fake.alpha == 0.5f && lt_fake.beta == (p->accumulate ? 1 : 0));
    if (p->has_bias) assert_ptr_equal(lt_fake.seen.bias, workspace);
    assert_ptr_equal(lt_fake.seen.scale_a, at.left_scale);
    assert_ptr_equal(lt_fake.seen.scale_b, at.right_scale);
    table->plan_free(library, plan);
}

static void every_product_is_one_that_the_documentation_has(void **state)
{
    static const uint32_t dtypes[][2] = {{NRL_DTYPE_BF16, NRL_DTYPE_BF16},
                                         {NRL_DTYPE_BF16, NRL_DTYPE_F32},
                                         {NRL_DTYPE_F16, NRL_DTYPE_F16},
                                         {NRL_DTYPE_F16, NRL_DTYPE_F32},
                                         {NRL_DTYPE_F32, NRL_DTYPE_F32}};
    (void)state;
    for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
        for (uint32_t way = 0; way < 32; way++) {
            gemm_product p = usual;
            p.type = dtypes[t][0];
            p.out_type = dtypes[t][1];
            p.transpose_left = way & 1;
            p.transpose_right = way >> 1 & 1;
            p.has_bias = way >> 2 & 1;
            p.accumulate = way >> 3 & 1;
            p.tf32 = way >> 4 & 1;
            p.right_stride = p.transpose_right ? p.cols : 24;
            run(&p);
        }
    const uint32_t alignments[] = {16, 2, 8, 8};
    assert_memory_equal(lt_fake.alignments, alignments, sizeof alignments);
}

static void codes_of_8_bits_are_multiplied_with_their_scales(void **state)
{
    static const uint32_t formats[][2] = {
        {NRL_FP8_E4M3, NRL_FP8_E4M3}, {NRL_FP8_E4M3, NRL_FP8_E5M2}, {NRL_FP8_E5M2, NRL_FP8_E4M3}};
    (void)state;
    for (int f = 0; f < 3; f++)
        for (uint32_t way = 0; way < 4; way++) {
            gemm_product p = usual;
            p.type = NRL_DTYPE_U8;
            p.out_type = way & 1 ? NRL_DTYPE_F32 : NRL_DTYPE_BF16;
            p.accumulate = way >> 1;
            p.has_bias = way == 0;
            p.transpose_left = true;
            p.depth = 32;
            p.left_stride = p.right_stride = 32;
            p.left_fp8 = formats[f][0];
            p.right_fp8 = formats[f][1];
            run(&p);
            assert_int_equal(lt_fake.seen.mode_a, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
            p.left_blocks = way & 1 ? NRL_FP8_TILES : NRL_FP8_ROWS;
            p.right_blocks = NRL_FP8_ROWS;
            run(&p);
            assert_int_equal(lt_fake.seen.mode_a, way & 1 ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                                          : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
            assert_int_equal(lt_fake.seen.mode_b, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
        }
}

static void tf32_is_for_f32_where_it_was_asked_for_alone(void **state)
{
    static const uint32_t dtypes[] = {NRL_DTYPE_F32, NRL_DTYPE_BF16, NRL_DTYPE_F16};
    (void)state;
    for (int t = 0; t < 3; t++)
        for (uint32_t asked = 0; asked < 2; asked++) {
            gemm_product p = usual;
            p.type = p.out_type = dtypes[t];
            p.tf32 = asked;
            run(&p);
            assert_int_equal(lt_fake.seen.compute, asked && t == 0 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
        }
}

static void parts_of_a_sum_are_joined_in_f32_and_in_order_unless_relaxed(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 4; way++) {
        gemm_product p = usual;
        p.out_type = way & 1 ? NRL_DTYPE_F32 : NRL_DTYPE_BF16;
        p.relaxed = way >> 1;
        run(&p);
        assert_int_equal(lt_fake.reductions,
                         way == 3 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    }
}

static void what_has_no_way_is_no_error(void **state)
{
    void *plan = &lt_fake;
    (void)state;
    lt_fake.no_way = 1;
    assert_int_equal(library_lt_table()->plan(library, &usual, 256, NULL, &plan), NRL_OK);
    assert_null(plan);
    lt_fake.no_way = 0;
    lt_fake.heuristic_code = CUBLAS_STATUS_NOT_SUPPORTED;
    assert_int_equal(library_lt_table()->plan(library, &usual, 256, NULL, &plan), NRL_OK);
    assert_null(plan);
    lt_fake.heuristic_code = CUBLAS_STATUS_INVALID_VALUE;
    assert_int_equal(library_lt_table()->plan(library, &usual, 256, NULL, &plan), NRL_ERR_DEVICE);
    assert_null(plan);
    lt_fake.heuristic_code = CUBLAS_STATUS_SUCCESS;
    lt_fake.result_state = CUBLAS_STATUS_NOT_SUPPORTED;
    assert_int_equal(library_lt_table()->plan(library, &usual, 256, NULL, &plan), NRL_OK);
    assert_null(plan);
    lt_fake.result_state = CUBLAS_STATUS_SUCCESS;
}

/* Choices are the usable ones of the heuristic, byte for byte, and a plan by one of them is checked first. */
static void a_choice_is_an_algorithm_that_fits(void **state)
{
    const gemm_library *table = library_lt_table();
    _Alignas(256) char workspace[256];
    char operand[4] = {0};
    const gemm_operands at = {.left = operand, .right = operand, .out = operand};
    gemm_choice choices[8];
    void *plan = NULL;
    int n;
    (void)state;
    assert_int_equal(table->version(library), 130100);
    assert_int_equal(table->choices(library, &usual, 256, choices, 8, &n), NRL_OK);
    assert_int_equal(n, 2);
    assert_int_equal(choices[0].bytes[63], 0x10);
    assert_int_equal(choices[1].bytes[0], 0x12);
    assert_int_equal(table->plan(library, &usual, 256, &choices[1], &plan), NRL_OK);
    assert_int_equal(table->run(library, plan, 1, &at, workspace, sizeof workspace, NULL), NRL_OK);
    assert_memory_equal(&lt_fake.algorithm, choices[1].bytes, sizeof choices[1].bytes);
    table->plan_free(library, plan);
    lt_fake.checked_workspace = 257;
    assert_int_equal(table->plan(library, &usual, 256, &choices[1], &plan), NRL_OK);
    assert_null(plan);
    lt_fake.checked_workspace = 0;
    lt_fake.check_code = CUBLAS_STATUS_INVALID_VALUE;
    assert_int_equal(table->plan(library, &usual, 256, &choices[1], &plan), NRL_OK);
    assert_null(plan);
    lt_fake.check_code = CUBLAS_STATUS_SUCCESS;
    lt_fake.heuristic_code = CUBLAS_STATUS_NOT_SUPPORTED;
    assert_int_equal(table->choices(library, &usual, 256, choices, 8, &n), NRL_OK);
    assert_int_equal(n, 0);
    lt_fake.heuristic_code = CUBLAS_STATUS_SUCCESS;
}

static void a_library_without_a_call_is_said(void **state)
{
    void *other = &lt_fake;
    (void)state;
    lt_fake.missing_symbol = 1;
    assert_int_equal(library_lt_table()->open(&other), NRL_ERR_PLUGIN);
    assert_non_null(strstr(nrl_error_text(), "cublasLtCreate"));
    assert_null(other);
    lt_fake.missing_symbol = 0;
}

static void loading_opens_the_file_and_calls_nothing(void **state)
{
    int opened = lt_fake.n_opened, live = lt_fake.live;
    void *other;
    (void)state;
    library_lt_table()->load();
    assert_int_equal(lt_fake.n_opened, opened + 1);
    assert_int_equal(lt_fake.live, live);
    lt_fake.no_file = 1;
    library_lt_table()->load(); /* silent: `open` reports it */
    assert_int_equal(library_lt_table()->open(&other), NRL_ERR_PLUGIN);
    assert_non_null(strstr(nrl_error_text(), "cannot open libcublasLt.so.13"));
    lt_fake.no_file = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_product_is_one_that_the_documentation_has),
        cmocka_unit_test(codes_of_8_bits_are_multiplied_with_their_scales),
        cmocka_unit_test(tf32_is_for_f32_where_it_was_asked_for_alone),
        cmocka_unit_test(parts_of_a_sum_are_joined_in_f32_and_in_order_unless_relaxed),
        cmocka_unit_test(what_has_no_way_is_no_error),
        cmocka_unit_test(a_choice_is_an_algorithm_that_fits),
        cmocka_unit_test(a_library_without_a_call_is_said),
        cmocka_unit_test(loading_opens_the_file_and_calls_nothing),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
#else
int main(void)
{
    print_message("skipped: cublasLt.h is not on this machine\n");
    return 77;
}
#endif
