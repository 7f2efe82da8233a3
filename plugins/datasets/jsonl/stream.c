/*
 * stream.c - reading and unpacking a data file.
 */
#include "stream.h"
#include "base/arena.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { RAW_SIZE = 1 << 16, GZIP_WINDOW = 15 + 16 };

struct jsonl_stream {
    char *name;
    int fd; /* -1: memory */
    const unsigned char *memory;
    size_t memory_left;
    bool started, gzip, inside_member, raw_end;
    int64_t raw_bytes, text_bytes; /* read from the file; given to the caller */
    z_stream z;                    /* next_in/avail_in also serve plain files */
    unsigned char raw[RAW_SIZE];
};

static nrl_status read_some(int fd, const char *name, void *out, size_t room, size_t *n)
{
    ssize_t got;
    do
        got = read(fd, out, room);
    while (got < 0 && errno == EINTR);
    if (got < 0) return nrl_fail(NRL_ERR_IO, "%s: %s", name, strerror(errno));
    *n = (size_t)got;
    return NRL_OK;
}

static jsonl_stream *stream_new(const char *name, int fd)
{
    jsonl_stream *s = mem_alloc(sizeof *s);
    s->name = mem_strdup(name);
    s->fd = fd;
    return s;
}

nrl_status jsonl_stream_open(const char *path, jsonl_stream **out)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not wait */
    if (fd < 0)
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO, "%s: %s", path,
                        strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return nrl_fail(NRL_ERR_CONFIG, "%s: not a regular file", path);
    }
    *out = stream_new(path, fd);
    return NRL_OK;
}

void jsonl_stream_open_memory(const char *name, const void *bytes, size_t size, jsonl_stream **out)
{
    *out = stream_new(name, -1);
    (*out)->memory = bytes;
    (*out)->memory_left = size;
}

void jsonl_stream_close(jsonl_stream *s)
{
    if (!s) return;
    if (s->gzip) inflateEnd(&s->z);
    if (s->fd >= 0) close(s->fd);
    free(s->name);
    free(s);
}

/* More bytes of the file behind next_in, where none are left. */
static nrl_status fill_raw(jsonl_stream *s)
{
    size_t n = s->memory_left < RAW_SIZE ? s->memory_left : RAW_SIZE;
    if (s->z.avail_in || s->raw_end) return NRL_OK;
    if (s->fd >= 0) {
        NRL_TRY(read_some(s->fd, s->name, s->raw, RAW_SIZE, &n));
    } else if (n) {
        memcpy(s->raw, s->memory, n);
        s->memory += n;
        s->memory_left -= n;
    }
    s->raw_end = n == 0;
    s->raw_bytes += (int64_t)n;
    s->z.next_in = s->raw;
    s->z.avail_in = (uInt)n;
    return NRL_OK;
}

static nrl_status start(jsonl_stream *s)
{
    s->started = true;
    NRL_TRY(fill_raw(s));
    if (s->z.avail_in < 2 || s->raw[0] != 0x1F || s->raw[1] != 0x8B) return NRL_OK;
    if (inflateInit2(&s->z, GZIP_WINDOW) != Z_OK)
        return nrl_fail(NRL_ERR_MEMORY, "%s: no memory to unpack gzip", s->name);
    s->gzip = s->inside_member = true;
    return NRL_OK;
}

static int64_t raw_offset(const jsonl_stream *s)
{
    return s->raw_bytes - s->z.avail_in;
}

static nrl_status fail_cut(const jsonl_stream *s)
{
    return nrl_fail(NRL_ERR_DATA,
                    "%s: the gzip data ends early, at byte %" PRId64 " of the file (%" PRId64
                    " bytes of text so far): the file is cut off",
                    s->name, raw_offset(s), s->text_bytes);
}

/* After a member: another one, zero padding, or the end of the file. */
static nrl_status next_member(jsonl_stream *s, bool *end)
{
    do {
        NRL_TRY(fill_raw(s));
        while (s->z.avail_in && *s->z.next_in == 0)
            s->z.next_in++, s->z.avail_in--;
    } while (!s->z.avail_in && !s->raw_end);
    *end = s->z.avail_in == 0;
    if (*end) return NRL_OK;
    if (inflateReset(&s->z) != Z_OK) return nrl_fail(NRL_ERR_BUG, "%s: inflateReset", s->name);
    s->inside_member = true;
    return NRL_OK;
}

static nrl_status read_gzip(jsonl_stream *s, void *out, size_t room, size_t *n)
{
    bool end = false;
    s->z.next_out = out;
    s->z.avail_out = (uInt)(room < INT32_MAX ? room : INT32_MAX);
    const uInt wanted = s->z.avail_out;
    while (s->z.avail_out == wanted) {
        if (!s->inside_member) NRL_TRY(next_member(s, &end));
        if (end) break;
        NRL_TRY(fill_raw(s));
        if (s->raw_end) return fail_cut(s);
        int r = inflate(&s->z, Z_NO_FLUSH);
        if (r == Z_STREAM_END) s->inside_member = false;
        if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
            return nrl_fail(NRL_ERR_DATA, "%s: damaged gzip data near byte %" PRId64 ": %s", s->name, raw_offset(s),
                            s->z.msg ? s->z.msg : "unknown fault");
    }
    *n = wanted - s->z.avail_out;
    return NRL_OK;
}

static nrl_status read_plain(jsonl_stream *s, void *out, size_t room, size_t *n)
{
    NRL_TRY(fill_raw(s));
    *n = room < s->z.avail_in ? room : s->z.avail_in;
    if (*n) memcpy(out, s->z.next_in, *n);
    s->z.next_in += *n;
    s->z.avail_in -= (uInt)*n;
    return NRL_OK;
}

nrl_status jsonl_stream_read(jsonl_stream *s, void *out, size_t room, size_t *n)
{
    *n = 0;
    if (!s->started) NRL_TRY(start(s));
    NRL_TRY(s->gzip ? read_gzip(s, out, room, n) : read_plain(s, out, room, n));
    s->text_bytes += (int64_t)*n;
    return NRL_OK;
}
