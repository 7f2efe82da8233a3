/*
 * cache.c - opens a token cache: maps it and checks everything before it is used. Writes one in one pass with bounded
 * memory: examples go to the file, and the index goes to an unnamed file that is appended at the end.
 */
#include "tokens/cache.h"
#include "base/arena.h"
#include "base/disk.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "NRLTOKEN" /* 8 bytes, no NUL */
#define BYTE_ORDER_MARK 0x01020304u
enum { COPY_SIZE = 1 << 16 };

/* ---- opening ---- */

void data_cache_close(data_cache *c)
{
    if (c->map) munmap((void *)(uintptr_t)c->map, c->size);
    *c = (data_cache){0};
}

static uint64_t cache_sum(const data_cache_header *header, const void *index, size_t index_size, const void *tail,
                          size_t tail_size)
{
    data_cache_header h = *header;
    h.sum = 0;
    uint64_t parts[3] = {XXH3_64bits(&h, sizeof h), XXH3_64bits(index, index_size), XXH3_64bits(tail, tail_size)};
    return XXH3_64bits(parts, sizeof parts);
}

/* The sections must follow each other without gaps and end with the file. */
static const char *fault_of_header(const data_cache *c, const char *key)
{
    const data_cache_header *h = c->header;
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0) return "it is not a token cache";
    if (h->version != DATA_CACHE_VERSION || h->byte_order != BYTE_ORDER_MARK)
        return "it was written by another version or machine";
    if (strncmp(h->key, key, sizeof h->key) != 0) return "it has a different key";
    if (h->file_size != (int64_t)c->size) return "it is truncated";
    if (h->n_sides < 1 || h->n_sides > 2 || h->n_extra < 0 || h->n_extra > DATA_MAX_EXTRA || h->n_examples < 0 ||
        h->index_at < (int64_t)sizeof *h || h->index_at > h->file_size || h->index_at % 8)
        return "its header is damaged";
    int64_t room = (h->file_size - h->index_at) / (int64_t)sizeof(data_cache_segment);
    if (h->n_examples > room / h->n_sides ||
        h->tail_at != h->index_at + h->n_examples * h->n_sides * (int64_t)sizeof(data_cache_segment) ||
        !memchr(h->format, 0, sizeof h->format))
        return "its header is damaged";
    return NULL;
}

static const char *fault_of(data_cache *c, const char *key)
{
    const char *fault = fault_of_header(c, key);
    if (fault) return fault;
    const data_cache_header *h = c->header;
    c->index = (const data_cache_segment *)(const void *)(c->map + h->index_at);
    c->notes = (const char *)c->map + h->tail_at;
    c->notes_size = (size_t)(h->file_size - h->tail_at);
    if (h->sum != cache_sum(h, c->index, (size_t)(h->tail_at - h->index_at), c->notes, c->notes_size))
        return "its checksum is wrong";
    const int64_t begin = (int64_t)sizeof *h;
    for (int64_t i = 0; i < h->n_examples * h->n_sides; i++) {
        const data_cache_segment *s = &c->index[i];
        const data_cache_segment *first = &c->index[i - i % h->n_sides];
        if (s->n_tokens < 1 || s->shared < 0 || s->shared >= s->n_tokens || s->shared != first->shared ||
            s->offset < begin + 4 * (int64_t)h->n_extra || s->offset % 4 ||
            s->offset > h->index_at - 5 * (int64_t)s->n_tokens)
            return "its index is damaged";
    }
    return NULL;
}

/* Maps an open file and checks it. Returns the fault, or NULL if the file is valid. */
static const char *map_cache(int fd, const char *key, data_cache *c)
{
    struct stat st;
    if (fstat(fd, &st)) return strerror(errno);
    if (st.st_size < (off_t)sizeof *c->header) return "it is truncated";
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return strerror(errno);
    *c = (data_cache){.map = map, .size = (size_t)st.st_size, .header = map};
    const char *fault = fault_of(c, key);
    if (fault) data_cache_close(c);
    return fault;
}

nrl_status data_cache_open(const char *path, const char *key, bool quiet, data_cache *c, bool *found)
{
    *found = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NRL_OK;
    const char *fault = map_cache(fd, key, c);
    close(fd);
    *found = !fault;
    if (fault && !quiet) nrl_warn("%s: %s; the data is tokenized again", path, fault);
    return NRL_OK;
}

/* ---- writing ---- */

struct data_cache_writer {
    char *path, *temporary; /* NULL: nameless */
    char key[40];
    FILE *body, *index;
    int64_t size, n_segments, n_tokens, n_trained;
};

static nrl_status fail_write(const data_cache_writer *w, const char *what)
{
    return nrl_fail(errno == ENOMEM ? NRL_ERR_MEMORY : disk_status(errno), "%s: cannot %s the token cache: %s",
                    w->temporary ? w->temporary : "temporary file", what, strerror(errno));
}

static nrl_status put(data_cache_writer *w, FILE *f, const void *bytes, size_t size)
{
    if (size && fwrite(bytes, 1, size, f) != size) return fail_write(w, "write");
    return NRL_OK;
}

/* Keeps room for the header. Frees the writer on failure. */
static nrl_status begin(data_cache_writer *w, data_cache_writer **out)
{
    static const data_cache_header nothing;
    w->size = sizeof nothing;
    nrl_status st = w->index ? put(w, w->body, &nothing, sizeof nothing) : fail_write(w, "create");
    if (st == NRL_OK)
        *out = w;
    else
        data_cache_abandon(w);
    return st;
}

