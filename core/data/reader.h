/*
 * reader.h - the rows of a JSONL file or of a JSON array as texts with their places, one at a time
 * and in bounded memory. It finds where rows begin and end; what is in them is parsed by others.
 *
 * Accepted without a word: a UTF-8 byte-order mark, CRLF, blank lines. A row may have DATA_MAX_ROW
 * bytes; a longer one is an error, not a reason to grow.
 */
#ifndef DATA_READER_H
#define DATA_READER_H
#include "data/stream.h"
#include <stdbool.h>

enum { DATA_MAX_ROW = 16 << 20 };

typedef struct {
    const char *text; /* not NUL-ended; borrowed until the next call */
    size_t size;
    int64_t line, column; /* of its first byte, from 1; the column in bytes */
    bool cut;             /* the file ends in this line, without a line end */
} data_row_text;

typedef struct data_reader data_reader;

/* Takes the stream over, also on failure. `name` is for messages. */
void data_reader_create(data_stream *stream, const char *name, data_reader **out);
void data_reader_destroy(data_reader *r); /* NULL is fine */

/* *end = true after the last row. Errors (NRL_ERR_DATA) carry name:line. */
nrl_status data_reader_next(data_reader *r, data_row_text *row, bool *end);

#endif
