/*
 * fuzz_checkpoint_index.c - any text as the index of a rank's file: an error, or entries whose
 * chunks lie inside the file, have as many elements as their shards, and fit the memory of a chunk.
 */
#include "checkpoint/index.h"

static const int64_t ends[] = {70, 76, 1 << 20}; /* where the seeds' chunks end, and one more */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(const index_entry *e, int64_t end)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_chunks; i++) {
        NRL_ASSERT(e->chunks[i].offset, >=, FORMAT_HEADER);
        NRL_ASSERT(e->chunks[i].offset + index_chunk_stored(e, i), <=, end);
        NRL_ASSERT(index_chunk_stored(e, i), <=, CODEC_CHUNK);
        n += index_chunk_numel(e, i);
    }
    NRL_ASSERT(n, ==, piece_numel(&e->piece));
    NRL_ASSERT(piece_is_sound(&e->piece), ==, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        arena a = {0};
        file_index index;
        if (index_parse(&a, "rank-00000.nrlc", (const char *)bytes, size, ends[k], &index) == NRL_OK)
            for (size_t i = 0; i < index.n_entries; i++)
                check(&index.entries[i], ends[k]);
        arena_free(&a);
    }
    return 0;
}
