/*
 * parquet.c - rows from Parquet files, Arrow files and streams, and folders that save_to_disk of Hugging Face's
 * datasets wrote. The reading of files is in arrow_reader.cpp. Lists and structures become lists and maps; the place of
 * a row is its number.
 */
#include "arrow_reader.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_STATE = 16 << 20 };

typedef struct {
    const nrl_node *columns;
} parquet_options;

static const nrl_option parquet_rows[] = {
    NRL_OPT_NODE(parquet_options, columns, "[]", "names of the columns to read; empty: all"),
};

typedef struct {
    char *path;
    const parquet_options *options;
    char **files; /* [n_files] of a folder, or the path itself */
    size_t n_files, at;
    arrow_reader *reader; /* of files[at] */
    int64_t row;          /* of the next range */
    int64_t bytes, rows;
    char hash[HASH_TEXT]; /* of a folder; "" for a file */
} parquet_dataset;

typedef struct {
    const char *path;
    arrow_rows *rows;
    int64_t first, n_read;
} parquet_range;

/* ---- opening ---- */

static bool parquet_is_there(const char *folder, const char *name)
{
    char *path = mem_printf("%s/%s", folder, name);
    bool there = !access(path, F_OK);
    free(path);
    return there;
}

static bool parquet_begins(const char *path)
{
    char magic[6] = {0};
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, magic, sizeof magic);
    if (fd >= 0) close(fd);
    return n == sizeof magic &&
           (!memcmp(magic, "PAR1", 4) || !memcmp(magic, "ARROW1", 6) || !memcmp(magic, "\xFF\xFF\xFF\xFF", 4));
}

static int32_t parquet_probe(const nrl_dataset_source *source)
{
    const char *dot = strrchr(source->path, '.');
    if (dot && (!strcmp(dot, ".parquet") || !strcmp(dot, ".arrow") || !strcmp(dot, ".feather"))) return NRL_PROBE_YES;
    if (parquet_is_there(source->path, "state.json") && parquet_is_there(source->path, "dataset_info.json"))
        return NRL_PROBE_YES;
    if (parquet_is_there(source->path, "dataset_dict.json")) return NRL_PROBE_YES;
    return parquet_begins(source->path) ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static nrl_status parquet_check(const void *options)
{
    const nrl_node *columns = ((const parquet_options *)options)->columns;
    bool good = nrl_node_kind(columns) == NRL_NODE_LIST;
    for (size_t i = 0; i < nrl_node_size(columns) && good; i++)
        good = *nrl_node_string(nrl_node_at(columns, i), "") != 0;
    return good ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "columns: expected a list of names, as in [prompt, completion]");
}

static void parquet_close(void *self)
{
    parquet_dataset *d = self;
    arrow_reader_close(d->reader);
    for (size_t i = 0; i < d->n_files; i++)
        free(d->files[i]);
    free(d->files);
    free(d->path);
    free(d);
}

/* A folder with several data sets: names them. */
static nrl_status parquet_fail_dict(const char *path)
{
    arena a = {0};
    nrl_node *dict;
    char names[200] = "", *file = mem_printf("%s/dataset_dict.json", path);
    nrl_status st = json_read_file(&a, file, MAX_STATE, &dict);
    const nrl_node *splits = st == NRL_OK ? nrl_node_find(dict, "splits") : NULL;
    for (size_t i = 0, n = 0; i < nrl_node_size(splits) && n + 80 < sizeof names; i++)
        n += (size_t)snprintf(names + n, 80, "%s%.60s", i ? ", " : "", nrl_node_string(nrl_node_at(splits, i), ""));
    if (st == NRL_OK)
        st =
            nrl_fail(NRL_ERR_CONFIG, "%s: a directory with several data sets: %s; expected one of them, as in %s/train",
                     path, names, path);
    arena_free(&a);
    free(file);
    return st;
}

/* The files that state.json lists, in its order. */
static nrl_status parquet_list(parquet_dataset *d, const nrl_node *state, const char *file)
{
    const nrl_node *files = nrl_node_find(state, "_data_files");
    d->files = mem_alloc((nrl_node_size(files) + 1) * sizeof *d->files);
    if (nrl_node_size(nrl_node_find(state, "_indices_data_files")))
        return nrl_fail(NRL_ERR_DATA, "%s: rows are chosen by indices; expected the directory of flatten_indices()",
                        file);
    for (size_t i = 0; i < nrl_node_size(files); i++) {
        const char *name = nrl_node_string(nrl_node_find(nrl_node_at(files, i), "filename"), "");
        if (!*name || strchr(name, '/'))
            return nrl_fail(NRL_ERR_DATA, "%s: _data_files[%zu]: expected the name of a file", file, i);
        d->files[d->n_files++] = mem_printf("%s/%s", d->path, name);
    }
    return d->n_files ? NRL_OK : nrl_fail(NRL_ERR_DATA, "%s: it lists no data files", file);
}

static nrl_status parquet_hash(parquet_dataset *d)
{
    char *hashes = mem_alloc(d->n_files * HASH_TEXT);
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < d->n_files && st == NRL_OK; i++) {
        struct stat s;
        if (stat(d->files[i], &s))
            st = nrl_fail(NRL_ERR_DATA, "%s: %s; the directory's state.json lists it", d->files[i], strerror(errno));
        else
            st = hash_file(d->files[i], hashes + i * HASH_TEXT);
        d->bytes += st == NRL_OK ? s.st_size : 0;
    }
    if (st == NRL_OK) hash_bytes(hashes, d->n_files * HASH_TEXT, d->hash);
    free(hashes);
    return st;
}

