/*
 * rank_file.c - compresses batches of chunks with all workers and writes them in order. While one batch is compressed,
 * a worker writes the batch before it.
 */
#include "checkpoint/rank_file.h"
#include "base/disk.h"
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { SLOTS_A_THREAD = 8 };

/* ---- scratch ---- */

nrl_status encoder_open(int threads, encoder *out)
{
    *out = (encoder){.n_slots = SLOTS_A_THREAD * threads};
    NRL_TRY(workers_create(threads - 1, &out->pool));
    out->codecs = mem_alloc((size_t)threads * sizeof *out->codecs);
    for (int i = 0; i < 2; i++) {
        out->slots[i] = mem_try_grow(NULL, (size_t)out->n_slots * CODEC_ROOM, "the buffers of a checkpoint");
        if (!out->slots[i]) return NRL_ERR_MEMORY;
    }
    for (; out->n_codecs < threads; out->n_codecs++)
        NRL_TRY(codec_create(&out->codecs[out->n_codecs]));
    return NRL_OK;
}

void encoder_close(encoder *e)
{
    workers_destroy(e->pool);
    for (int i = 0; i < e->n_codecs; i++)
        codec_destroy(e->codecs[i]);
    free(e->codecs);
    for (int i = 0; i < 2; i++)
        free(e->slots[i]);
    *e = (encoder){0};
}

/* ---- batches ---- */

typedef struct {
    rank_file_entry *entry;
    int64_t chunk;
    size_t stored;
} item;

typedef struct {
    unsigned char *slots;
    item *items; /* [n_slots] */
    int n;
} batch;

typedef struct {
    const rank_file *f;
    encoder *e;
    int fd;
    int64_t offset; /* end of what is written */
    batch batches[2];
    int filling; /* the batch being compressed; the other batch is being written */
} stream;

static nrl_status encode_chunk(stream *s, int who, int64_t i)
{
    batch *b = &s->batches[s->filling];
    item *it = &b->items[i];
    index_entry *e = &it->entry->entry;
    index_chunk *c = &e->chunks[it->chunk];
    unsigned char *to = b->slots + (size_t)i * CODEC_ROOM;
    const unsigned char *from = it->entry->host + it->chunk * CODEC_CHUNK;
    it->stored = codec_encode(s->e->codecs[who], from, (size_t)index_chunk_numel(e, it->chunk),
                              (int)nrl_dtype_size(e->tensor.dtype), e->rotate, to, c->sizes);
    c->hash = XXH3_64bits(to, it->stored);
    if (e->has_digests) sign_digest(to, it->stored, c->digest);
    return NRL_OK;
}

static nrl_status write_batch(stream *s, batch *b)
{
    int64_t begin = s->offset;
    for (int i = 0; i < b->n; i++) {
        item *it = &b->items[i];
        NRL_TRY(disk_write(s->fd, s->f->path, b->slots + (size_t)i * CODEC_ROOM, it->stored));
        it->entry->entry.chunks[it->chunk].offset = s->offset;
        s->offset += (int64_t)it->stored;
    }
    if (b->n) disk_start_sync(s->fd, begin, s->offset - begin);
    b->n = 0;
    return NRL_OK;
}

/* Writing is the longest job, so it is the first. */
static nrl_status write_or_encode(void *user, int who, int64_t i)
{
    stream *s = user;
    return i == 0 ? write_batch(s, &s->batches[!s->filling]) : encode_chunk(s, who, i - 1);
}

/* Compresses the filled batch while it writes the other one, and swaps the two. */
static nrl_status turn(stream *s)
{
    NRL_TRY(workers_run(s->e->pool, 1 + s->batches[s->filling].n, write_or_encode, s));
    s->filling = !s->filling;
    if (s->f->give_up && atomic_load(s->f->give_up))
        return nrl_fail(NRL_ERR_STOPPED, "%s: the save was abandoned", s->f->path);
    return NRL_OK;
}

static nrl_status write_entry(stream *s, rank_file_entry *e)
{
    for (int64_t i = 0; i < e->entry.n_chunks; i++) {
        batch *b = &s->batches[s->filling];
        b->items[b->n++] = (item){.entry = e, .chunk = i};
        if (b->n == s->e->n_slots) NRL_TRY(turn(s));
    }
    return NRL_OK;
}

