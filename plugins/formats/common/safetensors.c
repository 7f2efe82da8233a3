/*
 * safetensors.c - maps and checks weight files.
 */
#include "safetensors.h"
#include "base/convert.h"
#include "base/json.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The format's own limit on headers. */
enum { LENGTH_BYTES = 8, MAX_HEADER = 100000000 };

typedef struct {
    const char *name;
    size_t bytes;
    nrl_dtype dtype;
} type_row;

static const type_row types[] = {
    {"F32", 4, NRL_DTYPE_F32},      {"BF16", 2, NRL_DTYPE_BF16},    {"F16", 2, NRL_DTYPE_F16},
    {"F64", 8, NRL_DTYPE_F64},      {"I64", 8, NRL_DTYPE_I64},      {"I32", 4, NRL_DTYPE_I32},
    {"U8", 1, NRL_DTYPE_U8},        {"BOOL", 1, NRL_DTYPE_U8},      {"I8", 1, NRL_DTYPE_NONE},
    {"I16", 2, NRL_DTYPE_NONE},     {"U16", 2, NRL_DTYPE_NONE},     {"U32", 4, NRL_DTYPE_NONE},
    {"U64", 8, NRL_DTYPE_NONE},     {"F8_E4M3", 1, NRL_DTYPE_NONE}, {"F8_E5M2", 1, NRL_DTYPE_NONE},
    {"F8_E8M0", 1, NRL_DTYPE_NONE}, {"C64", 8, NRL_DTYPE_NONE},
};

void safetensors_shape_text(int n_dims, const int64_t *dims, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, i ? ", %lld" : "%lld", (long long)dims[i]);
    if (used < size) snprintf(text + used, size - used, "]");
}

static const type_row *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name)) return &types[i];
    return NULL;
}

/* "shape": a list of sizes; zero is a size. */
static nrl_status read_shape(const nrl_node *list, safetensor *t)
{
    if (nrl_node_kind(list) != NRL_NODE_LIST) return nrl_fail(NRL_ERR_DATA, "'shape' is not a list");
    if (nrl_node_size(list) > SAFETENSORS_MAX_DIMS)
        return nrl_fail(NRL_ERR_DATA, "%zu dimensions; expected at most %d", nrl_node_size(list),
                        (int)SAFETENSORS_MAX_DIMS);
    t->n_dims = (int)nrl_node_size(list);
    t->numel = 1;
    for (int i = 0; i < t->n_dims; i++) {
        const nrl_node *d = nrl_node_at(list, (size_t)i);
        t->dims[i] = nrl_node_kind(d) == NRL_NODE_INT ? nrl_node_int(d, -1) : -1;
        if (t->dims[i] < 0 || __builtin_mul_overflow(t->numel, t->dims[i], &t->numel))
            return nrl_fail(NRL_ERR_DATA, "'shape' has a value that is not a size");
    }
    return NRL_OK;
}

/* "data_offsets": [begin, end) in the data part. */
static nrl_status read_offsets(const nrl_node *list, size_t data_bytes, safetensor *t)
{
    const nrl_node *b = nrl_node_at(list, 0), *e = nrl_node_at(list, 1);
    if (nrl_node_kind(list) != NRL_NODE_LIST || nrl_node_size(list) != 2 || nrl_node_kind(b) != NRL_NODE_INT ||
        nrl_node_kind(e) != NRL_NODE_INT)
        return nrl_fail(NRL_ERR_DATA, "'data_offsets' is not a list of two integers");
    int64_t begin = nrl_node_int(b, -1), end = nrl_node_int(e, -1);
    if (begin < 0 || end < begin)
        return nrl_fail(NRL_ERR_DATA, "'data_offsets' [%lld, %lld] is not a range", (long long)begin, (long long)end);
    if ((uint64_t)end > data_bytes)
        return nrl_fail(NRL_ERR_DATA,
                        "its data ends at byte %lld, but the file has %zu bytes of data: the file "
                        "is truncated",
                        (long long)end, data_bytes);
    t->begin = (size_t)begin;
    t->size_bytes = (size_t)(end - begin);
    return NRL_OK;
}

static nrl_status read_tensor(const nrl_node *entry, size_t data_bytes, safetensor *t)
{
    if (nrl_node_kind(entry) != NRL_NODE_MAP) return nrl_fail(NRL_ERR_DATA, "not a map");
    t->type = nrl_node_string(nrl_node_find(entry, "dtype"), "");
    const type_row *type = find_type(t->type);
    if (!type) return nrl_fail(NRL_ERR_DATA, "unknown dtype '%.40s'", t->type);
    t->dtype = type->dtype;
    NRL_TRY(read_shape(nrl_node_find(entry, "shape"), t));
    NRL_TRY(read_offsets(nrl_node_find(entry, "data_offsets"), data_bytes, t));
    int64_t bytes;
    if (__builtin_mul_overflow(t->numel, (int64_t)type->bytes, &bytes) || (uint64_t)bytes != t->size_bytes) {
        char shape[200];
        safetensors_shape_text(t->n_dims, t->dims, shape, sizeof shape);
        return nrl_fail(NRL_ERR_DATA, "%s of shape %s does not fit its %zu bytes", t->type, shape, t->size_bytes);
    }
    return NRL_OK;
}

