/*
 * slab.h - some consecutive rows of a file on their way through a worker: texts in, cache bytes
 * out.
 */
#ifndef DATA_SLAB_H
#define DATA_SLAB_H
#include "base/buffer.h"
#include "data/build.h"

enum { SLAB_ROWS = 256, SLAB_BYTES = 1 << 20, SLAB_UNKNOWN = 16, SLAB_KEY = 64 };

typedef struct {
    data_row_text rows[SLAB_ROWS]; /* places and sizes */
    size_t at[SLAB_ROWS];          /* where each begins in `text` */
    size_t n_rows;
    buffer text;
    /* results */
    nrl_status status;
    char *error; /* malloc'd, when status is not NRL_OK */
    buffer body, segments;
    data_counts counts;
    char unknown[SLAB_UNKNOWN][SLAB_KEY]; /* keys without a meaning */
    int64_t unknown_line[SLAB_UNKNOWN];
    int n_unknown;
} data_slab;

/* A worker's own tools; zero-initialise, set encoder.options. */
typedef struct {
    data_encoder encoder;
    arena memory; /* of one row */
} data_worker;

void data_worker_free(data_worker *w);
void data_slab_free(data_slab *s);
/* Fills an emptied slab; *end = there was nothing left. */
nrl_status data_slab_fill(data_slab *s, data_reader *reader, bool *end);
/* Tokenises all rows; the outcome is in status and error. */
void data_slab_run(data_slab *s, data_worker *w, const data_build_options *o);
/* Detects the file's format by the slab's first row. */
nrl_status data_slab_detect(data_slab *s, const data_build_options *o);

#endif
