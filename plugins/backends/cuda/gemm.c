/*
 * gemm.c - c = alpha op(a) op(b) (+ c) + bias through a matrix library.
 *
 * The library's matrices are column-major, so it computes c^T = op(b)^T op(a)^T on the same memory;
 * the bias, one value per column of c, is one per row for the library. a and b of one dtype are passed
 * directly, with c of that dtype or f32; any other mixture, and what the library does not support, is
 * widened to f32 first. Each stream has its own workspace, so results repeat bit for bit: unless train.deterministic is
 * false, where the library's algorithms are timed at the first product of each class (gemm_choices.h). Otherwise the
 * library is asked once for each class, since packed batches have ever new numbers of tokens.
 *
 * Operands of 8 bits are rounded in scratch memory, so that what a sum is made of is contiguous (fp8.h). What the
 * library does not multiply then is rounded to the same numbers in bf16.
 */
#include "gemm.h"
#include "fp8.h"
#include "gemm_choices.h"
#include "gemm_plans.h"
#include <pthread.h>
#include <stdlib.h>

enum {
    WORKSPACE_BYTES = 32 << 20, /* the size recommended for Hopper */
    CHOICES = 8,                /* that are timed: */
    ROUNDS = 3,                 /* the best of so many rounds */
    CALLS = 3                   /* of so many products */
};

typedef struct {
    const gemm_library *table;
    void *library; /* NULL until the first product */
    gemm_plans plans;
    gemm_choices timed, first; /* the library's first for a class */
    pthread_t loader;
    bool is_loading;
} gemm_engine;

/* ---- the engine ---- */

static void *load(void *table)
{
    ((const gemm_library *)table)->load();
    return NULL;
}

void cuda_gemm_prepare(cuda *self)
{
    gemm_engine *e = self->math = calloc(1, sizeof *e);
    if (!e) return;
    e->table = gemm_library_table();
    e->is_loading = !pthread_create(&e->loader, NULL, load, (void *)(uintptr_t)e->table);
}

static void wait_for_loader(gemm_engine *e)
{
    if (e->is_loading) (void)pthread_join(e->loader, NULL);
    e->is_loading = false;
}

void cuda_gemm_close(cuda *self)
{
    gemm_engine *e = self->math;
    if (!e) return;
    wait_for_loader(e);
    gemm_plans_close(&e->plans);
    gemm_choices_close(&e->timed);
    gemm_choices_close(&e->first);
    if (e->library) e->table->close(e->library);
    free(e);
    self->math = NULL;
}

static nrl_status engine_of(cuda *self, gemm_engine **out)
{
    if (!self->math) cuda_gemm_prepare(self);
    gemm_engine *e = *out = self->math;
    if (!e) return nrl_fail(NRL_ERR_MEMORY, "no memory for matrix products");
    if (e->library) return NRL_OK;
    wait_for_loader(e);
    nrl_status st = e->table->open(&e->library);
    if (!st) st = gemm_plans_open(&e->plans, e->table, e->library);
    int driver = 0, runtime = 0;
    e->first.has_strides = true;
    if (!st && self->relaxed && self->times_products) {
        st = cuda_check(self->driver, self->driver->versions(&driver, &runtime), "reading versions");
        if (!st)
            gemm_choices_open(&e->timed, self->product_cache, self->properties.name, driver,
                              e->table->version(e->library));
    }
    if (st) cuda_gemm_close(self);
    return st;
}

/* ---- which algorithm is the fastest ---- */

typedef struct {
    cuda *self;
    gemm_engine *engine;
    void *stream, *workspace;
    float alpha;
    gemm_operands at;
} gemm_trial;

static nrl_status run_plan(const gemm_trial *t, void *plan)
{
    return t->engine->table->run(t->engine->library, plan, t->alpha, &t->at, t->workspace, WORKSPACE_BYTES, t->stream);
}

