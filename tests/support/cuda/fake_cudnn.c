/*
 * fake_cudnn.c - see fake_cudnn.h.
 */
#include "fake_cudnn.h"
#include "fake_driver.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_cudnn_state fake_cudnn;

enum { MOST_ATTRIBUTES = 12, RANK = 4, WAYS = 3, MOST_TENSORS = 128 };

/* ---- descriptors ---- */

/* Names, types and numbers of elements (0 = any) as documented; `need`: required before
 * finalization. */
static const struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    bool need;
} rules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, RANK, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, RANK, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, true},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, true},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, true},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, true},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, false},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, true},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, true},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     true},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     true},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, true},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, true},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, true},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 0, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 0, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, true},
};
enum { RULES = sizeof rules / sizeof *rules };

typedef struct fake_descriptor fake_descriptor;
struct fake_descriptor {
    cudnnBackendDescriptorType_t type;
    bool finished;
    struct {
        cudnnBackendAttributeName_t name;
        int64_t count;
        void *value;
    } at[MOST_ATTRIBUTES];
    int n;
    int way; /* engine configuration number */
    fake_descriptor *graph;
};

static cudnnStatus_t wrong(const char *what, int kind, int name)
{
    if (!fake_cudnn.wrong[0])
        snprintf(fake_cudnn.wrong, sizeof fake_cudnn.wrong, "%s (descriptor %d, attribute %d)", what, kind, name);
    return CUDNN_STATUS_BAD_PARAM;
}

static size_t element_size(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4; /* enumerations */
    }
}

static void *attribute(const fake_descriptor *d, cudnnBackendAttributeName_t name, int64_t *count)
{
    for (int i = 0; i < d->n; i++)
        if (d->at[i].name == name) {
            if (count) *count = d->at[i].count;
            return d->at[i].value;
        }
    return NULL;
}

static fake_descriptor *part(const fake_descriptor *d, cudnnBackendAttributeName_t name)
{
    fake_descriptor **p = attribute(d, name, NULL);
    return p ? *p : NULL;
}

static cudnnStatus_t fake_BackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    fake_descriptor *d = calloc(1, sizeof *d);
    d->type = type;
    fake_cudnn.live++;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_BackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    fake_descriptor *d = descriptor;
    for (int i = 0; i < d->n; i++)
        free(d->at[i].value);
    free(d);
    fake_cudnn.live--;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_BackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    fake_descriptor *d = descriptor;
    const struct rule *r = NULL;
    for (int i = 0; i < RULES && !r; i++)
        if (rules[i].of == d->type && rules[i].name == name) r = &rules[i];
    if (!r) return wrong("no such attribute", (int)d->type, (int)name);
    if (r->type != type || count < 1 || (r->count && count != r->count))
        return wrong("another type or number", (int)d->type, (int)name);
    if (d->finished || attribute(d, name, NULL)) return wrong("set after its end or twice", (int)d->type, (int)name);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < count; i++) {
            const fake_descriptor *p = ((fake_descriptor *const *)value)[i];
            if (!p || !p->finished) return wrong("a part that is not finished", (int)d->type, (int)name);
        }
    size_t bytes = (size_t)count * element_size(type);
    d->at[d->n].name = name;
    d->at[d->n].count = count;
    d->at[d->n].value = memcpy(malloc(bytes), value, bytes);
    d->n++;
    return CUDNN_STATUS_SUCCESS;
}

static int inputs_of(cudnnPointwiseMode_t mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX:
    case CUDNN_POINTWISE_IDENTITY:
        return 1;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return 3;
    default:
        return 2;
    }
}

static cudnnStatus_t check_inputs(const fake_descriptor *d)
{
    cudnnPointwiseMode_t *mode =
        attribute(part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_MODE, NULL);
    int n = 1 + !!part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) + !!part(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    return n == inputs_of(*mode) ? CUDNN_STATUS_SUCCESS : wrong("another number of inputs", (int)d->type, (int)*mode);
}

