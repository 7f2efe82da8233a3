/*
 * newer.c - takes the place of a later libnrl at link time: it has a symbol that this version
 * lacks.
 */
#include <nrl/status.h>

NRL_API void nrl_of_tomorrow(void);
void nrl_of_tomorrow(void) {}

nrl_status(nrl_fail)(nrl_status code, const char *fmt, ...)
{
    (void)fmt;
    return code;
}
