/*
 * npy.c - a model as numpy arrays: config.json, and a file NAME.npy of little-endian f32 for every
 * tensor. Begin with the table at the end of this file. nrl/format.h describes the arguments and
 * the contract of each member.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, HEADER_SIZE = 4096, PREFIX = 10 }; /* "\x93NUMPY", version 1.0, length of the header */

typedef struct {
    char *name, *path;
    int32_t n_dims;
    int64_t dims[NRL_FORMAT_MAX_DIMS], numel;
    const unsigned char *map; /* the whole file */
    size_t size, begin;       /* bytes; where the values begin */
} npy_array;

typedef struct {
    char path[PATH_SIZE], config_path[PATH_SIZE];
    char *config;
    size_t config_size;
    int64_t n;
    npy_array *arrays;
} npy;

static bool npy_ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && !strcmp(name + n - k, end);
}

static nrl_status npy_join(char path[PATH_SIZE], const char *dir, const char *name, const char *end)
{
    int n = snprintf(path, PATH_SIZE, "%s/%s%s", dir, name, end);
    return n > 0 && n < PATH_SIZE ? NRL_OK : nrl_fail(NRL_ERR_IO, "the path '%s/%s' is too long", dir, name);
}

/* ---- reading ---- */

/* Recognises a directory with config.json and at least one array. */
static int32_t npy_probe(const char *path, const nrl_format_host *host)
{
    (void)host;
    char config[PATH_SIZE];
    bool arrays = false;
    snprintf(config, sizeof config, "%s/config.json", path);
    DIR *d = access(config, F_OK) ? NULL : opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        arrays |= npy_ends_in(e->d_name, ".npy");
    if (d) closedir(d);
    return arrays ? NRL_PROBE_YES + 1 : NRL_PROBE_NO;
}

static void npy_close(void *reader)
{
    npy *m = reader;
    for (int64_t i = 0; i < m->n; i++) {
        if (m->arrays[i].map) munmap((void *)(uintptr_t)m->arrays[i].map, m->arrays[i].size);
        free(m->arrays[i].name);
        free(m->arrays[i].path);
    }
    free(m->arrays);
    free(m->config);
    free(m);
}

/* The content of a text file: `size` bytes and a NUL. */
static nrl_status npy_read_text(const char *path, char **text, size_t *size)
{
    struct stat s;
    FILE *f = fopen(path, "rbe");
    if (!f || fstat(fileno(f), &s)) {
        if (f) fclose(f);
        return nrl_fail(NRL_ERR_DATA, "cannot read '%s': %s", path, strerror(errno));
    }
    *text = calloc(1, (size_t)s.st_size + 1);
    *size = *text ? fread(*text, 1, (size_t)s.st_size, f) : 0;
    fclose(f);
    if (!*text) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %lld bytes for '%s'", (long long)s.st_size, path);
    const char *end = *text + *size;
    while (end > *text && (end[-1] == '\n' || end[-1] == ' '))
        end--;
    if (end > *text && end[-1] == '}') return NRL_OK; /* nrl parses the text; this only detects truncated files */
    return nrl_fail(NRL_ERR_DATA, "'%s' does not end like a JSON map", path);
}

static nrl_status npy_open(const char *path, uint32_t flags, const nrl_format_host *host, void **reader)
{
    (void)host;
    npy *m = calloc(1, sizeof *m);
    if (!m) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a reader");
    snprintf(m->path, sizeof m->path, "%s", path);
    snprintf(m->config_path, sizeof m->config_path, flags & NRL_OPEN_CONFIG ? "%s" : "%s/config.json", path);
    nrl_status st = npy_read_text(m->config_path, &m->config, &m->config_size);
    if (st == NRL_OK)
        *reader = m;
    else
        npy_close(m);
    return st;
}

static void npy_info(const void *reader, nrl_format_info *info)
{
    const npy *m = reader;
    info->path = m->path;
    info->config = m->config;
    info->config_size = m->config_size;
    info->config_path = m->config_path;
    info->companions = m->path;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), } */
