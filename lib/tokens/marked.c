/*
 * marked.c - see marked.h.
 */
#include "tokens/marked.h"
#include <inttypes.h>
#include <stdlib.h>

static const char open_mark[] = "\xE2\x9F\xA6", close_mark[] = "\xE2\x9F\xA7";

typedef struct {
    const tokenizer *t;
    nrl_decode_stream stream;
    char *piece;
    size_t room;
    buffer *out;
} writer;

static void write_token(writer *w, int32_t id, bool is_first)
{
    if (!w->t) {
        buffer_print(w->out, "%s%" PRId32, is_first ? "" : " ", id);
        return;
    }
    size_t n = w->t->open.table->decode_next(w->t->open.self, &w->stream, id, false, w->piece, w->room);
    buffer_add(w->out, w->piece, n);
}

/* Flushes an incomplete character before a bracket, so that brackets stand between complete characters. */
static void write_mark(writer *w, const char *mark)
{
    if (w->t) write_token(w, NRL_TOKEN_NONE, false);
    buffer_puts(w->out, mark);
}

nrl_status marked_write(buffer *out, const tokenizer *t, const int32_t *tokens, const uint8_t *trained, int64_t n)
{
    writer w = {.t = t, .out = out};
    bool inside = false;
    if (t) {
        w.room = t->info.stream_room;
        w.piece = mem_try(w.room, "a sample");
        if (!w.piece) return NRL_ERR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        if ((trained[i] != 0) != inside) write_mark(&w, inside ? close_mark : open_mark);
        inside = trained[i] != 0;
        write_token(&w, tokens[i], !i);
    }
    if (t) write_token(&w, NRL_TOKEN_NONE, false);
    if (inside) buffer_puts(out, close_mark);
    free(w.piece);
    return NRL_OK;
}
