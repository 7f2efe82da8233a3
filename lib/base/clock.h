/*
 * clock.h - the monotonic clock.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <time.h>

static inline double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns early after a signal. */
static inline void clock_sleep(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&t, NULL);
}

#endif
