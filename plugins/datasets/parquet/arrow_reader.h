/*
 * arrow_reader.h - tables of Apache Arrow behind C functions: Parquet files, Arrow files and Arrow streams, which are
 * recognised by their first bytes. No exception leaves these functions. Called by parquet.c.
 */
#ifndef ARROW_READER_H
#define ARROW_READER_H
#include <nrl/node.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct arrow_reader arrow_reader;
typedef struct arrow_rows arrow_rows;

/* Where the next rows begin. */
typedef struct {
    int64_t row;       /* of the file, from 0 */
    int64_t batch, at; /* the same row as row `at` of this record batch, for files without an index of rows */
} arrow_place;

/* `columns`: a list of the names to read; an empty one: all. NRL_ERR_CONFIG: no such file or column; NRL_ERR_DATA: not
 * such a file, or a column of a type that has no text or number. `path` is borrowed. */
nrl_status arrow_reader_open(const char *path, const nrl_node *columns, arrow_reader **out);
void arrow_reader_close(arrow_reader *r);
int64_t arrow_reader_n_rows(const arrow_reader *r); /* -1: not known before all are read */

/* The next rows, a thousand at most; *rows = NULL after the last ones. They are checked: reading them cannot fail. */
nrl_status arrow_reader_next(arrow_reader *r, arrow_rows **rows);
void arrow_reader_tell(const arrow_reader *r, arrow_place *out);
/* Of a reader that was just opened. Row groups of Parquet and batches of Arrow files in front of the place are not
 * read; batches of a stream are. NRL_ERR_DATA: the file has no such place. */
nrl_status arrow_reader_seek(arrow_reader *r, const arrow_place *place);
void arrow_rows_close(arrow_rows *rows);
int64_t arrow_rows_n(const arrow_rows *rows);
/* Row i as a map in `memory`. Several threads may read different rows. */
nrl_status arrow_rows_read(const arrow_rows *rows, int64_t i, nrl_arena *memory, nrl_node **row);

#ifdef __cplusplus
}
#endif
#endif
