/*
 * telemetry.c - records and events of a run, see telemetry.h.
 */
#include "run/output/telemetry.h"
#include "api/status.h"
#include "base/arena.h"
#include "run/output/out.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- one at a time ----
 * The thread that holds `speaking` calls loggers and programs. A thread that must not wait for them (the one that
 * watches other ranks, or a logger that warns while it writes) leaves its warning in the queue, which the holder
 * empties. */

struct telemetry_event {
    telemetry_event *next;
    telemetry *of; /* NULL: the run that is in use */
    nrl_run_event event;
};

static pthread_mutex_t speaking = PTHREAD_MUTEX_INITIALIZER, queue_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int is_speaking; /* how deep */
static telemetry_event *queue, **queue_end = &queue;
static telemetry *in_use; /* the newest that was used, then older ones */

/* Copies an event with its texts in one allocation; NULL: no memory. */
static telemetry_event *event_copy(telemetry *of, const nrl_run_event *e)
{
    size_t text = e->text ? strlen(e->text) + 1 : 0, path = e->path ? strlen(e->path) + 1 : 0;
    telemetry_event *copy = malloc(sizeof *copy + text + path);
    if (!copy) return NULL;
    char *to = (char *)(copy + 1);
    *copy = (telemetry_event){.of = of, .event = *e};
    if (text) copy->event.text = memcpy(to, e->text, text);
    if (path) copy->event.path = memcpy(to + text, e->path, path);
    return copy;
}

static void event_append(telemetry_event ***end, telemetry_event *e)
{
    **end = e;
    *end = &e->next;
}

static bool queue_put(telemetry *of, const nrl_run_event *e)
{
    telemetry_event *copy = event_copy(of, e);
    if (!copy) return false;
    pthread_mutex_lock(&queue_lock);
    event_append(&queue_end, copy);
    pthread_mutex_unlock(&queue_lock);
    return true;
}

static bool send_to_loggers(const telemetry *t, const nrl_run_event *e)
{
    bool heard = false;
    for (size_t i = 0; i < t->n_loggers; i++) {
        const run_logger *l = &t->loggers[i];
        if (!l->opened || !l->table->event) continue;
        l->table->event(l->self, e);
        heard = true;
    }
    return heard;
}

/* Passes the event to all receivers. A warning without a receiver is printed. */
static void event_deliver(telemetry *t, const nrl_run_event *e)
{
    bool heard = false;
    if (t && t->event && e->kind != NRL_EVENT_SAVE) { /* a save comes when the ranks agree, see saver.c */
        t->event(t->event_user, e);
        heard = t->takes_warnings;
    }
    if (t) heard |= send_to_loggers(t, e);
    if (!heard && e->kind == NRL_EVENT_WARNING) status_print_warning(e->text);
}

static void queue_empty(void)
{
    for (;;) {
        pthread_mutex_lock(&queue_lock);
        telemetry_event *e = queue;
        if (e) queue = e->next;
        if (!queue) queue_end = &queue;
        pthread_mutex_unlock(&queue_lock);
        if (!e) return;
        event_deliver(e->of ? e->of : in_use, &e->event);
        free(e);
    }
}

/* Empties the queue, unless another thread is doing so. */
static void queue_flush(void)
{
    bool more = true;
    while (more && !is_speaking && !pthread_mutex_trylock(&speaking)) {
        is_speaking = 1;
        queue_empty();
        is_speaking = 0;
        pthread_mutex_unlock(&speaking);
        pthread_mutex_lock(&queue_lock);
        more = queue != NULL; /* of a thread that found `speaking` held just now */
        pthread_mutex_unlock(&queue_lock);
    }
}

/* For the step thread, which may wait. */
static void speak_begin(void)
{
    if (!is_speaking) pthread_mutex_lock(&speaking);
    if (!is_speaking++) queue_empty();
}

static void speak_end(void)
{
    if (is_speaking == 1) queue_empty();
    if (--is_speaking) return;
    pthread_mutex_unlock(&speaking);
    queue_flush();
}

/* status_sink */
static bool take_warning(const char *text)
{
    const nrl_run_event e = {.size = sizeof e, .kind = NRL_EVENT_WARNING, .text = text};
    if (!queue_put(NULL, &e)) return false;
    queue_flush();
    return true;
}

static void list_remove(telemetry *t)
{
    telemetry **at = &in_use;
    while (*at && *at != t)
        at = &(*at)->older;
    if (*at) *at = t->older;
}

void telemetry_use(telemetry *t)
{
    if (!t->is_open) return;
    speak_begin();
    list_remove(t);
    t->older = in_use;
    in_use = t;
    speak_end();
}

static void start_listening(telemetry *t)
{
    if (t->is_open) return;
    t->is_open = true;
    telemetry_use(t);
    status_set_warning_sink(take_warning);
}

/* ---- events ---- */

void telemetry_begin(telemetry *t, bool loggers_open)
{
    t->holds = loggers_open;
    t->held_end = &t->held;
    if (t->event) start_listening(t);
}

