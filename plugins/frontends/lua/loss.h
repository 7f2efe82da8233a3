/*
 * loss.h - a loss of nrl.loss. loss.c reads its definition, loss_call.c runs it, loss_base.c has the
 * plugin that it may extend. A definition has no plugin: each run opens its own.
 */
#ifndef SCRIPT_LOSS_H
#define SCRIPT_LOSS_H
#include "tensor.h"
#include <nrl/host.h>

typedef struct script_loss {
    nrl_algorithm table; /* of a definition: without what its base adds, and n_terms 0 = those of the base */
    script_host *host;
    struct script_loss *next;
    int definition;    /* registry reference of the table given to nrl.loss; 0 until it is read */
    nrl_status failed; /* of `weight`, which cannot return errors: reported by the next call of the loss */
    const char *failure;
    const nrl_node *base_config; /* the definition's `base`; NULL = none */
    const nrl_algorithm *base;   /* NULL = none */
    void *base_self;
    nrl_component *component; /* of the base */
} script_loss;

/* The definition of that name; NULL = none. */
script_loss *script_find_loss(script_host *h, const char *name);
/* A copy of the definition of that name for one run, with its own instance of the base, which is opened by the section
 * `plugins` of that run's config (NULL = none); *out is NULL if there is no definition. Close the run before the copy.
 */
nrl_status script_loss_create(script_host *h, const char *name, const nrl_node *plugins, script_loss **out);
void script_loss_destroy(script_loss *l);

/* Opens the plugin in base_config and adds it to the copy's table; on failure base stays NULL. */
nrl_status loss_base_open(script_loss *l, const nrl_node *plugins);
void loss_base_close(script_loss *l);
/* b:base_weight(), b:base_loss(): a number or tensor, or a list of n_terms of the base. */
int loss_base_push_weight(lua_State *L, const nrl_batch *b);
int loss_base_push_loss(lua_State *L, const nrl_batch *b);

/* Members of the table: they call the script's functions. */
void loss_weight(void *self, const nrl_batch *batch, double *weight);
nrl_status loss_sums(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums);
nrl_status loss_step_end(void *self, const double *sums, const double *weights);
nrl_status loss_state(void *self, nrl_state_io *state_io); /* the base's */
int64_t loss_group(void *self);
nrl_status loss_model(void *self, const nrl_node *config, const nrl_model_info *info, nrl_algorithm_model *out);
void loss_bind(void *self, nrl_param *const *params);
nrl_status loss_open(void *self, const nrl_algorithm_run *run);
nrl_status loss_rollout(void *self, nrl_rollout *rollout);
int64_t loss_updates(void *self);

#endif
