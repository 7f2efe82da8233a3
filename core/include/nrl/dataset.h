/*
 * dataset.h - where rows come from: a plugin opens what an entry of data.train or data.eval names, and gives its rows.
 * What a row means (messages, prompt and completion, pairs, labels, token ids), the token cache, packing, order and
 * batches are the core's. Which plugin reads an entry is found out by asking (probe), unless the entry names it:
 * `data: {train: {path: PATH, reader: NAME}}`, or `reader: {name: NAME, option: value}`.
 *
 * Rows come in ranges: consecutive rows of bounded memory, a megabyte or so. One thread takes ranges in order, while
 * data.workers others read the rows of earlier ranges, each range in one thread. So a plugin splits in next_range,
 * which should be cheap, and parses in next_row. The order is that of the ranges, and of the rows in them; the same
 * path gives the same rows in the same order each time it is opened.
 *
 * Places: a row is a map with the place that it came from (nrl_node_set_place): the path, and the line where it begins,
 * from 1, or the number of the row where the file has no lines. Lines never fall. Errors about a row name them.
 *
 * Ownership: `options` and the source live until close; what info points to belongs to the instance. Errors:
 * NRL_ERR_CONFIG for a path that cannot be (the text names it), NRL_ERR_DATA for content, as "PATH:LINE: ...";
 * NRL_ERR_IO, NRL_ERR_MEMORY. Rows before the faulty one are given before its error.
 */
#ifndef NRL_DATASET_H
#define NRL_DATASET_H
#include <nrl/plugin.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What is opened. */
typedef struct {
    uint32_t size; /* of this struct */
    uint32_t reserved;
    const char *path; /* as the config has it: a file, or what else the plugin understands. A folder that no plugin
                         claims (NRL_PROBE_PERHAPS) and a pattern such as "*.tsv" stand for their files */
} nrl_dataset_source;

typedef struct {
    uint32_t size; /* of this struct, set by the caller, who sets the numbers to -1 and hash to NULL */
    uint32_t reserved;
    int64_t rows;  /* that will be given; -1: not known before they are read */
    int64_t bytes; /* that are read, for reports; -1: not known, or the file's where hash is NULL */
    /* Hex digits over all that the rows are made of, at most 64: with the plugin's name, version and options it names
     * token caches, and checkpoints compare it. NULL: the path is a regular file and the rows follow from its bytes,
     * which the core hashes, and watches for changes. */
    const char *hash;
} nrl_dataset_info;

typedef struct {
    nrl_plugin plugin;
    /* [main] how surely (NRL_PROBE_*) this plugin reads source->path. Cheap: the name, and at most the first bytes. A
     * path that does not exist is answered by its name. */
    int32_t (*probe)(const nrl_dataset_source *source);
    /* [main] cheap, as it also comes before a cached read: opens, and reads what info needs */
    nrl_status (*open)(const void *options, const nrl_dataset_source *source, void **self);
    void (*close)(void *self);                              /* [main] after the last range was closed */
    void (*info)(const void *self, nrl_dataset_info *info); /* [main] */
    /* [io] the next range; *range = NULL after the last one. A range may be without rows. */
    nrl_status (*next_range)(void *self, void **range);
    /* [any] the next row of a range, a map in `memory`, which is empty; *row = NULL after the last. One thread a range,
     * several ranges at once, also while next_range runs. */
    nrl_status (*next_row)(void *range, nrl_arena *memory, const nrl_node **row);
    void (*close_range)(void *range); /* [any] also before its last row */

    /* For `nrl plugins test`, which reads what it wrote; both or none. */
    const char *extension; /* "tsv": what names of files end in, without the dot */
    /* [main] writes a list of rows to a new file: maps of texts, all with the same keys */
    nrl_status (*write)(const void *options, const char *path, const nrl_node *rows);
} nrl_dataset;

#ifdef __cplusplus
}
#endif
#endif
