/*
 * read.c - reads elements of an open checkpoint: finds the chunks that hold them, reads each chunk, checks its hash,
 * decodes it and copies the elements to their position in the requested shard.
 */
#include "base/disk.h"
#include "checkpoint/reader.h"
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* The state of reading one entry for a shard. Without a shard the entry is only verified. */
typedef struct {
    checkpoint *c;
    const index_entry *entry;
    const char *path;
    int fd;
    const layout_shard *want;
    unsigned char *to;
    atomic_llong filled; /* elements */
} reading;

static nrl_status chunk_damaged(const reading *r, const index_chunk *chunk, const char *what)
{
    return nrl_fail(NRL_ERR_CORRUPT, "%s: %s of '%.200s' is damaged near byte %lld%s", r->path, r->entry->tensor.slot,
                    r->entry->tensor.name, (long long)chunk->offset, what);
}

/* Reads chunk i, checks it and decodes it to `raw`. */
static nrl_status read_chunk(const reading *r, const decoder *d, int64_t i, unsigned char *raw)
{
    const index_entry *e = r->entry;
    const index_chunk *chunk = &e->chunks[i];
    size_t stored = (size_t)index_chunk_stored(e, i), n = (size_t)index_chunk_numel(e, i);
    unsigned char digest[SIGN_DIGEST];
    NRL_TRY(disk_read(r->fd, r->path, chunk->offset, d->stored, stored));
    if (XXH3_64bits(d->stored, stored) != chunk->hash) return chunk_damaged(r, chunk, "");
    if (r->c->signer) {
        sign_digest(d->stored, stored, digest);
        if (memcmp(digest, chunk->digest, sizeof digest))
            return chunk_damaged(r, chunk, ": it differs from what was signed");
    }
    if (!codec_decode(d->codec, d->stored, chunk->sizes, n, (int)nrl_dtype_size(e->tensor.dtype), e->rotate, raw))
        return chunk_damaged(r, chunk, ": a plane cannot be decoded");
    return NRL_OK;
}

/* The shard that chunk i holds. */
static layout_shard chunk_piece(const index_entry *e, int64_t i)
{
    layout_shard p = e->piece;
    p.flat_begin += i * index_chunk_elements(e);
    p.flat_end = p.flat_begin + index_chunk_numel(e, i);
    return p;
}

/* Reads the elements of chunk i that the shard wants. If it wants the whole chunk as one run, the chunk is decoded in
 * place. */
static nrl_status read_wanted(reading *r, const decoder *d, int64_t i)
{
    layout_shard have = chunk_piece(r->entry, i);
    piece_meeting m = piece_meet(&have, r->want);
    int64_t from, at, n, width = (int64_t)nrl_dtype_size(r->entry->tensor.dtype);
    if (!piece_next_run(&m, &from, &at, &n)) return NRL_OK;
    if (n == piece_numel(&have)) {
        atomic_fetch_add(&r->filled, n);
        return read_chunk(r, d, i, r->to + at * width);
    }
    NRL_TRY(read_chunk(r, d, i, d->raw));
    do {
        memcpy(r->to + at * width, d->raw + from * width, (size_t)(n * width));
        atomic_fetch_add(&r->filled, n);
    } while (piece_next_run(&m, &from, &at, &n));
    return NRL_OK;
}

static nrl_status read_job(void *user, int who, int64_t i)
{
    reading *r = user;
    const decoder *d = &r->c->decoders[who];
    return r->want ? read_wanted(r, d, i) : read_chunk(r, d, i, d->raw);
}

static nrl_status read_entry(checkpoint *c, const index_entry *e, const layout_shard *want, void *to, int64_t *filled)
{
    arena a = {0};
    int64_t size;
    reading r = {.c = c, .entry = e, .want = want, .to = to};
    r.path = reader_path(&a, c->dir, e->rank);
    nrl_status st = disk_open(r.path, &r.fd, &size);
    if (st == NRL_OK) {
        st = workers_run(c->pool, e->n_chunks, read_job, &r);
        close(r.fd);
    }
    *filled += atomic_load(&r.filled);
    arena_free(&a);
    return st;
}

nrl_status checkpoint_read(checkpoint *c, size_t i, const layout_shard *piece, void *to)
{
    NRL_ASSERT(i, <, c->n_tensors);
    const saved_tensor *t = &c->tensors[i];
    int64_t filled = 0, at, there, n;
    for (size_t k = 0; k < t->n_shards; k++) {
        piece_meeting m = piece_meet(&t->shards[k]->piece, piece);
        if (piece_next_run(&m, &at, &there, &n)) NRL_TRY(read_entry(c, t->shards[k], piece, to, &filled));
    }
    NRL_ASSERT(filled, ==, piece_numel(piece)); /* reader_collect has checked that the shards cover the tensor */
    return NRL_OK;
}

checkpoint_tensor checkpoint_rank_tensor(arena *a, const char *owner, const char *name, nrl_dtype dtype, int64_t n)
{
    return (checkpoint_tensor){.name = arena_printf(a, "%s/%s", owner, name),
                               .slot = FORMAT_RANK_SLOT,
                               .dtype = dtype,
                               .n_dims = 1,
                               .dims = {n}};
}

nrl_status checkpoint_read_rank(checkpoint *c, int32_t rank, const checkpoint_tensor *t, void *to, bool *found)
{
    const file_index *f = rank < c->m.world ? &c->files[rank] : NULL;
    layout_shard whole = piece_of_whole(t->n_dims, t->dims);
    int64_t filled = 0;
    *found = false;
    for (size_t i = 0; f && i < f->n_entries; i++) {
        const index_entry *e = &f->entries[i];
        if (strcmp(e->tensor.slot, FORMAT_RANK_SLOT) || strcmp(e->tensor.name, t->name)) continue;
        if (e->tensor.dtype != t->dtype || !piece_is_same(&e->piece, &whole)) continue;
        *found = true;
        return read_entry(c, e, &whole, to, &filled);
    }
    return NRL_OK;
}

nrl_status checkpoint_verify(checkpoint *c, checkpoint_damage damaged, void *user)
{
    nrl_status first = NRL_OK;
    int64_t filled = 0;
    for (int32_t r = 0; r < c->m.world; r++)
        for (size_t i = 0; i < c->files[r].n_entries; i++) {
            nrl_status st = read_entry(c, &c->files[r].entries[i], NULL, NULL, &filled);
            if (st == NRL_OK) continue;
            if (!damaged) return st;
            damaged(user, nrl_error_text());
            if (first == NRL_OK) first = st;
        }
    return first;
}
