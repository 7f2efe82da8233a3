/*
 * read_chunk.h - a range of rows that a worker turns into the bytes of a token cache.
 */
#ifndef DATA_READ_CHUNK_H
#define DATA_READ_CHUNK_H
#include "base/buffer.h"
#include "data/build.h"

enum { CHUNK_UNKNOWN = 16, CHUNK_KEY = 64 };

typedef struct {
    const nrl_dataset *table;
    void *range;           /* NULL: read to its end */
    const nrl_node *first; /* a row that was read in advance, in `ahead`; NULL = none */
    arena ahead;
    /* results */
    nrl_status status;
    char *error; /* malloc'd, when status is not NRL_OK */
    buffer body, segments;
    data_counts counts;
    char unknown[CHUNK_UNKNOWN][CHUNK_KEY]; /* keys without a meaning */
    int64_t unknown_line[CHUNK_UNKNOWN];
    int n_unknown;
} data_chunk;

/* The state of a worker. Zero-initialise and set encoder.options. */
typedef struct {
    data_encoder encoder;
    arena memory; /* of one row */
} data_worker;

void data_worker_free(data_worker *w);
void data_chunk_free(data_chunk *s);
/* Fills an empty chunk with the next range. *end: there is none. */
nrl_status data_chunk_fill(data_chunk *s, data_reader *reader, bool *end);
/* Tokenises all rows; the outcome is in status and error. */
void data_chunk_run(data_chunk *s, data_worker *w, const data_build_options *o);
/* Detects the format of the file from the first row of the chunk, if it has one. */
nrl_status data_chunk_detect(data_chunk *s, const data_build_options *o);

#endif
