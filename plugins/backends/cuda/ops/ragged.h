/*
 * ragged.h - inputs of an attention library besides the operands of packed sequences: lengths, begins,
 * and log-sum-exps as a dense [B, H, T].
 *
 * Legend: S sequences, B >= S entries for them (entries beyond S are empty), N rows, H heads, T
 * maximum number of rows of a sequence.
 */
#ifndef CUDA_OPS_RAGGED_H
#define CUDA_OPS_RAGGED_H
#include "dnn_library.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const int32_t *cu; /* [S + 1] */
    int32_t n_segments, batch, n_heads;
    int64_t length; /* T */
    float *lse;     /* [H, N] */
    int64_t lse_stride;
    float *stats;                   /* [B, H, T] */
    int32_t *lengths;               /* [B] */
    int64_t *offsets[DNN_OPERANDS]; /* [B + 1], NULL = not needed */
    int64_t strides[DNN_OPERANDS];
} ragged_params;

void ragged_places(const ragged_params *p, void *stream);    /* fills lengths and offsets */
void ragged_stats_in(const ragged_params *p, void *stream);  /* lse to stats, 0 beyond a sequence */
void ragged_stats_out(const ragged_params *p, void *stream); /* stats to lse */

#ifdef __cplusplus
}
#endif
#endif
