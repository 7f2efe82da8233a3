/*
 * loggers.h - loggers that break one rule each, with the rule that must detect it.
 */
#ifndef WRONG_LOGGERS_H
#define WRONG_LOGGERS_H
#include <math.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static nrl_status right_open(const void *options, const nrl_logger_run *run, void **self)
{
    (void)options;
    (void)run;
    *self = malloc(1);
    return NRL_OK;
}

static nrl_status right_write(void *self, const nrl_record *record)
{
    (void)self;
    (void)record;
    return NRL_OK;
}

/* Longer than the suite waits. */
static nrl_status slow_write(void *self, const nrl_record *record)
{
    sleep(11);
    return right_write(self, record);
}

static nrl_status picky_write(void *self, const nrl_record *record)
{
    for (size_t i = 0; i < record->n_values; i++)
        if (!isfinite(record->values[i].value)) return nrl_fail(NRL_ERR_DATA, "not a number");
    return right_write(self, record);
}

static nrl_status wanting_write(void *self, const nrl_record *record)
{
    if (!record->n_values) return nrl_fail(NRL_ERR_DATA, "an empty record");
    return right_write(self, record);
}

static nrl_status editing_write(void *self, const nrl_record *record)
{
    for (size_t i = 0; i < record->n_values; i++)
        ((nrl_value *)record->values)[i].value = 0;
    return right_write(self, record);
}

static char only_one;
static bool taken;

static nrl_status single_open(const void *options, const nrl_logger_run *run, void **self)
{
    (void)options;
    (void)run;
    if (taken) return nrl_fail(NRL_ERR_BUG, "open already");
    taken = true;
    *self = &only_one;
    return NRL_OK;
}

static void single_close(void *self)
{
    (void)self;
    taken = false;
}

static nrl_status shared_open(const void *options, const nrl_logger_run *run, void **self)
{
    (void)options;
    (void)run;
    *self = &only_one;
    return NRL_OK;
}

static nrl_status mute_open(const void *options, const nrl_logger_run *run, void **self)
{
    if (access(run->out, W_OK) != 0) return NRL_ERR_IO; /* says nothing */
    return right_open(options, run, self);
}

static nrl_status resuming_open(const void *options, const nrl_logger_run *run, void **self)
{
    if (run->resumed_step) return nrl_fail(NRL_ERR_IO, "there is nothing to cut");
    return right_open(options, run, self);
}

static nrl_status printing_write(void *self, const nrl_record *record)
{
    printf("step %lld\n", (long long)record->step);
    return right_write(self, record);
}

static nrl_status crashing_write(void *self, const nrl_record *record)
{
    return record->n_values ? right_write(self, record) : (abort(), NRL_OK);
}

typedef struct {
    const nrl_record *last;
    FILE *file;
} keeping;

static nrl_status keeping_open(const void *options, const nrl_logger_run *run, void **self)
{
    (void)options;
    (void)run;
    *self = calloc(1, sizeof(keeping));
    return NRL_OK;
}

static nrl_status keeping_write(void *self, const nrl_record *record)
{
    keeping *k = self;
    if (k->last && k->last->step > record->step) return NRL_OK; /* reads the one before */
    k->last = record;
    return NRL_OK;
}

static nrl_status appending_open(const void *options, const nrl_logger_run *run, void **self)
{
    char path[4096];
    (void)options;
    keeping *k = calloc(1, sizeof *k);
    snprintf(path, sizeof path, "%s/values.txt", run->out);
    k->file = fopen(path, run->resumed_step ? "a" : "w");
    *self = k;
    if (k->file) return NRL_OK;
    free(k);
    return nrl_fail(NRL_ERR_IO, "cannot open %s", path);
}

static nrl_status appending_write(void *self, const nrl_record *record)
{
    keeping *k = self;
    for (size_t i = 0; i < record->n_values; i++)
        fprintf(k->file, "%lld %g\n", (long long)record->step, record->values[i].value);
    fflush(k->file);
    return NRL_OK;
}

static void appending_close(void *self)
{
    keeping *k = self;
    fclose(k->file);
    free(k);
}

static void leaking_close(void *self)
{
    (void)self;
}

static void unclosed_close(void *self)
{
    free(self);
}

static nrl_status unclosed_open(const void *options, const nrl_logger_run *run, void **self)
{
    if (dup(0) < 0) return NRL_ERR_IO;
    return right_open(options, run, self);
}

#define WRONG(nm, rule, o, w, c)                                                                                       \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_LOGGER, nrl_logger, #nm, "0", rule), .open = o, .write = w, .close = c               \
    }
static const nrl_logger wrong[] = {
    WRONG(right, "nothing is wrong with it", right_open, right_write, free),
    WRONG(slow, "a write never delays the step", right_open, slow_write, free),
    WRONG(picky, "a write takes any record", right_open, picky_write, free),
    WRONG(wanting, "a write takes any record", right_open, wanting_write, free),
    WRONG(editing, "a write changes no record", right_open, editing_write, free),
    WRONG(single, "instances live side by side", single_open, right_write, single_close),
    WRONG(shared, "instances live side by side", shared_open, right_write, single_close),
    WRONG(mute, "a failure has an error text", mute_open, right_write, free),
    WRONG(resuming, "a logger opens in a writable directory", resuming_open, right_write, free),
    WRONG(printing, "only a logger for the terminal prints", right_open, printing_write, free),
    WRONG(crashing, "a write takes any record", right_open, crashing_write, free),
    WRONG(keeping, "a write keeps no pointer of a record", keeping_open, keeping_write, free),
    WRONG(appending, "a resume drops records after its step", appending_open, appending_write, appending_close),
    WRONG(leaking, "close gives the memory back", right_open, right_write, leaking_close),
    WRONG(unclosed, "nothing stays open", unclosed_open, right_write, unclosed_close),
    WRONG(lacks_close, "close is NULL", right_open, right_write, NULL),
};
#undef WRONG

#endif
