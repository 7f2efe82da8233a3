/*
 * dnn.c - attention through a library, if the library supports the problem.
 *
 * Supported here: causal self-attention of whole sequences, in 16 bits, with aligned rows; no windows,
 * prefixes or cached keys. Plans are expensive, so sequences of mixed lengths are passed as ragged,
 * with numbers rounded up to powers of two, and sequences of one length (a multiple of 64) as they
 * are. Everything else uses nrl's own kernels, with one warning per kind of reason if `attention: cudnn` asked for the
 * library. Forward and backward decide separately, since the saved log-sum-exp is the same.
 *
 * With `attention: auto` the first call of each plan is a trial: the library's results are copied to the host, and
 * nrl's own kernels overwrite them. If both agree, the library's are copied back, so that a resumed run has the same
 * bits, and the plan is used from then on.
 */
#include "cuda_backend.h"
#include "dnn_library.h"
#include "ops/ragged.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DNN_RESULTS = 3, DNN_PLANS = 64, DNN_SHORTEST = 128, DNN_WIDEST = 256, DNN_STEP = 64 };
/* Of a trial: both round P and dS to 16 bits, and sum in another order, which is about 0.5 % of the norm in bf16. */
static const double most_difference = 0.02;
/* The share of the device's memory that a plan of `attention: auto` may take as its workspace. */
static const double auto_share = 1.0 / 64;
#define DNN_STATS_MOST ((int64_t)256 << 20) /* bytes of a dense [B, H, T] */

typedef struct {
    dnn_problem problem;
    void *plan; /* NULL: not supported */
    size_t workspace_bytes;
    uint64_t last_used; /* 0: unused entry */
    bool is_tried;      /* or needs no trial */
} dnn_entry;

/* The library's results of a trial, on the host. */
typedef struct {
    dnn_entry *entry; /* NULL: there is none */
    void *results[DNN_RESULTS];
} dnn_trial;

typedef struct {
    const dnn_library *table;
    void *library; /* NULL: could not be opened */
    dnn_entry entries[DNN_PLANS];
    uint64_t uses;
    bool warned_problem, warned_refusal, warned_difference;
    dnn_trial trial;
} dnn_engine;

/* ---- the library ---- */

static void forget(dnn_engine *e, dnn_entry *entry)
{
    if (entry->plan) e->table->plan_free(e->library, entry->plan);
    *entry = (dnn_entry){.last_used = 0};
}

static void end_trial(dnn_engine *e)
{
    for (int i = 0; i < DNN_RESULTS; i++)
        free(e->trial.results[i]);
    e->trial = (dnn_trial){.entry = NULL};
}

void cuda_dnn_close(cuda *self)
{
    dnn_engine *e = self->attention;
    if (!e) return;
    for (int i = 0; i < DNN_PLANS; i++)
        forget(e, &e->entries[i]);
    end_trial(e);
    if (e->library) e->table->close(e->library);
    free(e);
    self->attention = NULL;
}

/* A missing library is not an error. */
static nrl_status engine_of(cuda *self, dnn_engine **out)
{
    *out = self->attention;
    if (*out) return NRL_OK;
    dnn_engine *e = self->attention = calloc(1, sizeof *e);
    if (!e) return nrl_fail(NRL_ERR_MEMORY, "no memory for attention");
    *out = e;
    e->table = dnn_library_table();
    nrl_status st = e->table->open(&e->library);
    if (st == NRL_OK || st == NRL_ERR_MEMORY) return st;
    e->library = NULL;
    if (!self->tries_dnn) nrl_warn("attention: cudnn is not used: %s", nrl_error_text());
    return NRL_OK;
}

/* ---- what is passed to the library ---- */

static bool is_whole(const nrl_mat *m)
{
    return ((uintptr_t)m->data & 15) == 0 && m->stride % 8 == 0;
}

/* Why the library is not used; NULL: it is used. */
static const char *objection(const nrl_attention_args *a)
{
    if (a->q.dtype == NRL_DTYPE_F32) return "f32";
    if (a->merge) return "a part of the tokens";
    if (a->window > 0) return "a window";
    if (a->soft_cap > 0) return "capped scores";
    if (a->sinks) return "attention sinks";
    if (!a->host_cu_q || !a->host_cu_k) return "sequences whose lengths the host does not know";
    for (uint32_t s = 0; s < a->n_segments; s++) {
        if (a->host_prefix && a->host_prefix[s] >= 0) return "shared prefixes";
        if (a->host_cu_q[s] != a->host_cu_k[s]) return "cached keys";
    }
    if (a->host_cu_q[a->n_segments] != a->host_cu_k[a->n_segments]) return "cached keys";
    if (a->head_dim % 8 || a->head_dim > DNN_WIDEST) return "this width of heads";
    if (!is_whole(&a->q) || !is_whole(&a->k) || !is_whole(&a->v) || !is_whole(&a->y))
        return "rows that are not aligned to 16 bytes";
    return NULL;
}

