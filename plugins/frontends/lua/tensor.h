/*
 * tensor.h - tensors and batches as Lua values: handles that are valid only during the call of the
 * loss that created them. Shared by tensor.c, batch.c, loss.c and gradcheck.c.
 */
#ifndef SCRIPT_TENSOR_H
#define SCRIPT_TENSOR_H
#include "host.h"
#include <nrl/algorithm.h>

void tensor_push(lua_State *L, nrl_tensor *t);
nrl_tensor *tensor_at(lua_State *L, int idx); /* raises if the value is not a tensor, or belongs to an earlier call */
/* A tensor, or a number as [1]. */
nrl_tensor *tensor_or_number_at(lua_State *L, int idx);
nrl_ctx *tensor_context(lua_State *L); /* raises outside a loss */
/* Raises the failure of an operation; shapes that do not match are an error of the script. */
void tensor_try(lua_State *L, nrl_status st);

void batch_push(lua_State *L, const nrl_batch *b);

/* Index of a metric row of the current loss, raises for an unknown name. (loss.c) */
uint32_t loss_metric(lua_State *L, const char *name, uint32_t *reduce);

int script_gradcheck(lua_State *L); /* gradcheck.c */

#endif
