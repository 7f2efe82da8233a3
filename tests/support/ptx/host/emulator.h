/*
 * emulator.h - found before tests/support/cuda/emulator.h when launches run the PTX of kernels.
 *
 * The .cu files are compiled as C++ as there, including the bodies of kernels, but a launch only
 * uses the name of the kernel: nvcc and the C++ compiler give the same name to an instance of a
 * template.
 */
#ifndef SUPPORT_PTX_HOST_EMULATOR_H
#define SUPPORT_PTX_HOST_EMULATOR_H
#include "../../cuda/emulator.h"
#include <tuple>
#include <utility>

#undef __global__
#define __global__ /* with a name that dladdr finds */

/* Ends the process with a message if the launch or the kernel is wrong. */
void ptx_start(const void *kernel, dim3 blocks, dim3 threads, size_t shared_bytes, int n_args, const void *const *args,
               const size_t *arg_bytes);
int ptx_allow_shared(const void *kernel, int bytes);

template <typename Values, size_t... I>
void ptx_start_with(const void *kernel, dim3 blocks, dim3 threads, size_t shared_bytes, const Values &values,
                    std::index_sequence<I...>)
{
    const void *args[] = {&std::get<I>(values)...};
    const size_t bytes[] = {sizeof(std::get<I>(values))...};
    ptx_start(kernel, blocks, threads, shared_bytes, (int)sizeof...(I), args, bytes);
}

template <typename... P, typename... A>
void ptx_launch_kernel(void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared_bytes, A... args)
{
    std::tuple<P...> values(static_cast<P>(args)...);
    ptx_start_with(reinterpret_cast<const void *>(kernel), blocks, threads, shared_bytes, values,
                   std::index_sequence_for<P...>());
}

#undef CUDA_LAUNCH
#define CUDA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                \
    do {                                                                                                               \
        fake_queue_reach(stream);                                                                                      \
        ptx_launch_kernel(kernel, (blocks), (threads), (shared_bytes), __VA_ARGS__);                                   \
    } while (0)

#endif
