/*
 * machine.c - see machine.h. An operation is measured by calling the backend with the arguments that a dry run gave it,
 * in memory of its own: the same shapes, strides, flags and overlaps. Calls of nearly the same shape share a
 * measurement.
 */
#include "profiling/machine.h"
#include "base/disk.h"
#include "base/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

enum { FORMAT = 1, MOST_BYTES = 64 << 20, MATS = 9, NEAREST = 3, ROUNDS = 7, MOST_CALLS = 64 };
#define MOST_DIM ((int64_t)1 << 53)
#define ALIKE 0.08            /* dimensions whose logarithms differ by less share a measurement */
#define ROUND_S 2e-3          /* duration of a round, at least one call */
#define MOST_S 0.25           /* for one shape */
#define COLD_BYTES (64 << 20) /* of the operands of several calls: more than what caches keep for a program */
#define WARM_BYTES (1 << 20)  /* an operand is in the caches if no more bytes were touched after it */
#define SPREAD 0x9e3779b9u

/* ---- samples ---- */

void machine_add(machine *m, const machine_sample *s)
{
    if (m->n == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 256;
        m->samples = mem_realloc(m->samples, m->capacity * sizeof *m->samples);
    }
    m->samples[m->n] = *s;
    m->samples[m->n++].what = XXH3_64bits(s->name, strlen(s->name));
}

/* The largest difference of the logarithms of two dimensions. */
static double sample_distance(const machine_sample *s, const int64_t dims[3])
{
    double most = 0;
    for (int i = 0; i < 3; i++) {
        if (s->dims[i] == dims[i]) continue;
        double d = fabs(log((double)(s->dims[i] + 1) / (double)(dims[i] + 1)));
        most = d > most ? d : most;
    }
    return most;
}

static double sample_work(const machine_sample *s)
{
    return s->flops > 0 ? s->flops : s->bytes;
}

/* Seconds per unit of work, from the nearest shapes: the mean of logarithms, weighted by the inverse square of the
 * distance. */
static bool samples_estimate(const machine *m, const machine_sample *like, double *seconds)
{
    const machine_sample *near[NEAREST];
    double distance[NEAREST], sum = 0, weights = 0;
    int n = 0;
    for (size_t i = 0; i < m->n; i++) {
        if (m->samples[i].what != like->what) continue;
        double d = sample_distance(&m->samples[i], like->dims);
        if (n == NEAREST && d >= distance[n - 1]) continue;
        int at = n < NEAREST ? n++ : NEAREST - 1;
        for (; at > 0 && distance[at - 1] > d; at--) {
            near[at] = near[at - 1];
            distance[at] = distance[at - 1];
        }
        near[at] = &m->samples[i];
        distance[at] = d;
    }
    for (int k = 0; k < n; k++) {
        double w = 1 / (distance[k] * distance[k] + 1e-6);
        sum += w * log(near[k]->seconds / fmax(sample_work(near[k]), 1));
        weights += w;
    }
    if (n) *seconds = exp(sum / weights) * fmax(sample_work(like), 1);
    return n > 0;
}

/* ---- operations: names, operands ---- */