static int by_begin(const void *x, const void *y)
{
    const safetensor *a = *(safetensor *const *)x, *b = *(safetensor *const *)y;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->size_bytes < b->size_bytes ? -1 : a->size_bytes > b->size_bytes;
}

/* Sorted by begin, each tensor must start where the previous one ends, and the last one must end the file. */
static nrl_status check_cover(const safetensors *f, size_t data_bytes)
{
    safetensor **sorted = mem_alloc((size_t)f->n * sizeof *sorted);
    for (int64_t i = 0; i < f->n; i++)
        sorted[i] = &f->tensors[i];
    qsort(sorted, (size_t)f->n, sizeof *sorted, by_begin);
    nrl_status st = NRL_OK;
    size_t at = 0;
    for (int64_t i = 0; i < f->n && st == NRL_OK; i++) {
        if (sorted[i]->begin != at)
            st = nrl_fail(NRL_ERR_DATA, "%s: tensor '%.200s' begins at byte %zu of the data; expected %zu: %s", f->path,
                          sorted[i]->name, sorted[i]->begin, at,
                          sorted[i]->begin < at ? "two tensors overlap" : "there is a hole");
        at = sorted[i]->begin + sorted[i]->size_bytes;
    }
    free(sorted);
    if (st == NRL_OK && at != data_bytes)
        st = nrl_fail(NRL_ERR_DATA, "%s: %zu unused bytes after the last tensor", f->path, data_bytes - at);
    return st;
}

static nrl_status read_header(arena *a, const nrl_node *header, const unsigned char *data, size_t data_bytes,
                              safetensors *f)
{
    size_t n = nrl_node_size(header);
    f->tensors = arena_alloc(a, (n ? n : 1) * sizeof *f->tensors);
    for (size_t i = 0; i < n; i++) {
        const char *name = nrl_node_key(header, i);
        if (!strcmp(name, "__metadata__")) continue;
        safetensor *t = &f->tensors[f->n];
        *t = (safetensor){.name = name, .path = f->path};
        nrl_status st = read_tensor(nrl_node_at(header, i), data_bytes, t);
        if (st != NRL_OK) {
            nrl_add_context("%s: tensor '%.200s'", f->path, name);
            return st;
        }
        t->data = data + t->begin;
        f->n++;
    }
    return check_cover(f, data_bytes);
}

nrl_status safetensors_parse(arena *a, const char *path, const unsigned char *bytes, size_t size, safetensors *out)
{
    *out = (safetensors){.path = arena_strdup(a, path)};
    if (size < LENGTH_BYTES)
        return nrl_fail(NRL_ERR_DATA, "%s: %zu bytes are too few for a safetensors file", path, size);
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (!memcmp(bytes, "version ", LENGTH_BYTES))
        return nrl_fail(NRL_ERR_DATA,
                        "%s: a Git LFS pointer, not the file itself\nhint: fetch the file with `git lfs pull`", path);
    if (length > MAX_HEADER)
        return nrl_fail(NRL_ERR_DATA, "%s: a header of %llu bytes, expected at most %d: not a safetensors file", path,
                        (unsigned long long)length, (int)MAX_HEADER);
    if (length > size - LENGTH_BYTES)
        return nrl_fail(NRL_ERR_DATA, "%s: a header of %llu bytes in a file of %zu: the file is truncated", path,
                        (unsigned long long)length, size);
    nrl_node *header;
    NRL_TRY(json_parse(a, out->path, (const char *)bytes + LENGTH_BYTES, (size_t)length, &header));
    if (nrl_node_kind(header) != NRL_NODE_MAP) return nrl_fail(NRL_ERR_DATA, "%s: the header is not a JSON map", path);
    size_t begin = LENGTH_BYTES + (size_t)length;
    return read_header(a, header, bytes + begin, size - begin, out);
}

static nrl_status map_file(const char *path, const unsigned char **map, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe without a writer must not block */
    if (fd < 0) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(errno));
    struct stat s;
    if (fstat(fd, &s) < 0 || !S_ISREG(s.st_mode)) {
        close(fd);
        return nrl_fail(NRL_ERR_IO, "%s: not a regular file", path);
    }
    *size = (size_t)s.st_size;
    *map = NULL;
    void *at = *size ? mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int error = errno;
    close(fd);
    if (at == MAP_FAILED) return nrl_fail(NRL_ERR_IO, "%s: %s", path, strerror(error));
    *map = at;
    return NRL_OK;
}

nrl_status safetensors_open(arena *a, const char *path, safetensors *out)
{
    const unsigned char *map;
    size_t size = 0;
    *out = (safetensors){0};
    NRL_TRY(map_file(path, &map, &size));
    nrl_status st = safetensors_parse(a, path, map, size, out);
    out->map = map;
    out->map_bytes = size;
    if (st != NRL_OK) safetensors_close(out);
    return st;
}

void safetensors_close(safetensors *f)
{
    if (f->map) munmap((void *)(uintptr_t)f->map, f->map_bytes);
    *f = (safetensors){0};
}

void safetensor_describe(const safetensor *t, nrl_format_tensor *out)
{
    out->dtype = convert_known(t->dtype) ? t->dtype : NRL_DTYPE_NONE;
    out->name = t->name;
    out->type = t->type;
    out->file = t->path;
    out->n_dims = t->n_dims;
    memcpy(out->dims, t->dims, (size_t)t->n_dims * sizeof *t->dims);
}
