/*
 * ragged.cu - see ragged.h. A block of the statistics processes one sequence of one head.
 */
#include "kernel.h"
#include "ragged.h"

enum { THREADS = 128 };

__global__ void ragged_places_kernel(const ragged_params p)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), last = p.n_segments;
    if (i > p.batch) return;
    int32_t begin = p.cu[i < last ? i : last], end = p.cu[i + 1 < last ? i + 1 : last];
    if (i < p.batch) p.lengths[i] = end - begin;
    for (int k = 0; k < DNN_OPERANDS; k++)
        if (p.offsets[k]) p.offsets[k][i] = begin * p.strides[k];
}

__global__ void ragged_stats_kernel(const ragged_params p, bool in)
{
    int s = (int)blockIdx.x, head = (int)blockIdx.y, last = p.n_segments;
    int32_t begin = p.cu[s < last ? s : last], n = p.cu[s + 1 < last ? s + 1 : last] - begin;
    float *stats = p.stats + ((int64_t)s * p.n_heads + head) * p.length;
    float *lse = p.lse + head * p.lse_stride + begin;
    for (int64_t i = threadIdx.x; i < (in ? p.length : n); i += blockDim.x)
        if (in)
            stats[i] = i < n ? lse[i] : 0;
        else
            lse[i] = stats[i];
}

extern "C" void ragged_places(const ragged_params *p, void *stream)
{
    CUDA_LAUNCH(ragged_places_kernel, (unsigned)(p->batch / THREADS + 1), THREADS, 0, stream, *p);
}

extern "C" void ragged_stats_in(const ragged_params *p, void *stream)
{
    dim3 grid((unsigned)p->batch, (unsigned)p->n_heads);
    CUDA_LAUNCH(ragged_stats_kernel, grid, THREADS, 0, stream, *p, true);
}

extern "C" void ragged_stats_out(const ragged_params *p, void *stream)
{
    dim3 grid((unsigned)p->n_segments, (unsigned)p->n_heads);
    CUDA_LAUNCH(ragged_stats_kernel, grid, THREADS, 0, stream, *p, false);
}
