/*
 * attention_grad.c - backward of attention from the saved log-sum-exp (Dao et al. 2022): which thread
 * owns what. attention_grad.h has the tiles.
 *
 * No two threads add to the same value. Either a task owns all queries and keys that meet each other
 * (a family of segments and a kv head) or, if that gives too few tasks, one pass owns blocks of keys
 * and a second pass owns blocks of queries. Both add tiles in the same order, so neither the choice
 * nor the number of threads changes the result.
 */
#include "attention_grad.h"

/* ---- one pass: a task is a family of segments and a kv head ---- */

static void family_task(void *arg, int64_t begin, int64_t end, int thread)
{
    const grad_task *t = arg;
    const nrl_attention_args *f = t->a->forward;
    (void)end;
    int64_t fam = begin / f->n_kv_heads, head = begin % f->n_kv_heads;
    grad_work w = work_at(cpu_scratch_at(t->self, thread), f);
    for (int64_t i = t->family[fam]; i < t->family[fam + 1]; i++) {
        segment seg = segment_of(f, t->member[i]);
        for (int64_t q = 0; q < seg.n_queries; q += block_queries(f)) {
            query_block b = block_of(f, &seg, head, q);
            grad_block(t, &b, &w, true);
        }
    }
}

/* ---- two passes: tasks are blocks of queries, then blocks of keys ---- */

