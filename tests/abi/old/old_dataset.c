/*
 * old_dataset.c - rows from files of lines "PROMPT<tab>COMPLETION" with the extension .old_dataset: replace
 * it by your own reader. nrl/dataset.h describes the arguments and the contract of each member.
 * With `write` and `extension`, `nrl plugins test` creates its own files (examples/stanzas has them);
 * otherwise --path FILE names a file.
 */
#include <errno.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { old_dataset_RANGE_LINES = 1000 };

typedef struct {
    char *path;
    FILE *file;
    int64_t line; /* that is read next */
} old_dataset_dataset;

typedef struct {
    const char *path; /* borrowed from the dataset */
    int64_t first;    /* line of texts[0] */
    size_t n, at;
    char *texts[old_dataset_RANGE_LINES];
} old_dataset_range;

static int32_t old_dataset_probe(const nrl_dataset_source *source)
{
    const char *dot = strrchr(source->path, '.');
    return dot && !strcmp(dot, ".old_dataset") ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static void old_dataset_close(void *self)
{
    old_dataset_dataset *d = self;
    fclose(d->file);
    free(d->path);
    free(d);
}

static nrl_status old_dataset_open(const void *options, const nrl_dataset_source *source, void **self)
{
    (void)options;
    FILE *f = fopen(source->path, "rbe");
    if (!f)
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO, "%s: %s", source->path,
                        strerror(errno));
    old_dataset_dataset *d = calloc(1, sizeof *d);
    char *path = strdup(source->path);
    if (!d || !path) {
        fclose(f);
        free(path);
        free(d);
        return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate a reader", source->path);
    }
    *d = (old_dataset_dataset){path, f, 1};
    *self = d;
    return NRL_OK;
}

/* hash stays NULL: the rows depend only on the bytes of the file, which the core hashes. */
static void old_dataset_info(const void *self, nrl_dataset_info *info)
{
    (void)self;
    (void)info;
}

static void old_dataset_close_range(void *range)
{
    old_dataset_range *g = range;
    for (size_t i = 0; i < g->n; i++)
        free(g->texts[i]);
    free(g);
}

/* One thread splits the file ... */
static nrl_status old_dataset_next_range(void *self, void **range)
{
    old_dataset_dataset *d = self;
    *range = NULL;
    old_dataset_range *g = calloc(1, sizeof *g);
    if (!g) return nrl_fail(NRL_ERR_MEMORY, "%s: cannot allocate a range", d->path);
    *g = (old_dataset_range){.path = d->path, .first = d->line};
    while (g->n < old_dataset_RANGE_LINES) {
        char *text = NULL; /* getline allocates it, even at the end of the file */
        size_t room = 0;
        if (getline(&text, &room, d->file) < 0) {
            free(text);
            break;
        }
        g->texts[g->n++] = text;
    }
    d->line += (int64_t)g->n;
    if (g->n)
        *range = g;
    else
        old_dataset_close_range(g);
    return ferror(d->file) ? nrl_fail(NRL_ERR_IO, "cannot read %s", d->path) : NRL_OK;
}

/* ... and several threads convert its ranges to rows. */
static nrl_status old_dataset_next_row(void *range, nrl_arena *memory, const nrl_node **row)
{
    old_dataset_range *g = range;
    *row = NULL;
    if (g->at == g->n) return NRL_OK;
    const int64_t line = g->first + (int64_t)g->at;
    const char *text = g->texts[g->at++], *tab = strchr(text, '\t');
    if (!tab)
        return nrl_fail(NRL_ERR_DATA, "%s:%lld: no tab, expected PROMPT<tab>COMPLETION", g->path, (long long)line);
    nrl_node *map = nrl_node_new(memory, NRL_NODE_MAP);
    nrl_node_put(memory, map, "prompt", nrl_node_new_string(memory, text, (size_t)(tab - text)));
    nrl_node_put(memory, map, "completion", nrl_node_new_string(memory, tab + 1, strcspn(tab + 1, "\r\n")));
    nrl_node_set_place(map, g->path, (uint32_t)line, 1);
    *row = map;
    return NRL_OK;
}

static const nrl_dataset old_dataset = {
    NRL_PLUGIN_PLAIN(NRL_KIND_DATASET, nrl_dataset, "old_dataset", "0.1", "one line for `nrl plugins`"),
    .probe = old_dataset_probe,
    .open = old_dataset_open,
    .close = old_dataset_close,
    .info = old_dataset_info,
    .next_range = old_dataset_next_range,
    .next_row = old_dataset_next_row,
    .close_range = old_dataset_close_range,
};
NRL_EXPORT(old_dataset)
