/*
 * index.c - writes the index of a file as JSON and parses it.
 */
#include "checkpoint/index.h"
#include "base/buffer.h"
#include "base/json.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { HASH_DIGITS = 16, SIZE_DIGITS = 6 };

int64_t index_chunk_elements(const index_entry *e)
{
    return CODEC_CHUNK / (int64_t)nrl_dtype_size(e->tensor.dtype);
}

int64_t index_n_chunks(int64_t numel, nrl_dtype dtype)
{
    int64_t each = CODEC_CHUNK / (int64_t)nrl_dtype_size(dtype);
    return numel / each + (numel % each > 0);
}

int64_t index_chunk_numel(const index_entry *e, int64_t i)
{
    int64_t each = index_chunk_elements(e), left = piece_numel(&e->piece) - i * each;
    return left < each ? left : each;
}

int64_t index_chunk_stored(const index_entry *e, int64_t i)
{
    int64_t size = 0;
    for (size_t p = 0; p < nrl_dtype_size(e->tensor.dtype); p++)
        size += e->chunks[i].sizes[p];
    return size;
}

int64_t index_entry_bytes(const index_entry *e)
{
    return piece_numel(&e->piece) * (int64_t)nrl_dtype_size(e->tensor.dtype);
}

int64_t index_entry_stored(const index_entry *e)
{
    int64_t size = 0;
    for (int64_t i = 0; i < e->n_chunks; i++)
        size += index_chunk_stored(e, i);
    return size;
}

void index_hash(const void *bytes, size_t size, char digits[FORMAT_HASH_DIGITS + 1])
{
    XXH128_hash_t h = XXH3_128bits(bytes, size);
    snprintf(digits, FORMAT_HASH_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, h.high64, h.low64);
}

tensor_text tensor_describe(const checkpoint_tensor *t)
{
    tensor_text s;
    int n = snprintf(s.text, sizeof s.text, "%s [", nrl_dtype_name(t->dtype));
    for (int i = 0; i < t->n_dims; i++)
        n += snprintf(s.text + n, sizeof s.text - (size_t)n, "%s%lld", i ? "," : "", (long long)t->dims[i]);
    snprintf(s.text + n, sizeof s.text - (size_t)n, "]");
    return s;
}

/* ---- writing ---- */

static void add_list(buffer *b, const char *key, int n, const int64_t *values)
{
    buffer_print(b, ", \"%s\": [", key);
    for (int i = 0; i < n; i++)
        buffer_print(b, "%s%" PRId64, i ? ", " : "", values[i]);
    buffer_puts(b, "]");
}

static void add_entry(buffer *b, const index_entry *e)
{
    const layout_shard *p = &e->piece;
    buffer_puts(b, "{\"name\": ");
    json_add_string(b, e->tensor.name, strlen(e->tensor.name));
    buffer_puts(b, ", \"slot\": ");
    json_add_string(b, e->tensor.slot, strlen(e->tensor.slot));
    buffer_print(b, ", \"dtype\": \"%s\"", nrl_dtype_name(e->tensor.dtype));
    add_list(b, "shape", p->n_dims, p->dims);
    if (!piece_is_whole(p)) {
        add_list(b, "begin", p->n_dims, p->begin);
        add_list(b, "end", p->n_dims, p->end);
        add_list(b, "flat", 2, (int64_t[]){p->flat_begin, p->flat_end});
    }
    if (e->rotate) buffer_print(b, ", \"rotate\": %d", e->rotate);
    buffer_print(b, ", \"offset\": %" PRId64 ", \"chunks\": \"", e->n_chunks ? e->chunks[0].offset : 0);
    for (int64_t i = 0; i < e->n_chunks; i++) {
        buffer_print(b, "%0*" PRIx64, HASH_DIGITS, e->chunks[i].hash);
        for (size_t k = 0; k < nrl_dtype_size(e->tensor.dtype); k++)
            buffer_print(b, "%0*" PRIx32, SIZE_DIGITS, e->chunks[i].sizes[k]);
    }
    if (e->has_digests) buffer_puts(b, "\", \"blake2b\": \"");
    for (int64_t i = 0; e->has_digests && i < e->n_chunks; i++)
        for (size_t k = 0; k < SIGN_DIGEST; k++)
            buffer_print(b, "%02x", e->chunks[i].digest[k]);
    buffer_puts(b, "\"}");
}

