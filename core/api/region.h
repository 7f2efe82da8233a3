/*
 * region.h - the profiler that receives regions and spans (nrl/region.h); libnrl-profiling has one.
 */
#ifndef API_REGION_H
#define API_REGION_H
#include <nrl/region.h>

/* All [any]. */
typedef struct {
    void (*begin)(const char *name);
    void (*end)(void);
    void (*span)(const char *track, const char *name, double begin, double end);
} region_listener;
/* `listener` lives as long as the process, because another thread may be calling it; NULL = none. [any] */
void region_listen(const region_listener *listener);

#endif
