/*
 * cache_file.h - what opening and writing a token cache share.
 */
#ifndef DATA_CACHE_FILE_H
#define DATA_CACHE_FILE_H
#include "data/cache.h"

#define DATA_CACHE_MAGIC "NRLTOKEN" /* 8 bytes, no NUL */
#define DATA_CACHE_ORDER 0x01020304u

uint64_t data_cache_sum(const data_cache_header *header, const void *index, size_t index_size, const void *tail,
                        size_t tail_size);

/* Maps an open file and checks it. Returns the fault, or NULL if the file is valid. */
const char *data_cache_map(int fd, const char *key, data_cache *c);

#endif
