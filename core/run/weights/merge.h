/*
 * merge.h - weights with their adapters merged: a weights_source around the one that has W. The parameters of a
 * weight's adapter are whole in memory while its elements are asked for, W never is.
 */
#ifndef RUN_MERGE_H
#define RUN_MERGE_H
#include "model/weights.h"

typedef struct {
    weights_source base; /* W, of every parameter of the model's own */
    void *base_user;
    const adapter_set *set;
    /* the n elements of the adapter's parameter called `name`, all of it */
    nrl_status (*matrix)(void *user, const char *name, int64_t n, float *out);
    void *user;
    /* the merger's own */
    const nrl_param *held; /* whose parameters are here */
    int32_t module;        /* -1: it has no adapter */
    float *values[NRL_ADAPTER_MAX_PARAMS];
} merge;

/* A weights_source whose user is a merge; also for models that carry no adapters themselves. */
nrl_status merge_read(void *merge, const nrl_param *p, int64_t begin, int64_t n, float *out);
void merge_free(merge *m); /* its own memory */

#endif
