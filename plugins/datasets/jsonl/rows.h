/*
 * rows.h - the rows of a JSONL file or of a JSON array as texts with their positions, one at a time
 * and in bounded memory. It only finds where rows begin and end; the caller parses them.
 *
 * A UTF-8 byte-order mark, CRLF and blank lines are accepted. A row has at most JSONL_MAX_ROW
 * bytes; a longer one is an error.
 */
#ifndef JSONL_ROWS_H
#define JSONL_ROWS_H
#include "file_stream.h"
#include <nrl/dataset.h>
#include <stdbool.h>

enum { JSONL_MAX_ROW = 16 << 20 };

typedef struct {
    const char *text; /* not NUL-terminated; borrowed until the next call */
    size_t size;
    int64_t line, column; /* of its first byte, from 1; the column in bytes */
    bool cut;             /* the file ends in this line, without a line end */
} jsonl_text;

typedef struct jsonl_rows jsonl_rows;

/* Takes ownership of the stream, also on failure. `name` is for messages. */
void jsonl_rows_create(file_stream *stream, const char *name, jsonl_rows **out);
void jsonl_rows_destroy(jsonl_rows *r); /* accepts NULL */

/* *end = true after the last row. Errors (NRL_ERR_DATA) carry name:line. */
nrl_status jsonl_rows_next(jsonl_rows *r, jsonl_text *row, bool *end);

/* nrl_dataset.tell and seek, of the next row. */
bool jsonl_rows_tell(const jsonl_rows *r, char out[NRL_DATASET_POSITION]);
nrl_status jsonl_rows_seek(jsonl_rows *r, const char *position);

#endif
