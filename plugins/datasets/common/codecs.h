/*
 * codecs.h - the decoders of file_stream.c: one table each for gzip, zstd and xz.
 */
#ifndef CODECS_H
#define CODECS_H
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const unsigned char *in; /* advanced by what was consumed */
    size_t in_left;
    unsigned char *out; /* advanced by what was written */
    size_t out_left;
    bool member_end; /* set when a compressed member is complete and all of its bytes are written */
} codec_io;

typedef struct {
    const char *name, *magic;
    size_t magic_size;
    void *(*open)(void);                             /* NULL: no memory. Without open: not part of this build */
    const char *(*decode)(void *self, codec_io *io); /* NULL, or why the data cannot be decoded */
    void (*reset)(void *self);                       /* before the next member */
    void (*close)(void *self);
} codec;

/* The codec of a file that begins with these bytes, or NULL. */
const codec *codec_find(const unsigned char *bytes, size_t size);

#endif
