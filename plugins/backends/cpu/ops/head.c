/*
 * head.c - log-probabilities of targets from one chunk of logits, and the gradient that overwrites them.
 *
 * A row is read twice while it is in cache: once for soft cap, temperature and the maximum, once
 * for the sums. Logits in bf16 are widened first.
 * With p = exp(z - lse): entropy H = lse - sum p z, dH/dz = -p (z - lse + H).
 */
#include "span.h"

typedef struct {
    const nrl_head_args *a;
    float cap, scale;
    const cpu *self;
} head_task;

ALWAYS_INLINE float or_one(double x)
{
    return x == 0 ? 1.0f : (float)x;
}

/* z = scale cap tanh(z / cap) */
static void transform(const head_task *t, float *z, int64_t n)
{
    float cap = t->cap, inverse = cap != 0 ? 1 / cap : 0, scale = t->scale;
    if (cap != 0) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            z[i] = scale * cap * v_tanh(z[i] * inverse);
    } else if (scale != 1) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            z[i] = scale * z[i];
    }
}

/* The largest value, or NaN if there is one. */
static float largest(const float *z, int64_t n)
{
    float max = -INFINITY, bad = 0;
#pragma omp simd reduction(max : max) reduction(+ : bad)
    for (int64_t i = 0; i < n; i++) {
        max = z[i] > max ? z[i] : max;
        bad += z[i] != z[i] ? 1.0f : 0.0f;
    }
    return bad > 0 ? NAN : max;
}

typedef struct {
    double exp, exp_z, exp2; /* sums of e, e (z - max), e^2 with e = exp(z - max) */
} head_sums;

static head_sums sum_row(const float *z, int64_t cols, float max, bool more)
{
    head_sums total = {0, 0, 0};
    for (int64_t c = 0; c < cols; c += SPAN) {
        int64_t end = cols - c < SPAN ? cols : c + SPAN;
        float s = 0, sz = 0, s2 = 0;
        if (!more) {
#pragma omp simd reduction(+ : s)
            for (int64_t i = c; i < end; i++)
                s += v_exp_flush(z[i] - max);
        } else {
#pragma omp simd reduction(+ : s, sz, s2)
            for (int64_t i = c; i < end; i++) {
                float d = z[i] - max, e = v_exp_flush(d);
                s += e;
                sz += e > 0.0f ? e * d : e;
                s2 += e * e;
            }
        }
        total.exp += s;
        total.exp_z += sz;
        total.exp2 += s2;
    }
    return total;
}

static int32_t first_equal(const float *z, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        if (z[i] == value || (value != value && z[i] != z[i])) return (int32_t)i;
    return 0;
}

/* The transformed logits of a row as f32: in place, or those that are rounded to bf16, in scratch memory. */
static const float *transformed_row(const head_task *t, int64_t row, int thread)
{
    const nrl_mat *logits = &t->a->logits;
    const bool changes = t->cap != 0 || t->scale != 1;
    float *z = span_target(logits, row, 0, cpu_scratch_at(t->self, thread));
    (void)span_read(logits, row, 0, logits->cols, z);
    if (changes) transform(t, z, logits->cols);
    if (!changes || logits->dtype == NRL_DTYPE_F32) return z;
    span_write(logits, row, 0, logits->cols, z);
    return span_read(logits, row, 0, logits->cols, z);
}

static void head_row(const head_task *t, int64_t row, int thread)
{
    const nrl_head_args *a = t->a;
    const float *z = transformed_row(t, row, thread);
    float max = largest(z, a->logits.cols);
    head_sums s = sum_row(z, a->logits.cols, max, a->entropy || a->log_sum_p2);
    double log_sum = log(s.exp), lse = max + log_sum;
    if (a->lse) a->lse[row] = (float)lse;
    int32_t target = a->target ? a->target[row] : -1;
    if (a->logp) a->logp[row] = target < 0 ? 0 : (float)((double)z[target] - max - log_sum);
    if (a->entropy) a->entropy[row] = (float)(log_sum - s.exp_z / s.exp);
    if (a->log_sum_p2) a->log_sum_p2[row] = (float)(log(s.exp2) - 2 * log_sum);
    if (a->argmax) a->argmax[row] = first_equal(z, a->logits.cols, max);
}

