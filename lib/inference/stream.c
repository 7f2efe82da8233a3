/*
 * stream.c - windows of data that is read during training. A lane is a list of files that are read one after the
 * other, again and again: all files, or with shares those of one entry. The thread lives for one window. All that it
 * uses belongs to it until it is joined.
 */
#include "inference/stream.h"
#include "base/node.h"
#include "data/part.h"
#include "run/internal.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAIT_NS = 50000000 }; /* between two looks at the signal */

typedef struct {
    int64_t begin, end;       /* its parts */
    double from, to;          /* its share of a window */
    int64_t file;             /* the part that is read */
    data_position at;         /* where it was entered */
    int64_t passes, samples;  /* that are over; samples of this pass */
    int64_t all;              /* samples of a pass; 0 = not known */
    data_builder *builder;    /* NULL: `file` is not open */
    data_build_options build; /* of the builder, as */
    data_schema schema;
    char hash[HASH_TEXT]; /* of all files */
    int64_t bytes;
} lane;

struct data_stream {
    dataset_options o;
    data_stream_options stream;
    data_parts parts;
    lane *lanes;
    int64_t n_lanes, number;
    int64_t first; /* the windows before it are made and left out: those of a pipe before a restart */
    unsigned told; /* of data_builder_notes */
    bool has_pipe, over;
    atomic_bool stop;
    pthread_t thread;
    bool is_running, is_ready; /* there is a thread; `next` is the next window, or `status` why there is none */
    data_window next;
    nrl_status status;
    char *error; /* malloc'd, if status is not NRL_OK */
    buffer notes;
};

/* ---- files ---- */

static void close_file(data_stream *s, lane *l)
{
    data_builder_destroy(l->builder);
    l->builder = NULL;
    if (l->file < l->end) data_reader_stop(s->parts.items[l->file].reader);
}

static nrl_status open_file(data_stream *s, lane *l)
{
    data_part *p = &s->parts.items[l->file];
    NRL_TRY(data_part_check_unchanged(p));
    NRL_TRY(data_part_schema(&s->o, p, &l->schema));
    l->build = data_part_build_options(&s->o, p, &l->schema);
    l->build.signal = NULL; /* ranks have not agreed on it */
    l->build.stop = &s->stop;
    NRL_TRY(data_reader_start(p->reader));
    NRL_TRY(data_builder_create(&l->build, p->reader, &l->builder));
    return data_builder_seek(l->builder, &l->at);
}

static void note(data_stream *s, lane *l)
{
    buffer lines = {0};
    data_builder_notes(l->builder, &s->told, &lines);
    for (char *line = lines.text, *stop; line && (stop = strchr(line, '\n')); line = stop + 1)
        buffer_print(&s->notes, "%s: %.*s\n", l->build.name, (int)(stop - line), line);
    buffer_free(&lines);
}

static nrl_status finish_file(data_stream *s, lane *l)
{
    data_part *p = &s->parts.items[l->file];
    if (!l->at.range && !l->at.skip) NRL_TRY(data_builder_check(l->builder));
    NRL_TRY(data_part_check_unchanged(p));
    note(s, l);
    close_file(s, l);
    l->file++;
    l->at = (data_position){0};
    return NRL_OK;
}

/* ---- a window ---- */

static void add_file(data_part *out, int64_t first, const char *path)
{
    if (out->n_files && !strcmp(out->files[out->n_files - 1].path, path)) return;
    out->files = mem_realloc(out->files, (out->n_files + 1) * sizeof *out->files);
    out->files[out->n_files++] = (struct data_part_file){first, mem_strdup(path)};
}

/* Appends the next `want` examples of a lane, or fewer at the end of a pass. An example that follows is waited for, so
 * that the last window of a pass is known as such. */
