/*
 * report_read.c - reads a run's directory as series: every number of metrics.jsonl under its name.
 */
#include "base/file.h"
#include "base/json.h"
#include "report.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <nrl/run.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 4 << 20, MAX_SERIES = 500, MAX_LINE = 1 << 26 };

static const double LARGEST = 1e100;

/* ---- series ---- */

const report_series *report_find(const report_run *r, const char *name)
{
    for (size_t i = 0; i < r->n_series; i++)
        if (!strcmp(r->series[i].name, name)) return &r->series[i];
    return NULL;
}

/* Lines of one kind have the same keys in the same order, so the search begins where the previous
 * one ended. */
static report_series *series_of(arena *a, report_run *r, const char *name, size_t *hint)
{
    for (size_t k = 0; k < r->n_series; k++) {
        size_t i = (*hint + k) % r->n_series;
        if (strcmp(r->series[i].name, name)) continue;
        *hint = i + 1;
        return &r->series[i];
    }
    if (r->n_series == MAX_SERIES) return NULL;
    if (!r->series) r->series = mem_alloc(MAX_SERIES * sizeof *r->series);
    r->series[r->n_series] = (report_series){.name = arena_strdup(a, name)};
    return &r->series[r->n_series++];
}

/* A value that no axis can show counts as not finite. */
static void add_point(report_series *s, double step, double time, double value)
{
    if (!(fabs(value) < LARGEST)) {
        s->n_odd++;
        return;
    }
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->points = mem_realloc(s->points, s->room * sizeof *s->points);
    }
    s->points[s->n++] = (report_point){step, time, value};
}

/* ---- metrics.jsonl ---- */

static void add_samples(arena *a, report_run *r, int64_t step, const nrl_node *list)
{
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *s = nrl_node_at(list, i);
        const char *answer = nrl_node_string(nrl_node_find(s, "answer"), NULL);
        if (r->n_samples == r->samples_room) {
            r->samples_room = 2 * r->samples_room + 64;
            r->samples = mem_realloc(r->samples, r->samples_room * sizeof *r->samples);
        }
        r->samples[r->n_samples++] =
            (report_sample){.step = step,
                            .index = nrl_node_int(nrl_node_find(s, "index"), 0),
                            .prompt = arena_strdup(a, nrl_node_string(nrl_node_find(s, "prompt"), "")),
                            .text = arena_strdup(a, nrl_node_string(nrl_node_find(s, "text"), "")),
                            .answer = answer ? arena_strdup(a, answer) : NULL,
                            .score = nrl_node_f64(nrl_node_find(s, "score"), NAN),
                            .is_cut = nrl_node_bool(nrl_node_find(s, "cut"), false)};
    }
}

/* false: the line is not the record of a step. */
static bool add_record(arena *a, report_run *r, const nrl_node *record)
{
    int64_t number = nrl_node_int(nrl_node_find(record, "step"), -1);
    double step = (double)number, time = nrl_node_f64(nrl_node_find(record, "time"), NAN);
    size_t hint = 0;
    if (number < 0) return false;
    for (size_t i = 0; i < nrl_node_size(record); i++) {
        const char *name = nrl_node_key(record, i);
        if (!strcmp(name, "step") || !strcmp(name, "time") || !strcmp(name, "units")) continue;
        if (!strcmp(name, "samples")) {
            add_samples(a, r, number, nrl_node_at(record, i));
            continue;
        }
        report_series *s = series_of(a, r, name, &hint);
        if (s)
            add_point(s, step, isfinite(time) ? time : 0,
                      nrl_node_f64(nrl_node_at(record, i), NAN)); /* "NaN" is a string */
    }
    const nrl_node *units = nrl_node_find(record, "units");
    for (size_t i = 0; i < nrl_node_size(units); i++) {
        report_series *s = series_of(a, r, nrl_node_key(units, i), &hint);
        if (s && !s->unit) s->unit = arena_strdup(a, nrl_node_string(nrl_node_at(units, i), ""));
    }
    if (!r->n_records++) r->first_time = time;
    r->last_time = time;
    r->last_step = fmax(r->last_step, step);
    return true;
}

