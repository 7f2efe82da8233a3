/*
 * param.c - the functions of nrl/param.h, and parameters as matrices for operations.
 */
#include "tensor/param.h"
#include "tensor/internal.h"
#include <stdatomic.h>
#include <string.h>

const char *nrl_param_name(const nrl_param *p)
{
    return p->name;
}

int nrl_param_n_dims(const nrl_param *p)
{
    return p->n_dims;
}

int64_t nrl_param_dim(const nrl_param *p, int i)
{
    if (i < 0) i += p->n_dims;
    return i >= 0 && i < p->n_dims ? p->dims[i] : 1;
}

int64_t nrl_param_numel(const nrl_param *p)
{
    return p->numel;
}

int nrl_param_n_parts(const nrl_param *p)
{
    return p->n_parts;
}

nrl_part *nrl_param_part(nrl_param *p, int i)
{
    return i >= 0 && i < p->n_parts ? &p->parts[i] : NULL;
}

bool nrl_param_trained(const nrl_param *p)
{
    return p->trained;
}

bool nrl_param_decays(const nrl_param *p)
{
    return p->decay;
}

uint32_t nrl_param_tp(const nrl_param *p)
{
    return p->tp;
}

bool nrl_param_of_algorithm(const nrl_param *p)
{
    return p->of_algorithm;
}

int32_t nrl_param_expert(const nrl_param *p)
{
    return p->expert;
}

void nrl_param_bind(nrl_param *p, nrl_slot slot, nrl_tensor *t)
{
    NRL_ASSERT(slot, >, NRL_SLOT_NONE);
    NRL_ASSERT(slot, <, NRL_SLOT_COUNT);
    p->slots[slot] = t;
    if (slot != NRL_SLOT_GRAD && slot != NRL_SLOT_GRAD_SHARD) p->version++; /* nothing is derived from gradients */
}

nrl_tensor *nrl_param_tensor(const nrl_param *p, nrl_slot slot)
{
    return slot > NRL_SLOT_NONE && slot < NRL_SLOT_COUNT ? p->slots[slot] : NULL;
}

uint64_t nrl_param_version(const nrl_param *p)
{
    return p->version;
}

void nrl_param_touch(nrl_param *p)
{
    p->version++;
}

bool nrl_param_grad_is_empty(const nrl_param *p)
{
    return p->grad_is_empty;
}

void nrl_param_set_grad_is_empty(nrl_param *p, bool grad_is_empty)
{
    p->grad_is_empty = grad_is_empty;
}

void param_init(nrl_param *p, nrl_part *part, const char *name, int n_dims, const int64_t *dims)
{
    /* Backends cache packed copies under this key, so a key is never reused in a process. */
    static atomic_uint_fast64_t last_key;
    *part = (nrl_part){.name = name, .n_dims = n_dims};
    *p = (nrl_param){.name = name,
                     .n_dims = n_dims,
                     .numel = 1,
                     .n_parts = 1,
                     .parts = part,
                     .trained = true,
                     .grad_is_empty = true,
                     .init_scale = 1,
                     .index = -1,
                     .key = atomic_fetch_add(&last_key, 1) + 1,
                     .version = 1};
    for (int i = 0; i < n_dims; i++) {
        p->dims[i] = part->dims[i] = dims[i];
        p->numel *= dims[i];
    }
    p->whole = p->numel;
    p->lr_ratio = 1;
}

/* A slot may be flat or have the parameter's shape; operations see [dims[0], rest] or 1 x n. */
static nrl_status slot_mat(const nrl_param *p, nrl_slot slot, const char *slot_name, nrl_mat *mat)
{
    const nrl_tensor *t = p->slots[slot];
    if (!t || !t->data) return nrl_fail(NRL_ERR_BUG, "parameter '%s' has no storage in slot %s", p->name, slot_name);
    if (t->numel != p->numel || !tensor_is_contiguous(t))
        return nrl_fail(NRL_ERR_BUG, "slot %s of parameter '%s' %s is bound to a tensor %s", slot_name, p->name,
                        dims_shape(p->n_dims, p->dims).text, tensor_shape(t).text);
    int64_t rows = p->n_dims > 1 ? p->dims[0] : 1;
    int64_t cols = rows ? p->numel / rows : 0;
    *mat = (nrl_mat){t->data, (uint32_t)t->dtype, 0, rows, cols, cols};
    return NRL_OK;
}

nrl_status param_work(const nrl_param *p, nrl_mat *mat)
{
    return slot_mat(p, NRL_SLOT_WEIGHT, "WEIGHT", mat);
}

nrl_status param_grad(nrl_param *p, nrl_mat *mat, bool *grad_is_empty)
{
    *mat = (nrl_mat){0};
    *grad_is_empty = false;
    if (!p || !p->trained) return NRL_OK;
    NRL_TRY(slot_mat(p, NRL_SLOT_GRAD, "GRAD", mat));
    if (mat->dtype != NRL_DTYPE_F32)
        return nrl_fail(NRL_ERR_BUG, "slot GRAD of parameter '%s' is %s, expected f32", p->name,
                        nrl_dtype_name((nrl_dtype)mat->dtype));
    *grad_is_empty = p->grad_is_empty;
    p->grad_is_empty = false;
    return NRL_OK;
}
