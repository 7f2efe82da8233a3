/*
 * backend_attention.c - packed attention: causal, windows, grouped heads, prefixes, cached keys, capped scores, sinks,
 * and gradients through a rotation.
 */
#include "base/arena.h"
#include "backend.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SEGMENTS = 5 };

typedef struct {
    const char *name;
    int n_segments;
    int32_t queries[MAX_SEGMENTS], keys[MAX_SEGMENTS]; /* lengths */
    int32_t prefix[MAX_SEGMENTS];                      /* -2 in the first entry = no prefixes at all */
    int64_t heads, kv_heads, width, window;
    uint32_t dtype;
    double soft_cap;
    bool sinks;
} attention_case;

typedef struct {
    const attention_case *c;
    int32_t cu_q[MAX_SEGMENTS + 1], cu_k[MAX_SEGMENTS + 1];
    mat *q, *k, *v, *y, *lse, *dy, *dq, *dk, *dv;
    mat *sinks, *dsinks; /* [1, H] */
    double *want[5];     /* y, dq, dk, dv, dsinks */
    double *want_lse;
    mat *sums[4]; /* y, dq, dk, dv in f32, put together from parts */
    mat *sums_lse;
    double scale;
} attention_state;

static double *room(int64_t n)
{
    double *p = mem_alloc((size_t)n * sizeof *p);
    return p;
}

/* The row of the key at position j of segment s. */
static int64_t key_row(const attention_state *a, int s, int64_t j, int64_t n_prefix)
{
    return j < n_prefix ? a->cu_k[a->c->prefix[s]] + j : a->cu_k[s] + j - n_prefix;
}

/* One query of one head: computes y and lse from stored q, k, v, then its contribution to all
 * gradients. */
static void reference_query(attention_state *a, int s, int64_t i, int64_t head)
{
    const attention_case *c = a->c;
    int64_t n_prefix = c->prefix[0] == -2 || c->prefix[s] < 0 ? 0 : c->keys[c->prefix[s]];
    int64_t n = n_prefix + c->keys[s], last = n - c->queries[s] + i, w = c->width;
    int64_t row = a->cu_q[s] + i, col = head * w, kv_col = head / (c->heads / c->kv_heads) * w;
    int64_t first = c->window > 0 && last - c->window + 1 > 0 ? last - c->window + 1 : 0;
    const double sink = c->sinks ? *mat_value(a->sinks, 0, head) : -INFINITY;
    double *p = room(n), *slope = room(n), max = sink, sum = 0, delta = 0;
    for (int64_t j = first; j <= last; j++) {
        int64_t kr = key_row(a, s, j, n_prefix);
        for (int64_t d = 0; d < w; d++)
            p[j] += a->scale * *mat_value(a->q, row, col + d) * *mat_value(a->k, kr, kv_col + d);
        double t = c->soft_cap > 0 ? tanh(p[j] / c->soft_cap) : 0;
        slope[j] = 1 - t * t;
        if (c->soft_cap > 0) p[j] = c->soft_cap * t;
        if (p[j] > max) max = p[j];
    }
    for (int64_t j = first; j <= last; j++)
        sum += exp(p[j] - max);
    if (c->sinks) sum += exp(sink - max);
    double lse = max + log(sum), *y = a->want[0] + row * a->q->cols + col;
    a->want_lse[head * a->q->rows + row] = lse;
    for (int64_t j = first; j <= last; j++) {
        p[j] = exp(p[j] - lse);
        for (int64_t d = 0; d < w; d++)
            y[d] += p[j] * *mat_value(a->v, key_row(a, s, j, n_prefix), kv_col + d);
    }
    for (int64_t d = 0; d < w; d++)
        delta += y[d] * *mat_value(a->dy, row, col + d);
    a->want[4][head] -= exp(sink - lse) * delta;
    for (int64_t j = first; j <= last; j++) {
        int64_t kr = key_row(a, s, j, n_prefix), at = kr * a->k->cols + kv_col;
        double dp = 0;
        for (int64_t d = 0; d < w; d++)
            dp += *mat_value(a->dy, row, col + d) * *mat_value(a->v, kr, kv_col + d);
        double ds = p[j] * (dp - delta) * slope[j] * a->scale;
        for (int64_t d = 0; d < w; d++) {
            a->want[1][row * a->q->cols + col + d] += ds * *mat_value(a->k, kr, kv_col + d);
            a->want[2][at + d] += ds * *mat_value(a->q, row, col + d);
            a->want[3][at + d] += p[j] * *mat_value(a->dy, row, col + d);
        }
    }
    free(p);
    free(slope);
}

