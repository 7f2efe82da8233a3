/*
 * optimizer.h - the update of local slices. An optimizer does not know how parameters are sharded.
 *
 * Before it calls `update`, the core has reduced the gradients and computed their norm. Values that
 * change each step are passed in the step parameters. `grad_scale` combines clipping, 1/W and 1/loss_scale:
 * the true gradient is grad * grad_scale.
 */
#ifndef NRL_OPTIMIZER_H
#define NRL_OPTIMIZER_H
#include <nrl/algorithm.h>
#include <nrl/param.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_MAX_STATES = 4 };

/* What one call of `update` works on: elements of one parameter or, if the optimizer declares its states (`declare`
 * below), of one part of a parameter. All tensors have n elements and are f32, except `work`, and in an `encoded`
 * update `low` (u16) and `grad` (f32 or bf16), and declared states. */
typedef struct {
    nrl_param *param;
    int64_t n;
    nrl_tensor *master; /* updated in place */
    nrl_tensor *grad;
    nrl_tensor *states[NRL_MAX_STATES];
    nrl_tensor *work; /* the compute weight, written after the update; NULL if master is WEIGHT itself */
    bool decay;
    int32_t part;    /* with `declare`: index of the part; granularity MATRIX: all of it, in row-major order */
    nrl_tensor *low; /* split16 (param.h): master is NULL and its bits are in work and low; else NULL */
} nrl_slice;

typedef struct {
    uint32_t size;
    int64_t step; /* this update, from 1 */
    double lr;
    double grad_scale;
    uint32_t slice_size, reserved; /* stride of the slices of `update` */
    double grad_norm;              /* of the whole true gradient, before clipping */
} nrl_step_params;

/* Slice i of the slices of `update`. */
static inline nrl_slice *nrl_slice_at(nrl_slice *slices, int64_t i, const nrl_step_params *step)
{
    return (nrl_slice *)(void *)((char *)slices + (size_t)i * step->slice_size);
}

/* What the core must not divide. If a strategy has divided it, the core gathers it: one rank, chosen so that all have
 * about the same work, gets gradient and master of the whole part in f32, updates it, and sends the master back. */
typedef enum {
    NRL_OPTIMIZER_NONE = 0,
    NRL_OPTIMIZER_ELEMENT = 1, /* nothing: works on each element alone */
    NRL_OPTIMIZER_MATRIX = 2,  /* whole parts of parameters: factored or orthogonalized updates */
    NRL_OPTIMIZER_BLOCK = 3    /* blocks of consecutive elements of a part, in row-major order */
} nrl_optimizer_granularity;

typedef enum {
    NRL_STATE_NONE = 0,
    NRL_STATE_ELEMENT = 1, /* one entry an element */
    NRL_STATE_BLOCK = 2,   /* one entry for each `block` elements of the part; the last block may be smaller */
    NRL_STATE_OWN = 3      /* `dims`, independent of the part; granularity MATRIX only */
} nrl_state_shape;

/* A state tensor of one part of a parameter. Checkpoints hold it under the names of the part and of the state in the
 * shape of the whole part (ELEMENT: the part's dims; BLOCK: [number of blocks]; OWN: dims), so any number of ranks and
 * any strategy can continue from it with the same bits. */
typedef struct {
    const char *name;         /* "exp_avg"; lives as long as the instance */
    uint32_t dtype;           /* nrl_dtype */
    uint32_t shape;           /* nrl_state_shape */
    int32_t n_dims, reserved; /* OWN */
    int64_t dims[NRL_MAX_DIMS];
    double initial; /* of every entry at the start */
} nrl_state;
NRL_STATIC_ASSERT(sizeof(nrl_state) == 64, "nrl_state is frozen: declarations contain an array");

/* The states of one part of a trained parameter. */
typedef struct {
    uint32_t size;
    const nrl_param *param;
    const nrl_part *part; /* name and dims of the whole part; layouts are not known yet */
    /* answers; zero before the call */
    uint32_t granularity; /* nrl_optimizer_granularity */
    uint32_t n_states;
    int64_t block; /* elements of a block, for granularity BLOCK and for states of shape BLOCK */
    nrl_state states[NRL_MAX_STATES];
} nrl_declaration;

