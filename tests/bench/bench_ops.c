/*
 * bench_ops.c - the speed of a backend's operations: bench_ops FILE.so [--shapes SET] [--only TEXT]
 * [--relaxed] [option=value ...] prints one JSON object. SET is cpu (small models), tiny (a dry
 * run), 1b or 8b (Llama 3.2 and 3.1, 4,096 tokens). --only TEXT runs the rows whose name contains
 * TEXT; --relaxed is train.deterministic: false.
 *
 * On a device with timed events, 20 calls are timed between two events, so that neither the launch
 * nor the host's wait counts; the best of several such rounds is printed. Otherwise times are the
 * best of several calls, because other work on the machine can only add time; with threads=1 they
 * are CPU time, which other programs hardly affect.
 *
 * FLOP/s of products are also given as shares of the peak in the backend's info; bytes are the
 * minimum that an operation must read and write.
 */
#include "plugin_options.h"
#include <dlfcn.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    const nrl_backend *table;
    const nrl_ops *ops;
    void *self;
    double peak[2]; /* f32, bf16 */
    bool comma, cpu_time;
    const char *only, *shapes;
} bench;

static void must(nrl_status st)
{
    if (st == NRL_OK) return;
    fprintf(stderr, "bench_ops: %s\n", nrl_error_text());
    exit(1);
}