static attention_state state_new(suite *s, const attention_case *c)
{
    attention_state a = {.c = c, .scale = 1 / sqrt((double)c->width)};
    for (int i = 0; i < c->n_segments; i++) {
        a.cu_q[i + 1] = a.cu_q[i] + c->queries[i];
        a.cu_k[i + 1] = a.cu_k[i] + c->keys[i];
    }
    int64_t n = a.cu_q[c->n_segments], m = a.cu_k[c->n_segments];
    int64_t q_cols = c->heads * c->width, k_cols = c->kv_heads * c->width;
    a.q = mat_random(s, c->dtype, n, q_cols, 3, -2, 2);
    a.k = mat_random(s, c->dtype, m, k_cols, 2, -2, 2);
    a.v = mat_random(s, c->dtype, m, k_cols, 0, -2, 2);
    a.dy = mat_random(s, c->dtype, n, q_cols, 0, -1, 1);
    a.y = mat_new(s, c->dtype, n, q_cols, 1);
    a.lse = mat_new(s, NRL_DTYPE_F32, c->heads, n, 0);
    a.sinks = mat_random(s, NRL_DTYPE_F32, 1, c->heads, 0, -1, 3);
    a.dsinks = mat_new(s, NRL_DTYPE_F32, 1, c->heads, 0);
    a.dq = mat_new(s, c->dtype, n, q_cols, 1);
    a.dk = mat_new(s, c->dtype, m, k_cols, 2);
    a.dv = mat_new(s, c->dtype, m, k_cols, 2);
    for (int i = 0; i < 2; i++) {
        a.want[i] = room(n * q_cols);
        a.want[i + 2] = room(m * k_cols);
    }
    a.want[4] = room(c->heads);
    a.want_lse = room(c->heads * n);
    for (int i = 0; i < c->n_segments; i++)
        for (int64_t j = 0; j < c->queries[i]; j++)
            for (int64_t h = 0; h < c->heads; h++)
                reference_query(&a, i, j, h);
    return a;
}

static void state_free(suite *s, attention_state *a)
{
    for (int i = 0; i < COUNT(a->want); i++)
        free(a->want[i]);
    free(a->want_lse);
    suite_clear(s);
}

static nrl_attention_args forward_args(suite *s, const attention_state *a)
{
    const attention_case *c = a->c;
    size_t cu_bytes = ((size_t)c->n_segments + 1) * sizeof(int32_t);
    nrl_attention_args f = {.size = sizeof f,
                            .n_segments = (uint32_t)c->n_segments,
                            .q = mat_args(a->q),
                            .k = mat_args(a->k),
                            .v = mat_args(a->v),
                            .y = mat_args(a->y),
                            .lse = mat_args(a->lse),
                            .cu_q = suite_array(s, a->cu_q, cu_bytes),
                            .cu_k = suite_array(s, a->cu_k, cu_bytes),
                            .host_cu_q = a->cu_q,
                            .host_cu_k = a->cu_k,
                            .n_heads = c->heads,
                            .n_kv_heads = c->kv_heads,
                            .head_dim = c->width,
                            .window = c->window,
                            .scale = a->scale,
                            .soft_cap = c->soft_cap,
                            .sinks = c->sinks ? mat_args(a->sinks).data : NULL};
    if (c->prefix[0] != -2) {
        f.prefix = suite_array(s, c->prefix, cu_bytes - sizeof(int32_t));
        f.host_prefix = c->prefix;
    }
    return f;
}

