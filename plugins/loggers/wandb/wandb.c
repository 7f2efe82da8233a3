/*
 * wandb.c - records for Weights & Biases, by its official package in a Python process of its own (wandb_helper.py).
 *
 * By default the package works offline: it writes OUT/wandb/offline-run-*, which `wandb sync` uploads. Names are those
 * of the transformers Trainer: train/loss, eval/loss, over train/global_step. A thread talks to the process, so neither
 * a slow package nor a missing one delays a step; a process that ends is started again. Both that and a resumed run
 * continue the same run of Weights & Biases; steps that are computed again appear twice.
 */
#include "base/json.h"
#include "helper.h"
#include "log_file.h"
#include <errno.h>
#include <nrl/nrl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    const char *project, *entity, *tags;
    int64_t mode, queue;
    double close_seconds;
} wandb_options;

enum { OFFLINE, ONLINE };

static const nrl_option wandb_rows[] = {
    NRL_OPT_STR(wandb_options, project, "nrl", "name of the project"),
    NRL_OPT_STR(wandb_options, entity, "", "user or team that owns the project; empty: the default of the package"),
    NRL_OPT_STR(wandb_options, tags, "", "tags of the run, separated by commas"),
    NRL_OPT_ENUM(wandb_options, mode, "offline", "offline|online",
                 "offline: only OUT/wandb, for `wandb sync`; online: the package sends the run to its server"),
    NRL_OPT_INT(wandb_options, queue, "10000", 1, 1e7, "maximum number of records that wait while the package is busy"),
    NRL_OPT_F64(wandb_options, close_seconds, "60", 0, 3600, "seconds that the end of a run waits for the package"),
};

typedef struct {
    const wandb_options *options;
    record_queue *queue;
    log_file folder; /* OUT/wandb; never open as a file */
    /* The first line for the helper. The second one is for every start after the first: it continues the run of
     * Weights & Biases that the helper began. */
    char *settings[2];
    bool has_started;
    char *log;
    helper helper;
} wandb;

/* Names as transformers has them: eval_loss is eval/loss, loss is train/loss. */
static void add_values(arena *a, nrl_node *map, const nrl_record *r)
{
    for (size_t i = 0; i < r->n_values; i++) {
        const char *name = r->values[i].name;
        if (!name) continue;
        bool is_eval = !strncmp(name, "eval_", 5);
        node_set(a, map, arena_printf(a, "%s/%s", is_eval ? "eval" : "train", is_eval ? name + 5 : name),
                 node_f64(a, r->values[i].value));
    }
}

static nrl_status ask(wandb *w, const nrl_node *tree)
{
    buffer line = {.what = "a record"};
    json_add(&line, tree, 0);
    buffer_puts(&line, "\n");
    nrl_status st = buffer_check(&line);
    if (st == NRL_OK) st = helper_ask(&w->helper, line.text, line.size);
    buffer_free(&line);
    return st;
}

static void add_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    if (text) node_append_text(a, map, key, text);
}

static void add_samples(arena *a, nrl_node *tree, const nrl_record *r)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (size_t i = 0; i < r->n_samples; i++) {
        const nrl_sample_text *s = &r->samples[i];
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        node_append_int(a, map, "index", s->index);
        add_text(a, map, "prompt", s->prompt);
        add_text(a, map, "text", s->text);
        add_text(a, map, "answer", s->answer);
        if (!isnan(*s->score)) node_append(a, map, "score", node_f64(a, *s->score));
        node_append(a, list, NULL, map);
    }
    node_append(a, tree, "samples", list);
}

static nrl_status start_helper(wandb *w)
{
    NRL_TRY(helper_start(&w->helper));
    const char *settings = w->settings[w->has_started];
    w->has_started = true;
    return helper_ask(&w->helper, settings, strlen(settings));
}

