/*
 * bench_gemm.c - cuBLASLt's first choice of an algorithm compared with the best of its eight:
 * bench_gemm 1b|8b|tiny prints one JSON object, with a row for each product of a layer (forward,
 * dx, dw) and of the head. 20 calls are timed between two events, in three rounds; the best round
 * counts. The workspace is the backend's 32 MiB.
 */
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 8, CALLS = 20, ROUNDS = 3, WORKSPACE = 32 << 20 };

typedef struct {
    const char *name;
    int64_t tokens, width, inner, kv_width, vocabulary;
} shapes;

static const shapes all_shapes[] = {
    {"tiny", 256, 64, 160, 32, 1000},
    {"1b", 4096, 2048, 8192, 512, 128256},
    {"8b", 4096, 4096, 14336, 1024, 128256},
};

static cublasLtHandle_t handle;
static void *workspace;
static int comma;

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        const int code = (int)(call);                                                                                  \
        if (code) {                                                                                                    \
            fprintf(stderr, "bench_gemm: %s: error %d\n", #call, code);                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void *buffer(size_t bytes)
{
    void *memory;
    MUST(cudaMalloc(&memory, bytes));
    MUST(cudaMemset(memory, 0x3c, bytes)); /* 0x3c3c: 0.0115 in bf16 */
    return memory;
}

/* out[m,n] (columns of m elements) = op(a) op(b); accumulate adds to out, which is f32 then */
static void product(const char *name, int64_t m, int64_t n, int64_t k, int ta, int tb, int accumulate)
{
    const cublasOperation_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t out_type = accumulate ? CUDA_R_32F : CUDA_R_16BF;
    const uint64_t limit = WORKSPACE;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const float alpha = 1, beta = (float)accumulate;
    cublasLtMatmulDesc_t d;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[CHOICES];
    cudaEvent_t from, to;
    int count = 0;
    MUST(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    MUST(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
    MUST(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
    MUST(cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, (uint64_t)(ta ? k : m), (uint64_t)(ta ? m : k), ta ? k : m));
    MUST(cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, (uint64_t)(tb ? n : k), (uint64_t)(tb ? k : n), tb ? n : k));
    MUST(cublasLtMatrixLayoutCreate(&out, out_type, (uint64_t)m, (uint64_t)n, m));
    MUST(cublasLtMatmulPreferenceCreate(&preference));
    MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                              sizeof limit));
    MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
                                              sizeof scheme));
    MUST(cublasLtMatmulAlgoGetHeuristic(handle, d, a, b, out, out, preference, CHOICES, found, &count));
    void *pa = buffer((size_t)(m * k) * 2), *pb = buffer((size_t)(k * n) * 2),
         *po = buffer((size_t)(m * n) * (accumulate ? 4 : 2));
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    double first = 0, best = 1e30;
    int best_at = -1;
    for (int i = 0; i < count; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
        double fastest = 1e30;
        for (int round = 0; round < ROUNDS; round++) {
            float ms;
            MUST(cudaEventRecord(from, NULL));
            for (int call = 0; call < CALLS; call++)
                MUST(cublasLtMatmul(handle, d, &alpha, pa, a, pb, b, &beta, po, out, po, out, &found[i].algo, workspace,
                                    WORKSPACE, NULL));
            MUST(cudaEventRecord(to, NULL));
            MUST(cudaEventSynchronize(to));
            MUST(cudaEventElapsedTime(&ms, from, to));
            if (ms / CALLS < fastest) fastest = (double)ms / CALLS;
        }
        if (i == 0) first = fastest;
        if (fastest < best) best = fastest, best_at = i;
    }
    const double gflop = 2e-9 * (double)m * (double)n * (double)k;
    printf("%s\n  {\"op\": \"%s\", \"shape\": \"%lldx%lldx%lld\", \"choices\": %d, \"first_us\": "
           "%.1f, \"best_us\": %.1f, "
           "\"best_is\": %d, \"first_tflops\": %.1f, \"best_tflops\": %.1f}",
           comma++ ? "," : "", name, (long long)n, (long long)m, (long long)k, count, first * 1e3, best * 1e3, best_at,
           first > 0 ? gflop / first : 0, best_at >= 0 ? gflop / best : 0);
    MUST(cudaFree(pa));
    MUST(cudaFree(pb));
    MUST(cudaFree(po));
    MUST(cudaEventDestroy(from));
    MUST(cudaEventDestroy(to));
    MUST(cublasLtMatmulPreferenceDestroy(preference));
    MUST(cublasLtMatrixLayoutDestroy(a));
    MUST(cublasLtMatrixLayoutDestroy(b));
    MUST(cublasLtMatrixLayoutDestroy(out));
    MUST(cublasLtMatmulDescDestroy(d));
}

/* y[T,out] = x[T,in] w[out,in]^T; dx = dy w; dw += dy^T x. Rows of the backend are columns of
 * cuBLASLt. */
static void linear(int64_t tokens, int64_t in, int64_t out)
{
    product("forward", out, tokens, in, 1, 0, 0);
    product("dx", in, tokens, out, 0, 0, 0);
    product("dw", in, out, tokens, 0, 1, 1);
}

int main(int argc, char **argv)
{
    const shapes *s = NULL;
    for (size_t i = 0; argc == 2 && i < sizeof all_shapes / sizeof *all_shapes; i++)
        if (!strcmp(argv[1], all_shapes[i].name)) s = &all_shapes[i];
    if (!s) {
        fprintf(stderr, "usage: bench_gemm tiny|1b|8b\n");
        return 2;
    }
    MUST(cublasLtCreate(&handle));
    workspace = buffer(WORKSPACE);
    printf("{\"shapes\": \"%s\", \"rows\": [", s->name);
    linear(s->tokens, s->width, s->width);
    linear(s->tokens, s->width, s->kv_width);
    linear(s->tokens, s->width, s->inner);
    linear(s->tokens, s->inner, s->width);
    linear(s->tokens < 1024 ? s->tokens : 1024, s->width, s->vocabulary);
    printf("]}\n");
    return 0;
}
