/*
 * rope.cu - rotary position embedding: pairs (i, i + half) of each head are rotated by the position's
 * angle; columns beyond 2 half are copied.
 *
 * A work item is a pack of eight pairs; each thread reads both halves before it writes, so x and y may
 * be the same memory.
 */
#include "each.h"

BOTH void math_rotate(float x1, float x2, float cosine, float sine, float *y1, float *y2)
{
    *y1 = x1 * cosine - x2 * sine;
    *y2 = x2 * cosine + x1 * sine;
}

struct rope_body {
    nrl_rope_args a;
    int64_t width, turns, per_head; /* per_head: packs of pairs, and packs that are copied */
    __device__ void rotate(int64_t row, int64_t col, int64_t i) const
    {
        int n = a.half - i < PACK ? (int)(a.half - i) : PACK;
        pack c = pack_load(a.cos, NRL_DTYPE_F32, row * a.half + i, n);
        pack s = pack_load(a.sin, NRL_DTYPE_F32, row * a.half + i, n);
        pack x1 = mat_load(a.x, row, col + i, n), x2 = mat_load(a.x, row, col + a.half + i, n);
        for (int k = 0; k < PACK; k++)
            math_rotate(x1.v[k], x2.v[k], c.v[k], a.inverse ? -s.v[k] : s.v[k], &x1.v[k], &x2.v[k]);
        mat_store(a.y, row, col + i, n, x1);
        mat_store(a.y, row, col + a.half + i, n, x2);
    }
    __device__ void operator()(place p) const
    {
        int64_t at = p.col / PACK, head = at / per_head, turn = at - head * per_head;
        int64_t col = head * width;
        if (turn < turns) {
            rotate(p.row, col, turn * PACK);
            return;
        }
        int64_t i = 2 * a.half + (turn - turns) * PACK;
        int n = width - i < PACK ? (int)(width - i) : PACK;
        mat_store(a.y, p.row, col + i, n, mat_load(a.x, p.row, col + i, n));
    }
};

nrl_status cuda_op_rope(cuda *self, void *stream, const nrl_rope_args *a)
{
    if (a->n_heads <= 0 || a->half < 0 || a->x.cols % a->n_heads != 0 || 2 * a->half > a->x.cols / a->n_heads)
        return nrl_fail(NRL_ERR_BUG, "rope of %lld pairs on %lld columns of %lld heads", (long long)a->half,
                        (long long)a->x.cols, (long long)a->n_heads);
    NRL_TRY(need_compute("rope", a->x, a->y));
    rope_body body = {*a, a->x.cols / a->n_heads, (a->half + PACK - 1) / PACK, 0};
    int64_t rest = body.width - 2 * a->half;
    body.per_head = body.turns;
    if (a->x.data != a->y.data || a->x.stride != a->y.stride || a->x.dtype != a->y.dtype)
        body.per_head += (rest + PACK - 1) / PACK;
    return each_pack(self, stream, "rope", a->x.rows, a->n_heads * body.per_head * PACK, body);
}
