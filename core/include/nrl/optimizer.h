/*
 * optimizer.h - the update, on local slices. It never learns how parameters are sharded.
 *
 * Before `update` the core has reduced and measured gradients. Values that change each step come in
 * the step block. `grad_scale` carries clipping, 1/W and 1/loss-scale together: the true gradient is
 * grad * grad_scale.
 */
#ifndef NRL_OPTIMIZER_H
#define NRL_OPTIMIZER_H
#include <nrl/param.h>
#ifdef __cplusplus
extern "C" {
#endif

/* One parameter's local elements. All tensors have n elements, f32 except `work`, and in an `encoded`
 * update `low`, and `grad` that may be bf16. */
typedef struct {
    nrl_param *param;
    int64_t n;
    nrl_tensor *master; /* updated in place */
    nrl_tensor *grad;
    nrl_tensor *states[4];
    nrl_tensor *work; /* low-precision copy written after the update; NULL when master is WORK */
    bool decay;
    nrl_tensor *low;  /* split16 (param.h): master is NULL, and in work and low; else NULL */
} nrl_slice;

typedef struct {
    uint32_t size;
    int64_t step; /* updates done before this one + 1 */
    double lr;
    double grad_scale;
} nrl_step_block;

typedef enum {
    NRL_OPTIMIZER_NONE = 0,
    NRL_OPTIMIZER_ELEMENT, /* each element alone: any slice will do */
    NRL_OPTIMIZER_MATRIX   /* needs whole matrices (Muon, Adafactor): forbids flat cuts */
} nrl_optimizer_reach;

typedef struct {
    nrl_plugin plugin;
    uint32_t reach;                       /* nrl_optimizer_reach */
    uint32_t n_states;                    /* 0 .. 4 tensors an element, zero at the start */
    const char *const *state_names;       /* n_states names, as in checkpoints: "exp_avg" */
    nrl_status (*create)(const void *options, void **self); /* [main] optional */
    void (*destroy)(void *self);                            /* [main] */
    /* [step] updates these slices; called for a part of them at a time, so that what it computes
     * on the way is freed before the next. Versions of WORK are raised by the core afterwards */
    nrl_status (*update)(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                         const nrl_step_block *step);
    /* update takes slices with `low` and with a bf16 gradient, as nrl_slice_adamw does. false: the core
     * hands it an f32 copy of one slice at a time, and stores it again */
    bool encoded;
} nrl_optimizer;

/* AdamW on one slice, one fused pass on the slice's backend (Loshchilov and Hutter 2019):
 *   g = grad * grad_scale;  w -= lr wd w;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   w -= lr (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps);  work = w rounded
 * states[0] = m, states[1] = v. Takes every encoding of master and gradient. */
typedef struct {
    uint32_t size;
    double beta1, beta2, eps, weight_decay;
} nrl_adamw;
NRL_API nrl_status nrl_slice_adamw(nrl_ctx *ctx, nrl_slice *slice, const nrl_adamw *adamw,
                                   const nrl_step_block *step);

#ifdef __cplusplus
}
#endif
#endif