/* Where the matrices of an argument struct are. */
#define AT(type, member) (uint16_t) offsetof(nrl_##type##_args, member)
static const struct {
    uint16_t size, n, at[MATS];
} operands[] = {
    [BACKEND_OP_fill] = {sizeof(nrl_fill_args), 1, {AT(fill, y)}},
    [BACKEND_OP_copy] = {sizeof(nrl_copy_args), 2, {AT(copy, x), AT(copy, y)}},
    [BACKEND_OP_unary] = {sizeof(nrl_unary_args), 2, {AT(unary, x), AT(unary, y)}},
    [BACKEND_OP_unary_grad] = {sizeof(nrl_unary_grad_args),
                               4,
                               {AT(unary_grad, x), AT(unary_grad, y), AT(unary_grad, dy), AT(unary_grad, dx)}},
    [BACKEND_OP_binary] = {sizeof(nrl_binary_args), 3, {AT(binary, a), AT(binary, b), AT(binary, y)}},
    [BACKEND_OP_binary_grad] = {sizeof(nrl_binary_grad_args),
                                5,
                                {AT(binary_grad, a), AT(binary_grad, b), AT(binary_grad, dy), AT(binary_grad, da),
                                 AT(binary_grad, db)}},
    [BACKEND_OP_where] = {sizeof(nrl_where_args), 4, {AT(where, mask), AT(where, a), AT(where, b), AT(where, y)}},
    [BACKEND_OP_reduce] = {sizeof(nrl_reduce_args), 2, {AT(reduce, x), AT(reduce, y)}},
    [BACKEND_OP_softmax] = {sizeof(nrl_softmax_args), 2, {AT(softmax, x), AT(softmax, y)}},
    [BACKEND_OP_softmax_grad] = {sizeof(nrl_softmax_grad_args),
                                 3,
                                 {AT(softmax_grad, y), AT(softmax_grad, dy), AT(softmax_grad, dx)}},
    [BACKEND_OP_gemm] = {sizeof(nrl_gemm_args), 4, {AT(gemm, a), AT(gemm, b), AT(gemm, c), AT(gemm, bias)}},
    [BACKEND_OP_gather] = {sizeof(nrl_gather_args), 2, {AT(gather, x), AT(gather, y)}},
    [BACKEND_OP_scatter] = {sizeof(nrl_scatter_args), 2, {AT(scatter, dy), AT(scatter, dx)}},
    [BACKEND_OP_norm] = {sizeof(nrl_norm_args),
                         8,
                         {AT(norm, x), AT(norm, residual), AT(norm, sum), AT(norm, weight), AT(norm, bias), AT(norm, y),
                          AT(norm, mean), AT(norm, rstd)}},
    [BACKEND_OP_norm_grad] = {sizeof(nrl_norm_grad_args),
                              9,
                              {AT(norm_grad, x), AT(norm_grad, weight), AT(norm_grad, mean), AT(norm_grad, rstd),
                               AT(norm_grad, dy), AT(norm_grad, dsum), AT(norm_grad, dx), AT(norm_grad, dweight),
                               AT(norm_grad, dbias)}},
    [BACKEND_OP_rope] = {sizeof(nrl_rope_args), 2, {AT(rope, x), AT(rope, y)}},
    [BACKEND_OP_attention] = {sizeof(nrl_attention_args),
                              5,
                              {AT(attention, q), AT(attention, k), AT(attention, v), AT(attention, y),
                               AT(attention, lse)}},
    [BACKEND_OP_attention_grad] = {sizeof(nrl_attention_grad_args),
                                   4,
                                   {AT(attention_grad, dy), AT(attention_grad, dq), AT(attention_grad, dk),
                                    AT(attention_grad, dv)}},
    [BACKEND_OP_glu] = {sizeof(nrl_glu_args), 3, {AT(glu, gate), AT(glu, up), AT(glu, y)}},
    [BACKEND_OP_glu_grad] = {sizeof(nrl_glu_grad_args),
                             5,
                             {AT(glu_grad, gate), AT(glu_grad, up), AT(glu_grad, dy), AT(glu_grad, dgate),
                              AT(glu_grad, dup)}},
    [BACKEND_OP_head] = {sizeof(nrl_head_args), 1, {AT(head, logits)}},
    [BACKEND_OP_head_grad] = {sizeof(nrl_head_grad_args), 2, {AT(head_grad, logits), AT(head_grad, dlogits)}},
    [BACKEND_OP_adamw] = {sizeof(nrl_adamw_args),
                          6,
                          {AT(adamw, master), AT(adamw, grad), AT(adamw, m), AT(adamw, v), AT(adamw, work),
                           AT(adamw, low)}},
    [BACKEND_OP_square_sum] = {sizeof(nrl_square_sum_args), 1, {AT(square_sum, x)}},
    [BACKEND_OP_dropout] = {sizeof(nrl_dropout_args), 2, {AT(dropout, x), AT(dropout, y)}},
    [BACKEND_OP_split16] = {sizeof(nrl_split16_args), 3, {AT(split16, wide), AT(split16, high), AT(split16, low)}},
    [BACKEND_OP_quantize] = {sizeof(nrl_quantize_args),
                             4,
                             {AT(quantize, x), AT(quantize, q), AT(quantize, scale), AT(quantize, code)}},
    [BACKEND_OP_dequantize] = {sizeof(nrl_dequantize_args),
                               7,
                               {AT(dequantize, x), AT(dequantize, q), AT(dequantize, scale), AT(dequantize, code),
                                AT(dequantize, nested), AT(dequantize, nested_code), AT(dequantize, offset)}},
};
#undef AT

typedef union {
#define OPERAND_MEMBER(name, args) args name;
    NRL_OPS(OPERAND_MEMBER)
#undef OPERAND_MEMBER
    char bytes[1];
} op_args;

static nrl_mat *operand(op_args *a, backend_op op, int i)
{
    return (nrl_mat *)(void *)(a->bytes + operands[op].at[i]);
}

static size_t bytes_of(const nrl_mat *x)
{
    return x->rows > 0 ? (size_t)((x->rows - 1) * x->stride + x->cols) * nrl_dtype_size((nrl_dtype)x->dtype) : 0;
}

/* Returns which operands of a product were touched by the operations just before it, as in adapters. Operations other
 * than products are always measured with operands in memory: this came closer to their time in a step. */