static nrl_status wandb_send(void *user, const nrl_record *const *records, size_t n, size_t *n_sent)
{
    wandb *w = user;
    if (!w->helper.pid) NRL_TRY(start_helper(w));
    for (; *n_sent < n; ++*n_sent) {
        const nrl_record *r = records[*n_sent];
        arena a = {0};
        nrl_node *tree = node_new(&a, NRL_NODE_MAP), *values = node_new(&a, NRL_NODE_MAP);
        add_values(&a, values, r);
        node_append_int(&a, tree, "step", r->step);
        node_append(&a, tree, "ends", node_bool(&a, r->kind == NRL_RECORD_END));
        node_append(&a, tree, "values", values);
        if (r->n_samples) add_samples(&a, tree, r);
        nrl_status st = ask(w, tree);
        arena_free(&a);
        NRL_TRY(st);
    }
    return NRL_OK;
}

static void wandb_finish(void *user)
{
    wandb *w = user;
    if (w->helper.pid) helper_finish(&w->helper);
}

static void wandb_close(void *self)
{
    wandb *w = self;
    record_queue_close(w->queue);
    log_file_close(&w->folder);
    for (int i = 0; i < 2; i++)
        free(w->settings[i]);
    free(w->log);
    free(w);
}

/* NULL without memory. */
static char *make_settings(const wandb_options *o, const nrl_logger_run *run, bool continues)
{
    arena a = {0};
    nrl_node *map = node_new(&a, NRL_NODE_MAP);
    node_append_text(&a, map, "out", run->out);
    node_append_text(&a, map, "name", run->name ? run->name : "run");
    node_append_text(&a, map, "project", o->project);
    node_append_text(&a, map, "entity", o->entity);
    node_append_text(&a, map, "tags", o->tags);
    node_append_text(&a, map, "mode", o->mode == ONLINE ? "online" : "offline");
    node_append(&a, map, "continues", node_bool(&a, continues));
    node_append(&a, map, "config", run->config ? node_as_written(&a, run->config) : node_new(&a, NRL_NODE_MAP));
    buffer line = {.what = "the settings of logger 'wandb'"};
    json_add(&line, map, 0);
    buffer_puts(&line, "\n");
    arena_free(&a);
    return buffer_take(&line);
}

static nrl_status wandb_begin(wandb *w, const nrl_logger_run *run)
{
    NRL_TRY(log_file_init(&w->folder, run, "wandb"));
    if (mkdir(w->folder.path, 0777) && errno != EEXIST) return log_file_failed(w->folder.path, errno);
    w->settings[0] = make_settings(w->options, run, run->resumed_step > 0);
    w->settings[1] = make_settings(w->options, run, true);
    if (!w->settings[0] || !w->settings[1]) return NRL_ERR_MEMORY;
    if (asprintf(&w->log, "%s/nrl-helper.log", w->folder.path) < 0) {
        w->log = NULL;
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'wandb'");
    }
    w->helper = (helper){.log = w->log, .queue = &w->queue};
    const record_queue_options queue = {.logger = "wandb",
                                        .most = w->options->queue,
                                        .close_seconds = w->options->close_seconds,
                                        .send = wandb_send,
                                        .finish = wandb_finish,
                                        .user = w};
    return record_queue_open(&queue, &w->queue);
}

static nrl_status wandb_open(const void *options, const nrl_logger_run *run, void **self)
{
    wandb *w = calloc(1, sizeof *w);
    if (!w) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'wandb'");
    w->options = options;
    w->folder.fd = -1;
    nrl_status st = wandb_begin(w, run);
    if (st == NRL_OK)
        *self = w;
    else
        wandb_close(w);
    return st;
}

static nrl_status wandb_write(void *self, const nrl_record *r)
{
    return record_queue_put(((wandb *)self)->queue, r);
}

static const nrl_logger wandb_table = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, wandb_options, wandb_rows, "wandb", "0.1",
               "a run of Weights & Biases, offline by default, in OUT/wandb"),
    .open = wandb_open,
    .write = wandb_write,
    .close = wandb_close,
};
NRL_EXPORT(wandb_table)
