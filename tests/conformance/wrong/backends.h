/*
 * backends.h - backends with few operations that break one rule each; the summary is the rule that
 * must detect it. Memory is that of the host.
 */
#ifndef WRONG_BACKENDS_H
#define WRONG_BACKENDS_H
#include <math.h>
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    int64_t threads;
} options;

static const nrl_option rows[] = {NRL_OPT_INT(options, threads, "1", 1, 64, "changes nothing")};

static nrl_status right_open(const void *o, int32_t index, void **self)
{
    (void)index;
    *self = malloc(sizeof(options));
    if (!*self) return nrl_fail(NRL_ERR_MEMORY, "no memory");
    memcpy(*self, o, sizeof(options));
    return NRL_OK;
}

static nrl_status right_info(void *self, nrl_device_info *fill)
{
    (void)self;
    strcpy(fill->name, "a toy");
    fill->memory_bytes = 1 << 30;
    fill->host_memory = true;
    return NRL_OK;
}

static nrl_status nameless_info(void *self, nrl_device_info *fill)
{
    (void)self;
    fill->memory_bytes = 1 << 30;
    return NRL_OK;
}

static nrl_status right_alloc(void *self, size_t bytes, void **out)
{
    (void)self;
    *out = bytes > (size_t)1 << 40 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "%zu bytes wanted", bytes);
}

/* Its header lies in front of what it gives. */
static nrl_status unaligned_alloc(void *self, size_t bytes, void **out)
{
    NRL_TRY(right_alloc(self, bytes + 16, out));
    *out = (char *)*out + 16;
    return NRL_OK;
}

static nrl_status wordy_alloc(void *self, size_t bytes, void **out)
{
    if (bytes > (size_t)1 << 40) return nrl_fail(NRL_ERR_BUG, "that much?");
    return right_alloc(self, bytes, out);
}

static void right_free(void *self, void *memory)
{
    (void)self;
    free(memory);
}

static void unaligned_free(void *self, void *memory)
{
    (void)self;
    free(memory ? (char *)memory - 16 : NULL);
}

static nrl_status right_copy(void *self, nrl_stream *stream, void *to, const void *from, size_t bytes,
                             uint32_t direction)
{
    (void)self;
    (void)stream;
    (void)direction;
    if (bytes) memcpy(to, from, bytes);
    return NRL_OK;
}

static nrl_status refusing_probe(void)
{
    return nrl_fail(NRL_ERR_DEVICE, "there is no such device");
}

/* ---- square_sum and fill ---- */

static double element(const nrl_mat *m, int64_t row, int64_t col)
{
    int64_t at = row * m->stride + col;
    if (m->dtype == NRL_DTYPE_F32) return (double)((const float *)m->data)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)m->data)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void add_squares(const nrl_square_sum_args *a, bool overwrite, int64_t cols)
{
    double sum = 0;
    for (int64_t r = 0; r < a->x.rows; r++)
        for (int64_t c = 0; c < cols; c++)
            sum += element(&a->x, r, c) * element(&a->x, r, c);
    *a->out = sum + (overwrite ? 0 : *a->out);
}

static nrl_status right_square_sum(void *self, nrl_stream *stream, const nrl_square_sum_args *a)
{
    (void)self;
    (void)stream;
    add_squares(a, a->overwrite, a->x.cols);
    return NRL_OK;
}

/* Adds to the results of the first one. */
static nrl_status gathering_square_sum_all(void *self, nrl_stream *stream, const nrl_square_sum_args *calls, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(right_square_sum(self, stream, &calls[i]));
    for (int64_t i = 1; i < n; i++)
        *calls[0].out += *calls[i].out;
    return NRL_OK;
}

