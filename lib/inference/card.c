/*
 * card.c - the model card (README.md) of an export. The facts come from the run or its checkpoint (config, step,
 * version), from its records (metrics.jsonl) and from the card of the base model (its licence). Unknown facts are left
 * out.
 */
#include "inference/card.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "run/internal.h"
#include <nrl/checkpoint.h>
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_CARD = 4 << 20, MAX_RECORDS = 1 << 30 };

typedef struct {
    const char *title, *base, *license, *license_name, *license_link;
    const nrl_node *config; /* of the run; NULL = unknown */
    const char *version, *time;
    int64_t step;
    const char *last_record, *last_evaluation; /* lines of metrics.jsonl; NULL = none */
} facts;

static bool exists(const char *path)
{
    struct stat s;
    return !stat(path, &s);
}

/* The value of `key: value` in the front matter of a card; NULL = none. */
static const char *front_matter(arena *a, const char *card, const char *key)
{
    size_t n = strlen(key);
    if (strncmp(card, "---\n", 4) != 0) return NULL;
    for (const char *line = card + 4; line && strncmp(line, "---", 3) != 0;) {
        if (!strncmp(line, key, n) && line[n] == ':') {
            const char *value = line + n + 1 + strspn(line + n + 1, " \t\"'");
            size_t size = strcspn(value, "\r\n\"'");
            for (size_t i = 0; i < size; i++)
                if ((unsigned char)value[i] < ' ') return NULL;
            return size ? arena_strndup(a, value, size) : NULL;
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return NULL;
}

/* The licence that a directory's card names. */
static void read_license(arena *a, const char *dir, facts *f)
{
    char *card;
    size_t size;
    if (!dir || f->license || file_read(arena_printf(a, "%s/README.md", dir), MAX_CARD, &card, &size) != NRL_OK) return;
    f->license = front_matter(a, card, "license");
    f->license_name = front_matter(a, card, "license_name");
    f->license_link = front_matter(a, card, "license_link");
    if (!f->base) f->base = front_matter(a, card, "base_model");
    free(card);
}

/* ORG/NAME of a path into the hub's cache; else the last part of the path. */
static const char *name_of(arena *a, const char *path)
{
    const char *at = strstr(path, "/models--"), *slash;
    if (at) {
        const char *org = at + strlen("/models--"), *name = strstr(org, "--");
        if (name) return arena_printf(a, "%.*s/%.*s", (int)(name - org), org, (int)strcspn(name + 2, "/"), name + 2);
    }
    if (!strchr(path, '/') ||
        (*path != '/' && *path != '.' && strchr(path, '/') == strrchr(path, '/') && !exists(path)))
        return path;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    path = arena_strndup(a, path, n);
    slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The newest record up to the step that has the key, and the newest evaluation. */
static void read_records(arena *a, const char *out, facts *f)
{
    char *text;
    size_t size;
    if (file_read(arena_printf(a, "%s/metrics.jsonl", out), MAX_RECORDS, &text, &size) != NRL_OK) return;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        const char *at = strstr(line, "\"step\":");
        if (!at || strtoll(at + strlen("\"step\":"), NULL, 10) > f->step) continue;
        if (strstr(line, "\"eval_loss\""))
            f->last_evaluation = line;
        else if (strstr(line, "\"loss\""))
            f->last_record = line;
    }
    if (f->last_evaluation) f->last_evaluation = arena_strdup(a, f->last_evaluation);
    if (f->last_record) f->last_record = arena_strdup(a, f->last_record);
    free(text);
}

/* Collects the settings of a run and its measurements up to step f->step; `out` is its directory. */
static void gather(arena *a, const nrl_node *config, const char *out, facts *f)
{
    const char *base = nrl_node_string(nrl_node_find(nrl_node_find(config, "model"), "path"), "");
    f->config = config ? node_copy(a, config) : NULL;
    if (*base) {
        f->base = name_of(a, base);
        read_license(a, base, f);
    }
    read_records(a, out, f);
}

/* ---- the text ---- */

/* A word as YAML reads it, whatever it contains. */
static void add_yaml(buffer *b, const char *key, const char *value)
{
    if (!value) return;
    char *quoted = json_quote(value, strlen(value));
    buffer_print(b, "%s: %s\n", key, quoted);
    free(quoted);
}

/* Text of a config or a record in a table: nothing in it is markup. */
static void add_code(buffer *b, const char *text)
{
    buffer_puts(b, "`");
    for (; *text; text++)
        buffer_puts(b, *text == '`' ? "'" : *text == '|' ? "\\|" : *text == '\n' ? " " : (char[]){*text, 0});
    buffer_puts(b, "`");
}

/* A copy in which absolute paths are replaced by their last parts: a public card must not show directories of a
 * machine. */
static nrl_node *without_folders(arena *a, const nrl_node *from)
{
    const char *text = nrl_node_string(from, NULL), *slash = text && *text == '/' ? strrchr(text, '/') : NULL;
    nrl_node_type kind = nrl_node_kind(from);
    if (slash) return node_text(a, slash + 1);
    if (kind != NRL_NODE_MAP && kind != NRL_NODE_LIST) return node_copy(a, from);
    nrl_node *to = node_new(a, kind);
    for (size_t i = 0; i < nrl_node_size(from); i++)
        node_append(a, to, kind == NRL_NODE_MAP ? nrl_node_key(from, i) : NULL,
                    without_folders(a, nrl_node_at(from, i)));
    return to;
}

static void add_row(arena *a, buffer *b, const char *name, const nrl_node *value)
{
    if (nrl_node_kind(value) <= NRL_NODE_NULL) return;
    value = without_folders(a, value);
    char *text = nrl_node_string(value, NULL) ? mem_strdup(nrl_node_string(value, "")) : json_write(value, 0);
    buffer_print(b, "| %s | ", name);
    add_code(b, text);
    buffer_puts(b, " |\n");
    free(text);
}

static void add_data(arena *a, buffer *b, const nrl_node *data, const char *key)
{
    const nrl_node *list = nrl_node_find(data, key);
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const char *path = nrl_node_string(nrl_node_find(nrl_node_at(list, i), "path"), NULL);
        if (!path) continue;
        const char *set = strstr(path, "/datasets--");
        const char *name = set ? strstr(set + 11, "--") : NULL;
        path =
            name ? arena_printf(a, "%.*s/%.*s", (int)(name - set - 11), set + 11, (int)strcspn(name + 2, "/"), name + 2)
            : strrchr(path, '/') ? strrchr(path, '/') + 1
                                 : path;
        buffer_print(b, "| data.%s | ", key);
        add_code(b, path);
        buffer_puts(b, " |\n");
    }
}

/* The numbers of a record, without those that tell the speed of a machine or how often the run was resumed. */
static void add_numbers(arena *a, buffer *b, const char *title, const char *line)
{
    nrl_node *record;
    static const char *const left_out[] = {"step",
                                           "time",
                                           "rank",
                                           "tokens_per_s",
                                           "mfu",
                                           "mem_total_bytes",
                                           "comm_bytes",
                                           "comm_messages",
                                           "step_s",
                                           "data_s",
                                           "comm_s",
                                           "samples_per_s",
                                           "cpu_percent",
                                           "host_mem_bytes",
                                           "host_mem_percent",
                                           "tensor_mem_bytes",
                                           "heap_mem_bytes",
                                           "device_percent",
                                           "update_norm",
                                           "save_s",
                                           "save_stall_s",
                                           "save_snapshot_s",
                                           "mem_bytes",
                                           "data_fraction",
                                           "comm_fraction",
                                           "eval_seconds",
                                           "grad_norm_mean",
                                           NULL};
    if (!line || json_parse(a, "metrics.jsonl", line, strlen(line), &record) != NRL_OK) return;
    buffer_print(b, "\n## %s\n\nAt step %lld:\n\n| metric | value |\n| --- | --- |\n", title,
                 (long long)nrl_node_int(nrl_node_find(record, "step"), 0));
    for (size_t i = 0; i < nrl_node_size(record); i++) {
        const nrl_node *value = nrl_node_at(record, i);
        const char *key = nrl_node_key(record, i);
        bool skip = nrl_node_kind(value) != NRL_NODE_INT && nrl_node_kind(value) != NRL_NODE_FLOAT;
        skip |= !strncmp(key, "rank_", strlen("rank_"));
        for (const char *const *k = left_out; *k; k++)
            skip |= !strcmp(*k, key);
        if (skip) continue;
        buffer_puts(b, "| ");
        add_code(b, key);
        buffer_print(b, " | %.6g |\n", nrl_node_f64(value, 0));
    }
}

static void add_config(arena *a, buffer *b, const facts *f)
{
    static const struct {
        const char *section, *key;
    } rows[] = {{"algorithm", NULL}, {"train", "global_batch"}, {"train", "epochs"},  {"train", "precision"},
                {"train", "seed"},   {"data", "max_length"},    {"data", "template"}, {"data", "train_on"},
                {"optimizer", NULL}, {"schedule", NULL},        {"lora", NULL},       {"adapter", NULL}};
    if (!f->config) return;
    buffer_puts(b, "\n## Training\n\n| setting | value |\n| --- | --- |\n");
    buffer_print(b, "| steps | %lld |\n", (long long)f->step);
    add_data(a, b, nrl_node_find(f->config, "data"), "train");
    add_data(a, b, nrl_node_find(f->config, "data"), "eval");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const nrl_node *section = nrl_node_find(f->config, rows[i].section);
        const char *name = rows[i].key ? arena_printf(a, "%s.%s", rows[i].section, rows[i].key) : rows[i].section;
        add_row(a, b, name, rows[i].key ? nrl_node_find(section, rows[i].key) : section);
    }
}

