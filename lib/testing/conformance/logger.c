/*
 * logger.c - rules for every logger: it accepts any record, reports failures by a status, and never
 * delays the step. Each call runs in a thread of its own, so that a hanging one is detected,
 * and each case in a process of its own, so that a crashing one is.
 */
#include "files.h"
#include "base/file.h"
#include "lives.h"
#include "suites.h"
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SECONDS = 10, PATIENCE_SECONDS = 3, N_MANY = 200, N_STEPS = 6, RESUMED = 3, MAX_FILE = 1 << 20 };
#define LATE_VALUE 54321 /* of a record that a resume drops */
#define LATE_TEXT "54321"

typedef struct {
    const nrl_logger *table;
    conformance_report *report;
    const char *folder;
    const void *options;
    bool hangs; /* no further calls are made */
    bool lost;  /* a call has not returned: nothing that it may use is freed */
} suite;

/* ---- calls with a time limit ---- */

typedef struct {
    const nrl_logger *table;
    void *self;
    const nrl_record *record;
    nrl_status status;
    char text[256];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
} call;

static void *write_in_thread(void *user)
{
    call *c = user;
    c->status = c->table->write(c->self, c->record);
    if (c->status != NRL_OK) snprintf(c->text, sizeof c->text, "%s", nrl_error_text());
    pthread_mutex_lock(&c->lock);
    c->done = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void call_init(call *c)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &a);
    pthread_condattr_destroy(&a);
    pthread_mutex_init(&c->lock, NULL);
}

/* False: it is not done at that time. */
static bool call_await(call *c, const struct timespec *end)
{
    int error = 0;
    pthread_mutex_lock(&c->lock);
    while (!c->done && !error)
        error = pthread_cond_timedwait(&c->changed, &c->lock, end);
    bool done = c->done;
    pthread_mutex_unlock(&c->lock);
    return done;
}

/* If the call does not end, `call` is not freed. */
static nrl_status write_timed(suite *s, void *self, const nrl_record *record, const char *what)
{
    struct timespec end;
    pthread_t thread;
    call *c = calloc(1, sizeof *c);
    *c = (call){.table = s->table, .self = self, .record = record};
    call_init(c);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += MOST_SECONDS;
    NRL_ASSERT(pthread_create(&thread, NULL, write_in_thread, c), ==, 0);
    s->hangs = !call_await(c, &end);
    report_check(s->report, !s->hangs, "a write never delays the step", "%s: not done after %d s", what, MOST_SECONDS);
    end.tv_sec += PATIENCE_SECONDS;
    s->lost = !call_await(c, &end);
    if (s->lost) return NRL_ERR_PEER;
    pthread_join(thread, NULL);
    nrl_status st = c->status;
    report_check(s->report, st == NRL_OK, "a write takes any record", "%s: %s", what, c->text);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return st;
}

/* ---- runs and records ---- */

/* Every file may be written, as where the member is NULL; a logger that always calls it is right too. */
static nrl_status claim_any(void *claim_user, const char *name)
{
    (void)claim_user;
    (void)name;
    return NRL_OK;
}

static nrl_logger_run run_in(const char *folder)
{
    return (nrl_logger_run){
        .size = sizeof(nrl_logger_run), .out = folder, .name = "conformance", .total_steps = 1000, .claim = claim_any};
}

static bool open_in(suite *s, const char *folder, int64_t resumed, void **self)
{
    nrl_logger_run run = run_in(folder);
    run.resumed_step = resumed;
    *self = NULL;
    nrl_status st = s->table->open(s->options, &run, self);
    return report_check(s->report, st == NRL_OK, "a logger opens in a writable directory", "%s", nrl_error_text());
}

static nrl_record record_of(int64_t step, const nrl_value *values, size_t n)
{
    return (nrl_record){.size = sizeof(nrl_record),
                        .kind = NRL_RECORD_TRAIN,
                        .step = step,
                        .total_steps = 1000,
                        .time = 1.7e9 + (double)step,
                        .eta_seconds = 10,
                        .values = values,
                        .n_values = n};
}

static void close_it(suite *s, void *self)
{
    if (!s->lost) s->table->close(self);
}

/* ---- rules ---- */

enum { N_USUAL = 6 };

