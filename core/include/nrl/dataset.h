/*
 * dataset.h - reads rows. A dataset plugin opens the path of an entry of data.train or data.eval and returns its rows.
 * The core interprets the rows (messages, prompt and completion, pairs, labels, token ids), and owns the token cache,
 * packing, order and batches. Probes decide which plugin reads an entry, unless the entry names the plugin:
 * `data: {train: {path: PATH, reader: NAME}}`, or `reader: {name: NAME, option: value}`.
 *
 * Rows come in ranges: consecutive rows that need about a megabyte of memory. One thread takes the ranges in order
 * while data.workers other threads read the rows of earlier ranges, each range in one thread. A plugin therefore splits
 * its input in next_range, which should be cheap, and parses in next_row. The order of rows is that of the ranges and
 * of the rows within them. The same path must give the same rows in the same order whenever it is opened, in the same
 * ranges. With data.streaming one thread opens, reads and closes the source while another one trains.
 *
 * Places: a row is a map with its place (nrl_node_set_place): the path, and the line on which the row begins, counted
 * from 1, or the number of the row if the file has no lines. Lines never decrease. Errors about a row name its place.
 *
 * Ownership: `options` and the source live until close; texts of info belong to the instance. Errors: NRL_ERR_CONFIG
 * for an unsuitable path (the text names it), NRL_ERR_DATA for content, as "PATH:LINE: ..."; NRL_ERR_IO,
 * NRL_ERR_MEMORY. Rows before a faulty row are returned before its error.
 */
#ifndef NRL_DATASET_H
#define NRL_DATASET_H
#include <nrl/plugin.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Bits of nrl_dataset_source.flags. */
enum { NRL_DATASET_PIPE = 1 }; /* the path may be a pipe: it is opened and read once, from start to end */

enum { NRL_DATASET_POSITION = 64 };

/* The source to open. */
typedef struct {
    uint32_t size; /* of this struct */
    uint32_t flags;
    const char *path; /* as in the config: a file, or anything else that the plugin understands. A pattern such as
                         "*.tsv", or a directory that no plugin claims (NRL_PROBE_PERHAPS), is replaced by its files */
} nrl_dataset_source;

typedef struct {
    uint32_t size; /* of this struct, set by the caller, who sets the numbers to -1 and hash to NULL */
    uint32_t reserved;
    int64_t rows;  /* number of rows; -1: unknown before they are read */
    int64_t bytes; /* size of the input, for reports; -1: unknown, or the size of the file if hash is NULL */
    /* A hash of everything that determines the rows, at most 64 hex digits. With the plugin's name, version and options
     * it names token caches, and checkpoints compare it. NULL: the path is a regular file whose bytes determine the
     * rows; the core hashes the file and checks that it does not change. */
    const char *hash;
} nrl_dataset_info;

typedef struct {
    nrl_plugin plugin;
    /* [main] how likely (NRL_PROBE_*) this plugin can read source->path. Must be cheap: checks the name, and at most
     * the first bytes. If the path does not exist, the name alone decides. */
    int32_t (*probe)(const nrl_dataset_source *source);
    /* [main] opens the source and reads what info needs; must be cheap, because it is called even if the rows are
     * cached */
    nrl_status (*open)(const void *options, const nrl_dataset_source *source, void **self);
    void (*close)(void *self);                              /* [main] after the last range was closed */
    void (*info)(const void *self, nrl_dataset_info *info); /* [main] */
    /* [io] the next range; *range = NULL after the last one. A range may have no rows. */
    nrl_status (*next_range)(void *self, void **range);
    /* [any] the next row of a range, a map allocated in `memory`; *row = NULL after the last one.
     * Several ranges are read at the same time, each by one thread, also while next_range runs. */
    nrl_status (*next_row)(void *range, nrl_arena *memory, const nrl_node **row);
    void (*close_range)(void *range); /* [any] may be called before the last row */

    /* For `nrl plugins test`, which reads the files that it has written; both or none. */
    const char *extension; /* "tsv": the ending of file names, without the dot */
    /* [main] writes a list of rows, maps of texts with the same keys, to a new file */
    nrl_status (*write)(const void *options, const char *path, const nrl_node *rows);

    /* For a resumed run with data.streaming; optional, both or none. Without them, or if `tell` returns false, the
     * ranges before the position are read again. */
    /* [io] between two calls of next_range: writes where the next range begins, as a text of less than
     * NRL_DATASET_POSITION bytes. False: reading cannot start there, for example in a compressed file or a pipe */
    bool (*tell)(const void *self, char out[NRL_DATASET_POSITION]);
    /* [io] between two calls of next_range, after the first one: the next one returns the range that began where `tell`
     * was called, on the same source or on another one of the same path. NRL_ERR_DATA: the text is not from `tell` */
    nrl_status (*seek)(void *self, const char *position);
} nrl_dataset;

#ifdef __cplusplus
}
#endif
#endif
