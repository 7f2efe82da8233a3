/*
 * reader.c - an opened checkpoint: its manifest, and tensors chunk by chunk, each checked before
 * use.
 */
#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct checkpoint {
    arena memory;
    const char *dir, *data_path;
    int fd;
    manifest m;
};

static nrl_status open_data(checkpoint *c)
{
    struct stat s;
    c->fd = open(c->data_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (c->fd < 0 && errno == ENOENT)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: is missing", c->data_path);
    if (c->fd < 0 || fstat(c->fd, &s) != 0) return disk_fail(c->data_path, errno);
    if (!S_ISREG(s.st_mode)) return nrl_fail(NRL_ERR_CORRUPT, "%s: is no file", c->data_path);
    if (s.st_size != c->m.data_size)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: has %lld bytes, expected %lld", c->data_path,
                        (long long)s.st_size, (long long)c->m.data_size);
    return NRL_OK;
}

static nrl_status read_manifest(checkpoint *c)
{
    const char *path = arena_printf(&c->memory, "%s/" MANIFEST_FILE, c->dir);
    nrl_status st = manifest_read(&c->memory, path, &c->m);
    if (st == NRL_ERR_IO && access(c->dir, F_OK) != 0 && errno == ENOENT)
        return nrl_fail(NRL_ERR_CONFIG, "%s: no such checkpoint", c->dir);
    if (st == NRL_ERR_IO && access(c->dir, F_OK) == 0 && access(path, F_OK) != 0)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: is no complete checkpoint: it has no " MANIFEST_FILE,
                        c->dir);
    return st;
}

nrl_status checkpoint_open(const char *dir, checkpoint **out)
{
    checkpoint *c = mem_alloc(sizeof *c);
    c->fd = -1;
    c->dir = arena_strdup(&c->memory, dir);
    c->data_path = arena_printf(&c->memory, "%s/" MANIFEST_DATA, dir);
    nrl_status st = read_manifest(c);
    if (st == NRL_OK) st = open_data(c);
    if (st == NRL_OK)
        *out = c;
    else
        checkpoint_close(c);
    return st;
}

void checkpoint_close(checkpoint *c)
{
    if (!c) return;
    if (c->fd >= 0) close(c->fd);
    arena_free(&c->memory);
    free(c);
}

const char *checkpoint_dir(const checkpoint *c)
{
    return c->dir;
}

int64_t checkpoint_step(const checkpoint *c)
{
    return c->m.step;
}

double checkpoint_metric(const checkpoint *c)
{
    return c->m.metric;
}

const nrl_node *checkpoint_node(const checkpoint *c, const char *key)
{
    return nrl_node_find(c->m.nodes, key);
}

size_t checkpoint_n_tensors(const checkpoint *c)
{
    return c->m.n_entries;
}

const checkpoint_tensor *checkpoint_tensor_at(const checkpoint *c, size_t i)
{
    NRL_ASSERT(i, <, c->m.n_entries);
    return &c->m.entries[i].tensor;
}

int64_t checkpoint_tensor_bytes(const checkpoint *c, size_t i)
{
    NRL_ASSERT(i, <, c->m.n_entries);
    return c->m.entries[i].size;
}

int64_t checkpoint_find_tensor(const checkpoint *c, const char *name, const char *slot)
{
    for (size_t i = 0; i < c->m.n_entries; i++) {
        const checkpoint_tensor *t = &c->m.entries[i].tensor;
        if (!strcmp(t->name, name) && !strcmp(t->slot, slot)) return (int64_t)i;
    }
    return -1;
}

static nrl_status read_chunks(const checkpoint *c, const manifest_entry *e, unsigned char *chunk,
                              checkpoint_sink sink, void *user)
{
    for (int64_t i = 0, begin = 0; i < e->n_chunks; i++, begin += CHECKPOINT_CHUNK) {
        int64_t left = e->size - begin;
        size_t size = left < CHECKPOINT_CHUNK ? (size_t)left : CHECKPOINT_CHUNK;
        NRL_TRY(disk_read(c->fd, c->data_path, e->offset + begin, chunk, size));
        if (XXH3_64bits(chunk, size) != e->chunks[i])
            return nrl_fail(NRL_ERR_CORRUPT, "%s: %s of '%s' is damaged near byte %lld",
                            c->data_path, e->tensor.slot, e->tensor.name,
                            (long long)(e->offset + begin));
        if (sink) NRL_TRY(sink(user, begin, size, chunk));
    }
    return NRL_OK;
}

nrl_status checkpoint_read_tensor(const checkpoint *c, size_t i, checkpoint_sink sink, void *user)
{
    NRL_ASSERT(i, <, c->m.n_entries);
    const manifest_entry *e = &c->m.entries[i];
    unsigned char *chunk = malloc(CHECKPOINT_CHUNK);
    if (!chunk)
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for a buffer of %d bytes", CHECKPOINT_CHUNK);
    nrl_status st = read_chunks(c, e, chunk, sink, user);
    free(chunk);
    return st;
}

nrl_status checkpoint_verify(const checkpoint *c)
{
    for (size_t i = 0; i < c->m.n_entries; i++)
        NRL_TRY(checkpoint_read_tensor(c, i, NULL, NULL));
    return NRL_OK;
}