/* Rows [begin, begin + n) of a matrix; columns of the log-sum-exp. */
static nrl_mat rows_at(const mat *m, int64_t begin, int64_t n, bool columns)
{
    nrl_mat x = mat_args(m);
    x.data = (char *)x.data + (size_t)(begin * (columns ? 1 : m->stride)) * nrl_dtype_size((nrl_dtype)m->dtype);
    *(columns ? &x.cols : &x.rows) = n;
    return x;
}

/* Calls the operation, or its gradient, for queries [q, q + n) and keys [k, k + m). */
static nrl_status call_part(suite *s, const attention_state *a, nrl_attention_args f, const int64_t *q,
                            const int64_t *k, bool back)
{
    const int64_t n = q[1] - q[0], m = k[1] - k[0];
    f.merge = true;
    f.q_begin = q[0];
    f.k_begin = k[0];
    f.q = rows_at(a->q, q[0], n, false);
    f.k = rows_at(a->k, k[0], m, false);
    f.v = rows_at(a->v, k[0], m, false);
    f.y = rows_at(back ? a->y : a->sums[0], q[0], n, false);
    f.lse = rows_at(back ? a->lse : a->sums_lse, q[0], n, true);
    const nrl_attention_grad_args g = {.size = sizeof g,
                                       .forward = &f,
                                       .dy = rows_at(a->dy, q[0], n, false),
                                       .dq = rows_at(a->sums[1], q[0], n, false),
                                       .dk = rows_at(a->sums[2], k[0], m, false),
                                       .dv = rows_at(a->sums[3], k[0], m, false)};
    return back ? s->ops.attention_grad(s->self, NULL, &g) : s->ops.attention(s->self, NULL, &f);
}

/* The same results, put together from parts of the queries and keys, the last ones first. */
static void check_parts(suite *s, attention_state *a, const nrl_attention_args *f)
{
    enum { PARTS = 3 };
    const mat *const like[] = {a->q, a->q, a->k, a->v};
    const bool low = a->c->dtype != NRL_DTYPE_F32;
    nrl_status st = NRL_OK;
    for (int i = 0; i < 4; i++)
        a->sums[i] = mat_new(s, NRL_DTYPE_F32, like[i]->rows, like[i]->cols, 4);
    a->sums_lse = mat_new(s, NRL_DTYPE_F32, a->c->heads, a->q->rows, 2);
    for (int64_t h = 0; h < a->c->heads; h++)
        for (int64_t i = 0; i < a->q->rows; i++)
            mat_set(s, a->sums_lse, h, i, -INFINITY);
    mat_upload(s, a->sums_lse);
    for (int back = 0; back < (s->ops.attention_grad ? 2 : 1); back++)
        for (int64_t i = PARTS - 1; i >= 0; i--)
            for (int64_t j = PARTS - 1; j >= 0 && st == NRL_OK; j--) {
                const int64_t q[] = {a->q->rows * i / PARTS, a->q->rows * (i + 1) / PARTS};
                const int64_t k[] = {a->k->rows * j / PARTS, a->k->rows * (j + 1) / PARTS};
                st = call_part(s, a, *f, q, k, back);
            }
    suite_ok(s, st, "attention of parts runs");
    suite_expect(s, "attention merges the results for parts of the keys", a->sums[0], a->want[0], 5e-6,
                 low ? 0.02 : 3e-6);
    suite_expect(s, "attention merges the log-sum-exp for parts of the keys", a->sums_lse, a->want_lse, 2e-6,
                 low ? 0.02 : 3e-6);
    for (int i = 1; i < 4 && s->ops.attention_grad; i++)
        suite_expect(s, "attention_grad adds the slopes of parts", a->sums[i], a->want[i], 2e-5, low ? 0.08 : 3e-5);
}

