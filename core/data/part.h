/*
 * part.h - one entry of data.train: a file, its weight, and its tokens, which are read from the cache or built.
 * Processes that build the same cache wait for each other with a lock file, so that only one of many ranks builds it.
 */
#ifndef DATA_PART_H
#define DATA_PART_H
#include "base/hash.h"
#include "data/data.h"
#include "data/reader.h"
#include "tokens/build.h"
#include <time.h>

enum { DATA_HASH = 65 }; /* at most 64 digits and a NUL */

typedef struct {
    char *path; /* as opened */
    double weight;
    int64_t first; /* index of its first example in the data set */
    size_t entry;  /* of the list; a directory is one entry */
    bool is_pipe;  /* of a stream */
    data_reader_choice choice;
    int64_t from, to;              /* `rows` of the entry, negative from its end; INT64_MAX = open */
    int64_t limit;                 /* of the entry, 0 = none */
    data_overlong overlong;        /* of the entry, or data.overlong */
    const nrl_node *columns;       /* of the entry; NULL = data.columns */
    config_choice template_choice; /* of the entry; neither name nor source = data.template */
    const chat_template *template; /* opened for template_choice; NULL = data.template */
    data_selection select;
    bool is_empty;            /* nothing is selected */
    data_reader *reader;      /* while the part is opened */
    const nrl_plugin *plugin; /* of the reader */
    char *plugin_name;        /* "NAME VERSION" */
    int64_t bytes;            /* of the file */
    struct timespec modified;
    char hash[DATA_HASH]; /* of the content: of the bytes of the file, unless the plugin gives a hash */
    char key[HASH_TEXT];
    bool from_cache;
    data_cache cache;
    char *cache_path; /* NULL: no cache is kept */
    /* In a window of a stream: for each file, its path and the index of its first example. NULL = all examples are from
     * `path`. */
    struct data_part_file {
        int64_t first;
        char *path;
    } * files;
    size_t n_files;
} data_part;

typedef struct {
    data_part *items;
    int64_t n;
} data_parts;

/* Reads the list of files, directories and patterns in options->source. NRL_ERR_CONFIG, NRL_ERR_IO. */
nrl_status data_parts_list(const dataset_options *o, data_parts *out);
void data_parts_free(data_parts *p);
void data_part_close(data_part *p);

/* Sets `select` of each part from rows, limit and held_out, for which the files may have to be read once. */
nrl_status data_parts_select(const dataset_options *o, data_parts *p);
nrl_status data_part_schema(const dataset_options *o, const data_part *p, data_schema *out);

/* Opens the reader, and sets the hashes that tell the rows of the part from others. In a stream only the size and both
 * ends of a file are hashed. */
nrl_status data_part_identify(const dataset_options *o, data_part *p);
/* NRL_ERR_DATA if the file has changed since data_part_identify. */
nrl_status data_part_check_unchanged(const void *part);
data_build_options data_part_build_options(const dataset_options *o, const data_part *p, data_schema *schema);

/* Creates a data set of parts whose caches are open and have the schema of `o`. Takes ownership of `parts`, also on
 * failure. */
nrl_status dataset_of_parts(const dataset_options *o, data_parts *parts, dataset **out);
/* Lists the parts of data.train and sets their `select`. NRL_ERR_CONFIG if options of `o` contradict each other. */
nrl_status data_parts_open(const dataset_options *o, data_schema *schema, data_parts *out);

/* Maps the tokens of the part. Tokenizes the file if there is no valid cache. */
nrl_status data_part_open(const dataset_options *o, data_part *p);

#endif