static uint32_t find_warm(machine *m, backend_op op, op_args *a)
{
    uint32_t warm = 0;
    for (int i = 0; i < operands[op].n; i++) {
        const nrl_mat *x = operand(a, op, i);
        for (int k = 0; x->data && op == BACKEND_OP_gemm && k < MACHINE_TOUCHED; k++)
            if (m->touched[k].data == x->data &&
                m->bytes_touched - m->touched[k].at + (double)bytes_of(x) <= WARM_BYTES)
                warm |= 1u << i;
    }
    for (int i = 0; i < operands[op].n; i++)
        m->bytes_touched += operand(a, op, i)->data ? (double)bytes_of(operand(a, op, i)) : 0;
    for (int i = 0; i < operands[op].n; i++) {
        const nrl_mat *x = operand(a, op, i);
        if (!x->data) continue;
        m->touched[m->n_touched].data = x->data;
        m->touched[m->n_touched].at = m->bytes_touched;
        m->n_touched = (m->n_touched + 1) % MACHINE_TOUCHED;
    }
    return warm;
}

/* What distinguishes calls of an operation besides its dimensions. */
static void name_call(const op_args *args, backend_op op, const op_work *w, machine_sample *s)
{
    op_args a = *args;
    size_t n = (size_t)snprintf(s->name, sizeof s->name, "%s", w->name);
    for (int i = 0; i < operands[op].n && n < sizeof s->name; i++) {
        const nrl_mat *x = operand(&a, op, i);
        n += (size_t)snprintf(s->name + n, sizeof s->name - n, " %s",
                              x->data ? nrl_dtype_name((nrl_dtype)x->dtype) : "-");
    }
    const char *flags = "";
    if (op == BACKEND_OP_gemm)
        flags = a.gemm.transpose_a ? a.gemm.transpose_b ? " tt" : " tn" : a.gemm.transpose_b ? " nt" : " nn";
    if (op == BACKEND_OP_gemm && !a.gemm.overwrite) flags = a.gemm.transpose_a ? " tn+" : " n+";
    if (op == BACKEND_OP_copy) flags = a.copy.transpose ? " t" : a.copy.accumulate ? " +" : "";
    if (op == BACKEND_OP_scatter && a.scatter.overwrite) flags = " clear";
    if (op == BACKEND_OP_reduce)
        flags = a.reduce.axis == NRL_AXIS_ROWS ? " rows" : a.reduce.axis == NRL_AXIS_COLUMNS ? " columns" : "";
    if (n < sizeof s->name) n += (size_t)snprintf(s->name + n, sizeof s->name - n, "%s", flags);
    if (op == BACKEND_OP_gemm && a.gemm.fp8_a.format && n < sizeof s->name)
        n += (size_t)snprintf(s->name + n, sizeof s->name - n, " fp8");
    const bool numbered = op == BACKEND_OP_unary || op == BACKEND_OP_unary_grad || op == BACKEND_OP_binary ||
                          op == BACKEND_OP_binary_grad;
    if (numbered && n < sizeof s->name) snprintf(s->name + n, sizeof s->name - n, " %u", (unsigned)a.unary.op);
    memcpy(s->dims, w->dims, sizeof s->dims);
    if (op == BACKEND_OP_attention || op == BACKEND_OP_attention_grad) {
        s->dims[1] *= s->dims[2];
        s->dims[2] = (int64_t)(w->flops / (double)(4 * s->dims[0] * s->dims[1])); /* keys of a query */
    }
}

/* ---- measuring ---- */

