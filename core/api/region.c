/*
 * region.c - the functions of nrl/region.h: they pass regions to the profiler that listens.
 */
#include "api/region.h"
#include <stdatomic.h>
#include <stddef.h>

static const region_listener *_Atomic now;

void region_listen(const region_listener *listener)
{
    atomic_store(&now, listener);
}

void nrl_region_begin(const char *name)
{
    const region_listener *l = atomic_load_explicit(&now, memory_order_acquire);
    if (l) l->begin(name);
}

void nrl_region_end(void)
{
    const region_listener *l = atomic_load_explicit(&now, memory_order_acquire);
    if (l) l->end();
}

void nrl_region_span(const char *track, const char *name, double begin, double end)
{
    const region_listener *l = atomic_load_explicit(&now, memory_order_acquire);
    if (l) l->span(track, name, begin, end);
}
