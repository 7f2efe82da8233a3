/*
 * text_window.h - the text of a data file, piece by piece: what was read and not yet handed out lies in one buffer, so
 * a reader finds where its rows end before it takes them. Used by the datasets csv and txt, by the thread that takes
 * ranges.
 */
#ifndef TEXT_WINDOW_H
#define TEXT_WINDOW_H
#include "file_stream.h"
#include <nrl/dataset.h>
#include <stdint.h>

/* A range holds about as much text. A row may have as much; a longer one is an error, not a reason to grow. */
enum { TEXT_RANGE = 1 << 20, TEXT_MAX_ROW = 16 << 20 };

typedef struct {
    file_stream *stream;
    char *path;
    char *text; /* [size] read and not taken; a byte-order mark is left out */
    size_t size, room;
    bool begun, end; /* end: the stream has no more */
    int64_t line;    /* of text[0], from 1 */
} text_window;

/* The errors of file_stream_open. The first text_window_fill reads the file. */
nrl_status text_window_open(const char *path, bool pipe, text_window *w);
void text_window_close(text_window *w);
/* Reads until there are `size` bytes, or the end. `expected` is for files of another format: "a CSV table in UTF-8". */
nrl_status text_window_fill(text_window *w, size_t size, const char *expected);
/* A copy of the first `size` bytes, malloc'd and NUL-ended. The first `done` of them leave the window, and its line
 * moves on; the others are also the start of the next copy. */
nrl_status text_window_take(text_window *w, size_t size, size_t done, char **text);
/* nrl_dataset.tell and seek, of text[0]. */
bool text_window_tell(const text_window *w, char out[NRL_DATASET_POSITION]);
nrl_status text_window_seek(text_window *w, const char *position);

#endif
