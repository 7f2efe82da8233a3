/*
 * attention.c - forward: online softmax over blocks of keys (Milakov and Gimelshein 2018, Dao et
 * al. 2022). One task is a block of queries of one kv head; tasks are independent, so results do
 * not depend on the number of threads.
 */
#include "attention.h"

typedef struct {
    const cpu *self;
    const nrl_attention_args *a;
    int64_t *first_task; /* [segments + 1] tasks before each segment */
} attention_task;

/* Work space of one block; lanes of each array are contiguous. */
typedef struct {
    float *q, *out;                 /* [head_dim, lanes]: scaled queries, unnormalised result */
    float *scores;                  /* [KEYS, lanes] */
    float *pos, *max, *sum, *shift; /* [lanes] */
    float *k, *v;                   /* [KEYS, head_dim], for bf16 and f16 */
} work;

static size_t work_floats(const nrl_attention_args *a)
{
    int64_t lanes = round_up(a->n_heads / a->n_kv_heads * block_queries(a), LANES);
    return (size_t)(2 * a->head_dim * lanes + KEYS * lanes + 4 * lanes + 2 * KEYS * a->head_dim);
}

static work work_at(float *p, const query_block *b)
{
    int64_t width = b->a->head_dim, lanes = b->lanes;
    work w;
    w.q = p;
    w.out = w.q + width * lanes;
    w.scores = w.out + width * lanes;
    w.pos = w.scores + KEYS * lanes;
    w.max = w.pos + lanes;
    w.sum = w.max + lanes;
    w.shift = w.sum + lanes;
    w.k = w.shift + lanes;
    w.v = w.k + KEYS * width;
    return w;
}

/* Scores become exp(score - new max); shift becomes the factor for earlier sums. */
static void softmax_block(const work *w, int64_t keys, int64_t lanes)
{
    for (int64_t l0 = 0; l0 < lanes; l0 += LANES) {
        float max[LANES], sum[LANES], base[LANES];
        SIMD
        for (int l = 0; l < LANES; l++)
            max[l] = w->max[l0 + l];
        for (int64_t j = 0; j < keys; j++) {
            const float *s = w->scores + j * lanes + l0;
            SIMD
            for (int l = 0; l < LANES; l++)
                max[l] = s[l] > max[l] ? s[l] : max[l];
        }
        SIMD
        for (int l = 0; l < LANES; l++) {
            base[l] = max[l] == -INFINITY ? 0.0f : max[l];
            w->shift[l0 + l] = v_exp_flush(w->max[l0 + l] - base[l]);
            w->max[l0 + l] = max[l];
            sum[l] = 0;
        }
        for (int64_t j = 0; j < keys; j++) {
            float *s = w->scores + j * lanes + l0;
            SIMD
            for (int l = 0; l < LANES; l++) {
                s[l] = v_exp_flush(s[l] - base[l]);
                sum[l] += s[l];
            }
        }
        SIMD
        for (int l = 0; l < LANES; l++)
            w->sum[l0 + l] = w->sum[l0 + l] * w->shift[l0 + l] + sum[l];
    }
}

/* s becomes cap tanh(s / cap) */
static void cap_scores(float *s, int64_t n, float cap)
{
    SIMD
    for (int64_t i = 0; i < n; i++)
        s[i] = cap * v_tanh(s[i] / cap);
}

static void forward_keys(const query_block *b, const work *w, const key_block *kb)
{
    const nrl_attention_args *a = b->a;
    int64_t width = a->head_dim, lanes = b->lanes, stride;
    tile_args t = {.b = w->q, .b_row = lanes, .c = w->scores, .c_row = lanes, .k = width};
    t.a = key_rows(&a->k, b, kb, w->k, &stride);
    t.a_row = stride;
    t.a_col = 1;
    ISA(cpu_tile_product)(&t, kb->n, lanes);
    if (a->soft_cap > 0) cap_scores(w->scores, kb->n * lanes, (float)a->soft_cap);
    if (!block_sees_all(b, kb)) mask_scores(b, kb, w->pos, w->scores, -INFINITY);
    softmax_block(w, kb->n, lanes);
    for (int64_t d = 0; d < width; d++) {
        float *out = w->out + d * lanes;
        SIMD
        for (int64_t l = 0; l < lanes; l++)
            out[l] *= w->shift[l];
    }
    tile_args u = {.b = w->scores, .b_row = lanes, .c = w->out, .c_row = lanes, .k = kb->n, .add = true};
    u.a = key_rows(&a->v, b, kb, w->v, &stride);
    u.a_row = 1;
    u.a_col = stride;
    ISA(cpu_tile_product)(&u, width, lanes);
}

