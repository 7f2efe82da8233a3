/*
 * newer.c - stands for the libnrl of a later version at link time: a symbol that today's lacks.
 */
#include <nrl/status.h>

NRL_API void nrl_of_tomorrow(void);
void nrl_of_tomorrow(void) {}

nrl_status nrl_fail(nrl_status code, const char *fmt, ...)
{
    (void)fmt;
    return code;
}