static FILE *memory_file(void)
{
    const int fd = memfd_create("nrl-tokens", MFD_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w+b");
    if (fd >= 0 && !f) close(fd);
    return f;
}

nrl_status data_cache_create_in_memory(data_cache_writer **out)
{
    data_cache_writer *w = mem_alloc(sizeof *w);
    w->body = memory_file();
    w->index = w->body ? memory_file() : NULL;
    return begin(w, out);
}

nrl_status data_cache_create(const char *path, bool alone, const char *key, data_cache_writer **out)
{
    data_cache_writer *w = mem_alloc(sizeof *w);
    strncpy(w->key, key, sizeof w->key - 1);
    if (path) {
        w->path = mem_strdup(path);
        w->temporary = alone ? mem_printf("%s.part", path) : file_temporary_name(path, ".part");
        w->body = fopen(w->temporary, "w+be");
    } else {
        w->body = file_open_temporary();
    }
    if (w->body && w->temporary) { /* disappears when it is closed */
        char *index = mem_printf("%s.index", w->temporary);
        w->index = fopen(index, "w+be");
        if (w->index) unlink(index);
        free(index);
    } else if (w->body) {
        w->index = file_open_temporary();
    }
    return begin(w, out);
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

nrl_status data_cache_append(data_cache_writer *w, const char *body, size_t begin, size_t end,
                             const data_cache_segment *segments, size_t n)
{
    if (n) NRL_TRY(put(w, w->body, body + begin, end - begin));
    for (size_t i = 0; i < n; i++) {
        data_cache_segment s = segments[i];
        s.offset += w->size - (int64_t)begin;
        w->n_tokens += s.n_tokens;
        w->n_trained += s.n_trained;
        NRL_TRY(put(w, w->index, &s, sizeof s));
    }
    w->n_segments += (int64_t)n;
    w->size += n ? (int64_t)(end - begin) : 0;
    return NRL_OK;
}

int64_t data_cache_n_segments(const data_cache_writer *w)
{
    return w->n_segments;
}

nrl_status data_cache_end_segment(buffer *body, data_cache_segment *seg)
{
    NRL_TRY(buffer_check(body));
    seg->check = (uint32_t)XXH3_64bits(body->text + seg->offset, (size_t)seg->n_tokens * 5);
    buffer_add(body, "\0\0\0", (size_t)(-body->size & 3));
    return buffer_check(body);
}

data_cache_header data_cache_header_of(const data_schema *schema, bool kl_pairs)
{
    data_cache_header h = {.n_sides = schema->pairs || kl_pairs ? 2 : 1, .n_extra = schema->n_extra};
    if (schema->format) strncpy(h.format, data_format_name(schema->format), sizeof h.format - 1);
    return h;
}

static nrl_status finish(data_cache_writer *w, const data_cache_header *header, const char *notes, size_t notes_size,
                         data_cache *out)
{
    static const char zeros[8];
    char chunk[COPY_SIZE];
    data_cache_header h = *header;
    size_t pad = (size_t)(-w->size & 7), n;
    NRL_TRY(put(w, w->body, zeros, pad));
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.key, w->key, sizeof h.key);
    h.version = DATA_CACHE_VERSION;
    h.byte_order = BYTE_ORDER_MARK;
    h.n_examples = w->n_segments / h.n_sides;
    h.n_tokens = w->n_tokens;
    h.n_trained = w->n_trained;
    h.index_at = w->size + (int64_t)pad;
    h.tail_at = h.index_at + w->n_segments * (int64_t)sizeof(data_cache_segment);
    h.file_size = h.tail_at + (int64_t)notes_size;
    if (fflush(w->index) || fseeko(w->index, 0, SEEK_SET)) return fail_write(w, "write");
    while ((n = fread(chunk, 1, sizeof chunk, w->index)) > 0)
        NRL_TRY(put(w, w->body, chunk, n));
    if (ferror(w->index)) return fail_write(w, "read");
    NRL_TRY(put(w, w->body, notes, notes_size));
    if (fflush(w->body)) return fail_write(w, "write");

    /* The checksum needs the index and the notes in one piece, so they are read back through a mapping. */
    unsigned char *map = mmap(NULL, (size_t)h.file_size, PROT_READ, MAP_SHARED, fileno(w->body), 0);
    if (map == MAP_FAILED) return fail_write(w, "map");
    h.sum = cache_sum(&h, map + h.index_at, (size_t)(h.tail_at - h.index_at), map + h.tail_at, notes_size);
    munmap(map, (size_t)h.file_size);
    if (fseeko(w->body, 0, SEEK_SET)) return fail_write(w, "write");
    NRL_TRY(put(w, w->body, &h, sizeof h));
    if (fflush(w->body)) return fail_write(w, "write");

    if (w->temporary) {
        if (fsync(fileno(w->body))) return fail_write(w, "write");
        if (rename(w->temporary, w->path)) return fail_write(w, "name");
        free(w->temporary);
        w->temporary = NULL;
        disk_sync_parent(w->path); /* without it a crash may lose the cache, which is then built again */
    }
    const char *fault = map_cache(fileno(w->body), w->key, out);
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
