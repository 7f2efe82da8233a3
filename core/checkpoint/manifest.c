/*
 * manifest.c - the manifest to text and back. Its first member is the XXH3 of all text behind it:
 *   { "xxh3": "<32 hex digits>", "format": 3, "step": 200, ... }
 */
#include "checkpoint/manifest.h"
#include "base/json.h"
#include "checkpoint/index.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "{\n \"xxh3\": \"";

/* ---- writing ---- */

static nrl_node *files_node(arena *a, const manifest *m)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (int32_t i = 0; i < m->world; i++) {
        nrl_node *file = node_new(a, NRL_NODE_MAP);
        node_append_int(a, file, "size", m->files[i].size);
        node_append_int(a, file, "index", m->files[i].index);
        node_append_text(a, file, "xxh3", m->files[i].hash);
        node_append(a, list, NULL, file);
    }
    return list;
}

static nrl_node *manifest_node(arena *a, const manifest *m)
{
    char zeros[FORMAT_HASH_DIGITS + 1] = {0};
    nrl_node *root = node_new(a, NRL_NODE_MAP);
    memset(zeros, '0', FORMAT_HASH_DIGITS);
    node_append_text(a, root, "xxh3", zeros);
    node_append_int(a, root, "format", FORMAT_VERSION);
    node_append_int(a, root, "step", m->step);
    if (isfinite(m->metric)) node_append(a, root, "metric", node_f64(a, m->metric));
    node_append_int(a, root, "world", m->world);
    node_append(a, root, "files", files_node(a, m));
    node_append(a, root, "nodes", m->nodes ? node_copy(a, m->nodes) : node_new(a, NRL_NODE_MAP));
    return root;
}

char *manifest_write(const manifest *m, size_t *size)
{
    arena a = {0};
    char digits[FORMAT_HASH_DIGITS + 1], *text = json_write(manifest_node(&a, m), 1);
    size_t begin = sizeof head - 1, after = begin + FORMAT_HASH_DIGITS;
    *size = strlen(text);
    NRL_ASSERT(memcmp(text, head, begin), ==, 0);
    index_hash(text + after, *size - after, digits);
    memcpy(text + begin, digits, FORMAT_HASH_DIGITS);
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
    char digits[FORMAT_HASH_DIGITS + 1];
    size_t begin = sizeof head - 1, after = begin + FORMAT_HASH_DIGITS;
    if (size <= after || memcmp(text, head, begin)) return corrupt(path, "is no manifest of a checkpoint");
    index_hash(text + after, size - after, digits);
    if (memcmp(text + begin, digits, FORMAT_HASH_DIGITS)) return corrupt(path, "its hash does not match");
    return NRL_OK;
}

static bool read_file(const nrl_node *n, manifest_file *out)
{
    const char *hash = nrl_node_string(nrl_node_find(n, "xxh3"), "");
    out->size = nrl_node_int(nrl_node_find(n, "size"), -1);
    out->index = nrl_node_int(nrl_node_find(n, "index"), -1);
    if (out->index < FORMAT_HEADER || out->index > out->size || out->size - out->index > FORMAT_MAX_INDEX ||
        strlen(hash) != FORMAT_HASH_DIGITS)
        return false;
    memcpy(out->hash, hash, FORMAT_HASH_DIGITS + 1);
    return true;
}

static nrl_status read_root(arena *a, const char *path, const nrl_node *root, manifest *out)
{
    int64_t format = nrl_node_int(nrl_node_find(root, "format"), -1);
    int64_t world = nrl_node_int(nrl_node_find(root, "world"), -1);
    const nrl_node *files = nrl_node_find(root, "files");
    *out = (manifest){.metric = nrl_node_f64(nrl_node_find(root, "metric"), NAN)};
    if (format != FORMAT_VERSION)
        return nrl_fail(NRL_ERR_DATA, "%s: has format %lld, this version of nrl reads %d", path, (long long)format,
                        FORMAT_VERSION);
    out->step = nrl_node_int(nrl_node_find(root, "step"), -1);
    out->nodes = nrl_node_find(root, "nodes");
    if (out->step < 0) return corrupt(path, "has no step");
    if (world < 1 || world > FORMAT_MAX_WORLD || nrl_node_kind(files) != NRL_NODE_LIST ||
        nrl_node_size(files) != (size_t)world)
        return corrupt(path, "does not name one file for each rank");
    out->world = (int32_t)world;
    out->files = arena_alloc(a, (size_t)world * sizeof *out->files);
    for (int32_t i = 0; i < out->world; i++)
        if (!read_file(nrl_node_at(files, (size_t)i), &out->files[i]))
            return nrl_fail(NRL_ERR_CORRUPT, "%s: file %d has a size or hash that cannot be", path, i);
    return NRL_OK;
}

nrl_status manifest_parse(arena *a, const char *path, const char *text, size_t size, manifest *out)
{
    nrl_node *root;
    if (json_parse(a, path, text, size, &root) != NRL_OK) return nrl_fail(NRL_ERR_CORRUPT, "%s", nrl_error_text());
    return read_root(a, path, root, out);
}

nrl_status manifest_check(arena *a, const char *path, const char *text, size_t size, manifest *out)
{
    NRL_TRY(check_hash(path, text, size));
    return manifest_parse(a, path, text, size, out);
}
