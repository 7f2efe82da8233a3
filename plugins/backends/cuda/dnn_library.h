/*
 * dnn_library.h - an attention library as a table: cuDNN (library_dnn.c), opened on first use, or a
 * stand-in in tests (tests/support/cuda/fake_library.c).
 *
 * A problem is B sequences of the same causal self-attention: H heads of width K over G kv heads, at
 * most T tokens long. Operands are packed rows; row r of head h begins at element r stride + h K.
 * Sequences are T rows apart or, if ragged, at `offsets`. A plan is the choice for one problem and
 * does not depend on the operands' addresses. [step]
 */
#ifndef CUDA_DNN_LIBRARY_H
#define CUDA_DNN_LIBRARY_H
#include <nrl/tensor.h>

typedef enum { DNN_Q = 0, DNN_K, DNN_V, DNN_Y, DNN_DY, DNN_DQ, DNN_DK, DNN_DV, DNN_OPERANDS } dnn_operand;

typedef struct {
    int64_t batch, heads, kv_heads, length, width; /* B H G T K */
    int64_t strides[DNN_OPERANDS];                 /* elements from row to row; 0 = not used */
    uint32_t dtype;                                /* NRL_DTYPE_BF16 or F16 */
    uint32_t ragged, backward, relaxed;            /* no padding: compared as a whole */
} dnn_problem;

typedef struct {
    void *operands[DNN_OPERANDS];
    int64_t *offsets[DNN_OPERANDS]; /* [B + 1] elements, if ragged */
    int32_t *lengths;               /* [B], if ragged */
    float *stats;                   /* [B, H, T] natural log-sum-exp of scaled scores */
    float *sums;                    /* [B, H, T] work space, backward */
    float *dq_sum;                  /* [B, H, T, K] work space, backward and relaxed */
    void *workspace;
    float scale;
} dnn_operands;

typedef struct {
    nrl_status (*open)(void **library); /* NRL_ERR_PLUGIN: not found, or too old */
    void (*close)(void *library);
    /* *plan NULL with NRL_OK: there is no bit-reproducible way (or, with `relaxed`, none at all) within
     * `most` bytes of workspace; the error text then has the library's reason. */
    nrl_status (*plan)(void *library, const dnn_problem *p, size_t most, void **plan, size_t *workspace_bytes);
    void (*plan_free)(void *library, void *plan);
    nrl_status (*run)(void *library, void *plan, const dnn_operands *at, void *stream);
} dnn_library;

const dnn_library *dnn_library_table(void);

#endif