/* One thread is measured by its processor time, which other programs on the machine do not change. */
static double machine_seconds(const machine *m)
{
    struct timespec t;
    clock_gettime(m->threads == 1 && !m->stream ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    const void *from;
    size_t begin, end; /* in the scratch memory */
} placed;

typedef struct {
    machine *m;
    size_t used;
    placed list[2 * MATS];
    int n;
    bool counts; /* only adds up what is needed */
} placing;

/* Memory for an operand of the original address `from`; operands that shared memory share it again. */
static void *place(placing *p, const void *from, size_t bytes)
{
    if (!from) return NULL;
    for (int i = 0; i < p->n; i++)
        if (p->list[i].from == from && p->list[i].begin + bytes <= p->list[i].end)
            return p->m->scratch + p->list[i].begin;
    const size_t begin = p->used;
    p->used += (bytes + 4095) / 4096 * 4096;
    if (p->n < 2 * MATS) p->list[p->n++] = (placed){from, begin, p->used};
    return p->m->scratch + begin;
}

static nrl_status place_array(placing *p, const void **at, const void *host, size_t bytes)
{
    if (!*at) return NRL_OK;
    const device *d = p->m->measures;
    void *to = p->m->scratch + p->used;
    p->used += (bytes + 4095) / 4096 * 4096;
    *at = to;
    return p->counts || !host ? NRL_OK : d->table.copy(d->self, p->m->stream, to, host, bytes, NRL_COPY_TO_DEVICE);
}

/* Rows of a table of `most`, as far from each other as those of tokens. */
static nrl_status place_index(placing *p, const int32_t **at, int64_t n, int64_t most)
{
    int32_t *values = p->counts ? NULL : mem_alloc((size_t)n * sizeof *values);
    for (int64_t i = 0; values && i < n; i++)
        values[i] = (int32_t)((uint64_t)i * SPREAD % (uint64_t)(most > 0 ? most : 1));
    const void *place = *at;
    nrl_status st = place_array(p, &place, values, (size_t)n * sizeof *values);
    *at = place;
    free(values);
    return st;
}

static nrl_status place_segments(placing *p, nrl_attention_args *a)
{
    const size_t bytes = (a->n_segments + 1) * sizeof *a->cu_q;
    const void *q = a->cu_q, *k = a->cu_k, *prefix = a->prefix;
    NRL_TRY(place_array(p, &q, a->host_cu_q, bytes));
    NRL_TRY(place_array(p, &k, a->host_cu_k, bytes));
    NRL_TRY(place_array(p, &prefix, a->host_prefix, bytes - sizeof *a->cu_q));
    a->cu_q = q;
    a->cu_k = k;
    a->prefix = prefix;
    return NRL_OK;
}

static void place_mats(placing *p, nrl_mat *const *mats, int n)
{
    for (int i = 0; i < n; i++) {
        nrl_mat *x = mats[i];
        x->data = place(p, x->data, bytes_of(x));
    }
}

#define PLACE_FLOATS(member, count) (member) = place(p, (member), (size_t)(count)*8)

/* Replaces every address of the arguments by one of the scratch memory. */
static nrl_status place_operands(placing *p, backend_op op, op_args *a, nrl_attention_args *forward)
{
    nrl_mat *mats[MATS];
    for (int i = 0; i < operands[op].n; i++)
        mats[i] = operand(a, op, i);
    place_mats(p, mats, operands[op].n);
    switch (op) {
    case BACKEND_OP_gemm:
        PLACE_FLOATS(a->gemm.fp8_a.scale, 1);
        PLACE_FLOATS(a->gemm.fp8_a.amax, 1);
        PLACE_FLOATS(a->gemm.fp8_b.scale, 1);
        PLACE_FLOATS(a->gemm.fp8_b.amax, 1);
        return NRL_OK;
    case BACKEND_OP_gather:
        return place_index(p, &a->gather.index, a->gather.y.rows, a->gather.x.rows);
    case BACKEND_OP_scatter:
        return place_index(p, &a->scatter.index, a->scatter.dy.rows, a->scatter.dx.rows);
    case BACKEND_OP_rope:
        PLACE_FLOATS(a->rope.cos, a->rope.x.rows * a->rope.half);
        PLACE_FLOATS(a->rope.sin, a->rope.x.rows * a->rope.half);
        return NRL_OK;
    case BACKEND_OP_attention:
        PLACE_FLOATS(a->attention.sinks, a->attention.n_heads);
        return place_segments(p, &a->attention);
    case BACKEND_OP_attention_grad:
        *forward = *a->attention_grad.forward;
        a->attention_grad.forward = forward;
        PLACE_FLOATS(a->attention_grad.dsinks, forward->n_heads);
        PLACE_FLOATS(forward->sinks, forward->n_heads);
        place_mats(p, (nrl_mat *[]){&forward->q, &forward->k, &forward->v, &forward->y, &forward->lse}, 5);
        return place_segments(p, forward);
    case BACKEND_OP_head:
        PLACE_FLOATS(a->head.logp, a->head.logits.rows);
        PLACE_FLOATS(a->head.lse, a->head.logits.rows);
        PLACE_FLOATS(a->head.entropy, a->head.logits.rows);
        PLACE_FLOATS(a->head.log_sum_p2, a->head.logits.rows);
        PLACE_FLOATS(a->head.argmax, a->head.logits.rows);
        return place_index(p, &a->head.target, a->head.logits.rows, a->head.logits.cols);
    case BACKEND_OP_head_grad:
        PLACE_FLOATS(a->head_grad.lse, a->head_grad.logits.rows);
        PLACE_FLOATS(a->head_grad.entropy, a->head_grad.logits.rows);
        PLACE_FLOATS(a->head_grad.dlogp, a->head_grad.logits.rows);
        PLACE_FLOATS(a->head_grad.dentropy, a->head_grad.logits.rows);
        PLACE_FLOATS(a->head_grad.dlse, a->head_grad.logits.rows);
        return place_index(p, &a->head_grad.target, a->head_grad.logits.rows, a->head_grad.logits.cols);
    case BACKEND_OP_square_sum:
        PLACE_FLOATS(a->square_sum.out, 1);
        return NRL_OK;
    case BACKEND_OP_dropout:
        PLACE_FLOATS(a->dropout.rows, a->dropout.x.rows);
        return NRL_OK;
    default:
        return NRL_OK;
    }
}

static nrl_status call_once(const machine *m, backend_op op, const op_args *a)
{
    const device *d = m->measures;
#define CALL_CASE(name, args)                                                                                          \
    case BACKEND_OP_##name:                                                                                            \
        while (d && !d->ops.name)                                                                                      \
            d = d->delegate;                                                                                           \
        return d ? d->ops.name(d->self, m->stream, &a->name)                                                           \
                 : nrl_fail(NRL_ERR_PLUGIN, "cannot measure op '" #name "': no backend has it");
    switch (op) {
        NRL_OPS(CALL_CASE)
    }
#undef CALL_CASE
    return NRL_OK;
}

/* A call with operands of its own. */
typedef struct {
    op_args args;
    nrl_attention_args forward;
} placed_call;

/* Makes n calls; *next is the place of the next one. */
static nrl_status call_round(const machine *m, backend_op op, const placed_call *of, int n_placed, int *next, int n,
                             double *seconds)
{
    const device *d = m->measures;
    double begin = machine_seconds(m);
    for (int i = 0; i < n; i++, *next = (*next + 1) % n_placed)
        NRL_TRY(call_once(m, op, &of[*next].args));
    if (m->stream) NRL_TRY(d->table.stream_wait(d->self, m->stream));
    *seconds = (machine_seconds(m) - begin) / n;
    return NRL_OK;
}

/* Zeroes at least `bytes` of the scratch memory. Indices of the operation before would be subnormal numbers, on which a
 * processor can take ten times as long. */
static nrl_status clear_scratch(machine *m, size_t bytes)
{
    const device *d = m->measures;
    if (m->scratch_bytes < bytes) {
        if (m->scratch) d->table.free(d->self, m->scratch);
        m->scratch = NULL;
        m->scratch_bytes = 0;
        void *memory;
        NRL_TRY(d->table.alloc(d->self, bytes, &memory));
        m->scratch = memory;
        m->scratch_bytes = bytes;
    }
    const nrl_fill_args zero = {.size = sizeof zero,
                                .y = {.data = m->scratch,
                                      .dtype = NRL_DTYPE_F32,
                                      .rows = 1,
                                      .cols = (int64_t)bytes / 4,
                                      .stride = (int64_t)bytes / 4}};
    op_args a = {.fill = zero};
    return call_once(m, BACKEND_OP_fill, &a);
}

/* Fills calls with the operands of `args` in places of their own, as many as COLD_BYTES have room for; warm operands
 * stay in one place. */
static nrl_status place_calls(machine *m, backend_op op, const op_args *args, uint32_t warm, placed_call *calls, int *n)
{
    placing p = {.m = m, .counts = true};
    calls[0].args = *args;
    NRL_TRY(place_operands(&p, op, &calls[0].args, &calls[0].forward));
    const size_t fit = p.used ? COLD_BYTES / p.used : 1;
    *n = fit < 1 ? 1 : fit > MOST_CALLS ? MOST_CALLS : (int)fit;
    nrl_status st = clear_scratch(m, p.used * (size_t)*n);
    for (; st == NRL_ERR_MEMORY && *n > 1; st = clear_scratch(m, p.used * (size_t)*n))
        *n /= 2;
    NRL_TRY(st);
    p = (placing){.m = m};
    for (int i = 0; i < *n; i++) {
        calls[i].args = *args;
        p.n = 0;
        NRL_TRY(place_operands(&p, op, &calls[i].args, &calls[i].forward));
        for (int k = 0; k < operands[op].n; k++)
            if (warm >> k & 1) operand(&calls[i].args, op, k)->data = operand(&calls[0].args, op, k)->data;
    }
    return NRL_OK;
}

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double machine_median(double *seconds, int n)
{
    qsort(seconds, (size_t)n, sizeof *seconds, compare_seconds);
    return seconds[(n - 1) / 2];
}

/* The median of a few rounds: the fastest would be less than what an operation takes in most steps. Successive calls
 * have other operands: in a step, what an operation reads was written or read long ago, and is no longer in caches. */
static nrl_status measure_op(machine *m, backend_op op, const op_args *args, uint32_t warm, double *seconds)
{
    const double begin = machine_seconds(m);
    placed_call *calls = mem_alloc(MOST_CALLS * sizeof *calls);
    int n, n_rounds = 0, next = 0;
    double rounds[ROUNDS] = {0}, first = 0;
    nrl_status st = place_calls(m, op, args, warm, calls, &n);
    if (st == NRL_OK) st = call_round(m, op, calls, n, &next, 1, &first); /* creates primitives */
    if (st == NRL_OK) st = call_round(m, op, calls, n, &next, n, &first);
    const int most = first * MOST_CALLS < ROUND_S ? MOST_CALLS : first > ROUND_S ? 1 : (int)(ROUND_S / first) + 1;
    while (n_rounds < ROUNDS && st == NRL_OK && (!n_rounds || machine_seconds(m) - begin < MOST_S))
        st = call_round(m, op, calls, n, &next, most, &rounds[n_rounds++]);
    if (st == NRL_OK) *seconds = machine_median(rounds, n_rounds);
    m->measured_seconds += machine_seconds(m) - begin;
    free(calls);
    return st;
}

nrl_status machine_op(machine *m, backend_op op, const void *args, double flops, double *seconds)
{
    op_args a = {0};
    memcpy(&a, args, operands[op].size);
    const op_work w = op_work_of(op, args, flops);
    machine_sample s = {.flops = w.flops, .bytes = w.bytes, .warm = find_warm(m, op, &a)};
    name_call(&a, op, &w, &s);
    s.what = XXH3_64bits(s.name, strlen(s.name));
    const machine_sample *near = NULL;
    double closest = ALIKE;
    for (size_t i = 0; i < m->n; i++) {
        if (m->samples[i].what != s.what || m->samples[i].warm != s.warm) continue;
        double d = sample_distance(&m->samples[i], s.dims);
        if (d > closest) continue;
        near = &m->samples[i];
        closest = d;
    }
    if (near) {
        *seconds = near->seconds * fmax(sample_work(&s), 1) / fmax(sample_work(near), 1);
        return NRL_OK;
    }
    const bool is_late = m->most_seconds > 0 && m->measured_seconds >= m->most_seconds;
    if ((is_late || !m->measures) && samples_estimate(m, &s, seconds)) return NRL_OK;
    if (!m->measures)
        return nrl_fail(NRL_ERR_CONFIG,
                        "the machine file contains no time of the operation '%s'\n"
                        "hint: `nrl plan --save-machine` on that machine, with this config, measures it",
                        s.name);
    nrl_status st = measure_op(m, op, &a, s.warm, &s.seconds);
    if (st == NRL_OK) machine_add(m, &s);
    *seconds = s.seconds;
    return st;
}

/* ---- calls of a collective ---- */

/* What links.c measures, and what stands for the others. */
static const call_kind measured_as[N_CALLS] = {[CALL_BARRIER] = CALL_ALL_REDUCE,
                                               [CALL_BROADCAST] = CALL_ALL_GATHER,
                                               [CALL_ALL_REDUCE] = CALL_ALL_REDUCE,
                                               [CALL_ALL_GATHER] = CALL_ALL_GATHER,
                                               [CALL_ALL_TO_ALL] = CALL_ALL_GATHER,
                                               [CALL_REDUCE_SCATTER] = CALL_REDUCE_SCATTER,
                                               [CALL_SEND] = CALL_SEND,
                                               [CALL_RECV] = CALL_SEND};

static uint64_t call_hash(call_kind kind)
{
    const char *name = call_names[measured_as[kind]];
    return XXH3_64bits(name, strlen(name));
}

/* Between the nearest sizes that were measured with that number of ranks. */
static bool link_measured(const machine *m, const machine_call *c, double *seconds, double *host_seconds)
{
    const uint64_t what = call_hash(c->kind);
    const double bytes = c->bytes;
    const machine_sample *below = NULL, *above = NULL;
    for (size_t i = 0; i < m->n; i++) {
        const machine_sample *s = &m->samples[i];
        if (s->what != what || s->dims[0] != c->ranks) continue;
        if (s->bytes <= bytes && (!below || s->bytes > below->bytes)) below = s;
        if (s->bytes > bytes && (!above || s->bytes < above->bytes)) above = s;
    }
    const machine_sample *one = below ? below : above;
    if (!one) return false;
    if (below && above) {
        const double share = (bytes - below->bytes) / (above->bytes - below->bytes);
        *seconds = below->seconds + share * (above->seconds - below->seconds);
        *host_seconds = below->host_seconds + share * (above->host_seconds - below->host_seconds);
        return true;
    }
    /* Below the smallest a call takes what that one takes, above the largest bytes decide. */
    const double scale = below ? bytes / below->bytes : 1;
    *seconds = one->seconds * scale;
    *host_seconds = one->host_seconds * scale;
    return true;
}

bool machine_knows_ranks(const machine *m, int32_t ranks)
{
    double seconds, host_seconds;
    const machine_call c = {.kind = CALL_ALL_REDUCE, .ranks = ranks, .bytes = 1};
    return link_measured(m, &c, &seconds, &host_seconds);
}

/* Least squares of relative errors; neither alpha nor beta is negative. */
bool machine_fit(const machine *m, call_kind kind, link_cost *link, double *host_share)
{
    const uint64_t what = call_hash(kind);
    double rr = 0, rb = 0, bb = 0, r = 0, b = 0, n = 0;
    *host_share = 0;
    for (size_t i = 0; i < m->n; i++) {
        const machine_sample *s = &m->samples[i];
        double rounds, through;
        if (s->what != what || s->dims[0] < 2) continue;
        traffic_rounds(measured_as[kind], s->bytes, (int32_t)s->dims[0], &rounds, &through);
        rounds /= s->seconds;
        through /= s->seconds;
        rr += rounds * rounds;
        rb += rounds * through;
        bb += through * through;
        r += rounds;
        b += through;
        *host_share += s->host_seconds / s->seconds;
        n++;
    }
    const double det = rr * bb - rb * rb;
    if (!(n > 0)) return false;
    *host_share /= n;
    *link = (link_cost){0};
    if (det > 1e-12 * rr * bb) *link = (link_cost){(r * bb - b * rb) / det, (b * rr - r * rb) / det};
    if (!(link->alpha > 0)) *link = (link_cost){0, b / bb};
    if (!(link->beta > 0)) *link = (link_cost){r / rr, 0};
    return true;
}

/* A ring in the order of ranks passes every link in every round, so the slowest one decides. Groups that meet on a node
 * share its links to other nodes. */
static double cluster_seconds(const machine *m, const machine_call *c)
{
    const int32_t per_node = m->ranks_per_node, last = c->first + (c->ranks - 1) * c->stride;
    int32_t on_node = c->stride < per_node ? per_node / c->stride : 1;
    if (on_node > c->ranks) on_node = c->ranks;
    double rounds, through;
    traffic_rounds(c->kind, c->bytes, c->ranks, &rounds, &through);
    if (c->first / per_node == last / per_node) return m->inside.alpha * rounds + m->inside.beta * through;
    double outside = m->between.beta * ((double)per_node / on_node) / m->links;
    if (c->kind == CALL_ALL_TO_ALL) outside *= on_node * (double)(c->ranks - on_node) / (c->ranks - 1);
    if (c->kind == CALL_SEND || c->kind == CALL_RECV) outside = m->between.beta * (double)per_node / m->links;
    const double inside = on_node > 1 ? m->inside.beta : 0;
    return fmax(m->inside.alpha, m->between.alpha) * rounds + fmax(inside, outside) * through;
}

bool machine_link(const machine *m, const machine_call *c, double *seconds, double *host_seconds)
{
    link_cost link;
    double rounds, through, host_share;
    *host_seconds = 0;
    if (m->ranks_per_node) {
        *seconds = cluster_seconds(m, c);
        return true;
    }
    if (link_measured(m, c, seconds, host_seconds)) return true;
    if (!machine_fit(m, c->kind, &link, &host_share)) return false;
    traffic_rounds(c->kind, c->bytes, c->ranks, &rounds, &through);
    *seconds = link.alpha * rounds + link.beta * through;
    *host_seconds = host_share * *seconds;
    return true;
}

/* ---- the file ---- */

static void write_link(arena *a, nrl_node *cluster, const char *name, const link_cost *link)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, cluster, name, map);
    node_append(a, map, "alpha", node_f64(a, link->alpha));
    node_append(a, map, "beta", node_f64(a, link->beta));
}

