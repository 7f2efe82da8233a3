/*
 * fuzz_manifest.c - any text as a checkpoint's manifest with a valid hash: an error, or one file
 * for each rank whose index lies inside it.
 */
#include "checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    arena a = {0};
    manifest m;
    if (manifest_parse(&a, "manifest.json", (const char *)bytes, size, &m) == NRL_OK)
        for (int32_t i = 0; i < m.world; i++) {
            NRL_ASSERT(m.files[i].index, >=, FORMAT_HEADER);
            NRL_ASSERT(m.files[i].index, <=, m.files[i].size);
            NRL_ASSERT(m.files[i].size - m.files[i].index, <=, FORMAT_MAX_INDEX);
        }
    arena_free(&a);
    return 0;
}
