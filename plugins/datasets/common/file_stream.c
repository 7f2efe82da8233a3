/*
 * file_stream.c - see file_stream.h: reads the file in pieces and passes them through the codec of its first bytes.
 */
#include "file_stream.h"
#include "base/arena.h"
#include "codecs.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RAW_SIZE = 1 << 16, SILENT_WAIT = 2000 /* ms */ };

struct file_stream {
    char *name;
    int fd; /* -1: memory */
    const unsigned char *memory;
    size_t memory_left;
    bool is_pipe, started, inside_member, raw_end;
    int64_t raw_bytes, text_bytes; /* read from the file; given to the caller */
    const codec *codec;            /* NULL: plain */
    void *decoder;
    codec_io io; /* in: what was read from the file and not consumed */
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

static file_stream *stream_new(const char *name, int fd)
{
    file_stream *s = mem_alloc(sizeof *s);
    s->name = mem_strdup(name);
    s->fd = fd;
    return s;
}

nrl_status file_stream_open(const char *path, bool pipe, file_stream **out)
{
    struct stat st = {0};
    /* A pipe without a writer must not wait here; and one that is opened and closed is lost. */
    const bool refused = !stat(path, &st) && (S_ISDIR(st.st_mode) || (!S_ISREG(st.st_mode) && !pipe));
    int fd = refused ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const char *slash = strrchr(path, '/');
    if (fd < 0 && !refused && errno == ENOENT && !strcmp(slash ? slash + 1 : path, "-"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: standard input is only supported by `nrl run` and `nrl check` of a YAML file, as the "
                        "only source of data.train\n"
                        "hint: COMMAND >rows.jsonl, and rows.jsonl instead of -",
                        path);
    if (fd < 0 && !refused)
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO, "%s: %s", path,
                        strerror(errno));
    if (refused)
        return nrl_fail(NRL_ERR_CONFIG, "%s: %s, expected a file of rows%s", path,
                        S_ISDIR(st.st_mode) ? "a directory" : "not a regular file",
                        S_ISFIFO(st.st_mode)
                            ? "\n"
                              "hint: data are read when the run starts and when it is resumed; write the output of the "
                              "pipe to a file first, or read it once with data.streaming: true"
                            : "");
    fcntl(fd, F_SETFL, 0);
    *out = stream_new(path, fd);
    (*out)->is_pipe = !S_ISREG(st.st_mode);
    return NRL_OK;
}

void file_stream_open_memory(const char *name, const void *bytes, size_t size, file_stream **out)
{
    *out = stream_new(name, -1);
    (*out)->memory = bytes;
    (*out)->memory_left = size;
}

void file_stream_close(file_stream *s)
{
    if (!s) return;
    if (s->decoder) s->codec->close(s->decoder);
    if (s->fd >= 0) close(s->fd);
    free(s->name);
    free(s);
}

/* For the first bytes of a pipe. The thread may be cancelled in poll, but not while it holds the lock of a warning. */
static void wait_for_pipe(const file_stream *s)
{
    struct pollfd writer = {.fd = s->fd, .events = POLLIN};
    int ready, was;
    while ((ready = poll(&writer, 1, SILENT_WAIT)) < 0 && errno == EINTR)
        continue;
    if (ready) return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
    nrl_warn("%s: waiting for the rows of this pipe; a resumed run reads them again from the beginning", s->name);
    pthread_setcancelstate(was, NULL);
    while (poll(&writer, 1, -1) < 0 && errno == EINTR)
        continue;
}

/* Reads more of the file if all that was read is consumed. */
static nrl_status fill_raw(file_stream *s)
{
    size_t n = s->memory_left < RAW_SIZE ? s->memory_left : RAW_SIZE;
    if (s->io.in_left || s->raw_end) return NRL_OK;
    if (s->is_pipe && !s->raw_bytes) wait_for_pipe(s);
    if (s->fd >= 0) {
        NRL_TRY(read_some(s->fd, s->name, s->raw, RAW_SIZE, &n));
    } else if (n) {
        memcpy(s->raw, s->memory, n);
        s->memory += n;
        s->memory_left -= n;
    }
    s->raw_end = n == 0;
    s->raw_bytes += (int64_t)n;
    s->io.in = s->raw;
    s->io.in_left = n;
    return NRL_OK;
}

static nrl_status start(file_stream *s)
{
    s->started = true;
    NRL_TRY(fill_raw(s));
    s->codec = codec_find(s->io.in, s->io.in_left);
    if (!s->codec) return NRL_OK;
    if (!s->codec->open)
        return nrl_fail(
            NRL_ERR_DATA,
            "%s: cannot decompress %s data: this build of nrl has no decoder for it\n"
            "hint: decompress the file, or build nrl where the development package of the library is installed",
            s->name, s->codec->name);
    s->decoder = s->codec->open();
    if (!s->decoder) return nrl_fail(NRL_ERR_MEMORY, "%s: no memory to decompress %s data", s->name, s->codec->name);
    s->inside_member = true;
    return NRL_OK;
}

static int64_t raw_offset(const file_stream *s)
{
    return s->raw_bytes - (int64_t)s->io.in_left;
}

static nrl_status fail_cut(const file_stream *s)
{
    return nrl_fail(NRL_ERR_DATA,
                    "%s: the %s data ends early, at byte %" PRId64 " of the file (%" PRId64
                    " bytes of text so far): the file is truncated",
                    s->name, s->codec->name, raw_offset(s), s->text_bytes);
}

/* After a member: another one, zero padding, or the end of the file. */
static nrl_status next_member(file_stream *s, bool *end)
{
    do {
        NRL_TRY(fill_raw(s));
        while (s->io.in_left && *s->io.in == 0)
            s->io.in++, s->io.in_left--;
    } while (!s->io.in_left && !s->raw_end);
    *end = s->io.in_left == 0;
    if (*end) return NRL_OK;
    s->codec->reset(s->decoder);
    s->inside_member = true;
    return NRL_OK;
}

static nrl_status read_compressed(file_stream *s, size_t room)
{
    bool end = false;
    while (s->io.out_left == room) {
        if (!s->inside_member) NRL_TRY(next_member(s, &end));
        if (end) break;
        NRL_TRY(fill_raw(s));
        const char *problem = s->codec->decode(s->decoder, &s->io);
        if (problem)
            return nrl_fail(NRL_ERR_DATA, "%s: cannot decompress %s data near byte %" PRId64 ": %s", s->name,
                            s->codec->name, raw_offset(s), problem);
        s->inside_member = !s->io.member_end;
        if (s->inside_member && s->raw_end && s->io.out_left == room) return fail_cut(s);
    }
    return NRL_OK;
}

static nrl_status read_plain(file_stream *s)
{
    NRL_TRY(fill_raw(s));
    size_t n = s->io.out_left < s->io.in_left ? s->io.out_left : s->io.in_left;
    if (n) memcpy(s->io.out, s->io.in, n);
    s->io.in += n;
    s->io.in_left -= n;
    s->io.out_left -= n;
    return NRL_OK;
}

nrl_status file_stream_read(file_stream *s, void *out, size_t room, size_t *n)
{
    *n = 0;
    if (!s->started) NRL_TRY(start(s));
    s->io.out = out;
    s->io.out_left = room;
    NRL_TRY(s->codec ? read_compressed(s, room) : read_plain(s));
    *n = room - s->io.out_left;
    s->text_bytes += (int64_t)*n;
    return NRL_OK;
}

int64_t file_stream_tell(const file_stream *s)
{
    return s->started && !s->codec && !s->is_pipe && s->fd >= 0 ? s->text_bytes : -1;
}

nrl_status file_stream_seek(file_stream *s, int64_t offset)
{
    if (lseek(s->fd, offset, SEEK_SET) != offset) return nrl_fail(NRL_ERR_IO, "%s: %s", s->name, strerror(errno));
    s->io.in_left = 0;
    s->raw_end = false;
    s->raw_bytes = s->text_bytes = offset;
    return NRL_OK;
}
