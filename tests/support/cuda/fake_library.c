/*
 * fake_library.c - matrix products as three loops, for the emulated cuda backend. It refuses dtypes
 * and strides that cuBLASLt is believed to refuse; this was never verified.
 */
#include "fake_library.h"
#include "fake_driver.h"
#include "fake_queue.h"
#include <math.h>
#include <nrl/backend.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Atomic int fake_library_loads;
fake_products fake_library_products = {.fastest = -1};

typedef struct {
    gemm_product product;
    int choice;
} fake_library_plan;

/* Late, so that an open that does not wait comes before it. */
static void fake_load(void)
{
    const struct timespec late = {.tv_nsec = 5000000};
    nanosleep(&late, NULL);
    fake_library_loads++;
}

static nrl_status fake_open(void **library)
{
    *library = NULL;
    if (!fake_library_loads) return nrl_fail(NRL_ERR_BUG, "the library is opened before it is loaded");
    *library = malloc(1);
    return NRL_OK;
}

static void fake_close(void *library)
{
    free(library);
}

static bool strides_hold(const gemm_product *p)
{
    return p->left_stride >= (p->transpose_left ? p->depth : p->rows) &&
           p->right_stride >= (p->transpose_right ? p->cols : p->depth) && p->out_stride >= p->rows;
}

static size_t fake_version(void *library)
{
    (void)library;
    return fake_library_products.version;
}

static nrl_status fake_choices(void *library, const gemm_product *p, size_t workspace_bytes, gemm_choice *fill,
                               int most, int *n)
{
    (void)library, (void)workspace_bytes;
    fake_library_products.n_asked++;
    fake_library_products.n_questions++;
    fake_library_products.asked = *p;
    if (!strides_hold(p)) return nrl_fail(NRL_ERR_BUG, "a product that gemm.c must not ask about");
    if (fake_library_products.n_choices && fake_library_products.n_choices < most)
        most = fake_library_products.n_choices;
    for (*n = 0; *n < most; ++*n)
        fill[*n] = (gemm_choice){{(unsigned char)*n}};
    return NRL_OK;
}

/* No plan for 16-bit operands with odd strides, so that the fallback is tested. */
static nrl_status fake_plan(void *library, const gemm_product *p, size_t workspace_bytes, const gemm_choice *choice,
                            void **plan)
{
    (void)library;
    *plan = NULL;
    fake_library_products.n_questions += !choice;
    bool types = p->out_type == p->type || p->out_type == NRL_DTYPE_F32;
    if (p->left_fp8 || p->right_fp8) { /* what the documentation of cublasLtMatmul demands */
        types = p->left_fp8 && p->right_fp8 && p->left_fp8 + p->right_fp8 < 4 && p->out_type != NRL_DTYPE_F16 &&
                p->transpose_left && !p->transpose_right && p->depth % 16 == 0 && p->left_stride % 16 == 0 &&
                p->right_stride % 16 == 0 && p->left_alignment == 16 && p->right_alignment == 16 &&
                (!p->has_bias || p->out_type == NRL_DTYPE_BF16) && !p->left_blocks == !p->right_blocks &&
                p->left_blocks + p->right_blocks < 2 * NRL_FP8_TILES;
        if (types && (p->rows % 16 || p->out_stride % 16 || p->out_alignment != 16)) return NRL_OK;
    }
    if (!types || !strides_hold(p) || p->rows <= 0 || p->cols <= 0 || p->depth <= 0 || !workspace_bytes)
        return nrl_fail(NRL_ERR_BUG, "a product that gemm.c must not ask for");
    if (p->type != NRL_DTYPE_F32 && p->left_stride % 2 && p->right_stride % 2) return NRL_OK;
    if (choice && choice->bytes[0] && choice->bytes[0] == fake_library_products.refused) return NRL_OK;
    fake_library_plan *made = malloc(sizeof *made);
    if (!made) return nrl_fail(NRL_ERR_MEMORY, "no memory");
    *made = (fake_library_plan){*p, choice ? choice->bytes[0] : 0};
    *plan = made;
    fake_library_products.n_plans++;
    return NRL_OK;
}

static void fake_plan_free(void *library, void *plan)
{
    (void)library;
    free(plan);
}

/* f16: sign, 5 bits of exponent, 10 of fraction; the smallest step is 2^-24. */
static float of_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                : ldexpf((float)fraction, -24);
    return h & 0x8000 ? -size : size;
}

static uint16_t to_f16(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return 0x7e00;
    if (fabsf(x) >= 65520) return sign | 0x7c00;
    int exponent = x == 0 || fabsf(x) < 0x1p-14f ? -14 : ilogbf(x);
    int steps = (int)rintf(ldexpf(fabsf(x), 10 - exponent)); /* 2048 carries into the exponent */
    return (uint16_t)(sign | (((exponent + 14) << 10) + steps));
}

