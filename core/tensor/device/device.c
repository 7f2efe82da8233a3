/*
 * device.c - opens and closes a backend.
 */
#include "tensor/device/device.h"
#include "base/arena.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

nrl_ops device_known_ops(const nrl_backend *table)
{
    nrl_ops ops = {0};
    memcpy(&ops, table->ops, table->ops->size < sizeof ops ? table->ops->size : sizeof ops);
    return ops;
}

uint32_t device_attention_lacks(const nrl_backend *table, const nrl_backend *delegate)
{
    uint32_t lacks = device_known_ops(table).attention ? table->attention_lacks : UINT32_MAX;
    if (delegate && device_known_ops(delegate).attention) lacks &= delegate->attention_lacks;
    return lacks;
}

nrl_status device_open(const nrl_backend *table, const void *options, int32_t index, device *out)
{
    *out = (device){.table = *table};
    out->ops = device_known_ops(table);
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

nrl_status device_open_delegate(device *d, const nrl_backend *table, const void *options)
{
    device *to = mem_alloc(sizeof *to);
    nrl_status st = device_open(table, options, (int32_t)d->info.index, to);
    if (st != NRL_OK) {
        free(to);
        return st;
    }
    d->delegate = to;
    if (d->info.host_memory && to->info.host_memory && !d->table.stream_create) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN,
                    "backend '%s' delegates operations to '%s'; expected two backends in host memory, without streams",
                    d->table.plugin.name, table->plugin.name);
}

void device_close(device *d)
{
    if (d->delegate) device_close(d->delegate);
    free(d->delegate);
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