static nrl_status npy_read_header(npy_array *a)
{
    char header[HEADER_SIZE], *at;
    size_t length = a->size < PREFIX ? 0 : a->map[8] + 256u * a->map[9];
    if (a->size < PREFIX || memcmp(a->map, "\x93NUMPY\x01", 7) || length >= sizeof header || length > a->size - PREFIX)
        return nrl_fail(NRL_ERR_DATA, "'%s' is not an .npy file of version 1, or is truncated", a->path);
    memcpy(header, a->map + PREFIX, length);
    header[length] = 0;
    a->begin = PREFIX + length;
    at = strstr(header, "'shape': (");
    if (!at || !strstr(header, "'<f4'") || !strstr(header, "'fortran_order': False"))
        return nrl_fail(NRL_ERR_DATA, "cannot read '%s': expected '<f4' in C order, got %s", a->path, header);
    a->numel = 1;
    for (at += strlen("'shape': ("); *at && *at != ')'; at += strspn(at, ", ")) {
        char *end;
        long long d = strtoll(at, &end, 10);
        if (end == at || d < 0 || a->n_dims == NRL_FORMAT_MAX_DIMS || __builtin_mul_overflow(a->numel, d, &a->numel))
            return nrl_fail(NRL_ERR_DATA, "'%s' has no valid shape: %s", a->path, header);
        a->dims[a->n_dims++] = d;
        at = end;
    }
    size_t bytes;
    if (!__builtin_mul_overflow((size_t)a->numel, sizeof(float), &bytes) && bytes == a->size - a->begin) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "'%s' has %zu bytes of values, expected %lld elements", a->path, a->size - a->begin,
                    (long long)a->numel);
}

static nrl_status npy_map(npy_array *a)
{
    struct stat s;
    int fd = open(a->path, O_RDONLY | O_CLOEXEC);
    void *map = MAP_FAILED;
    if (fd >= 0 && !fstat(fd, &s) && s.st_size > 0) map = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0) close(fd);
    if (map == MAP_FAILED) return nrl_fail(NRL_ERR_DATA, "cannot map '%s'", a->path);
    a->map = map;
    a->size = (size_t)s.st_size;
    return npy_read_header(a);
}

static nrl_status npy_add(npy *m, const char *file)
{
    char path[PATH_SIZE];
    NRL_TRY(npy_join(path, m->path, file, ""));
    npy_array *more = realloc(m->arrays, (size_t)(m->n + 1) * sizeof *more);
    if (!more) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a list of %lld arrays", (long long)m->n + 1);
    m->arrays = more;
    npy_array *a = &m->arrays[m->n];
    memset(a, 0, sizeof *a);
    a->path = strdup(path);
    a->name = strndup(file, strlen(file) - strlen(".npy"));
    m->n++;
    return npy_map(a);
}

static nrl_status npy_load(void *reader)
{
    npy *m = reader;
    nrl_status st = NRL_OK;
    DIR *d = opendir(m->path);
    if (!d) return nrl_fail(NRL_ERR_IO, "cannot read '%s': %s", m->path, strerror(errno));
    for (struct dirent *e; st == NRL_OK && (e = readdir(d));)
        if (npy_ends_in(e->d_name, ".npy")) st = npy_add(m, e->d_name);
    closedir(d);
    return st;
}

static int64_t npy_n_tensors(const void *reader)
{
    return ((const npy *)reader)->n;
}

static void npy_tensor(const void *reader, int64_t i, nrl_format_tensor *tensor)
{
    const npy_array *a = &((const npy *)reader)->arrays[i];
    tensor->dtype = NRL_DTYPE_F32;
    tensor->name = a->name;
    tensor->type = "<f4";
    tensor->file = a->path;
    tensor->n_dims = a->n_dims;
    memcpy(tensor->dims, a->dims, sizeof a->dims);
}

static nrl_status npy_read(const void *reader, int64_t i, int64_t begin, int64_t n, float *out)
{
    const npy_array *a = &((const npy *)reader)->arrays[i];
    memcpy(out, a->map + a->begin + (size_t)begin * sizeof *out, (size_t)n * sizeof *out);
    return NRL_OK;
}

/* ---- writing ---- */

typedef struct {
    nrl_format_write what;
    int64_t at; /* the tensor whose file is open; -1 = none */
    FILE *file;
    char path[PATH_SIZE];
} npy_writer;

static const nrl_format_tensor *npy_wanted(const npy_writer *w, int64_t i)
{
    return (const void *)((const char *)w->what.tensors + (size_t)i * w->what.tensor_size);
}

static nrl_status npy_failed(const npy_writer *w)
{
    nrl_status code = errno == ENOSPC || errno == EFBIG ? NRL_ERR_FULL : NRL_ERR_IO;
    return nrl_fail(code, "cannot write '%s': %s", w->path, strerror(errno));
}

