/*
 * lives.h - checks that instances of a plugin release their resources.
 */
#ifndef CONFORMANCE_LIVES_H
#define CONFORMANCE_LIVES_H
#include "report.h"

/* Makes and ends instances by `once`, in a process of its own, and checks that descriptors and memory of the heap do
 * not grow with their number. `once` returns false where no instance can be made, which other rules report. */
void lives_check(conformance_report *r, bool (*once)(void *user), void *user);
/* For kinds whose instances need options alone: create (NULL: there are no instances) and destroy. */
void lives_check_created(conformance_report *r, nrl_status (*create)(const void *options, void **self),
                         void (*destroy)(void *self), const void *options);

#endif