static int64_t rounded(int64_t n, int64_t least)
{
    while (least < n)
        least *= 2;
    return least;
}

static dnn_problem problem_of(const cuda *self, const nrl_attention_args *a)
{
    const int32_t *cu = a->host_cu_q;
    int64_t longest = 0, shortest = INT64_MAX;
    for (uint32_t s = 0; cu && s < a->n_segments; s++) {
        int64_t n = cu[s + 1] - cu[s];
        longest = n > longest ? n : longest;
        shortest = n < shortest ? n : shortest;
    }
    bool ragged = longest != shortest || longest % DNN_STEP || !cu || cu[0];
    return (dnn_problem){.batch = ragged ? rounded(a->n_segments, 1) : a->n_segments,
                         .heads = a->n_heads,
                         .kv_heads = a->n_kv_heads,
                         .length = ragged ? rounded(longest, DNN_SHORTEST) : longest,
                         .width = a->head_dim,
                         .strides = {a->q.stride, a->k.stride, a->v.stride, a->y.stride},
                         .dtype = a->q.dtype,
                         .ragged = ragged,
                         .relaxed = self->relaxed};
}

static void warn_once(const cuda *self, bool *warned, const dnn_problem *p, const char *why)
{
    if (*warned || self->tries_dnn) return;
    *warned = true;
    nrl_warn(
        "attention%s uses nrl's own kernels instead of cudnn: %s (%lld sequences of up to %lld, %lld heads over %lld "
        "of width %lld)",
        p->backward ? "'s gradients" : "", why, (long long)p->batch, (long long)p->length, (long long)p->heads,
        (long long)p->kv_heads, (long long)p->width);
}

/* ---- plans ---- */

/* The most bytes of workspace: half of the memory that is free when the plan is made. The other half is for tensors
 * that are not allocated yet, which `auto` leaves almost everything to. */
static nrl_status room_most(const cuda *self, size_t *most)
{
    cuda_pool_stats s;
    size_t free_bytes, total;
    NRL_TRY(cuda_check(self->driver, self->driver->memory_info(&free_bytes, &total), "reading the free memory"));
    cuda_pool_measure(self->pool, &s);
    *most = (free_bytes + s.held_bytes - s.used_bytes - s.waiting_bytes) / 2;
    const size_t share = (size_t)(auto_share * (double)total);
    if (self->tries_dnn && *most > share) *most = share;
    return NRL_OK;
}

static nrl_status entry_of(cuda *self, dnn_engine *e, const dnn_problem *p, dnn_entry **out)
{
    dnn_entry *at = &e->entries[0];
    e->uses++;
    for (int i = 0; i < DNN_PLANS; i++) {
        dnn_entry *entry = &e->entries[i];
        if (entry->last_used && !memcmp(&entry->problem, p, sizeof *p)) {
            entry->last_used = e->uses;
            *out = entry;
            return NRL_OK;
        }
        if (entry->last_used < at->last_used) at = entry;
    }
    size_t most;
    NRL_TRY(room_most(self, &most));
    forget(e, at);
    nrl_status st = e->table->plan(e->library, p, most, &at->plan, &at->workspace_bytes);
    if (st == NRL_ERR_MEMORY || (st && !self->tries_dnn)) return st; /* attention: auto has kernels of its own */
    at->problem = *p;
    at->last_used = e->uses;
    at->is_tried = !self->tries_dnn;
    if (!at->plan) warn_once(self, &e->warned_refusal, p, nrl_error_text());
    *out = at;
    return NRL_OK;
}

/* The engine and a plan; *plan NULL: nrl's own kernels must run. */
static nrl_status plan_of(cuda *self, const nrl_attention_args *a, const dnn_problem *p, dnn_engine **engine,
                          dnn_entry **plan)
{
    *plan = NULL;
    NRL_TRY(engine_of(self, engine));
    if (!(*engine)->library) return NRL_OK;
    const char *why = objection(a);
    if (!why && p->batch * p->heads * p->length * (int64_t)sizeof(float) > DNN_STATS_MOST) why = "so mixed lengths";
    if (why) {
        warn_once(self, &(*engine)->warned_problem, p, why);
        return NRL_OK;
    }
    dnn_entry *entry;
    NRL_TRY(entry_of(self, *engine, p, &entry));
    if (entry->plan) *plan = entry;
    return NRL_OK;
}

