/*
 * clock.h - compares the clocks of ranks through the store where they meet.
 */
#ifndef PROFILING_CLOCK_H
#define PROFILING_CLOCK_H
#include <nrl/collective.h>

/* *offset: seconds to add to this rank's clock to get that of rank 0, right within half of *round_trip. `now` reads the
 * clock of the rank. All ranks call it, with the same `key`, which no other keys begin with. */
nrl_status clock_compare(nrl_store *store, const char *key, int32_t rank, int32_t world, double (*now)(void *user),
                         void *user, double *offset, double *round_trip);

#endif
