/*
 * stream.h - data.streaming: data that is read during training. The core calls it by stream_table.
 */
#ifndef INFERENCE_STREAM_H
#define INFERENCE_STREAM_H
#include "run/open/session.h"

/* Data that is too large to index, or that comes from a pipe: windows of `window` examples, each a data set in memory.
 * While the run trains on one window, a thread reads and tokenizes the next one.
 *
 * A pass takes the rows of all entries in their order. The windows of a pass follow each other, and the last one is
 * smaller; no window has examples of two passes. With `shares` each window has examples of each entry, in proportion to
 * the weights, and each entry begins again where it ends.
 *
 * The examples of window k depend only on the data and on these options. A window is planned as the epoch with its
 * number: if the data fits into one window, the batches are those of an indexed data set. */
typedef struct {
    int64_t window; /* examples */
    int64_t least;  /* a last window with fewer examples is omitted, unless it is the only one of the pass */
    bool shares;
} data_stream_options;

typedef struct {
    dataset *set;    /* NULL: the pipe has ended */
    int64_t number;  /* windows before it */
    int64_t passes;  /* before it; with `shares` those of the entry with the fewest */
    int64_t done, n; /* examples of this pass before the window, and in it */
    int64_t all;     /* of a pass; 0 = not known, before the last window of the first pass, and with `shares` */
    nrl_node *state; /* where it begins, for data_stream_restart */
    arena memory;    /* of state */
} data_window;

typedef struct data_stream data_stream;
/* Reads no row yet. `options` is copied; what it points to outlives the stream. NRL_ERR_CONFIG also for options that
 * need all rows at once. [main] */
nrl_status data_stream_open(const dataset_options *options, const data_stream_options *stream, data_stream **out);
void data_stream_close(data_stream *s); /* NULL is allowed; windows stay */
/* Starts to make the next window. [main] */
void data_stream_prefetch(data_stream *s);
/* Waits for the next window, which the caller closes. Errors of rows, as of dataset_open; a later call repeats them.
 * NRL_ERR_STOPPED: a signal came while it waited for the first window, or for a pipe. [main] */
nrl_status data_stream_next(data_stream *s, data_window *out);
void data_window_close(data_window *w);
/* Goes back or forward to the window that had this state; data_stream_next returns it. *again: a file that has to be
 * read again from its start, because reading cannot begin in the middle; or NULL. NRL_ERR_CORRUPT. [main] */
nrl_status data_stream_restart(data_stream *s, const nrl_node *state, const char **again);

/* ---- of a run ---- */
extern const struct nrl_run_streams stream_table; /* nrl_run_services.streams */
/* Continues in the window that a checkpoint of the run contains, if there is one. */
nrl_status stream_resumed(nrl_run *of, const nrl_node *node);

#endif