static cudnnStatus_t fake_BackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    fake_descriptor *d = descriptor;
    for (int i = 0; i < RULES; i++)
        if (rules[i].of == d->type && rules[i].need && !attribute(d, rules[i].name, NULL))
            return wrong("an attribute is missing", (int)d->type, (int)rules[i].name);
    if (d->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && check_inputs(d)) return CUDNN_STATUS_BAD_PARAM;
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        fake_descriptor *way = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        if (way->way == 1) return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
        d->graph = way->graph;
        fake_cudnn.n_plans++;
    }
    d->finished = true;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t ways_of(const fake_descriptor *d, int64_t room, int64_t *count, void *value)
{
    fake_descriptor **ways = value;
    *count = fake_cudnn.no_way ? 0 : WAYS;
    for (int64_t i = 0; i < *count && i < room; i++) {
        ways[i]->way = (int)i;
        ways[i]->graph = part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        ways[i]->finished = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_BackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                              int64_t room, int64_t *count, void *value)
{
    const fake_descriptor *d = descriptor;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || !d->finished) break;
        return ways_of(d, room, count, value);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || room != 1) break;
        (*(fake_descriptor **)value)->way = d->way;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        if (type != CUDNN_TYPE_NUMERICAL_NOTE || room != CUDNN_NUMERICAL_NOTE_TYPE_COUNT) break;
        ((cudnnBackendNumericalNote_t *)value)[0] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        ((cudnnBackendNumericalNote_t *)value)[1] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        *count = d->way == 0 ? 2 : 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        if (type != CUDNN_TYPE_INT64 || room != 1 || !d->finished) break;
        *(int64_t *)value = fake_cudnn.workspace_bytes;
        return CUDNN_STATUS_SUCCESS;
    default:
        break;
    }
    return wrong("asked for", (int)d->type, (int)name);
}

/* ---- computing ---- */

typedef struct {
    int64_t id, dims[RANK], strides[RANK];
    cudnnDataType_t type;
    bool is_virtual, is_by_value;
    const fake_descriptor *offsets;
} shape;

typedef struct {
    shape is;
    float *own; /* values of a tensor that is never stored: one per element of the strided whole */
    char *data; /* memory of a stored tensor */
    const int64_t *offsets;
} tensor;

typedef struct {
    tensor all[MOST_TENSORS];
    int n;
    const int64_t *ids;
    void *const *places;
    int64_t n_places;
} memory;

static shape shape_of(const fake_descriptor *d)
{
    shape s = {.id = *(int64_t *)attribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, NULL),
               .type = *(cudnnDataType_t *)attribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, NULL),
               .is_virtual = attribute(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, NULL) != NULL,
               .is_by_value = attribute(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, NULL) != NULL,
               .offsets = part(d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC)};
    memcpy(s.dims, attribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL), sizeof s.dims);
    memcpy(s.strides, attribute(d, CUDNN_ATTR_TENSOR_STRIDES, NULL), sizeof s.strides);
    return s;
}

static void *place_of(const memory *m, int64_t id)
{
    for (int64_t i = 0; i < m->n_places; i++)
        if (m->ids[i] == id) return m->places[i];
    wrong("a tensor without a place", CUDNN_BACKEND_TENSOR_DESCRIPTOR, (int)id);
    return NULL;
}

static tensor *tensor_of(memory *m, const fake_descriptor *d)
{
    shape s = shape_of(d);
    for (int i = 0; i < m->n; i++)
        if (m->all[i].is.id == s.id) return &m->all[i];
    tensor *t = &m->all[m->n++];
    *t = (tensor){.is = s};
    if (s.is_virtual) {
        int64_t last = 0;
        for (int k = 0; k < RANK; k++)
            last += (s.dims[k] - 1) * s.strides[k];
        t->own = calloc((size_t)last + 1, sizeof *t->own);
        return t;
    }
    t->data = place_of(m, s.id);
    if (s.offsets) t->offsets = place_of(m, shape_of(s.offsets).id);
    return t;
}

/* Dimensions of size 1 are broadcast, and groups of heads share one. -1: past the end of a
 * sequence. */
static int64_t index_of(const tensor *t, const int64_t *at, const int64_t *dims)
{
    int64_t place = 0, i = 0;
    for (int k = 0; k < RANK; k++) {
        i = t->is.dims[k] == dims[k] ? at[k] : at[k] * t->is.dims[k] / dims[k];
        place += k == 0 && t->offsets ? t->offsets[i] : i * t->is.strides[k];
    }
    i = t->is.dims[0] == dims[0] ? at[0] : 0;
    return t->offsets && place >= t->offsets[i + 1] ? -1 : place;
}

static float half_value(uint16_t h)
{
    int exponent = h >> 10 & 31;
    float x = (float)(exponent ? ldexp((h & 1023) + 1024, exponent - 25) : ldexp(h & 1023, -24));
    return h & 0x8000 ? -x : x;
}

static uint16_t half_bits(float x)
{
    int exponent;
    float f = fabsf(x);
    uint16_t sign = x < 0 ? 0x8000 : 0;
    if (f == 0) return sign;
    (void)frexpf(f, &exponent);
    if (exponent < -13) return (uint16_t)(sign | (uint16_t)lrintf(ldexpf(f, 24)));
    return (uint16_t)(sign | (uint16_t)(((exponent + 13) << 10) + lrintf(ldexpf(f, 11 - exponent)) - 0));
}