/* Applies whatever the sums are. */
static nrl_status hopeful_decide(void *self, nrl_stream *stream, const nrl_decide_args *a)
{
    double sum = 0;
    (void)self, (void)stream;
    for (int64_t i = 0; i < a->n_squares; i++)
        sum += a->squares[i];
    const double norm = sqrt(sum) * fabs(a->scale), factor = a->max_norm > 0 ? a->max_norm / (norm + 1e-6) : 1;
    const bool applies = isfinite(norm);
    *a->out = (nrl_update_decision){applies ? a->scale * fmin(1, factor) : 0, norm, applies};
    return NRL_OK;
}

static const void *hopeful_extension(void *self, const char *name)
{
    static const nrl_update_decider decider = {.size = sizeof decider, .decide = hopeful_decide};
    (void)self;
    return strcmp(name, "update_decision") ? NULL : &decider;
}

static nrl_status forgetting_square_sum(void *self, nrl_stream *stream, const nrl_square_sum_args *a)
{
    (void)self;
    (void)stream;
    add_squares(a, true, a->x.cols);
    return NRL_OK;
}

/* Reads the gap between rows. */
static nrl_status wide_square_sum(void *self, nrl_stream *stream, const nrl_square_sum_args *a)
{
    (void)self;
    (void)stream;
    add_squares(a, a->overwrite, a->x.stride);
    return NRL_OK;
}

/* Adds something that depends on how many threads there are. */
static nrl_status threaded_square_sum(void *self, nrl_stream *stream, const nrl_square_sum_args *a)
{
    NRL_TRY(right_square_sum(self, stream, a));
    *a->out *= 1 + 1e-15 * (double)((const options *)self)->threads;
    return NRL_OK;
}

static nrl_status failing_square_sum(void *self, nrl_stream *stream, const nrl_square_sum_args *a)
{
    (void)self;
    (void)stream;
    return a->x.rows == 2 ? nrl_fail(NRL_ERR_DEVICE, "two rows are not to my taste") : NRL_OK;
}

static nrl_status crashing_square_sum(void *self, nrl_stream *stream, const nrl_square_sum_args *a)
{
    (void)self;
    (void)stream;
    (void)a;
    abort(); /* a signal that sanitizers leave alone */
}

static void set_element(const nrl_mat *m, int64_t at, double value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (m->dtype == NRL_DTYPE_I32)
        ((int32_t *)m->data)[at] = (int32_t)value;
    else if (m->dtype == NRL_DTYPE_F32)
        ((float *)m->data)[at] = f;
    else
        ((uint16_t *)m->data)[at] = (uint16_t)((bits + 0x8000) >> 16);
}

/* Fills the gaps between rows too. */
static nrl_status wide_fill(void *self, nrl_stream *stream, const nrl_fill_args *a)
{
    (void)self;
    (void)stream;
    for (int64_t i = 0; i < a->y.rows * a->y.stride; i++)
        set_element(&a->y, i, a->value);
    return NRL_OK;
}

static nrl_status short_fill(void *self, nrl_stream *stream, const nrl_fill_args *a)
{
    (void)self;
    (void)stream;
    for (int64_t r = 0; r < a->y.rows; r++)
        for (int64_t c = 0; c + 1 < a->y.cols; c++)
            set_element(&a->y, r * a->y.stride + c, a->value);
    return NRL_OK;
}

/* ---- gemm and glu ---- */

static void multiply(const nrl_gemm_args *a, bool adds)
{
    int64_t inner = a->transpose_a ? a->a.rows : a->a.cols;
    for (int64_t i = 0; i < a->c.rows; i++)
        for (int64_t j = 0; j < a->c.cols; j++) {
            double sum = 0;
            for (int64_t p = 0; p < inner; p++)
                sum += element(&a->a, a->transpose_a ? p : i, a->transpose_a ? i : p) *
                       element(&a->b, a->transpose_b ? j : p, a->transpose_b ? p : j);
            sum = a->alpha * sum + (a->bias.data ? element(&a->bias, 0, j) : 0);
            set_element(&a->c, i * a->c.stride + j, sum + (adds ? element(&a->c, i, j) : 0));
        }
}