static nrl_status fill(data_stream *s, lane *l, int64_t want, data_cache_writer *writer, data_cache_header *header,
                       data_part *out)
{
    int64_t n = 0;
    for (bool end = false;; end = false) {
        if (!l->builder && l->file == l->end) {
            if (!l->samples)
                return nrl_fail(NRL_ERR_DATA, "%s: it contains no row that can be trained on",
                                s->parts.items[l->begin].path);
            l->all = l->samples;
            l->samples = 0;
            l->passes++;
            l->file = l->begin;
            s->over = s->has_pipe;
            if (s->over || !s->stream.shares) break;
        }
        if (!l->builder) NRL_TRY(open_file(s, l));
        NRL_TRY(data_builder_more(l->builder, &end));
        if (end) {
            NRL_TRY(finish_file(s, l));
            continue;
        }
        if (n == want) break;
        if (!n) *header = data_cache_header_of(&l->schema, s->o.kl_pairs);
        add_file(out, n, l->build.name);
        NRL_TRY(data_builder_take(l->builder, writer, want - n));
        const int64_t now = data_cache_n_segments(writer) / header->n_sides;
        l->samples += now - n;
        n = now;
    }
    if (l->builder) note(s, l);
    return NRL_OK;
}

static nrl_status fill_part(data_stream *s, lane *l, data_part *out)
{
    const double window = (double)s->stream.window;
    const data_part *first = &s->parts.items[l->begin];
    data_cache_header header;
    data_cache_writer *writer;
    *out = (data_part){.path = mem_strdup(first->path),
                       .plugin_name = mem_strdup(first->plugin_name),
                       .plugin = first->plugin,
                       .weight = 1,
                       .entry = first->entry,
                       .bytes = l->bytes};
    snprintf(out->hash, sizeof out->hash, "%s", l->hash);
    NRL_TRY(data_cache_create_in_memory(&writer));
    nrl_status st = l->builder ? data_builder_next_cache(l->builder) : NRL_OK;
    if (st == NRL_OK) st = fill(s, l, (int64_t)(l->to * window) - (int64_t)(l->from * window), writer, &header, out);
    if (st != NRL_OK) {
        data_cache_abandon(writer);
        return st;
    }
    NRL_TRY(data_cache_finish(writer, &header, NULL, 0, &out->cache));
    snprintf(out->key, sizeof out->key, "%016" PRIx64, out->cache.header->sum);
    return NRL_OK;
}

static nrl_node *lane_node(arena *a, const lane *l)
{
    const data_position at = l->builder ? data_builder_position(l->builder) : l->at;
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append_int(a, map, "file", l->file - l->begin);
    node_append_int(a, map, "range", at.range);
    node_append_int(a, map, "rows", at.rows);
    node_append_int(a, map, "skip", at.skip);
    node_append_text(a, map, "at", at.at);
    node_append_int(a, map, "passes", l->passes);
    node_append_int(a, map, "samples", l->samples);
    node_append_int(a, map, "all", l->all);
    return map;
}

static nrl_status make_window(data_stream *s, data_window *w)
{
    const lane *first = &s->lanes[0];
    data_parts parts = {.items = mem_alloc((size_t)s->n_lanes * sizeof *parts.items)};
    nrl_node *lanes = node_new(&w->memory, NRL_NODE_LIST);
    nrl_status st = NRL_OK;
    w->state = node_new(&w->memory, NRL_NODE_MAP);
    w->number = s->number;
    w->passes = first->passes;
    w->done = first->samples;
    node_append_int(&w->memory, w->state, "number", s->number);
    node_append(&w->memory, w->state, "lanes", lanes);
    for (lane *l = s->lanes; st == NRL_OK && l < s->lanes + s->n_lanes; l++) {
        if (l->passes < w->passes) w->passes = l->passes;
        node_append(&w->memory, lanes, NULL, lane_node(&w->memory, l));
        st = fill_part(s, l, &parts.items[parts.n++]);
    }
    if (st == NRL_OK)
        st = dataset_of_parts(&s->o, &parts, &w->set);
    else
        data_parts_free(&parts);
    if (st != NRL_OK) return st;
    w->n = dataset_info(w->set)->n_examples;
    w->all = s->stream.shares ? 0 : first->all;
    s->number++;
    return NRL_OK;
}

/* ---- the thread ---- */