static char *card_text(arena *a, bool adapter, const facts *f)
{
    buffer b = {0};
    buffer_puts(&b, "---\n");
    add_yaml(&b, "license", f->license);
    add_yaml(&b, "license_name", f->license_name);
    add_yaml(&b, "license_link", f->license_link);
    add_yaml(&b, "base_model", f->base);
    add_yaml(&b, "library_name", adapter ? "peft" : "transformers");
    buffer_puts(&b, "pipeline_tag: text-generation\ntags: [nrl]\n---\n");
    buffer_print(&b, OUTPUT_CARD_MARKER "\n\n# %s\n\n", f->title);
    if (f->config && f->base) {
        buffer_puts(&b, adapter ? "Adapters for " : "Fine-tuned from ");
        add_code(&b, f->base);
        buffer_puts(&b, f->license ? ", whose licence applies.\n" : ".\n");
    } else if (f->config)
        buffer_puts(&b, "Trained from random weights.\n");
    add_config(a, &b, f);
    add_numbers(a, &b, "Loss of training", f->last_record);
    add_numbers(a, &b, "Evaluation", f->last_evaluation);
    if (f->version) buffer_print(&b, "\nTrained by nrl %s.", f->version);
    buffer_print(&b, "\nExported by nrl %s.\n", nrl_version());
    return buffer_take(&b);
}

