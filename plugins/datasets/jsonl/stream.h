/*
 * stream.h - the bytes of a data file, unpacked: plain, gzip (by its magic number, any number of
 * members), or memory. The one home of zlib.
 */
#ifndef JSONL_STREAM_H
#define JSONL_STREAM_H
#include <nrl/status.h>

typedef struct jsonl_stream jsonl_stream;

/* NRL_ERR_CONFIG: no such file, or not a regular one; NRL_ERR_IO: it cannot be read. */
nrl_status jsonl_stream_open(const char *path, jsonl_stream **out);
/* Borrows bytes; `name` is for messages. */
void jsonl_stream_open_memory(const char *name, const void *bytes, size_t size, jsonl_stream **out);
void jsonl_stream_close(jsonl_stream *s); /* NULL is fine */

/* Fills out[0..room) as far as there is anything; *n = 0 only at the end. NRL_ERR_DATA where a gzip
 * file is cut off or damaged, with the offset. */
nrl_status jsonl_stream_read(jsonl_stream *s, void *out, size_t room, size_t *n);

#endif
