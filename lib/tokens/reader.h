/*
 * reader.h - the rows of a file, as a dataset plugin reads them: the plugin's table and its open instance. core/data
 * opens it; build.c takes the rows.
 */
#ifndef TOKENS_READER_H
#define TOKENS_READER_H
#include "base/arena.h"
#include <nrl/dataset.h>

typedef struct {
    const nrl_dataset *table;
    void *self;     /* NULL after data_reader_stop */
    void *filled;   /* the options of the plugin */
    uint32_t flags; /* of the source */
    nrl_dataset_info info;
    const char *path;
    const char *plugin;  /* "NAME VERSION" */
    const char *options; /* as JSON, with the defaults */
    arena memory;
} data_reader;

/* data_reader_stop closes the source, whose ranges must be closed; data_reader_start opens it again, from its first
 * row, if it is not open. [one thread] */
void data_reader_stop(data_reader *r);
nrl_status data_reader_start(data_reader *r);
void data_reader_close(data_reader *r); /* NULL is allowed; close its ranges first */

#endif