static nrl_status npy_close_file(npy_writer *w)
{
    if (!w->file) return NRL_OK;
    bool bad = fflush(w->file) || fsync(fileno(w->file));
    bad |= fclose(w->file) != 0;
    w->file = NULL;
    return bad ? npy_failed(w) : NRL_OK;
}

static nrl_status npy_open_file(npy_writer *w, const char *name, const char *end)
{
    NRL_TRY(npy_join(w->path, w->what.dir, name, end));
    w->file = fopen(w->path, "wbe");
    return w->file ? NRL_OK : npy_failed(w);
}

/* Values begin at a multiple of 64 bytes. */
static nrl_status npy_next(npy_writer *w)
{
    const nrl_format_tensor *t = npy_wanted(w, ++w->at);
    char header[HEADER_SIZE];
    int n = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int k = 0; k < t->n_dims; k++)
        n += snprintf(header + n, sizeof header - (size_t)n, "%lld,%s", (long long)t->dims[k],
                      k + 1 < t->n_dims ? " " : "");
    n += snprintf(header + n, sizeof header - (size_t)n, "), }");
    while ((PREFIX + n + 1) % 64)
        header[n++] = ' ';
    header[n++] = '\n';
    const unsigned char prefix[PREFIX] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n, (unsigned char)(n >> 8)};
    NRL_TRY(npy_close_file(w));
    if (strchr(t->name, '/')) return nrl_fail(NRL_ERR_CONFIG, "tensor '%s' cannot be the name of a file", t->name);
    NRL_TRY(npy_open_file(w, t->name, ".npy"));
    bool whole = fwrite(prefix, 1, PREFIX, w->file) == PREFIX && fwrite(header, 1, (size_t)n, w->file) == (size_t)n;
    return whole ? NRL_OK : npy_failed(w);
}

static nrl_status npy_begin(const nrl_format_write *what, void **writer)
{
    if (what->dtype != NRL_DTYPE_F32)
        return nrl_fail(NRL_ERR_CONFIG, "cannot write %s: this format only writes f32",
                        nrl_dtype_name((nrl_dtype)what->dtype));
    npy_writer *w = calloc(1, sizeof *w);
    if (!w) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a writer");
    w->what = *what;
    w->at = -1;
    *writer = w;
    return NRL_OK;
}

static nrl_status npy_write(void *writer, int64_t i, int64_t n, const float *values)
{
    npy_writer *w = writer;
    while (w->at < i)
        NRL_TRY(npy_next(w));
    return fwrite(values, sizeof *values, (size_t)n, w->file) == (size_t)n ? NRL_OK : npy_failed(w);
}

static void npy_abandon(void *writer)
{
    npy_writer *w = writer;
    if (w->file) fclose(w->file);
    free(w);
}

/* Empty tensors at the end were not written yet. */
static nrl_status npy_finish(void *writer)
{
    npy_writer *w = writer;
    nrl_status st = NRL_OK;
    while (st == NRL_OK && w->at + 1 < w->what.n_tensors)
        st = npy_next(w);
    if (st == NRL_OK) st = npy_close_file(w);
    if (st == NRL_OK) st = npy_open_file(w, "config.json", "");
    if (st == NRL_OK && fwrite(w->what.config, 1, w->what.config_size, w->file) != w->what.config_size)
        st = npy_failed(w);
    if (st == NRL_OK) st = npy_close_file(w);
    npy_abandon(w);
    return st;
}

static bool npy_owns(const char *name)
{
    return !strcmp(name, "config.json") || npy_ends_in(name, ".npy");
}

static const char *const npy_travelling[] = {"tokenizer.json",      "tokenizer_config.json",  "tokenizer.model",
                                             "chat_template.jinja", "generation_config.json", NULL};

static const nrl_format table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_FORMAT, nrl_format, "npy", "1.0", "a model as numpy arrays, one file per tensor"),
    .holds = NRL_HOLDS_MODEL,
    .probe = npy_probe,
    .open = npy_open,
    .close = npy_close,
    .info = npy_info,
    .load = npy_load,
    .n_tensors = npy_n_tensors,
    .tensor = npy_tensor,
    .read = npy_read,
    .begin = npy_begin,
    .write = npy_write,
    .finish = npy_finish,
    .abandon = npy_abandon,
    .owns = npy_owns,
    .travelling = npy_travelling,
};
NRL_EXPORT(table)
