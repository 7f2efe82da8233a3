/*
 * sample_text.c - prints a sample, with trained ranges between white square brackets.
 */
#include "base/buffer.h"
#include "data/data.h"
#include <inttypes.h>
#include <stdlib.h>

static const char open_mark[] = "\xE2\x9F\xA6", close_mark[] = "\xE2\x9F\xA7";

typedef struct {
    const tokenizer *t; /* NULL: ids */
    nrl_decode_stream stream;
    char *piece;
    size_t room;
    buffer out;
} writer;

static void write_token(writer *w, int32_t id)
{
    if (!w->t) {
        buffer_print(&w->out, "%s%" PRId32, w->out.size ? " " : "", id);
        return;
    }
    size_t n = w->t->open.table->decode_next(w->t->open.self, &w->stream, id, false, w->piece, w->room);
    buffer_add(&w->out, w->piece, n);
}

/* Flushes an incomplete character before a bracket, so that brackets stand between complete characters. */
static void write_mark(writer *w, const char *mark)
{
    if (w->t) write_token(w, NRL_TOKEN_NONE);
    buffer_puts(&w->out, mark);
}

static void write_segment(writer *w, const dataset *d, int64_t example, int side)
{
    const int32_t *tokens;
    const uint8_t *trained;
    int64_t n = dataset_segment(d, example, side, &tokens, &trained);
    bool inside = false;
    w->stream = (nrl_decode_stream){0};
    for (int64_t i = 0; i < n; i++) {
        if ((trained[i] != 0) != inside) write_mark(w, inside ? close_mark : open_mark);
        inside = trained[i] != 0;
        write_token(w, tokens[i]);
    }
    if (w->t) write_token(w, NRL_TOKEN_NONE);
    if (inside) buffer_puts(&w->out, close_mark);
}

char *dataset_sample_text(const dataset *d, int64_t i, const tokenizer *t)
{
    static const char *const names[][2] = {{"sample: ", "\nmismatched: "}, {"chosen: ", "\nrejected: "}};
    writer w = {.t = t, .out.what = "a sample"};
    if (t) {
        w.room = t->info.stream_room;
        w.piece = mem_try(w.room, "a sample");
        if (!w.piece) return NULL;
    }
    for (int side = 0; side < dataset_info(d)->n_sides; side++) {
        if (dataset_info(d)->n_sides == 2) buffer_puts(&w.out, names[dataset_info(d)->has_pairs][side]);
        write_segment(&w, d, i, side);
    }
    free(w.piece);
    return buffer_take(&w.out);
}
