/*
 * float_rows.h - a file of rows of floats that differ in length, mapped read-only: a header with the sizes and a hash
 * of all that follows, offsets [n_rows + 1], values. It is written under a temporary name and renamed when it is
 * complete. Byte order is that of the machine.
 */
#ifndef BASE_FLOAT_ROWS_H
#define BASE_FLOAT_ROWS_H
#include <nrl/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    void *map; /* NULL: not open */
    size_t size;
    int64_t n_rows;
    const int64_t *offsets; /* [n_rows + 1] of rows, in values */
    const float *values;
} float_rows;

/* Maps the file if it is whole, of this magic and with n_rows rows. Returns whether it is; *damaged: there is a file,
 * but not such a one. */
bool float_rows_open(const char *path, const char magic[8], int64_t n_rows, float_rows *out, bool *damaged);
void float_rows_close(float_rows *f);
/* NRL_ERR_IO, NRL_ERR_FULL. Processes may write the same path: the last one that completes its file wins. */
nrl_status float_rows_write(const char *path, const char magic[8], int64_t n_rows, const int64_t *offsets,
                            const float *values);

#endif
