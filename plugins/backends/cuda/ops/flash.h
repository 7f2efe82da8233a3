/*
 * flash.h - the operands of the attention kernels, one struct for all of them, and the functions that
 * launch them.
 *
 * Legend: N queries, M keys (rows of a packed batch), H heads, G kv heads, K head width, S segments.
 * lse and delta are f32 [H, N]; delta[h, i] = sum over K of dy y, which the backward passes need.
 */
#ifndef CUDA_OPS_FLASH_H
#define CUDA_OPS_FLASH_H
#include "flash_tile.h"
#include <nrl/backend.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    void *data;
    int64_t stride; /* elements from row to row */
} flash_matrix;

typedef struct {
    flash_matrix q, k, v, y, dy, dq, dk, dv;
    float *lse; /* may be NULL in forward */
    float *delta;
    int64_t lse_stride, n_rows, n_key_rows; /* N, M */
    int64_t n_counted, n_counted_keys;      /* the rows that cu_q and cu_k count, of which N and M are there */
    flash_part part;
    const int32_t *cu_q, *cu_k, *prefix;
    int32_t n_segments, n_heads, n_kv_heads, head_dim, window;
    float scale;
    float soft_cap; /* 0 = none */
    bool vectors;   /* all rows can be read 16 bytes at a time */
    /* [H], NULL = none: what a score loses per token of distance (plain_* alone); scores of keys with value 0, see
     * nrl_biased_attention */
    const double *slopes;
    const float *sinks;
    const float *cos, *sin; /* [N, K/2]; NULL = dq and dk are not rotated back. See flash_rotates */
} flash_params;

enum { FLASH_MOST_WIDTH = 256 };

/* Launch the kernels on the stream, for at least one query; the caller checks for launch errors
 * afterwards. flash_*: dtype is BF16 or F16; return a code of the runtime if the device cannot hold a
 * block. The backward functions need delta. */
int flash_forward(const flash_params *p, uint32_t dtype, void *stream);
int flash_backward(const flash_params *p, uint32_t dtype, void *stream);
/* Whether flash_backward can rotate pairs half a head apart: both are in registers of one thread. At width 80 registers
 * would spill in the loop. */
static inline bool flash_rotates(int64_t head_dim)
{
    return head_dim == 64 || head_dim == 96 || head_dim == 128;
}
void plain_forward(const flash_params *p, void *stream);  /* f32 */
void plain_backward(const flash_params *p, void *stream); /* gradients with data NULL are not computed */
/* dsinks [H] = - sum over N of exp(sink - lse) delta */
void sinks_backward(const flash_params *p, float *dsinks, void *stream);
void attention_delta(const flash_params *p, uint32_t dtype, void *stream);
/* Merges y and lse into those for other keys: y f32 [N,H*K], lse as p's. */
void attention_merge(const flash_params *p, uint32_t dtype, const flash_matrix *y, float *lse, int64_t lse_stride,
                     void *stream);

#ifdef __cplusplus
}
#endif
#endif
