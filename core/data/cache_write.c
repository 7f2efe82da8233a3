/*
 * cache_write.c - writes a token cache in one pass with bounded memory: examples go to the file, and the index goes to
 * an unnamed file that is appended at the end.
 */
#include "base/arena.h"
#include "base/file.h"
#include "data/cache_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum { COPY_SIZE = 1 << 16 };

struct data_cache_writer {
    char *path, *temporary; /* NULL: nameless */
    char key[40];
    FILE *body, *index;
    int64_t size, n_segments, n_tokens, n_trained;
};

static nrl_status fail_write(const data_cache_writer *w, const char *what)
{
    bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return nrl_fail(full              ? NRL_ERR_FULL
                    : errno == ENOMEM ? NRL_ERR_MEMORY
                                      : NRL_ERR_IO,
                    "%s: cannot %s the token cache: %s", w->temporary ? w->temporary : "temporary file", what,
                    strerror(errno));
}

/* An unnamed file, which disappears when it is closed. */
static FILE *open_nameless(const char *beside)
{
    if (!beside) return tmpfile();
    char *path = mem_printf("%s.index", beside);
    FILE *f = fopen(path, "w+be");
    if (f) unlink(path);
    free(path);
    return f;
}

static nrl_status put(data_cache_writer *w, FILE *f, const void *bytes, size_t size)
{
    if (size && fwrite(bytes, 1, size, f) != size) return fail_write(w, "write");
    return NRL_OK;
}

nrl_status data_cache_create(const char *path, bool alone, const char *key, data_cache_writer **out)
{
    static const data_cache_header nothing;
    data_cache_writer *w = *out = mem_alloc(sizeof *w);
    strncpy(w->key, key, sizeof w->key - 1);
    if (path) {
        w->path = mem_strdup(path);
        w->temporary = alone ? mem_printf("%s.part", path) : file_temporary_name(path, ".part");
        w->body = fopen(w->temporary, "w+be");
    } else {
        w->body = tmpfile();
    }
    w->index = w->body ? open_nameless(w->temporary) : NULL;
    w->size = sizeof(data_cache_header);
    nrl_status st = w->index ? put(w, w->body, &nothing, sizeof nothing) : fail_write(w, "create");
    if (st != NRL_OK) {
        data_cache_abandon(w);
        *out = NULL;
    }
    return st;
}

void data_cache_abandon(data_cache_writer *w)
{
    if (!w) return;
    if (w->body) fclose(w->body);
    if (w->index) fclose(w->index);
    if (w->temporary) unlink(w->temporary);
    free(w->temporary);
    free(w->path);
    free(w);
}

nrl_status data_cache_append(data_cache_writer *w, const void *body, size_t size, const data_cache_segment *segments,
                             size_t n)
{
    NRL_TRY(put(w, w->body, body, size));
    for (size_t i = 0; i < n; i++) {
        data_cache_segment s = segments[i];
        s.offset += w->size;
        w->n_tokens += s.n_tokens;
        w->n_trained += s.n_trained;
        NRL_TRY(put(w, w->index, &s, sizeof s));
    }
    w->n_segments += (int64_t)n;
    w->size += (int64_t)size;
    return NRL_OK;
}

nrl_status data_cache_end_segment(buffer *body, data_cache_segment *seg)
{
    NRL_TRY(buffer_check(body));
    seg->check = (uint32_t)XXH3_64bits(body->text + seg->offset, (size_t)seg->n_tokens * 5);
    buffer_add(body, "\0\0\0", (size_t)(-body->size & 3));
    return buffer_check(body);
}

static nrl_status append_index(data_cache_writer *w)
{
    char chunk[COPY_SIZE];
    size_t n;
    if (fflush(w->index) || fseeko(w->index, 0, SEEK_SET)) return fail_write(w, "write");
    while ((n = fread(chunk, 1, sizeof chunk, w->index)) > 0)
        NRL_TRY(put(w, w->body, chunk, n));
    return ferror(w->index) ? fail_write(w, "read") : NRL_OK;
}

static void complete_header(const data_cache_writer *w, size_t notes_size, data_cache_header *h)
{
    memcpy(h->magic, DATA_CACHE_MAGIC, sizeof h->magic);
    memcpy(h->key, w->key, sizeof h->key);
    h->version = DATA_CACHE_VERSION;
    h->byte_order = DATA_CACHE_ORDER;
    h->n_examples = w->n_segments / h->n_sides;
    h->n_tokens = w->n_tokens;
    h->n_trained = w->n_trained;
    h->index_at = w->size;
    h->tail_at = h->index_at + w->n_segments * (int64_t)sizeof(data_cache_segment);
    h->file_size = h->tail_at + (int64_t)notes_size;
}

/* The checksum needs the index and the notes in one piece, so they are read back through a mapping. */
static nrl_status write_header(data_cache_writer *w, data_cache_header *h)
{
    size_t size = (size_t)h->file_size;
    unsigned char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fileno(w->body), 0);
    if (map == MAP_FAILED) return fail_write(w, "map");
    h->sum = data_cache_sum(h, map + h->index_at, (size_t)(h->tail_at - h->index_at), map + h->tail_at,
                            (size_t)(h->file_size - h->tail_at));
    munmap(map, size);
    if (fseeko(w->body, 0, SEEK_SET)) return fail_write(w, "write");
    NRL_TRY(put(w, w->body, h, sizeof *h));
    return fflush(w->body) ? fail_write(w, "write") : NRL_OK;
}

static void sync_folder(const char *path)
{
    char *folder = mem_strdup(path), *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

static nrl_status give_name(data_cache_writer *w)
{
    if (!w->temporary) return NRL_OK;
    if (fsync(fileno(w->body))) return fail_write(w, "write");
    if (rename(w->temporary, w->path)) return fail_write(w, "name");
    free(w->temporary);
    w->temporary = NULL;
    sync_folder(w->path);
    return NRL_OK;
}

static nrl_status finish(data_cache_writer *w, const data_cache_header *header, const char *notes, size_t notes_size,
                         data_cache *out)
{
    static const char zeros[8];
    data_cache_header h = *header;
    size_t pad = (size_t)(-w->size & 7);
    NRL_TRY(put(w, w->body, zeros, pad));
    w->size += (int64_t)pad;
    complete_header(w, notes_size, &h);
    NRL_TRY(append_index(w));
    NRL_TRY(put(w, w->body, notes, notes_size));
    if (fflush(w->body)) return fail_write(w, "write");
    NRL_TRY(write_header(w, &h));
    NRL_TRY(give_name(w));
    const char *fault = data_cache_map(fileno(w->body), w->key, out);
    if (fault)
        return nrl_fail(NRL_ERR_IO, "%s: the token cache just written cannot be used: %s",
                        w->path ? w->path : "temporary file", fault);
    return NRL_OK;
}

nrl_status data_cache_finish(data_cache_writer *w, const data_cache_header *header, const char *notes,
                             size_t notes_size, data_cache *out)
{
    nrl_status st = finish(w, header, notes, notes_size, out);
    data_cache_abandon(w);
    return st;
}
