/*
 * build.h - tokenises the rows of a reader into a token cache. The calling thread takes ranges of rows and writes the
 * results in file order; all threads read and tokenise the rows of the ranges. Memory is bounded by a few ranges for
 * each worker, independent of the size of the file. The result does not depend on `workers`.
 */
#ifndef DATA_BUILD_H
#define DATA_BUILD_H
#include "data/cache.h"
#include "data/reader.h"

/* Which rows of a file are read; all if it is zero. */
typedef struct {
    int64_t first, end;   /* rows [first, end) of the file, from 0; end 0 = all from `first` on */
    uint64_t limit_below; /* bound of the hashes of rows that `limit` keeps; 0 = all */
    uint64_t held_below;  /* the same for rows that are held out for the evaluation; 0 = none */
    bool is_held_out;     /* read these rows instead of the others */
} data_selection;

enum { DATA_HASH_SPLIT = 0, DATA_HASH_LIMIT = 1 << 16 }; /* seeds, so that both choices are independent */
bool data_selection_has(const data_selection *s, const data_schema *schema, const nrl_node *row);

typedef struct {
    const char *name; /* of the file, for messages */
    data_encode_options encode;
    data_schema *schema; /* its format is set from the first row */
    bool kl_pairs;       /* each example gets a second side, see kl_pairs.h */
    data_selection select;
    int64_t workers;
    const volatile int *signal;            /* number of a signal that asks to stop, 0 = none yet; NULL = nobody asks */
    nrl_status (*check)(const void *user); /* called before the cache gets its final name; may be NULL */
    const void *check_user;
} data_build_options;

/* Takes ownership of `writer`, also on failure. Errors name file and line. */
nrl_status data_build(const data_build_options *o, data_reader *reader, data_cache_writer *writer, data_cache *out);

#endif
