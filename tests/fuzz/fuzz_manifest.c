/*
 * fuzz_manifest.c - any text as a checkpoint's manifest, past its hash: an error, or tensors that
 * lie inside the file and have as many chunks as bytes.
 */
#include "checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    arena a = {0};
    manifest m;
    if (manifest_parse(&a, "manifest.json", (const char *)bytes, size, &m) == NRL_OK)
        for (size_t i = 0; i < m.n_entries; i++) {
            const manifest_entry *e = &m.entries[i];
            int64_t expected;
            NRL_ASSERT(manifest_tensor_size(&e->tensor, &expected), ==, true);
            NRL_ASSERT(e->size, ==, expected);
            NRL_ASSERT(e->offset, >=, 0);
            NRL_ASSERT(e->size, <=, m.data_size - e->offset);
            NRL_ASSERT((e->n_chunks - 1) * CHECKPOINT_CHUNK, <, e->size> 0 ? e->size : 1);
            for (int64_t k = 0; k < e->n_chunks; k++)
                NRL_ASSERT(e->chunks[k] == e->chunks[k], ==, true);
        }
    arena_free(&a);
    return 0;
}
