/*
 * build.h - tokenises the rows of a reader into token caches: into one (data_build), or a number of examples at a time
 * (data_builder). The calling thread takes ranges of rows and writes the results in file order; all threads read and
 * tokenise the rows of the ranges. Memory is bounded by a few ranges for each worker, independent of the size of the
 * file. The result does not depend on `workers`.
 */
#ifndef TOKENS_BUILD_H
#define TOKENS_BUILD_H
#include "tokens/cache.h"
#include "tokens/reader.h"
#include <stdatomic.h>

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
    const volatile int *signal;            /* number of a signal that requests a stop, 0 = none yet; may be NULL */
    const atomic_bool *stop;               /* the same by another thread; may be NULL */
    nrl_status (*check)(const void *user); /* called before the cache gets its final name; may be NULL */
    const void *check_user;
} data_build_options;

/* The position of the next example of a file: the start of a range, and the number of its examples before this one. */
typedef struct {
    int64_t range;                 /* ranges before it */
    int64_t rows;                  /* rows before it, where rows are selected by number */
    int64_t skip;                  /* examples of the range before the next one */
    char at[NRL_DATASET_POSITION]; /* of the plugin; "" = none, the ranges before are read again */
} data_position;

typedef struct data_builder data_builder;

/* The reader is open at its start. `o` and the reader outlive the builder. */
nrl_status data_builder_create(const data_build_options *o, data_reader *reader, data_builder **out);
void data_builder_destroy(data_builder *b); /* NULL is allowed */
/* Goes to a position of another builder of the same file; call it first. NRL_ERR_DATA: the file has no such
 * position. */
nrl_status data_builder_seek(data_builder *b, const data_position *p);
/* Tokenises until an example is ready; *end: there are no more. Errors name file and line. */
nrl_status data_builder_more(data_builder *b, bool *end);
/* When an example is ready: appends one to `most` examples. */
nrl_status data_builder_take(data_builder *b, data_cache_writer *writer, int64_t most);
/* Call it between two caches: with kl_pairs, the last example of the first one and the first example of the second one
 * do not take answers from each other. */
nrl_status data_builder_next_cache(data_builder *b);
data_position data_builder_position(const data_builder *b); /* of the next example, after the first take */
/* Call it at the end of the file, not after a seek: NRL_ERR_DATA if the file has no rows or none were kept. */
nrl_status data_builder_check(const data_builder *b);
/* Appends a line of text for each kind of rows that were omitted, truncated or split so far, and for unused keys,
 * except those whose bits are in *told; adds the bits of the new lines. */
void data_builder_notes(data_builder *b, unsigned *told, buffer *notes);

/* Takes ownership of `writer`, also on failure. Errors name file and line. */
nrl_status data_build(const data_build_options *o, data_reader *reader, data_cache_writer *writer, data_cache *out);

#endif