/* ---- the file ---- */

static void put32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

bool format_is_file(const char *name)
{
    int rank, end = 0;
    if (!strncmp(name, FORMAT_MANIFEST, sizeof FORMAT_MANIFEST - 1)) return true; /* and its signature */
    return sscanf(name, "rank-%5d.nrlc%n", &rank, &end) == 1 && end && !name[end];
}

void format_header(int32_t rank, int32_t world, int64_t step, unsigned char header[FORMAT_HEADER])
{
    memset(header, 0, FORMAT_HEADER);
    memcpy(header, FORMAT_MAGIC, sizeof FORMAT_MAGIC - 1);
    put32(header + 8, FORMAT_VERSION);
    put32(header + 12, (uint32_t)rank);
    put32(header + 16, (uint32_t)world);
    put32(header + 24, (uint32_t)step);
    put32(header + 28, (uint32_t)((uint64_t)step >> 32));
}

static nrl_status write_index(const rank_file *f, arena *a, int fd, int64_t offset, manifest_file *out)
{
    size_t size = 0;
    file_index index = {.rank = f->rank, .world = f->world, .n_entries = f->n_entries, .nodes = f->nodes};
    index.entries = arena_try(a, (f->n_entries + 1) * sizeof *index.entries, "the index of a checkpoint");
    if (!index.entries) return NRL_ERR_MEMORY;
    for (size_t i = 0; i < f->n_entries; i++)
        index.entries[i] = f->entries[i].entry;
    char *text = index_write(&index, &size);
    if (!text) return NRL_ERR_MEMORY;
    nrl_status st = size > FORMAT_MAX_INDEX
                        ? nrl_fail(NRL_ERR_DATA, "cannot write %s: the index would have %zu bytes, expected at most %d",
                                   f->path, size, FORMAT_MAX_INDEX)
                        : disk_write(fd, f->path, text, size);
    index_hash(text, size, out->hash);
    out->digest[0] = 0;
    if (f->has_digests) sign_digest_text(text, size, out->digest);
    free(text);
    out->index = offset;
    out->size = offset + (int64_t)size;
    return st;
}

/* All chunks of an entry have the same rotation. Only floats have exponents to separate from signs. */
static int rotation_of(const rank_file_entry *f)
{
    nrl_dtype type = f->entry.tensor.dtype;
    bool is_float = type == NRL_DTYPE_F32 || type == NRL_DTYPE_BF16 || type == NRL_DTYPE_F16 || type == NRL_DTYPE_F64;
    size_t n = (size_t)piece_numel(&f->entry.piece);
    return is_float ? codec_rotation(f->host, n, (int)nrl_dtype_size(type)) : 0;
}

static nrl_status write_all(stream *s, arena *a, manifest_file *out)
{
    const rank_file *f = s->f;
    unsigned char header[FORMAT_HEADER];
    format_header(f->rank, f->world, f->step, header);
    NRL_TRY(disk_write(s->fd, f->path, header, sizeof header));
    s->offset = sizeof header;
    for (size_t i = 0; i < f->n_entries; i++) {
        index_entry *e = &f->entries[i].entry;
        e->rotate = rotation_of(&f->entries[i]);
        e->has_digests = f->has_digests;
        e->n_chunks = index_n_chunks(piece_numel(&e->piece), e->tensor.dtype);
        e->chunks = arena_try(a, (size_t)e->n_chunks * sizeof *e->chunks, e->tensor.name);
        if (!e->chunks) return NRL_ERR_MEMORY;
        NRL_TRY(write_entry(s, &f->entries[i]));
    }
    NRL_TRY(turn(s)); /* two turns empty both batches */
    NRL_TRY(turn(s));
    return write_index(f, a, s->fd, s->offset, out);
}

nrl_status rank_file_write(const rank_file *f, encoder *e, arena *a, manifest_file *out)
{
    stream s = {.f = f, .e = e};
    NRL_TRY(disk_create(f->path, &s.fd));
    for (int i = 0; i < 2; i++)
        s.batches[i] = (batch){.slots = e->slots[i], .items = arena_alloc(a, (size_t)e->n_slots * sizeof(item))};
    return disk_finish(s.fd, f->path, write_all(&s, a, out));
}
