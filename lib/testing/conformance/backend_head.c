/*
 * backend_head.c - log-probabilities of a chunk of logits, and their gradient.
 */
#include "base/arena.h"
#include "backend.h"
#include <math.h>
#include <stdlib.h>

typedef struct {
    int64_t rows, cols, gap;
    double soft_cap, temperature;
    bool entropy;           /* entropy, log_sum_p2 and argmax too */
    uint32_t dtype, logits; /* of the gradient, and of the logits */
} head_case;

typedef struct {
    double lse, entropy, log_sum_p2;
    int32_t argmax;
} row_truth;

static double transformed(const head_case *k, double z)
{
    if (k->soft_cap > 0) z = k->soft_cap * tanh(z / k->soft_cap);
    return z / k->temperature;
}

static row_truth row_reference(const head_case *k, const double *z)
{
    row_truth t = {.argmax = 0};
    double sum = 0, square = 0, weighted = 0;
    for (int64_t c = 1; c < k->cols; c++)
        if (z[c] > z[t.argmax]) t.argmax = (int32_t)c;
    for (int64_t c = 0; c < k->cols; c++)
        sum += exp(z[c] - z[t.argmax]);
    t.lse = z[t.argmax] + log(sum);
    for (int64_t c = 0; c < k->cols; c++) {
        double p = exp(z[c] - t.lse);
        weighted += p * z[c];
        square += p * p;
    }
    t.entropy = t.lse - weighted;
    t.log_sum_p2 = log(square);
    return t;
}

typedef struct {
    mat *logits, *logp, *lse, *entropy, *p2, *dlogits, *dlogp, *dentropy, *dlse;
    int32_t *target, *argmax;
    int32_t *target_device, *argmax_device;
    double *z; /* transformed logits */
} head_mats;

static head_mats head_new(suite *s, const head_case *k)
{
    head_mats m = {0};
    m.logits = mat_random(s, k->logits, k->rows, k->cols, k->gap, -8, 8);
    m.logp = mat_new(s, NRL_DTYPE_F32, 1, k->rows, 0);
    m.lse = mat_new(s, NRL_DTYPE_F32, 1, k->rows, 0);
    m.entropy = mat_new(s, NRL_DTYPE_F32, 1, k->rows, 0);
    m.p2 = mat_new(s, NRL_DTYPE_F32, 1, k->rows, 0);
    m.dlogp = mat_random(s, NRL_DTYPE_F32, 1, k->rows, 0, -2, 2);
    m.dentropy = mat_random(s, NRL_DTYPE_F32, 1, k->rows, 0, -2, 2);
    m.dlse = mat_random(s, NRL_DTYPE_F32, 1, k->rows, 0, -2, 2);
    m.target = mem_alloc((size_t)k->rows * sizeof *m.target);
    m.argmax = mem_alloc((size_t)k->rows * sizeof *m.argmax);
    m.z = mem_alloc((size_t)(k->rows * k->cols) * sizeof *m.z);
    for (int64_t r = 0; r < k->rows; r++) {
        m.target[r] = r % 7 == 5 ? -1 : (int32_t)((r * 31 + 2) % k->cols);
        if (k->cols > 2 && r % 2 == 0) *mat_value(m.logits, r, k->cols - 1) = *mat_value(m.logits, r, 0) = 9;
        for (int64_t c = 0; c < k->cols; c++)
            m.z[r * k->cols + c] = transformed(k, *mat_value(m.logits, r, c));
    }
    mat_upload(s, m.logits);
    m.target_device = suite_array(s, m.target, (size_t)k->rows * sizeof *m.target);
    m.argmax_device = suite_array(s, m.argmax, (size_t)k->rows * sizeof *m.argmax);
    return m;
}

/* Values and gradient are those of the logits that head has left, which it rounds to their dtype. */
static void check_values(suite *s, const head_case *k, head_mats *m)
{
    double *want = mem_alloc((size_t)k->rows * 4 * sizeof *want);
    suite_expect(s, "head leaves logits after cap and temperature", m->logits, m->z, 2e-6, 3e-6);
    for (int64_t r = 0; k->logits != NRL_DTYPE_F32 && r < k->rows; r++)
        for (int64_t c = 0; c < k->cols; c++)
            m->z[r * k->cols + c] = *mat_value(m->logits, r, c);
    int64_t wrong = 0;
    suite_read(s, m->argmax, m->argmax_device, (size_t)k->rows * sizeof *m->argmax);
    for (int64_t r = 0; r < k->rows; r++) {
        row_truth t = row_reference(k, m->z + r * k->cols);
        want[r] = m->target[r] < 0 ? 0 : m->z[r * k->cols + m->target[r]] - t.lse;
        want[k->rows + r] = t.lse;
        want[2 * k->rows + r] = t.entropy;
        want[3 * k->rows + r] = t.log_sum_p2;
        wrong += m->argmax[r] != t.argmax;
    }
    suite_expect(s, "head gives log-probabilities of targets", m->logp, want, 1e-6, 3e-6);
    suite_expect(s, "head gives log-sum-exp", m->lse, want + k->rows, 1e-6, 2e-6);
    if (k->entropy) {
        suite_expect(s, "head gives the entropy", m->entropy, want + 2 * k->rows, 5e-6, 1e-5);
        suite_expect(s, "head gives the log of the sum of squares", m->p2, want + 3 * k->rows, 5e-6, 1e-5);
        report_check(s->report, wrong == 0, "head's argmax is the first largest", "%s: %lld rows", s->what,
                     (long long)wrong);
    }
    free(want);
}