nrl_status machine_write(const machine *m, const char *path)
{
    arena a = {0};
    nrl_node *tree = node_new(&a, NRL_NODE_MAP), *list = node_new(&a, NRL_NODE_LIST);
    node_append_int(&a, tree, "format", FORMAT);
    node_append_text(&a, tree, "device", m->device);
    node_append_int(&a, tree, "threads", m->threads);
    node_append_int(&a, tree, "processors", m->processors);
    if (m->ranks_per_node) {
        nrl_node *cluster = node_new(&a, NRL_NODE_MAP);
        node_append(&a, tree, "cluster", cluster);
        node_append_int(&a, cluster, "ranks_per_node", m->ranks_per_node);
        node_append_int(&a, cluster, "links", m->links);
        write_link(&a, cluster, "inside", &m->inside);
        write_link(&a, cluster, "between", &m->between);
    }
    node_append(&a, tree, "calls", list);
    for (size_t i = 0; i < m->n; i++) {
        const machine_sample *s = &m->samples[i];
        nrl_node *map = node_new(&a, NRL_NODE_MAP), *dims = node_new(&a, NRL_NODE_LIST);
        node_append(&a, list, NULL, map);
        node_append_text(&a, map, "call", s->name);
        for (int k = 0; k < 3; k++)
            node_append(&a, dims, NULL, node_int(&a, s->dims[k]));
        node_append(&a, map, "dims", dims);
        node_append(&a, map, "flops", node_f64(&a, s->flops));
        node_append(&a, map, "bytes", node_f64(&a, s->bytes));
        node_append(&a, map, "seconds", node_f64(&a, s->seconds));
        if (s->host_seconds > 0) node_append(&a, map, "host_seconds", node_f64(&a, s->host_seconds));
        if (s->warm) node_append_int(&a, map, "warm", s->warm);
    }
    char *text = json_write(tree, 1);
    int fd;
    nrl_status st = disk_create(path, &fd);
    if (st == NRL_OK) st = disk_finish(fd, path, disk_write(fd, path, text, strlen(text)));
    free(text);
    arena_free(&a);
    return st;
}

