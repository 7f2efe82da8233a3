/*
 * library_dnn.h - shared by the cuDNN files: the library's calls as a table, and graphs of operations
 * under construction. Uses cuDNN's C interface ("backend API"): descriptors whose attributes are set
 * by name. Needs NVIDIA's headers; nothing is linked.
 */
#ifndef CUDA_LIBRARY_DNN_H
#define CUDA_LIBRARY_DNN_H
#include "dnn_library.h"
#include <cudnn_graph.h>
#include <stdbool.h>

/* clang-format off */
#define DNN_CALLS(X)                                                                               \
    X(GetVersion) X(GetErrorString) X(GetLastErrorString) X(Create) X(Destroy) X(SetStream)         \
    X(BackendCreateDescriptor) X(BackendDestroyDescriptor) X(BackendFinalize)                       \
    X(BackendSetAttribute) X(BackendGetAttribute) X(BackendExecute)
/* clang-format on */

#define DNN_MEMBER(name) __typeof__(&cudnn##name) name;
typedef struct {
    DNN_CALLS(DNN_MEMBER)
    cudnnHandle_t handle;            /* NULL: plans are made for `device`, and none can run */
    cudnnBackendDescriptor_t device; /* NULL: the handle's */
} dnn;

/* Converts cuDNN's status to nrl's, with cuDNN's text. */
nrl_status dnn_check(const dnn *l, cudnnStatus_t code, const char *what);

/* ---- library_dnn_graph.c: the first failing call sets `code`, and later calls do nothing ---- */

enum { DNN_MOST_DESCRIPTORS = 192, DNN_MOST_OPERATIONS = 48, DNN_RANK = 4 };

typedef struct {
    const dnn *library;
    cudnnBackendDescriptor_t all[DNN_MOST_DESCRIPTORS], operations[DNN_MOST_OPERATIONS];
    int n_all, n_operations;
    int64_t next_virtual; /* id of the next tensor that is never stored */
    cudnnStatus_t code;
    const char *what; /* the action that set `code` */
} dnn_graph;

/* A tensor [d0, d1, d2, d3] and its strides in elements. */
typedef struct {
    cudnnBackendDescriptor_t descriptor;
    int64_t dims[DNN_RANK], strides[DNN_RANK];
} dnn_tensor;

cudnnBackendDescriptor_t dnn_make(dnn_graph *g, cudnnBackendDescriptorType_t type);
void dnn_set(dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void *value);
void dnn_finish(dnn_graph *g, cudnnBackendDescriptor_t d, const char *what);
void dnn_graph_drop(dnn_graph *g);

typedef enum { DNN_STORED = 0, DNN_VIRTUAL, DNN_BY_VALUE } dnn_home;
/* offsets: NULL, or where each batch entry begins, in elements. */
dnn_tensor dnn_tensor_make(dnn_graph *g, int64_t identity, dnn_home home, cudnnDataType_t type, const int64_t *dims,
                           const int64_t *strides, const dnn_tensor *offsets);
/* Never stored: f32 of `like`'s shape unless stated otherwise. */
dnn_tensor dnn_virtual(dnn_graph *g, const dnn_tensor *like, cudnnDataType_t type);
dnn_tensor dnn_transposed(dnn_tensor t); /* swaps the last two dimensions; without a descriptor */

void dnn_pointwise(dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, const dnn_tensor *x,
                   const dnn_tensor *b, const dnn_tensor *t, const dnn_tensor *y, int64_t axis);
/* x op b as a new tensor of x's shape; b may be NULL. */
dnn_tensor dnn_apply(dnn_graph *g, cudnnPointwiseMode_t mode, const dnn_tensor *x, const dnn_tensor *b);
/* c = a b; lengths of rows, columns and depth, if they differ by batch entry, else NULL. */
void dnn_matmul(dnn_graph *g, const dnn_tensor *a, const dnn_tensor *b, const dnn_tensor *c, const dnn_tensor *rows,
                const dnn_tensor *columns, const dnn_tensor *depth);
void dnn_reduce(dnn_graph *g, cudnnReduceTensorOp_t op, const dnn_tensor *x, const dnn_tensor *y);
void dnn_reshape(dnn_graph *g, const dnn_tensor *x, const dnn_tensor *y);

/* ---- library_dnn_attention.c ---- */

/* Ids of tensors that are stored or passed by value: operand i is i + 1, its offsets i + 1 + OFFSETS. */
enum {
    DNN_ID_OPERANDS = 1,
    DNN_ID_OFFSETS = 20,
    DNN_ID_LENGTHS_Q = 40,
    DNN_ID_LENGTHS_K,
    DNN_ID_STATS,
    DNN_ID_SUMS,
    DNN_ID_DQ_SUM,
    DNN_ID_SCALE,
    DNN_ID_LOWEST,
    DNN_ID_ONE,
    DNN_ID_VIRTUAL = 100
};
void dnn_forward_graph(dnn_graph *g, const dnn_problem *p);
void dnn_backward_graph(dnn_graph *g, const dnn_problem *p);

#endif
