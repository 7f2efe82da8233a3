/*
 * out.h - folders for results.
 */
#ifndef RUN_OUT_H
#define RUN_OUT_H
#include <nrl/status.h>

/* Makes a folder and all above it; one that is there is fine. NRL_ERR_CONFIG, NRL_ERR_FULL. [main] */
nrl_status out_make(const char *path);

#endif