/* ---- running ---- */

static void *piece(char **room, size_t bytes)
{
    void *at = *room;
    *room += (bytes + 255) / 256 * 256;
    return at;
}

/* Lays out everything that the library needs besides the operands in one block of scratch memory. */
static void lay_out(const dnn_entry *e, char **room, dnn_operands *at, ragged_params *r)
{
    const dnn_problem *p = &e->problem;
    size_t stats = (size_t)(p->batch * p->heads * p->length) * sizeof(float);
    at->stats = piece(room, stats); /* cuDNN requires them */
    if (p->backward) at->sums = piece(room, stats);
    if (p->backward && p->relaxed) at->dq_sum = piece(room, stats * (size_t)p->width);
    if (p->ragged) at->lengths = piece(room, (size_t)p->batch * sizeof(int32_t));
    for (int i = 0; i < DNN_OPERANDS && p->ragged; i++)
        if (p->strides[i]) at->offsets[i] = piece(room, (size_t)(p->batch + 1) * sizeof(int64_t));
    at->workspace = piece(room, e->workspace_bytes);
    r->stats = at->stats;
    r->lengths = at->lengths;
    memcpy(r->offsets, at->offsets, sizeof r->offsets);
    memcpy(r->strides, p->strides, sizeof r->strides);
}

static nrl_status run(cuda *self, void *stream, const nrl_attention_args *a, const dnn_engine *e,
                      const dnn_entry *entry, dnn_operands *at)
{
    const dnn_problem *p = &entry->problem;
    ragged_params r = {.cu = a->cu_q,
                       .n_segments = (int32_t)a->n_segments,
                       .batch = (int32_t)p->batch,
                       .n_heads = (int32_t)p->heads,
                       .length = p->length,
                       .lse = a->lse.data,
                       .lse_stride = a->lse.stride};
    char *room = NULL;
    void *memory;
    lay_out(entry, &room, at, &r); /* from address 0, to compute the size */
    NRL_TRY(cuda_scratch(self, stream, (size_t)(uintptr_t)room, &memory));
    room = memory;
    lay_out(entry, &room, at, &r);
    if (p->ragged) ragged_places(&r, stream);
    if (p->backward) ragged_stats_in(&r, stream);
    NRL_TRY(cuda_launch_error(self, "attention"));
    NRL_TRY(e->table->run(e->library, entry->plan, at, stream));
    bool out = !p->backward && a->lse.data;
    if (out) ragged_stats_out(&r, stream);
    cuda_watch_count(self->watch, 1 + (p->ragged != 0) + (p->backward || out));
    return cuda_launch_error(self, "attention");
}

/* ---- trials ---- */

static size_t bytes_of(const nrl_mat *m)
{
    return (size_t)((m->rows - 1) * m->stride + m->cols) * nrl_dtype_size((nrl_dtype)m->dtype);
}

static nrl_status fetch(cuda *self, void *stream, const nrl_mat *m, void **out)
{
    *out = malloc(bytes_of(m));
    if (!*out) return nrl_fail(NRL_ERR_MEMORY, "no memory to compare attention with cudnn");
    return cuda_copy_bytes(self, (nrl_stream *)stream, *out, m->data, bytes_of(m), NRL_COPY_TO_HOST);
}

/* The plan is never used again. */
static void refuse(dnn_engine *e, dnn_entry *entry, const char *why)
{
    if (!e->warned_difference) nrl_warn("attention: auto uses nrl's own kernels: %s", why);
    e->warned_difference = true;
    e->table->plan_free(e->library, entry->plan);
    entry->plan = NULL;
}

/* Keeps what the library has just computed, with the status `st`, if it is the first call of its plan: then *done is
 * false. */
static nrl_status begin_trial(cuda *self, void *stream, dnn_engine *e, dnn_entry *entry, nrl_status st,
                              const nrl_mat *results, int n, bool *done)
{
    *done = entry->is_tried;
    if (entry->is_tried) return st;
    if (st) {
        refuse(e, entry, nrl_error_text());
        return NRL_OK;
    }
    end_trial(e);
    e->trial.entry = entry;
    for (int i = 0; i < n && !st; i++)
        st = fetch(self, stream, &results[i], &e->trial.results[i]);
    if (st) end_trial(e);
    return st;
}

