/*
 * @NAME@.c - reads a model from a directory with config.json, index.txt (lines "NAME ROWS COLUMNS")
 * and a file NAME.raw of f32 for each tensor: replace it by your own format. nrl/format.h describes
 * the arguments and the contract of each member; begin, write, finish, abandon and owns are the
 * members of a writer (examples/npy has one).
 */
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { @NAME@_PATH = 4096, @NAME@_MAX = 4096 };

typedef struct {
    char name[256], path[@NAME@_PATH];
    int64_t rows, columns;
} @NAME@_tensor;

typedef struct {
    char path[@NAME@_PATH], config_path[@NAME@_PATH], config[1 << 16];
    int64_t n;
    @NAME@_tensor tensors[@NAME@_MAX];
} @NAME@_reader;

static int32_t @NAME@_probe(const char *path, const nrl_format_host *host)
{
    (void)host;
    char index[@NAME@_PATH];
    snprintf(index, sizeof index, "%s/index.txt", path);
    return access(index, F_OK) ? NRL_PROBE_NO : NRL_PROBE_YES;
}

static void @NAME@_close(void *reader)
{
    free(reader);
}

static nrl_status @NAME@_open(const char *path, uint32_t flags, const nrl_format_host *host, void **reader)
{
    (void)host;
    @NAME@_reader *r = calloc(1, sizeof *r);
    if (!r) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a reader");
    snprintf(r->path, sizeof r->path, "%s", path);
    snprintf(r->config_path, sizeof r->config_path, flags & NRL_OPEN_CONFIG ? "%s" : "%s/config.json", path);
    FILE *f = fopen(r->config_path, "rbe");
    size_t n = f ? fread(r->config, 1, sizeof r->config - 1, f) : 0;
    if (f) fclose(f);
    if (n) {
        *reader = r;
        return NRL_OK;
    }
    free(r);
    return nrl_fail(NRL_ERR_DATA, "cannot read '%s/config.json'", path);
}

static void @NAME@_info(const void *reader, nrl_format_info *info)
{
    const @NAME@_reader *r = reader;
    info->path = r->path;
    info->config = r->config;
    info->config_size = strlen(r->config);
    info->config_path = r->config_path;
    info->companions = r->path; /* the tokenizer is in the same directory */
}

static nrl_status @NAME@_load(void *reader)
{
    @NAME@_reader *r = reader;
    char path[@NAME@_PATH + 16];
    snprintf(path, sizeof path, "%s/index.txt", r->path);
    FILE *f = fopen(path, "re");
    if (!f) return nrl_fail(NRL_ERR_DATA, "cannot read '%s'", path);
    long long rows, columns;
    for (@NAME@_tensor *t = r->tensors; r->n < @NAME@_MAX && fscanf(f, "%255s %lld %lld", t->name, &rows, &columns) == 3; t++) {
        t->rows = rows;
        t->columns = columns;
        if (snprintf(t->path, sizeof t->path, "%s/%s.raw", r->path, t->name) < (int)sizeof t->path) r->n++;
    }
    fclose(f);
    return r->n ? NRL_OK : nrl_fail(NRL_ERR_DATA, "'%s' lists no tensor", path);
}

static int64_t @NAME@_n_tensors(const void *reader)
{
    return ((const @NAME@_reader *)reader)->n;
}

static void @NAME@_describe(const void *reader, int64_t i, nrl_format_tensor *tensor)
{
    const @NAME@_tensor *t = &((const @NAME@_reader *)reader)->tensors[i];
    tensor->dtype = NRL_DTYPE_F32;
    tensor->name = t->name;
    tensor->type = "F32";
    tensor->file = t->path;
    tensor->n_dims = t->columns ? 2 : 1;
    tensor->dims[0] = t->rows;
    tensor->dims[1] = t->columns;
}

/* Called by several threads, so each call opens the file itself. */
static nrl_status @NAME@_read(const void *reader, int64_t i, int64_t begin, int64_t n, float *out)
{
    const @NAME@_tensor *t = &((const @NAME@_reader *)reader)->tensors[i];
    FILE *f = fopen(t->path, "rbe");
    bool whole = f && !fseek(f, (long)(begin * (int64_t)sizeof *out), SEEK_SET) &&
                 fread(out, sizeof *out, (size_t)n, f) == (size_t)n;
    if (f) fclose(f);
    return whole ? NRL_OK : nrl_fail(NRL_ERR_DATA, "cannot read %lld values of '%s'", (long long)n, t->path);
}

static const nrl_format @NAME@ = {
    NRL_PLUGIN_PLAIN(NRL_KIND_FORMAT, nrl_format, "@NAME@", "0.1", "one line for `nrl plugins`"),
    .holds = NRL_HOLDS_MODEL,
    .probe = @NAME@_probe,
    .open = @NAME@_open,
    .close = @NAME@_close,
    .info = @NAME@_info,
    .load = @NAME@_load,
    .n_tensors = @NAME@_n_tensors,
    .tensor = @NAME@_describe,
    .read = @NAME@_read,
};
NRL_EXPORT(@NAME@)
