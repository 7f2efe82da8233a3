/*
 * manifest.c - the manifest to text and back. Its first member is the XXH3 of all text behind it:
 *   { "xxh3": "<32 hex digits>", "format": 1, "step": 200, ... }
 */
#include "checkpoint/manifest.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { HASH_DIGITS = 32, MANIFEST_MAX_BYTES = 256 << 20 };
static const char head[] = "{\n \"xxh3\": \"";

bool manifest_tensor_size(const checkpoint_tensor *t, int64_t *size)
{
    int64_t n = (int64_t)nrl_dtype_size(t->dtype);
    if (n == 0 || t->n_dims < 1 || t->n_dims > NRL_MAX_DIMS) return false;
    for (int i = 0; i < t->n_dims; i++)
        if (t->dims[i] < 0 || __builtin_mul_overflow(n, t->dims[i], &n)) return false;
    *size = n;
    return true;
}

static void hash_text(const char *text, size_t size, char digits[HASH_DIGITS + 1])
{
    XXH128_hash_t h = XXH3_128bits(text, size);
    snprintf(digits, HASH_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, h.high64, h.low64);
}

/* ---- writing ---- */

static void set_int(arena *a, nrl_node *map, const char *key, int64_t value)
{
    node_append(a, map, key, node_int(a, value));
}

static void set_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    node_append(a, map, key, node_string(a, text, strlen(text)));
}

static nrl_node *entry_node(arena *a, const manifest_entry *e)
{
    nrl_node *n = node_new(a, NRL_NODE_MAP), *shape = node_new(a, NRL_NODE_LIST);
    buffer chunks = {0};
    for (int i = 0; i < e->tensor.n_dims; i++)
        node_append(a, shape, NULL, node_int(a, e->tensor.dims[i]));
    for (int64_t i = 0; i < e->n_chunks; i++)
        buffer_print(&chunks, "%016" PRIx64, e->chunks[i]);
    set_text(a, n, "name", e->tensor.name);
    set_text(a, n, "slot", e->tensor.slot);
    set_text(a, n, "dtype", nrl_dtype_name(e->tensor.dtype));
    node_append(a, n, "shape", shape);
    set_int(a, n, "offset", e->offset);
    set_int(a, n, "size", e->size);
    set_text(a, n, "chunks", chunks.text ? chunks.text : "");
    buffer_free(&chunks);
    return n;
}

static nrl_node *file_node(arena *a, int64_t size)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST), *file = node_new(a, NRL_NODE_MAP);
    set_text(a, file, "name", MANIFEST_DATA);
    set_int(a, file, "size", size);
    node_append(a, list, NULL, file);
    return list;
}

static nrl_node *manifest_node(arena *a, const manifest *m)
{
    char zeros[HASH_DIGITS + 1];
    memset(zeros, '0', HASH_DIGITS);
    zeros[HASH_DIGITS] = 0;
    nrl_node *root = node_new(a, NRL_NODE_MAP), *tensors = node_new(a, NRL_NODE_LIST);
    for (size_t i = 0; i < m->n_entries; i++)
        node_append(a, tensors, NULL, entry_node(a, &m->entries[i]));
    set_text(a, root, "xxh3", zeros);
    set_int(a, root, "format", CHECKPOINT_FORMAT);
    set_int(a, root, "step", m->step);
    if (isfinite(m->metric)) node_append(a, root, "metric", node_f64(a, m->metric));
    set_int(a, root, "chunk_bytes", CHECKPOINT_CHUNK);
    node_append(a, root, "files", file_node(a, m->data_size));
    node_append(a, root, "nodes", m->nodes ? node_copy(a, m->nodes) : node_new(a, NRL_NODE_MAP));
    node_append(a, root, "tensors", tensors);
    return root;
}

char *manifest_write(const manifest *m, size_t *size)
{
    arena a = {0};
    char digits[HASH_DIGITS + 1], *text = json_write(manifest_node(&a, m), 1);
    size_t begin = sizeof head - 1, after = begin + HASH_DIGITS;
    *size = strlen(text);
    NRL_ASSERT(memcmp(text, head, begin), ==, 0);
    hash_text(text + after, *size - after, digits);
    memcpy(text + begin, digits, HASH_DIGITS);
    arena_free(&a);
    return text;
}

/* ---- reading ---- */

static nrl_status corrupt(const char *path, const char *what)
{
    return nrl_fail(NRL_ERR_CORRUPT, "%s: %s", path, what);
}

static nrl_status check_hash(const char *path, const char *text, size_t size)
{
    char digits[HASH_DIGITS + 1];
    size_t begin = sizeof head - 1, after = begin + HASH_DIGITS;
    if (size <= after || memcmp(text, head, begin))
        return corrupt(path, "is no manifest of a checkpoint");
    hash_text(text + after, size - after, digits);
    if (memcmp(text + begin, digits, HASH_DIGITS)) return corrupt(path, "its hash does not match");
    return NRL_OK;
}

static nrl_dtype dtype_named(const char *name)
{
    for (int d = NRL_DTYPE_F32; d <= NRL_DTYPE_U8; d++)
        if (!strcmp(nrl_dtype_name((nrl_dtype)d), name)) return (nrl_dtype)d;
    return NRL_DTYPE_NONE;
}