static void make_next(data_stream *s)
{
    do {
        data_window_close(&s->next);
        if (s->over) break;
        s->status = make_window(s, &s->next);
    } while (s->status == NRL_OK &&
             (s->next.number < s->first || (s->next.n < s->stream.least && s->next.done && s->number--)));
    if (s->status != NRL_OK) s->error = mem_strdup(nrl_error_text());
}

static void *run_thread(void *user)
{
    int was;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was); /* but while a pipe is read (build.c) */
    make_next(user);
    return NULL;
}

void data_stream_prefetch(data_stream *s)
{
    if (s->is_running || s->is_ready) return;
    s->is_ready = true;
    s->is_running = pthread_create(&s->thread, NULL, run_thread, s) == 0;
    if (!s->is_running) make_next(s);
}

nrl_status data_stream_next(data_stream *s, data_window *out)
{
    const bool heeds = s->has_pipe || !s->number;
    data_stream_prefetch(s);
    while (s->is_running) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WAIT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        s->is_running = pthread_timedjoin_np(s->thread, NULL, &until) != 0;
        if (s->is_running && heeds && s->o.signal && *s->o.signal)
            return nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) while data.%s was read", *s->o.signal,
                            strsignal(*s->o.signal), s->o.role);
    }
    for (char *line = s->notes.text, *stop; line && (stop = strchr(line, '\n')) && !s->o.quiet; line = stop + 1)
        nrl_warn("%.*s (so far; printed once)", (int)(stop - line), line);
    buffer_free(&s->notes);
    if (s->status != NRL_OK) return nrl_fail(s->status, "%s", s->error);
    *out = s->next;
    s->next = (data_window){0};
    s->is_ready = false;
    return NRL_OK;
}

/* Ends the thread and forgets what it has made. */
static void halt(data_stream *s)
{
    atomic_store(&s->stop, true);
    if (s->is_running && s->has_pipe) pthread_cancel(s->thread); /* which may wait for bytes that never come */
    if (s->is_running) pthread_join(s->thread, NULL);
    atomic_store(&s->stop, false);
    s->is_running = s->is_ready = s->over = false;
    data_window_close(&s->next);
    buffer_free(&s->notes);
    free(s->error);
    s->error = NULL;
    s->status = NRL_OK;
    for (int64_t i = 0; i < s->n_lanes; i++)
        close_file(s, &s->lanes[i]);
}

/* ---- life ---- */

void data_window_close(data_window *w)
{
    dataset_close(w->set);
    arena_free(&w->memory);
    *w = (data_window){0};
}

static nrl_status fail_weight(const data_stream *s, const data_part *p)
{
    return nrl_fail(NRL_ERR_CONFIG,
                    "data.%s: %s has weight %g, but data.streaming reads each row of an entry once per pass\n"
                    "hint: with data.mix: {power: 0} the weights are the shares of the entries",
                    s->o.role, p->path, p->weight);
}

/* Divides the parts into lanes. */
static nrl_status set_lanes(data_stream *s)
{
    const data_part *items = s->parts.items;
    double sum = 0, at = 0;
    s->lanes = mem_alloc((size_t)s->parts.n * sizeof *s->lanes);
    for (int64_t i = 0; i < s->parts.n; i++) {
        const bool is_new = !i || (s->stream.shares && items[i].entry != items[i - 1].entry);
        if (!s->stream.shares && items[i].weight != 1) return fail_weight(s, &items[i]);
        if (items[i].is_pipe && s->parts.n > 1)
            return nrl_fail(NRL_ERR_CONFIG, "%s: a pipe must be the only file of data.%s", items[i].path, s->o.role);
        s->has_pipe |= items[i].is_pipe;
        lane *l = &s->lanes[s->n_lanes += is_new] - 1;
        if (is_new) *l = (lane){.begin = i, .file = i};
        if (is_new) sum += items[i].weight;
        l->end = i + 1;
        l->bytes += items[i].bytes;
        char *all = mem_printf("%s%s", l->hash, items[i].hash);
        hash_bytes(all, strlen(all), l->hash);
        free(all);
    }
    for (lane *l = s->lanes; l < s->lanes + s->n_lanes; l++) {
        l->from = at / sum;
        at += items[l->begin].weight;
        l->to = l + 1 == s->lanes + s->n_lanes ? 1 : at / sum;
        if ((int64_t)(l->to * (double)s->stream.window) > (int64_t)(l->from * (double)s->stream.window)) continue;
        return nrl_fail(NRL_ERR_CONFIG, "data.shuffle_buffer: of %" PRId64 " samples none are of %s, by its share",
                        s->stream.window, items[l->begin].path);
    }
    return NRL_OK;
}

