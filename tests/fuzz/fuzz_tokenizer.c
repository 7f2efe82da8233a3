/*
 * fuzz_tokenizer.c - a tokenizer file of hostile bytes: it is refused or it works. A tokenizer that
 * opens must encode and decode texts from the same bytes without faults, and return its own ids.
 */
#include "bpe.h"
#include "parts.h"
#include "tokens/written.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const bpe_tokenizer *tok, const char *text, size_t size)
{
    bpe_scratch *s = bpe_scratch_create();
    nrl_token_ids ids = {.want_starts = size & 1};
    for (unsigned flags = 0; flags < 4; flags++)
        if (bpe_encode(tok, s, text, size, flags, &ids) != NRL_OK) break;
    for (size_t i = 0; i < ids.n; i++) {
        if (!vocab_text(&tok->words, ids.ids[i], NULL)) abort();
        if (ids.want_starts && ids.starts[i] > size) abort();
    }
    nrl_text back = {0};
    if (bpe_decode(tok, ids.ids, ids.n, size & 2, &back) != NRL_OK) abort();
    buffer_free(&back.b);
    size_t room = bpe_stream_room(tok);
    char *buffer = malloc(room);
    bpe_stream stream = {0};
    for (size_t i = 0; i < ids.n; i++)
        if (bpe_decode_next(tok, &stream, ids.ids[i], false, buffer, room) >= room) abort();
    free(buffer);
    nrl_token_ids_free(&ids);
    bpe_scratch_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bpe_tokenizer *tok;
    if (bpe_open_memory("fuzz", (const char *)data, size, &tok) != NRL_OK) return 0;
    size_t n = size < 600 ? size : 600;
    use(tok, (const char *)data + size - n, n);
    use(tok, "Hello  world's 123 \xe2\x96\x81\xff e\xcc\x81\n\n<s>", 32);
    bpe_close(tok);
    return 0;
}