static void check_attention(suite *s, const attention_case *c)
{
    suite_case(s, "attention, %s, %lld heads of %lld over %lld, window %lld, cap %g,%s %s", c->name,
               (long long)c->heads, (long long)c->width, (long long)c->kv_heads, (long long)c->window, c->soft_cap,
               c->sinks ? " sinks," : "", nrl_dtype_name(c->dtype));
    attention_state a = state_new(s, c);
    nrl_attention_args f = forward_args(s, &a);
    bool low = c->dtype != NRL_DTYPE_F32;
    suite_ok(s, s->ops.attention(s->self, NULL, &f), "attention runs");
    suite_expect(s, "attention weighs the values of the keys it sees", a.y, a.want[0], 5e-6, low ? 0.02 : 3e-6);
    suite_expect(s, "attention saves the log-sum-exp", a.lse, a.want_lse, 2e-6, low ? 0.02 : 3e-6);
    if (s->ops.attention_grad) {
        nrl_attention_grad_args g = {.size = sizeof g,
                                     .forward = &f,
                                     .dy = mat_args(a.dy),
                                     .dq = mat_args(a.dq),
                                     .dk = mat_args(a.dk),
                                     .dv = mat_args(a.dv),
                                     .dsinks = c->sinks ? mat_args(a.dsinks).data : NULL};
        suite_ok(s, s->ops.attention_grad(s->self, NULL, &g), "attention_grad runs");
        mat *const d[] = {a.dq, a.dk, a.dv, a.dsinks};
        for (int i = 0; i < (c->sinks ? 4 : 3); i++)
            suite_expect(s, "attention_grad is the slope of attention", d[i], a.want[i + 1], 2e-5, low ? 0.08 : 3e-5);
    }
    if (!c->sinks && !(s->table->attention_lacks & NRL_ATTENTION_MERGE)) check_parts(s, &a, &f);
    state_free(s, &a);
}

static const attention_case cases[] = {
    {"one token", 1, {1}, {1}, {-2}, 1, 1, 8, 0, 0, 0, false},
    {"packed", 3, {17, 1, 65}, {17, 1, 65}, {-2}, 4, 4, 16, 0, 0, 0, false},
    {"grouped", 2, {130, 33}, {130, 33}, {-2}, 6, 2, 20, 0, 0, 0, false},
    {"wide heads", 1, {70}, {70}, {-2}, 3, 1, 64, 0, 0, 0, false},
    {"one long", 1, {300}, {300}, {-2}, 2, 1, 24, 0, 0, 0, false},
    {"window", 2, {150, 9}, {150, 9}, {-2}, 2, 2, 16, 7, 0, 0, false},
    {"window wider than all", 2, {40, 9}, {40, 9}, {-2}, 2, 1, 16, 500, 0, 0, false},
    {"window, long", 1, {260}, {260}, {-2}, 2, 1, 16, 100, 0, 0, false},
    {"prefix", 4, {33, 5, 20, 11}, {33, 5, 20, 11}, {-1, 0, 0, -1}, 4, 2, 16, 0, 0, 0, false},
    {"prefix, window", 3, {40, 50, 20}, {40, 50, 20}, {-1, 0, 0, 0}, 2, 1, 16, 30, 0, 0, false},
    {"prefix behind", 3, {10, 30, 12}, {10, 30, 12}, {1, -1, 1}, 2, 1, 16, 0, 0, 0, false},
    {"cached keys", 3, {1, 3, 1}, {100, 9, 1}, {-2}, 4, 2, 16, 0, 0, 0, false},
    {"cached keys, window", 2, {2, 5}, {200, 33}, {-2}, 3, 1, 16, 64, 0, 0, false},
    {"an empty segment", 3, {5, 0, 7}, {5, 0, 7}, {-2}, 2, 1, 16, 0, 0, 0, false},
    {"capped", 2, {130, 33}, {130, 33}, {-2}, 6, 2, 20, 0, 0, 1.5, false},
    {"capped, prefix, window", 3, {40, 50, 20}, {40, 50, 20}, {-1, 0, 0, 0}, 2, 1, 16, 30, 0, 0.5, false},
    {"sinks", 2, {130, 33}, {130, 33}, {-2}, 6, 2, 20, 0, 0, 0, true},
    {"sinks, prefix, window", 3, {40, 50, 20}, {40, 50, 20}, {-1, 0, 0, 0}, 2, 1, 16, 30, 0, 0, true},
    {"sinks, cached keys, capped", 3, {1, 3, 1}, {100, 9, 1}, {-2}, 4, 2, 16, 0, 0, 1.5, true},
};

