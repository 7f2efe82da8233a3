/*
 * parallel.h - a strategy: what lives where, and what happens around each visit of a unit.
 *
 * The core expands a step's schedule into an array of visits and walks it. A strategy writes each
 * parameter's layout once (`plan`), then prefetches, gathers and reduces in `enter` and `leave`. The
 * walk knows no strategy; with none, nothing is called.
 */
#ifndef NRL_PARALLEL_H
#define NRL_PARALLEL_H
#include <nrl/collective.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    NRL_PASS_NONE = 0,
    NRL_PASS_FORWARD,
    NRL_PASS_RECOMPUTE, /* forward again, before its backward */
    NRL_PASS_BACKWARD
} nrl_pass;

typedef struct {
    uint32_t pass;     /* nrl_pass */
    int32_t instance;  /* 0 the policy, 1 the reference */
    int32_t unit;      /* of the model */
    int32_t micro;     /* micro-batch of this step */
    int32_t stage;     /* pipeline stage, 0 without one */
    int32_t n_uses;    /* parameters this visit reads */
    int32_t n_final;   /* parameters whose gradient of this step is complete after this visit */
    int32_t reserved;
    nrl_param *const *uses;
    nrl_param *const *final;
} nrl_visit;

typedef struct nrl_mesh nrl_mesh;
NRL_API int32_t nrl_mesh_size(const nrl_mesh *mesh, const char *axis);  /* 1 for unknown axes */
NRL_API int32_t nrl_mesh_coord(const nrl_mesh *mesh, const char *axis); /* 0 for unknown axes */

typedef struct {
    nrl_plugin plugin;
    const char *axis; /* the axis it serves: "data", "tensor", "pipeline" */
    nrl_status (*create)(const void *options, nrl_mesh *mesh, void **self); /* [main] */
    void (*destroy)(void *self);                                           /* [main] */
    /* [main] writes the layouts of all parts; allocates nothing */
    nrl_status (*plan)(void *self, nrl_param *const *params, int32_t n_params);
    /* [main] after planning: allocates and binds storage for this rank's slices */
    nrl_status (*bind)(void *self, nrl_ctx *ctx);
    nrl_status (*enter)(void *self, nrl_ctx *ctx, const nrl_visit *visits, int64_t i); /* [step] */
    nrl_status (*leave)(void *self, nrl_ctx *ctx, const nrl_visit *visits, int64_t i); /* [step] */
    nrl_status (*finish)(void *self, nrl_ctx *ctx); /* [step] gradients are whole afterwards */
    nrl_status (*state)(void *self, void *visitor); /* [main] what survives a restart */
} nrl_parallel;

#ifdef __cplusplus
}
#endif
#endif
