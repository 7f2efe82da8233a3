/*
 * fuzz_safetensors.c - any bytes as a weight file: an error, or tensors that lie inside it.
 */
#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    arena a = {0};
    safetensors f;
    if (safetensors_parse(&a, "model.safetensors", bytes, size, &f) == NRL_OK)
        for (int64_t i = 0; i < f.n; i++) {
            const safetensor *t = &f.tensors[i];
            NRL_ASSERT(t->data - bytes, >=, 8);
            NRL_ASSERT((size_t)(t->data - bytes) + t->size_bytes, <=, size);
            NRL_ASSERT(t->numel, >=, 0);
        }
    arena_free(&a);
    return 0;
}
