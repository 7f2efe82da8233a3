/*
 * @NAME@.c - a backend with one operation of its own, fill: add those of your device one by one. What it lacks, its
 * delegate computes on the same memory; without a delegate a run that needs the operation is refused. nrl/backend.h
 * describes the contract of each operation. This one uses host memory.
 */
#include <nrl/backend.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations ---- */

/* The bits of the bf16 nearest to x; of two equally near ones the even one. */
static uint16_t @NAME@_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (x != x) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* The bytes of one element; false for a type that this backend does not know. */
static bool @NAME@_element(uint32_t dtype, double value, void *bytes)
{
    const float f32 = (float)value;
    const uint16_t bf16 = @NAME@_bf16(f32);
    switch ((nrl_dtype)dtype) {
    case NRL_DTYPE_F32:
        return memcpy(bytes, &f32, sizeof f32);
    case NRL_DTYPE_BF16:
        return memcpy(bytes, &bf16, sizeof bf16);
    case NRL_DTYPE_I32:
        return memcpy(bytes, &(int32_t){(int32_t)value}, sizeof(int32_t));
    default:
        memset(bytes, 0, sizeof(double));
        return value == 0;
    }
}

/* y = value */
static nrl_status @NAME@_fill(void *self, nrl_stream *stream, const nrl_fill_args *a)
{
    (void)self, (void)stream;
    const nrl_dtype dtype = (nrl_dtype)a->y.dtype;
    const size_t size = nrl_dtype_size(dtype);
    char element[sizeof(double)];
    if (!@NAME@_element(a->y.dtype, a->value, element))
        return nrl_fail(NRL_ERR_PLUGIN, "backend '@NAME@' cannot fill %s with %g", nrl_dtype_name(dtype), a->value);
    for (int64_t r = 0; r < a->y.rows; r++)
        for (int64_t c = 0; c < a->y.cols; c++)
            memcpy((char *)a->y.data + (size_t)(r * a->y.stride + c) * size, element, size);
    return NRL_OK;
}

static const nrl_ops @NAME@_ops = {.size = sizeof @NAME@_ops, .fill = @NAME@_fill};

/* ---- the device ---- */

typedef struct {
    int32_t index; /* of the device on this machine */
} @NAME@_device;

static nrl_status @NAME@_open(const void *options, int32_t index, void **self)
{
    @NAME@_device *d = calloc(1, sizeof *d);
    (void)options;
    if (!d) return nrl_fail(NRL_ERR_MEMORY, "out of memory");
    d->index = index;
    *self = d;
    return NRL_OK;
}

static void @NAME@_close(void *self)
{
    free(self);
}

static nrl_status @NAME@_info(void *self, nrl_device_info *info)
{
    int64_t left;
    (void)self;
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
    strcpy(info->name, "@NAME@");
    nrl_host_memory(&info->memory_bytes, &left);
    info->n_threads = 1;
    info->host_memory = true; /* and no f16 */
    return NRL_OK;
}

/* ---- memory ---- */

static nrl_status @NAME@_alloc(void *self, size_t bytes, void **out)
{
    (void)self;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "cannot allocate %zu bytes", bytes);
}

static void @NAME@_free(void *self, void *memory)
{
    (void)self;
    free(memory);
}

static nrl_status @NAME@_copy(void *self, nrl_stream *stream, void *to, const void *from, size_t bytes,
                              uint32_t direction)
{
    (void)self, (void)stream, (void)direction;
    memcpy(to, from, bytes);
    return NRL_OK;
}

static const nrl_backend @NAME@_table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_BACKEND, nrl_backend, "@NAME@", "0.1", "a backend from the skeleton"),
    .ops = &@NAME@_ops,
    .open = @NAME@_open,
    .close = @NAME@_close,
    .info = @NAME@_info,
    .alloc = @NAME@_alloc,
    .free = @NAME@_free,
    .alloc_host = @NAME@_alloc,
    .free_host = @NAME@_free,
    .copy = @NAME@_copy,
    .delegate = "cpu", /* a backend of host memory may delegate to cpu */
};

NRL_EXPORT(@NAME@_table)
