/*
 * adamw.cu - the whole update in one pass over memory; the clip factor is part of grad_scale, or of the device's
 * decision. Bytes read and written per element: f32 master and gradient 28, plus 2 for a bf16 copy; split16 master and
 * bf16 gradient 26. Masters get the same bits with every encoding, and in a launch of their own or together with other
 * tensors.
 */
#include "math_adamw.h"
#include "split16.h"

struct adamw_body {
    nrl_adamw_args a;
    adamw_step step;
    bool rounds; /* the weight is bf16 */
    __device__ void operator()(place p) const
    {
        adamw_step now = step;
        if (a.decision) {
            if (!(a.decision->applies > 0)) return;
            now.grad_scale = (float)a.decision->grad_scale;
        }
        pack w = a.low.data ? split16_load(a.work, a.low, p) : mat_load(a.master, p.row, p.col, p.n);
        pack g = mat_load(a.grad, p.row, p.col, p.n);
        pack m = mat_load(a.m, p.row, p.col, p.n), v = mat_load(a.v, p.row, p.col, p.n);
        for (int k = 0; k < PACK; k++)
            math_adamw(now, g.v[k], &w.v[k], &m.v[k], &v.v[k]);
        mat_store(a.m, p.row, p.col, p.n, m);
        mat_store(a.v, p.row, p.col, p.n, v);
        if (!a.low.data) mat_store(a.master, p.row, p.col, p.n, w);
        if (rounds)
            split16_store(a.work, a.low, p, w);
        else if (a.work.data)
            mat_store(a.work, p.row, p.col, p.n, w);
    }
};

/* Checks a call, and describes its operands as rows if they have no gaps. */
static nrl_status body_of(const nrl_adamw_args *a, adamw_body *body)
{
    bool rounds = a->work.data && a->work.dtype == NRL_DTYPE_BF16;
    *body = {*a, math_adamw_step(a), rounds};
    nrl_adamw_args &k = body->a;
    if (!k.low.data && k.master.dtype != NRL_DTYPE_F32) return cuda_no_dtype("adamw", k.master.dtype);
    if (k.low.data && !rounds) return cuda_no_dtype("adamw", k.work.dtype);
    NRL_TRY(need_compute("adamw", k.grad, k.m, k.v, k.work));
    flatten(&k.master, &k.grad, &k.m, &k.v, &k.work, &k.low);
    return NRL_OK;
}

nrl_status cuda_op_adamw(cuda *self, void *stream, const nrl_adamw_args *a)
{
    adamw_body body;
    NRL_TRY(body_of(a, &body));
    return each_pack(self, stream, "adamw", body.a.m.rows, body.a.m.cols, body);
}

/* ---- several tensors in one launch ---- */

enum { ADAMW_TENSORS = 48 }; /* their table and the step fit into the 4 KiB of a kernel's arguments */

struct adamw_tensor {
    void *master, *grad, *m, *v, *work, *low;
    int64_t n;
    float decay;
    uint32_t end; /* the first block after those of this tensor */
};

/* Operands of one row each, equal except for addresses, lengths and weight decay. */
struct adamw_table {
    adamw_body like;
    int n;
    adamw_tensor of[ADAMW_TENSORS];
};
static_assert(sizeof(adamw_table) <= 4096, "a kernel has 4 KiB of arguments");

static __device__ void place_row(nrl_mat *m, void *data, int64_t n)
{
    m->data = data;
    m->cols = m->stride = n;
}

__global__ void __launch_bounds__(EACH_THREADS) adamw_table_kernel(adamw_table t)
{
    int k = 0;
    for (int half = 32; half > 0; half /= 2) /* blocks are in the order of tensors */
        if (k + half < t.n && blockIdx.x >= t.of[k + half - 1].end) k += half;
    uint32_t first = k ? t.of[k - 1].end : 0;
    adamw_body body = t.like;
    body.step.decay = t.of[k].decay;
    int64_t n = t.of[k].n;
    place_row(&body.a.master, t.of[k].master, n);
    place_row(&body.a.grad, t.of[k].grad, n);
    place_row(&body.a.m, t.of[k].m, n);
    place_row(&body.a.v, t.of[k].v, n);
    place_row(&body.a.work, t.of[k].work, n);
    place_row(&body.a.low, t.of[k].low, n);
    int64_t step = (int64_t)(t.of[k].end - first) * EACH_THREADS * PACK;
    for (int64_t c = ((int64_t)(blockIdx.x - first) * EACH_THREADS + threadIdx.x) * PACK; c < n; c += step) {
        place p;
        p.row = 0;
        p.col = c;
        p.n = n - c < PACK ? (int)(n - c) : PACK;
        body(p);
    }
}

static bool is_same(const nrl_mat &a, const nrl_mat &b)
{
    return a.dtype == b.dtype && !a.data == !b.data;
}

/* Whether the table may have this call, too. */
static bool is_like(const adamw_table &t, const adamw_body &b)
{
    const nrl_adamw_args &x = t.like.a, &y = b.a;
    adamw_step step = b.step;
    step.decay = t.like.step.decay;
    return t.n < ADAMW_TENSORS && x.decision == y.decision && is_same(x.master, y.master) && is_same(x.grad, y.grad) &&
           is_same(x.m, y.m) && is_same(x.v, y.v) && is_same(x.work, y.work) && is_same(x.low, y.low) &&
           !memcmp(&t.like.step, &step, sizeof step);
}

static nrl_status launch_table(cuda *self, void *stream, adamw_table *t)
{
    if (!t->n) return NRL_OK;
    CUDA_LAUNCH(adamw_table_kernel, t->of[t->n - 1].end, EACH_THREADS, 0, stream, *t);
    t->n = 0;
    return cuda_launched(self, "adamw");
}

nrl_status cuda_adamw_all(cuda *self, void *stream, const nrl_adamw_args *calls, int64_t n)
{
    adamw_table t;
    t.n = 0;
    for (int64_t i = 0; i < n; i++) {
        adamw_body b;
        NRL_TRY(body_of(&calls[i], &b));
        const nrl_adamw_args &k = b.a;
        if (k.m.rows <= 0 || k.m.cols <= 0) continue;
        if (k.m.rows > 1) { /* rows with gaps */
            NRL_TRY(cuda_op_adamw(self, stream, &calls[i]));
            continue;
        }
        if (t.n && !is_like(t, b)) NRL_TRY(launch_table(self, stream, &t));
        if (!t.n) t.like = b;
        uint32_t first = t.n ? t.of[t.n - 1].end : 0;
        uint32_t blocks = cuda_blocks(self, (k.m.cols + EACH_THREADS * PACK - 1) / (EACH_THREADS * PACK));
        t.of[t.n++] = {k.master.data, k.grad.data, k.m.data,     k.v.data,      k.work.data,
                       k.low.data,    k.m.cols,    b.step.decay, first + blocks};
    }
    return launch_table(self, stream, &t);
}