void telemetry_emit(telemetry *t, nrl_run_event e)
{
    if (t->quiet) return;
    e.size = sizeof e;
    e.step = t->step ? *t->step : 0;
    telemetry_event *kept = t->holds ? event_copy(t, &e) : NULL;
    if (kept) event_append(&t->held_end, kept);
    if (is_speaking) { /* a program's callback that calls the run */
        queue_put(t, &e);
        return;
    }
    speak_begin();
    event_deliver(t, &e);
    speak_end();
}

void telemetry_report(telemetry *t, nrl_run_event_kind kind, const char *path, const char *fmt, ...)
{
    char *text = NULL;
    va_list a;
    va_start(a, fmt);
    if (!t->quiet && vasprintf(&text, fmt, a) >= 0)
        telemetry_emit(t, (nrl_run_event){.kind = kind, .text = text, .path = path});
    va_end(a);
    free(text);
}

/* ---- loggers ---- */

enum { MAX_REPORTED = 3 }; /* a disk that is full now and then must not fill the terminal */

static void logger_failed(run_logger *l)
{
    l->n_missing++;
    if (l->failing) return;
    l->failing = true;
    if (l->n_reported++ < MAX_REPORTED)
        nrl_warn("logger '%s' failed; the next record is tried again: %s", l->name, nrl_error_text());
}

static nrl_status logger_claim(void *user, const char *name)
{
    run_logger *l = user;
    NRL_TRY(claims_check_home(l->claims));
    nrl_status st = out_is_own(name)
                        ? nrl_fail(NRL_ERR_CONFIG, "out: '%s' is a file of the run itself; expected another name", name)
                        : claims_take(l->claims, name);
    l->refused = st == NRL_ERR_CONFIG;
    return st;
}

static nrl_status logger_open(const telemetry *t, run_logger *l)
{
    nrl_logger_run about = t->about;
    about.claim = logger_claim;
    about.claim_user = l;
    nrl_status st = l->table->open(l->options, &about, &l->self);
    l->opened = st == NRL_OK;
    return st;
}

nrl_status telemetry_open(telemetry *t, const nrl_logger_run *about, claims *own)
{
    t->about = *about;
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < t->n_loggers; i++)
        t->loggers[i].claims = own;
    speak_begin();
    for (size_t i = 0; i < t->n_loggers && st == NRL_OK; i++) {
        run_logger *l = &t->loggers[i];
        st = logger_open(t, l);
        if (st == NRL_OK) continue;
        if (l->refused) {
            nrl_add_context("logger '%s'", l->name);
            break;
        }
        logger_failed(l);
        l->n_missing = 0; /* no record yet */
        st = NRL_OK;
    }
    t->holds = false;
    for (telemetry_event *e; (e = t->held); free(e)) {
        t->held = e->next;
        if (st == NRL_OK) send_to_loggers(t, &e->event); /* the program has received them already */
    }
    speak_end();
    if (st == NRL_OK && t->n_loggers) start_listening(t);
    return st;
}

void telemetry_record(telemetry *t, nrl_record_kind kind, int64_t step, double eta, const nrl_value *values, size_t n,
                      const nrl_sample_text *samples, size_t n_samples)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const nrl_record record = {.size = sizeof record,
                               .kind = kind,
                               .step = step,
                               .total_steps = t->about.total_steps,
                               .time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
                               .eta_seconds = eta,
                               .values = values,
                               .n_values = n,
                               .samples = samples,
                               .n_samples = n_samples};
    speak_begin();
    for (size_t i = 0; i < t->n_loggers; i++) {
        run_logger *l = &t->loggers[i];
        nrl_status st = l->opened ? NRL_OK : logger_open(t, l);
        if (st == NRL_OK) st = l->table->write(l->self, &record);
        if (st != NRL_OK)
            logger_failed(l);
        else if (l->failing && l->n_reported <= MAX_REPORTED)
            nrl_warn("logger '%s' works again; %lld record%s missing", l->name, (long long)l->n_missing,
                     l->n_missing == 1 ? " is" : "s are");
        l->failing = st != NRL_OK;
    }
    speak_end();
}

void telemetry_warn_missing(telemetry *t)
{
    for (size_t i = 0; i < t->n_loggers; i++) {
        run_logger *l = &t->loggers[i];
        if (l->n_missing)
            nrl_warn("%lld record%s of this run %s missing in logger '%s'", (long long)l->n_missing,
                     l->n_missing == 1 ? "" : "s", l->n_missing == 1 ? "is" : "are", l->name);
        l->n_missing = 0;
    }
}

void telemetry_close(telemetry *t)
{
    telemetry_warn_missing(t);
    speak_begin();
    for (telemetry_event *e; (e = t->held); free(e))
        t->held = e->next;
    for (size_t i = 0; i < t->n_loggers; i++)
        if (t->loggers[i].opened && t->loggers[i].self && t->loggers[i].table->close)
            t->loggers[i].table->close(t->loggers[i].self);
    t->n_loggers = 0;
    list_remove(t);
    t->is_open = false;
    if (!in_use) status_set_warning_sink(NULL);
    speak_end();
}
