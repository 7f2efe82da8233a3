/*
 * fragments.cpp - see fragments.h.
 */
#include "fragments.h"
#include "flash_mma.h"

template <typename T> static void multiply_kernel(float (*c)[4], uint32_t (*a)[4], uint32_t (*b)[2])
{
    int lane = threadIdx.x;
    multiply_add<T>(c[lane], a[lane], b[lane][0], b[lane][1]);
}

static void load_kernel(uint32_t (*to)[4], uint16_t (*rows)[8], bool transposed)
{
    int lane = threadIdx.x;
    if (transposed)
        load_matrices_transposed(to[lane], rows[lane]);
    else
        load_matrices(to[lane], rows[lane]);
}

extern "C" void fragment_multiply(uint32_t dtype, float c[32][4], uint32_t a[32][4], uint32_t b[32][2])
{
    if (dtype == NRL_DTYPE_BF16)
        CUDA_LAUNCH(multiply_kernel<bf16>, 1, 32, 0, NULL, c, a, b);
    else
        CUDA_LAUNCH(multiply_kernel<f16>, 1, 32, 0, NULL, c, a, b);
}

extern "C" void fragment_load(uint32_t to[32][4], uint16_t rows[32][8], bool transposed)
{
    CUDA_LAUNCH(load_kernel, 1, 32, 0, NULL, to, rows, transposed);
}
