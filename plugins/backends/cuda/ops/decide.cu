/*
 * decide.cu - decides about an update on the device: the norm of the gradients, clipping, and whether the numbers
 * of the step are finite. Sums and rounds as the host does where it decides.
 */
#include "kernel.h"

enum { DECIDE_THREADS = 256 };

/* A compiler for the GPU would join a product and a sum into one operation with one rounding. */
BOTH double rounded_product(double a, double b)
{
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

BOTH bool is_finite(double x)
{
    return fabs(x) <= 1.7976931348623157e308;
}

__global__ void __launch_bounds__(DECIDE_THREADS) decide_kernel(nrl_decide_args a, const volatile int32_t *fault)
{
    __shared__ double part[DECIDE_THREADS];
    double sum = 0;
    for (int64_t at = 0; at < a.n_squares; at += DECIDE_THREADS) {
        const int64_t left = a.n_squares - at;
        const int n = left < DECIDE_THREADS ? (int)left : DECIDE_THREADS;
        if ((int)threadIdx.x < n) part[threadIdx.x] = a.squares[at + threadIdx.x];
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < n; i++)
            sum += part[i];
        __syncthreads();
    }
    if (threadIdx.x) return;
    const double norm = rounded_product(sqrt(sum), fabs(a.scale));
    const double factor = a.max_norm > 0 ? a.max_norm / (norm + 1e-6) : 1;
    bool applies = is_finite(norm) && *fault == CUDA_FAULT_NONE;
    for (uint32_t i = 0; i < a.n_sums; i++)
        applies = applies && is_finite((double)*a.sums[i]);
    a.out->grad_norm = norm;
    a.out->grad_scale = applies ? rounded_product(a.scale, factor < 1 ? factor : 1) : 0;
    a.out->applies = applies ? 1 : 0;
}

static nrl_status decide(void *instance, nrl_stream *stream, const nrl_decide_args *a)
{
    cuda *self = (cuda *)instance;
    nrl_decide_args k;
    NRL_TRY(cuda_enter(self));
    NRL_TRY(cuda_known_args("update_decision", a, a->size, &k, sizeof k));
    CUDA_LAUNCH(decide_kernel, 1, DECIDE_THREADS, 0, cuda_stream(self, stream), k,
                (const volatile int32_t *)self->fault);
    return cuda_launched(self, "update_decision");
}

const nrl_update_decider *cuda_decider(cuda *self)
{
    self->decider.size = sizeof self->decider;
    self->decider.self = self;
    self->decider.decide = decide;
    return &self->decider;
}