/* A whole number from 0 to `most`; -1: it is something else. */
static int64_t read_whole(const nrl_node *n, int64_t most)
{
    const int64_t value = nrl_node_int(n, -1);
    return value >= 0 && value <= most ? value : -1;
}

static nrl_status read_sample(machine *m, const char *path, size_t i, const nrl_node *map)
{
    machine_sample s = {0};
    bool fits = true;
    const nrl_node *dims = nrl_node_find(map, "dims");
    const char *name = nrl_node_string(nrl_node_find(map, "call"), NULL);
    s.flops = nrl_node_f64(nrl_node_find(map, "flops"), 0);
    s.bytes = nrl_node_f64(nrl_node_find(map, "bytes"), 0);
    s.seconds = nrl_node_f64(nrl_node_find(map, "seconds"), NAN);
    s.host_seconds = nrl_node_f64(nrl_node_find(map, "host_seconds"), 0);
    const nrl_node *warm = nrl_node_find(map, "warm");
    const int64_t mask = warm ? read_whole(warm, (1 << MATS) - 1) : 0;
    s.warm = (uint32_t)mask;
    for (size_t k = 0; k < 3; k++) {
        s.dims[k] = read_whole(nrl_node_at(dims, k), MOST_DIM);
        fits = fits && s.dims[k] >= 0;
    }
    if (!fits || mask < 0 || !name || strlen(name) >= sizeof s.name || nrl_node_size(dims) != 3 || !(s.seconds > 0) ||
        !(s.flops >= 0) || !(s.bytes >= 0) || !(s.host_seconds >= 0))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: calls[%zu]: expected {call, dims: [3 numbers], flops, bytes, seconds above 0}, as "
                        "`nrl plan --save-machine` writes it",
                        path, i);
    snprintf(s.name, sizeof s.name, "%s", name);
    machine_add(m, &s);
    return NRL_OK;
}