static int64_t segment_of_task(const grad_task *t, int64_t task)
{
    int64_t low = 0, high = t->a->forward->n_segments;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (t->first_task[middle] <= task)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void queries_task(void *arg, int64_t begin, int64_t end, int thread)
{
    const grad_task *t = arg;
    const nrl_attention_args *f = t->a->forward;
    (void)end;
    int64_t s = segment_of_task(t, begin), i = begin - t->first_task[s];
    segment seg = segment_of(f, s);
    query_block b = block_of(f, &seg, i % f->n_kv_heads, i / f->n_kv_heads * block_queries(f));
    grad_work w = work_at(cpu_scratch_at(t->self, thread), f);
    grad_block(t, &b, &w, false);
}

/* Adds the contributions of one segment's queries to a key block of segment `owner`. */
static void keys_from_segment(const grad_task *t, int64_t s, int64_t owner, int64_t head, int64_t offset,
                              const grad_work *w)
{
    const nrl_attention_args *f = t->a->forward;
    segment seg = segment_of(f, s);
    const key_run *run = &seg.run[s == owner ? 1 : 0];
    int64_t row = run->begin + offset;
    key_block kb = {row, run->first + offset, run->end - row < KEYS ? run->end - row : KEYS};
    for (int64_t q = 0; q < seg.n_queries; q += block_queries(f)) {
        query_block b = block_of(f, &seg, head, q);
        if (!block_sees(&b, &kb)) continue;
        load_block(t, &b, w);
        grad_tile(t, &b, &kb, w, true, false);
    }
}

static void keys_task(void *arg, int64_t begin, int64_t end, int thread)
{
    const grad_task *t = arg;
    const nrl_attention_args *f = t->a->forward;
    (void)end;
    int64_t owner = segment_of_task(t, begin), i = begin - t->first_task[owner];
    int64_t head = i % f->n_kv_heads, offset = i / f->n_kv_heads * KEYS;
    int64_t fam = t->root_family[owner];
    grad_work w = work_at(cpu_scratch_at(t->self, thread), f);
    for (int64_t m = t->family[fam]; m < t->family[fam + 1]; m++) {
        int64_t s = t->member[m];
        bool prefixed = f->host_prefix && f->host_prefix[s] == owner;
        if (s == owner || prefixed) keys_from_segment(t, s, owner, head, offset, &w);
    }
}

static void two_passes(const grad_task *t)
{
    const nrl_attention_args *f = t->a->forward;
    for (int pass = 0; pass < 2; pass++) {
        int64_t most = pass == 0 ? block_queries(f) : KEYS;
        t->first_task[0] = 0;
        for (int64_t s = 0; s < f->n_segments; s++) {
            segment seg = segment_of(f, s);
            int64_t rows = pass == 0 ? seg.n_queries : seg.run[1].end - seg.run[1].begin;
            t->first_task[s + 1] = t->first_task[s] + (rows + most - 1) / most * f->n_kv_heads;
        }
        cpu_tasks(t->self, t->first_task[f->n_segments], pass == 0 ? queries_task : keys_task, (void *)t);
    }
}

/* ---- families ---- */

/* Sorts segments by the root of their chain of prefixes. */
static void find_families(grad_task *t)
{
    const nrl_attention_args *f = t->a->forward;
    int64_t n = f->n_segments;
    t->n_families = 0;
    for (int64_t s = 0; s < n; s++)
        t->root_family[s] = -1;
    for (int64_t s = 0; s < n; s++) {
        int64_t root = s;
        for (int64_t step = 0; f->host_prefix && f->host_prefix[root] >= 0 && step < n; step++)
            root = f->host_prefix[root];
        t->first_task[s] = root; /* used as temporary storage until the passes begin */
        if (t->root_family[root] < 0) t->root_family[root] = t->n_families++;
    }
    for (int64_t s = 0; s < n; s++)
        t->member[s] = t->root_family[t->first_task[s]];
    for (int64_t s = 0; s < n; s++)
        t->root_family[s] = t->member[s];
    memset(t->family, 0, (size_t)(n + 1) * sizeof *t->family);
    for (int64_t s = 0; s < n; s++)
        t->family[t->root_family[s] + 1]++;
    for (int64_t i = 0; i < n; i++)
        t->family[i + 1] += t->family[i];
    for (int64_t i = 0; i < n; i++)
        t->first_task[i] = t->family[i];
    for (int64_t s = 0; s < n; s++)
        t->member[t->first_task[t->root_family[s]]++] = s;
}

/* Whether one pass keeps all threads busy: the largest task must not take much longer than an even share. */
static bool families_suffice(const grad_task *t)
{
    const nrl_attention_args *f = t->a->forward;
    double total = 0, largest = 0;
    for (int64_t i = 0; i < t->n_families; i++) {
        double cost = 0;
        for (int64_t m = t->family[i]; m < t->family[i + 1]; m++) {
            segment seg = segment_of(f, t->member[m]);
            cost +=
                (double)seg.n_queries * (double)(seg.run[0].end - seg.run[0].begin + seg.run[1].end - seg.run[1].begin);
        }
        total += cost * (double)f->n_kv_heads;
        if (cost > largest) largest = cost;
    }
    return largest * t->self->n_threads <= total * 0.5 || t->self->n_threads == 1;
}

/* ---- start and end ---- */

static void delta_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const grad_task *t = arg;
    const nrl_attention_args *f = t->a->forward;
    float y_buf[SPAN], dy_buf[SPAN];
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t h = 0; h < f->n_heads; h++) {
            float total = 0;
            for (int64_t c = 0; c < f->head_dim; c += SPAN) {
                int64_t n = f->head_dim - c < SPAN ? f->head_dim - c : SPAN;
                const float *y = span_read(&f->y, row, h * f->head_dim + c, n, y_buf);
                const float *dy = span_read(&t->a->dy, row, h * f->head_dim + c, n, dy_buf);
                float s = 0;
#pragma omp simd reduction(+ : s)
                for (int64_t i = 0; i < n; i++)
                    s += y[i] * dy[i];
                total += s;
            }
            t->delta[h * f->q.rows + row] = total;
        }
    }
}

/* The score of a sink is that of a key with value 0, whose dS = -P delta. */
static void sink_task(void *arg, int64_t head, int64_t end, int thread)
{
    const grad_task *t = arg;
    const nrl_attention_args *f = t->a->forward;
    const float *delta = t->delta + head * f->q.rows;
    double sum = 0;
    (void)end;
    (void)thread;
    for (int64_t row = 0; row < f->q.rows; row++)
        sum += (double)(expf(f->sinks[head] - *(const float *)mat_at(&f->lse, head, row, 4)) * delta[row]);
    t->a->dsinks[head] = (float)-sum;
}

/* Whether dk and dv can hold the sums themselves: they are f32 and whole vectors. */
static bool sums_in_place(const grad_task *t)
{
    const nrl_attention_grad_args *a = t->a;
    return a->dk.dtype == NRL_DTYPE_F32 && a->dv.dtype == NRL_DTYPE_F32 && a->dk.stride == a->dv.stride &&
           a->forward->head_dim == t->width;
}

