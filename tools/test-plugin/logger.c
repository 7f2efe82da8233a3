/*
 * logger.c - rules for every logger: it accepts any record, reports failures by a status, and never
 * delays the step. Each call runs in a thread of its own, so that a hanging one is detected.
 */
#include "suites.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SECONDS = 1, PATIENCE_SECONDS = 3, N_MANY = 200 };

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
} call;

static void *write_in_thread(void *user)
{
    call *c = user;
    c->status = c->table->write(c->self, c->record);
    if (c->status != NRL_OK) snprintf(c->text, sizeof c->text, "%s", nrl_error_text());
    return NULL;
}

/* If the call does not end, `call` is not freed. */
static nrl_status write_timed(suite *s, void *self, const nrl_record *record, const char *what)
{
    struct timespec end;
    pthread_t thread;
    call *c = calloc(1, sizeof *c);
    *c = (call){.table = s->table, .self = self, .record = record};
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += MOST_SECONDS;
    NRL_ASSERT(pthread_create(&thread, NULL, write_in_thread, c), ==, 0);
    s->hangs = pthread_timedjoin_np(thread, NULL, &end) != 0;
    report_check(s->report, !s->hangs, "a write never delays the step", "%s: not done after %d s", what, MOST_SECONDS);
    end.tv_sec += PATIENCE_SECONDS;
    s->lost = s->hangs && pthread_timedjoin_np(thread, NULL, &end) != 0;
    if (s->lost) return NRL_ERR_PEER;
    nrl_status st = c->status;
    report_check(s->report, st == NRL_OK, "a write takes any record", "%s: %s", what, c->text);
    free(c);
    return st;
}

/* ---- runs and records ---- */

static bool open_in(suite *s, const char *folder, int64_t resumed, void **self)
{
    nrl_logger_run run = {
        .size = sizeof run, .out = folder, .name = "conformance", .resumed_step = resumed, .total_steps = 1000};
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

static void check_odd_values(suite *s)
{
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
static void check_many(suite *s)
{
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

static void check_life(suite *s)
{
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
static void check_no_folder(suite *s)
{
    void *self = NULL;
    nrl_logger_run run = {.size = sizeof run, .out = "/nowhere/that/is", .name = "conformance"};
    nrl_fail(NRL_OK, "%s", "");
    nrl_status st = s->table->open(s->options, &run, &self);
    if (st == NRL_OK)
        close_it(s, self);
    else
        report_check(s->report, *nrl_error_text(), "a failure has an error text", "status %d", (int)st);
}

static void run_rules(suite *s)
{
    check_odd_values(s);
    if (!s->hangs) check_many(s);
    if (!s->hangs) check_life(s);
    if (!s->hangs) check_no_folder(s);
}

void conformance_logger(const nrl_logger *table, const conformance_setup *setup, conformance_report *report)
{
    suite s = {.table = table, .report = report, .folder = setup->folder, .options = setup->options};
    run_rules(&s);
}
