/*
 * params.c - slots of parameters as a checkpoint's tensors.
 */
#include "checkpoint/params.h"
#include <stdio.h>
#include <string.h>

/* One part inside a slot's tensor: parts are stacked, so each is a flat range of elements. */
typedef struct {
    nrl_ctx *ctx;
    nrl_tensor *t;
    int64_t begin; /* elements of t before the part */
} place;

typedef nrl_status (*part_visit)(void *user, const checkpoint_tensor *part, place *at);

static nrl_tensor *weight_of(const nrl_param *p)
{
    nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER);
    return master ? master : nrl_param_tensor(p, NRL_SLOT_WORK);
}

/* Calls visit for each part of one slot of p. */
static nrl_status each_part(nrl_ctx *ctx, const nrl_param *p, nrl_tensor *t, const char *slot,
                            part_visit visit, void *user)
{
    place at = {ctx, t, 0};
    if (!t || nrl_tensor_numel(t) != p->numel)
        return nrl_fail(NRL_ERR_BUG, "%s of parameter '%s' is not whole", slot, p->name);
    for (int i = 0; i < p->n_parts; i++) {
        const nrl_part *part = &p->parts[i];
        checkpoint_tensor c = {
            .name = part->name, .slot = slot, .dtype = nrl_tensor_dtype(t), .n_dims = part->n_dims};
        int64_t n = 1;
        for (int d = 0; d < part->n_dims; d++)
            n *= c.dims[d] = part->dims[d];
        NRL_TRY(visit(user, &c, &at));
        at.begin += n;
    }
    NRL_ASSERT(at.begin, ==, p->numel);
    return NRL_OK;
}

static nrl_status each_tensor(nrl_ctx *ctx, const model *m, const params_states *states,
                              part_visit visit, void *user)
{
    for (int32_t i = 0; i < m->n_params; i++) {
        const nrl_param *p = m->params[i];
        NRL_TRY(each_part(ctx, p, weight_of(p), "weight", visit, user));
        for (uint32_t k = 0; states && p->trained && k < states->n; k++)
            NRL_TRY(each_part(ctx, p, nrl_param_tensor(p, (nrl_slot)(NRL_SLOT_STATE0 + k)),
                              states->names[k], visit, user));
    }
    return NRL_OK;
}

/* A view of bytes [begin, begin + size) of the part. */
static nrl_status view_bytes(place *at, int64_t begin, size_t size, nrl_tensor **view)
{
    int64_t width = (int64_t)nrl_dtype_size(nrl_tensor_dtype(at->t));
    return tensor_flat_view(at->ctx, at->t, at->begin + begin / width, (int64_t)size / width, view);
}

/* ---- saving ---- */

static nrl_status read_bytes(void *user, int64_t begin, size_t size, void *to)
{
    place *at = user;
    nrl_tensor *view;
    NRL_TRY(view_bytes(at, begin, size, &view));
    nrl_status st = tensor_read(at->ctx, view, to);
    tensor_release(at->ctx, view);
    return st;
}

static nrl_status save_part(void *user, const checkpoint_tensor *part, place *at)
{
    return checkpoint_add_tensor(user, part, read_bytes, at);
}

nrl_status params_save(nrl_ctx *ctx, const model *m, const params_states *states,
                       checkpoint_writer *w)
{
    return each_tensor(ctx, m, states, save_part, w);
}

static nrl_status count_part(void *user, const checkpoint_tensor *part, place *at)
{
    int64_t n = (int64_t)nrl_dtype_size(part->dtype);
    (void)at;
    for (int d = 0; d < part->n_dims; d++)
        n *= part->dims[d];
    *(int64_t *)user += n;
    return NRL_OK;
}

int64_t params_bytes(const model *m, const params_states *states)
{
    int64_t total = 0;
    if (each_tensor(NULL, m, states, count_part, &total) != NRL_OK) return 0;
    return total;
}

/* ---- loading ---- */

static nrl_status write_bytes(void *user, int64_t begin, size_t size, const void *from)
{
    place *at = user;
    nrl_tensor *view;
    NRL_TRY(view_bytes(at, begin, size, &view));
    nrl_status st = tensor_write(at->ctx, view, from);
    tensor_release(at->ctx, view);
    return st;
}

typedef struct {
    char text[128];
} shape_text;

static shape_text shape_of(const checkpoint_tensor *t)
{
    shape_text s;
    int n = snprintf(s.text, sizeof s.text, "%s [", nrl_dtype_name(t->dtype));
    for (int i = 0; i < t->n_dims; i++)
        n += snprintf(s.text + n, sizeof s.text - (size_t)n, "%s%lld", i ? "," : "",
                      (long long)t->dims[i]);
    snprintf(s.text + n, sizeof s.text - (size_t)n, "]");
    return s;
}

static bool is_alike(const checkpoint_tensor *a, const checkpoint_tensor *b)
{
    return a->dtype == b->dtype && a->n_dims == b->n_dims &&
           !memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof *a->dims);
}

static nrl_status load_part(void *user, const checkpoint_tensor *part, place *at)
{
    const checkpoint *c = user;
    int64_t i = checkpoint_find_tensor(c, part->name, part->slot);
    if (i < 0)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: has no %s of '%s': it was saved from another model or "
                        "optimizer",
                        checkpoint_dir(c), part->slot, part->name);
    const checkpoint_tensor *saved = checkpoint_tensor_at(c, (size_t)i);
    if (!is_alike(saved, part))
        return nrl_fail(NRL_ERR_CONFIG, "%s: %s of '%s' is %s, expected %s", checkpoint_dir(c),
                        part->slot, part->name, shape_of(saved).text, shape_of(part).text);
    return checkpoint_read_tensor(c, (size_t)i, write_bytes, at);
}

nrl_status params_load(nrl_ctx *ctx, const model *m, const params_states *states,
                       const checkpoint *c)
{
    NRL_TRY(each_tensor(ctx, m, states, load_part, (void *)c));
    for (int32_t i = 0; i < m->n_params; i++)
        nrl_param_touch(m->params[i]);
    return NRL_OK;
}