static void check_gradient(suite *s, const head_case *k, head_mats *m, bool in_place)
{
    double *want = mem_alloc((size_t)(k->rows * k->cols) * sizeof *want);
    for (int64_t r = 0; r < k->rows; r++) {
        row_truth t = row_reference(k, m->z + r * k->cols);
        for (int64_t c = 0; c < k->cols; c++) {
            double z = m->z[r * k->cols + c], p = exp(z - t.lse), u = 0;
            double d = 0;
            if (m->target[r] >= 0) d = *mat_value(m->dlogp, 0, r) * ((c == m->target[r]) - p);
            if (k->entropy) d += *mat_value(m->dlse, 0, r) * p;
            if (k->entropy) d -= *mat_value(m->dentropy, 0, r) * p * (z - t.lse + t.entropy);
            if (k->soft_cap > 0) u = z * k->temperature / k->soft_cap;
            want[r * k->cols + c] = d * (1 - u * u) / k->temperature;
        }
    }
    mat *dlogits = in_place ? m->logits : mat_new(s, k->dtype, k->rows, k->cols, 1);
    nrl_head_grad_args a = {.size = sizeof a,
                            .logits = mat_args(m->logits),
                            .dlogits = mat_args(dlogits),
                            .target = m->target_device,
                            .soft_cap = k->soft_cap,
                            .inverse_temperature = 1 / k->temperature,
                            .lse = m->lse->device,
                            .dlogp = m->dlogp->device};
    if (k->entropy) {
        a.entropy = m->entropy->device;
        a.dentropy = m->dentropy->device;
        a.dlse = m->dlse->device;
    }
    suite_ok(s, s->ops.head_grad(s->self, NULL, &a), "head_grad runs");
    suite_expect(s, "head_grad is the slope of head", dlogits, want, 2e-5, 5e-6);
    free(want);
}

static void check_head(suite *s, const head_case *k, bool in_place)
{
    suite_case(s, "head of %s, %lld x %lld, cap %g, temperature %g%s, %s%s", nrl_dtype_name(k->logits),
               (long long)k->rows, (long long)k->cols, k->soft_cap, k->temperature, k->entropy ? ", entropy" : "",
               nrl_dtype_name(k->dtype), in_place ? ", in place" : "");
    head_mats m = head_new(s, k);
    nrl_head_args a = {.size = sizeof a,
                       .logits = mat_args(m.logits),
                       .target = m.target_device,
                       .soft_cap = k->soft_cap,
                       .inverse_temperature = 1 / k->temperature,
                       .logp = m.logp->device,
                       .lse = m.lse->device};
    if (k->entropy) {
        a.entropy = m.entropy->device;
        a.log_sum_p2 = m.p2->device;
        a.argmax = m.argmax_device;
    }
    suite_ok(s, s->ops.head(s->self, NULL, &a), "head runs");
    check_values(s, k, &m);
    if (s->ops.head_grad) check_gradient(s, k, &m, in_place);
    free(m.target);
    free(m.argmax);
    free(m.z);
    suite_clear(s);
}

void suite_head(suite *s)
{
    static const int64_t shapes[][3] = {{1, 1, 0}, {3, 17, 2}, {17, 3, 0}, {65, 65, 1}, {9, 2500, 3}};
    for (int i = 0; s->ops.head && i < COUNT(shapes); i++)
        for (int how = 0; how < 8 * s->n_dtypes; how++) {
            head_case k = {shapes[i][0],      shapes[i][1], shapes[i][2],          how & 1 ? 5 : 0,
                           how & 2 ? 0.7 : 1, how & 4,      suite_dtypes[how / 8], NRL_DTYPE_F32};
            check_head(s, &k, false);
            if (how < 8) check_head(s, &k, true);
            k.logits = NRL_DTYPE_BF16;
            if (k.dtype != k.logits || !s->bf16_logits) continue;
            check_head(s, &k, false);
            check_head(s, &k, true);
        }
}
