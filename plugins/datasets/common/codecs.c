/*
 * codecs.c - see codecs.h. Each decoder refuses data that asks for more memory than the usual settings of its
 * compressor do.
 */
#include "codecs.h"
#include "base/arena.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>
#ifdef NRL_HAVE_LZMA
#include <lzma.h>
#endif

/* ---- gzip: at most 32 KiB of history ---- */

enum { GZIP_WINDOW = 15 + 16 };

static void *gzip_open(void)
{
    z_stream *z = mem_alloc(sizeof *z);
    if (inflateInit2(z, GZIP_WINDOW) == Z_OK) return z;
    free(z);
    return NULL;
}

static const char *gzip_decode(void *self, codec_io *io)
{
    z_stream *z = self;
    const uInt in = (uInt)(io->in_left < INT32_MAX ? io->in_left : INT32_MAX);
    const uInt out = (uInt)(io->out_left < INT32_MAX ? io->out_left : INT32_MAX);
    z->next_in = (unsigned char *)(uintptr_t)io->in;
    z->avail_in = in;
    z->next_out = io->out;
    z->avail_out = out;
    int r = inflate(z, Z_NO_FLUSH);
    io->in += in - z->avail_in;
    io->in_left -= in - z->avail_in;
    io->out += out - z->avail_out;
    io->out_left -= out - z->avail_out;
    io->member_end = r == Z_STREAM_END;
    if (r == Z_OK || r == Z_STREAM_END || r == Z_BUF_ERROR) return NULL;
    return z->msg ? z->msg : "unknown fault";
}

static void gzip_reset(void *self)
{
    inflateReset(self);
}

static void gzip_close(void *self)
{
    inflateEnd(self);
    free(self);
}

/* ---- zstd: at most 128 MiB of history, the library's default for streams (zstd --long needs --long=27 or less) ----
 */

static void *zstd_open(void)
{
    return ZSTD_createDStream();
}

static const char *zstd_decode(void *self, codec_io *io)
{
    ZSTD_inBuffer in = {io->in, io->in_left, 0};
    ZSTD_outBuffer out = {io->out, io->out_left, 0};
    size_t r = ZSTD_decompressStream(self, &out, &in);
    io->in += in.pos;
    io->in_left -= in.pos;
    io->out += out.pos;
    io->out_left -= out.pos;
    io->member_end = r == 0;
    if (!ZSTD_isError(r)) return NULL;
    if (ZSTD_getErrorCode(r) == ZSTD_error_frameParameter_windowTooLarge)
        return "its window is larger than 128 MiB; expected the default window of zstd";
    return ZSTD_getErrorName(r);
}

static void zstd_reset(void *self)
{
    ZSTD_DCtx_reset(self, ZSTD_reset_session_only);
}

static void zstd_close(void *self)
{
    ZSTD_freeDStream(self);
}

/* ---- xz: at most 128 MiB; level 9 needs 65 ---- */

#ifdef NRL_HAVE_LZMA
enum { XZ_MEMORY = 128 << 20 };

static void xz_reset(void *self)
{
    if (lzma_stream_decoder(self, XZ_MEMORY, 0) != LZMA_OK) lzma_end(self); /* lzma_code then fails */
}

static void *xz_open(void)
{
    lzma_stream *z = mem_alloc(sizeof *z);
    *z = (lzma_stream)LZMA_STREAM_INIT;
    if (lzma_stream_decoder(z, XZ_MEMORY, 0) == LZMA_OK) return z;
    free(z);
    return NULL;
}

static const char *xz_decode(void *self, codec_io *io)
{
    lzma_stream *z = self;
    z->next_in = io->in;
    z->avail_in = io->in_left;
    z->next_out = io->out;
    z->avail_out = io->out_left;
    lzma_ret r = lzma_code(z, LZMA_RUN);
    io->in = z->next_in;
    io->in_left = z->avail_in;
    io->out = z->next_out;
    io->out_left = z->avail_out;
    io->member_end = r == LZMA_STREAM_END;
    switch (r) {
    case LZMA_OK:
    case LZMA_STREAM_END:
    case LZMA_BUF_ERROR:
        return NULL;
    case LZMA_MEMLIMIT_ERROR:
        return "it needs more than 128 MiB of memory; expected a preset of xz";
    case LZMA_MEM_ERROR:
        return "out of memory";
    case LZMA_FORMAT_ERROR:
        return "unexpected bytes between two streams";
    case LZMA_OPTIONS_ERROR:
        return "it uses options that liblzma does not know";
    default:
        return "the data is corrupt";
    }
}

static void xz_close(void *self)
{
    lzma_end(self);
    free(self);
}
#endif

/* ---- the table ---- */

static const codec codecs[] = {
    {"gzip", "\x1F\x8B", 2, gzip_open, gzip_decode, gzip_reset, gzip_close},
    {"zstd", "\x28\xB5\x2F\xFD", 4, zstd_open, zstd_decode, zstd_reset, zstd_close},
#ifdef NRL_HAVE_LZMA
    {"xz",
     "\xFD"
     "7zXZ\0",
     6, xz_open, xz_decode, xz_reset, xz_close},
#else
    {.name = "xz",
     .magic = "\xFD"
              "7zXZ\0",
     .magic_size = 6},
#endif
};

const codec *codec_find(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (size >= codecs[i].magic_size && !memcmp(bytes, codecs[i].magic, codecs[i].magic_size)) return &codecs[i];
    return NULL;
}