static nrl_status read_lines(arena *a, report_run *r, const char *path, FILE *in)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    nrl_status st = NRL_OK;
    for (int64_t number = 1; st == NRL_OK && (size = getline(&line, &capacity, in)) > 0; number++) {
        arena one = {0};
        nrl_node *record;
        if (line[size - 1] != '\n') break; /* still being written */
        if (size > MAX_LINE) st = nrl_fail(NRL_ERR_DATA, "%s:%lld: a line of %zd bytes", path, (long long)number, size);
        if (st == NRL_OK) st = json_parse_at(&one, path, number, 1, line, (size_t)size - 1, &record);
        if (st == NRL_OK && !add_record(a, r, record))
            st = nrl_fail(NRL_ERR_DATA, "%s:%lld: no record with a 'step' from 0", path, (long long)number);
        arena_free(&one);
    }
    free(line);
    return st;
}

static nrl_status read_metrics(arena *a, report_run *r)
{
    const char *path = arena_printf(a, "%s/metrics.jsonl", r->dir);
    FILE *in = fopen(path, "re");
    if (!in)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: %s\nhint: a report requires the directory of a run with the logger 'jsonl'", path,
                        strerror(errno));
    nrl_status st = read_lines(a, r, path, in);
    fclose(in);
    if (st == NRL_OK && !r->n_records) st = nrl_fail(NRL_ERR_DATA, "%s: no record yet", path);
    return st;
}

/* ---- config and checkpoints ---- */

/* The report has no config if the file is missing or was written by an incompatible version. */
static void read_config(arena *a, report_run *r)
{
    char *text;
    size_t size;
    const char *path = arena_printf(a, "%s/config.yaml", r->dir);
    if (file_read(path, MAX_CONFIG_BYTES, &text, &size) != NRL_OK) return;
    r->config_text = arena_strdup(a, text);
    free(text);
    nrl_config *config = nrl_config_create(a);
    if (nrl_config_read(config, path) == NRL_OK) r->config = nrl_config_root(config);
    nrl_config_destroy(config);
}

static int by_step(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return a < b ? -1 : a > b;
}

static void list_checkpoints(arena *a, report_run *r)
{
    DIR *d = opendir(arena_printf(a, "%s/checkpoints", r->dir));
    for (struct dirent *e; d && (e = readdir(d));) {
        long long step;
        int used = 0;
        if (sscanf(e->d_name, "step-%lld%n", &step, &used) != 1 || e->d_name[used]) continue;
        r->checkpoints = mem_realloc(r->checkpoints, (r->n_checkpoints + 1) * sizeof *r->checkpoints);
        r->checkpoints[r->n_checkpoints++] = step;
    }
    if (d) closedir(d);
    if (r->n_checkpoints) qsort(r->checkpoints, r->n_checkpoints, sizeof *r->checkpoints, by_step);
}

/* Written by `nrl launch --max-restarts`. */
static void count_restarts(arena *a, report_run *r)
{
    FILE *f = fopen(arena_printf(a, "%s/restarts.jsonl", r->dir), "re");
    for (int c; f && (c = getc(f)) != EOF;)
        r->n_restarts += c == '\n';
    if (f) fclose(f);
}

static const char *last_part(arena *a, const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    size_t begin = n;
    while (begin && dir[begin - 1] != '/')
        begin--;
    return arena_strndup(a, dir + begin, n - begin);
}

nrl_status report_read(arena *a, const char *dir, report_run *out)
{
    *out = (report_run){.dir = dir, .name = last_part(a, dir)};
    NRL_TRY(read_metrics(a, out));
    read_config(a, out);
    list_checkpoints(a, out);
    count_restarts(a, out);
    return NRL_OK;
}

void report_free(report_run *r)
{
    for (size_t i = 0; i < r->n_series; i++)
        free(r->series[i].points);
    free(r->series);
    free(r->checkpoints);
    free(r->samples);
    *r = (report_run){0};
}