static double now(bool cpu_time)
{
    struct timespec t;
    clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *filled(bench *b, int64_t n, uint32_t dtype)
{
    void *memory;
    size_t bytes = (size_t)n * nrl_dtype_size(dtype);
    must(b->table->alloc(b->self, bytes, &memory));
    void *host = malloc(bytes);
    if (!host) exit(1);
    uint64_t r = 1;
    for (int64_t i = 0; i < n; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        float x = (float)((double)(r >> 11) * 0x1p-53 - 0.5);
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (dtype == NRL_DTYPE_F32)
            ((float *)host)[i] = x;
        else
            ((uint16_t *)host)[i] = (uint16_t)(bits >> 16);
    }
    must(b->table->copy(b->self, NULL, memory, host, bytes, NRL_COPY_TO_DEVICE));
    free(host);
    return memory;
}

static nrl_mat matrix(bench *b, uint32_t dtype, int64_t rows, int64_t cols)
{
    return (nrl_mat){.data = filled(b, rows * cols, dtype), .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
}

static void drop(bench *b, nrl_mat *m)
{
    if (m->data) b->table->free(b->self, m->data);
}

typedef nrl_status (*run_op)(bench *b, const void *args);

/* Seconds of one call, by the device's clock: the best of at least 3 rounds and 0.1 s. */
static double best_device_time(bench *b, run_op run, const void *args)
{
    enum { CALLS = 20 };
    double best = 1e30, begin = now(false);
    for (int i = 0; i < 3 || now(false) - begin < 0.1; i++) {
        nrl_event *from, *to;
        double seconds;
        must(b->table->event_record_timed(b->self, NULL, &from));
        for (int k = 0; k < CALLS; k++)
            must(run(b, args));
        must(b->table->event_record_timed(b->self, NULL, &to));
        must(b->table->stream_wait(b->self, NULL));
        must(b->table->event_seconds(b->self, from, to, &seconds));
        b->table->event_destroy(b->self, from);
        b->table->event_destroy(b->self, to);
        if (i > 0 && seconds / CALLS < best) best = seconds / CALLS; /* the first round makes plans */
    }
    return best;
}

/* Seconds of one call: the best of at least 5 runs and 0.25 s. */
static double best_time(bench *b, run_op run, const void *args)
{
    double best = 1e30, begin = now(false);
    if (b->table->event_record_timed && b->table->event_seconds) return best_device_time(b, run, args);
    for (int i = 0; i < 4 || (now(false) - begin < 0.25 && i < 20000); i++) {
        double t = now(b->cpu_time);
        must(run(b, args));
        if (b->table->stream_wait) must(b->table->stream_wait(b->self, NULL));
        t = now(b->cpu_time) - t;
        if (t < best && i > 0) best = t;
    }
    return best;
}

static void print_row(bench *b, const char *op, const char *shape, double seconds)
{
    printf("%s\n    {\"op\": \"%s\", \"shape\": \"%s\", \"us\": %.1f", b->comma ? "," : "", op, shape, seconds * 1e6);
    b->comma = true;
}

static void print_flops(bench *b, double flops, double seconds, int low)
{
    printf(", \"gflops\": %.1f, \"of_peak\": ", flops / seconds * 1e-9);
    if (b->peak[low] > 0)
        printf("%.3f}", flops / seconds / b->peak[low]);
    else
        printf("null}");
}

static void print_bytes(double bytes, double seconds)
{
    printf(", \"gb_per_s\": %.2f}", bytes / seconds * 1e-9);
}

#define RUNNER(name)                                                                                                   \
    static nrl_status run_##name(bench *b, const void *args)                                                           \
    {                                                                                                                  \
        return b->ops->name(b->self, NULL, args);                                                                      \
    }
RUNNER(gemm)
RUNNER(norm)
RUNNER(norm_grad)
RUNNER(glu)
RUNNER(glu_grad)
RUNNER(rope)
RUNNER(unary)
RUNNER(copy)
RUNNER(adamw)
RUNNER(attention)
RUNNER(attention_grad)
RUNNER(head)
RUNNER(head_grad)
RUNNER(square_sum)
RUNNER(reduce)
RUNNER(binary)

/* ---- products: forward x W^T, dX = dY W, dW += dY^T X ---- */

/* Is a row of this name asked for? */
static bool wanted(const bench *b, const char *name)
{
    return !b->only || strstr(name, b->only);
}

static void one_gemm(bench *b, const char *name, nrl_mat a, nrl_mat w, nrl_mat c, bool ta, bool tb, bool overwrite)
{
    if (!wanted(b, name)) return;
    nrl_gemm_args g = {.size = sizeof g,
                       .transpose_a = ta,
                       .transpose_b = tb,
                       .overwrite = overwrite,
                       .a = a,
                       .b = w,
                       .c = c,
                       .alpha = 1};
    double k = (double)(ta ? a.rows : a.cols), seconds = best_time(b, run_gemm, &g);
    char shape[128];
    snprintf(shape, sizeof shape, "%lldx%lldx%.0f %s to %s", (long long)c.rows, (long long)c.cols, k,
             nrl_dtype_name(a.dtype), nrl_dtype_name(c.dtype));
    print_row(b, name, shape, seconds);
    print_flops(b, 2 * (double)c.rows * (double)c.cols * k, seconds, a.dtype == NRL_DTYPE_BF16);
}

static void linear(bench *b, uint32_t dtype, int64_t rows, int64_t in, int64_t out)
{
    nrl_mat x = matrix(b, dtype, rows, in), w = matrix(b, dtype, out, in);
    nrl_mat y = matrix(b, dtype, rows, out), dw = matrix(b, NRL_DTYPE_F32, out, in);
    one_gemm(b, "gemm forward", x, w, y, false, true, true);
    one_gemm(b, "gemm dx", y, w, x, false, false, true);
    one_gemm(b, "gemm dw", y, x, dw, true, false, false);
    nrl_mat *const all[] = {&x, &w, &y, &dw};
    for (int i = 0; i < 4; i++)
        drop(b, all[i]);
}

static void gemms(bench *b, uint32_t dtype)
{
    static const int64_t layers[][2] = {{768, 768}, {768, 2304}, {768, 3072}, {3072, 768},
                                        {576, 192}, {576, 576},  {576, 1536}, {1536, 576}};
    static const int64_t rows[] = {256, 2048};
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
            linear(b, dtype, rows[r], layers[i][0], layers[i][1]);
    linear(b, dtype, 256, 768, 50257);
    linear(b, dtype, 256, 576, 49152);
    linear(b, dtype, 200, 64, 172);
    linear(b, dtype, 16, 64, 64);
}

/* ---- attention ---- */

static void attention(bench *b, uint32_t dtype, int64_t n_segments, int64_t length, int64_t heads, int64_t kv_heads,
                      int64_t width)
{
    if (!wanted(b, "attention")) return;
    int64_t n = n_segments * length;
    int32_t cu[65];
    for (int64_t i = 0; i <= n_segments; i++)
        cu[i] = (int32_t)(i * length);
    void *device_cu;
    must(b->table->alloc(b->self, sizeof cu, &device_cu));
    must(b->table->copy(b->self, NULL, device_cu, cu, sizeof cu, NRL_COPY_TO_DEVICE));
    nrl_mat q = matrix(b, dtype, n, heads * width), y = matrix(b, dtype, n, heads * width);
    nrl_mat k = matrix(b, dtype, n, kv_heads * width), v = matrix(b, dtype, n, kv_heads * width);
    nrl_mat dy = matrix(b, dtype, n, heads * width), dq = matrix(b, dtype, n, heads * width);
    nrl_mat dk = matrix(b, dtype, n, kv_heads * width), dv = matrix(b, dtype, n, kv_heads * width);
    nrl_mat lse = matrix(b, NRL_DTYPE_F32, heads, n);
    nrl_attention_grad_args g = {.size = sizeof g,
                                 .forward = &(nrl_attention_args){.size = sizeof(nrl_attention_args),
                                                                  .n_segments = (uint32_t)n_segments,
                                                                  .q = q,
                                                                  .k = k,
                                                                  .v = v,
                                                                  .y = y,
                                                                  .lse = lse,
                                                                  .cu_q = device_cu,
                                                                  .cu_k = device_cu,
                                                                  .host_cu_q = cu,
                                                                  .host_cu_k = cu,
                                                                  .n_heads = heads,
                                                                  .n_kv_heads = kv_heads,
                                                                  .head_dim = width,
                                                                  .scale = 0.125},
                                 .dy = dy,
                                 .dq = dq,
                                 .dk = dk,
                                 .dv = dv};
    char shape[128];
    snprintf(shape, sizeof shape, "B=%lld T=%lld H=%lld G=%lld K=%lld %s", (long long)n_segments, (long long)length,
             (long long)heads, (long long)kv_heads, (long long)width, nrl_dtype_name(dtype));
    /* only the half of the pairs that are visible count */
    double flops = 4.0 * (double)n * (double)(length + 1) / 2 * (double)(heads * width);
    double t = best_time(b, run_attention, (void *)(uintptr_t)g.forward);
    print_row(b, "attention", shape, t);
    print_flops(b, flops, t, dtype == NRL_DTYPE_BF16);
    t = best_time(b, run_attention_grad, &g);
    print_row(b, "attention_grad", shape, t);
    print_flops(b, 2.5 * flops, t, dtype == NRL_DTYPE_BF16);
    nrl_mat *const all[] = {&q, &y, &k, &v, &dy, &dq, &dk, &dv, &lse};
    for (int i = 0; i < 9; i++)
        drop(b, all[i]);
    b->table->free(b->self, device_cu);
}

/* ---- operations that move memory ---- */

static double size_of(const nrl_mat *m)
{
    return (double)(m->rows * m->cols) * (double)nrl_dtype_size(m->dtype);
}

static void timed(bench *b, const char *name, run_op run, const void *args, const nrl_mat *largest, double bytes)
{
    if (!wanted(b, name)) return;
    char shape[128];
    snprintf(shape, sizeof shape, "%lldx%lld %s", (long long)largest->rows, (long long)largest->cols,
             nrl_dtype_name(largest->dtype));
    double t = best_time(b, run, args);
    print_row(b, name, shape, t);
    print_bytes(bytes, t);
}

static void norms(bench *b, uint32_t dtype, int64_t rows, int64_t cols)
{
    nrl_mat x = matrix(b, dtype, rows, cols), r = matrix(b, dtype, rows, cols);
    nrl_mat s = matrix(b, dtype, rows, cols), y = matrix(b, dtype, rows, cols);
    nrl_mat w = matrix(b, dtype, 1, cols), rstd = matrix(b, NRL_DTYPE_F32, 1, rows);
    nrl_mat dw = matrix(b, NRL_DTYPE_F32, 1, cols);
    nrl_norm_args n = {.size = sizeof n, .rms = true, .x = x, .weight = w, .y = y, .rstd = rstd, .eps = 1e-5};
    timed(b, "rms_norm", run_norm, &n, &x, 2 * size_of(&x));
    n.residual = r;
    n.sum = s;
    timed(b, "add_rms_norm", run_norm, &n, &x, 4 * size_of(&x));
    nrl_norm_grad_args g = {
        .size = sizeof g, .rms = true, .x = x, .weight = w, .rstd = rstd, .dy = y, .dsum = r, .dx = s, .dweight = dw};
    timed(b, "rms_norm_grad", run_norm_grad, &g, &x, 4 * size_of(&x));
    nrl_mat *const all[] = {&x, &r, &s, &y, &w, &rstd, &dw};
    for (int i = 0; i < 7; i++)
        drop(b, all[i]);
}

static void elements(bench *b, uint32_t dtype, int64_t rows, int64_t cols)
{
    nrl_mat m[5];
    for (int i = 0; i < 5; i++)
        m[i] = matrix(b, dtype, rows, cols);
    nrl_glu_args f = {.size = sizeof f, .act = NRL_UNARY_SILU, .gate = m[0], .up = m[1], .y = m[2]};
    timed(b, "swiglu", run_glu, &f, m, 3 * size_of(m));
    nrl_glu_grad_args g = {
        .size = sizeof g, .act = NRL_UNARY_SILU, .gate = m[0], .up = m[1], .dy = m[2], .dgate = m[3], .dup = m[4]};
    timed(b, "swiglu_grad", run_glu_grad, &g, m, 5 * size_of(m));
    nrl_unary_args u = {.size = sizeof u, .op = NRL_UNARY_GELU_TANH, .x = m[0], .y = m[1]};
    timed(b, "gelu_tanh", run_unary, &u, m, 2 * size_of(m));
    nrl_copy_args c = {.size = sizeof c, .x = m[0], .y = m[1], .alpha = 1};
    timed(b, "copy", run_copy, &c, m, 2 * size_of(m));
    nrl_binary_args a = {.size = sizeof a, .op = NRL_BINARY_ADD, .a = m[0], .b = m[1], .y = m[2]};
    timed(b, "add", run_binary, &a, m, 3 * size_of(m));
    nrl_mat row = matrix(b, NRL_DTYPE_F32, 1, cols);
    nrl_reduce_args r = {
        .size = sizeof r, .op = NRL_REDUCTION_SUM, .axis = NRL_AXIS_ROWS, .overwrite = true, .x = m[0], .y = row};
    timed(b, "sum_rows", run_reduce, &r, m, size_of(m));
    drop(b, &row);
    for (int i = 0; i < 5; i++)
        drop(b, &m[i]);
}

static void rope(bench *b, uint32_t dtype, int64_t tokens, int64_t heads, int64_t width)
{
    nrl_mat x = matrix(b, dtype, tokens, heads * width), c = matrix(b, NRL_DTYPE_F32, tokens, width / 2);
    nrl_rope_args a = {
        .size = sizeof a, .x = x, .y = x, .cos = c.data, .sin = c.data, .n_heads = heads, .half = width / 2};
    timed(b, "rope", run_rope, &a, &x, 2 * size_of(&x));
    drop(b, &x);
    drop(b, &c);
}

/* At most 1,024 rows. */
static void head(bench *b, uint32_t dtype, int64_t rows, int64_t vocabulary)
{
    nrl_mat z = matrix(b, NRL_DTYPE_F32, rows, vocabulary), logp = matrix(b, NRL_DTYPE_F32, 1, rows);
    nrl_mat lse = matrix(b, NRL_DTYPE_F32, 1, rows), d = matrix(b, dtype, rows, vocabulary);
    int32_t target[1024] = {0};
    void *device_target;
    must(b->table->alloc(b->self, sizeof target, &device_target));
    must(b->table->copy(b->self, NULL, device_target, target, sizeof target, NRL_COPY_TO_DEVICE));
    nrl_head_args a = {.size = sizeof a,
                       .logits = z,
                       .target = device_target,
                       .inverse_temperature = 1,
                       .logp = logp.data,
                       .lse = lse.data};
    timed(b, "head", run_head, &a, &z, size_of(&z));
    nrl_head_grad_args g = {.size = sizeof g,
                            .logits = z,
                            .dlogits = dtype == NRL_DTYPE_F32 ? z : d,
                            .target = device_target,
                            .inverse_temperature = 1,
                            .lse = lse.data,
                            .dlogp = logp.data};
    timed(b, "head_grad", run_head_grad, &g, &d, size_of(&z) + size_of(&d));
    nrl_mat *const all[] = {&z, &logp, &lse, &d};
    for (int i = 0; i < 4; i++)
        drop(b, all[i]);
    b->table->free(b->self, device_target);
}

static void updates(bench *b)
{
    int64_t n = 16 << 20;
    nrl_mat m[4];
    for (int i = 0; i < 4; i++)
        m[i] = matrix(b, NRL_DTYPE_F32, 1, n);
    nrl_unary_args positive = {.size = sizeof positive, .op = NRL_UNARY_SQUARE, .x = m[3], .y = m[3]};
    must(run_unary(b, &positive));
    nrl_adamw_args a = {.size = sizeof a,
                        .master = m[0],
                        .grad = m[1],
                        .m = m[2],
                        .v = m[3],
                        .lr = 1e-5,
                        .grad_scale = 1,
                        .beta1 = 0.9,
                        .beta2 = 0.95,
                        .eps = 1e-8,
                        .weight_decay = 0.1,
                        .correction1 = 1,
                        .correction2 = 1};
    timed(b, "adamw", run_adamw, &a, m, 28.0 * (double)n);
    void *out;
    must(b->table->alloc(b->self, 8, &out));
    nrl_square_sum_args s = {.size = sizeof s, .overwrite = true, .x = m[0], .out = out};
    timed(b, "square_sum", run_square_sum, &s, m, 4.0 * (double)n);
    nrl_copy_args c = {.size = sizeof c, .x = m[0], .y = m[1], .alpha = 1};
    timed(b, "copy", run_copy, &c, m, 8.0 * (double)n);
    b->table->free(b->self, out);
    for (int i = 0; i < 4; i++)
        drop(b, &m[i]);
}

static void small(bench *b)
{
    nrl_mat x = matrix(b, NRL_DTYPE_F32, 1, 300), y = matrix(b, NRL_DTYPE_F32, 1, 300);
    nrl_unary_args u = {.size = sizeof u, .op = NRL_UNARY_EXP, .x = x, .y = y};
    timed(b, "exp", run_unary, &u, &x, 2 * size_of(&x));
    drop(b, &x);
    drop(b, &y);
}

/* One layer of a Llama of this width, and its head by chunks of 1,024 rows. */
static void llama(bench *b, uint32_t dtype, int64_t tokens, int64_t width, int64_t inner, int64_t heads,
                  int64_t kv_heads, int64_t head_width, int64_t vocabulary)
{
    linear(b, dtype, tokens, width, heads * head_width);
    linear(b, dtype, tokens, width, kv_heads * head_width);
    linear(b, dtype, tokens, width, inner);
    linear(b, dtype, tokens, inner, width);
    linear(b, dtype, tokens < 1024 ? tokens : 1024, width, vocabulary);
    attention(b, dtype, 1, tokens, heads, kv_heads, head_width);
    attention(b, dtype, 4, tokens / 4, heads, kv_heads, head_width);
    norms(b, dtype, tokens, width);
    elements(b, dtype, tokens, inner);
    rope(b, dtype, tokens, heads, head_width);
    head(b, dtype, tokens < 1024 ? tokens : 1024, vocabulary);
}

static void model_shapes(bench *b, uint32_t dtype)
{
    if (!strcmp(b->shapes, "1b")) llama(b, dtype, 4096, 2048, 8192, 32, 8, 64, 128256);
    if (!strcmp(b->shapes, "8b")) llama(b, dtype, 4096, 4096, 14336, 32, 8, 128, 128256);
    if (!strcmp(b->shapes, "tiny")) llama(b, dtype, 64, 64, 160, 4, 2, 32, 1000);
}

static void cpu_shapes(bench *b, uint32_t dtype)
{
    gemms(b, dtype);
    attention(b, dtype, 4, 512, 9, 3, 64);
    attention(b, dtype, 4, 64, 12, 12, 64);
    attention(b, dtype, 1, 8192, 9, 3, 64);
    norms(b, dtype, 2048, 576);
    norms(b, dtype, 16384, 1024);
    elements(b, dtype, 2048, 1536);
    rope(b, dtype, 2048, 9, 64);
    head(b, dtype, 256, 49152);
}

int main(int argc, char **argv)
{
    bench b = {0};
    if (argc < 2) return 2;
    void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const nrl_plugin *(*entry)(void) = NULL;
    if (so) *(void **)&entry = dlsym(so, "nrl_plugin_entry");
    if (!entry || entry()->kind != NRL_KIND_BACKEND) return 2;
    b.table = (const nrl_backend *)(const void *)entry();
    b.ops = b.table->ops;
    int used = 2;
    bool relaxed = false;
    b.shapes = "cpu";
    for (; used < argc && !strncmp(argv[used], "--", 2); used++) {
        if (!strcmp(argv[used], "--relaxed"))
            relaxed = true;
        else if (used + 1 < argc && !strcmp(argv[used], "--only"))
            b.only = argv[++used];
        else if (used + 1 < argc && !strcmp(argv[used], "--shapes"))
            b.shapes = argv[++used];
        else
            return 2;
    }
    void *options = plugin_options(&b.table->plugin, (const char *const *)argv + used, argc - used);
    if (!options) return 2;
    double begin = now(false);
    must(b.table->open(options, 0, &b.self));
    if (relaxed && b.table->relax) b.table->relax(b.self);
    double opened = now(false) - begin;
    nrl_device_info f = {.size = sizeof f};
    must(b.table->info(b.self, &f));
    b.cpu_time = f.n_threads == 1;
    b.peak[0] = f.peak_flops[NRL_DTYPE_F32];
    b.peak[1] = f.peak_flops[NRL_DTYPE_BF16];
    printf("{\"device\": \"%s\", \"isa\": \"%s\", \"library\": \"%s\", \"threads\": %lld,\n"
           " \"open_us\": %.0f, \"info_us\": %.0f, \"peak_gflops\": %.1f, \"rows\": [",
           f.name, f.isa, f.library, (long long)f.n_threads, opened * 1e6, (now(false) - begin - opened) * 1e6,
           b.peak[0] * 1e-9);
    if (!strcmp(b.shapes, "cpu")) {
        cpu_shapes(&b, NRL_DTYPE_F32);
        cpu_shapes(&b, NRL_DTYPE_BF16);
        small(&b);
    } else {
        model_shapes(&b, NRL_DTYPE_BF16);
    }
    updates(&b);
    printf("]}\n");
    b.table->close(b.self);
    free(options);
    return 0;
}
