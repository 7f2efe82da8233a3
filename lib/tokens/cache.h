/*
 * cache.h - the token cache: one file per data file, named by its key, mapped read-only.
 *
 *   header   data_cache_header, with a checksum of itself, the index and the tail
 *   body     the examples, 4-byte aligned: extra floats, then for each side
 *            int32 tokens[n] and uint8 trained[n]
 *   index    data_cache_segment for each side of each example
 *   tail     the notes: one line of text each
 *
 * The file is written under a temporary name and renamed when it is on the disk, so a reader sees a complete file or
 * none. Byte order and struct layout are those of the machine; a file from another machine is rebuilt.
 */
#ifndef TOKENS_CACHE_H
#define TOKENS_CACHE_H
#include "tokens/encode.h"
#include <stdio.h>

enum { DATA_CACHE_VERSION = 7, DATA_FORMAT_NAME = 40 };

typedef struct {
    int64_t rows, outcome[DATA_OUTCOMES];
    int64_t truncated, identical;      /* among the kept rows */
    int64_t split, pieces;             /* rows that became several samples; all samples of these rows */
    int64_t first_identical;           /* line, 0 = none */
    int64_t merged, first_merged;      /* samples whose prompt and answer share a token; line, 0 = none */
    int64_t first_line[DATA_OUTCOMES]; /* the first row of each outcome, 0 = none */
    int64_t endless;                   /* texts that could not be ended with EOS */
    int64_t dropped_characters;        /* characters without a token */
} data_counts;

typedef struct {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t sum; /* XXH3 of header (this field 0), index and tail */
    char key[40];
    char format[DATA_FORMAT_NAME];
    int32_t n_sides, n_extra;
    int64_t n_examples, n_tokens, n_trained;
    int64_t index_at, tail_at, file_size; /* bytes */
    data_counts counts;
} data_cache_header;

typedef struct {
    int64_t offset; /* of tokens, in the file */
    int32_t n_tokens, n_trained;
    uint32_t check; /* low half of XXH3 of tokens and trained */
    int32_t shared; /* first tokens, not trained, that both sides begin with */
    int64_t line;   /* of the row */
} data_cache_segment;

/* A mapped cache; zero-initialise. */
typedef struct {
    const unsigned char *map;
    size_t size;
    const data_cache_header *header;
    const data_cache_segment *index; /* [n_examples * n_sides] */
    const char *notes;               /* notes_size bytes */
    size_t notes_size;
} data_cache;

/* Maps the file if it is valid and has this key, and sets *found. Warns about a damaged file (unless quiet) and does
 * not use it. The contents of the file never cause an error. */
nrl_status data_cache_open(const char *path, const char *key, bool quiet, data_cache *c, bool *found);
void data_cache_close(data_cache *c);

/* ---- writing ---- */
typedef struct data_cache_writer data_cache_writer;

/* path NULL: an unnamed temporary file. `alone`: the caller holds the lock of this path, so the file of a killed
 * process is overwritten. NRL_ERR_IO, NRL_ERR_FULL. */
nrl_status data_cache_create(const char *path, bool alone, const char *key, data_cache_writer **out);
/* The same in memory alone, which data_cache_close frees. */
nrl_status data_cache_create_in_memory(data_cache_writer **out);
/* Appends examples: bytes [begin, end) of a body, and index entries whose offsets count from the body's start. */
nrl_status data_cache_append(data_cache_writer *w, const char *body, size_t begin, size_t end,
                             const data_cache_segment *segments, size_t n);
int64_t data_cache_n_segments(const data_cache_writer *w); /* so far */
/* Call after the tokens and marks of a segment were added at seg->offset: sets its checksum and pads with zeros to a
 * multiple of 4. NRL_ERR_MEMORY if `body` is not complete. */
nrl_status data_cache_end_segment(buffer *body, data_cache_segment *seg);
data_cache_header data_cache_header_of(const data_schema *schema, bool kl_pairs); /* without counts */
/* Completes the file, renames it and maps it. `header` provides format, n_sides, n_extra and counts. Frees the writer,
 * also on failure. */
nrl_status data_cache_finish(data_cache_writer *w, const data_cache_header *header, const char *notes,
                             size_t notes_size, data_cache *out);
void data_cache_abandon(data_cache_writer *w); /* NULL is allowed */

#endif
