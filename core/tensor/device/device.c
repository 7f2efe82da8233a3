/*
 * device.c - opens a backend and checks its operations.
 */
#include "tensor/device/device.h"
#include "base/memory.h"
#include "tensor/device/backend_call.h"
#include <stdbool.h>
#include <stdio.h>
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

/* Members of nrl_ops by name. */
static const struct {
    const char *name;
    size_t offset;
} op_members[] = {
#define MEMBER(name, args) {#name, offsetof(nrl_ops, name)},
    BACKEND_OPS(MEMBER)
#undef MEMBER
};

static bool has_op(const device *d, const char *name)
{
    for (size_t i = 0; i < sizeof op_members / sizeof *op_members; i++) {
        if (strcmp(op_members[i].name, name)) continue;
        void *member;
        memcpy(&member, (const char *)&d->ops + op_members[i].offset, sizeof member);
        return member != NULL;
    }
    return false;
}

nrl_status device_check_ops(const device *d, const char *const *names)
{
    char missing[512];
    size_t used = 0;
    for (int i = 0; names[i]; i++) {
        if (has_op(d, names[i]) || used >= sizeof missing) continue;
        int n = snprintf(missing + used, sizeof missing - used, "%s'%s'", used ? ", " : "", names[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (!used) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend '%s' has no op %s", d->table.plugin.name, missing);
}

/* Without /proc, sysconf gives the memory in pages. */
void nrl_host_memory(int64_t *total, int64_t *available)
{
    *total = memory_total("");
    if (*total == INT64_MAX) *total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    *available = memory_available("");
    if (*available == INT64_MAX) *available = -1;
}
