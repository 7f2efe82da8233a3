/*
 * fake_cudnn.h - a fake of cuDNN's backend interface on the CPU. It checks the name, type and
 * number of each attribute against cuDNN's documentation of the kind of descriptor, refuses graphs
 * with a missing attribute, and computes graphs of products, pointwise operations, sums, maxima and
 * transpositions over host memory in f32, with each intermediate rounded to its dtype. It offers
 * three engine configurations: one whose results may differ between runs, one that cannot be built,
 * and one that works. Needs NVIDIA's headers.
 */
#ifndef SUPPORT_CUDA_FAKE_CUDNN_H
#define SUPPORT_CUDA_FAKE_CUDNN_H
#include <cudnn_graph.h>

typedef struct {
    size_t version;
    int no_file, create_fails, execute_fails, no_way;
    int64_t workspace_bytes;
    /* counters */
    int live, n_plans, n_executed;
    int64_t n_converted; /* values, by operations that compute nothing */
    char wrong[200];     /* the first call that cuDNN would not have accepted */
} fake_cudnn_state;

extern fake_cudnn_state fake_cudnn;
void *fake_cudnn_dlopen(const char *name, int flags);
void *fake_cudnn_dlsym(void *file, const char *symbol);

#endif
