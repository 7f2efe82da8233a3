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

static void give_up(run_logger *l)
{
    nrl_warn("logger '%s' failed and is left out from here on: %s", l->name, nrl_error_text());
    l->failed = true;
}

nrl_status loggers_open(run *r)
{
    nrl_logger_run about = {.size = sizeof about,
                            .out = r->config.out,
                          .name = r->config.name,
                          .config = r->config.resolved,
                          .resumed_step = r->progress.step,
                          .total_steps = r->total_steps,
                          .terminal = r->env.terminal,
                          .color = r->env.color};
    for (size_t i = 0; i < r->n_loggers && run_leads(r); i++) {
        run_logger *l = &r->loggers[i];
        l->opened = l->table->open(l->options, &about, &l->self) == NRL_OK;
        if (!l->opened) give_up(l);
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
    for (size_t i = 0; i < r->n_loggers; i++) {
        run_logger *l = &r->loggers[i];
        if (l->opened && !l->failed && l->table->write(l->self, &record) != NRL_OK) give_up(l);
    }
}

void loggers_close(run *r)
{
    for (size_t i = 0; i < r->n_loggers; i++)
        if (r->loggers[i].opened && r->loggers[i].self && r->loggers[i].table->close)
            r->loggers[i].table->close(r->loggers[i].self);
    r->n_loggers = 0;
}
