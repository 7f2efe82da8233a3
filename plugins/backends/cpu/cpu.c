/*
 * cpu.c - the backend's table: open, info, memory, and the dispatch to the operations of the chosen
 * instruction set. Opening starts no thread and builds no primitive; both happen on first use.
 */
#include "cpu.h"
#include "gemm_dnnl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const nrl_option cpu_option_rows[] = {
    NRL_OPT_INT(cpu_options, threads, "0", 0, CPU_MAX_THREADS,
                "number of compute threads; 0: OMP_NUM_THREADS, or else the processors that this process may use"),
    NRL_OPT_ENUM(cpu_options, isa, "auto", "auto|base|avx2|avx512",
                 "instruction set; auto: the best that this CPU supports"),
    NRL_OPT_ENUM(cpu_options, bf16, "auto", "auto|native|widen",
                 "bf16 products: use bf16 instructions, or widen to f32; auto: the faster one"),
    NRL_OPT_BOOL(
        cpu_options, independent_rows, "false",
        "make each row of a product of f32 activations independent of the other rows, bit for bit; fast for few "
        "rows. nrl sample, chat and serve set it"),
    NRL_OPT_BOOL(
        cpu_options, bf16_rows, "false",
        "with independent_rows: round activations to bf16 in products with bf16 weights, if this CPU multiplies "
        "bf16 faster than f32. --precision bf16 of nrl sample, chat and serve sets it"),
    NRL_OPT_STR(cpu_options, memory_limit, "",
                "maximum memory for the tensors of a rank: bytes (8GiB), a share of the machine's memory (0.5), or "
                "cgroup (the memory that its control group has left at the start); unset: the free memory"),
};

static nrl_status cpu_probe(void)
{
    return NRL_OK; /* the base operations run anywhere */
}

static nrl_status cpu_check(const void *options)
{
    return cpu_memory_check(((const cpu_options *)options)->memory_limit);
}

static nrl_status choose_isa(const cpu_options *o, cpu_isa *out)
{
    cpu_isa best = cpu_isa_best();
    *out = o->isa == CPU_ISA_AUTO ? best : (cpu_isa)o->isa;
    if (*out <= best) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "isa: this CPU does not support %s; its best instruction set is %s",
                    cpu_isa_name(*out), cpu_isa_name(best));
}

static nrl_status choose_bf16(const cpu_options *o, cpu_isa isa, bool *native)
{
    bool has = isa == CPU_ISA_AVX512 && cpu_isa_has_bf16();
    *native = has && (o->bf16 == CPU_BF16_NATIVE || (o->bf16 == CPU_BF16_AUTO && cpu_isa_fast_bf16()));
    if (o->bf16 != CPU_BF16_NATIVE || has) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "bf16: native needs a CPU with bf16 instructions\nhint: use bf16: widen");
}

void cpu_close_parts(cpu *self)
{
    gemm_engine_destroy(self->engine);
    cpu_free(self->memory, self->scratch);
    cpu_free(self->memory, self->work.at);
    cpu_free(self->memory, self->rounded.at);
}

static void cpu_close(void *instance)
{
    cpu *self = instance;
    if (!self) return;
    cpu_gemm_all_close(self);
    cpu_close_parts(self);
    cpu_offload_close(self->offload);
    cpu_memory_close(self->memory);
    free(self);
}

static void split_for_plugins(void *self, int64_t n, int64_t grain, cpu_body body, void *arg)
{
    cpu_split(self, n, grain, body, arg);
}

static const void *cpu_extension(void *instance, const char *name)
{
    cpu *self = instance;
    if (!strcmp(name, "offload")) return cpu_offload_open(&self->offload);
    return strcmp(name, "host_threads") ? NULL : &self->threads;
}

static nrl_status cpu_open(const void *options, int32_t index, void **out)
{
    const cpu_options *o = options;
    *out = NULL;
    (void)index; /* ranks share the one device: each takes its share of threads */
    cpu_isa isa;
    bool native_bf16;
    NRL_TRY(choose_isa(o, &isa));
    NRL_TRY(choose_bf16(o, isa, &native_bf16));
    int n_threads = o->threads > 0 ? (int)o->threads : cpu_count_threads();
    NRL_TRY(cpu_try_threads(n_threads));
    cpu *self = calloc(1, sizeof *self);
    cpu_memory *memory = self ? cpu_memory_open(o->memory_limit) : NULL;
    if (!memory) {
        free(self);
        return nrl_fail(NRL_ERR_MEMORY, "no memory to open the CPU");
    }
    self->isa = isa;
    self->ops = cpu_isa_ops(isa);
    self->gemm_small = cpu_isa_gemm_small(isa);
    self->n_threads = n_threads;
    self->native_bf16 = native_bf16;
    self->threads = (nrl_host_threads){.size = sizeof self->threads, .self = self, .split = split_for_plugins};
    self->independent_rows = o->independent_rows;
    self->bf16_rows = o->bf16_rows && native_bf16;
    self->memory = memory;
    nrl_status st = gemm_engine_create(isa, memory, &self->engine);
    if (st != NRL_OK) {
        cpu_close(self);
        return st;
    }
    *out = self;
    return NRL_OK;
}

