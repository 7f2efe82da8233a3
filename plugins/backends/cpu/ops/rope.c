/*
 * rope.c - rotary position embedding: pairs (i, i + half) of each head turn by the position's
 * angle.
 */
#include "span.h"

typedef struct {
    const cpu *self;
    const nrl_rope_args *a;
} rope_task;

static void rotate(const float *x, float *y, const float *c, const float *s, int64_t half, float sign)
{
    SIMD
    for (int64_t i = 0; i < half; i++) {
        float x1 = x[i], x2 = x[i + half], sine = sign * s[i];
        y[i] = x1 * c[i] - x2 * sine;
        y[i + half] = x2 * c[i] + x1 * sine;
    }
}

static void rope_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const rope_task *t = arg;
    const nrl_rope_args *a = t->a;
    int64_t width = a->x.cols / a->n_heads, turned = 2 * a->half;
    float *x_buf = cpu_scratch_at(t->self, thread);
    float *y_buf = x_buf + width;
    float sign = a->inverse ? -1.0f : 1.0f;
    for (int64_t row = begin; row < end; row++) {
        const float *c = a->cos + row * a->half, *s = a->sin + row * a->half;
        for (int64_t col = 0; col < a->x.cols; col += width) {
            const float *x = span_read(&a->x, row, col, width, x_buf);
            float *y = span_target(&a->y, row, col, y_buf);
            rotate(x, y, c, s, a->half, sign);
            if (x != y) memcpy(y + turned, x + turned, (size_t)(width - turned) * sizeof *y);
            span_write(&a->y, row, col, width, y);
        }
    }
}

OP(rope)
{
    if (a->n_heads <= 0 || a->x.cols % a->n_heads != 0 || 2 * a->half > a->x.cols / a->n_heads)
        return nrl_fail(NRL_ERR_BUG, "rope of %lld pairs on %lld columns of %lld heads", (long long)a->half,
                        (long long)a->x.cols, (long long)a->n_heads);
    NRL_TRY(cpu_scratch(instance, (size_t)(a->x.cols / a->n_heads) * 2 * sizeof(float)));
    rope_task t = {instance, a};
    cpu_split(instance, a->x.rows, row_grain(a->x.cols), rope_rows, &t);
    return NRL_OK;
}