static nrl_status read_link(const char *path, const nrl_node *cluster, const char *name, link_cost *link)
{
    const nrl_node *map = nrl_node_find(cluster, name);
    link->alpha = nrl_node_f64(nrl_node_find(map, "alpha"), NAN);
    link->beta = nrl_node_f64(nrl_node_find(map, "beta"), NAN);
    if (nrl_node_size(map) != 2 || !(link->alpha >= 0) || !(link->beta >= 0))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: cluster.%s: expected {alpha: seconds per message, beta: seconds per byte}, at least 0",
                        path, name);
    return NRL_OK;
}

static nrl_status read_cluster(machine *m, const char *path, const nrl_node *map)
{
    static const char *const keys[] = {"ranks_per_node", "links", "inside", "between"};
    if (nrl_node_kind(map) != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_CONFIG, "%s: cluster: expected {ranks_per_node, links, inside and between}", path);
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            known |= !strcmp(keys[k], nrl_node_key(map, i));
        if (!known)
            return nrl_fail(NRL_ERR_CONFIG,
                            "%s: cluster.%s: unknown key; expected ranks_per_node, links, inside and between", path,
                            nrl_node_key(map, i));
    }
    const nrl_node *links = nrl_node_find(map, "links");
    m->ranks_per_node = (int32_t)read_whole(nrl_node_find(map, "ranks_per_node"), INT32_MAX);
    m->links = links ? (int32_t)read_whole(links, INT32_MAX) : m->ranks_per_node;
    if (m->ranks_per_node < 1 || m->links < 1)
        return nrl_fail(NRL_ERR_CONFIG, "%s: cluster.ranks_per_node, cluster.links: expected numbers from 1", path);
    NRL_TRY(read_link(path, map, "inside", &m->inside));
    return read_link(path, map, "between", &m->between);
}

