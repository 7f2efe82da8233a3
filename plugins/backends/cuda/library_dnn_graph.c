/*
 * library_dnn_graph.c - descriptors of tensors and operations.
 */
#include "library_dnn.h"
#include <string.h>

/* Records a failed call; returns false once any call has failed. */
static bool took(dnn_graph *g, cudnnStatus_t code, const char *what)
{
    if (code == CUDNN_STATUS_SUCCESS) return true;
    g->code = code;
    g->what = what;
    return false;
}

cudnnBackendDescriptor_t dnn_make(dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (g->code) return NULL;
    if (g->n_all == DNN_MOST_DESCRIPTORS) {
        took(g, CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors");
        return NULL;
    }
    if (took(g, g->library->BackendCreateDescriptor(type, &d), "a descriptor")) g->all[g->n_all++] = d;
    return d;
}

void dnn_set(dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    if (!g->code) (void)took(g, g->library->BackendSetAttribute(d, name, type, count, value), "an attribute");
}

static void set_int64(dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t value)
{
    dnn_set(g, d, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_type(dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnDataType_t t)
{
    dnn_set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &t);
}

static void set_part(dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t part)
{
    dnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void set_tensor(dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, const dnn_tensor *t)
{
    if (t) set_part(g, d, name, t->descriptor);
}

void dnn_finish(dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (!g->code) (void)took(g, g->library->BackendFinalize(d), what);
}

static void add_operation(dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    dnn_finish(g, d, what);
    if (g->code) return;
    if (g->n_operations == DNN_MOST_OPERATIONS)
        took(g, CUDNN_STATUS_INTERNAL_ERROR, "too many operations");
    else
        g->operations[g->n_operations++] = d;
}

void dnn_graph_drop(dnn_graph *g)
{
    while (g->n_all)
        (void)g->library->BackendDestroyDescriptor(g->all[--g->n_all]);
    g->n_operations = 0;
}

/* ---- tensors ---- */

dnn_tensor dnn_tensor_make(dnn_graph *g, int64_t identity, dnn_home home, cudnnDataType_t type, const int64_t *dims,
                           const int64_t *strides, const dnn_tensor *offsets)
{
    const bool yes = true;
    dnn_tensor t = {.descriptor = dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR)};
    memcpy(t.dims, dims, sizeof t.dims);
    memcpy(t.strides, strides, sizeof t.strides);
    set_int64(g, t.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, identity);
    set_type(g, t.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set_int64(g, t.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DNN_RANK, dims);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DNN_RANK, strides);
    if (home == DNN_VIRTUAL) dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (home == DNN_BY_VALUE) dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    set_tensor(g, t.descriptor, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offsets);
    dnn_finish(g, t.descriptor, "a tensor");
    return t;
}

dnn_tensor dnn_virtual(dnn_graph *g, const dnn_tensor *like, cudnnDataType_t type)
{
    return dnn_tensor_make(g, g->next_virtual++, DNN_VIRTUAL, type, like->dims, like->strides, NULL);
}

dnn_tensor dnn_transposed(dnn_tensor t)
{
    int64_t dim = t.dims[2], stride = t.strides[2];
    t.dims[2] = t.dims[3];
    t.dims[3] = dim;
    t.strides[2] = t.strides[3];
    t.strides[3] = stride;
    t.descriptor = NULL;
    return t;
}

/* ---- operations ---- */

void dnn_pointwise(dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, const dnn_tensor *x,
                   const dnn_tensor *b, const dnn_tensor *t, const dnn_tensor *y, int64_t axis)
{
    cudnnBackendDescriptor_t what = dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dnn_set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, math);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) set_int64(g, what, CUDNN_ATTR_POINTWISE_AXIS, axis);
    dnn_finish(g, what, "a function");
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(g, d, "a pointwise operation");
}

dnn_tensor dnn_apply(dnn_graph *g, cudnnPointwiseMode_t mode, const dnn_tensor *x, const dnn_tensor *b)
{
    dnn_tensor y = dnn_virtual(g, x, CUDNN_DATA_FLOAT);
    dnn_pointwise(g, mode, CUDNN_DATA_FLOAT, x, b, NULL, &y, 0);
    return y;
}

void dnn_matmul(dnn_graph *g, const dnn_tensor *a, const dnn_tensor *b, const dnn_tensor *c, const dnn_tensor *rows,
                const dnn_tensor *columns, const dnn_tensor *depth)
{
    cudnnBackendDescriptor_t what = dnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(g, what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    dnn_finish(g, what, "a product");
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_part(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, rows);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, columns);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, depth);
    add_operation(g, d, "a matrix product");
}

void dnn_reduce(dnn_graph *g, cudnnReduceTensorOp_t op, const dnn_tensor *x, const dnn_tensor *y)
{
    cudnnBackendDescriptor_t what = dnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    dnn_set(g, what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    set_type(g, what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    dnn_finish(g, what, "a reduction");
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_part(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(g, d, "a sum or maximum");
}

void dnn_reshape(dnn_graph *g, const dnn_tensor *x, const dnn_tensor *y)
{
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(g, d, "a transposition");
}
