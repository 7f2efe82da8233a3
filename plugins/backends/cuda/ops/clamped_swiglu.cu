/*
 * clamped_swiglu.cu - the gate of gpt-oss's experts and its gradient: nrl.clamped_swiglu of nrl/operations.h.
 *
 * Columns of x are pairs of a gate and a factor. With both clamped, g and u, and s = sigmoid(alpha g), y = (u + 1) g s.
 */
#include "custom_ops.h"
#include "each.h"

enum { PAIRS = PACK / 2 }; /* of a pack of x */

struct clamped_swiglu {
    float g, u, s;
};

__device__ static inline clamped_swiglu clamped_swiglu_of(const float *pair, float alpha, float limit)
{
    clamped_swiglu p = {fminf(pair[0], limit), fmaxf(-limit, fminf(pair[1], limit)), 0};
    p.s = 1 / (1 + expf(-alpha * p.g));
    return p;
}

struct clamped_swiglu_body { /* of packs of x */
    nrl_mat x, y;
    float alpha, limit;
    __device__ void operator()(place at) const
    {
        pack x_ = mat_load(x, at.row, at.col, at.n);
        for (int k = 0; k < PAIRS; k++) {
            clamped_swiglu p = clamped_swiglu_of(x_.v + 2 * k, alpha, limit);
            if (2 * k < at.n) ((float *)y.data)[at.row * y.stride + at.col / 2 + k] = (p.u + 1) * p.g * p.s;
        }
    }
};

/* A value on its bound still has a gradient. */
struct clamped_swiglu_grad_body {
    nrl_mat x, dy, dx;
    float alpha, limit;
    __device__ void operator()(place at) const
    {
        pack x_ = mat_load(x, at.row, at.col, at.n), dx_ = {};
        for (int k = 0; k < PAIRS; k++) {
            clamped_swiglu p = clamped_swiglu_of(x_.v + 2 * k, alpha, limit);
            float d = 2 * k < at.n ? ((const float *)dy.data)[at.row * dy.stride + at.col / 2 + k] : 0;
            float slope = p.s + alpha * p.g * p.s * (1 - p.s);
            dx_.v[2 * k] = x_.v[2 * k] <= limit ? d * (p.u + 1) * slope : 0;
            dx_.v[2 * k + 1] = fabsf(x_.v[2 * k + 1]) <= limit ? d * p.g * p.s : 0;
        }
        mat_store(dx, at.row, at.col, at.n, dx_);
    }
};

nrl_status cuda_custom_clamped_swiglu(cuda *self, void *stream, const nrl_kernel_args *a)
{
    const nrl_clamped_swiglu_attributes *at = (const nrl_clamped_swiglu_attributes *)a->attributes;
    clamped_swiglu_body body = {a->inputs[0], a->outputs[0], (float)at->alpha, (float)at->limit};
    return each_pack(self, stream, "nrl.clamped_swiglu", body.x.rows, body.x.cols, body);
}

nrl_status cuda_custom_clamped_swiglu_grad(cuda *self, void *stream, const nrl_kernel_args *a)
{
    const nrl_clamped_swiglu_attributes *at = (const nrl_clamped_swiglu_attributes *)a->attributes;
    clamped_swiglu_grad_body body = {a->inputs[0], a->output_grads[0], a->input_grads[0], (float)at->alpha,
                                     (float)at->limit};
    return each_pack(self, stream, "nrl.clamped_swiglu", body.x.rows, body.x.cols, body);
}