static double number_of(const void *data, uint32_t dtype, int64_t i)
{
    if (dtype == NRL_DTYPE_F32) return (double)((const float *)data)[i];
    const uint16_t h = ((const uint16_t *)data)[i];
    if (dtype == NRL_DTYPE_BF16) {
        const uint32_t bits = (uint32_t)h << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    }
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                       : ldexp(fraction, -24);
    return h & 0x8000 ? -size : size;
}

/* The norm of the difference of two matrices, relative to that of b; not a number if one of them has any. *is_finite
 * becomes false if b has a number that is not finite. */
static double difference(const nrl_mat *m, const void *a, const void *b, bool *is_finite)
{
    double sum = 0, all = 0;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t c = 0; c < m->cols; c++) {
            const double x = number_of(a, m->dtype, r * m->stride + c), y = number_of(b, m->dtype, r * m->stride + c);
            sum += (x - y) * (x - y);
            all += y * y;
        }
    *is_finite &= isfinite(all) != 0;
    return sum > 0 ? sqrt(sum / all) : sum;
}

bool cuda_dnn_is_trying(const cuda *self)
{
    const dnn_engine *e = self->attention;
    return e && e->trial.entry;
}

nrl_status cuda_dnn_judge(cuda *self, void *stream, const nrl_mat *results, int n)
{
    dnn_engine *e = self->attention;
    dnn_entry *entry = e ? e->trial.entry : NULL;
    nrl_status st = NRL_OK;
    double worst = 0;
    bool is_finite = true;
    if (!entry) return NRL_OK;
    for (int i = 0; i < n && !st; i++) {
        void *own = NULL;
        st = fetch(self, stream, &results[i], &own);
        const double d = st ? 0 : difference(&results[i], e->trial.results[i], own, &is_finite);
        if (!isnan(worst) && !(d <= worst)) worst = d;
        free(own);
    }
    /* An overflow of fp16 judges nothing: the own results stay, and the next call tries again. */
    if (!st && !is_finite) {
        end_trial(e);
        return NRL_OK;
    }
    entry->is_tried = !st;
    if (worst <= most_difference)
        for (int i = 0; i < n && !st; i++)
            st = cuda_copy_bytes(self, (nrl_stream *)stream, results[i].data, e->trial.results[i],
                                 bytes_of(&results[i]), NRL_COPY_TO_DEVICE);
    else {
        char why[160];
        snprintf(why, sizeof why, "cudnn's %s differ from theirs by %.1e of the norm, expected at most %.0e",
                 entry->problem.backward ? "gradients" : "results", worst, most_difference);
        refuse(e, entry, why);
    }
    end_trial(e);
    return st;
}

/* Ends a trial that nobody has judged, because an operation failed in between. */
static void drop_trial(cuda *self)
{
    if (self->attention) end_trial(self->attention);
}

nrl_status cuda_dnn_attention(cuda *self, void *stream, const nrl_attention_args *a, bool *done)
{
    dnn_problem p = problem_of(self, a);
    dnn_engine *e;
    dnn_entry *entry;
    *done = false;
    drop_trial(self);
    NRL_TRY(plan_of(self, a, &p, &e, &entry));
    if (!entry) return NRL_OK;
    dnn_operands at = {.operands = {a->q.data, a->k.data, a->v.data, a->y.data}, .scale = (float)a->scale};
    const nrl_status st = run(self, stream, a, e, entry, &at);
    return begin_trial(self, stream, e, entry, st, (nrl_mat[]){a->y, a->lse}, a->lse.data ? 2 : 1, done);
}

nrl_status cuda_dnn_attention_grad(cuda *self, void *stream, const nrl_attention_grad_args *a, bool *done)
{
    const nrl_attention_args *f = a->forward;
    const nrl_mat *gradients[] = {&a->dy, &a->dq, &a->dk, &a->dv};
    dnn_problem p = problem_of(self, f);
    dnn_engine *e;
    dnn_entry *entry;
    *done = false;
    drop_trial(self);
    p.backward = 1;
    for (int i = 0; i < 4; i++) {
        p.strides[DNN_DY + i] = gradients[i]->stride;
        if (!is_whole(gradients[i])) return NRL_OK;
    }
    NRL_TRY(plan_of(self, f, &p, &e, &entry));
    if (!entry) return NRL_OK;
    dnn_operands at = {
        .operands = {f->q.data, f->k.data, f->v.data, f->y.data, a->dy.data, a->dq.data, a->dk.data, a->dv.data},
        .scale = (float)f->scale};
    const nrl_status st = run(self, stream, f, e, entry, &at);
    return begin_trial(self, stream, e, entry, st, (nrl_mat[]){a->dq, a->dk, a->dv}, DNN_RESULTS, done);
}
