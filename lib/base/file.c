/*
 * file.c - reads a file up to a size limit. The file may be a pipe, so the size comes from reading, not from stat.
 * Also makes temporary files and unique names.
 */
#include "base/file.h"
#include "base/arena.h"
#include "base/buffer.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 65536 };

static nrl_status read_all(FILE *in, const char *path, size_t max_bytes, buffer *b)
{
    char chunk[CHUNK];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, in)) > 0) {
        if (n > max_bytes - b->size)
            return nrl_fail(NRL_ERR_DATA, "cannot read %s: the file is larger than the limit of %zu bytes", path,
                            max_bytes);
        buffer_add(b, chunk, n);
        NRL_TRY(buffer_check(b));
    }
    if (ferror(in)) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    return NRL_OK;
}

nrl_status file_read(const char *path, size_t max_bytes, char **text, size_t *size)
{
    FILE *in = fopen(path, "rbe");
    if (!in) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    buffer b = {.what = path};
    nrl_status st = read_all(in, path, max_bytes, &b);
    fclose(in);
    if (st != NRL_OK) {
        buffer_free(&b);
        return st;
    }
    if (b.size >= 3 && !memcmp(b.text, "\xEF\xBB\xBF", 3)) memmove(b.text, b.text + 3, (b.size -= 3) + 1);
    *size = b.size;
    *text = buffer_take(&b);
    return *text ? NRL_OK : NRL_ERR_MEMORY;
}

char *file_temporary_name(const char *path, const char *end)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits) { /* the kernel does not have getrandom */
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        bits = (uint64_t)t.tv_sec << 44 ^ (uint64_t)t.tv_nsec << 20 ^ (uint64_t)getpid();
    }
    return mem_printf("%s.%016" PRIx64 "%s", path, bits, end);
}

const char *file_temporary_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

/* tmpfile() does not read TMPDIR, and /tmp is often small or in memory. */
FILE *file_open_temporary(void)
{
    char *path = mem_printf("%s/nrl-XXXXXX", file_temporary_folder());
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    free(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w+") : NULL;
    if (!f && fd >= 0) close(fd);
    return f;
}
