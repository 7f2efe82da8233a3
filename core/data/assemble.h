/*
 * assemble.h - from examples to a packed micro-batch.
 */
#ifndef DATA_ASSEMBLE_H
#define DATA_ASSEMBLE_H
#include "data/data.h"

/* n = 0 gives a padding micro-batch: one segment of one token, one target position of weight 0. NRL_ERR_CORRUPT
 * for a damaged cache. [any] */
nrl_status data_assemble(const dataset *d, const int64_t *examples, int64_t n, bool prompt_targets, nrl_batch **out);

#endif
