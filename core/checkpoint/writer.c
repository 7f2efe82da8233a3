/*
 * writer.c - a save: data while tensors arrive, then the manifest, then one rename.
 */
#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { ALIGN = 64 }; /* of a tensor's first byte, for whoever maps the file */

struct checkpoint_writer {
    arena memory;
    char *out, *parent, *temporary, *final, *data_path;
    int fd;
    unsigned char *chunk; /* CHECKPOINT_CHUNK bytes */
    int64_t tensor_bytes; /* as announced */
    manifest m;
    nrl_node *nodes;
};

static void end(checkpoint_writer *w)
{
    if (w->fd >= 0) close(w->fd);
    free(w->chunk);
    free(w->m.entries);
    arena_free(&w->memory);
    free(w);
}

static checkpoint_writer *new_writer(const char *out, int64_t step, int64_t tensor_bytes)
{
    checkpoint_writer *w = mem_alloc(sizeof *w);
    arena *a = &w->memory;
    w->fd = -1;
    w->out = arena_strdup(a, out);
    w->parent = arena_printf(a, "%s/checkpoints", out);
    w->final = arena_printf(a, "%s/step-%08lld", w->parent, (long long)step);
    w->temporary = arena_printf(a, "%s.tmp", w->final);
    w->data_path = arena_printf(a, "%s/" MANIFEST_DATA, w->temporary);
    w->tensor_bytes = tensor_bytes;
    w->m.step = step;
    w->m.metric = NAN;
    w->nodes = node_new(a, NRL_NODE_MAP);
    return w;
}

/* A full disk: how much this save needs, so that the user knows what to free. */
static nrl_status explain(const checkpoint_writer *w, nrl_status st)
{
    if (st == NRL_ERR_FULL)
        nrl_note("the checkpoint needs %lld bytes, %lld of them are written",
                 (long long)w->tensor_bytes, (long long)w->m.data_size);
    return st;
}

static nrl_status start(checkpoint_writer *w)
{
    NRL_TRY(disk_make_folder(w->parent));
    NRL_TRY(disk_sync_folder(w->out));
    NRL_TRY(disk_remove_folder(w->temporary));
    NRL_TRY(disk_make_folder(w->temporary));
    w->fd = open(w->data_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) return disk_fail(w->data_path, errno);
    w->chunk = malloc(CHECKPOINT_CHUNK);
    if (!w->chunk)
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for a buffer of %d bytes", CHECKPOINT_CHUNK);
    return disk_reserve(w->fd, w->data_path, w->tensor_bytes);
}

nrl_status checkpoint_begin(const char *out, int64_t step, int64_t tensor_bytes,
                            checkpoint_writer **writer)
{
    checkpoint_writer *w = new_writer(out, step, tensor_bytes);
    nrl_status st = explain(w, start(w));
    if (st == NRL_OK)
        *writer = w;
    else
        checkpoint_abandon(w);
    return st;
}

static nrl_status put(checkpoint_writer *w, const void *data, size_t size)
{
    NRL_TRY(disk_write(w->fd, w->data_path, data, size));
    w->m.data_size += (int64_t)size;
    return NRL_OK;
}

static nrl_status pad(checkpoint_writer *w)
{
    static const char zeros[ALIGN];
    return put(w, zeros, (size_t)(-w->m.data_size & (ALIGN - 1)));
}

static nrl_status put_chunks(checkpoint_writer *w, manifest_entry *e, checkpoint_source source,
                             void *user)
{
    for (int64_t i = 0, begin = 0; i < e->n_chunks; i++, begin += CHECKPOINT_CHUNK) {
        int64_t left = e->size - begin;
        size_t size = left < CHECKPOINT_CHUNK ? (size_t)left : CHECKPOINT_CHUNK;
        NRL_TRY(source(user, begin, size, w->chunk));
        e->chunks[i] = XXH3_64bits(w->chunk, size);
        NRL_TRY(put(w, w->chunk, size));
    }
    return NRL_OK;
}

static manifest_entry *new_entry(checkpoint_writer *w, const checkpoint_tensor *t, int64_t size)
{
    manifest *m = &w->m;
    if (m->n_entries == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 64;
        m->entries = mem_realloc(m->entries, m->capacity * sizeof *m->entries);
    }
    manifest_entry *e = &m->entries[m->n_entries++];
    *e = (manifest_entry){.tensor = *t, .size = size};
    e->tensor.name = arena_strdup(&w->memory, t->name);
    e->tensor.slot = arena_strdup(&w->memory, t->slot);
    e->n_chunks = size / CHECKPOINT_CHUNK + (size % CHECKPOINT_CHUNK > 0);
    e->chunks = arena_alloc(&w->memory, (size_t)e->n_chunks * sizeof *e->chunks);
    return e;
}

nrl_status checkpoint_add_tensor(checkpoint_writer *w, const checkpoint_tensor *t,
                                 checkpoint_source source, void *user)
{
    int64_t size;
    if (!manifest_tensor_size(t, &size))
        return nrl_fail(NRL_ERR_BUG, "tensor '%s' cannot be saved: its shape or type is not valid",
                        t->name);
    NRL_TRY(explain(w, pad(w)));
    manifest_entry *e = new_entry(w, t, size);
    e->offset = w->m.data_size;
    return explain(w, put_chunks(w, e, source, user));
}

void checkpoint_add_node(checkpoint_writer *w, const char *key, const nrl_node *node)
{
    node_set(&w->memory, w->nodes, key, node_copy(&w->memory, node));
}

void checkpoint_set_metric(checkpoint_writer *w, double value)
{
    w->m.metric = value;
}

static nrl_status finish_file(int fd, const char *path)
{
    if (fsync(fd) != 0) return disk_fail(path, errno);
    return NRL_OK;
}

static nrl_status write_manifest(checkpoint_writer *w)
{
    size_t size;
    char *path = arena_printf(&w->memory, "%s/" MANIFEST_FILE, w->temporary);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return disk_fail(path, errno);
    w->m.nodes = w->nodes;
    char *text = manifest_write(&w->m, &size);
    nrl_status st = disk_write(fd, path, text, size);
    if (st == NRL_OK) st = finish_file(fd, path);
    free(text);
    close(fd);
    return st;
}

static nrl_status make_durable(checkpoint_writer *w)
{
    if (ftruncate(w->fd, w->m.data_size) != 0) return disk_fail(w->data_path, errno); /* reserve */
    NRL_TRY(finish_file(w->fd, w->data_path));
    NRL_TRY(write_manifest(w));
    return disk_sync_folder(w->temporary);
}

nrl_status checkpoint_commit(checkpoint_writer *w, char **dir)
{
    bool swapped = false;
    nrl_status st = explain(w, make_durable(w));
    if (st == NRL_OK) st = disk_swap(w->temporary, w->final, &swapped);
    if (st == NRL_OK) st = disk_sync_folder(w->parent);
    if (st != NRL_OK) {
        checkpoint_abandon(w);
        return st;
    }
    if (swapped && disk_remove_folder(w->temporary) != NRL_OK) nrl_warn("%s", nrl_error_text());
    if (dir) *dir = mem_strdup(w->final);
    end(w);
    return NRL_OK;
}

/* Keeps the error that made the save fail. */
void checkpoint_abandon(checkpoint_writer *w)
{
    if (!w) return;
    char *why = mem_strdup(nrl_error_text());
    if (disk_remove_folder(w->temporary) != NRL_OK) nrl_warn("%s", nrl_error_text());
    nrl_fail(NRL_OK, "%s", why);
    free(why);
    end(w);
}
