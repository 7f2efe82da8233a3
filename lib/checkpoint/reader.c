/*
 * reader.c - opens a checkpoint: reads and checks the manifest and the index of every file.
 */
#include "checkpoint/reader.h"
#include "base/disk.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */

/* `signer` NULL: does not check the signature. */
static nrl_status read_manifest(arena *a, const char *dir, const sign_public_key *signer, manifest *m, int64_t *bytes)
{
    const char *path = arena_printf(a, "%s/" FORMAT_MANIFEST, dir);
    struct stat s;
    char *text;
    size_t size;
    int error = stat(dir, &s) != 0 ? errno : 0;
    if (error == ENOENT || error == ENOTDIR) return nrl_fail(NRL_ERR_CONFIG, "%s: no such checkpoint", dir);
    if (error) return disk_fail(dir, error);
    if (!S_ISDIR(s.st_mode)) return nrl_fail(NRL_ERR_CONFIG, "%s: is not a directory, expected a checkpoint", dir);
    if (lstat(path, &s) != 0 && errno == ENOENT)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: is not a complete checkpoint: it has no " FORMAT_MANIFEST, dir);
    NRL_TRY(disk_read_whole(path, FORMAT_MAX_MANIFEST, &text, &size));
    nrl_status st = signer ? sign_check(signer, arena_printf(a, "%s/" FORMAT_SIGNATURE, dir), dir, text, size) : NRL_OK;
    if (st == NRL_OK) st = manifest_check(a, path, text, size, m);
    *bytes = (int64_t)size;
    free(text);
    return st;
}

const char *reader_path(arena *a, const char *dir, int32_t rank)
{
    return arena_printf(a, "%s/" FORMAT_RANK_FILE, dir, rank);
}

/* Opens the file and checks that its size is that of the manifest. */
static nrl_status open_file(const manifest *m, int32_t rank, const char *path, int *fd)
{
    int64_t size;
    NRL_TRY(disk_open(path, fd, &size));
    if (size == m->files[rank].size) return NRL_OK;
    close(*fd);
    return nrl_fail(NRL_ERR_CORRUPT, "%s: has %lld bytes, expected %lld", path, (long long)size,
                    (long long)m->files[rank].size);
}

/* Checks the header and reads the index. */
static nrl_status read_open_file(checkpoint *c, int32_t rank, const char *path, int fd, char *text)
{
    const manifest_file *f = &c->m.files[rank];
    file_index *index = &c->files[rank];
    size_t size = (size_t)(f->size - f->index);
    char digits[FORMAT_HASH_DIGITS + 1];
    unsigned char is[FORMAT_HEADER], expected[FORMAT_HEADER];
    format_header(rank, c->m.world, c->m.step, expected);
    NRL_TRY(disk_read(fd, path, 0, is, sizeof is));
    if (memcmp(is, expected, sizeof is))
        return nrl_fail(NRL_ERR_CORRUPT, "%s: is not the file of rank %d of step %lld", path, rank,
                        (long long)c->m.step);
    NRL_TRY(disk_read(fd, path, f->index, text, size));
    text[size] = 0;
    index_hash(text, size, digits);
    if (strcmp(digits, f->hash)) return nrl_fail(NRL_ERR_CORRUPT, "%s: the index is damaged", path);
    NRL_TRY(index_parse(&c->memory, path, text, size, f->index, index));
    if (c->signer) {
        /* Signed checkpoints: checks that the index has the digest of the manifest and that it has a digest for every
         * chunk. */
        char digest[SIGN_DIGEST_TEXT];
        sign_digest_text(text, size, digest);
        if (strcmp(digest, f->digest))
            return nrl_fail(NRL_ERR_CORRUPT, "%s: the index differs from what was signed", path);
        for (size_t i = 0; i < index->n_entries; i++)
            if (!index->entries[i].has_digests)
                return nrl_fail(NRL_ERR_CORRUPT, "%s: '%.200s' is not signed", path, index->entries[i].tensor.name);
    }
    if (index->rank == rank && index->world == c->m.world) return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT, "%s: the index belongs to rank %d of %d", path, index->rank, index->world);
}

static nrl_status read_file(checkpoint *c, int32_t rank, const char *path)
{
    int fd;
    NRL_TRY(open_file(&c->m, rank, path, &fd));
    char *text = mem_try_grow(NULL, (size_t)(c->m.files[rank].size - c->m.files[rank].index) + 1, path);
    nrl_status st = text ? read_open_file(c, rank, path, fd, text) : NRL_ERR_MEMORY;
    free(text);
    close(fd);
    return st;
}

static nrl_status read_files(checkpoint *c)
{
    c->files = arena_try(&c->memory, (size_t)c->m.world * sizeof *c->files, c->dir);
    if (!c->files) return NRL_ERR_MEMORY;
    for (int32_t r = 0; r < c->m.world; r++)
        NRL_TRY(read_file(c, r, reader_path(&c->memory, c->dir, r)));
    return reader_collect(c);
}

nrl_status reader_check_file(const char *path, int32_t rank, int32_t world, int64_t step, const manifest_file *file)
{
    checkpoint c = {.m = {.step = step, .world = world}};
    nrl_status st = NRL_ERR_MEMORY;
    if ((c.m.files = arena_try(&c.memory, (size_t)world * sizeof *c.m.files, path)) &&
        (c.files = arena_try(&c.memory, (size_t)world * sizeof *c.files, path))) {
        c.m.files[rank] = *file;
        st = read_file(&c, rank, path);
    }
    arena_free(&c.memory);
    return st;
}