static uint16_t bf16_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float bf16_value(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float get(const tensor *t, const int64_t *at, const int64_t *dims)
{
    int64_t i = index_of(t, at, dims);
    if (i < 0) return 0;
    if (t->own) return t->own[i];
    switch (t->is.type) {
    case CUDNN_DATA_FLOAT:
        return ((float *)t->data)[i];
    case CUDNN_DATA_INT32:
        return (float)((int32_t *)t->data)[i];
    case CUDNN_DATA_HALF:
        return half_value(((uint16_t *)t->data)[i]);
    default:
        return bf16_value(((uint16_t *)t->data)[i]);
    }
}

static void put(const tensor *t, const int64_t *at, float x)
{
    int64_t i = index_of(t, at, t->is.dims);
    uint16_t bits = t->is.type == CUDNN_DATA_HALF ? half_bits(x) : bf16_bits(x);
    bool halved = t->is.type == CUDNN_DATA_HALF || t->is.type == CUDNN_DATA_BFLOAT16;
    if (i < 0) return;
    if (t->own)
        t->own[i] = !halved || x != x ? x : t->is.type == CUDNN_DATA_HALF ? half_value(bits) : bf16_value(bits);
    else if (halved)
        ((uint16_t *)t->data)[i] = bits;
    else
        ((float *)t->data)[i] = x;
    if (fake_watch && !t->own) fake_watch->wrote(t->data + i * (halved ? 2 : 4), halved ? 2 : 4);
}

/* Advances to the next index; false after the last one. */
static bool next(int64_t *at, const int64_t *dims)
{
    for (int k = RANK - 1; k >= 0; k--) {
        if (++at[k] < dims[k]) return true;
        at[k] = 0;
    }
    return false;
}

static float apply(cudnnPointwiseMode_t mode, float x, float b, float t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_CMP_LT:
        return x < b;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_LOGICAL_AND:
        return x != 0 && b != 0;
    case CUDNN_POINTWISE_IDENTITY:
        fake_cudnn.n_converted++;
        return x;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0 ? x : b;
    default:
        wrong("a function that the stand-in has not", CUDNN_BACKEND_POINTWISE_DESCRIPTOR, (int)mode);
        return NAN;
    }
}

