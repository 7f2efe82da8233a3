/*
 * out.h - the names in an output directory that belong to the run itself.
 */
#ifndef RUN_OUT_H
#define RUN_OUT_H
#include <stdbool.h>

bool out_is_own(const char *name); /* whether the core writes this file, so that no logger may */

#endif
