/*
 * assemble.h - from blocks to a packed micro-batch.
 */
#ifndef DATA_ASSEMBLE_H
#define DATA_ASSEMBLE_H
#include "data/data.h"

/* n = 0 gives a tail batch: one segment of one token, one scored row of weight 0. NRL_ERR_CORRUPT
 * for a damaged cache. [any] */
nrl_status data_assemble(const dataset *d, const int64_t *blocks, int64_t n, bool prompt_rows,
                         nrl_batch **out);

#endif
