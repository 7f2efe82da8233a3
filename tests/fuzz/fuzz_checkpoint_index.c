/*
 * fuzz_checkpoint_index.c - any text as the index of a rank's file of a MiB: an error, or entries whose
 * chunks lie inside the file, have as many elements as their pieces, and fit a chunk's memory.
 */
#include "checkpoint/index.h"

enum { FILE_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const index_entry *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_chunks; i++) {
        NRL_ASSERT(e->chunks[i].offset, >=, FORMAT_HEADER);
        NRL_ASSERT(e->chunks[i].offset + index_chunk_stored(e, i), <=, FILE_BYTES);
        NRL_ASSERT(index_chunk_stored(e, i), <=, CODEC_CHUNK);
        n += index_chunk_numel(e, i);
    }
    NRL_ASSERT(n, ==, layout_numel(&e->piece));
    NRL_ASSERT(piece_is_sound(&e->piece), ==, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    arena a = {0};
    file_index index;
    if (index_parse(&a, "rank-00000.nrlc", (const char *)bytes, size, FILE_BYTES, &index) == NRL_OK)
        for (size_t i = 0; i < index.n_entries; i++) check(&index.entries[i]);
    arena_free(&a);
    return 0;
}