/* Of CALLS products, in the best of ROUNDS; the first product is not counted. */
static nrl_status time_plan(const gemm_trial *t, void *plan, double *seconds)
{
    nrl_stream *stream = (nrl_stream *)t->stream;
    *seconds = 1e30;
    NRL_TRY(run_plan(t, plan));
    for (int round = 0; round < ROUNDS; round++) {
        nrl_event *from = NULL, *to = NULL;
        double now = 0;
        nrl_status st = cuda_event_record_timed(t->self, stream, &from);
        for (int i = 0; i < CALLS && !st; i++)
            st = run_plan(t, plan);
        if (!st) st = cuda_event_record_timed(t->self, stream, &to);
        if (!st) st = cuda_event_wait(t->self, to);
        if (!st) st = cuda_event_seconds(t->self, from, to, &now);
        cuda_event_destroy(t->self, from);
        cuda_event_destroy(t->self, to);
        NRL_TRY(st);
        if (now < *seconds) *seconds = now;
    }
    return NRL_OK;
}

/* *found false: there is no choice, or none supports this product. */
static nrl_status time_choices(const gemm_trial *t, const gemm_product *p, gemm_choice *best, bool *found)
{
    const gemm_library *table = t->engine->table;
    gemm_choice choices[CHOICES];
    double least = 1e30;
    int n;
    NRL_TRY(table->choices(t->engine->library, p, WORKSPACE_BYTES, choices, CHOICES, &n));
    *found = n == 1;
    if (*found) *best = choices[0];
    for (int i = 0; i < n && n > 1; i++) {
        void *plan;
        double seconds;
        NRL_TRY(table->plan(t->engine->library, p, WORKSPACE_BYTES, &choices[i], &plan));
        if (!plan) continue;
        nrl_status st = time_plan(t, plan, &seconds);
        table->plan_free(t->engine->library, plan);
        NRL_TRY(st);
        if (seconds >= least) continue;
        least = seconds;
        *best = choices[i];
        *found = true;
    }
    return NRL_OK;
}

/* A gemm_chooser: the library's first for the largest product of the class. */
static nrl_status choose_first(void *user, const gemm_product *p, gemm_choice *choice, bool *found)
{
    gemm_engine *e = ((const gemm_trial *)user)->engine;
    const gemm_product largest = gemm_largest(p);
    int n;
    *found = gemm_choices_find(&e->first, p, choice);
    if (*found) return NRL_OK;
    NRL_TRY(e->table->choices(e->library, &largest, WORKSPACE_BYTES, choice, 1, &n));
    *found = n > 0;
    if (*found) gemm_choices_add(&e->first, p, choice);
    return NRL_OK;
}

/* A gemm_chooser. A product that adds to its output is timed on other memory; without any, it takes the first. */
static nrl_status choose_fastest(void *user, const gemm_product *p, gemm_choice *choice, bool *found)
{
    gemm_trial t = *(const gemm_trial *)user;
    gemm_choices *known = &t.engine->timed;
    void *memory = NULL;
    *found = gemm_choices_find(known, p, choice);
    if (*found) return NRL_OK;
    if (p->accumulate) {
        const size_t bytes = (size_t)(p->out_stride * p->cols) * nrl_dtype_size((nrl_dtype)p->out_type);
        const nrl_status st = cuda_pool_take(t.self->pool, bytes, &memory);
        if (st == NRL_ERR_MEMORY) return choose_first(user, p, choice, found);
        NRL_TRY(st);
        t.at.out = memory;
    }
    nrl_status st = time_choices(&t, p, choice, found);
    cuda_pool_give(t.self->pool, memory);
    if (*found && !st) gemm_choices_add(known, p, choice);
    return st;
}

/* ---- a product ---- */

static nrl_status failed(const nrl_gemm_args *a, nrl_status code, const char *problem)
{
    return nrl_fail(code, "gemm of %lldx%lld%s %s and %lldx%lld%s %s to %lldx%lld %s: %s", (long long)a->a.rows,
                    (long long)a->a.cols, a->transpose_a ? "^T" : "", nrl_dtype_name((nrl_dtype)a->a.dtype),
                    (long long)a->b.rows, (long long)a->b.cols, a->transpose_b ? "^T" : "",
                    nrl_dtype_name((nrl_dtype)a->b.dtype), (long long)a->c.rows, (long long)a->c.cols,
                    nrl_dtype_name((nrl_dtype)a->c.dtype), problem);
}

static int64_t inner_of(const nrl_gemm_args *a)
{
    return a->transpose_a ? a->a.rows : a->a.cols;
}