static nrl_status right_gemm(void *self, nrl_stream *stream, const nrl_gemm_args *a)
{
    (void)self;
    (void)stream;
    multiply(a, !a->overwrite);
    return NRL_OK;
}

/* Never reads c: what was there is lost where it should have been added to. */
static nrl_status betaless_gemm(void *self, nrl_stream *stream, const nrl_gemm_args *a)
{
    (void)self;
    (void)stream;
    multiply(a, false);
    return NRL_OK;
}

/* Leaves out the last product. */
static nrl_status hasty_gemm_all(void *self, nrl_stream *stream, const nrl_gemm_args *calls, int64_t n)
{
    for (int64_t i = 0; i + 1 < n; i++)
        NRL_TRY(right_gemm(self, stream, &calls[i]));
    return NRL_OK;
}

static double gate_value(uint32_t act, double x)
{
    if (act == NRL_UNARY_SILU) return x / (1 + exp(-x));
    return x / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
}

static nrl_status right_glu(void *self, nrl_stream *stream, const nrl_glu_args *a)
{
    (void)self;
    (void)stream;
    for (int64_t r = 0; r < a->y.rows; r++)
        for (int64_t c = 0; c < a->y.cols; c++)
            set_element(&a->y, r * a->y.stride + c,
                        gate_value(a->act, element(&a->gate, r, c)) * element(&a->up, r, c));
    return NRL_OK;
}

/* Takes the gate's slope for its value divided by x: silu's sigmoid without the rest. */
static nrl_status sloped_glu_grad(void *self, nrl_stream *stream, const nrl_glu_grad_args *a)
{
    (void)self;
    (void)stream;
    for (int64_t r = 0; r < a->dy.rows; r++)
        for (int64_t c = 0; c < a->dy.cols; c++) {
            double gate = element(&a->gate, r, c), dy = element(&a->dy, r, c);
            double value = gate_value(a->act, gate);
            set_element(&a->dgate, r * a->dgate.stride + c,
                        dy * element(&a->up, r, c) * (gate == 0 ? 0.5 : value / gate));
            set_element(&a->dup, r * a->dup.stride + c, dy * value);
        }
    return NRL_OK;
}

/* ---- attention ---- */

/* The number of the key at place j of those that the queries of segment s see: first those of its prefix. */
static int64_t key_at(const nrl_attention_args *a, int64_t s, int64_t j, int64_t n_prefix)
{
    return j < n_prefix ? a->host_cu_k[a->host_prefix[s]] + j : a->host_cu_k[s] + j - n_prefix;
}

/* A query of a head: adds what it sees to y [K], the largest score and the sum of exponentials so far. */
static void attend(const nrl_attention_args *a, int64_t s, int64_t query, int64_t head, double *y, double *max,
                   double *sum)
{
    const int64_t w = a->head_dim, kv = head / (a->n_heads / a->n_kv_heads),
                  p = a->host_prefix ? a->host_prefix[s] : -1;
    const int64_t n_prefix = p >= 0 ? a->host_cu_k[p + 1] - a->host_cu_k[p] : 0;
    const int64_t n = n_prefix + a->host_cu_k[s + 1] - a->host_cu_k[s], last = n - (a->host_cu_q[s + 1] - query);
    for (int64_t j = a->window > 0 && last >= a->window ? last - a->window + 1 : 0; j <= last; j++) {
        const int64_t key = key_at(a, s, j, n_prefix) - a->k_begin;
        double score = 0;
        if (key < 0 || key >= a->k.rows) continue; /* not in this part */
        for (int64_t d = 0; d < w; d++)
            score += a->scale * element(&a->q, query - a->q_begin, head * w + d) * element(&a->k, key, kv * w + d);
        if (a->soft_cap > 0) score = a->soft_cap * tanh(score / a->soft_cap);
        const double larger = score > *max ? score : *max, before = exp(*max - larger), now = exp(score - larger);
        for (int64_t d = 0; d < w; d++)
            y[d] = y[d] * before + now * element(&a->v, key, kv * w + d);
        *sum = *sum * before + now;
        *max = larger;
    }
}

