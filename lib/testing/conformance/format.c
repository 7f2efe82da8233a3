/*
 * format.c - rules for every format: it reads back what it writes, in any ranges; a probe
 * recognises its own directories and no others; damage gives an error with a text, and nothing
 * stays open.
 */
#include "base/arena.h"
#include "base/json.h"
#include "files.h"
#include "suites.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TENSORS = 3, MAX_NUMEL = 64 };

static const char model_config[] = "{\"model_type\":\"llama\",\"hidden_size\":8,\"rope_theta\":10000.5}";
static const char adapter_config[] =
    "{\"adapter\":\"lora\",\"base\":\"org/name\",\"settings\":{\"rslora\":false,\"dropout\":0.5,\"modules\":"
    "[{\"module\":\"layers.0.q_proj\",\"rank\":2,\"alpha\":4}]},\"linear\":[\"layers.0.q_proj\",\"layers.1.q_proj\"],"
    "\"transposed\":false}";

typedef struct {
    const nrl_format *f;
    conformance_report *r;
    arena a;
    const char *folder;
    nrl_format_host host;
    const char *config;
    int64_t n;
    nrl_format_tensor tensors[MAX_TENSORS];
} suite;

static const char *unset(const char *name)
{
    (void)name;
    return NULL;
}

static int64_t numel_of(const nrl_format_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

static float value_at(int64_t tensor, int64_t i)
{
    return (float)(tensor + 1) + (float)i * 0.37f;
}

static void choose_tensors(suite *s)
{
    static const nrl_format_tensor model[] = {{.name = "model.a.weight", .n_dims = 2, .dims = {3, 5}},
                                              {.name = "model.b.bias", .n_dims = 1, .dims = {7}},
                                              {.name = "model.c.weight", .n_dims = 3, .dims = {2, 3, 4}}};
    static const nrl_format_tensor adapter[] = {
        {.name = "base_model.model.layers.0.q_proj.lora_A.weight", .n_dims = 2, .dims = {2, 5}},
        {.name = "base_model.model.layers.0.q_proj.lora_B.weight", .n_dims = 2, .dims = {3, 2}}};
    bool alone = s->f->holds == NRL_HOLDS_ADAPTER;
    const nrl_format_example *own = s->f->example;
    if (own) {
        bool fits = own->n_tensors > 0 && own->n_tensors <= MAX_TENSORS;
        for (int64_t i = 0; fits && i < own->n_tensors; i++) {
            const char *at = (const char *)own->tensors + (size_t)i * own->tensor_size;
            memcpy(&s->tensors[i], at, sizeof *s->tensors < own->tensor_size ? sizeof *s->tensors : own->tensor_size);
            fits = numel_of(&s->tensors[i]) > 0 && numel_of(&s->tensors[i]) <= MAX_NUMEL;
        }
        s->n = own->n_tensors;
        s->config = own->config;
        if (report_check(s->r, fits, "an example has at most 3 tensors of at most 64 elements", "%lld tensors",
                         (long long)own->n_tensors))
            return;
    }
    s->n = alone ? 2 : 3;
    memcpy(s->tensors, alone ? adapter : model, (size_t)s->n * sizeof *s->tensors);
    s->config = alone ? adapter_config : model_config;
}

/* ---- writing and reading ---- */

static nrl_status write_values(suite *s, void *writer, int64_t piece)
{
    for (int64_t t = 0; t < s->n; t++) {
        int64_t numel = numel_of(&s->tensors[t]);
        for (int64_t i = 0; i < numel; i += piece) {
            float values[MAX_NUMEL];
            int64_t n = numel - i < piece ? numel - i : piece;
            for (int64_t k = 0; k < n; k++)
                values[k] = value_at(t, i + k);
            NRL_TRY(s->f->write(writer, t, n, values));
        }
    }
    return NRL_OK;
}

/* Writes the tensors to a new directory in shards; NULL on failure. */
static const char *write_folder(suite *s, const char *name, nrl_dtype dtype, int64_t piece, int64_t max_bytes)
{
    static const char rule[] = "a directory is written";
    const char *dir = arena_printf(&s->a, "%s/%s", s->folder, name);
    void *writer = NULL;
    mkdir(dir, 0777);
    for (int64_t i = 0; i < s->n; i++) {
        s->tensors[i].size = sizeof s->tensors[i];
        s->tensors[i].dtype = dtype;
        s->tensors[i].type = nrl_dtype_name(dtype);
    }
    const nrl_format_write what = {.size = sizeof what,
                                   .tensor_size = sizeof *s->tensors,
                                   .dir = dir,
                                   .config = s->config,
                                   .config_size = strlen(s->config),
                                   .dtype = dtype,
                                   .max_file_bytes = max_bytes,
                                   .n_tensors = s->n,
                                   .tensors = s->tensors};
    nrl_status begun = s->f->begin(&what, &writer);
    if (begun == NRL_ERR_CONFIG && dtype != NRL_DTYPE_F32) return NULL; /* a format may lack these types */
    if (!report_ok(s->r, begun, rule)) return NULL;
    nrl_status st = write_values(s, writer, piece);
    if (st == NRL_OK)
        st = s->f->finish(writer);
    else
        s->f->abandon(writer);
    return report_ok(s->r, st, rule) ? dir : NULL;
}

/* open and load. */
static nrl_status open_reader(suite *s, const char *dir, void **reader)
{
    NRL_TRY(s->f->open(dir, 0, &s->host, reader));
    nrl_status st = s->f->load(*reader);
    if (st != NRL_OK) s->f->close(*reader);
    return st;
}

static int64_t find_tensor(suite *s, const void *reader, const nrl_format_tensor *want, nrl_format_tensor *found)
{
    for (int64_t i = 0; i < s->f->n_tensors(reader); i++) {
        *found = (nrl_format_tensor){.size = sizeof *found};
        s->f->tensor(reader, i, found);
        if (found->name && !strcmp(found->name, want->name)) return i;
    }
    return -1;
}

static void check_ranges(suite *s, const void *reader, int64_t at, const float *whole, int64_t numel)
{
    static const char rule[] = "any range reads as a part of the whole";
    float part[MAX_NUMEL];
    for (int64_t begin = 0; begin < numel; begin++)
        for (int64_t n = 1; begin + n <= numel; n += 3) {
            if (!report_ok(s->r, s->f->read(reader, at, begin, n, part), rule)) return;
            bool same = !memcmp(part, whole + begin, (size_t)n * sizeof *part);
            if (!report_check(s->r, same, rule, "elements %lld to %lld", (long long)begin, (long long)(begin + n)))
                return;
        }
}

static void check_tensor(suite *s, const void *reader, int64_t t, double error)
{
    const nrl_format_tensor *want = &s->tensors[t];
    nrl_format_tensor have;
    float whole[MAX_NUMEL];
    int64_t at = find_tensor(s, reader, want, &have), numel = numel_of(want);
    if (!report_check(s->r, at >= 0, "every tensor is listed", "'%s' is not", want->name)) return;
    bool same =
        have.n_dims == want->n_dims && !memcmp(have.dims, want->dims, (size_t)want->n_dims * sizeof *want->dims);
    report_check(s->r, have.type && have.file, "a tensor has a type and a file", "'%s'", want->name);
    if (!report_check(s->r, same && have.dtype != NRL_DTYPE_NONE, "shapes are kept", "'%s'", want->name)) return;
    if (!report_ok(s->r, s->f->read(reader, at, 0, numel, whole), "what was written reads back")) return;
    for (int64_t i = 0; i < numel; i++) {
        double x = (double)value_at(t, i), y = (double)whole[i];
        if (!report_check(s->r, fabs(x - y) <= error * fabs(x), "what was written reads back",
                          "%s[%lld]: %.9g, was %.9g", want->name, (long long)i, y, x))
            return;
    }
    check_ranges(s, reader, at, whole, numel);
}

static void check_folder(suite *s, const char *dir, double error)
{
    static const char rule[] = "what is written can be opened";
    void *reader;
    if (!dir || !report_ok(s->r, open_reader(s, dir, &reader), rule)) return;
    report_check(s->r, s->f->n_tensors(reader) == s->n, "every tensor is listed", "%lld of %lld",
                 (long long)s->f->n_tensors(reader), (long long)s->n);
    for (int64_t t = 0; t < s->n; t++)
        check_tensor(s, reader, t, error);
    s->f->close(reader);
}

/* ---- descriptions ---- */

static void check_info(suite *s, const char *dir)
{
    static const char rule[] = "the description is kept";
    void *reader;
    nrl_node *was, *is;
    nrl_format_info info = {.size = sizeof info};
    if (!report_ok(s->r, s->f->open(dir, 0, &s->host, &reader), "what is written can be opened")) return;
    s->f->info(reader, &info);
    report_check(s->r, info.path && info.config && info.config_size == strlen(info.config), rule,
                 "it has no text or path");
    if (info.path && info.config &&
        report_ok(s->r, json_parse(&s->a, "it", info.config, info.config_size, &is), rule)) {
        NRL_ASSERT(json_parse(&s->a, "the suite", s->config, strlen(s->config), &was), ==, NRL_OK);
        for (size_t i = 0; i < nrl_node_size(was); i++) {
            const char *key = nrl_node_key(was, i);
            bool kept = !strcmp(key, "linear") || !strcmp(key, "transposed");
            char *x = json_write(nrl_node_at(was, i), 0), *y = json_write(nrl_node_find(is, key), 0);
            report_check(s->r, kept || !strcmp(x, y) || !strcmp(key, "settings"), rule, "%s: %s, was %s", key, y, x);
            free(x);
            free(y);
        }
    }
    s->f->close(reader);
}

static void check_probe(suite *s, const char *dir)
{
    const char *empty = arena_printf(&s->a, "%s/empty", s->folder);
    mkdir(empty, 0777);
    int32_t other = s->f->probe(empty, &s->host), none = s->f->probe("/nowhere/that/is", &s->host);
    report_check(s->r, other <= NRL_PROBE_EXPLAINS && none <= NRL_PROBE_EXPLAINS,
                 "a probe leaves other directories alone", "an empty directory: %d, a path that does not exist: %d",
                 (int)other, (int)none);
    if (!dir) return;
    int32_t sure = s->f->probe(dir, &s->host);
    report_check(s->r, sure >= NRL_PROBE_PERHAPS, "a probe knows what the format writes", "it returned %d", (int)sure);
}

static void check_names(suite *s, const char *dir)
{
    const char *names[FILES_MAX];
    report_check(s->r, s->f->owns && !s->f->owns("notes.txt") && !s->f->owns("tokenizer.json"),
                 "a format owns no file of others", "notes.txt or tokenizer.json");
    size_t n = files_list(&s->a, dir, names);
    for (size_t i = 0; s->f->owns && i < n; i++)
        report_check(s->r, s->f->owns(names[i]), "a format owns every file that it writes", "%s", names[i]);
}

/* ---- failures ---- */

static void check_missing(suite *s)
{
    void *reader;
    nrl_fail(NRL_OK, "%s", "");
    nrl_status st = open_reader(s, "/nowhere/that/is", &reader);
    if (st == NRL_OK) s->f->close(reader);
    report_check(s->r, st != NRL_OK && *nrl_error_text(), "a missing path gives an error text", "status %d", (int)st);
}

/* Each file in turn loses its second half. */
static void check_damage(suite *s, const char *dir)
{
    static const char rule[] = "a truncated file is refused";
    const char *names[FILES_MAX];
    size_t n = files_list(&s->a, dir, names);
    for (size_t i = 0; i < n; i++) {
        const char *path = arena_printf(&s->a, "%s/%s", dir, names[i]),
                   *kept = arena_printf(&s->a, "%s/kept", s->folder);
        void *reader;
        struct stat size;
        const char *copy = arena_printf(&s->a, "cp '%s' '%s'", path, kept);
        if (stat(path, &size) || !size.st_size || system(copy) || truncate(path, size.st_size / 2)) continue;
        nrl_fail(NRL_OK, "%s", "");
        nrl_status st = open_reader(s, dir, &reader);
        if (st == NRL_OK) s->f->close(reader);
        report_check(s->r, st != NRL_OK && *nrl_error_text(), rule, "%s, %lld of %lld bytes", names[i],
                     (long long)size.st_size / 2, (long long)size.st_size);
        rename(kept, path);
    }
}

static void check_life(suite *s, const char *dir)
{
    static const char alone[] = "readers live side by side";
    void *x, *y, *writer;
    int before = files_open_descriptors();
    if (!report_ok(s->r, open_reader(s, dir, &x), alone)) return;
    if (report_check(s->r, open_reader(s, dir, &y) == NRL_OK && x != y, alone, "the second one does not open")) {
        float u;
        s->f->close(x);
        report_check(s->r, s->f->read(y, 0, 0, 1, &u) == NRL_OK, alone, "one cannot be read after another was closed");
        s->f->close(y);
    }
    const char *left = arena_printf(&s->a, "%s/abandoned", s->folder);
    mkdir(left, 0777);
    const nrl_format_write what = {.size = sizeof what,
                                   .tensor_size = sizeof *s->tensors,
                                   .dir = left,
                                   .config = s->config,
                                   .config_size = strlen(s->config),
                                   .dtype = NRL_DTYPE_F32,
                                   .n_tensors = s->n,
                                   .tensors = s->tensors};
    if (report_ok(s->r, s->f->begin(&what, &writer), "a directory is written")) s->f->abandon(writer);
    report_check(s->r, files_open_descriptors() == before, "nothing stays open", "%d descriptors more",
                 files_open_descriptors() - before);
}

void conformance_format(const nrl_format *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.f = table, .r = report, .folder = setup->folder, .host = {.size = sizeof s.host, .variable = unset}};
    choose_tensors(&s);
    bool known = table->holds == NRL_HOLDS_MODEL || table->holds == NRL_HOLDS_ADAPTER;
    report_check(report, known, "a format holds a model or an adapter", "holds is %u", (unsigned)table->holds);
    REPORT_CASE(report, "a missing path gives an error text") check_missing(&s);
    if (!table->begin) {
        REPORT_CASE(report, "a probe leaves other directories alone") check_probe(&s, NULL);
        report_skip(report, "what was written reads back", "the format is read only");
    } else if (report_check(report, table->write && table->finish && table->abandon && table->owns,
                            "a writer has all its members", "write, finish, abandon or owns is NULL")) {
        const char *dir = write_folder(&s, "whole", NRL_DTYPE_F32, MAX_NUMEL, 0);
        REPORT_CASE(report, "what was written reads back") check_folder(&s, dir, 0);
        REPORT_CASE(report, "a probe knows what the format writes") check_probe(&s, dir);
        if (dir) REPORT_CASE(report, "a format owns every file that it writes") check_names(&s, dir);
        if (dir) REPORT_CASE(report, "the description is kept") check_info(&s, dir);
        REPORT_CASE(report, "what was written reads back")
        check_folder(&s, write_folder(&s, "shards", NRL_DTYPE_F32, 4, 100), 0);
        REPORT_CASE(report, "what was written reads back")
        check_folder(&s, write_folder(&s, "bf16", NRL_DTYPE_BF16, 5, 0), 0x1p-8);
        REPORT_CASE(report, "what was written reads back")
        check_folder(&s, write_folder(&s, "f16", NRL_DTYPE_F16, 5, 0), 0x1p-10);
        for (int64_t i = 0; i < s.n; i++)
            s.tensors[i].dtype = NRL_DTYPE_F32;
        if (dir) REPORT_CASE(report, "nothing stays open") check_life(&s, dir);
        if (dir) REPORT_CASE(report, "a truncated file is refused") check_damage(&s, dir);
    }
    arena_free(&s.a);
}
