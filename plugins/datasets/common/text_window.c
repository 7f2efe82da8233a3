/*
 * text_window.c - see text_window.h.
 */
#include "text_window.h"
#include "base/arena.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_SIZE = 16 };

nrl_status text_window_open(const char *path, bool pipe, text_window *w)
{
    *w = (text_window){.line = 1};
    NRL_TRY(file_stream_open(path, pipe, &w->stream));
    w->path = mem_strdup(path);
    return NRL_OK;
}

void text_window_close(text_window *w)
{
    file_stream_close(w->stream);
    free(w->path);
    free(w->text);
}

static nrl_status read_until(text_window *w, size_t size)
{
    while (w->size < size && !w->end) {
        if (w->room < size) {
            char *more = mem_try_grow(w->text, size, w->path);
            if (!more) return NRL_ERR_MEMORY;
            w->text = more;
            w->room = size;
        }
        size_t n;
        NRL_TRY(file_stream_read(w->stream, w->text + w->size, w->room - w->size, &n));
        w->size += n;
        w->end = n == 0;
    }
    return NRL_OK;
}

nrl_status text_window_fill(text_window *w, size_t size, const char *expected)
{
    if (!w->begun) {
        NRL_TRY(read_until(w, MAGIC_SIZE));
        NRL_TRY(file_check_is_text(w->path, w->text, w->size, expected));
        if (w->size >= 3 && !memcmp(w->text, "\xEF\xBB\xBF", 3)) {
            w->size -= 3;
            memmove(w->text, w->text + 3, w->size);
        }
        w->begun = true;
    }
    return read_until(w, size);
}

nrl_status text_window_take(text_window *w, size_t size, size_t done, char **text)
{
    char *taken = mem_try(size + 1, w->path);
    if (!taken) return NRL_ERR_MEMORY;
    if (size) memcpy(taken, w->text, size);
    for (const char *c = taken; (c = memchr(c, '\n', (size_t)(taken + done - c))); c++)
        w->line++;
    w->size -= done;
    if (w->size) memmove(w->text, w->text + done, w->size);
    *text = taken;
    return NRL_OK;
}

bool text_window_tell(const text_window *w, char out[NRL_DATASET_POSITION])
{
    const int64_t read = file_stream_tell(w->stream);
    if (read >= 0) snprintf(out, NRL_DATASET_POSITION, "%" PRId64 " %" PRId64, read - (int64_t)w->size, w->line);
    return read >= 0;
}

nrl_status text_window_seek(text_window *w, const char *position)
{
    int64_t offset, line;
    if (sscanf(position, "%" SCNd64 " %" SCNd64, &offset, &line) != 2 || offset < 0 || line < 1)
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is not a position of a reader", w->path, position);
    w->size = 0;
    w->end = false;
    w->line = line;
    return file_stream_seek(w->stream, offset);
}