/* Adds a query of this part to the result for other keys: each has the share exp(lse - lse of both). */
static void merge_lane(const query_block *b, const work *w, int64_t l, float *y, float *lse)
{
    float own = w->max[l] + logf(w->sum[l]), top = own > *lse ? own : *lse;
    float both = top + logf(expf(own - top) + expf(*lse - top));
    float before = expf(*lse - both), factor = expf(own - both) / w->sum[l];
    for (int64_t d = 0; d < b->a->head_dim; d++)
        y[d] = y[d] * before + w->out[d * b->lanes + l] * factor;
    *lse = both;
}

/* y = out / sum, lse = max + log sum, where a sink adds to both; a query that sees no key gets 0, and -inf or its sink.
 */
static void forward_store(const query_block *b, const work *w)
{
    const nrl_attention_args *a = b->a;
    int64_t width = a->head_dim;
    for (int64_t l = 0; l < b->group * b->n && a->merge; l++) {
        int64_t head = b->kv_head * b->group + l / b->n, row = b->seg.q_begin + b->first + l % b->n;
        if (w->sum[l] != 0) merge_lane(b, w, l, mat_at(&a->y, row, head * width, 4), mat_at(&a->lse, head, row, 4));
    }
    for (int64_t l = 0; l < b->group * b->n && !a->merge; l++) {
        int64_t head = b->kv_head * b->group + l / b->n;
        int64_t row = b->seg.q_begin + b->first + l % b->n;
        float max = w->max[l], sum = w->sum[l], kept = 1, buf[SPAN];
        if (a->sinks) {
            max = fmaxf(max, a->sinks[head]);
            kept = expf(w->max[l] - max);
            sum = sum * kept + expf(a->sinks[head] - max);
        }
        const float inverse = sum == 0 ? 0 : kept / sum;
        for (int64_t c = 0; c < width; c += SPAN) {
            int64_t n = width - c < SPAN ? width - c : SPAN;
            float *y = span_target(&a->y, row, head * width + c, buf);
            for (int64_t d = 0; d < n; d++)
                y[d] = w->out[(c + d) * b->lanes + l] * inverse;
            span_write(&a->y, row, head * width + c, n, y);
        }
        if (a->lse.data) *(float *)mat_at(&a->lse, head, row, 4) = sum == 0 ? -INFINITY : max + logf(sum);
    }
}

static void forward_block(const query_block *b, float *scratch)
{
    work w = work_at(scratch, b);
    memset(w.out, 0, (size_t)(b->a->head_dim * b->lanes) * sizeof *w.out);
    pack_lanes(&b->a->q, b, (float)b->a->scale, w.q);
    lane_positions(b, w.pos);
    for (int64_t l = 0; l < b->lanes; l++) {
        w.max[l] = -INFINITY;
        w.sum[l] = 0;
    }
    for (int r = 0; r < 2; r++) {
        const key_run *run = &b->seg.run[r];
        for (int64_t row = run->begin; row < run->end; row += KEYS) {
            key_block kb = {row, run->first + row - run->begin, run->end - row < KEYS ? run->end - row : KEYS};
            if (block_sees(b, &kb)) forward_keys(b, &w, &kb);
        }
    }
    forward_store(b, &w);
}

/* Task i: which segment, then query block and kv head. */
static void forward_tasks(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention_task *t = arg;
    const nrl_attention_args *a = t->a;
    (void)end;
    int64_t low = 0, high = a->n_segments; /* first_task[low] <= begin < first_task[high] */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (t->first_task[middle] <= begin)
            low = middle;
        else
            high = middle;
    }
    segment seg = segment_of(a, low);
    int64_t i = begin - t->first_task[low];
    query_block b = block_of(a, &seg, i % a->n_kv_heads, i / a->n_kv_heads * block_queries(a));
    forward_block(&b, cpu_scratch_at(t->self, thread));
}

OP(attention)
{
    NRL_TRY(attention_check(a));
    if (a->merge && (a->y.dtype != NRL_DTYPE_F32 || !a->lse.data))
        return nrl_fail(NRL_ERR_BUG, "attention merges a part into %s, %s log-sum-exp; expected f32 with one",
                        nrl_dtype_name((nrl_dtype)a->y.dtype), a->lse.data ? "with a" : "without a");
    NRL_TRY(cpu_scratch(instance, work_floats(a) * sizeof(float)));
    void *memory;
    NRL_TRY(cpu_work(instance, ((size_t)a->n_segments + 1) * sizeof(int64_t), &memory));
    attention_task t = {instance, a, memory};
    t.first_task[0] = 0;
    for (int64_t s = 0; s < a->n_segments; s++) {
        int64_t n = segment_of(a, s).n_queries, most = block_queries(a);
        t.first_task[s + 1] = t.first_task[s] + (n + most - 1) / most * a->n_kv_heads;
    }
    cpu_tasks(instance, t.first_task[a->n_segments], forward_tasks, &t);
    return NRL_OK;
}
