/*
 * emulator.h - enough of CUDA C++ to compile the kernels of plugins/backends/cuda/ops as plain C++
 * and run them on the CPU.
 *
 * The blocks of a launch run one after another. The threads of a block are fibers: each runs until
 * it ends or synchronizes with others (__syncthreads, __syncwarp, a shuffle or a vote), then the
 * next one runs. Indices, bounds, barriers and sums are therefore checked, and the results are
 * those of one legal order; about every other launch uses the opposite order, so that of two
 * threads without a barrier between them sometimes the one and sometimes the other runs first.
 * Finer races, and speed, are not checked. A barrier that some threads never reach ends the process
 * with a message. One launch at a time: the memory below belongs to the process.
 */
#ifndef SUPPORT_CUDA_EMULATOR_H
#define SUPPORT_CUDA_EMULATOR_H
#include "fake_queue.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct emulated_index {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

enum { EMULATED_THREADS = 1024 }; /* at most, of a block */

/* The block that runs: its threads, and for each a slot of 8 bytes to exchange values in its warp. */
struct emulator_block_state {
    int current, n; /* the thread that runs, the number of threads */
    emulated_index index[EMULATED_THREADS];
    uint64_t places[EMULATED_THREADS];
};
extern emulator_block_state emulator_now;

typedef void (*emulated_body)(void *kernel);
/* Runs body(kernel) in every thread of every block. */
void emulator_launch(dim3 blocks, dim3 threads, size_t shared_bytes, emulated_body body, void *kernel);
void *emulator_shared(void); /* dynamic shared memory of the current block, 128-byte aligned */
static inline const emulated_index &emulator_thread(void)
{
    return emulator_now.index[emulator_now.current];
}
const emulated_index &emulator_block(void);
const dim3 &emulator_threads(void); /* of a block */
const dim3 &emulator_blocks(void);
void emulator_meet_block(void);
void emulator_meet_warp(void);
/* The slots of the calling thread's warp. */
static inline uint64_t *emulator_places(void)
{
    return emulator_now.places + emulator_now.current / 32 * 32;
}
static inline int emulator_lane(void)
{
    return emulator_now.current % 32;
}
/* Threads of the warp: 32, except for the last warp. */
static inline int emulator_warp_size(void)
{
    const int left = emulator_now.n - emulator_now.current / 32 * 32;
    return left < 32 ? left : 32;
}
/* Launches fail with this code unless it is 0; tests set it. */
extern int emulator_launch_code;
extern long emulator_launches;     /* since the start of the process */
void emulator_need_lane(int lane); /* lane of the calling thread's warp; fails if its thread has ended */

#define threadIdx (emulator_thread())
#define blockIdx (emulator_block())
#define blockDim (emulator_threads())
#define gridDim (emulator_blocks())
#define __global__ static
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __syncthreads() emulator_meet_block()
#define __syncwarp(...) emulator_meet_warp()
#define __threadfence() ((void)0)

/* Fibers do not interrupt each other. */
static inline float atomicAdd(float *at, float v)
{
    float was = *at;
    *at = was + v;
    return was;
}

static inline uint32_t atomicMax(uint32_t *at, uint32_t v)
{
    uint32_t was = *at;
    *at = was > v ? was : v;
    return was;
}

#define CUDA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                \
    do {                                                                                                               \
        auto emulated_kernel = [=]() { kernel(__VA_ARGS__); };                                                         \
        fake_queue_reach(stream);                                                                                      \
        emulator_launch((blocks), (threads), (shared_bytes),                                                           \
                        [](void *k) { (*static_cast<decltype(emulated_kernel) *>(k))(); }, &emulated_kernel);          \
    } while (0)
#define CUDA_SHARED(type, name) type *name = static_cast<type *>(emulator_shared())

template <typename T> T emulator_exchange(T value, int from)
{
    static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
    uint64_t *places = emulator_places();
    memcpy(&places[emulator_lane()], &value, sizeof value);
    emulator_meet_warp();
    if (from < 0 || from >= emulator_warp_size()) from = emulator_lane();
    emulator_need_lane(from);
    memcpy(&value, &places[from], sizeof value);
    emulator_meet_warp();
    return value;
}

template <typename T> T __shfl_sync(unsigned, T value, int lane, int width = 32)
{
    int first = emulator_lane() / width * width;
    return emulator_exchange(value, first + lane % width);
}

template <typename T> T __shfl_xor_sync(unsigned, T value, int bits, int = 32)
{
    return emulator_exchange(value, emulator_lane() ^ bits);
}

template <typename T> T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32)
{
    int from = emulator_lane() + (int)by;
    return emulator_exchange(value, from / width == emulator_lane() / width ? from : emulator_lane());
}

template <typename T> T __shfl_up_sync(unsigned, T value, unsigned by, int width = 32)
{
    int from = emulator_lane() - (int)by;
    bool same = from >= 0 && from / width == emulator_lane() / width;
    return emulator_exchange(value, same ? from : emulator_lane());
}

unsigned emulator_ballot(bool yes);
static inline unsigned __ballot_sync(unsigned, int yes)
{
    return emulator_ballot(yes != 0);
}
static inline int __any_sync(unsigned, int yes)
{
    return emulator_ballot(yes != 0) != 0;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

#endif
