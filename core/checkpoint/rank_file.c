/*
 * rank_file.c - batches of chunks, compressed by all workers, then written in order.
 */
#include "checkpoint/rank_file.h"
#include "checkpoint/disk.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SLOTS_A_THREAD = 16 };

/* ---- scratch ---- */

nrl_status encoder_open(int threads, encoder *out)
{
    *out = (encoder){.n_slots = SLOTS_A_THREAD * threads};
    NRL_TRY(workers_create(threads - 1, &out->pool));
    out->codecs = mem_alloc((size_t)threads * sizeof *out->codecs);
    out->slots = malloc((size_t)out->n_slots * CODEC_ROOM);
    if (!out->slots) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a checkpoint's buffers");
    for (; out->n_codecs < threads; out->n_codecs++) NRL_TRY(codec_create(&out->codecs[out->n_codecs]));
    return NRL_OK;
}

void encoder_close(encoder *e)
{
    workers_destroy(e->pool);
    for (int i = 0; i < e->n_codecs; i++) codec_destroy(e->codecs[i]);
    free(e->codecs);
    free(e->slots);
    *e = (encoder){0};
}

/* ---- one batch ---- */

typedef struct {
    rank_file_entry *entry;
    int64_t chunk;
    size_t stored;
} item;

typedef struct {
    encoder *e;
    item *items; /* [n_slots] */
    int n;
} batch;

static nrl_status encode(void *user, int who, int64_t i)
{
    batch *b = user;
    item *it = &b->items[i];
    index_entry *e = &it->entry->entry;
    index_chunk *c = &e->chunks[it->chunk];
    unsigned char *to = b->e->slots + (size_t)i * CODEC_ROOM;
    const unsigned char *from = it->entry->host + it->chunk * CODEC_CHUNK;
    it->stored = codec_encode(b->e->codecs[who], from, (size_t)index_chunk_numel(e, it->chunk),
                              (int)nrl_dtype_size(e->tensor.dtype), to, c->sizes);
    c->hash = XXH3_64bits(to, it->stored);
    return NRL_OK;
}

static nrl_status write_batch(batch *b, int fd, const char *path, int64_t *offset)
{
    NRL_TRY(workers_run(b->e->pool, b->n, encode, b));
    for (int i = 0; i < b->n; i++) {
        item *it = &b->items[i];
        NRL_TRY(disk_write(fd, path, b->e->slots + (size_t)i * CODEC_ROOM, it->stored));
        it->entry->entry.chunks[it->chunk].offset = *offset;
        *offset += (int64_t)it->stored;
    }
    b->n = 0;
    return NRL_OK;
}

static nrl_status write_entry(const rank_file *f, batch *b, rank_file_entry *e, int fd, int64_t *offset)
{
    for (int64_t i = 0; i < e->entry.n_chunks; i++) {
        b->items[b->n++] = (item){.entry = e, .chunk = i};
        if (b->n < b->e->n_slots) continue;
        NRL_TRY(write_batch(b, fd, f->path, offset));
        if (f->give_up && atomic_load(f->give_up)) return nrl_fail(NRL_ERR_STOPPED, "%s: given up", f->path);
    }
    return NRL_OK;
}

/* ---- the file ---- */

static void put32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(value >> 8 * i);
}

void format_header(int32_t rank, int32_t world, int64_t step, unsigned char header[FORMAT_HEADER])
{
    memset(header, 0, FORMAT_HEADER);
    memcpy(header, FORMAT_MAGIC, 8);
    put32(header + 8, FORMAT_VERSION);
    put32(header + 12, (uint32_t)rank);
    put32(header + 16, (uint32_t)world);
    put32(header + 24, (uint32_t)step);
    put32(header + 28, (uint32_t)((uint64_t)step >> 32));
}

static nrl_status write_index(const rank_file *f, arena *a, int fd, int64_t offset, manifest_file *out)
{
    size_t size;
    file_index index = {.rank = f->rank, .world = f->world, .n_entries = f->n_entries, .nodes = f->nodes};
    index.entries = arena_alloc(a, (f->n_entries + 1) * sizeof *index.entries);
    for (size_t i = 0; i < f->n_entries; i++) index.entries[i] = f->entries[i].entry;
    char *text = index_write(&index, &size);
    nrl_status st = size > FORMAT_MAX_INDEX ? nrl_fail(NRL_ERR_BUG, "%s: its index has %zu bytes", f->path, size)
                                            : disk_write(fd, f->path, text, size);
    index_hash(text, size, out->hash);
    free(text);
    out->index = offset;
    out->size = offset + (int64_t)size;
    return st;
}

static nrl_status write_all(const rank_file *f, batch *b, arena *a, int fd, manifest_file *out)
{
    unsigned char header[FORMAT_HEADER];
    int64_t offset = FORMAT_HEADER;
    format_header(f->rank, f->world, f->step, header);
    NRL_TRY(disk_write(fd, f->path, header, sizeof header));
    for (size_t i = 0; i < f->n_entries; i++) {
        index_entry *e = &f->entries[i].entry;
        e->n_chunks = index_n_chunks(layout_numel(&e->piece), e->tensor.dtype);
        e->chunks = arena_alloc(a, (size_t)e->n_chunks * sizeof *e->chunks);
        NRL_TRY(write_entry(f, b, &f->entries[i], fd, &offset));
    }
    NRL_TRY(write_batch(b, fd, f->path, &offset));
    return write_index(f, a, fd, offset, out);
}

nrl_status rank_file_write(const rank_file *f, encoder *e, arena *a, manifest_file *out)
{
    int fd;
    batch b = {.e = e, .items = mem_alloc((size_t)e->n_slots * sizeof(item))};
    nrl_status st = disk_create(f->path, &fd);
    if (st == NRL_OK) {
        st = write_all(f, &b, a, fd, out);
        st = disk_finish(fd, f->path, st);
    }
    free(b.items);
    return st;
}
