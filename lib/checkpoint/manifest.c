/*
 * manifest.c - writes and parses the manifest. Its first member is the XXH3-128 of all text after it:
 *   { "xxh3": "<32 hex digits>", "format": 3, "step": 200, ... }
 */
#include "checkpoint/manifest.h"
#include "base/json.h"
#include "checkpoint/index.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "{\n \"xxh3\": \"";

/* ---- writing ---- */

static nrl_node *manifest_node(arena *a, const manifest *m)
{
    char zeros[FORMAT_HASH_DIGITS + 1] = {0};
    nrl_node *root = node_new(a, NRL_NODE_MAP), *files = node_new(a, NRL_NODE_LIST), *nodes = node_new(a, NRL_NODE_MAP);
    memset(zeros, '0', FORMAT_HASH_DIGITS);
    for (int32_t i = 0; i < m->world; i++) {
        nrl_node *file = node_new(a, NRL_NODE_MAP);
        node_append_int(a, file, "size", m->files[i].size);
        node_append_int(a, file, "index", m->files[i].index);
        node_append_text(a, file, "xxh3", m->files[i].hash);
        if (*m->files[i].digest) node_append_text(a, file, "blake2b", m->files[i].digest);
        node_append(a, files, NULL, file);
    }
    if (m->nodes) *nodes = *m->nodes; /* shares the children */
    node_append_text(a, root, "xxh3", zeros);
    node_append_int(a, root, "format", FORMAT_VERSION);
    node_append_int(a, root, "step", m->step);
    if (isfinite(m->metric)) node_append(a, root, "metric", node_f64(a, m->metric));
    node_append_int(a, root, "world", m->world);
    node_append(a, root, "files", files);
    node_append(a, root, "nodes", nodes);
    return root;
}

char *manifest_write(const manifest *m, size_t *size)
{
    enum { KEYS = 7, FILE_KEYS = 4 };
    arena a = {0};
    buffer b = {.what = "the manifest of a checkpoint"};
    size_t world = (size_t)m->world, file = node_room(FILE_KEYS, 0) + FILE_KEYS * node_room(0, SIGN_DIGEST_TEXT);
    size_t room = node_room(KEYS, 0) + KEYS * node_room(0, FORMAT_HASH_DIGITS) + node_room(world, 0) + world * file;
    char digits[FORMAT_HASH_DIGITS + 1], *text = NULL;
    size_t begin = sizeof head - 1, after = begin + FORMAT_HASH_DIGITS;
    if (arena_reserve(&a, room, b.what) == NRL_OK) {
        json_add(&b, manifest_node(&a, m), 1);
        *size = b.size;
        text = buffer_take(&b);
    }
    if (text) {
        NRL_ASSERT(memcmp(text, head, begin), ==, 0);
        index_hash(text + after, *size - after, digits);
        memcpy(text + begin, digits, FORMAT_HASH_DIGITS);
    }
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
    if (size <= after || memcmp(text, head, begin)) return corrupt(path, "is not the manifest of a checkpoint");
    index_hash(text + after, size - after, digits);
    if (memcmp(text + begin, digits, FORMAT_HASH_DIGITS)) return corrupt(path, "the hash does not match");
    return NRL_OK;
}

static nrl_status other_format(const char *path, int64_t format)
{
    return nrl_fail(NRL_ERR_DATA, "%s: has format %lld, but this version of nrl reads format %d", path,
                    (long long)format, FORMAT_VERSION);
}

/* Reads an integer from `least` to `most`. Returns false for anything else and for a missing value. */
static bool read_count(const nrl_node *map, const char *key, int64_t least, int64_t most, int64_t *out)
{
    const nrl_node *n = nrl_node_find(map, key);
    *out = nrl_node_int(n, 0);
    return nrl_node_kind(n) == NRL_NODE_INT && *out >= least && *out <= most;
}

static bool read_file(const nrl_node *n, manifest_file *out)
{
    const char *hash = nrl_node_string(nrl_node_find(n, "xxh3"), "");
    const char *digest = nrl_node_string(nrl_node_find(n, "blake2b"), "");
    if (!read_count(n, "size", FORMAT_HEADER, INT64_MAX, &out->size) ||
        !read_count(n, "index", FORMAT_HEADER, out->size, &out->index) || out->size - out->index > FORMAT_MAX_INDEX ||
        strlen(hash) != FORMAT_HASH_DIGITS || (*digest && strlen(digest) != SIGN_DIGEST_TEXT - 1))
        return false;
    memcpy(out->hash, hash, FORMAT_HASH_DIGITS + 1);
    memcpy(out->digest, digest, strlen(digest) + 1);
    return true;
}

static nrl_status read_root(arena *a, const char *path, const nrl_node *root, manifest *out)
{
    const nrl_node *metric = nrl_node_find(root, "metric"), *files = nrl_node_find(root, "files");
    int64_t format, world;
    *out = (manifest){.nodes = nrl_node_find(root, "nodes"), .metric = nrl_node_f64(metric, NAN)};
    if (!read_count(root, "format", 1, INT32_MAX, &format)) return corrupt(path, "has no format");
    if (format != FORMAT_VERSION) return other_format(path, format);
    if (!read_count(root, "step", 0, FORMAT_MAX_STEP, &out->step)) return corrupt(path, "has no step");
    if (!read_count(root, "world", 1, FORMAT_MAX_WORLD, &world)) return corrupt(path, "has no number of ranks");
    if (metric && !isfinite(out->metric)) return corrupt(path, "has a metric that is not a number");
    if (nrl_node_kind(out->nodes) != NRL_NODE_MAP) return corrupt(path, "has no nodes");
    if (nrl_node_kind(files) != NRL_NODE_LIST || nrl_node_size(files) != (size_t)world)
        return corrupt(path, "does not list one file per rank");
    out->world = (int32_t)world;
    out->files = arena_try(a, (size_t)world * sizeof *out->files, path);
    if (!out->files) return NRL_ERR_MEMORY;
    for (int32_t i = 0; i < out->world; i++)
        if (!read_file(nrl_node_at(files, (size_t)i), &out->files[i]))
            return nrl_fail(NRL_ERR_CORRUPT, "%s: file %d has an invalid size or hash", path, i);
    return NRL_OK;
}

nrl_status manifest_parse(arena *a, const char *path, const char *text, size_t size, manifest *out)
{
    nrl_node *root;
    nrl_status st = json_parse(a, path, text, size, &root);
    if (st == NRL_ERR_MEMORY) return st;
    if (st != NRL_OK) return nrl_fail(NRL_ERR_CORRUPT, "%s", nrl_error_text());
    return read_root(a, path, root, out);
}

nrl_status manifest_check(arena *a, const char *path, const char *text, size_t size, manifest *out)
{
    if (check_hash(path, text, size) != NRL_OK) {
        /* A later format may hash its manifest in another way. Such a manifest must not be reported as damaged. */
        nrl_node *root;
        bool is_json = json_parse(a, path, text, size, &root) == NRL_OK;
        int64_t format = is_json ? nrl_node_int(nrl_node_find(root, "format"), FORMAT_VERSION) : FORMAT_VERSION;
        if (format > FORMAT_VERSION) return other_format(path, format);
        return check_hash(path, text, size);
    }
    return manifest_parse(a, path, text, size, out);
}