nrl_status machine_read(machine *m, const char *path)
{
    nrl_node *tree;
    NRL_TRY(json_read_file(&m->memory, path, MOST_BYTES, &tree));
    const nrl_node *calls = nrl_node_find(tree, "calls");
    const nrl_node *cluster = nrl_node_find(tree, "cluster");
    if (nrl_node_f64(nrl_node_find(tree, "format"), 0) != FORMAT || (nrl_node_kind(calls) != NRL_NODE_LIST && !cluster))
        return nrl_fail(NRL_ERR_CONFIG, "%s: expected a file of `nrl plan --save-machine`, with format: %d and calls",
                        path, (int)FORMAT);
    if (cluster) NRL_TRY(read_cluster(m, path, cluster));
    if (cluster && !nrl_node_size(calls)) return NRL_OK; /* operations are measured here */
    snprintf(m->device, sizeof m->device, "%s", nrl_node_string(nrl_node_find(tree, "device"), ""));
    m->threads = (int32_t)read_whole(nrl_node_find(tree, "threads"), INT32_MAX);
    m->processors = (int32_t)read_whole(nrl_node_find(tree, "processors"), INT32_MAX);
    if (m->threads < 1 || m->processors < 1)
        return nrl_fail(NRL_ERR_CONFIG, "%s: threads and processors: expected numbers above 0", path);
    m->is_file = true;
    for (size_t i = 0; i < nrl_node_size(calls); i++)
        NRL_TRY(read_sample(m, path, i, nrl_node_at(calls, i)));
    return NRL_OK;
}

void machine_close(machine *m)
{
    if (m->measures) {
        if (m->scratch) m->measures->table.free(m->measures->self, m->scratch);
        if (m->stream) m->measures->table.stream_destroy(m->measures->self, m->stream);
        device_close(m->measures);
    }
    free(m->samples);
    arena_free(&m->memory);
    *m = (machine){0};
}