char *index_write(const file_index *index, size_t *size)
{
    buffer b = {.what = "the index of a checkpoint"};
    buffer_print(&b, "{\"rank\": %d, \"world\": %d, \"entries\": [", index->rank, index->world);
    for (size_t i = 0; i < index->n_entries; i++) {
        if (i) buffer_puts(&b, ", ");
        add_entry(&b, &index->entries[i]);
    }
    buffer_puts(&b, "], \"nodes\": ");
    if (index->nodes)
        json_add(&b, index->nodes, 0);
    else
        buffer_puts(&b, "{}");
    buffer_puts(&b, "}");
    *size = b.size;
    return buffer_take(&b);
}

/* ---- reading ---- */

static nrl_dtype dtype_named(const char *name)
{
    for (int d = NRL_DTYPE_F32; nrl_dtype_size((nrl_dtype)d); d++)
        if (!strcmp(nrl_dtype_name((nrl_dtype)d), name)) return (nrl_dtype)d;
    return NRL_DTYPE_NONE;
}

/* Reads a list of exactly n integers. */
static bool read_list(const nrl_node *list, size_t n, int64_t *out)
{
    if (nrl_node_kind(list) != NRL_NODE_LIST || nrl_node_size(list) != n) return false;
    for (size_t i = 0; i < n; i++) {
        if (nrl_node_kind(nrl_node_at(list, i)) != NRL_NODE_INT) return false;
        out[i] = nrl_node_int(nrl_node_at(list, i), -1);
    }
    return true;
}

static bool read_piece(const nrl_node *n, index_entry *e)
{
    const nrl_node *shape = nrl_node_find(n, "shape");
    size_t n_dims = nrl_node_size(shape);
    layout_shard *p = &e->piece;
    int64_t flat[2], bytes;
    if (n_dims < 1 || n_dims > NRL_MAX_DIMS || !read_list(shape, n_dims, e->tensor.dims)) return false;
    e->tensor.n_dims = p->n_dims = (int)n_dims;
    memcpy(p->dims, e->tensor.dims, sizeof p->dims);
    layout_shard empty = *p; /* an empty box: checks the dims alone */
    if (!piece_is_sound(&empty)) return false;
    *p = piece_of_whole((int)n_dims, e->tensor.dims);
    if (__builtin_mul_overflow(piece_numel(p), (int64_t)nrl_dtype_size(e->tensor.dtype), &bytes)) return false;
    if (!nrl_node_find(n, "flat")) return true;
    if (!read_list(nrl_node_find(n, "begin"), n_dims, p->begin) ||
        !read_list(nrl_node_find(n, "end"), n_dims, p->end) || !read_list(nrl_node_find(n, "flat"), 2, flat))
        return false;
    p->flat_begin = flat[0];
    p->flat_end = flat[1];
    return piece_is_sound(p);
}

/* Reads `digits` lowercase hex digits. */
static bool read_hex(const char **at, int digits, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < digits; i++, ++*at) {
        char c = **at;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        *value = *value << 4 | (uint64_t)digit;
    }
    return true;
}

/* Reads chunk i, which begins at *offset, and advances *offset to its end. */
static bool read_chunk(index_entry *e, int64_t i, const char **digits, int64_t *offset)
{
    index_chunk *c = &e->chunks[i];
    uint64_t size;
    c->offset = *offset;
    if (!read_hex(digits, HASH_DIGITS, &c->hash)) return false;
    for (size_t p = 0; p < nrl_dtype_size(e->tensor.dtype); p++) {
        if (!read_hex(digits, SIZE_DIGITS, &size) || !size || size > (uint64_t)index_chunk_numel(e, i)) return false;
        c->sizes[p] = (uint32_t)size;
        *offset += (int64_t)size;
    }
    return true;
}

