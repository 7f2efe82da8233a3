/*
 * parallel_experts.c - the rule for `exchange` of a strategy that divides the experts: each rank's rows arrive at the
 * ranks that they are for, in the order of ranks, whatever numbers of them, none included.
 */
#include "parallel.h"

enum { WIDTH = 3, MOST = 4 * 4 * PARALLEL_RANKS };

/* Rows from one rank to another; `round` 2: none at all. */
static int64_t rows_of(int32_t from, int32_t to, int round)
{
    return round == 2 ? 0 : (from * 3 + to * 2 + round) % 4;
}

static double value_of(int32_t from, int32_t to, int64_t row, int64_t column)
{
    return (double)(from * 1000 + to * 100 + row * 10 + column);
}

static nrl_status exchange(toy *t, int round, double *found)
{
    nrl_ctx *ctx = t->compute.ctx;
    int64_t sent[PARALLEL_RANKS], received[PARALLEL_RANKS], n_sent = 0, n_received = 0;
    float values[MOST * WIDTH];
    nrl_tensor *x, *y;
    for (int32_t r = 0; r < t->world; r++) {
        sent[r] = rows_of(t->rank, r, round);
        received[r] = rows_of(r, t->rank, round);
        for (int64_t i = 0; i < sent[r]; i++, n_sent++)
            for (int64_t c = 0; c < WIDTH; c++)
                values[n_sent * WIDTH + c] = (float)value_of(t->rank, r, i, c);
        n_received += received[r];
    }
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){n_sent, WIDTH}, values, &x));
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 2, (int64_t[]){n_received, WIDTH}, &y));
    NRL_TRY(t->g->table->exchange(t->self, ctx, x, sent, y, received));
    return nrl_tensor_fetch(ctx, y, found, n_received * WIDTH);
}

void parallel_experts(toy *t)
{
    double found[MOST * WIDTH] = {0};
    if (!toy_open(t, &(toy_kind){true, NRL_DTYPE_F32})) return;
    for (int round = 0; round < 3; round++) {
        const double *at = found;
        nrl_scope_begin(t->compute.ctx);
        nrl_status st = exchange(t, round, found);
        nrl_scope_end(t->compute.ctx);
        if (!toy_ok(t, st, "exchange succeeds")) return;
        for (int32_t r = 0; r < t->world; r++)
            for (int64_t i = 0; i < rows_of(r, t->rank, round); i++)
                for (int64_t c = 0; c < WIDTH; c++, at++)
                    report_check(t->report, *at == value_of(r, t->rank, i, c), "rows arrive where they are for",
                                 "row %lld from rank %d to rank %d has %g, expected %g", (long long)i, r, t->rank, *at,
                                 value_of(r, t->rank, i, c));
    }
}
