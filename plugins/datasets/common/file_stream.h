/*
 * file_stream.h - the bytes of a data file, decompressed: plain, gzip, zstd or xz, recognised by the first bytes, not
 * by the name. Several compressed members in one file follow each other. Memory is bounded, whatever the file says.
 * Called by the datasets csv, jsonl and txt; one thread at a time.
 */
#ifndef FILE_STREAM_H
#define FILE_STREAM_H
#include <nrl/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct file_stream file_stream;

/* NRL_ERR_CONFIG: no such file, or not a regular one (`pipe`: a pipe or a terminal is fine, and is waited for);
 * NRL_ERR_IO: it cannot be read. */
nrl_status file_stream_open(const char *path, bool pipe, file_stream **out);
/* Borrows bytes; `name` is for messages. */
void file_stream_open_memory(const char *name, const void *bytes, size_t size, file_stream **out);
void file_stream_close(file_stream *s); /* NULL is allowed */

/* Fills out[0..room), or less; *n = 0 only at the end. NRL_ERR_DATA if a compressed file is truncated or damaged; the
 * text has the path and the offset in the file. */
nrl_status file_stream_read(file_stream *s, void *out, size_t room, size_t *n);
/* Bytes of the (decompressed) file that were read; -1: file_stream_seek cannot go back there, because the file is
 * compressed or no regular one, or nothing was read yet. */
int64_t file_stream_tell(const file_stream *s);
nrl_status file_stream_seek(file_stream *s, int64_t offset); /* after the first read */

/* Whether the name ends in one of the endings (".csv"), which NULL ends, or in one of them and .gz, .zst or .xz.
 * *which (may be NULL): the index of the ending. */
bool file_name_ends_in(const char *path, const char *const *endings, size_t *which);

/* NRL_ERR_DATA if the first bytes of the (decompressed) file are those of a format that no text reader reads, such as
 * Parquet or a spreadsheet. The text has a command that converts the file. `expected`: "JSONL or a JSON array". */
nrl_status file_check_is_text(const char *path, const char *bytes, size_t size, const char *expected);

#endif
