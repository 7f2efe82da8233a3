/*
 * dropout.cu - y = x keep / (1 - p). Backward is the same call on dy: keep depends only on key and
 * element.
 */
#include "each.h"
#include "math_random.h"

struct dropout_body {
    nrl_mat x, y;
    int64_t cols; /* columns of the original x: elements are numbered row by row, without gaps */
    float p, scale;
    uint64_t key;
    const uint64_t *rows; /* the number of each row; NULL: its index */
    __device__ void operator()(place at) const
    {
        pack v = mat_load(x, at.row, at.col, at.n);
        uint64_t number = rows ? rows[at.row] : (uint64_t)at.row;
        uint64_t first = number * (uint64_t)cols + (uint64_t)at.col;
        for (int k = 0; k < PACK; k++)
            v.v[k] = math_dropout(v.v[k], p, scale, key, first + (uint64_t)k);
        mat_store(y, at.row, at.col, at.n, v);
    }
};

nrl_status cuda_op_dropout(cuda *self, void *stream, const nrl_dropout_args *a)
{
    dropout_body body = {a->x, a->y, 0, (float)a->p, (float)(1.0 / (1.0 - a->p)), a->key, a->rows};
    NRL_TRY(need_compute("dropout", a->x, a->y));
    if (!a->rows) flatten(&body.x, &body.y);
    body.cols = body.x.cols;
    return each_pack(self, stream, "dropout", body.y.rows, body.y.cols, body);
}
