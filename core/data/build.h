/*
 * build.h - tokenises what a reader gives into a token cache: the caller's thread takes ranges of rows and
 * writes results in file order, worker threads read and tokenise the rows of a range in between. Memory is
 * bounded by a few chunks, whatever the size of the file. What is kept does not depend on `workers`.
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
    nrl_status (*check)(const void *user); /* asked before the cache gets its name; may be NULL */
    const void *check_user;
} data_build_options;

/* Takes `writer` over, also on failure. Errors name file and line. */
nrl_status data_build(const data_build_options *o, data_reader *reader, data_cache_writer *writer, data_cache *out);

#endif
