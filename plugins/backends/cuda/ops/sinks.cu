/*
 * sinks.cu - the gradient of attention sinks: a block per head.
 */
#include "flash.h"
#include "rows.h"

enum { SINK_THREADS = 256 };

__global__ void sinks_kernel(const flash_params p, float *dsinks)
{
    int head = blockIdx.x;
    float sink = p.sinks[head];
    double sum = 0;
    for (int64_t row = threadIdx.x; row < p.n_rows; row += blockDim.x)
        sum += expf(sink - p.lse[head * p.lse_stride + row]) * p.delta[head * p.n_rows + row];
    sum = row_join(sum, add_join());
    if (threadIdx.x == 0) dsinks[head] = (float)-sum;
}

extern "C" void sinks_backward(const flash_params *p, float *dsinks, void *stream)
{
    CUDA_LAUNCH(sinks_kernel, (unsigned)p->n_heads, SINK_THREADS, 0, stream, *p, dsinks);
}
