/*
 * share.h - how much of a pair's two sides is the same prompt.
 */
#ifndef DATA_SHARE_H
#define DATA_SHARE_H
#include "data/data.h"

/* Tokens that both sides of a block begin with, up to the first that either side is trained on:
 * what a tokenizer merged differently across the end of the prompt is not shared, and each side
 * keeps at least one token of its own. 0 for samples. [any] */
int64_t data_shared_prompt(const dataset *d, int64_t block);

#endif
