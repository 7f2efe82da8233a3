/*
 * orthonormal.c - orthonormal columns for powersgd.c, on the host in double: thin matrices are small,
 * and all ranks must get the same bits.
 */
#include "ddp.h"
#include <math.h>
#include <stdlib.h>

static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / 8388608.0 - 1;
}

/* Removes from column c its projections on the columns before it; returns the length of the rest. */
static double project(double *a, int64_t n, int64_t r, int64_t c)
{
    double square = 0;
    for (int pass = 0; pass < 2; pass++) /* twice is enough (Kahan) */
        for (int64_t k = 0; k < c; k++) {
            double dot = 0;
            for (int64_t i = 0; i < n; i++)
                dot += a[i * r + k] * a[i * r + c];
            for (int64_t i = 0; i < n; i++)
                a[i * r + c] -= dot * a[i * r + k];
        }
    for (int64_t i = 0; i < n; i++)
        square += a[i * r + c] * a[i * r + c];
    return sqrt(square);
}

static double length(const double *a, int64_t n, int64_t r, int64_t c)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        square += a[i * r + c] * a[i * r + c];
    return sqrt(square);
}

/* Modified Gram-Schmidt on a [n, r]. A column in the span of the others is redrawn, so that a direction
 * that was once zero can return. */
static void orthonormal(double *a, int64_t n, int64_t r, uint64_t key)
{
    for (int64_t c = 0; c < r; c++) {
        double before = length(a, n, r, c), after = project(a, n, r, c);
        while (!(after > 1e-6 * before) || after == 0) {
            for (int64_t i = 0; i < n; i++)
                a[i * r + c] = draw(&key);
            before = length(a, n, r, c);
            after = project(a, n, r, c);
        }
        for (int64_t i = 0; i < n; i++)
            a[i * r + c] /= after;
    }
}

nrl_status ddp_orthonormal(nrl_ctx *ctx, nrl_tensor *t, int64_t n, int64_t r, uint64_t key, bool *finite)
{
    const int64_t numel = n * r;
    double *a = malloc((size_t)numel * sizeof *a);
    float *narrow = malloc((size_t)numel * sizeof *narrow);
    nrl_tensor *made;
    nrl_status st =
        a && narrow ? nrl_tensor_fetch(ctx, t, a, numel)
                    : nrl_fail(NRL_ERR_MEMORY, "out of memory for a matrix [%lld,%lld]", (long long)n, (long long)r);
    *finite = st == NRL_OK;
    for (int64_t i = 0; i < numel && *finite; i++)
        *finite = isfinite(a[i]);
    if (*finite) {
        orthonormal(a, n, r, key);
        for (int64_t i = 0; i < numel; i++)
            narrow[i] = (float)a[i];
        st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &numel, narrow, &made);
        if (st == NRL_OK) st = nrl_tensor_copy(ctx, made, t);
    }
    free(a);
    free(narrow);
    return st;
}
