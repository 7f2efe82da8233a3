/*
 * dnn_library.h - attention by a library, as a table: cuDNN (library_dnn.c), opened when it is first
 * needed, or a stand-in in tests (tests/support/cuda/fake_library.c).
 *
 * A problem is B sequences of the same causal self-attention: H heads of width K over G kv heads, at
 * most T tokens long. Operands are packed rows; row r of head h begins at element r stride + h K.
 * Sequences lie T rows apart, or where `offsets` say if they are ragged. A plan is what was chosen
 * for one problem; it does not depend on where the operands lie. [step]
 */
#ifndef CUDA_DNN_LIBRARY_H
#define CUDA_DNN_LIBRARY_H
#include <nrl/tensor.h>

typedef enum { DNN_Q = 0, DNN_K, DNN_V, DNN_Y, DNN_DY, DNN_DQ, DNN_DK, DNN_DV, DNN_OPERANDS } dnn_operand;

typedef struct {
    int64_t batch, heads, kv_heads, length, width; /* B H G T K */
    int64_t strides[DNN_OPERANDS];                 /* elements from row to row; 0 = not used */
    uint32_t dtype;                                /* NRL_DTYPE_BF16 or F16 */
    uint32_t ragged, backward, relaxed;            /* no holes: compared whole */
} dnn_problem;

typedef struct {
    void *operands[DNN_OPERANDS];
    int64_t *offsets[DNN_OPERANDS]; /* [B + 1] elements, where ragged */
    int32_t *lengths;               /* [B], where ragged */
    float *stats;                   /* [B, H, T] natural log-sum-exp of scaled scores */
    float *sums;                    /* [B, H, T] room, backward */
    void *workspace;
    float scale;
} dnn_operands;

typedef struct {
    nrl_status (*open)(void **library); /* NRL_ERR_PLUGIN: it cannot be found, or is too old */
    void (*close)(void *library);
    /* *plan NULL with NRL_OK: there is no way that repeats bit for bit (or with `relaxed` none at all)
     * within `most` bytes of workspace; the error text then says what the library said. */
    nrl_status (*plan)(void *library, const dnn_problem *p, size_t most, void **plan, size_t *workspace_bytes);
    void (*plan_free)(void *library, void *plan);
    nrl_status (*run)(void *library, void *plan, const dnn_operands *at, void *stream);
} dnn_library;

const dnn_library *dnn_library_table(void);

#endif
