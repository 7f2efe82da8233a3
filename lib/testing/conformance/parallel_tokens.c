/*
 * parallel_tokens.c - rules for a strategy that divides the tokens of a micro-batch: each token is one rank's;
 * attention of this rank's tokens, and its gradients, are those of one rank; sums are over the axis. Each rank also
 * computes attention of the whole micro-batch without the strategy. Legend: N tokens, H query heads, G key/value heads
 * of K.
 */
#include "parallel.h"
#include <string.h>

enum { N = 37, H = 12, K = 4, MOST = N * H * K, FEW = 3 };

/* Query, key and value, with their gradients, and the result; row by row. */
typedef struct {
    float values[3][MOST];
    double grads[3][MOST], y[MOST];
} attended;

typedef struct {
    toy *t;
    int64_t n_kv_heads, window;
    double soft_cap;
    int32_t own[N];
    int64_t n_own;
} tokens_case;

static int64_t width_of(const tokens_case *c, int i)
{
    return (i ? c->n_kv_heads : H) * K;
}

/* ---- which tokens ---- */

static void check_tokens(tokens_case *c, int64_t n)
{
    toy *t = c->t;
    char mine[N] = {0}, all[PARALLEL_RANKS * N];
    int64_t counts[N] = {0};
    bool ascends = true, divided = true;
    c->n_own = t->g->table->divide(t->self, n, c->own);
    for (int64_t i = 0; i < c->n_own && i < N; i++) {
        ascends = ascends && c->own[i] >= 0 && c->own[i] < n && (!i || c->own[i] > c->own[i - 1]);
        if (ascends) mine[c->own[i]] = 1;
    }
    report_check(t->report, ascends && c->n_own <= n, "tokens are numbers of the micro-batch, ascending",
                 "of %lld tokens rank %d of %d has others", (long long)n, t->rank, t->world);
    if (!toy_ok(t, mesh_exchange(t->mesh, "tokens", mine, sizeof mine, all), "ranks exchange")) return;
    for (int32_t r = 0; r < t->world; r++) {
        bool any = false;
        for (int64_t i = 0; i < n; i++) {
            counts[i] += all[r * N + i];
            any |= all[r * N + i];
        }
        divided &= any;
    }
    int64_t wrong = 0, total = 0;
    for (int64_t i = 0; i < n; i++) {
        wrong += counts[i] != 1;
        total += counts[i];
    }
    report_check(t->report, !total || (!wrong && divided), "each token is on one rank, each rank has one",
                 "%lld tokens over %d ranks: %lld are on none or several", (long long)n, t->world, (long long)wrong);
}

/* ---- attention ---- */

/* Segments of many lengths, two of them the answers to one prompt that lies behind them. */
static nrl_batch *new_batch(void)
{
    enum { SEGMENTS = 5, ROWS = 4 };
    static const int32_t lengths[SEGMENTS + 1] = {11, 1, 9, 5, 4, N - 30};
    nrl_batch *b = batch_new_shared(N, ROWS, SEGMENTS, 1);
    for (int32_t s = 0, at = 0; s <= SEGMENTS; s++) {
        const bool answers = s == 3 || s == 4;
        if (answers) b->prefix[s] = SEGMENTS;
        for (int32_t i = 0; i < lengths[s]; i++, at++)
            b->positions[at] = i + (answers ? lengths[SEGMENTS] : 0);
        b->cu_seqlens[s + 1] = at;
    }
    return b;
}

/* Attention over rows [n] of the values, and the gradients of the sum of y times made-up numbers. */
static nrl_status attend(tokens_case *c, const int32_t *rows, int64_t n, attended *a)
{
    nrl_ctx *ctx = c->t->compute.ctx;
    nrl_tensor *x[3], *grads[3] = {0}, *y, *dy;
    float part[MOST];
    tape *recorded = tape_create();
    nrl_status st = NRL_OK;
    for (int i = 0; i < 3 && st == NRL_OK; i++) {
        const int64_t width = width_of(c, i);
        for (int64_t r = 0; r < n; r++)
            memcpy(part + r * width, a->values[i] + rows[r] * width, (size_t)width * sizeof *part);
        st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){n, width}, part, &x[i]);
        if (st == NRL_OK) tensor_set_leaf(x[i]);
    }
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < (int64_t)H * K; k++)
            part[r * H * K + k] = (float)((rows[r] * 7 + k * 5) % 13) / 8 - 0.75f;
    if (st == NRL_OK) st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){n, (int64_t)H * K}, part, &dy);
    const nrl_attention_spec spec = {
        .n_heads = H, .n_kv_heads = c->n_kv_heads, .head_dim = K, .window = c->window, .scale = 0.5};
    ctx_tape_begin(ctx, recorded);
    if (st == NRL_OK) st = nrl_op_capped_attention(ctx, x[0], x[1], x[2], &spec, c->soft_cap, &y);
    ctx_tape_end(ctx);
    if (st == NRL_OK) st = nrl_tensor_fetch(ctx, y, a->y, n * H * K);
    if (st == NRL_OK) st = tape_backward(ctx, recorded, &y, &dy, 1, x, grads, 3);
    for (int i = 0; i < 3; i++) {
        memset(a->grads[i], 0, sizeof a->grads[i]); /* no gradient is zero */
        if (st == NRL_OK && grads[i]) st = nrl_tensor_fetch(ctx, grads[i], a->grads[i], n * width_of(c, i));
        tensor_release(ctx, grads[i]);
    }
    tape_destroy(ctx, recorded);
    return st;
}