nrl_status data_stream_open(const dataset_options *options, const data_stream_options *stream, data_stream **out)
{
    data_stream *s = mem_alloc(sizeof *s);
    data_schema schema;
    s->o = *options;
    s->o.streaming = true;
    s->o.role = options->role ? options->role : "train";
    s->stream = *stream;
    nrl_status st = data_parts_open(&s->o, &schema, &s->parts);
    for (int64_t i = 0; i < s->parts.n && st == NRL_OK; i++) {
        data_part *p = &s->parts.items[i];
        st = data_part_identify(&s->o, p);
        if (st != NRL_OK) nrl_add_context("data.%s", s->o.role);
        if (st == NRL_OK && !p->is_pipe) data_reader_stop(p->reader);
    }
    if (st == NRL_OK) st = set_lanes(s);
    if (st == NRL_OK)
        *out = s;
    else
        data_stream_close(s);
    return st;
}

void data_stream_close(data_stream *s)
{
    if (!s) return;
    halt(s);
    data_parts_free(&s->parts);
    free(s->lanes);
    free(s);
}

/* ---- a resumed run ---- */

nrl_status data_stream_restart(data_stream *s, const nrl_node *state, const char **again)
{
    const nrl_node *lanes = nrl_node_find(state, "lanes");
    const int64_t number = nrl_node_int(nrl_node_find(state, "number"), -1);
    bool good = number >= 0 && nrl_node_size(lanes) == (size_t)s->n_lanes;
    *again = s->has_pipe ? s->parts.items[0].path : NULL;
    s->first = number;
    if (good && s->has_pipe) return NRL_OK;
    halt(s);
    s->number = number;
    for (int64_t i = 0; good && i < s->n_lanes; i++) {
        lane *l = &s->lanes[i];
        const nrl_node *map = nrl_node_at(lanes, (size_t)i);
        const struct {
            const char *key;
            int64_t *out;
        } numbers[] = {{"file", &l->file},     {"range", &l->at.range},  {"rows", &l->at.rows}, {"skip", &l->at.skip},
                       {"passes", &l->passes}, {"samples", &l->samples}, {"all", &l->all}};
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            *numbers[k].out = nrl_node_int(nrl_node_find(map, numbers[k].key), -1);
            good = good && *numbers[k].out >= 0;
        }
        good = good && l->file < l->end - l->begin;
        l->file += l->begin;
        snprintf(l->at.at, sizeof l->at.at, "%s", nrl_node_string(nrl_node_find(map, "at"), ""));
        if (good && l->at.range && !*l->at.at && !*again) *again = s->parts.items[l->file].path;
    }
    return good ? NRL_OK : nrl_fail(NRL_ERR_CORRUPT, "stream: expected the files of the run, and numbers");
}

/* ---- of a run ---- */

/* session.stream */
typedef struct {
    data_stream *stream;
    data_window window; /* its set belongs to session.train */
} run_stream;

static nrl_status stream_open(session *se, double held_out, const char *role, dataset **first)
{
    const config_data *d = &se->config.data;
    const int64_t batch = se->config.train.global_batch, rest = d->shuffle_buffer % batch;
    const dataset_options o = session_dataset_options(se, d->train, held_out, role);
    const data_stream_options options = {.window = d->shuffle_buffer + (rest ? batch - rest : 0),
                                         .least = d->last_batch == CONFIG_LAST_BATCH_DROP ? batch : 0,
                                         .shares = !o.is_held_out && d->mixed.power == 0};
    run_stream *r = mem_alloc(sizeof *r);
    nrl_status st = data_stream_open(&o, &options, &r->stream);
    if (st == NRL_OK && r->stream->has_pipe && mesh_n_batches(se->mesh) > 1)
        st = nrl_fail(NRL_ERR_CONFIG, "%s: several ranks cannot share a pipe\nhint: write its rows to a file",
                      r->stream->parts.items[0].path);
    if (st == NRL_OK) st = data_stream_next(r->stream, &r->window);
    *first = r->window.set;
    r->window.set = NULL;
    if (st == NRL_OK && !o.is_held_out) {
        se->stream = r;
        return NRL_OK;
    }
    data_window_close(&r->window);
    data_stream_close(r->stream);
    free(r);
    return st;
}

