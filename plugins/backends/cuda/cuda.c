/*
 * cuda.c - the backend's table: options, and the dispatch to the operations. The rest is in open.c
 * (opening, memory), transfer.c (copies, streams), info.c and ops/.
 */
#include "custom_ops.h"
#include <string.h>

static const nrl_option cuda_option_rows[] = {
    NRL_OPT_F64(cuda_options, memory_fraction, "0.95", 0.01, 1, "share of the device's memory that nrl may allocate"),
    NRL_OPT_INT(cuda_options, device, "-1", -1, 1023, "device number; -1: the local rank"),
    NRL_OPT_BOOL(cuda_options, tf32, "false", "use tensor cores for f32 products: faster, with 10 bits of mantissa"),
    NRL_OPT_ENUM(
        cuda_options, attention, "auto", "auto|flash|cudnn",
        "kernels of 16-bit attention: nrl's own (flash), or those of cuDNN if it supports the shape; auto: cuDNN if "
        "the results of its first call agree with nrl's own kernels"),
    NRL_OPT_BOOL(
        cuda_options, timed_products, "true",
        "with train.deterministic: false, time cuBLASLt's 8 best algorithms at the first product of each size"),
    NRL_OPT_PATH(cuda_options, product_cache, "",
                 "directory where the algorithms found by timed_products are saved for later runs; empty: not saved"),
};

static nrl_status cuda_check_options(const void *options)
{
    const cuda_options *o = options;
    if (o->timed_products || !*o->product_cache) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "product_cache has no effect with timed_products: false");
}

static nrl_status cuda_probe(void)
{
    return cuda_probe_driver(cuda_runtime_driver());
}

static nrl_status cuda_open(const void *options, int32_t index, void **out)
{
    cuda *self;
    *out = NULL;
    NRL_TRY(cuda_open_driver(cuda_runtime_driver(), options, index, &self));
    *out = self;
    return NRL_OK;
}

/* ---- memory ---- */

static nrl_status table_alloc(void *instance, size_t bytes, void **out)
{
    cuda *self = instance;
    NRL_TRY(cuda_enter(self));
    return cuda_pool_take(self->pool, bytes, out);
}

static void table_free(void *instance, void *memory)
{
    cuda *self = instance;
    if (cuda_enter(self) == NRL_OK) cuda_pool_give(self->pool, memory);
}

static nrl_status table_alloc_host(void *instance, size_t bytes, void **out)
{
    cuda *self = instance;
    NRL_TRY(cuda_enter(self));
    return cuda_staging_take(self->staging, bytes, out);
}

static void table_free_host(void *instance, void *memory)
{
    cuda *self = instance;
    if (cuda_enter(self) == NRL_OK)
        cuda_staging_give(self->staging, memory); /* without this call the runtime would
                                                   * create a context on device 0 */
}

static void table_relax(void *instance)
{
    ((cuda *)instance)->relaxed = true;
}

/* ---- dispatch ---- */

nrl_status cuda_known_args(const char *op, const void *args, uint32_t size, void *fill, uint32_t known)
{
    if (size == 0) return nrl_fail(NRL_ERR_BUG, "op '%s' was called with arguments of size 0", op);
    const unsigned char *bytes = args;
    for (uint32_t i = known; i < size; i++)
        if (bytes[i] != 0)
            return nrl_fail(NRL_ERR_PLUGIN, "backend 'cuda' does not support the argument of op '%s' at byte %u", op,
                            i);
    memset(fill, 0, known);
    memcpy(fill, args, size < known ? size : known);
    return NRL_OK;
}

#define CUDA_ENTER(name)                                                                                               \
    static nrl_status enter_##name(void *instance, nrl_stream *stream, const nrl_##name##_args *a)                     \
    {                                                                                                                  \
        cuda *self = instance;                                                                                         \
        NRL_TRY(cuda_enter(self));                                                                                     \
        if (a->size == sizeof *a) return cuda_op_##name(self, cuda_stream(self, stream), a);                           \
        nrl_##name##_args known;                                                                                       \
        NRL_TRY(cuda_known_args(#name, a, a->size, &known, sizeof known));                                             \
        return cuda_op_##name(self, cuda_stream(self, stream), &known);                                                \
    }
CUDA_OPS(CUDA_ENTER)

/* The same for calls that are made together. */
#define CUDA_ENTER_ALL(name)                                                                                           \
    static nrl_status enter_##name##_all(void *instance, nrl_stream *stream, const nrl_##name##_args *calls,           \
                                         int64_t n)                                                                    \
    {                                                                                                                  \
        cuda *self = instance;                                                                                         \
        if (n > 0 && calls->size == sizeof *calls) {                                                                   \
            NRL_TRY(cuda_enter(self));                                                                                 \
            return cuda_##name##_all(self, cuda_stream(self, stream), calls, n);                                       \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++) /* of another version */                                                       \
            NRL_TRY(enter_##name(self, stream, (const void *)((const char *)calls + (size_t)i * calls->size)));        \
        return NRL_OK;                                                                                                 \
    }
CUDA_ENTER_ALL(adamw)
CUDA_ENTER_ALL(square_sum)
CUDA_ENTER_ALL(gemm)

#define CUDA_ENTRY(name) .name = enter_##name,
static const nrl_ops cuda_ops = {.size = sizeof(nrl_ops), CUDA_OPS(CUDA_ENTRY)};

static const nrl_backend cuda_table = {
    NRL_PLUGIN(NRL_KIND_BACKEND, nrl_backend, cuda_options, cuda_option_rows, "cuda", "0.1.0",
               "NVIDIA GPUs from sm_80 on: own kernels, matrix products by cuBLASLt"),
    .plugin.priority = 100,
    .plugin.check = cuda_check_options,
    .collective = "nccl",
    .ops = &cuda_ops,
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .alloc = table_alloc,
    .free = table_free,
    .alloc_host = table_alloc_host,
    .free_host = table_free_host,
    .copy = cuda_copy_bytes,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_wait = cuda_stream_wait,
    .event_record = cuda_event_record,
    .event_fence = cuda_event_fence,
    .event_wait = cuda_event_wait,
    .event_destroy = cuda_event_destroy,
    .event_record_timed = cuda_event_record_timed,
    .event_seconds = cuda_event_seconds,
    .extension = cuda_extension,
    .updater = "cpu",
    .custom_ops = cuda_custom_ops,
    .joins_linears = true,
    .rotates_gradients = true,
    .watch_begin = cuda_watch_begin,
    .watch_end = cuda_watch_end,
    .adamw_all = enter_adamw_all,
    .square_sum_all = enter_square_sum_all,
    .gemm_all = enter_gemm_all,
    .relax = table_relax,
    .relaxed = "f32 products split along their depth may add in place, gradients of embeddings use atomics, "
               "timed_products chooses algorithms of products by time, attention by cudnn uses gradients that are not "
               "reproducible",
};

NRL_EXPORT(cuda_table)
