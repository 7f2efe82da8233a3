/*
 * assemble.h - from examples to a packed micro-batch.
 */
#ifndef DATA_ASSEMBLE_H
#define DATA_ASSEMBLE_H
#include "data/data.h"

/* n = 0 gives a padding micro-batch: one segment with one token and one target position of weight 0. NRL_ERR_CORRUPT if
 * the cache is damaged. [any] */
nrl_status data_assemble(const dataset *d, const int64_t *examples, int64_t n, bool prompt_targets, nrl_batch **out);

#endif
