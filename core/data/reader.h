/*
 * reader.h - opens the path of an entry of data.train with the dataset plugin that reads it. Called by part.c;
 * build.c takes the rows.
 */
#ifndef DATA_READER_H
#define DATA_READER_H
#include "base/arena.h"
#include "plugin/host.h"
#include <nrl/dataset.h>

/* Which plugin reads an entry: `reader` of the config. */
typedef struct {
    config_component component; /* its name is NULL if the probes decide */
    arena memory;               /* of the component */
} data_reader_choice;

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

/* Whether the path is a directory that the plugin reads as a whole. [main] */
bool data_reader_reads_folder(plugin_host *host, const data_reader_choice *choice, const char *path);
/* NRL_ERR_CONFIG: no such plugin, or none reads the path; else the plugin's error. `choice` and `path` outlive the
 * reader. `flags`: of nrl_dataset_source. [main] */
nrl_status data_reader_open(plugin_host *host, const data_reader_choice *choice, const char *path, uint32_t flags,
                            data_reader **out);
/* Close the source, whose ranges are closed, and open it again at its begin, where it is not open. [one thread] */
void data_reader_stop(data_reader *r);
nrl_status data_reader_start(data_reader *r);
void data_reader_close(data_reader *r); /* NULL is allowed; close its ranges first */

#endif