static bool is_compute(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 || dtype == NRL_DTYPE_BF16 || dtype == NRL_DTYPE_F16;
}

nrl_status cuda_gemm_check(const nrl_gemm_args *a)
{
    int64_t m = a->transpose_a ? a->a.cols : a->a.rows, n = a->transpose_b ? a->b.rows : a->b.cols;
    int64_t k = a->transpose_b ? a->b.cols : a->b.rows;
    if (m != a->c.rows || n != a->c.cols || k != inner_of(a)) return failed(a, NRL_ERR_BUG, "the shapes do not match");
    if (a->bias.data && a->bias.cols != n) return failed(a, NRL_ERR_BUG, "the width of the bias does not match");
    if (!is_compute(a->a.dtype) || !is_compute(a->b.dtype) || !is_compute(a->c.dtype))
        return failed(a, NRL_ERR_PLUGIN, "backend 'cuda' multiplies f32, bf16 and f16");
    return NRL_OK;
}

static bool is_fp8_operand(const nrl_gemm_fp8 *how, const nrl_mat *x)
{
    return (how->format == NRL_FP8_E4M3 || how->format == NRL_FP8_E5M2) && x->dtype != NRL_DTYPE_F16;
}

/* The largest power of two up to 16 that divides the address. */
static uint32_t alignment_of(const void *p)
{
    uint32_t low = (uint32_t)((uintptr_t)p & 15);
    return low ? low & -low : 16;
}

static bool bias_is_fused(const nrl_gemm_args *a)
{
    return a->bias.data && a->bias.dtype == a->c.dtype && alignment_of(a->bias.data) == 16;
}

static gemm_product product_of(const cuda *self, const nrl_gemm_args *a)
{
    return (gemm_product){.rows = a->c.cols,
                          .cols = a->c.rows,
                          .depth = inner_of(a),
                          .left_stride = a->b.stride,
                          .right_stride = a->a.stride,
                          .out_stride = a->c.stride,
                          .type = a->a.dtype,
                          .out_type = a->c.dtype,
                          .left_alignment = alignment_of(a->b.data),
                          .right_alignment = alignment_of(a->a.data),
                          .out_alignment = alignment_of(a->c.data),
                          .transpose_left = a->transpose_b,
                          .transpose_right = a->transpose_a,
                          .accumulate = !a->overwrite,
                          .has_bias = bias_is_fused(a),
                          .tf32 = self->tf32,
                          .relaxed = self->relaxed};
}

static nrl_status add_bias(cuda *self, void *stream, const nrl_mat *c, const nrl_mat *bias)
{
    nrl_binary_args add = {.size = sizeof add, .op = NRL_BINARY_ADD, .a = *c, .b = *bias, .y = *c};
    return bias->data ? cuda_op_binary(self, stream, &add) : NRL_OK;
}

/* scales: what the codes of a and b, in the formats of fp8_a and fp8_b, are multiplied by; NULL: a and b are of their
 * dtypes. *done false: the library does not support these dtypes and strides. */
static nrl_status multiply(cuda *self, void *stream, const nrl_gemm_args *a, const float *const scales[2], bool *done)
{
    gemm_engine *e;
    void *plan, *workspace;
    gemm_product p = product_of(self, a);
    *done = false;
    if (scales) {
        p.left_fp8 = a->fp8_b.format;
        p.right_fp8 = a->fp8_a.format;
        p.left_blocks = a->fp8_b.blocks;
        p.right_blocks = a->fp8_a.blocks;
        p.has_bias = p.has_bias && a->bias.dtype == NRL_DTYPE_BF16;
    }
    NRL_TRY(engine_of(self, &e));
    NRL_TRY(cuda_workspace(self, stream, WORKSPACE_BYTES, &workspace));
    gemm_trial t = {self, e, stream, workspace, (float)a->alpha, {.left = a->b.data, .right = a->a.data}};
    t.at.out = a->c.data;
    if (p.has_bias) t.at.bias = a->bias.data;
    if (scales) t.at.left_scale = scales[1];
    if (scales) t.at.right_scale = scales[0];
    NRL_TRY(gemm_plans_find(&e->plans, &p, WORKSPACE_BYTES,
                            self->relaxed && self->times_products ? choose_fastest : choose_first, &t, &plan));
    if (!plan) return NRL_OK;
    NRL_TRY(run_plan(&t, plan));
    cuda_watch_count(self->watch, 1);
    *done = true;
    return p.has_bias ? NRL_OK : add_bias(self, stream, &a->c, &a->bias);
}

