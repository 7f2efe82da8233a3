/*
 * part.h - one entry of data.train: a file, its weight, and its tokens, read from the cache or
 * made. Builders of the same cache wait for each other by a lock file, so that of many ranks one
 * works.
 */
#ifndef DATA_PART_H
#define DATA_PART_H
#include "base/hash.h"
#include "data/cache.h"
#include "data/reader.h"
#include <time.h>

enum { DATA_HASH = 65 }; /* at most 64 digits and a NUL */

typedef struct {
    char *path; /* as opened */
    double weight;
    int64_t first; /* number of its first example in the data set */
    data_reader_choice choice;
    data_reader *reader;      /* while the part is opened */
    const nrl_plugin *plugin; /* of the reader */
    char *plugin_name;        /* "NAME VERSION" */
    int64_t bytes;            /* of the file */
    struct timespec modified;
    char hash[DATA_HASH]; /* of what the rows are made of: of the file's bytes, unless the plugin has its own */
    char key[HASH_TEXT];
    bool from_cache;
    data_cache cache;
    char *cache_path; /* NULL: nothing is kept */
} data_part;

typedef struct {
    data_part *items;
    int64_t n;
} data_parts;

/* Reads the list of files in options->source; opens nothing. NRL_ERR_CONFIG. */
nrl_status data_parts_list(const dataset_options *o, data_parts *out);
void data_parts_free(data_parts *p);

/* Maps the part's tokens, tokenising the file where no sound cache exists. */
nrl_status data_part_open(const dataset_options *o, data_part *p);

#endif