/* Right, but a part's result replaces that for the keys before, instead of being merged into it. */
static nrl_status replacing_attention(void *self, nrl_stream *stream, const nrl_attention_args *a)
{
    enum { WIDEST = 64 };
    (void)self;
    (void)stream;
    for (int64_t s = 0; s < a->n_segments; s++)
        for (int64_t i = a->host_cu_q[s]; i < a->host_cu_q[s + 1]; i++)
            for (int64_t h = 0; h < a->n_heads && i >= a->q_begin && i < a->q_begin + a->q.rows; h++) {
                double y[WIDEST] = {0}, max = a->sinks ? a->sinks[h] : -INFINITY, sum = a->sinks ? 1 : 0;
                attend(a, s, i, h, y, &max, &sum);
                if (!(sum > 0)) continue;
                for (int64_t d = 0; d < a->head_dim; d++)
                    set_element(&a->y, (i - a->q_begin) * a->y.stride + h * a->head_dim + d, y[d] / sum);
                set_element(&a->lse, h * a->lse.stride + i - a->q_begin, max + log(sum));
            }
    return NRL_OK;
}

/* ---- time and stats ---- */

struct nrl_event {
    double seconds;
};

static nrl_status right_record(void *self, nrl_stream *stream, nrl_event **out)
{
    struct timespec t;
    (void)self;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *out = malloc(sizeof **out);
    if (!*out) return nrl_fail(NRL_ERR_MEMORY, "no memory");
    (*out)->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return NRL_OK;
}

static nrl_status right_event_wait(void *self, nrl_event *event)
{
    (void)self;
    (void)event;
    return NRL_OK;
}

static void right_event_destroy(void *self, nrl_event *event)
{
    (void)self;
    free(event);
}

static nrl_status right_seconds(void *self, nrl_event *from, nrl_event *to, double *seconds)
{
    (void)self;
    *seconds = to->seconds - from->seconds;
    return NRL_OK;
}

/* Milliseconds, as the library under it tells them. */
static nrl_status unscaled_seconds(void *self, nrl_event *from, nrl_event *to, double *seconds)
{
    NRL_TRY(right_seconds(self, from, to, seconds));
    *seconds *= 1e3;
    return NRL_OK;
}

static nrl_status backward_seconds(void *self, nrl_event *from, nrl_event *to, double *seconds)
{
    return right_seconds(self, to, from, seconds);
}

static nrl_status right_watch(void *self)
{
    (void)self;
    return NRL_OK;
}

static nrl_status right_stats(void *self, nrl_value *values, size_t room, size_t *n)
{
    (void)self;
    *n = room > 0;
    if (room) values[0] = (nrl_value){"launches", "1", 7};
    return NRL_OK;
}

/* A power meter that is not there, told all the same. */
static nrl_status unknown_stats(void *self, nrl_value *values, size_t room, size_t *n)
{
    NRL_TRY(right_stats(self, values, room, n));
    if (room > 1) values[(*n)++] = (nrl_value){"power_mean_w", "W", NAN};
    return NRL_OK;
}

static nrl_status repeated_stats(void *self, nrl_value *values, size_t room, size_t *n)
{
    NRL_TRY(right_stats(self, values, room, n));
    if (room > 1) values[(*n)++] = values[0];
    return NRL_OK;
}

static nrl_status spilling_stats(void *self, nrl_value *values, size_t room, size_t *n)
{
    NRL_TRY(right_stats(self, values, room ? room : 1, n));
    return NRL_OK;
}