/* ---- other mixtures of dtypes ---- */

static nrl_status convert(cuda *self, void *stream, const nrl_mat *from, const nrl_mat *to)
{
    nrl_copy_args k = {.size = sizeof k, .x = *from, .y = *to, .alpha = 1};
    return cuda_op_copy(self, stream, &k);
}

static size_t widened_bytes(const nrl_mat *m)
{
    return m->dtype == NRL_DTYPE_F32 ? 0 : ((size_t)(m->rows * m->cols) * sizeof(float) + 255) / 256 * 256;
}

/* If m is not f32, a dense f32 matrix of its shape at *room, which is advanced. */
static nrl_mat widened(const nrl_mat *m, char **room)
{
    nrl_mat w = *m;
    if (m->dtype == NRL_DTYPE_F32) return w;
    w = (nrl_mat){.data = *room, .dtype = NRL_DTYPE_F32, .rows = m->rows, .cols = m->cols, .stride = m->cols};
    *room += widened_bytes(m);
    return w;
}

static nrl_status multiply_widened(cuda *self, void *stream, const nrl_gemm_args *a)
{
    nrl_gemm_args g = *a;
    bool done;
    void *memory;
    NRL_TRY(cuda_scratch(self, stream, widened_bytes(&a->a) + widened_bytes(&a->b) + widened_bytes(&a->c), &memory));
    char *room = memory;
    g.a = widened(&a->a, &room);
    g.b = widened(&a->b, &room);
    g.c = widened(&a->c, &room);
    if (g.a.data != a->a.data) NRL_TRY(convert(self, stream, &a->a, &g.a));
    if (g.b.data != a->b.data) NRL_TRY(convert(self, stream, &a->b, &g.b));
    if (g.c.data != a->c.data && !a->overwrite) NRL_TRY(convert(self, stream, &a->c, &g.c));
    NRL_TRY(multiply(self, stream, &g, NULL, &done));
    if (!done) return failed(a, NRL_ERR_PLUGIN, "the matrix library does not support it");
    return g.c.data != a->c.data ? convert(self, stream, &g.c, &a->c) : NRL_OK;
}

/* ---- operands of 8 bits ---- */

enum { FP8_ROW = 16 }; /* elements, of which rows of codes have a multiple */

/* Parts of the scratch memory, in bytes. */
typedef struct {
    size_t scales[2], operands[2], bytes; /* of a and b */
} fp8_room;

static size_t rounded_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static fp8_room fp8_room_for(const nrl_gemm_args *a, int64_t stride)
{
    const nrl_gemm_fp8 *const how[] = {&a->fp8_a, &a->fp8_b};
    const int64_t rows[] = {a->c.rows, a->c.cols};
    fp8_room room = {0};
    for (int i = 0; i < 2; i++) {
        const int64_t n = how[i]->blocks ? cuda_fp8_block_scales(how[i]->blocks, rows[i], inner_of(a)) : 0;
        room.scales[i] = room.bytes;
        room.bytes += n ? rounded_up((size_t)n * sizeof(float)) : rounded_up(sizeof(cuda_fp8_scales));
    }
    for (int i = 0; i < 2; i++) {
        room.operands[i] = room.bytes;
        room.bytes += rounded_up((size_t)(rows[i] * stride) * nrl_dtype_size(NRL_DTYPE_BF16));
    }
    return room;
}

/* *x, the operand, becomes the rounded one, [n, depth] with rows of `stride`. *scale: what its codes are multiplied by.
 */
static nrl_status round_operand(cuda *self, void *stream, const nrl_gemm_fp8 *how, bool transpose, nrl_mat to,
                                void *scales, nrl_mat *x, const float **scale)
{
    const nrl_mat from = *x;
    *x = to;
    *scale = scales;
    if (how->blocks) return cuda_fp8_round_blocks(self, stream, how, &from, transpose, &to, scales);
    cuda_fp8_scales *whole = scales;
    const nrl_fill_args zero = {.size = sizeof zero, .y = {whole, NRL_DTYPE_F32, 0, 1, 2, 2}};
    *scale = &whole->inverse;
    NRL_TRY(cuda_op_fill(self, stream, &zero));
    return cuda_fp8_round(self, stream, how, &from, transpose, &to, whole);
}

