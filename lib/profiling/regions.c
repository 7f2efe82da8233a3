/*
 * regions.c - receives regions and spans (nrl/region.h). Regions of a thread that takes a profile are rows of it; those
 * of other threads, and spans, are slices of the timelines that are being recorded. With NVTX's header every region is
 * an NVTX range as well, which costs next to nothing unless a tool of NVIDIA is attached.
 */
#include "api/region.h"
#include "base/clock.h"
#include "profiling/internal.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef NRL_NVTX
#include <nvtx3/nvToolsExt.h>
#else
#define nvtxRangePushA(name) (void)(name)
#define nvtxRangePop() (void)0
#define nvtxRangeStartA(name) ((void)(name), 0)
#define nvtxRangeEnd(range) (void)(range)
#endif

enum { MOST_PROFILES = 64, MOST_DEEP = 32, NAME = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nrl_ctx *profiled[MOST_PROFILES]; /* contexts with a profile, under lock */
static int n_profiled;
static _Thread_local nrl_ctx *own; /* of this thread's profile */
static _Thread_local struct {
    int depth;
    double begin[MOST_DEEP];
    char name[MOST_DEEP][NAME];
} others; /* open regions of a thread without a profile */

void profile_nvtx(uint64_t *range, const char *name)
{
    if (*range) nvtxRangeEnd(*range);
    *range = name ? nvtxRangeStartA(name) : 0;
}

int32_t profile_region(profile *p, int32_t parent, const char *name)
{
    for (int32_t i = parent + 1; i < p->n_regions; i++)
        if (p->regions[i].parent == parent && !strcmp(p->regions[i].name, name)) return i;
    p->regions = mem_realloc(p->regions, (size_t)(p->n_regions + 1) * sizeof *p->regions);
    p->regions[p->n_regions] = (nrl_region_time){.name = arena_strdup(&p->names, name),
                                                 .parent = parent,
                                                 .depth = parent < 0 ? 0 : p->regions[parent].depth + 1};
    return p->n_regions++;
}

static void region_begins(const char *name)
{
    nvtxRangePushA(name);
    if (own) {
        int32_t region = profile_region(own->profile, own->profile->region, name);
        own->profile->regions[region].calls++;
        profile_mark_region(own, region);
        return;
    }
    if (others.depth < MOST_DEEP) {
        others.begin[others.depth] = clock_seconds();
        snprintf(others.name[others.depth], NAME, "%s", name);
    }
    others.depth++;
}

static void span(const char *track, const char *name, double begin, double end)
{
    if (own && own->profile->trace) trace_slice(own->profile->trace, track, name, begin, end, NULL);
    if (own) return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_profiled; i++)
        if (profiled[i]->profile->trace) trace_slice(profiled[i]->profile->trace, track, name, begin, end, NULL);
    pthread_mutex_unlock(&lock);
}

/* An end without a begin belongs to a region that began before the profile. */
static void region_ends(void)
{
    nvtxRangePop();
    if (own) {
        const profile *p = own->profile;
        if (p->region >= 0) profile_mark_region(own, p->regions[p->region].parent);
        return;
    }
    if (!others.depth || --others.depth >= MOST_DEEP) return;
    char track[NAME];
    snprintf(track, sizeof track, "regions of thread %d", (int)gettid());
    span(track, others.name[others.depth], others.begin[others.depth], clock_seconds());
}

void profile_bind(nrl_ctx *ctx)
{
    static const region_listener listener = {region_begins, region_ends, span};
    pthread_mutex_lock(&lock);
    if (n_profiled < MOST_PROFILES) profiled[n_profiled++] = ctx;
    pthread_mutex_unlock(&lock);
    own = ctx;
    region_listen(&listener);
}

void profile_unbind(nrl_ctx *ctx)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_profiled; i++)
        if (profiled[i] == ctx) profiled[i--] = profiled[--n_profiled];
    if (!n_profiled) region_listen(NULL);
    pthread_mutex_unlock(&lock);
    if (own == ctx) own = NULL;
}