#define EVENTS .event_record_timed = right_record, .event_wait = right_event_wait, .event_destroy = right_event_destroy
#define OPS(nm, ...) static const nrl_ops nm = {.size = sizeof(nrl_ops), __VA_ARGS__}
OPS(right_ops, .square_sum = right_square_sum);
OPS(forgetting_ops, .square_sum = forgetting_square_sum);
OPS(wide_ops, .square_sum = wide_square_sum);
OPS(threaded_ops, .square_sum = threaded_square_sum);
OPS(failing_ops, .square_sum = failing_square_sum);
OPS(crashing_ops, .square_sum = crashing_square_sum);
OPS(spilling_ops, .fill = wide_fill);
OPS(short_ops, .fill = short_fill);
OPS(betaless_ops, .gemm = betaless_gemm);
OPS(hasty_ops, .gemm = right_gemm);
OPS(replacing_ops, .attention = replacing_attention);
OPS(sloped_ops, .glu = right_glu, .glu_grad = sloped_glu_grad);

#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        NRL_PLUGIN(NRL_KIND_BACKEND, nrl_backend, options, rows, #nm, "0", rule),                                      \
            .ops = &right_ops, .open = right_open, .close = free, .info = right_info, .alloc = right_alloc,            \
            .free = right_free, .copy = right_copy, __VA_ARGS__                                                        \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#endif
static const nrl_backend wrong[] = {
    WRONG(few, "a backend has what every run needs", EVENTS, .event_seconds = right_seconds, .watch_begin = right_watch,
          .watch_end = right_stats),
    WRONG(lacks_copy, "copy is NULL", .copy = NULL),
    WRONG(refusing, "probe says that it can run", .probe = refusing_probe),
    WRONG(nameless, "info names the device", .info = nameless_info),
    WRONG(unaligned, "memory is 64-byte aligned", .alloc = unaligned_alloc, .free = unaligned_free),
    WRONG(wordy, "too much memory is NRL_ERR_MEMORY", .alloc = wordy_alloc),
    WRONG(forgetting, "square_sum adds up squares", .ops = &forgetting_ops),
    WRONG(wide, "square_sum adds up squares", .ops = &wide_ops),
    WRONG(gathering, "calls made together have the results of single ones", .square_sum_all = gathering_square_sum_all),
    WRONG(hopeful, "the device decides as the host does, bit for bit", .extension = hopeful_extension),
    WRONG(failing, "square_sum runs", .ops = &failing_ops),
    WRONG(threaded, "sums do not depend on the number of threads", .ops = &threaded_ops),
    WRONG(spilling, "nothing is written outside a matrix", .ops = &spilling_ops),
    WRONG(short_of_one, "fill sets every element", .ops = &short_ops),
    WRONG(betaless, "gemm adds to c unless overwrite", .ops = &betaless_ops),
    WRONG(hasty, "products made together are those of gemm", .ops = &hasty_ops, .gemm_all = hasty_gemm_all),
    WRONG(sloped, "glu_grad is the slope of glu", .ops = &sloped_ops),
    WRONG(replacing, "attention merges the results for parts of the keys", .ops = &replacing_ops),
    WRONG(timeless, "timed events come with their times", EVENTS),
    WRONG(unscaled, "time between events is at most the host's", EVENTS, .event_seconds = unscaled_seconds),
    WRONG(backward, "time between events is not negative", EVENTS, .event_seconds = backward_seconds),
    WRONG(endless_watch, "a watch begins and ends", .watch_begin = right_watch),
    WRONG(unknown_figure, "stats are finite and not negative", .watch_begin = right_watch, .watch_end = unknown_stats),
    WRONG(repeated_figure, "stats have different names", .watch_begin = right_watch, .watch_end = repeated_stats),
    WRONG(spilling_figure, "no more stats than there is room", .watch_begin = right_watch, .watch_end = spilling_stats),
    WRONG(crashing, "operations: reductions", .ops = &crashing_ops),
};
#pragma GCC diagnostic pop
#undef WRONG

#endif