/* Whether nrl may write the card of `dir`: there is none, or nrl has written it. */
static bool card_is_ours(const char *dir)
{
    char *path = mem_printf("%s/README.md", dir), *old = NULL;
    size_t size;
    bool is_ours =
        !exists(path) || (file_read(path, MAX_CARD, &old, &size) == NRL_OK && strstr(old, OUTPUT_CARD_MARKER));
    free(old);
    free(path);
    return is_ours;
}

char *nrl_model_card(const char *path, const char *dir, bool adapters)
{
    arena a = {0};
    facts f = {.version = NULL};
    nrl_checkpoint *c;
    if (!card_is_ours(dir)) return NULL;
    f.title = name_of(&a, dir);
    if (nrl_checkpoint_open(path, NULL, &c) != NRL_OK) { /* a model on disk: its own card is where it was */
        f.base = name_of(&a, path);
        read_license(&a, path, &f);
    } else {
        nrl_checkpoint_info info = {.size = sizeof info};
        nrl_checkpoint_info_fill(c, &info);
        f.step = info.step;
        const char *version = nrl_node_string(nrl_checkpoint_node(c, "nrl"), NULL);
        f.version = version ? arena_strdup(&a, version) : NULL;
        gather(&a, nrl_checkpoint_node(c, "config"), arena_printf(&a, "%s/../..", info.dir), &f);
        nrl_checkpoint_close(c);
    }
    char *text = card_text(&a, adapters, &f);
    arena_free(&a);
    return text;
}

char *card_of_run(nrl_run *r, const char *dir, int64_t step)
{
    arena a = {0};
    if (!card_is_ours(dir)) return NULL;
    const nrl_node *config = node_as_written(&a, nrl_run_config(r)); /* without values of ${env:...} */
    const char *name = nrl_node_string(nrl_node_find(config, "name"), "");
    facts f = {.version = nrl_version(), .step = step, .title = *name ? name : name_of(&a, nrl_run_out(r))};
    gather(&a, config, nrl_run_out(r), &f);
    char *text = card_text(&a, false, &f);
    arena_free(&a);
    return text;
}