static bool read_shape(const nrl_node *shape, checkpoint_tensor *t)
{
    size_t n = nrl_node_size(shape);
    if (nrl_node_kind(shape) != NRL_NODE_LIST || n < 1 || n > NRL_MAX_DIMS) return false;
    t->n_dims = (int)n;
    for (size_t i = 0; i < n; i++)
        t->dims[i] = nrl_node_int(nrl_node_at(shape, i), -1);
    return true;
}

static bool read_chunks(arena *a, const nrl_node *node, manifest_entry *e)
{
    const char *digits = nrl_node_string(node, "");
    char one[17] = {0}, *end;
    e->n_chunks = e->size / CHECKPOINT_CHUNK + (e->size % CHECKPOINT_CHUNK > 0);
    if (nrl_node_string_size(node) != (size_t)e->n_chunks * 16) return false;
    e->chunks = arena_alloc(a, (size_t)e->n_chunks * sizeof *e->chunks);
    for (int64_t i = 0; i < e->n_chunks; i++) {
        memcpy(one, digits + i * 16, 16);
        e->chunks[i] = strtoull(one, &end, 16);
        if (end != one + 16) return false;
    }
    return true;
}

static nrl_status read_entry(arena *a, const char *path, const nrl_node *n, int64_t data_size,
                             manifest_entry *e)
{
    int64_t size;
    e->tensor.name = nrl_node_string(nrl_node_find(n, "name"), "");
    e->tensor.slot = nrl_node_string(nrl_node_find(n, "slot"), "");
    e->tensor.dtype = dtype_named(nrl_node_string(nrl_node_find(n, "dtype"), ""));
    e->offset = nrl_node_int(nrl_node_find(n, "offset"), -1);
    e->size = nrl_node_int(nrl_node_find(n, "size"), -1);
    bool ok = *e->tensor.name && *e->tensor.slot &&
              read_shape(nrl_node_find(n, "shape"), &e->tensor) &&
              manifest_tensor_size(&e->tensor, &size) && size == e->size && e->offset >= 0 &&
              e->offset <= data_size && e->size <= data_size - e->offset &&
              read_chunks(a, nrl_node_find(n, "chunks"), e);
    if (ok) return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT,
                    "%s: tensor '%.200s' has a shape, place or hash that cannot be", path,
                    e->tensor.name);
}

static nrl_status read_files(const char *path, const nrl_node *files, manifest *out)
{
    const nrl_node *file = nrl_node_at(files, 0);
    const char *name = nrl_node_string(nrl_node_find(file, "name"), "");
    out->data_size = nrl_node_int(nrl_node_find(file, "size"), -1);
    if (nrl_node_size(files) != 1 || strcmp(name, MANIFEST_DATA))
        return nrl_fail(NRL_ERR_DATA, "%s: names file '%.200s', expected one file, " MANIFEST_DATA,
                        path, name);
    return out->data_size >= 0 ? NRL_OK : corrupt(path, "a file has no size");
}

static nrl_status read_root(arena *a, const char *path, const nrl_node *root, manifest *out)
{
    int64_t format = nrl_node_int(nrl_node_find(root, "format"), -1);
    int64_t chunk = nrl_node_int(nrl_node_find(root, "chunk_bytes"), -1);
    const nrl_node *tensors = nrl_node_find(root, "tensors");
    *out = (manifest){.metric = nrl_node_f64(nrl_node_find(root, "metric"), NAN)};
    if (format != CHECKPOINT_FORMAT || chunk != CHECKPOINT_CHUNK)
        return nrl_fail(NRL_ERR_DATA, "%s: has format %lld, this version of nrl reads %d", path,
                        (long long)format, CHECKPOINT_FORMAT);
    out->step = nrl_node_int(nrl_node_find(root, "step"), -1);
    out->nodes = nrl_node_find(root, "nodes");
    if (out->step < 0) return corrupt(path, "has no step");
    NRL_TRY(read_files(path, nrl_node_find(root, "files"), out));
    out->n_entries = nrl_node_kind(tensors) == NRL_NODE_LIST ? nrl_node_size(tensors) : 0;
    out->entries = arena_alloc(a, (out->n_entries + 1) * sizeof *out->entries);
    for (size_t i = 0; i < out->n_entries; i++)
        NRL_TRY(read_entry(a, path, nrl_node_at(tensors, i), out->data_size, &out->entries[i]));
    return NRL_OK;
}

nrl_status manifest_parse(arena *a, const char *path, const char *text, size_t size, manifest *out)
{
    nrl_node *root;
    NRL_TRY(json_parse(a, path, text, size, &root));
    return read_root(a, path, root, out);
}

nrl_status manifest_read(arena *a, const char *path, manifest *out)
{
    char *text;
    size_t size;
    NRL_TRY(file_read(path, MANIFEST_MAX_BYTES, &text, &size));
    nrl_status st = check_hash(path, text, size);
    if (st == NRL_OK) st = manifest_parse(a, arena_strdup(a, path), text, size, out);
    free(text);
    return st;
}