static void compare(tokens_case *c, const char *what, const char *rule, const double *mine, const double *all,
                    int64_t width)
{
    for (int64_t r = 0; r < c->n_own; r++)
        for (int64_t k = 0; k < width; k++) {
            const double found = mine[r * width + k], want = all[c->own[r] * width + k];
            if (!report_check(
                    c->t->report, is_near(found, want, 1e-4, 1e-5), rule,
                    "%d ranks, %lld key/value heads, window %lld, cap %g: %s of token %d is %g on rank %d, expected %g",
                    c->t->world, (long long)c->n_kv_heads, (long long)c->window, c->soft_cap, what, (int)c->own[r],
                    found, c->t->rank, want))
                return;
        }
}

static void check_attention(tokens_case *c)
{
    static const char *const names[] = {"the query's gradient", "the key's gradient", "the value's gradient"};
    static attended whole[PARALLEL_RANKS], mine[PARALLEL_RANKS]; /* large; one for each thread */
    toy *t = c->t;
    nrl_ctx *ctx = t->compute.ctx;
    attended *w = &whole[t->rank], *m = &mine[t->rank];
    uint64_t state = 5;
    int32_t every[N];
    for (int32_t i = 0; i < N; i++)
        every[i] = i;
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < N * width_of(c, i); k++)
            w->values[i][k] = m->values[i][k] = (float)compute_uniform(&state, -1, 1);
    nrl_batch *b = new_batch();
    nrl_scope_begin(ctx);
    nrl_status st = ctx_set_batch(ctx, b);
    if (st == NRL_OK) st = attend(c, every, N, w);
    if (toy_ok(t, st, "the backend computes")) {
        st = batch_divide(b, c->own, c->n_own, true);
        if (st == NRL_OK) st = ctx_set_batch(ctx, b->own);
        ctx_settings_of(ctx)->divided = (ctx_divided){t->g->table->attention, t->g->table->sum, t->self};
        if (st == NRL_OK) st = attend(c, c->own, c->n_own, m);
        ctx_settings_of(ctx)->divided = (ctx_divided){0};
        if (toy_ok(t, st, "attention succeeds")) {
            compare(c, "the result", "attention is that of one rank", m->y, w->y, (int64_t)H * K);
            for (int i = 0; i < 3; i++)
                compare(c, names[i], "gradients are those of one rank", m->grads[i], w->grads[i], width_of(c, i));
        }
    }
    ctx_set_batch(ctx, NULL);
    nrl_scope_end(ctx);
    batch_free(b);
}

static void check_sum(toy *t)
{
    double found[FEW] = {0};
    float values[FEW];
    nrl_tensor *x;
    for (int i = 0; i < FEW; i++)
        values[i] = (float)(t->rank + i);
    nrl_scope_begin(t->compute.ctx);
    nrl_status st = nrl_tensor_from_host(t->compute.ctx, NRL_DTYPE_F32, 1, (int64_t[]){FEW}, values, &x);
    if (st == NRL_OK) st = t->g->table->sum(t->self, t->compute.ctx, x);
    if (st == NRL_OK) st = nrl_tensor_fetch(t->compute.ctx, x, found, FEW);
    nrl_scope_end(t->compute.ctx);
    if (!toy_ok(t, st, "sum succeeds")) return;
    for (int i = 0; i < FEW; i++) {
        const int32_t want = t->world * (t->world - 1) / 2 + i * t->world;
        report_check(t->report, is_near(found[i], want, 0, 1e-6), "sums are over the axis",
                     "%d ranks: element %d is %g, expected %d", t->world, i, found[i], want);
    }
}

void parallel_tokens(toy *t)
{
    static const struct {
        int64_t n_kv_heads, window;
        double soft_cap;
    } kinds[] = {{H, 0, 0}, {1, 0, 0}, {H, 6, 0}, {H, 6, 0.5}};
    const nrl_parallel *s = t->g->table;
    if (!compute_open(&t->compute, t->g->setup, t->report)) {
        t->over = true;
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !t->over; i++) {
        tokens_case c = {
            .t = t, .n_kv_heads = kinds[i].n_kv_heads, .window = kinds[i].window, .soft_cap = kinds[i].soft_cap};
        if (!toy_ok(t, s->create(t->g->setup->options, t->mesh, &t->self), "an instance is created")) return;
        t->plan = (nrl_parallel_plan){.size = sizeof t->plan,
                                      .train = true,
                                      .quiet = true,
                                      .compute = NRL_DTYPE_F32,
                                      .n_heads = H,
                                      .n_kv_heads = c.n_kv_heads};
        if (toy_ok(t, s->plan(t->self, &t->plan), "a plan is made")) {
            for (int64_t n = 1; n < N && !t->over; n++)
                check_tokens(&c, n);
            if (!t->over) check_tokens(&c, N);
            if (!t->over) check_sum(t);
            if (!t->over && c.n_own) check_attention(&c);
            if (s->unbind) s->unbind(t->self, t->compute.ctx);
        }
        s->destroy(t->self);
        t->self = NULL;
    }
}