static void head_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    for (int64_t row = begin; row < end; row++)
        head_row(arg, row, thread);
}

static nrl_status check_targets(const int32_t *target, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; target && i < rows; i++)
        if (target[i] < -2 || target[i] >= cols)
            return nrl_fail(NRL_ERR_BUG, "target %d of a vocabulary of %lld", target[i], (long long)cols);
    return NRL_OK;
}

OP(head)
{
    NRL_TRY(check_targets(a->target, a->logits.rows, a->logits.cols));
    if (a->logits.dtype != NRL_DTYPE_F32) NRL_TRY(cpu_scratch(instance, (size_t)a->logits.cols * sizeof(float)));
    head_task t = {a, (float)a->soft_cap, or_one(a->inverse_temperature), instance};
    cpu_split(instance, a->logits.rows, row_grain(4 * a->logits.cols), head_rows, &t);
    return NRL_OK;
}

/* ---- gradient ---- */

typedef struct {
    const nrl_head_grad_args *a;
    float cap, scale;
} grad_task;

/* d[i] = -p (dlogp + dentropy (z - lse + H)), where dlogp is without dlse, times the slopes of temperature and soft
 * cap. */
static void grad_span(const float *z, float *d, int64_t n, float lse, float dlogp, float dentropy, float entropy,
                      float cap, float scale)
{
    if (dentropy != 0 || cap != 0) {
        float inverse = cap != 0 ? 1 / (cap * scale) : 0;
        SIMD
        for (int64_t i = 0; i < n; i++) {
            float u = z[i] - lse, p = v_exp_flush(u), t = z[i] * inverse;
            float h = p > 0.0f ? p * (u + entropy) : p;
            d[i] = -(dlogp * p + dentropy * h) * scale * (1.0f - t * t);
        }
    } else {
        float factor = -dlogp * scale;
        SIMD
        for (int64_t i = 0; i < n; i++)
            d[i] = factor * v_exp_flush(z[i] - lse);
    }
}

static void grad_row(const grad_task *t, int64_t row)
{
    const nrl_head_grad_args *a = t->a;
    int32_t target = a->target ? a->target[row] : -1;
    float dlogp = a->dlogp && target != -1 ? a->dlogp[row] : 0;
    float dentropy = a->dentropy ? a->dentropy[row] : 0;
    float dlse = a->dlse ? a->dlse[row] : 0;
    float entropy = a->entropy ? a->entropy[row] : 0;
    float d_buf[SPAN], z_buf[SPAN];
    for (int64_t c = 0; c < a->logits.cols; c += SPAN) {
        int64_t n = a->logits.cols - c < SPAN ? a->logits.cols - c : SPAN;
        bool has_target = target >= c && target < c + n;
        const float *z = span_read(&a->logits, row, c, n, z_buf);
        float z_target = has_target ? z[target - c] : 0;
        float *d = span_target(&a->dlogits, row, c, d_buf);
        grad_span(z, d, n, a->lse[row], dlogp - dlse, dentropy, entropy, t->cap, t->scale);
        if (has_target) {
            float u = t->cap != 0 ? z_target / (t->cap * t->scale) : 0;
            d[target - c] += dlogp * t->scale * (1 - u * u);
        }
        span_write(&a->dlogits, row, c, n, d);
    }
}

static void grad_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t row = begin; row < end; row++)
        grad_row(arg, row);
}

OP(head_grad)
{
    NRL_TRY(check_targets(a->target, a->logits.rows, a->logits.cols));
    if (a->dentropy && !a->entropy) return nrl_fail(NRL_ERR_BUG, "head_grad with dentropy but without entropy");
    grad_task t = {a, (float)a->soft_cap, or_one(a->inverse_temperature)};
    cpu_split(instance, a->logits.rows, row_grain(4 * a->logits.cols), grad_rows, &t);
    return NRL_OK;
}
