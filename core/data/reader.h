/*
 * reader.h - opens the path of an entry of data.train with the dataset plugin that reads it. Called by part.c;
 * lib/tokens/build.c takes the rows.
 */
#ifndef DATA_READER_H
#define DATA_READER_H
#include "plugin/host.h"
#include "tokens/reader.h"

/* Which plugin reads an entry: `reader` of the config. */
typedef struct {
    config_component component; /* its name is NULL if the probes decide */
    arena memory;               /* of the component */
} data_reader_choice;

/* Whether the path is a directory that the plugin reads as a whole. [main] */
bool data_reader_reads_folder(plugin_host *host, const data_reader_choice *choice, const char *path);
/* NRL_ERR_CONFIG: no such plugin, or none reads the path; else the plugin's error. `choice` and `path` outlive the
 * reader. `flags`: of nrl_dataset_source. [main] */
nrl_status data_reader_open(plugin_host *host, const data_reader_choice *choice, const char *path, uint32_t flags,
                            data_reader **out);

#endif
