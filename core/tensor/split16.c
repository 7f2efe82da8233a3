/*
 * split16.c - splits and joins f32 values, and reads and writes a parameter's exact values, through a temporary f32
 * tensor on the device if they are stored otherwise.
 */
#include "tensor/split16.h"
#include "tensor/internal.h"

enum { WINDOW = 1 << 20 }; /* elements of the temporary f32 tensor */

/* ---- the operation ---- */

static nrl_mat flat(const nrl_tensor *t)
{
    return (nrl_mat){t->data, (uint32_t)t->dtype, 0, 1, t->numel, t->numel};
}

static nrl_status need(const nrl_tensor *t, nrl_dtype dtype, int64_t n)
{
    if (t->data && t->dtype == dtype && t->numel == n && tensor_is_contiguous(t)) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "split16: a tensor is %s %s, expected %s [%lld]", nrl_dtype_name(t->dtype),
                    tensor_shape(t).text, nrl_dtype_name(dtype), (long long)n);
}

static nrl_status call(nrl_ctx *ctx, bool join, const nrl_tensor *wide, const nrl_tensor *high, const nrl_tensor *low)
{
    nrl_split16_args a = {.size = sizeof a, .join = join, .wide = flat(wide), .high = flat(high)};
    if (!wide->numel && !high->numel) return NRL_OK;
    NRL_TRY(need(wide, NRL_DTYPE_F32, wide->numel));
    NRL_TRY(need(high, NRL_DTYPE_BF16, wide->numel));
    if (low) NRL_TRY(need(low, NRL_DTYPE_U16, wide->numel));
    if (low) a.low = flat(low);
    return backend_split16(ctx, &a);
}

nrl_status split16_split(nrl_ctx *ctx, const nrl_tensor *wide, nrl_tensor *high, nrl_tensor *low)
{
    return call(ctx, false, wide, high, low);
}

nrl_status split16_join(nrl_ctx *ctx, const nrl_tensor *high, const nrl_tensor *low, nrl_tensor *wide)
{
    return call(ctx, true, wide, high, low);
}

nrl_status nrl_master_round(nrl_ctx *ctx, const nrl_tensor *master, nrl_tensor *work)
{
    bool halves = master->dtype == NRL_DTYPE_F32 && work->dtype == NRL_DTYPE_BF16;
    return halves ? call(ctx, false, master, work, NULL) : nrl_tensor_copy(ctx, master, work);
}

/* ---- exact values ---- */

bool param_is_split(const nrl_param *p)
{
    return p->slots[NRL_SLOT_LO16] != NULL;
}

nrl_tensor *param_exact(const nrl_param *p)
{
    nrl_tensor *master = p->slots[param_is_split(p) ? NRL_SLOT_HI16 : NRL_SLOT_MASTER];
    return master ? master : p->slots[NRL_SLOT_WEIGHT];
}

int64_t param_exact_numel(const nrl_param *p)
{
    const nrl_tensor *t = param_exact(p);
    return t ? t->numel : 0;
}

/* Views of a range: high and low, or only high. */
typedef struct {
    nrl_tensor *high, *low, *wide;
} range;

static void stretch_close(nrl_ctx *ctx, const range *s)
{
    tensor_release(ctx, s->high);
    tensor_release(ctx, s->low);
    tensor_release(ctx, s->wide);
}

/* Allocates s->wide if the stored values are not f32. */
static nrl_status stretch_open(nrl_ctx *ctx, const nrl_param *p, int64_t begin, int64_t n, range *s)
{
    *s = (range){0};
    NRL_TRY(tensor_flat_view(ctx, param_exact(p), begin, n, &s->high));
    if (param_is_split(p)) NRL_TRY(tensor_flat_view(ctx, p->slots[NRL_SLOT_LO16], begin, n, &s->low));
    if (s->high->dtype == NRL_DTYPE_F32) return NRL_OK;
    return tensor_persistent(ctx, NRL_DTYPE_F32, 1, &n, false, &s->wide);
}

static nrl_status read_stretch(nrl_ctx *ctx, const range *s, float *out)
{
    if (!s->wide) return tensor_read(ctx, s->high, out);
    NRL_TRY(s->low ? split16_join(ctx, s->high, s->low, s->wide) : nrl_tensor_copy(ctx, s->high, s->wide));
    return tensor_read(ctx, s->wide, out);
}

static nrl_status write_stretch(nrl_ctx *ctx, const range *s, const float *values)
{
    if (!s->wide) return tensor_write(ctx, s->high, values);
    NRL_TRY(tensor_write(ctx, s->wide, values));
    return s->low ? split16_split(ctx, s->wide, s->high, s->low) : nrl_master_round(ctx, s->wide, s->high);
}

nrl_status param_exact_copy(nrl_ctx *ctx, const nrl_param *p, int64_t begin, int64_t n, float *out, const float *values)
{
    nrl_status st = NRL_OK;
    for (int64_t done = 0; done < n && st == NRL_OK; done += WINDOW) {
        range s;
        st = stretch_open(ctx, p, begin + done, n - done < WINDOW ? n - done : WINDOW, &s);
        if (st == NRL_OK) st = out ? read_stretch(ctx, &s, out + done) : write_stretch(ctx, &s, values + done);
        stretch_close(ctx, &s);
    }
    return st;
}

nrl_status param_refresh(nrl_ctx *ctx, nrl_param *p)
{
    nrl_tensor *master = p->slots[NRL_SLOT_MASTER], *work = p->slots[NRL_SLOT_WEIGHT];
    nrl_param_touch(p);
    if (!master || !work || master == work || master->numel != work->numel) return NRL_OK;
    return nrl_master_round(ctx, master, work);
}
