/*
 * build.h - tokenises the rows of a reader into a token cache. The calling thread takes ranges of rows and writes the
 * results in file order; all threads read and tokenise the rows of the ranges. Memory is bounded by a few ranges for
 * each worker, independent of the size of the file. The result does not depend on `workers`.
 */
#ifndef DATA_BUILD_H
#define DATA_BUILD_H
#include "data/cache.h"
#include "data/reader.h"

typedef struct {
    const char *name; /* of the file, for messages */
    data_encode_options encode;
    data_schema *schema; /* its format is set from the first row */
    bool kl_pairs;       /* each example gets a second side, see kl_pairs.h */
    int64_t workers;
    const volatile int *signal;            /* number of a signal that asks to stop, 0 = none yet; NULL = nobody asks */
    nrl_status (*check)(const void *user); /* called before the cache gets its final name; may be NULL */
    const void *check_user;
} data_build_options;

/* Takes ownership of `writer`, also on failure. Errors name file and line. */
nrl_status data_build(const data_build_options *o, data_reader *reader, data_cache_writer *writer, data_cache *out);

#endif
