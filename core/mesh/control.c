/*
 * control.c - the thread that watches the ranks: sends heartbeats, finds ranks whose heartbeats stopped, and acts after
 * a failure; and the cause of a failure, which is decided once: reported by a rank, read in the store, or the loss of
 * the store.
 */
#include "mesh/control.h"
#include "base/arena.h"
#include "base/clock.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BEAT_S 1.0
#define GRACE_S 1.0 /* time for the actual cause to be reported after a connection closed */
#define LOOK_S 0.05
#define UNHEARD_S 2.0
#define LINGER_S 3.0
#define RECORDS_S 2.0 /* less than LINGER_S */
#define GOODBYE "bye"
enum { MISSED_BEATS = 5 };

/* Each rank watches the next CONTROL_WATCHED ranks in a ring. Of any ranks that die together, at least one is watched
 * by a rank that lives, which informs the others with the abort record. */
enum { CONTROL_WATCHED = 16 };

typedef enum { SUSPICION_NONE = 0, SUSPICION_NEW, SUSPICION_DONE } suspicion;

struct control {
    control_setup setup;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool failed, asked;
    bool stop;                  /* under lock */
    abort_record failure_cause; /* under lock */
    double failed_at;
    suspicion suspicion; /* under lock: set by the step thread, checked by the watching thread */
    int32_t suspect;
    /* used only by the watching thread */
    int32_t n_watched, watched[CONTROL_WATCHED + 1]; /* the store's holder too, for its leave message */
    char *keys[CONTROL_WATCHED + 1], *last[CONTROL_WATCHED + 1];
    int missed[CONTROL_WATCHED + 1];
    bool holder_left, acknowledged, unheard;
};

/* ---- the cause of a failure ---- */

bool control_failed(const control *c)
{
    return c && atomic_load(&c->failed);
}

/* Keeps the first cause; ignores ABORT_NONE. */
static void control_decide(control *c, const abort_record *w)
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

/* The store is lost, for the reason in the error record. */
static void control_decide_store(control *c)
{
    abort_record w = {.kind = ABORT_STORE, .culprit = c->setup.holder, .reporter = c->setup.rank};
    snprintf(w.text, sizeof w.text, "%s", nrl_error_text());
    control_decide(c, &w);
}

/* Reports the failure to the other ranks. If the store holds an earlier record, that record is the failure cause here
 * too. */
static void control_publish(control *c, abort_record *w)
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

/* Looks for a record of another rank. */
static void control_look(control *c)
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
static void control_add_known(control *c)
{
    int64_t n;
    if (store_counts(c->setup.store)) nrl_store_add(c->setup.store, "known", 1, &n);
}

/* ---- what the step thread reports ---- */

