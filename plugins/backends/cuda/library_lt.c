/*
 * library_lt.c - matrix products by cuBLASLt. The library is 0.5 GB and takes a quarter of a second to
 * load, so it is not linked: a thread loads it while the run is opened, and it is opened at the first product. The
 * heuristic's first choice depends only on the product and the GPU.
 */
#include "gemm_library.h"
#include <cublasLt.h>
#include <dlfcn.h>
#include <nrl/backend.h>
#include <stdlib.h>
#include <string.h>

enum { LT_MOST_CHOICES = 16 };

#define LT_HAS_BLOCKS                                                                                                  \
    (CUBLAS_VERSION >= 120900) /* scales of blocks of 128; without them such products are unsupported */

/* The calls that are used, once: members of the table and symbols of the library. */
/* clang-format off */
#define LT_CALLS(X)                                                                                \
    X(Create) X(Destroy) X(Matmul) X(MatmulDescCreate) X(MatmulDescDestroy)                        \
    X(MatmulDescSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutDestroy)                         \
    X(MatmulPreferenceCreate) X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute)           \
    X(MatmulAlgoGetHeuristic) X(MatmulAlgoCheck) X(GetVersion)
/* clang-format on */

#define LT_MEMBER(name) __typeof__ (&cublasLt##name)(name);
typedef struct {
    LT_CALLS(LT_MEMBER)
    cublasLtHandle_t handle;
} lt;

typedef struct {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, out;
    cublasLtMatmulAlgo_t algorithm;
    bool accumulate, has_bias, is_fp8;
} lt_plan;

static nrl_status lt_check(cublasStatus_t code, const char *what)
{
    if (code == CUBLAS_STATUS_SUCCESS) return NRL_OK;
    nrl_status st = code == CUBLAS_STATUS_ALLOC_FAILED ? NRL_ERR_MEMORY : NRL_ERR_DEVICE;
    return nrl_fail(st, "cuBLASLt: %s failed with status %d", what, (int)code);
}

/* ---- opening ---- */

/* The version that the build has is the first one: a newer one may need a newer driver. */
static void *open_file(void)
{
#if CUBLAS_VER_MAJOR >= 13
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
#else
    static const char *const names[] = {"libcublasLt.so.12", "libcublasLt.so.13", "libcublasLt.so"};
#endif
    void *file = NULL;
    for (int i = 0; i < 3 && !file; i++)
        file = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return file;
}

static void lt_load(void)
{
    (void)open_file();
}

static nrl_status find_calls(lt *l, void *file)
{
#define LT_FIND(name)                                                                                                  \
    *(void **)&l->name = dlsym(file, "cublasLt" #name);                                                                \
    if (!l->name) return nrl_fail(NRL_ERR_PLUGIN, "libcublasLt has no cublasLt" #name);
    LT_CALLS(LT_FIND)
    return NRL_OK;
}

/* The library stays open until the process ends: closing it would not free its memory. */
static nrl_status lt_open(void **out)
{
    void *file = open_file();
    *out = NULL;
    if (!file)
        return nrl_fail(NRL_ERR_PLUGIN,
                        "cannot open libcublasLt.so.13 or .12: %s\n"
                        "hint: the CUDA toolkit includes it; add its directory to LD_LIBRARY_PATH",
                        dlerror());
    lt *l = calloc(1, sizeof *l);
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "no memory to open cuBLASLt");
    nrl_status st = find_calls(l, file);
    if (!st) st = lt_check(l->Create(&l->handle), "opening");
    if (st) {
        free(l);
        return st;
    }
    *out = l;
    return NRL_OK;
}

static void lt_close(void *library)
{
    lt *l = library;
    (void)l->Destroy(l->handle);
    free(l);
}

/* ---- plans ---- */

static cudaDataType_t type_of(uint32_t dtype)
{
    return dtype == NRL_DTYPE_BF16 ? CUDA_R_16BF : dtype == NRL_DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cudaDataType_t operand_type(uint32_t dtype, uint32_t fp8)
{
    return fp8 == NRL_FP8_E4M3 ? CUDA_R_8F_E4M3 : fp8 == NRL_FP8_E5M2 ? CUDA_R_8F_E5M2 : type_of(dtype);
}

#if LT_HAS_BLOCKS
static cublasLtMatmulMatrixScale_t scale_mode(uint32_t blocks)
{
    return blocks == NRL_FP8_TILES ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                   : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
}
#endif

static void lt_plan_free(void *library, void *plan)
{
    lt *l = library;
    lt_plan *p = plan;
    if (p->product) (void)l->MatmulDescDestroy(p->product);
    if (p->left) (void)l->MatrixLayoutDestroy(p->left);
    if (p->right) (void)l->MatrixLayoutDestroy(p->right);
    if (p->out) (void)l->MatrixLayoutDestroy(p->out);
    free(p);
}

/* Rows and columns as stored, before transposition. */
static nrl_status describe_matrix(const lt *l, cublasLtMatrixLayout_t *out, cudaDataType_t type, int64_t rows,
                                  int64_t cols, bool transposed, int64_t stride)
{
    uint64_t r = (uint64_t)(transposed ? cols : rows), c = (uint64_t)(transposed ? rows : cols);
    return lt_check(l->MatrixLayoutCreate(out, type, r, c, stride), "describing a matrix");
}

static nrl_status set(const lt *l, cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name, const void *value,
                      size_t size)
{
    return lt_check(l->MatmulDescSetAttribute(d, name, value, size), "describing a product");
}

static nrl_status describe(const lt *l, lt_plan *plan, const gemm_product *p)
{
    cublasComputeType_t sums = p->type == NRL_DTYPE_F32 && p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t left = p->transpose_left ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t right = p->transpose_right ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const void *aligned = (const void *)(uintptr_t)16; /* the heuristic derives the bias's alignment from its address */
    NRL_TRY(lt_check(l->MatmulDescCreate(&plan->product, sums, CUDA_R_32F), "describing a product"));
    NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left));
    NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right));
    if (p->has_bias) {
        cudaDataType_t type = type_of(p->out_type);
        NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
        NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof aligned));
    }
    if (p->left_fp8) {
        NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &aligned, sizeof aligned));
        NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &aligned, sizeof aligned));
    }