/* Sign, 4 or 5 bits of exponent, 3 or 2 of fraction. */
static float of_fp8(uint32_t format, uint8_t code)
{
    const int bits = format == NRL_FP8_E4M3 ? 3 : 2, bias = format == NRL_FP8_E4M3 ? 7 : 15, most = code & 0x7f;
    const int exponent = most >> bits, fraction = most & ((1 << bits) - 1);
    const bool special = format == NRL_FP8_E4M3 ? most == 0x7f : most > 0x7b;
    float size = ldexpf((float)(exponent ? fraction + (1 << bits) : fraction), (exponent ? exponent : 1) - bias - bits);
    if (special) size = NAN;
    return code & 0x80 ? -size : size;
}

static float get(const void *data, uint32_t dtype, int64_t i)
{
    if (dtype == NRL_DTYPE_F32) return ((const float *)data)[i];
    if (dtype == NRL_DTYPE_F16) return of_f16(((const uint16_t *)data)[i]);
    uint32_t u = (uint32_t)((const uint16_t *)data)[i] << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float operand(const void *data, uint32_t dtype, uint32_t fp8, int64_t i)
{
    return fp8 ? of_fp8(fp8, ((const uint8_t *)data)[i]) : get(data, dtype, i);
}

/* Of element (n, k) of an operand [rows, depth], in the order of cuBLASLt. */
static float block_scale(const float *scales, uint32_t blocks, int64_t n, int64_t k, int64_t rows, int64_t depth)
{
    const int64_t across = (depth + 127) / 128;
    if (!blocks) return 1;
    return blocks == NRL_FP8_TILES ? scales[n / 128 * ((across + 3) / 4 * 4) + k / 128] : scales[k / 128 * rows + n];
}

static void put(void *data, uint32_t dtype, int64_t i, float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (dtype == NRL_DTYPE_F32)
        ((float *)data)[i] = x;
    else if (dtype == NRL_DTYPE_F16)
        ((uint16_t *)data)[i] = to_f16(x);
    else
        ((uint16_t *)data)[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void tell_written(const gemm_product *p, const void *out)
{
    size_t each = p->out_type == NRL_DTYPE_F32 ? 4 : 2;
    for (int64_t c = 0; fake_watch && c < p->cols; c++)
        fake_watch->wrote((const char *)out + (size_t)(c * p->out_stride) * each, (size_t)p->rows * each);
}

static nrl_status fake_run(void *library, void *plan, float alpha, const gemm_operands *at, void *workspace,
                           size_t workspace_bytes, void *stream)
{
    const gemm_product *p = &((const fake_library_plan *)plan)->product;
    (void)library;
    fake_library_products.last = ((const fake_library_plan *)plan)->choice;
    if (fake_library_products.fastest >= 0)
        fake.seconds += fake_library_products.last == fake_library_products.fastest ? 1e-5 : 2e-3;
    fake_queue_reach(stream);
    if (fake.no_work) return NRL_OK;
    memset(workspace, 0xff, workspace_bytes < 4096 ? workspace_bytes : 4096);
    for (int64_t c = 0; c < p->cols; c++)
        for (int64_t r = 0; r < p->rows; r++) {
            float sum = 0, old = p->accumulate ? get(at->out, p->out_type, c * p->out_stride + r) : 0;
            for (int64_t k = 0; k < p->depth; k++)
                sum += operand(at->left, p->type, p->left_fp8,
                               p->transpose_left ? r * p->left_stride + k : k * p->left_stride + r) *
                       operand(at->right, p->type, p->right_fp8,
                               p->transpose_right ? k * p->right_stride + c : c * p->right_stride + k) *
                       block_scale(at->left_scale, p->left_blocks, r, k, p->rows, p->depth) *
                       block_scale(at->right_scale, p->right_blocks, c, k, p->cols, p->depth);
            if (p->left_fp8 && !p->left_blocks) sum *= *at->left_scale * *at->right_scale;
            float bias = p->has_bias ? get(at->bias, p->out_type, r) : 0;
            put(at->out, p->out_type, c * p->out_stride + r, alpha * sum + old + bias);
        }
    tell_written(p, at->out);
    return NRL_OK;
}

static const gemm_library fake_library = {.load = fake_load,
                                          .open = fake_open,
                                          .close = fake_close,
                                          .version = fake_version,
                                          .choices = fake_choices,
                                          .plan = fake_plan,
                                          .plan_free = fake_plan_free,
                                          .run = fake_run};

const gemm_library *gemm_library_table(void)
{
    return &fake_library;
}

/* The attention library is missing unless a test provides one. */
static nrl_status no_dnn(void **library)
{
    *library = NULL;
    return nrl_fail(NRL_ERR_PLUGIN, "the emulated backend has no cuDNN");
}

static const dnn_library missing = {.open = no_dnn};
const dnn_library *fake_dnn_library = &missing;

const dnn_library *dnn_library_table(void)
{
    return fake_dnn_library;
}