/* In writable memory: a logger that writes to it must fail a rule, not crash the program. */
static void fill_usual(nrl_value values[N_USUAL])
{
    static const nrl_value usual[N_USUAL] = {
        {"loss", "nats", 1.5}, {"grad_norm", "1", 0.5},        {"lr", "1", 1e-4},
        {"tokens", "", 1e6},   {"tokens_per_s", "tok/s", 5e4}, {"mem_bytes", "bytes", 1e9},
    };
    memcpy(values, usual, sizeof usual);
}

static void check_odd_values(void *user)
{
    suite *s = user;
    char long_name[2001];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    nrl_value usual[N_USUAL], odd[] = {
                                  {"loss", "nats", NAN},
                                  {"grad_norm", "1", INFINITY},
                                  {"lr", "1", -INFINITY},
                                  {"tokens_per_s", "", -1},
                                  {"mem_bytes", "", 1e300},
                                  {"mfu", NULL, 5e-324},
                                  {"", "", 0},
                                  {long_name, "", 1},
                                  {"a \"quoted\"\nname\\", "%s%n", 2},
                                  {"\xff\xfe", "", 3},
                                  {"loss", "", 4},
                              };
    void *self;
    fill_usual(usual);
    if (!open_in(s, s->folder, 0, &self)) return;
    nrl_record r = record_of(1, odd, sizeof odd / sizeof *odd);
    write_timed(s, self, &r, "NaN, infinities, odd names");
    nrl_record empty = record_of(2, NULL, 0);
    if (!s->hangs) write_timed(s, self, &empty, "no values");
    nrl_record strange = record_of(0, usual, 1);
    strange.total_steps = 0;
    strange.eta_seconds = -1;
    if (!s->hangs) write_timed(s, self, &strange, "step 0 of an unknown number");
    strange.kind = NRL_RECORD_EVAL;
    strange.eta_seconds = INFINITY;
    strange.step = INT64_MAX;
    if (!s->hangs) write_timed(s, self, &strange, "a step beyond the last");
    close_it(s, self);
}

/* Records live until write returns; a logger must copy what it keeps. */
static void check_many(void *user)
{
    suite *s = user;
    void *self;
    if (!open_in(s, s->folder, 0, &self)) return;
    for (int64_t step = 1; step <= N_MANY && !s->hangs; step++) {
        char *name = strdup("rewards/chosen");
        nrl_value *value = malloc(sizeof *value);
        *value = (nrl_value){name, name, (double)step};
        nrl_record r = record_of(step, value, 1), before = r;
        write_timed(s, self, &r, "many records");
        if (s->lost) return;
        report_check(s->report, !memcmp(&r, &before, sizeof r) && value->value == (double)step,
                     "a write changes no record", "step %lld", (long long)step);
        memset(name, '#', strlen(name));
        free(name);
        free(value);
    }
    close_it(s, self);
}

static void check_life(void *user)
{
    suite *s = user;
    void *a, *b;
    nrl_value usual[N_USUAL];
    fill_usual(usual);
    nrl_record r = record_of(1, usual, N_USUAL);
    if (open_in(s, s->folder, 0, &a)) close_it(s, a); /* without any record */
    if (!open_in(s, s->folder, 5, &a)) return;        /* resumed, with no earlier file */
    if (!s->hangs) write_timed(s, a, &r, "after a resume");
    if (report_check(s->report, open_in(s, s->folder, 5, &b), "instances live side by side",
                     "the second one does not open")) {
        if (!s->hangs) report_check(s->report, a != b, "instances live side by side", "both are the same one");
        if (!s->hangs && a != b) write_timed(s, b, &r, "a second instance");
        if (a != b) close_it(s, b);
    }
    if (!s->hangs) write_timed(s, a, &r, "after the other one was closed");
    close_it(s, a);
}

/* Opening may succeed (nothing is written there) or fail with a status and an error text. */
static void check_no_folder(void *user)
{
    suite *s = user;
    void *self = NULL;
    const nrl_logger_run run = run_in("/nowhere/that/is");
    nrl_fail(NRL_OK, "%s", "");
    nrl_status st = s->table->open(s->options, &run, &self);
    if (st == NRL_OK)
        close_it(s, self);
    else
        report_check(s->report, *nrl_error_text(), "a failure has an error text", "status %d", (int)st);
}

/* ---- what is kept, printed and dropped ---- */

