/*
 * binary.cu - functions of two values, the second broadcast if it has one row or one column; where.
 */
#include "each.h"
#include "math_binary.h"

/* A pack of b as if it had a's shape. */
__device__ static inline pack load_broadcast(const nrl_mat &b, place p)
{
    int64_t row = b.rows == 1 ? 0 : p.row;
    if (b.cols != 1) return mat_load(b, row, p.col, p.n);
    float value = scalar_load(b.data, b.dtype, row * b.stride);
    pack v;
    for (int k = 0; k < PACK; k++)
        v.v[k] = value;
    return v;
}

struct binary_body {
    nrl_binary_args a;
    __device__ void operator()(place p) const
    {
        pack u = load_broadcast(a.a, p), v = load_broadcast(a.b, p);
        for (int k = 0; k < PACK; k++)
            u.v[k] = math_binary(a.op, u.v[k], v.v[k]);
        mat_store(a.y, p.row, p.col, p.n, u);
    }
};

struct binary_grad_body {
    nrl_binary_grad_args a;
    __device__ void operator()(place p) const
    {
        pack g = mat_load(a.dy, p.row, p.col, p.n);
        pack u = a.a.data ? load_broadcast(a.a, p) : g, v = a.b.data ? load_broadcast(a.b, p) : g;
        pack da, db;
        for (int k = 0; k < PACK; k++)
            math_binary_grad(a.op, u.v[k], v.v[k], g.v[k], &da.v[k], &db.v[k]);
        if (a.da.data) mat_store(a.da, p.row, p.col, p.n, da);
        if (a.db.data) mat_store(a.db, p.row, p.col, p.n, db);
    }
};

struct where_body {
    nrl_where_args a;
    __device__ void operator()(place p) const
    {
        pack u = mat_load(a.a, p.row, p.col, p.n), v = mat_load(a.b, p.row, p.col, p.n);
        for (int k = 0; k < PACK; k++) {
            if (k >= p.n) break;
            int64_t at = p.row * a.mask.stride + p.col + k;
            u.v[k] = scalar_load_any(a.mask.data, a.mask.dtype, at) != 0 ? u.v[k] : v.v[k];
        }
        mat_store(a.y, p.row, p.col, p.n, u);
    }
};

static nrl_status check_op(const char *name, uint32_t op)
{
    if (op > NRL_BINARY_NONE && op < NRL_BINARY_COUNT) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cuda' has no op '%s' number %u", name, op);
}

static bool same_shape(const nrl_mat &a, const nrl_mat &b)
{
    return a.rows == b.rows && a.cols == b.cols;
}

nrl_status cuda_op_binary(cuda *self, void *stream, const nrl_binary_args *a)
{
    binary_body body = {*a};
    nrl_binary_args &k = body.a;
    NRL_TRY(check_op("binary", a->op));
    NRL_TRY(need_compute("binary", a->a, a->b, a->y));
    if (same_shape(k.a, k.b) && same_shape(k.a, k.y)) flatten(&k.a, &k.b, &k.y);
    return each_pack(self, stream, "binary", k.y.rows, k.y.cols, body);
}

nrl_status cuda_op_binary_grad(cuda *self, void *stream, const nrl_binary_grad_args *a)
{
    binary_grad_body body = {*a};
    nrl_binary_grad_args &k = body.a;
    NRL_TRY(check_op("binary_grad", a->op));
    NRL_TRY(need_compute("binary_grad", a->a, a->b, a->dy, a->da, a->db));
    bool flat = (!k.a.data || same_shape(k.a, k.dy)) && (!k.b.data || same_shape(k.b, k.dy));
    if (flat) flatten(&k.a, &k.b, &k.dy, &k.da, &k.db);
    return each_pack(self, stream, "binary_grad", k.dy.rows, k.dy.cols, body);
}

nrl_status cuda_op_where(cuda *self, void *stream, const nrl_where_args *a)
{
    where_body body = {*a};
    nrl_where_args &k = body.a;
    NRL_TRY(need_compute("where", a->a, a->b, a->y));
    flatten(&k.mask, &k.a, &k.b, &k.y);
    return each_pack(self, stream, "where", k.y.rows, k.y.cols, body);
}
