/*
 * stream.h - the bytes of a data file, unpacked: plain, gzip (by its magic number, any number of
 * members), or memory. The one home of zlib.
 */
#ifndef DATA_STREAM_H
#define DATA_STREAM_H
#include "base/hash.h"

typedef struct data_stream data_stream;

/* NRL_ERR_CONFIG: no such file, or not a regular one; NRL_ERR_IO: it cannot be read. */
nrl_status data_stream_open(const char *path, data_stream **out);
/* Borrows bytes; `name` is for messages. */
void data_stream_open_memory(const char *name, const void *bytes, size_t size, data_stream **out);
void data_stream_close(data_stream *s); /* NULL is fine */

/* Fills out[0..room) as far as there is anything; *n = 0 only at the end. NRL_ERR_DATA where a gzip
 * file is cut off or damaged, with the offset. */
nrl_status data_stream_read(data_stream *s, void *out, size_t room, size_t *n);

/* XXH3-128 of the file as it lies on disk, 32 hex digits and a NUL, and its size. */
nrl_status data_file_hash(const char *path, char hex[HASH_TEXT], int64_t *size);

#endif
