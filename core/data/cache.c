/*
 * cache.c - opens a token cache: maps it and checks everything before it is used.
 */
#include "data/cache_file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

void data_cache_close(data_cache *c)
{
    if (c->map) munmap((void *)(uintptr_t)c->map, c->size);
    *c = (data_cache){0};
}

uint64_t data_cache_sum(const data_cache_header *header, const void *index, size_t index_size, const void *tail,
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
    if (memcmp(h->magic, DATA_CACHE_MAGIC, sizeof h->magic) != 0) return "it is no token cache";
    if (h->version != DATA_CACHE_VERSION || h->byte_order != DATA_CACHE_ORDER)
        return "it is of another version or machine";
    if (strncmp(h->key, key, sizeof h->key) != 0) return "it has another key";
    if (h->file_size != (int64_t)c->size) return "it is cut off";
    if (h->n_sides < 1 || h->n_sides > 2 || h->n_extra < 0 || h->n_extra > BATCH_MAX_EXTRA || h->n_examples < 0 ||
        h->index_at < (int64_t)sizeof *h || h->index_at > h->file_size || h->index_at % 8)
        return "its header is damaged";
    int64_t room = (h->file_size - h->index_at) / (int64_t)sizeof(data_cache_segment);
    if (h->n_examples > room / h->n_sides ||
        h->tail_at != h->index_at + h->n_examples * h->n_sides * (int64_t)sizeof(data_cache_segment) ||
        !memchr(h->format, 0, sizeof h->format))
        return "its header is damaged";
    return NULL;
}

static const char *fault_of_index(const data_cache *c)
{
    const data_cache_header *h = c->header;
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

static const char *fault_of(data_cache *c, const char *key)
{
    const char *fault = fault_of_header(c, key);
    if (fault) return fault;
    const data_cache_header *h = c->header;
    c->index = (const data_cache_segment *)(const void *)(c->map + h->index_at);
    c->notes = (const char *)c->map + h->tail_at;
    c->notes_size = (size_t)(h->file_size - h->tail_at);
    if (h->sum != data_cache_sum(h, c->index, (size_t)(h->tail_at - h->index_at), c->notes, c->notes_size))
        return "its checksum is wrong";
    return fault_of_index(c);
}

const char *data_cache_map(int fd, const char *key, data_cache *c)
{
    struct stat st;
    if (fstat(fd, &st)) return strerror(errno);
    if (st.st_size < (off_t)sizeof *c->header) return "it is cut off";
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
    const char *fault = data_cache_map(fd, key, c);
    close(fd);
    *found = !fault;
    if (fault && !quiet) nrl_warn("%s: %s; the data is tokenised again", path, fault);
    return NRL_OK;
}
