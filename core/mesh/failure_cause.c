/*
 * failure_cause.c - who failed, decided once: told by a rank, read in the store, or that the store is gone; and
 * what the step thread reports and asks.
 */
#include "base/arena.h"
#include "mesh/control_state.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>

#define LOOK_S 0.05
#define LINGER_S 3.0
#define RECORDS_S 2.0 /* less than LINGER_S */

bool control_failed(const control *c)
{
    return atomic_load(&c->failed);
}

void control_decide(control *c, const abort_record *w)
{
    pthread_mutex_lock(&c->lock);
    if (c->failure_cause.kind == ABORT_NONE && w->kind != ABORT_NONE) {
        c->failure_cause = *w;
        c->failed_at = clock_seconds();
        atomic_store(&c->failed, true);
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
}

void control_failure_cause(control *c, abort_record *w)
{
    pthread_mutex_lock(&c->lock);
    *w = c->failure_cause;
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->asked, true);
}

void control_decide_store(control *c)
{
    abort_record w = {.kind = ABORT_STORE, .culprit = c->setup.holder, .reporter = c->setup.rank};
    snprintf(w.text, sizeof w.text, "%s", nrl_error_text());
    control_decide(c, &w);
}

/* Reports the failure to the other ranks. If the store holds an earlier record, that record is the failure cause here
 * too. */
void control_say(control *c, abort_record *w)
{
    w->reporter = c->setup.rank;
    nrl_status st = abort_record_write(c->setup.store, w);
    if (st) st = abort_record_write(c->setup.store, w);
    if (st && w->kind == ABORT_REPORTED)
        control_decide(c, w); /* the own reason is known without a store */
    else if (st)
        control_decide_store(c);
    else
        control_decide(c, w);
}

void control_look(control *c)
{
    abort_record w;
    nrl_status st = abort_record_read(c->setup.store, &w);
    if (st) st = abort_record_read(c->setup.store, &w);
    if (st)
        control_decide_store(c);
    else
        control_decide(c, &w);
}

/* The holder of the store waits for this count. */
void control_add_known(control *c)
{
    int64_t n;
    if (store_counts(c->setup.store)) nrl_store_add(c->setup.store, "known", 1, &n);
}

/* ---- what the step thread reports ---- */

void control_tell(control *c, nrl_status code, const char *text)
{
    abort_record w = {.kind = ABORT_REPORTED, .code = code, .culprit = c->setup.rank};
    if (control_failed(c)) return;
    snprintf(w.text, sizeof w.text, "%s", text);
    control_say(c, &w);
}

/* The other thread makes all requests to the store; the cause may become known while such a request is pending. */
void control_suspect(control *c, int32_t rank)
{
    pthread_mutex_lock(&c->lock);
    c->suspect = rank;
    c->suspicion = SUSPICION_NEW;
    pthread_cond_broadcast(&c->changed);
    while (!control_failed(c) && c->suspicion != SUSPICION_DONE)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

void control_late(control *c, const char *what, char **records)
{
    abort_record w = {.kind = ABORT_LATE, .culprit = -1};
    snprintf(w.text, sizeof w.text, "%s", what);
    control_say(c, &w);
    control_failure_cause(c, &w);
    if (w.kind != ABORT_LATE || w.reporter != c->setup.rank) return;
    double until = clock_seconds() + RECORDS_S;
    for (int32_t r = 0; r < c->setup.world; r++) {
        char *key = mem_printf("record/%d", (int)r);
        double left = until - clock_seconds();
        void *value;
        size_t size;
        if (!nrl_store_get(c->setup.store, key, left > 0 ? left : 0, &value, &size)) records[r] = value;
        free(key);
    }
    control_add_known(c);
}

void control_linger(control *c)
{
    abort_record w;
    int64_t known = 0;
    double until = clock_seconds() + LINGER_S;
    control_failure_cause(c, &w);
    if (w.kind == ABORT_STORE || !store_counts(c->setup.store)) return;
    bool dead = w.kind == ABORT_LOST || w.kind == ABORT_SILENT;
    while (clock_seconds() < until && !nrl_store_add(c->setup.store, "known", 0, &known) &&
           known < c->setup.world - dead)
        clock_sleep(LOOK_S);
}
