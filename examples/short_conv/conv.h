/*
 * conv.h - a fused operation with kernels of its own: a causal depthwise convolution over packed segments.
 */
#ifndef SHORT_CONV_H
#define SHORT_CONV_H
#include <nrl/custom_op.h>

/* y[t,c] = silu(sum over k < K of w[c,k] x[t - k, c]), where rows before the segment of t are zero, or those of its
 * shared prompt. x [N,C] and w [C,K] f32. N tokens, C channels, K taps. */
nrl_status short_conv(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *w, nrl_tensor **y);

#endif
