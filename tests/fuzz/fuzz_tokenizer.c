/*
 * fuzz_tokenizer.c - a tokenizer file from hostile bytes: it is refused or it works. What opens
 * must encode and decode texts cut from the same bytes without a fault, and give its own ids back.
 */
#include "text/chat.h"
#include "text/tokenizer.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const tokenizer *tok, const char *text, size_t size)
{
    tokenizer_scratch *s = tokenizer_scratch_create();
    tokenizer_ids ids = {.want_starts = size & 1};
    char *back = NULL;
    for (unsigned flags = 0; flags < 4; flags++)
        if (tokenizer_encode(tok, s, text, size, flags, &ids) != NRL_OK) break;
    for (size_t i = 0; i < ids.n; i++) {
        if (!tokenizer_token_text(tok, ids.ids[i])) abort();
        if (ids.want_starts && ids.starts[i] > size) abort();
    }
    if (tokenizer_decode(tok, ids.ids, ids.n, size & 2, &back, NULL) != NRL_OK) abort();
    free(back);
    size_t room = tokenizer_stream_room(tok);
    char *buffer = malloc(room);
    tokenizer_stream stream = {0};
    for (size_t i = 0; i < ids.n; i++)
        if (tokenizer_decode_next(tok, &stream, ids.ids[i], false, buffer, room) >= room) abort();
    free(buffer);
    tokenizer_ids_free(&ids);
    tokenizer_scratch_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tokenizer *tok;
    if (tokenizer_open_memory("fuzz", (const char *)data, size, &tok) != NRL_OK) return 0;
    size_t n = size < 600 ? size : 600;
    use(tok, (const char *)data + size - n, n);
    use(tok, "Hello  world's 123 \xe2\x96\x81\xff e\xcc\x81\n\n<s>", 32);
    tokenizer_close(tok);
    return 0;
}
