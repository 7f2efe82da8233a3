/*
 * backend.c - host memory and one operation, fill; everything else is the delegate's.
 */
#include <nrl/backend.h>
#include <stdlib.h>
#include <string.h>
#ifdef LACKING
#define NAME "lacking"
#else
#define NAME "delegating"
#endif

static int instance;

static nrl_status fill(void *self, nrl_stream *stream, const nrl_fill_args *a)
{
    (void)self, (void)stream;
    if (a->y.dtype != NRL_DTYPE_F32 && a->value != 0)
        return nrl_fail(NRL_ERR_PLUGIN, NAME ": fill takes f32, or zeros of any type");
    for (int64_t r = 0; r < a->y.rows; r++) {
        size_t size = nrl_dtype_size((nrl_dtype)a->y.dtype);
        char *row = (char *)a->y.data + (size_t)(r * a->y.stride) * size;
        if (a->value == 0) {
            memset(row, 0, (size_t)a->y.cols * size);
            continue;
        }
        for (int64_t c = 0; c < a->y.cols; c++)
            ((float *)(void *)row)[c] = (float)a->value;
    }
    return NRL_OK;
}

static nrl_status open_host(const void *options, int32_t index, void **self)
{
    (void)options, (void)index;
    *self = &instance;
    return NRL_OK;
}

static void close_host(void *self)
{
    (void)self;
}

static nrl_status info(void *self, nrl_device_info *f)
{
    int64_t left;
    (void)self;
    memset(f, 0, sizeof *f);
    f->size = sizeof *f;
    strcpy(f->name, "a host");
    nrl_host_memory(&f->memory_bytes, &left);
    f->n_threads = 1;
    f->host_memory = f->has_f16 = true;
    return NRL_OK;
}

static nrl_status take(void *self, size_t bytes, void **out)
{
    (void)self;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "cannot allocate %zu bytes", bytes);
}

static void give(void *self, void *memory)
{
    (void)self;
    free(memory);
}

static nrl_status copy(void *self, nrl_stream *stream, void *to, const void *from, size_t bytes, uint32_t direction)
{
    (void)self, (void)stream, (void)direction;
    memcpy(to, from, bytes);
    return NRL_OK;
}

static const nrl_ops ops = {.size = sizeof ops, .fill = fill};

static const nrl_backend table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_BACKEND, nrl_backend, NAME, "0.1", "a backend with one operation"),
    .ops = &ops,
    .open = open_host,
    .close = close_host,
    .info = info,
    .alloc = take,
    .free = give,
    .alloc_host = take,
    .free_host = give,
    .copy = copy,
#ifndef LACKING
    .delegate = "cpu",
#endif
};

NRL_EXPORT(table)
