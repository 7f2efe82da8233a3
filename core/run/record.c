/*
 * record.c - records to loggers. A logger that fails is named once and left out from then on.
 */
#include "run/internal.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The process's resident set where tensors live in host memory, else the device pool's peak. */
int64_t memory_in_use(const run *r)
{
    long pages = 0, resident = 0;
    if (!r->device.facts.host_memory) {
        ctx_memory m;
        ctx_memory_use(r->ctx, &m);
        return (int64_t)m.peak_bytes;
    }
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    fclose(f);
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

/* ---- loggers ---- */

enum { MAX_TOLD = 3 }; /* a disk that is full now and then must not fill the terminal */

static void log_failed(run_logger *l)
{
    l->n_missing++;
    if (l->failing) return;
    l->failing = true;
    if (l->n_told++ < MAX_TOLD) nrl_warn("logger '%s' failed, and is tried again at the next record: %s", l->name, nrl_error_text());
}

static void log_succeeded(run_logger *l)
{
    if (!l->failing) return;
    l->failing = false;
    if (l->n_told <= MAX_TOLD)
        nrl_warn("logger '%s' works again; %lld record%s missing", l->name, (long long)l->n_missing,
                 l->n_missing == 1 ? " is" : "s are");
}

static nrl_status log_claim(void *user, const char *name)
{
    run_logger *l = user;
    NRL_TRY(claims_check_home(l->claims));
    nrl_status st = out_is_own(name) ? nrl_fail(NRL_ERR_CONFIG, "out: '%s' is what a run itself writes, expected another name", name)
                                     : claims_take(l->claims, name);
    l->refused = st == NRL_ERR_CONFIG;
    return st;
}

static nrl_status log_open(run *r, run_logger *l, int64_t resumed_step)
{
    nrl_logger_run about = {.size = sizeof about,
                            .out = r->config.out,
                            .name = r->config.name,
                            .config = r->config.resolved,
                            .resumed_step = resumed_step,
                            .total_steps = r->total_steps,
                            .terminal = r->env.terminal,
                            .color = r->env.color,
                            .claim = log_claim,
                            .claim_user = l};
    l->claims = &r->claims;
    nrl_status st = l->table->open(l->options, &about, &l->self);
    l->opened = st == NRL_OK;
    return st;
}

/* A file that is not the run's to write is a mistake of the user's; any other failure the run survives. */
nrl_status loggers_open(run *r)
{
    for (size_t i = 0; i < r->n_loggers && run_leads(r); i++) {
        run_logger *l = &r->loggers[i];
        nrl_status st = log_open(r, l, r->progress.step);
        if (st == NRL_OK) continue;
        if (l->refused) {
            nrl_note("logger '%s'", l->name);
            return st;
        }
        log_failed(l);
        l->n_missing = 0; /* no record yet */
    }
    return NRL_OK;
}

void loggers_write(run *r, nrl_record_kind kind, const nrl_value *values, size_t n, double eta)
{
    nrl_record record = {.size = sizeof record,
                         .kind = kind,
                         .step = r->progress.step,
                         .total_steps = r->total_steps,
                         .time = wall_seconds(),
                         .eta_seconds = eta,
                         .values = values,
                         .n_values = n};
    for (size_t i = 0; i < r->n_loggers && run_leads(r); i++) {
        run_logger *l = &r->loggers[i];
        nrl_status st = l->opened ? NRL_OK : log_open(r, l, r->resumed_from);
        if (st == NRL_OK) st = l->table->write(l->self, &record);
        if (st == NRL_OK) log_succeeded(l);
        else log_failed(l);
    }
}

void loggers_tell_missing(run *r)
{
    for (size_t i = 0; i < r->n_loggers; i++) {
        run_logger *l = &r->loggers[i];
        if (l->n_missing)
            nrl_warn("%lld record%s of this run %s missing in logger '%s'", (long long)l->n_missing,
                     l->n_missing == 1 ? "" : "s", l->n_missing == 1 ? "is" : "are", l->name);
        l->n_missing = 0;
    }
}

void loggers_close(run *r)
{
    loggers_tell_missing(r);
    for (size_t i = 0; i < r->n_loggers; i++)
        if (r->loggers[i].opened && r->loggers[i].self && r->loggers[i].table->close)
            r->loggers[i].table->close(r->loggers[i].self);
    r->n_loggers = 0;
}