/* A record on a page that cannot be read any more after the call. */
static void check_kept(void *user)
{
    suite *s = user;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *self;
    if (!open_in(s, s->folder, 0, &self)) return;
    for (int64_t step = 1; step <= 2; step++) {
        char *room = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NRL_ASSERT((room != MAP_FAILED), ==, true);
        nrl_value *values = (nrl_value *)(room + 256);
        memcpy(room, "loss", 5);
        values[0] = (nrl_value){room, room, 1.5};
        nrl_record *r = (nrl_record *)(room + 128);
        *r = record_of(step, values, 1);
        write_timed(s, self, r, "a record that is gone afterwards");
        if (s->lost) return;
        mprotect(room, page, PROT_NONE);
    }
    close_it(s, self);
}

static void write_steps(suite *s, void *self, int64_t from, int64_t to, double value)
{
    for (int64_t step = from; step <= to && !s->hangs; step++) {
        nrl_value v = {"loss", "nats", value};
        nrl_record r = record_of(step, &v, 1);
        write_timed(s, self, &r, "a step");
    }
}

/* Loggers that are for the terminal print there, of course. */
static void check_prints(void *user)
{
    suite *s = user;
    char path[4096];
    struct stat info;
    void *self;
    snprintf(path, sizeof path, "%s.printed", s->folder);
    int printed = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (printed < 0 || dup2(printed, STDOUT_FILENO) < 0 || !open_in(s, s->folder, 0, &self)) return;
    write_steps(s, self, 1, 2, 1.5);
    close_it(s, self);
    fflush(stdout);
    bool known = fstat(printed, &info) == 0;
    unlink(path);
    if (known)
        report_check(s->report, !info.st_size, "only a logger for the terminal prints", "%lld bytes on standard output",
                     (long long)info.st_size);
}

static bool has_late_value(const char *folder)
{
    arena a = {0};
    const char *names[FILES_MAX];
    bool found = false;
    size_t n = files_list(&a, folder, names);
    for (size_t i = 0; i < n && !found; i++) {
        char *text;
        size_t size;
        if (file_read(arena_printf(&a, "%s/%s", folder, names[i]), MAX_FILE, &text, &size) != NRL_OK) continue;
        found = memmem(text, size, LATE_TEXT, sizeof LATE_TEXT - 1) != NULL;
        free(text);
    }
    arena_free(&a);
    return found;
}

/* A run of N_STEPS steps that goes on from an earlier one: files of text no longer have the later records. */
static void check_resume(void *user)
{
    suite *s = user;
    char folder[4096];
    void *self;
    snprintf(folder, sizeof folder, "%s/resumed", s->folder);
    if (mkdir(folder, 0777) || !open_in(s, folder, 0, &self)) return;
    write_steps(s, self, 1, RESUMED, 1.5);
    write_steps(s, self, RESUMED + 1, N_STEPS, LATE_VALUE);
    close_it(s, self);
    if (s->hangs || !open_in(s, folder, RESUMED, &self)) return;
    write_steps(s, self, RESUMED + 1, RESUMED + 1, 1.5);
    close_it(s, self);
    report_check(s->report, !has_late_value(folder), "a resume drops records after its step",
                 "a record of step %d is still there after a resume from step %d", RESUMED + 1, RESUMED);
}

static bool live_once(void *user)
{
    suite *s = user;
    void *self;
    const nrl_logger_run run = run_in(s->folder);
    nrl_value usual[N_USUAL];
    fill_usual(usual);
    nrl_record r = record_of(1, usual, N_USUAL);
    if (s->table->open(s->options, &run, &self) != NRL_OK) return false;
    s->table->write(self, &r);
    s->table->close(self);
    return true;
}

static bool is_delayed(const conformance_report *r)
{
    for (int64_t i = 0; i < r->n_rules; i++)
        if (r->rules[i].failed && !strcmp(r->rules[i].rule, "a write never delays the step")) return true;
    return false;
}

void conformance_logger(const nrl_logger *table, const conformance_setup *setup, conformance_report *report)
{
    static const struct {
        const char *rule; /* that a crash breaks */
        void (*run)(void *user);
    } cases[] = {{"a write takes any record", check_odd_values},
                 {"a write changes no record", check_many},
                 {"a write keeps no pointer of a record", check_kept},
                 {"instances live side by side", check_life},
                 {"a resume drops records after its step", check_resume},
                 {"only a logger for the terminal prints", check_prints},
                 {"a failure has an error text", check_no_folder}};
    suite s = {.table = table, .report = report, .folder = setup->folder, .options = setup->options};
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !is_delayed(report); i++)
        if (!table->on_terminal || cases[i].run != check_prints) report_case(report, cases[i].rule, cases[i].run, &s);
    if (!is_delayed(report)) lives_check(report, live_once, &s);
}