void suite_attention(suite *s)
{
    static const char *const rules[] = {"attention caps scores", "attention has sinks",
                                        "attention merges the results for parts of the keys"};
    const uint32_t lacks = s->table->attention_lacks;
    for (int i = 0; s->ops.attention && i < COUNT(rules); i++)
        if (lacks >> i & 1) report_skip(s->report, rules[i], "attention_lacks names it");
    for (int i = 0; s->ops.attention && i < COUNT(cases); i++) {
        attention_case c = cases[i];
        if ((c.soft_cap > 0 && lacks & NRL_ATTENTION_SOFT_CAP) || (c.sinks && lacks & NRL_ATTENTION_SINKS)) continue;
        for (int d = 0; d < s->n_dtypes; d++) {
            c.dtype = suite_dtypes[d];
            check_attention(s, &c);
        }
    }
}

/* ---- gradients of what queries and keys were before a rotation ---- */

static void check_rotated(suite *s, const attention_case *c, int64_t half)
{
    suite_case(s, "attention_grad, %lld pairs of %lld, %s", (long long)half, (long long)c->width,
               nrl_dtype_name(c->dtype));
    attention_state a = state_new(s, c);
    const nrl_attention_args f = forward_args(s, &a);
    const int64_t n = a.q->rows;
    const size_t bytes = (size_t)(n * half) * sizeof(float);
    float *cosine = mem_alloc(bytes), *sine = mem_alloc(bytes);
    for (int64_t i = 0; i < n * half; i++) {
        cosine[i] = (float)suite_uniform(s, -1, 1);
        sine[i] = (float)suite_uniform(s, -1, 1);
    }
    const nrl_attention_grad_args g = {.size = sizeof g,
                                       .forward = &f,
                                       .dy = mat_args(a.dy),
                                       .dq = mat_args(a.dq),
                                       .dk = mat_args(a.dk),
                                       .dv = mat_args(a.dv),
                                       .cos = suite_array(s, cosine, bytes),
                                       .sin = suite_array(s, sine, bytes),
                                       .half = half};
    suite_ok(s, s->ops.attention(s->self, NULL, &f), "attention runs");
    suite_ok(s, s->ops.attention_grad(s->self, NULL, &g), "attention_grad runs");
    mat *const d[] = {a.dq, a.dk, a.dv};
    for (int i = 0; i < 3; i++) {
        double *want = a.want[i + 1];
        for (int64_t at = 0; i < 2 && at < n * d[i]->cols; at++) {
            const int64_t pair = at % d[i]->cols % c->width, angle = at / d[i]->cols * half + pair;
            if (pair >= half) continue;
            const double x = want[at], y = want[at + half];
            want[at] = x * (double)cosine[angle] + y * (double)sine[angle];
            want[at + half] = y * (double)cosine[angle] - x * (double)sine[angle];
        }
        suite_expect(s, "attention_grad rotates back", d[i], want, 4e-5, c->dtype == NRL_DTYPE_F32 ? 6e-5 : 0.1);
    }
    free(cosine);
    free(sine);
    state_free(s, &a);
}

void suite_attention_rotated(suite *s)
{
    static const struct {
        attention_case c;
        int64_t half;
    } rotated[] = {
        {{"packed", 3, {17, 1, 65}, {17, 1, 65}, {-2}, 4, 2, 64, 0, 0, 0, false}, 32},
        {{"wide heads", 1, {33}, {33}, {-2}, 2, 1, 128, 0, 0, 0, false}, 64},
        {{"a part of each head", 2, {30, 9}, {30, 9}, {-2}, 4, 2, 64, 0, 0, 0, false}, 20},
    };
    for (int i = 0; s->table->rotates_gradients && i < COUNT(rotated); i++)
        for (int d = 0; d < s->n_dtypes; d++) {
            attention_case c = rotated[i].c;
            c.dtype = suite_dtypes[d];
            check_rotated(s, &c, rotated[i].half);
        }
}