static nrl_status parquet_open_folder(parquet_dataset *d)
{
    arena a = {0};
    nrl_node *state;
    if (parquet_is_there(d->path, "dataset_dict.json")) return parquet_fail_dict(d->path);
    char *file = mem_printf("%s/state.json", d->path);
    nrl_status st = json_read_file(&a, file, MAX_STATE, &state);
    if (st == NRL_OK) st = parquet_list(d, state, file);
    if (st == NRL_OK) st = parquet_hash(d);
    arena_free(&a);
    free(file);
    return st;
}

static nrl_status parquet_open(const void *options, const nrl_dataset_source *source, void **self)
{
    struct stat st;
    parquet_dataset *d = mem_alloc(sizeof *d);
    *d = (parquet_dataset){.path = mem_strdup(source->path), .options = options, .bytes = -1, .rows = -1, .row = 1};
    nrl_status status = NRL_OK;
    if (!stat(d->path, &st) && S_ISDIR(st.st_mode)) {
        d->bytes = 0;
        status = parquet_open_folder(d);
    } else {
        d->files = mem_alloc(sizeof *d->files);
        d->files[d->n_files++] = mem_strdup(d->path);
    }
    if (status == NRL_OK) status = arrow_reader_open(d->files[0], d->options->columns, &d->reader);
    if (status == NRL_OK && d->n_files == 1) d->rows = arrow_reader_n_rows(d->reader);
    if (status == NRL_OK)
        *self = d;
    else
        parquet_close(d);
    return status;
}

static void parquet_info(const void *self, nrl_dataset_info *info)
{
    const parquet_dataset *d = self;
    info->rows = d->rows;
    info->bytes = d->bytes;
    info->hash = *d->hash ? d->hash : NULL;
}

/* ---- ranges and rows ---- */

static void parquet_close_range(void *range)
{
    parquet_range *g = range;
    arrow_rows_close(g->rows);
    free(g);
}

static nrl_status parquet_next_range(void *self, void **range)
{
    parquet_dataset *d = self;
    arrow_rows *rows = NULL;
    *range = NULL;
    while (d->reader) {
        NRL_TRY(arrow_reader_next(d->reader, &rows));
        if (rows) break;
        arrow_reader_close(d->reader);
        d->reader = NULL;
        if (++d->at < d->n_files) NRL_TRY(arrow_reader_open(d->files[d->at], d->options->columns, &d->reader));
    }
    if (!rows) return NRL_OK;
    parquet_range *g = mem_alloc(sizeof *g);
    *g = (parquet_range){d->path, rows, d->row, 0};
    d->row += arrow_rows_n(rows);
    *range = g;
    return NRL_OK;
}

static bool parquet_tell(const void *self, char out[NRL_DATASET_POSITION])
{
    const parquet_dataset *d = self;
    arrow_place p;
    if (!d->reader) return false;
    arrow_reader_tell(d->reader, &p);
    snprintf(out, NRL_DATASET_POSITION, "%zu %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, d->at, p.row, p.batch, p.at,
             d->row);
    return true;
}

static nrl_status parquet_seek(void *self, const char *position)
{
    parquet_dataset *d = self;
    arrow_place p;
    int64_t file, row;
    if (sscanf(position, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &file, &p.row, &p.batch, &p.at,
               &row) != 5 ||
        file < 0 || (size_t)file >= d->n_files || p.row < 0 || p.batch < 0 || p.at < 0 || row <= p.row)
        return nrl_fail(NRL_ERR_DATA, "%s: '%s' is not a position of this reader", d->path, position);
    arrow_reader_close(d->reader);
    d->reader = NULL;
    d->at = (size_t)file;
    d->row = row;
    NRL_TRY(arrow_reader_open(d->files[d->at], d->options->columns, &d->reader));
    return arrow_reader_seek(d->reader, &p);
}

static nrl_status parquet_next_row(void *range, nrl_arena *memory, const nrl_node **row)
{
    parquet_range *g = range;
    nrl_node *map;
    *row = NULL;
    if (g->n_read == arrow_rows_n(g->rows)) return NRL_OK;
    const int64_t number = g->first + g->n_read;
    nrl_status st = arrow_rows_read(g->rows, g->n_read++, memory, &map);
    if (st != NRL_OK) {
        nrl_add_context("%s:%" PRId64, g->path, number);
        return st;
    }
    nrl_node_set_place(map, g->path, (uint32_t)number, 1);
    *row = map;
    return NRL_OK;
}

static const nrl_dataset parquet = {
    NRL_PLUGIN(NRL_KIND_DATASET, nrl_dataset, parquet_options, parquet_rows, "parquet", "0.1",
               "rows of Parquet and Arrow files, and of directories of save_to_disk"),
    .plugin.check = parquet_check,
    .probe = parquet_probe,
    .open = parquet_open,
    .close = parquet_close,
    .info = parquet_info,
    .next_range = parquet_next_range,
    .next_row = parquet_next_row,
    .close_range = parquet_close_range,
    .tell = parquet_tell,
    .seek = parquet_seek,
};
NRL_EXPORT(parquet)