typedef struct {
    nrl_plugin plugin;
    uint32_t granularity;                                   /* nrl_optimizer_granularity; without `declare` */
    uint32_t n_states;                                      /* 0 .. 4 f32 tensors an element, zero at the start */
    const char *const *state_names;                         /* n_states names, as in checkpoints: "exp_avg" */
    nrl_status (*create)(const void *options, void **self); /* [main] optional */
    void (*destroy)(void *self);                            /* [main] */
    /* [step] updates these slices, which nrl_slice_at finds. The core calls it for some of the slices at a time, so
     * that temporary tensors are freed between calls, and raises the versions of WEIGHT afterwards. Without `encoded`
     * it is one slice at a time. */
    nrl_status (*update)(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_step_params *step);
    /* true: `update` accepts slices with `low` and with a bf16 gradient, as nrl_slice_adamw does. false: the
     * core passes an f32 copy of one slice at a time and encodes the result. */
    bool encoded;
    /* [main] optional: answers for one part, the same on every rank and in every run with the same options. NULL: every
     * part has `granularity` and n_states f32 states of shape ELEMENT. n_states and state_names of the table are not
     * read if there is a declare. */
    nrl_status (*declare)(void *self, nrl_declaration *part);
    /* [main] optional: numbers of the instance that must survive a restart, passed to nrl_state_io_f64 and
     * nrl_state_io_i64; equal on all ranks. Called to save and to load. */
    nrl_status (*state)(void *self, nrl_state_io *state_io);
    /* Meaning of all states, saved with them; a checkpoint of another version is refused. Raise it when the same names
     * begin to mean something else. */
    uint32_t state_version, reserved;
    /* optional, NULL-ended: operations of nrl/backend.h that not every backend has and that `update` calls; a run on a
     * backend without one of them is refused when it is opened */
    const char *const *ops;
    /* [step] optional, for an update with the gradient at other weights nearby. Called before `update` with the
     * gradient at the current weights, to move only the masters and `work`, elementwise whatever the granularity, and
     * with an unclipped grad_scale; slices are f32, undivided or not, without states of declared parts. The core then
     * walks the same global batch again, restores the weights bit for bit, and calls `update` with the new gradient */
    nrl_status (*perturb)(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_step_params *step);
    /* true: `update` changes tensors by nrl_slice_adamw and nrl_slices_adamw alone and does not read grad_scale and
     * grad_norm, which are NaN in a step whose update is queued before the host knows them: the device has them, and
     * may omit the update */
    bool takes_decision;
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
/* The same for the slices of `update`, with the same bits: a backend may update many small slices in one pass. */
NRL_API nrl_status nrl_slices_adamw(nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_adamw *adamw,
                                    const nrl_step_params *step);

/* Block-wise quantization by a table (Dettmers et al. 2022): x[i] = code[q[i]] * scale[i / block]. All tensors are
 * contiguous: x [n] f32, q [n] u8, scale [ceil(n / block)] f32, code [256] f32, ascending, within [-1, 1].
 * nrl_quantize: scale is the largest |x| of the block; q is the entry nearest to x / scale, the lower one of two; a
 * negative number never becomes an entry of 0 or more if there is a lower one. A block of zeros has scale 0 and q 0.
 * NRL_ERR_PLUGIN if the backend has no op 'quantize'. [step] */
NRL_API nrl_status nrl_quantize(nrl_ctx *ctx, const nrl_tensor *x, const nrl_tensor *code, int64_t block, nrl_tensor *q,
                                nrl_tensor *scale);
NRL_API nrl_status nrl_dequantize(nrl_ctx *ctx, const nrl_tensor *q, const nrl_tensor *scale, const nrl_tensor *code,
                                  int64_t block, nrl_tensor *x);
/* The table of 256 numbers at `code` as a tensor: they are copied to the device once, at the first call with this
 * address, and must not change as long as the context lives. The tensor belongs to the context. [step] */
NRL_API nrl_status nrl_quantize_code(nrl_ctx *ctx, const float *code, nrl_tensor **out);

#ifdef __cplusplus
}
#endif
#endif
