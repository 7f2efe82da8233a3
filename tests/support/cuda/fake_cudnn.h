/*
 * fake_cudnn.h - a stand-in for cuDNN's backend interface on the CPU: it checks each attribute's name,
 * type and number against what cuDNN documents for the kind of descriptor, refuses graphs that lack
 * one, and computes graphs of products, pointwise operations, sums, maxima and transpositions over
 * host memory in f32, each intermediate rounded to its dtype. It offers three ways: one whose results
 * may differ, one that cannot be built, and one that works. Needs NVIDIA's headers.
 */
#ifndef SUPPORT_CUDA_FAKE_CUDNN_H
#define SUPPORT_CUDA_FAKE_CUDNN_H
#include <cudnn_graph.h>

typedef struct {
    size_t version;
    int no_file, create_fails, execute_fails, no_way;
    int64_t workspace_bytes;
    /* counted */
    int live, n_plans, n_executed;
    char wrong[200]; /* the first thing that cuDNN would not have taken */
} fake_cudnn_state;

extern fake_cudnn_state fake_cudnn;
void *fake_cudnn_dlopen(const char *name, int flags);
void *fake_cudnn_dlsym(void *file, const char *symbol);

#endif