nrl_status checkpoint_open(const char *dir, checkpoint **out)
{
    return checkpoint_open_signed(dir, NULL, out);
}

nrl_status checkpoint_open_signed(const char *dir, const sign_public_key *key, checkpoint **out)
{
    checkpoint *c = mem_alloc(sizeof *c);
    c->dir = arena_strdup(&c->memory, dir);
    c->signer = key;
    nrl_status st = read_manifest(&c->memory, c->dir, key, &c->m, &c->manifest_bytes);
    if (st == NRL_OK) st = read_files(c);
    if (st == NRL_OK) st = checkpoint_use_threads(c, 1);
    if (st == NRL_OK)
        *out = c;
    else
        checkpoint_close(c);
    return st;
}

nrl_status checkpoint_look(const char *dir, int64_t *step, double *metric)
{
    arena a = {0};
    manifest m = {0};
    int64_t bytes;
    int fd;
    nrl_status st = read_manifest(&a, dir, NULL, &m, &bytes);
    for (int32_t r = 0; st == NRL_OK && r < m.world; r++) {
        st = open_file(&m, r, reader_path(&a, dir, r), &fd);
        if (st == NRL_OK) close(fd);
    }
    if (st == NRL_OK) {
        *step = m.step;
        *metric = m.metric;
    }
    arena_free(&a);
    return st;
}

static void free_decoders(checkpoint *c)
{
    workers_destroy(c->pool);
    for (int i = 0; i < c->n_decoders; i++) {
        codec_destroy(c->decoders[i].codec);
        free(c->decoders[i].stored);
    }
    free(c->decoders);
    c->pool = NULL;
    c->decoders = NULL;
    c->n_decoders = 0;
}

nrl_status checkpoint_use_threads(checkpoint *c, int threads)
{
    free_decoders(c);
    NRL_TRY(workers_create(threads - 1, &c->pool));
    c->decoders = mem_alloc((size_t)threads * sizeof *c->decoders);
    for (; c->n_decoders < threads; c->n_decoders++) {
        decoder *d = &c->decoders[c->n_decoders];
        NRL_TRY(codec_create(&d->codec));
        d->stored = mem_try_grow(NULL, 2 * (size_t)CODEC_CHUNK, "the buffers of a checkpoint");
        if (!d->stored) {
            codec_destroy(d->codec);
            return NRL_ERR_MEMORY;
        }
        d->raw = d->stored + CODEC_CHUNK;
    }
    return NRL_OK;
}

void checkpoint_close(checkpoint *c)
{
    if (!c) return;
    free_decoders(c);
    arena_free(&c->memory);
    free(c);
}

/* ---- properties ---- */

const sign_public_key *checkpoint_signer(const checkpoint *c)
{
    return c->signer;
}

bool checkpoint_is_signed(const char *dir)
{
    char *path = mem_printf("%s/" FORMAT_SIGNATURE, dir);
    bool is = access(path, F_OK) == 0;
    free(path);
    return is;
}

const char *checkpoint_dir(const checkpoint *c)
{
    return c->dir;
}

int64_t checkpoint_step(const checkpoint *c)
{
    return c->m.step;
}

int32_t checkpoint_world(const checkpoint *c)
{
    return c->m.world;
}

double checkpoint_metric(const checkpoint *c)
{
    return c->m.metric;
}

const nrl_node *checkpoint_node(const checkpoint *c, const char *key)
{
    return nrl_node_find(c->m.nodes, key);
}

const nrl_node *checkpoint_rank_node(const checkpoint *c, int32_t rank, const char *key)
{
    return rank < c->m.world ? nrl_node_find(c->files[rank].nodes, key) : NULL;
}

size_t checkpoint_n_tensors(const checkpoint *c)
{
    return c->n_tensors;
}

static const saved_tensor *tensor_at(const checkpoint *c, size_t i)
{
    NRL_ASSERT(i, <, c->n_tensors);
    return &c->tensors[i];
}

const checkpoint_tensor *checkpoint_tensor_at(const checkpoint *c, size_t i)
{
    return &tensor_at(c, i)->tensor;
}

int64_t checkpoint_tensor_bytes(const checkpoint *c, size_t i)
{
    const saved_tensor *t = tensor_at(c, i);
    int64_t bytes = 0;
    for (size_t k = 0; k < t->n_shards; k++)
        bytes += index_entry_bytes(t->shards[k]);
    return bytes;
}

int64_t checkpoint_tensor_stored(const checkpoint *c, size_t i)
{
    const saved_tensor *t = tensor_at(c, i);
    int64_t bytes = 0;
    for (size_t k = 0; k < t->n_shards; k++)
        bytes += index_entry_stored(t->shards[k]);
    return bytes;
}

int checkpoint_tensor_pieces(const checkpoint *c, size_t i)
{
    return (int)tensor_at(c, i)->n_shards;
}

int64_t checkpoint_bytes(const checkpoint *c)
{
    int64_t bytes = c->manifest_bytes;
    for (int32_t r = 0; r < c->m.world; r++)
        bytes += c->m.files[r].size;
    return bytes;
}