#if LT_HAS_BLOCKS
    if (p->left_blocks) {
        const cublasLtMatmulMatrixScale_t of_left = scale_mode(p->left_blocks), of_right = scale_mode(p->right_blocks);
        NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &of_left, sizeof of_left));
        NRL_TRY(set(l, plan->product, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &of_right, sizeof of_right));
    }
#endif
    NRL_TRY(describe_matrix(l, &plan->left, operand_type(p->type, p->left_fp8), p->rows, p->depth, p->transpose_left,
                            p->left_stride));
    NRL_TRY(describe_matrix(l, &plan->right, operand_type(p->type, p->right_fp8), p->depth, p->cols, p->transpose_right,
                            p->right_stride));
    return describe_matrix(l, &plan->out, type_of(p->out_type), p->rows, p->cols, false, p->out_stride);
}

/* How partial sums are joined if the depth is split. Only a separate step in the workspace, in f32, is
 * sure to add in f32 and in the same order each time: "in place" adds partial sums to the output as they
 * complete, in the output's type, which may overflow in f16. */
static uint32_t reductions_of(const gemm_product *p)
{
    bool any = p->relaxed && p->out_type == NRL_DTYPE_F32;
    return any ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

static nrl_status prefer(const lt *l, cublasLtMatmulPreference_t to, const gemm_product *p, size_t workspace)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t value;
    } rows[] = {{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_of(p)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->left_alignment},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->right_alignment},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->out_alignment},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->out_alignment}};
    uint64_t bytes = workspace;
    cublasStatus_t code =
        l->MatmulPreferenceSetAttribute(to, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && code == CUBLAS_STATUS_SUCCESS; i++)
        code = l->MatmulPreferenceSetAttribute(to, rows[i].name, &rows[i].value, sizeof rows[i].value);
    return lt_check(code, "setting preferences");
}

/* *n 0: the library does not support the product. */
static nrl_status ask(const lt *l, const lt_plan *plan, const gemm_product *p, size_t workspace,
                      cublasLtMatmulHeuristicResult_t *results, int most, int *n)
{
    cublasLtMatmulPreference_t preference;
    *n = 0;
    NRL_TRY(lt_check(l->MatmulPreferenceCreate(&preference), "setting preferences"));
    nrl_status st = prefer(l, preference, p, workspace);
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    if (!st)
        code = l->MatmulAlgoGetHeuristic(l->handle, plan->product, plan->left, plan->right, plan->out, plan->out,
                                         preference, most, results, n);
    (void)l->MatmulPreferenceDestroy(preference);
    if (st) return st;
    if (code == CUBLAS_STATUS_NOT_SUPPORTED) *n = 0;
    return code == CUBLAS_STATUS_NOT_SUPPORTED ? NRL_OK : lt_check(code, "choosing an algorithm");
}

