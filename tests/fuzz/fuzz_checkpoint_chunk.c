/*
 * fuzz_checkpoint_chunk.c - any bytes as a stored chunk with a valid hash: an error, or exactly the
 * requested elements. The first bytes are the width, the rotation, the number of elements and the
 * sizes of the planes.
 */
#include "base/codec.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static codec *c;
    uint32_t sizes[CODEC_MAX_WIDTH];
    if (!c && codec_create(&c) != NRL_OK) return 0;
    if (size < 2) return 0;
    int width = 1 << bytes[0] % 4, rotate = width > 1 && bytes[0] & 4;
    size_t n = 1 + bytes[1] * (size_t)bytes[1], left = size - 2, used = 0;
    if (n * (size_t)width > CODEC_CHUNK) n = CODEC_CHUNK / (size_t)width;
    for (int p = 0; p < width; p++) {
        size_t plane = left / (size_t)width < n ? left / (size_t)width : n;
        if (!plane) return 0;
        sizes[p] = (uint32_t)plane;
        used += plane;
    }
    unsigned char *from = malloc(used), *to = malloc(n * (size_t)width); /* exact: a sanitizer sees more */
    for (size_t i = 0; i < used; i++)
        from[i] = bytes[2 + i];
    codec_decode(c, from, sizes, n, width, rotate, to);
    free(from);
    free(to);
    return 0;
}
