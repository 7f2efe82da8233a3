/*
 * device.c - opens and closes a backend.
 */
#include "tensor/device/device.h"
#include "base/memory.h"
#include <string.h>
#include <unistd.h>

nrl_status device_open(const nrl_backend *table, const void *options, int32_t index, device *out)
{
    *out = (device){.table = *table};
    size_t known = table->ops->size < sizeof out->ops ? table->ops->size : sizeof out->ops;
    memcpy(&out->ops, table->ops, known);
    nrl_status st = table->open(options, index, &out->self);
    if (st) {
        *out = (device){0}; /* ignore what a failed open has written: there is nothing to close */
        return st;
    }
    out->info.size = sizeof out->info;
    st = table->info(out->self, &out->info);
    if (st) device_close(out);
    return st;
}

void device_close(device *d)
{
    if (d->table.close) d->table.close(d->self);
    *d = (device){0};
}

/* Without /proc, sysconf gives the memory in pages. */
void nrl_host_memory(int64_t *total, int64_t *available)
{
    *total = memory_total("");
    if (*total == INT64_MAX) *total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    *available = memory_available("");
    if (*available == INT64_MAX) *available = -1;
}