static bool read_chunks(arena *a, const nrl_node *n, index_entry *e, int64_t *offset)
{
    const nrl_node *text = nrl_node_find(n, "chunks");
    const char *digits = nrl_node_string(text, "");
    size_t each = HASH_DIGITS + SIZE_DIGITS * nrl_dtype_size(e->tensor.dtype), size = nrl_node_string_size(text);
    e->n_chunks = index_n_chunks(piece_numel(&e->piece), e->tensor.dtype);
    if (size % each || size / each != (size_t)e->n_chunks) return false;
    if (e->n_chunks && nrl_node_int(nrl_node_find(n, "offset"), -1) != *offset) return false;
    e->chunks = arena_try(a, (size_t)e->n_chunks * sizeof *e->chunks, e->tensor.name);
    for (int64_t i = 0; e->chunks && i < e->n_chunks; i++)
        if (!read_chunk(e, i, &digits, offset)) return false;
    return true;
}

static bool read_digests(const nrl_node *n, index_entry *e)
{
    const nrl_node *text = nrl_node_find(n, "blake2b");
    const char *digits = nrl_node_string(text, "");
    uint64_t byte;
    e->has_digests = text != NULL;
    if (!text) return true;
    if (nrl_node_string_size(text) != (size_t)e->n_chunks * 2 * SIGN_DIGEST) return false;
    for (int64_t i = 0; i < e->n_chunks; i++)
        for (size_t k = 0; k < SIGN_DIGEST; k++) {
            if (!read_hex(&digits, 2, &byte)) return false;
            e->chunks[i].digest[k] = (unsigned char)byte;
        }
    return true;
}

/* Elements of one byte are never rotated. */
static bool read_rotation(const nrl_node *n, index_entry *e)
{
    const nrl_node *rotate = nrl_node_find(n, "rotate");
    int64_t most = nrl_dtype_size(e->tensor.dtype) > 1, by = rotate ? nrl_node_int(rotate, -1) : 0;
    e->rotate = (int)by;
    return by >= 0 && by <= most;
}

static nrl_status read_entry(arena *a, const char *path, const nrl_node *n, int64_t *offset, index_entry *e)
{
    e->tensor.name = nrl_node_string(nrl_node_find(n, "name"), "");
    e->tensor.slot = nrl_node_string(nrl_node_find(n, "slot"), "");
    e->tensor.dtype = dtype_named(nrl_node_string(nrl_node_find(n, "dtype"), ""));
    bool ok = *e->tensor.name && *e->tensor.slot && e->tensor.dtype && read_piece(n, e) && read_rotation(n, e) &&
              read_chunks(a, n, e, offset);
    if (ok && !e->chunks) return NRL_ERR_MEMORY;
    if (ok && read_digests(n, e)) return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT, "%s: tensor '%.200s' has an invalid shape, shard, rotation or hash", path,
                    e->tensor.name);
}

nrl_status index_parse(arena *a, const char *path, const char *text, size_t size, int64_t offset, file_index *out)
{
    nrl_node *root;
    nrl_status st = json_parse(a, path, text, size, &root);
    if (st != NRL_OK) return nrl_fail(st == NRL_ERR_MEMORY ? st : NRL_ERR_CORRUPT, "index of %s", nrl_error_text());
    const nrl_node *entries = nrl_node_find(root, "entries");
    int64_t at = FORMAT_HEADER;
    int64_t rank = nrl_node_int(nrl_node_find(root, "rank"), -1);
    int64_t world = nrl_node_int(nrl_node_find(root, "world"), -1);
    if (nrl_node_kind(nrl_node_find(root, "nodes")) != NRL_NODE_MAP || nrl_node_kind(entries) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: the index has no entries or no nodes", path);
    if (rank < 0 || rank >= world || world > FORMAT_MAX_WORLD)
        return nrl_fail(NRL_ERR_CORRUPT, "%s: the index has no valid rank", path);
    *out = (file_index){.rank = (int32_t)rank, .world = (int32_t)world, .nodes = nrl_node_find(root, "nodes")};
    out->n_entries = nrl_node_size(entries);
    out->entries = arena_try(a, (out->n_entries + 1) * sizeof *out->entries, path);
    if (!out->entries) return NRL_ERR_MEMORY;
    for (size_t i = 0; i < out->n_entries; i++) {
        out->entries[i].rank = out->rank;
        NRL_TRY(read_entry(a, path, nrl_node_at(entries, i), &at, &out->entries[i]));
    }
    if (at == offset) return NRL_OK;
    return nrl_fail(NRL_ERR_CORRUPT, "%s: the tensors end at byte %lld, expected %lld", path, (long long)at,
                    (long long)offset);
}