/* *found false: the library does not support the product. */
static nrl_status choose(const lt *l, lt_plan *plan, const gemm_product *p, size_t workspace, bool *found)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    int n;
    *found = false;
    NRL_TRY(ask(l, plan, p, workspace, &result, 1, &n));
    if (!n || result.state == CUBLAS_STATUS_NOT_SUPPORTED) return NRL_OK;
    NRL_TRY(lt_check(result.state, "choosing an algorithm"));
    plan->algorithm = result.algo;
    *found = true;
    return NRL_OK;
}

/* *found false: the product cannot be computed by this algorithm in this workspace. */
static void adopt(const lt *l, lt_plan *plan, size_t workspace, const gemm_choice *choice, bool *found)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    _Static_assert(sizeof plan->algorithm == sizeof choice->bytes, "an algorithm is copied as bytes");
    memcpy(&plan->algorithm, choice->bytes, sizeof choice->bytes);
    cublasStatus_t code = l->MatmulAlgoCheck(l->handle, plan->product, plan->left, plan->right, plan->out, plan->out,
                                             &plan->algorithm, &result);
    *found =
        code == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace;
}

/* The library at run time may be older than the headers. */
static bool knows_blocks(const lt *l, const gemm_product *p)
{
    enum { FIRST = 120900 };
    return !p->left_blocks || (LT_HAS_BLOCKS && l->GetVersion() >= FIRST);
}

static size_t lt_version(void *library)
{
    return ((const lt *)library)->GetVersion();
}

static nrl_status lt_choices(void *library, const gemm_product *p, size_t workspace, gemm_choice *fill, int most,
                             int *n)
{
    const lt *l = library;
    cublasLtMatmulHeuristicResult_t results[LT_MOST_CHOICES] = {0};
    int n_results = 0;
    *n = 0;
    if (!knows_blocks(l, p)) return NRL_OK;
    lt_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return nrl_fail(NRL_ERR_MEMORY, "no memory for the plan of a product");
    nrl_status st = describe(l, plan, p);
    if (!st) st = ask(l, plan, p, workspace, results, most < LT_MOST_CHOICES ? most : LT_MOST_CHOICES, &n_results);
    for (int i = 0; i < n_results && !st; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS) memcpy(fill[(*n)++].bytes, &results[i].algo, sizeof fill->bytes);
    lt_plan_free(library, plan);
    return st;
}

static nrl_status lt_plan_make(void *library, const gemm_product *p, size_t workspace, const gemm_choice *choice,
                               void **out)
{
    const lt *l = library;
    bool found = false;
    *out = NULL;
    if (!knows_blocks(l, p)) return NRL_OK;
    lt_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return nrl_fail(NRL_ERR_MEMORY, "no memory for the plan of a product");
    plan->accumulate = p->accumulate;
    plan->has_bias = p->has_bias;
    plan->is_fp8 = p->left_fp8;
    nrl_status st = describe(l, plan, p);
    if (!st && choice)
        adopt(l, plan, workspace, choice, &found);
    else if (!st)
        st = choose(l, plan, p, workspace, &found);
    if (st || !found) {
        lt_plan_free(library, plan);
        return st;
    }
    *out = plan;
    return NRL_OK;
}

static nrl_status lt_run(void *library, void *plan, float alpha, const gemm_operands *at, void *workspace,
                         size_t workspace_bytes, void *stream)
{
    const lt *l = library;
    lt_plan *p = plan;
    float beta = p->accumulate ? 1 : 0;
    if (p->has_bias) NRL_TRY(set(l, p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at->bias, sizeof at->bias));
    if (p->is_fp8) {
        NRL_TRY(set(l, p->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &at->left_scale, sizeof at->left_scale));
        NRL_TRY(set(l, p->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &at->right_scale, sizeof at->right_scale));
    }
    return lt_check(l->Matmul(l->handle, p->product, &alpha, at->left, p->left, at->right, p->right, &beta, at->out,
                              p->out, at->out, p->out, &p->algorithm, workspace, workspace_bytes, (cudaStream_t)stream),
                    "a product");
}

static const gemm_library cublas_lt = {
    .load = lt_load,
    .open = lt_open,
    .close = lt_close,
    .version = lt_version,
    .choices = lt_choices,
    .plan = lt_plan_make,
    .plan_free = lt_plan_free,
    .run = lt_run,
};

const gemm_library *gemm_library_table(void)
{
    return &cublas_lt;
}