/* *rounded: the product of a as [m, depth] and b as [n, depth], of codes (u8) or of the same numbers in bf16. */
static nrl_status round_operands(cuda *self, void *stream, const nrl_gemm_args *a, nrl_dtype dtype, int64_t stride,
                                 const fp8_room *room, char *memory, nrl_gemm_args *rounded, const float *scales[2])
{
    const nrl_mat to_a = {memory + room->operands[0], (uint32_t)dtype, 0, a->c.rows, inner_of(a), stride};
    const nrl_mat to_b = {memory + room->operands[1], (uint32_t)dtype, 0, a->c.cols, inner_of(a), stride};
    *rounded = *a;
    rounded->transpose_a = false;
    rounded->transpose_b = true;
    NRL_TRY(round_operand(self, stream, &a->fp8_a, a->transpose_a, to_a, memory + room->scales[0], &rounded->a,
                          &scales[0]));
    return round_operand(self, stream, &a->fp8_b, !a->transpose_b, to_b, memory + room->scales[1], &rounded->b,
                         &scales[1]);
}

static nrl_status multiply_fp8(cuda *self, void *stream, const nrl_gemm_args *a)
{
    const int64_t stride = (inner_of(a) + FP8_ROW - 1) / FP8_ROW * FP8_ROW;
    const fp8_room room = fp8_room_for(a, stride);
    const float *scales[2];
    nrl_gemm_args g;
    void *memory;
    bool done;
    if (!is_fp8_operand(&a->fp8_a, &a->a) || !is_fp8_operand(&a->fp8_b, &a->b) || a->c.dtype == NRL_DTYPE_F16)
        return failed(a, NRL_ERR_PLUGIN, "backend 'cuda' rounds f32 and bf16 to e4m3 and e5m2, to f32 and bf16");
    if (!a->fp8_a.blocks != !a->fp8_b.blocks || a->fp8_a.blocks + a->fp8_b.blocks > NRL_FP8_ROWS + NRL_FP8_TILES)
        return failed(a, NRL_ERR_PLUGIN, "backend 'cuda' has blocks in both operands or none, and tiles in one");
    NRL_TRY(cuda_scratch(self, stream, room.bytes, &memory));
    NRL_TRY(round_operands(self, stream, a, NRL_DTYPE_U8, stride, &room, memory, &g, scales));
    g.a.cols = g.b.cols = stride; /* zeros add nothing */
    NRL_TRY(multiply(self, stream, &g, scales, &done));
    if (done) return NRL_OK;
    NRL_TRY(round_operands(self, stream, a, NRL_DTYPE_BF16, stride, &room, memory, &g, scales));
    NRL_TRY(multiply(self, stream, &g, NULL, &done));
    return done ? NRL_OK : failed(a, NRL_ERR_PLUGIN, "the matrix library does not support it");
}

/* An empty sum: c = (overwrite ? 0 : c) + bias. */
static nrl_status multiply_nothing(cuda *self, void *stream, const nrl_gemm_args *a)
{
    nrl_fill_args zero = {.size = sizeof zero, .y = a->c};
    if (a->overwrite) NRL_TRY(cuda_op_fill(self, stream, &zero));
    return add_bias(self, stream, &a->c, &a->bias);
}

nrl_status cuda_op_gemm(cuda *self, void *stream, const nrl_gemm_args *a)
{
    NRL_TRY(cuda_gemm_check(a));
    if (a->c.rows == 0 || a->c.cols == 0) return NRL_OK;
    if (inner_of(a) == 0) return multiply_nothing(self, stream, a);
    if (a->fp8_a.format || a->fp8_b.format) return multiply_fp8(self, stream, a);
    bool done = false;
    if (a->a.dtype == a->b.dtype && (a->c.dtype == a->a.dtype || a->c.dtype == NRL_DTYPE_F32))
        NRL_TRY(multiply(self, stream, a, NULL, &done));
    return done ? NRL_OK : multiply_widened(self, stream, a);
}
