/*
 * workers.c - threads that sleep until a run begins and then take jobs until none is left.
 */
#include "base/workers.h"
#include "base/arena.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    pthread_t *threads;
    int n, n_named, n_busy;
    uint64_t run; /* number of runs so far: a thread takes part in each run once */
    bool leave;
    workers_job job;
    void *user;
    int64_t next, n_jobs;
    nrl_status status; /* of the first job that failed */
    char *text;
};

static void workers_fail(workers *w, nrl_status st)
{
    if (w->status != NRL_OK) return;
    w->status = st;
    w->text = mem_strdup(nrl_error_text());
    w->next = w->n_jobs;
}

/* Called with the lock held; releases it during each job. */
static void take_jobs(workers *w, int who)
{
    while (w->next < w->n_jobs) {
        int64_t i = w->next++;
        pthread_mutex_unlock(&w->lock);
        nrl_status st = w->job(w->user, who, i);
        pthread_mutex_lock(&w->lock);
        if (st != NRL_OK) workers_fail(w, st);
    }
}

static void *worker_main(void *user)
{
    workers *w = user;
    uint64_t seen = 0;
    pthread_mutex_lock(&w->lock);
    int who = ++w->n_named;
    for (;;) {
        while (!w->leave && w->run == seen)
            pthread_cond_wait(&w->begin, &w->lock);
        if (w->leave) break;
        seen = w->run;
        w->n_busy++;
        take_jobs(w, who);
        if (--w->n_busy == 0) pthread_cond_signal(&w->end);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Blocks all signals in the new thread: the main thread handles them. */
static bool worker_start(workers *w)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool ok = pthread_create(&w->threads[w->n], NULL, worker_main, w) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (ok) w->n++;
    return ok;
}

nrl_status workers_create(int n, workers **out)
{
    workers *w = mem_alloc(sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->begin, NULL);
    pthread_cond_init(&w->end, NULL);
    w->threads = mem_alloc((size_t)(n > 0 ? n : 1) * sizeof *w->threads);
    for (int i = 0; i < n; i++)
        if (!worker_start(w)) {
            workers_destroy(w);
            return nrl_fail(NRL_ERR_MEMORY, "cannot start %d threads", n);
        }
    *out = w;
    return NRL_OK;
}

void workers_destroy(workers *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->leave = true;
    pthread_cond_broadcast(&w->begin);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n; i++)
        pthread_join(w->threads[i], NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->begin);
    pthread_cond_destroy(&w->end);
    free(w->threads);
    free(w);
}

nrl_status workers_run(workers *w, int64_t n, workers_job job, void *user)
{
    pthread_mutex_lock(&w->lock);
    w->job = job;
    w->user = user;
    w->next = 0;
    w->n_jobs = n;
    w->status = NRL_OK;
    w->run++;
    if (n > 1) pthread_cond_broadcast(&w->begin);
    take_jobs(w, 0);
    while (w->n_busy)
        pthread_cond_wait(&w->end, &w->lock);
    nrl_status st = w->status;
    char *text = w->text;
    w->text = NULL;
    pthread_mutex_unlock(&w->lock);
    if (st != NRL_OK) nrl_fail(st, "%s", text);
    free(text);
    return st;
}