static void stream_close(session *se)
{
    run_stream *r = se->stream;
    data_window_close(&r->window);
    data_stream_close(r->stream);
    free(r);
    se->stream = NULL;
}

/* Takes the next window; the current one stays on failure, and where a pipe has ended. */
static nrl_status next_window(session *se, bool *over)
{
    run_stream *r = se->stream;
    data_window next;
    NRL_TRY(data_stream_next(r->stream, &next));
    *over = !next.set;
    if (*over) return NRL_OK;
    char *lines = mem_printf("window %lld of data.train: %s\n", (long long)next.number, dataset_info(next.set)->hash);
    nrl_status st = mesh_compare(se->mesh, "other data", lines, "every node must have the same files");
    free(lines);
    data_window_close(&r->window);
    r->window = next;
    r->window.set = NULL;
    nrl_status opened = session_set_train(se, next.set);
    return st == NRL_OK ? opened : st;
}

/* A plan counts the steps of all windows as if each were an epoch of this one. */
static int64_t first_step(const session *se)
{
    return ((const run_stream *)se->stream)->window.number * data_plan_steps_per_epoch(se->train.plan);
}

static nrl_status stream_advance(session *se, int64_t step, bool *over)
{
    run_stream *r = se->stream;
    *over = false;
    while (step - se->train.begin >= first_step(se) + data_plan_steps_per_epoch(se->train.plan)) {
        NRL_TRY(next_window(se, over));
        if (*over) return NRL_OK;
        se->train.begin = step - first_step(se);
    }
    data_stream_prefetch(r->stream);
    return NRL_OK;
}

/* The number of the window is that of the epoch of its plan. */
static double stream_epoch(const session *se, double of_plan)
{
    const data_window *w = &((const run_stream *)se->stream)->window;
    const double share = of_plan - (double)w->number;
    return (double)w->passes + (w->all ? ((double)w->done + share * (double)w->n) / (double)w->all : 0);
}

static nrl_node *stream_node(const session *se, arena *a)
{
    const run_stream *r = se->stream;
    nrl_node *map = node_copy(a, r->window.state);
    node_append_int(a, map, "begin", se->train.begin + first_step(se));
    node_append_text(a, map, "hash", dataset_info(se->train.set)->hash);
    return map;
}

nrl_status stream_resumed(nrl_run *of, const nrl_node *node)
{
    session *se = &of->session;
    run_stream *r = se->stream;
    const char *again = NULL;
    bool over = false;
    if (!r || !node) return NRL_OK;
    if (nrl_node_int(nrl_node_find(node, "number"), -1) != r->window.number) {
        NRL_TRY(data_stream_restart(r->stream, node, &again));
        if (again)
            telemetry_log(&of->telemetry,
                          "resume     %s is read again from its beginning, because nrl cannot seek in it", again);
        NRL_TRY(next_window(se, &over));
    }
    if (over || strcmp(nrl_node_string(nrl_node_find(node, "hash"), ""), dataset_info(se->train.set)->hash))
        return nrl_fail(NRL_ERR_CONFIG,
                        "data.train: the rows at the position of the checkpoint, or their tokens, have changed\n"
                        "hint: restore the files");
    se->train.begin = nrl_node_int(nrl_node_find(node, "begin"), 0) - first_step(se);
    return NRL_OK;
}

const struct nrl_run_streams stream_table = {
    .open = stream_open, .close = stream_close, .advance = stream_advance, .epoch = stream_epoch, .node = stream_node};