static void compute_pointwise(memory *m, const fake_descriptor *d)
{
    const fake_descriptor *what = part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const fake_descriptor *b = part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                          *t = part(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    cudnnPointwiseMode_t mode = *(cudnnPointwiseMode_t *)attribute(what, CUDNN_ATTR_POINTWISE_MODE, NULL);
    const int64_t *axis = attribute(what, CUDNN_ATTR_POINTWISE_AXIS, NULL);
    const tensor *x = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    const tensor *y = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    const tensor *tb = b ? tensor_of(m, b) : NULL, *tt = t ? tensor_of(m, t) : NULL;
    int64_t at[RANK] = {0};
    do {
        const int64_t *dims = y->is.dims;
        put(y, at,
            mode == CUDNN_POINTWISE_GEN_INDEX
                ? (float)at[*axis]
                : apply(mode, get(x, at, dims), tb ? get(tb, at, dims) : 0, tt ? get(tt, at, dims) : 0));
    } while (next(at, y->is.dims));
}

static void compute_matmul(memory *m, const fake_descriptor *d)
{
    const tensor *a = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    const tensor *b = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    const tensor *c = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    int64_t at[RANK] = {0}, depth = a->is.dims[3];
    if (b->is.dims[2] != depth || a->is.dims[2] != c->is.dims[2] || b->is.dims[3] != c->is.dims[3] ||
        a->is.dims[1] % b->is.dims[1]) {
        wrong("a product of shapes that do not fit", (int)d->type, 0);
        return;
    }
    do {
        float sum = 0;
        for (int64_t k = 0; k < depth; k++) {
            const int64_t left[RANK] = {at[0], at[1], at[2], k}, right[RANK] = {at[0], at[1], k, at[3]};
            const int64_t left_dims[RANK] = {c->is.dims[0], c->is.dims[1], c->is.dims[2], depth};
            const int64_t right_dims[RANK] = {c->is.dims[0], c->is.dims[1], depth, c->is.dims[3]};
            float x = get(a, left, left_dims);
            if (x != 0) sum += x * get(b, right, right_dims);
        }
        put(c, at, sum);
    } while (next(at, c->is.dims));
}

static void compute_reduction(memory *m, const fake_descriptor *d)
{
    const fake_descriptor *what = part(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    bool max =
        *(cudnnReduceTensorOp_t *)attribute(what, CUDNN_ATTR_REDUCTION_OPERATOR, NULL) == CUDNN_REDUCE_TENSOR_MAX;
    const tensor *x = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    const tensor *y = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    int64_t at[RANK] = {0};
    do {
        int64_t group[RANK], in[RANK] = {0};
        float total = max ? -INFINITY : 0;
        for (int k = 0; k < RANK; k++)
            group[k] = x->is.dims[k] / y->is.dims[k];
        do {
            int64_t from[RANK];
            for (int k = 0; k < RANK; k++)
                from[k] = at[k] * group[k] + in[k];
            float v = get(x, from, x->is.dims);
            total = max ? fmaxf(total, v) : total + v;
        } while (next(in, group));
        put(y, at, total);
    } while (next(at, y->is.dims));
}

/* The same elements with other strides. */
static void compute_reshape(memory *m, const fake_descriptor *d)
{
    const tensor *x = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    tensor *y = tensor_of(m, part(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    int64_t at[RANK] = {0};
    if (x->data) {
        free(y->own);
        y->own = NULL;
        y->data = x->data;
        y->offsets = x->offsets;
        y->is.type = x->is.type;
        return;
    }
    do {
        const int64_t from[RANK] = {at[0], at[1], at[3], at[2]};
        put(y, at, get(x, from, x->is.dims));
    } while (next(at, y->is.dims));
}

static cudnnStatus_t fake_BackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    const fake_descriptor *p = plan, *v = pack;
    int64_t n_operations, n_ids;
    (void)h;
    if (fake_cudnn.execute_fails) return CUDNN_STATUS_EXECUTION_FAILED;
    if (!p->finished || !v->finished) return wrong("executed before its end", (int)p->type, 0);
    memory *m = calloc(1, sizeof *m);
    m->ids = attribute(v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &n_ids);
    m->places = attribute(v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &m->n_places);
    if (n_ids != m->n_places) wrong("identities and places", (int)v->type, 0);
    fake_descriptor **operations = attribute(p->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, &n_operations);
    for (int64_t i = 0; i < n_operations && !fake_cudnn.wrong[0]; i++) {
        const fake_descriptor *d = operations[i];
        if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            compute_matmul(m, d);
        else if (d->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            compute_reduction(m, d);
        else if (d->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
            compute_reshape(m, d);
        else
            compute_pointwise(m, d);
    }
    for (int i = 0; i < m->n; i++)
        free(m->all[i].own);
    free(m);
    fake_cudnn.n_executed++;
    return fake_cudnn.wrong[0] ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

/* ---- the other functions of the library ---- */

static size_t fake_GetVersion(void)
{
    return fake_cudnn.version;
}

static const char *fake_GetErrorString(cudnnStatus_t code)
{
    return code == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS_OF_ANOTHER_KIND";
}

static void fake_GetLastErrorString(char *text, size_t size)
{
    snprintf(text, size, "the stand-in's last words");
}

static cudnnStatus_t fake_Create(cudnnHandle_t *h)
{
    if (fake_cudnn.create_fails) return CUDNN_STATUS_NOT_INITIALIZED;
    fake_cudnn.live++;
    *h = (cudnnHandle_t)malloc(1);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_Destroy(cudnnHandle_t h)
{
    fake_cudnn.live--;
    free(h);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fake_SetStream(cudnnHandle_t h, cudaStream_t stream)
{
    (void)h, (void)stream;
    return CUDNN_STATUS_SUCCESS;
}

void *fake_cudnn_dlopen(const char *name, int flags)
{
    (void)flags;
    return fake_cudnn.no_file || strcmp(name, "libcudnn.so.9") ? NULL : &fake_cudnn;
}

void *fake_cudnn_dlsym(void *file, const char *symbol)
{
    (void)file;
#define FAKE_CALL(name)                                                                                                \
    if (!strcmp(symbol, "cudnn" #name)) {                                                                              \
        __typeof__(&cudnn##name) call = fake_##name;                                                                   \
        void *found;                                                                                                   \
        memcpy(&found, &call, sizeof found);                                                                           \
        return found;                                                                                                  \
    }
    FAKE_CALL(GetVersion)
    FAKE_CALL(GetErrorString)
    FAKE_CALL(GetLastErrorString)
    FAKE_CALL(Create)
    FAKE_CALL(Destroy)
    FAKE_CALL(SetStream)
    FAKE_CALL(BackendCreateDescriptor)
    FAKE_CALL(BackendDestroyDescriptor)
    FAKE_CALL(BackendFinalize)
    FAKE_CALL(BackendSetAttribute)
    FAKE_CALL(BackendGetAttribute)
    FAKE_CALL(BackendExecute)
    return NULL;
}