/* The f32 peak is measured on one thread and multiplied by the number of threads; bf16 dot products do
 * twice the work. */
static nrl_status cpu_info(void *instance, nrl_device_info *fill)
{
    const cpu *self = instance;
    int64_t left;
    memset(fill, 0, sizeof *fill);
    fill->size = sizeof *fill;
    cpu_model_name(fill->name, sizeof fill->name);
    snprintf(fill->isa, sizeof fill->isa, "%s%s", cpu_isa_name(self->isa), self->native_bf16 ? "+bf16" : "");
    gemm_engine_version(fill->library, sizeof fill->library);
    nrl_host_memory(&fill->memory_bytes, &left);
    if (self->memory->limit && self->memory->limit < (uint64_t)fill->memory_bytes)
        fill->memory_bytes = (int64_t)self->memory->limit;
    fill->n_threads = self->n_threads;
    double peak = cpu_isa_peak(self->isa) * self->n_threads;
    fill->peak_flops[NRL_DTYPE_F32] = peak;
    fill->peak_flops[NRL_DTYPE_BF16] = self->native_bf16 ? 2 * peak : peak;
    fill->peak_flops[NRL_DTYPE_F16] = peak; /* widened */
    fill->peak_flops[NRL_DTYPE_F64] = peak / 2;
    fill->native_bf16 = self->native_bf16;
    fill->host_memory = true;
    fill->has_f16 = fill->bf16_logits = fill->has_fp8 = fill->has_fp8_blocks = true;
    return NRL_OK;
}

static nrl_status table_alloc(void *self, size_t bytes, void **out)
{
    return cpu_alloc(((cpu *)self)->memory, bytes, out);
}

static void table_free(void *self, void *memory)
{
    cpu_free(((cpu *)self)->memory, memory);
}

typedef struct {
    char *to;
    const char *from;
} bytes_task;

static void copy_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const bytes_task *t = arg;
    (void)thread;
    memcpy(t->to + begin, t->from + begin, (size_t)(end - begin));
}

enum { COPY_GRAIN = 1 << 20 };

static nrl_status cpu_copy_bytes(void *self, nrl_stream *stream, void *to, const void *from, size_t bytes,
                                 uint32_t direction)
{
    bytes_task t = {to, from};
    (void)stream;
    (void)direction;
    cpu_split(self, (int64_t)bytes, COPY_GRAIN, copy_range, &t);
    return NRL_OK;
}

/* ---- dispatch ---- */

nrl_status cpu_known_args(const char *op, const void *args, uint32_t size, void *fill, uint32_t known)
{
    if (size == 0) return nrl_fail(NRL_ERR_BUG, "op '%s' was called with arguments of size 0", op);
    const unsigned char *bytes = args;
    for (uint32_t i = known; i < size; i++)
        if (bytes[i] != 0)
            return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' does not support the argument of op '%s' at byte %u", op, i);
    memset(fill, 0, known);
    memcpy(fill, args, size < known ? size : known);
    return NRL_OK;
}

#define CPU_ENTER(name, args)                                                                                          \
    static nrl_status enter_##name(void *self, nrl_stream *stream, const args *a)                                      \
    {                                                                                                                  \
        const cpu *c = self;                                                                                           \
        if (a->size == sizeof *a) return c->ops->name(self, stream, a);                                                \
        args known;                                                                                                    \
        NRL_TRY(cpu_known_args(#name, a, a->size, &known, sizeof known));                                              \
        return c->ops->name(self, stream, &known);                                                                     \
    }
NRL_OPS(CPU_ENTER)

static nrl_status enter_gemm_all(void *self, nrl_stream *stream, const nrl_gemm_args *calls, int64_t n)
{
    if (n > 0 && calls->size == sizeof *calls) return cpu_gemm_all(self, calls, n);
    for (int64_t i = 0; i < n; i++) /* of another version */
        NRL_TRY(enter_gemm(self, stream, (const void *)((const char *)calls + (size_t)i * calls->size)));
    return NRL_OK;
}

#define CPU_ENTRY(name, args) .name = enter_##name,
static const nrl_ops cpu_ops = {.size = sizeof(nrl_ops), NRL_OPS(CPU_ENTRY)};

static const nrl_backend cpu_table = {
    NRL_PLUGIN(NRL_KIND_BACKEND, nrl_backend, cpu_options, cpu_option_rows, "cpu", "0.1.0",
               "any CPU: OpenMP threads, AVX2 or AVX-512 if available, matrix products by oneDNN"),
    .plugin.priority = 10,
    .plugin.check = cpu_check,
    .ops = &cpu_ops,
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .alloc = table_alloc,
    .free = table_free,
    .alloc_host = table_alloc,
    .free_host = table_free,
    .copy = cpu_copy_bytes,
    .extension = cpu_extension,
    .gemm_all = enter_gemm_all,
};

NRL_EXPORT(cpu_table)
