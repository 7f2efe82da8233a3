/*
 * emulator_tensor.h - the GPU instructions of plugins/backends/cuda/ops/warp.h for the emulator.
 *
 * The fragment layouts of ldmatrix and mma.m16n8k16 are implemented a second time here,
 * independently of the kernels, but by the same author and without consulting the PTX manual.
 * Asynchronous copies only arrive when they are waited for, so that a missing or insufficient wait
 * gives wrong numbers.
 */
#ifndef SUPPORT_CUDA_EMULATOR_TENSOR_H
#define SUPPORT_CUDA_EMULATOR_TENSOR_H
#include <stdio.h>
#include <stdlib.h>
#include <vector>

enum { EMULATED_SHARED_BYTES = 99 << 10 }; /* per block, on the smallest supported GPU */

template <typename K> static int allow_shared(K, int bytes)
{
    return bytes > EMULATED_SHARED_BYTES;
}

static inline float fast_exp2(float x)
{
    return exp2f(x);
}
static inline float fast_reciprocal(float x)
{
    return 1 / x;
}

template <typename T> uint32_t pack2(float low, float high)
{
    T a, b;
    store(&a, low);
    store(&b, high);
    return a.bits | (uint32_t)b.bits << 16;
}

static inline void emulator_need(bool right, const char *what)
{
    if (right) return;
    fprintf(stderr, "emulated kernel: %s\n", what);
    abort();
}

/* Lane l gets values 2 (l%4) and + 1 of row l/4 of each matrix. */
static inline void emulator_matrices(uint32_t (&to)[4], const void *row, bool transposed)
{
    uint64_t *places = emulator_places();
    int lane = emulator_lane();
    emulator_need((uintptr_t)row % 16 == 0, "a row of a matrix is not aligned to 16 bytes");
    places[lane] = (uint64_t)(uintptr_t)row;
    emulator_meet_warp();
    for (int i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (int e = 0; e < 2; e++) {
            int major = lane / 4, minor = lane % 4 * 2 + e;
            int r = transposed ? minor : major, c = transposed ? major : minor;
            pair[e] = ((const uint16_t *)(uintptr_t)places[8 * i + r])[c];
        }
        to[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
    emulator_meet_warp();
}
static inline void load_matrices(uint32_t (&to)[4], const void *row)
{
    emulator_matrices(to, row, false);
}
static inline void load_matrices_transposed(uint32_t (&to)[4], const void *row)
{
    emulator_matrices(to, row, true);
}

template <typename T> float emulator_half(uint32_t pair, int which)
{
    T x = {(uint16_t)(which ? pair >> 16 : pair)};
    return to_float(x);
}

/* a: register 0 contains rows 0-7 of columns 0-7, register 1 rows 8-15 of these columns, registers
 * 2 and 3 those of columns 8-15; lane 4 r + k/2 has row r and columns k, k + 1. b: register 0
 * contains rows 0-7, register 1 rows 8-15; lane 4 column + k/2. */
template <typename T> void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const uint32_t bits[6] = {a[0], a[1], a[2], a[3], b0, b1};
    float mine[12]; /* on the lane's stack, valid until the second synchronization */
    for (int i = 0; i < 12; i++)
        mine[i] = emulator_half<T>(bits[i / 2], i % 2);
    uint64_t *places = emulator_places();
    int lane = emulator_lane();
    places[lane] = (uint64_t)(uintptr_t)mine;
    emulator_meet_warp();
    for (int e = 0; e < 4; e++) {
        int row = lane / 4 + (e >> 1) * 8, column = lane % 4 * 2 + (e & 1);
        for (int k = 0; k < 16; k++) {
            const float *l = (const float *)(uintptr_t)places[row % 8 * 4 + k % 8 / 2];
            const float *r = (const float *)(uintptr_t)places[column * 4 + k % 8 / 2];
            c[e] += l[2 * ((row >= 8) + 2 * (k >= 8)) + (k & 1)] * r[2 * (4 + (k >= 8)) + (k & 1)];
        }
    }
    emulator_meet_warp();
}

/* ---- asynchronous copies ---- */

struct emulated_copy {
    void *to;
    unsigned char value[16];
    int group;
};
struct emulated_copies {
    std::vector<emulated_copy> under_way;
    int group = 0; /* the group of the next copy */
};
inline emulated_copies emulator_copies[1024]; /* by thread of the current block */

static inline void copy_16(void *to, const void *from, int bytes)
{
    emulated_copies *t = &emulator_copies[emulator_thread().x];
    emulated_copy c = {to, {0}, t->group};
    emulator_need((uintptr_t)to % 16 == 0 && (uintptr_t)from % 16 == 0 && (bytes == 0 || bytes == 16),
                  "an asynchronous copy is not of 16 aligned bytes");
    memcpy(c.value, from, (size_t)bytes);
    t->under_way.push_back(c);
}
static inline void copies_commit(void)
{
    emulator_copies[emulator_thread().x].group++;
}
template <int N> void copies_wait(void)
{
    emulated_copies *t = &emulator_copies[emulator_thread().x];
    size_t kept = 0;
    for (const emulated_copy &c : t->under_way) {
        if (c.group < t->group - N)
            memcpy(c.to, c.value, sizeof c.value);
        else
            t->under_way[kept++] = c;
    }
    t->under_way.resize(kept);
}

#endif