static nrl_mat sums_of(const grad_task *t, float *data, int64_t head, int64_t cols)
{
    return (nrl_mat){.data = data + head * t->width,
                     .dtype = NRL_DTYPE_F32,
                     .rows = t->a->dk.rows,
                     .cols = cols,
                     .stride = t->stride};
}

static nrl_status clear_sums(const grad_task *t)
{
    float *const each[] = {t->dk, t->dv};
    for (int i = 0; i < 2; i++) {
        nrl_fill_args zero = {.size = sizeof zero};
        zero.y = sums_of(t, each[i], 0, t->a->forward->n_kv_heads * t->width);
        NRL_TRY(ISA(cpu_fill)((void *)t->self, NULL, &zero));
    }
    return NRL_OK;
}

static nrl_status copy_sums(const grad_task *t)
{
    float *const each[] = {t->dk, t->dv};
    const nrl_mat *const to[] = {&t->a->dk, &t->a->dv};
    const nrl_attention_args *f = t->a->forward;
    for (int i = 0; i < 2; i++)
        for (int64_t head = 0; head < f->n_kv_heads; head++) {
            nrl_copy_args k = {.size = sizeof k, .alpha = 1, .y = *to[i], .accumulate = f->merge};
            k.x = sums_of(t, each[i], head, f->head_dim);
            k.y.data = mat_at(to[i], 0, head * f->head_dim, nrl_dtype_size(to[i]->dtype));
            k.y.cols = f->head_dim;
            NRL_TRY(ISA(cpu_copy)((void *)t->self, NULL, &k));
        }
    return NRL_OK;
}

static nrl_status run_passes(grad_task *t)
{
    const nrl_attention_args *f = t->a->forward;
    if (!f->merge || !sums_in_place(t)) NRL_TRY(clear_sums(t));
    cpu_split(t->self, f->q.rows, row_grain(f->q.cols), delta_rows, t);
    if (t->a->dsinks) cpu_tasks(t->self, f->n_heads, sink_task, t);
    find_families(t);
    if (families_suffice(t))
        cpu_tasks(t->self, t->n_families * f->n_kv_heads, family_task, t);
    else
        two_passes(t);
    return NRL_OK;
}

OP(attention_grad)
{
    nrl_attention_args forward;
    nrl_attention_grad_args whole = *a;
    if (a->forward->size != sizeof forward) {
        NRL_TRY(cpu_known_args("attention", a->forward, a->forward->size, &forward, sizeof forward));
        whole.forward = &forward;
        a = &whole;
    }
    const nrl_attention_args *f = a->forward;
    NRL_TRY(attention_check(f));
    if (!f->lse.data) return nrl_fail(NRL_ERR_BUG, "attention_grad without lse");
    if (f->merge && (a->dq.dtype != NRL_DTYPE_F32 || a->dk.dtype != NRL_DTYPE_F32 || a->dv.dtype != NRL_DTYPE_F32))
        return nrl_fail(NRL_ERR_BUG, "attention_grad adds to gradients that are not f32");
    NRL_TRY(cpu_scratch(instance, work_floats(f) * sizeof(float)));
    grad_task t = {.self = instance, .a = a, .width = round_up(f->head_dim, LANES)};
    bool in_place = sums_in_place(&t);
    int64_t n = f->n_segments + 1;
    t.stride = in_place ? a->dk.stride : f->n_kv_heads * t.width;
    size_t sums = in_place ? 0 : (size_t)(a->dk.rows * t.stride);
    size_t deltas = (size_t)round_up(f->n_heads * f->q.rows, 16);
    void *memory;
    NRL_TRY(cpu_work(instance, (2 * sums + deltas) * 4 + 4 * (size_t)n * sizeof(int64_t), &memory));
    t.delta = memory;
    t.dk = in_place ? a->dk.data : t.delta + deltas;
    t.dv = in_place ? a->dv.data : t.dk + sums;
    t.family = (int64_t *)(void *)(t.delta + deltas + 2 * sums);
    t.member = t.family + n;
    t.root_family = t.member + n;
    t.first_task = t.root_family + n;
    NRL_TRY(run_passes(&t));
    return in_place ? NRL_OK : copy_sums(&t);
}