void control_report(control *c, nrl_status code, const char *text)
{
    abort_record w = {.kind = ABORT_REPORTED, .code = code, .culprit = c->setup.rank};
    if (control_failed(c)) return;
    snprintf(w.text, sizeof w.text, "%s", text);
    control_publish(c, &w);
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
    control_publish(c, &w);
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

static char *beat_key(int32_t rank)
{
    return mem_printf("beat/%d", (int)rank);
}

/* ---- heartbeats ---- */

static nrl_status read_heartbeats(control *c, char **now)
{
    int64_t heartbeats;
    abort_record w;
    char *own = beat_key(c->setup.rank);
    nrl_status st = nrl_store_add(c->setup.store, own, 1, &heartbeats);
    free(own);
    if (!st) st = abort_record_read(c->setup.store, &w);
    if (!st) control_decide(c, &w);
    if (st) return st;
    return store_get_all(c->setup.store, (const char *const *)c->keys, (size_t)c->n_watched, now);
}

static void compare_beats(control *c, char **now)
{
    for (int32_t i = 0; i < c->n_watched; i++) {
        bool same = c->last[i] && !strcmp(c->last[i], now[i]), left = !strcmp(now[i], GOODBYE);
        free(c->last[i]);
        c->last[i] = now[i];
        c->missed[i] = same && !left ? c->missed[i] + 1 : 0;
        if (left && c->watched[i] == c->setup.holder) c->holder_left = true;
        if (c->missed[i] >= MISSED_BEATS && !control_failed(c)) {
            abort_record w = {.kind = ABORT_SILENT, .culprit = c->watched[i]};
            snprintf(w.text, sizeof w.text, "no heartbeat for %g s", MISSED_BEATS * BEAT_S);
            control_publish(c, &w);
        }
    }
}

/* A single failure can have a harmless cause: the connection broke, or this process was suspended during a request.
 * Tries again with a new connection. */
static void heartbeat(control *c)
{
    char *now[CONTROL_WATCHED + 1];
    if (c->holder_left) return;
    if (!store_counts(c->setup.store)) {
        control_look(c);
        return;
    }
    nrl_status st = read_heartbeats(c, now);
    if (st) st = read_heartbeats(c, now);
    if (st)
        control_decide_store(c);
    else
        compare_beats(c, now);
}

/* ---- suspicion ---- */

static bool has_left(control *c, int32_t rank)
{
    char *key = beat_key(rank);
    void *value;
    size_t size;
    bool found, left = false;
    if (!store_try_get(c->setup.store, key, &found, &value, &size) && found) {
        left = size == strlen(GOODBYE) && !memcmp(value, GOODBYE, size);
        free(value);
    }
    free(key);
    return left;
}

/* Gives the actual cause a moment to be reported before the rank is blamed. */
static void see_to_suspect(control *c, int32_t rank)
{
    double until = clock_seconds() + GRACE_S;
    for (control_look(c); !control_failed(c) && clock_seconds() < until; control_look(c))
        clock_sleep(LOOK_S);
    if (control_failed(c) || rank < 0) return;
    abort_record w = {.kind = ABORT_LOST, .culprit = rank};
    snprintf(w.text, sizeof w.text, "%s", has_left(c, rank) ? "it has finished its run" : "its connection broke");
    control_publish(c, &w);
}

static void see_to_suspicion(control *c)
{
    pthread_mutex_lock(&c->lock);
    bool wanted = c->suspicion == SUSPICION_NEW;
    int32_t rank = c->suspect;
    pthread_mutex_unlock(&c->lock);
    if (!wanted) return;
    if (!control_failed(c)) see_to_suspect(c, rank);
    pthread_mutex_lock(&c->lock);
    c->suspicion = SUSPICION_DONE;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* ---- after a failure ---- */

/* Called once after a failure: sends this rank's record after a time-out, and the acknowledgement that this rank has
 * read the cause. The rank that reads the records acknowledges once it has them. */
static void acknowledge(control *c)
{
    abort_record w;
    pthread_mutex_lock(&c->lock);
    w = c->failure_cause;
    pthread_mutex_unlock(&c->lock);
    c->acknowledged = true;
    if (w.kind == ABORT_STORE) return;
    if (w.kind == ABORT_LATE) {
        buffer text = {0};
        char *key = mem_printf("record/%d", (int)c->setup.rank);
        c->setup.record(c->setup.user, &text);
        nrl_store_set(c->setup.store, key, text.text ? text.text : "", text.size);
        buffer_free(&text);
        free(key);
    }
    bool reads = w.kind == ABORT_LATE && w.reporter == c->setup.rank;
    if (!reads) control_add_known(c);
}

static void *watch(void *self)
{
    control *c = self;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        double next = clock_seconds() + BEAT_S;
        pthread_mutex_unlock(&c->lock);
        see_to_suspicion(c);
        if (!control_failed(c)) heartbeat(c);
        if (control_failed(c) && !c->acknowledged) acknowledge(c);
        if (control_failed(c) && !c->unheard && !atomic_load(&c->asked) &&
            clock_seconds() >= c->failed_at + UNHEARD_S) {
            c->unheard = true;
            c->setup.unheard(c->setup.user);
        }
        pthread_mutex_lock(&c->lock);
        /* Waits for the next heartbeat, a failure, a suspicion or the end; under lock. */
        struct timespec t = {(time_t)next, (long)((next - (double)(time_t)next) * 1e9)};
        while (!c->stop && clock_seconds() < next && c->suspicion != SUSPICION_NEW &&
               (c->acknowledged || !control_failed(c)))
            pthread_cond_timedwait(&c->changed, &c->lock, &t);
    }
    pthread_mutex_unlock(&c->lock);
    if (control_failed(c) && !c->acknowledged) acknowledge(c);
    return NULL;
}

/* ---- begin and end ---- */

nrl_status control_announce(nrl_store *store, int32_t rank)
{
    char *key = beat_key(rank), *now = NULL;
    /* Heartbeats that exist already belong to another process with the number of this rank. */
    nrl_status st = store_counts(store) ? store_set_once(store, key, "0", &now) : NRL_OK;
    free(now);
    free(key);
    return st;
}

static void choose_watched(control *c)
{
    int32_t others = c->setup.world - 1, n = others < CONTROL_WATCHED ? others : CONTROL_WATCHED;
    bool sees_holder = c->setup.holder < 0 || c->setup.holder == c->setup.rank;
    if (!store_counts(c->setup.store)) return;
    for (int32_t i = 0; i < n; i++) {
        c->watched[i] = (c->setup.rank + 1 + i) % c->setup.world;
        sees_holder |= c->watched[i] == c->setup.holder;
    }
    if (!sees_holder) c->watched[n++] = c->setup.holder;
    for (int32_t i = 0; i < n; i++)
        c->keys[i] = beat_key(c->watched[i]);
    c->n_watched = n;
}

static void destroy(control *c)
{
    for (int32_t i = 0; i < c->n_watched; i++) {
        free(c->keys[i]);
        free(c->last[i]);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

nrl_status control_open(const control_setup *setup, control **out)
{
    control *c = mem_alloc(sizeof *c);
    pthread_condattr_t a;
    sigset_t all, old;
    c->setup = *setup;
    choose_watched(c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &a);
    pthread_condattr_destroy(&a);
    sigfillset(&all); /* the main thread handles signals */
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int bad = pthread_create(&c->thread, NULL, watch, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!bad) {
        *out = c;
        return NRL_OK;
    }
    destroy(c);
    return nrl_fail(NRL_ERR_IO, "cannot start the thread that monitors the ranks: %s", strerror(bad));
}

void control_close(control *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    if (!control_failed(c) && store_counts(c->setup.store)) {
        char *key = beat_key(c->setup.rank);
        nrl_store_set(c->setup.store, key, GOODBYE, strlen(GOODBYE));
        free(key);
    }
    destroy(c);
}
