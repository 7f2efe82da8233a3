/*
 * optimizer.h - the update of local slices. An optimizer does not know how parameters are sharded.
 *
 * Before it calls `update`, the core has reduced the gradients and computed their norm. Values that
 * change each step are passed in the step parameters. `grad_scale` combines clipping, 1/W and 1/loss_scale:
 * the true gradient is grad * grad_scale.
 */
#ifndef NRL_OPTIMIZER_H
#define NRL_OPTIMIZER_H
#include <nrl/param.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The local elements of one parameter. All tensors have n elements and are f32, except `work`, and in an
 * `encoded` update `low` (u16) and `grad` (f32 or bf16). */
typedef struct {
    nrl_param *param;
    int64_t n;
    nrl_tensor *master; /* updated in place */
    nrl_tensor *grad;
    nrl_tensor *states[4];
    nrl_tensor *work; /* the compute weight, written after the update; NULL if master is WEIGHT itself */
    bool decay;
    nrl_tensor *low; /* split16 (param.h): master is NULL and its bits are in work and low; else NULL */
} nrl_slice;

typedef struct {
    uint32_t size;
    int64_t step; /* this update, from 1 */
    double lr;
    double grad_scale;
} nrl_step_params;

typedef enum {
    NRL_OPTIMIZER_NONE = 0,
    NRL_OPTIMIZER_ELEMENT, /* works on each element alone: any slice will do */
    NRL_OPTIMIZER_MATRIX   /* needs whole matrices (Muon, Adafactor): forbids flat placements */
} nrl_optimizer_granularity;

typedef struct {
    nrl_plugin plugin;
    uint32_t granularity;                                   /* nrl_optimizer_granularity */
    uint32_t n_states;                                      /* 0 .. 4 tensors an element, zero at the start */
    const char *const *state_names;                         /* n_states names, as in checkpoints: "exp_avg" */
    nrl_status (*create)(const void *options, void **self); /* [main] optional */
    void (*destroy)(void *self);                            /* [main] */
    /* [step] updates these slices. The core calls it for some of the slices at a time, so that temporary
     * tensors are freed between calls, and raises the versions of WEIGHT afterwards. */
    nrl_status (*update)(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_step_params *step);
    /* true: `update` accepts slices with `low` and with a bf16 gradient, as nrl_slice_adamw does. false: the
     * core passes an f32 copy of one slice at a time and encodes the result. */
    bool encoded;
} nrl_optimizer;

/* AdamW on one slice in one fused pass on the slice's backend (Loshchilov and Hutter 2019):
 *   g = grad * grad_scale;  w -= lr wd w;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   w -= lr (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps);  work = w rounded
 * states[0] = m, states[1] = v. Accepts every encoding of master and gradient. */
typedef struct {
    uint32_t size;
    double beta1, beta2, eps, weight_decay;
} nrl_adamw;
NRL_API nrl_status nrl_slice_adamw(nrl_ctx *ctx, nrl_slice *slice, const nrl_adamw *adamw, const nrl_step_params *step);

#ifdef __cplusplus
}
#endif
#endif
