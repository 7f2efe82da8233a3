/*
 * open.c - opening and closing a device over any driver table, its scratch memory, and errors.
 */
#include "gemm.h"
#include <stdlib.h>
#include <string.h>

nrl_status cuda_check(const cuda_driver *driver, int code, const char *what)
{
    if (code == CUDA_DONE) return NRL_OK;
    bool late = code >= CUDA_FIRST_OF_KERNELS && code <= CUDA_LAST_OF_KERNELS;
    return nrl_fail(code == CUDA_NO_MEMORY ? NRL_ERR_MEMORY : NRL_ERR_DEVICE,
                    "%s failed on the GPU: %s (CUDA error %d)%s", what, driver->error_text(code), code,
                    late ? "\nhint: an earlier operation may be the cause; CUDA_LAUNCH_BLOCKING=1 makes CUDA report it "
                           "where it fails"
                         : "");
}

nrl_status cuda_enter(const cuda *self)
{
    return cuda_check(self->driver, self->driver->use(self->device), "choosing the device");
}

nrl_status cuda_launch_error(const cuda *self, const char *op)
{
    return cuda_check(self->driver, self->driver->launch_error(), op);
}

nrl_status cuda_launched(const cuda *self, const char *op)
{
    cuda_watch_count(self->watch, 1);
    return cuda_launch_error(self, op);
}

nrl_status cuda_check_fault(const cuda *self)
{
    cuda_fault fault = (cuda_fault)*self->fault;
    if (fault == CUDA_FAULT_NONE) return NRL_OK;
    *self->fault = CUDA_FAULT_NONE;
    return nrl_fail(NRL_ERR_BUG, "a row index is outside its matrix");
}

nrl_status cuda_no_dtype(const char *op, uint32_t dtype)
{
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cuda' has no op '%s' for %s", op, nrl_dtype_name((nrl_dtype)dtype));
}

/* ---- memory of streams ---- */

static nrl_status memory_of(cuda *self, void *stream, cuda_stream_memory **out)
{
    cuda_stream_memory *free_place = NULL;
    for (int i = 0; i <= CUDA_MAX_STREAMS; i++) {
        *out = &self->memory[i];
        if ((*out)->is_used && (*out)->stream == stream) return NRL_OK;
        if (!(*out)->is_used && !free_place) free_place = *out;
    }
    if (!free_place) return nrl_fail(NRL_ERR_BUG, "cannot work on more than %d streams", CUDA_MAX_STREAMS + 1);
    *free_place = (cuda_stream_memory){.is_used = true, .stream = stream};
    *out = free_place;
    return NRL_OK;
}

/* *memory has at least `bytes` afterwards. */
static nrl_status grow(cuda *self, void **memory, size_t *held, size_t bytes)
{
    if (bytes <= *held) return NRL_OK;
    cuda_pool_give(self->pool, *memory);
    *memory = NULL;
    *held = 0;
    NRL_TRY(cuda_pool_take(self->pool, bytes, memory));
    *held = bytes;
    return NRL_OK;
}

nrl_status cuda_scratch(cuda *self, void *stream, size_t bytes, void **out)
{
    cuda_stream_memory *m;
    NRL_TRY(memory_of(self, stream, &m));
    NRL_TRY(grow(self, &m->scratch, &m->scratch_bytes, bytes));
    *out = m->scratch;
    return NRL_OK;
}

nrl_status cuda_workspace(cuda *self, void *stream, size_t bytes, void **out)
{
    cuda_stream_memory *m;
    NRL_TRY(memory_of(self, stream, &m));
    NRL_TRY(grow(self, &m->workspace, &m->workspace_bytes, bytes));
    *out = m->workspace;
    return NRL_OK;
}

void cuda_release_stream(cuda *self, void *stream)
{
    for (int i = 0; i <= CUDA_MAX_STREAMS; i++) {
        cuda_stream_memory *m = &self->memory[i];
        if (!m->is_used || m->stream != stream) continue;
        cuda_pool_give(self->pool, m->scratch);
        cuda_pool_give(self->pool, m->workspace);
        *m = (cuda_stream_memory){0};
    }
}

static nrl_status choose_device(const cuda_driver *driver, const cuda_options *o, int32_t index, int *out)
{
    int n;
    NRL_TRY(cuda_probe_driver(driver));
    NRL_TRY(cuda_check(driver, driver->count(&n), "counting the devices"));
    int64_t device = o->device >= 0 ? o->device : index;
    if (device >= n)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot use device %lld: this machine has %d\n"
                        "hint: each rank of a node needs its own device; start at most %d ranks here. If each rank "
                        "sees only its own device, set backend.device: 0 (and collective.device: 0)",
                        (long long)device, n, n);
    *out = (int)device;
    return NRL_OK;
}

static nrl_status open_parts(cuda *self, const cuda_options *o)
{
    const cuda_driver *d = self->driver;
    NRL_TRY(cuda_enter(self));
    NRL_TRY(cuda_check(d, d->properties(self->device, &self->properties), "reading device properties"));
    NRL_TRY(cuda_check_capability(&self->properties));
    size_t limit = (size_t)(o->memory_fraction * (double)self->properties.memory_bytes);
    NRL_TRY(cuda_pool_create(d, limit, &self->pool));
    NRL_TRY(cuda_staging_create(d, &self->staging));
    NRL_TRY(cuda_watch_create(&self->watch));
    NRL_TRY(cuda_check(d, d->stream_create(&self->stream), "creating a stream"));
    void *word;
    NRL_TRY(cuda_staging_take(self->staging, sizeof *self->fault, &word));
    self->fault = word;
    *self->fault = CUDA_FAULT_NONE;
    return NRL_OK;
}

nrl_status cuda_open_driver(const cuda_driver *driver, const cuda_options *o, int32_t index, cuda **out)
{
    int device;
    NRL_TRY(choose_device(driver, o, index, &device));
    cuda *self = calloc(1, sizeof *self);
    if (!self) return nrl_fail(NRL_ERR_MEMORY, "no memory to open the GPU");
    self->driver = driver;
    self->device = device;
    self->tf32 = o->tf32;
    self->wants_dnn = o->attention != CUDA_ATTENTION_FLASH;
    self->tries_dnn = o->attention == CUDA_ATTENTION_AUTO;
    self->times_products = o->timed_products;
    self->product_cache = strdup(o->product_cache ? o->product_cache : "");
    nrl_status st = self->product_cache ? open_parts(self, o) : nrl_fail(NRL_ERR_MEMORY, "no memory to open the GPU");
    if (st) {
        nrl_add_context("opening device %d", device);
        cuda_close(self);
        return st;
    }
    cuda_gemm_prepare(self);
    *out = self;
    return NRL_OK;
}

void cuda_close(void *instance)
{
    cuda *self = instance;
    if (!self) return;
    (void)self->driver->use(self->device);
    if (self->stream) {
        (void)self->driver->stream_wait(self->stream);
        (void)self->driver->stream_destroy(self->stream);
    }
    cuda_gemm_close(self);
    cuda_dnn_close(self);
    cuda_offload_close(self->offload);
    cuda_pool_destroy(self->pool);
    if (self->fault) cuda_staging_give(self->staging, (void *)(uintptr_t)self->fault);
    cuda_staging_destroy(self->staging);
    cuda_watch_destroy(self->watch);
    nvml_close(self->nvml);
    free(self->product_cache);
    free(self);
}
