/*
 * offload_copies.c - the copies of the extension "offload": activations in a file without a name. A thread writes and
 * reads them, in the order in which they were started, while the step computes.
 *
 * All copies of a device share one file; a copy that is freed leaves its place to the next one that fits. Files are
 * written through the page cache: a machine with memory to spare reads nothing from the disk, and resident memory of
 * the process falls in any case. Where memory is short, what was written is sent to the disk at once, so that the
 * kernel can drop its pages.
 */
#define _GNU_SOURCE /* sync_file_range */
#include "offload.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { PIECE = 8 << 20, PAGE = 4096, PLACES_PER_OCTAVE = 8, LOOK_EVERY = 64 << 20 };

struct nrl_offload_copy {
    nrl_offload_copy *next; /* in the list of idle places */
    off_t at;
    size_t room; /* bytes of the file */
    int pending; /* jobs that are not done */
    int error;   /* errno of the first job that failed; 0 = none */
};

typedef enum { JOB_OUT, JOB_BACK, JOB_FETCH, JOB_LEAVE } job_kind;

typedef struct {
    nrl_offload_copy *copy; /* NULL: memory of a mapped file, which is fetched or leaves */
    off_t at;
    char *memory;
    size_t bytes;
    job_kind kind;
    int fd; /* of JOB_LEAVE, and `at` in it */
} copy_job;

struct offload_copies {
    cpu_offload *self;
    pthread_mutex_t lock;
    pthread_cond_t added, done;
    pthread_t thread;
    bool has_thread, stop;
    int fd; /* -1: not open */
    off_t end;
    nrl_offload_copy *idle;
    copy_job *jobs; /* a ring of `room`, `n` in use from `first` on */
    size_t first, n, room;
};

/* Returns errno, or 0. A file that ends early was truncated by another program: EIO. */
static int move(int fd, const copy_job *job, bool tight)
{
    const bool back = job->kind == JOB_BACK;
    for (size_t done = 0, n; done < job->bytes; done += n) {
        size_t most = job->bytes - done < PIECE ? job->bytes - done : PIECE;
        const off_t at = job->at + (off_t)done;
        ssize_t got = back ? pread(fd, job->memory + done, most, at) : pwrite(fd, job->memory + done, most, at);
        if (got < 0 && errno == EINTR) got = 0;
        if (got < 0 || (!got && back)) return got < 0 ? errno : EIO;
        n = (size_t)got;
        if (tight && !back) (void)sync_file_range(fd, at, (off_t)n, SYNC_FILE_RANGE_WRITE);
        if (tight && back) (void)posix_fadvise(fd, at, (off_t)n, POSIX_FADV_DONTNEED);
    }
    return 0;
}

/* Pages of a mapped file are read, or written and unmapped. The kernel frees them when it needs memory. */
static void move_pages(const copy_job *job, bool tight)
{
    for (size_t done = 0, n; done < job->bytes; done += n) {
        n = job->bytes - done < PIECE ? job->bytes - done : PIECE;
        if (job->kind == JOB_FETCH) {
            /* Older kernels read ahead, and the pages are mapped when they are used. */
            if (madvise(job->memory + done, n, MADV_POPULATE_READ)) (void)madvise(job->memory + done, n, MADV_WILLNEED);
            continue;
        }
        (void)madvise(job->memory + done, n, MADV_DONTNEED); /* of a shared mapping: they stay in the cache */
        if (!tight) continue;
        (void)sync_file_range(job->fd, job->at + (off_t)done, (off_t)n, SYNC_FILE_RANGE_WRITE);
        (void)posix_fadvise(job->fd, job->at + (off_t)done, (off_t)n, POSIX_FADV_DONTNEED);
    }
}

static void *copies_thread(void *user)
{
    offload_copies *c = user;
    size_t unseen = LOOK_EVERY; /* bytes since it was found out whether memory is short */
    bool tight = false;
    pthread_mutex_lock(&c->lock);
    while (c->n || !c->stop) {
        if (!c->n) {
            pthread_cond_wait(&c->added, &c->lock);
            continue;
        }
        const copy_job job = c->jobs[c->first];
        const off_t end = c->end;
        c->first = (c->first + 1) % c->room;
        c->n--;
        int error = job.copy ? job.copy->error : 0; /* what could not be written is not read */
        pthread_mutex_unlock(&c->lock);
        if (unseen >= LOOK_EVERY) {
            tight = offload_is_tight((uint64_t)end + offload_mapped(c->self));
            unseen = 0;
        }
        unseen += job.bytes;
        if (!job.copy)
            move_pages(&job, tight);
        else if (!error)
            error = move(c->fd, &job, tight);
        pthread_mutex_lock(&c->lock);
        if (!job.copy) continue;
        if (!job.copy->error) job.copy->error = error;
        job.copy->pending--;
        pthread_cond_broadcast(&c->done);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static bool start_thread(offload_copies *c)
{
    if (!c->has_thread) c->has_thread = offload_start_thread(&c->thread, copies_thread, c);
    return c->has_thread;
}

/* Opens the file and starts the thread, at the first copy. */
static nrl_status copies_open(void *self, const char *folder)
{
    offload_copies *c = offload_copies_of(self);
    if (c->fd < 0) NRL_TRY(offload_open_file(self, folder, &c->fd));
    return start_thread(c) ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "cannot start a thread for train.offload");
}

/* Sizes of micro-batches differ a little from step to step: with rounded sizes their places fit again. */
static size_t rounded(size_t bytes)
{
    size_t unit = PAGE;
    while (unit * 2 * PLACES_PER_OCTAVE <= bytes)
        unit *= 2;
    return (bytes + unit - 1) / unit * unit;
}

nrl_status offload_copy_create(void *self, const char *folder, size_t bytes, nrl_offload_copy **out)
{
    offload_copies *c = offload_copies_of(self);
    nrl_offload_copy **best = NULL;
    *out = NULL;
    if (!folder) return offload_refuse_host();
    NRL_TRY(copies_open(self, folder));
    const size_t room = rounded(bytes);
    for (nrl_offload_copy **at = &c->idle; *at; at = &(*at)->next)
        if ((*at)->room >= room && (!best || (*at)->room < (*best)->room)) best = at;
    if (best) {
        *out = *best;
        *best = (*best)->next;
        return NRL_OK;
    }
    if (!(*out = calloc(1, sizeof **out))) return nrl_fail(NRL_ERR_MEMORY, "no memory for an offloaded copy");
    pthread_mutex_lock(&c->lock);
    **out = (nrl_offload_copy){.at = c->end, .room = room};
    c->end += (off_t)room;
    pthread_mutex_unlock(&c->lock);
    return NRL_OK;
}

static nrl_status add_job(offload_copies *c, const copy_job *job)
{
    nrl_status st = NRL_OK;
    pthread_mutex_lock(&c->lock);
    if (c->n == c->room) {
        const size_t room = c->room ? 2 * c->room : 64;
        copy_job *more = malloc(room * sizeof *more);
        for (size_t i = 0; more && i < c->n; i++)
            more[i] = c->jobs[(c->first + i) % c->room];
        if (more) {
            free(c->jobs);
            c->jobs = more;
            c->first = 0;
            c->room = room;
        } else
            st = nrl_fail(NRL_ERR_MEMORY, "no memory for an offloaded copy");
    }
    if (st == NRL_OK) {
        c->jobs[(c->first + c->n++) % c->room] = *job;
        if (job->copy) job->copy->pending++;
        pthread_cond_signal(&c->added);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

nrl_status offload_copy_out(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, const void *memory,
                            size_t bytes)
{
    (void)stream;
    /* The cast: a job of this direction only reads the memory. */
    const copy_job job = {copy, copy->at + (off_t)offset, (char *)(uintptr_t)memory, bytes, JOB_OUT, -1};
    return add_job(offload_copies_of(self), &job);
}

nrl_status offload_copy_back(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, void *memory,
                             size_t bytes)
{
    (void)stream;
    return add_job(offload_copies_of(self), &(copy_job){copy, copy->at + (off_t)offset, memory, bytes, JOB_BACK, -1});
}

/* The kernel pages without a thread, too. */
void offload_expect(void *self, void *memory, size_t bytes, bool soon)
{
    enum { PAGES = 4095 };
    offload_copies *c = offload_copies_of(self);
    copy_job job = {.kind = soon ? JOB_FETCH : JOB_LEAVE};
    /* Pages that hold something else too are fetched, but stay. */
    const uintptr_t begin = (uintptr_t)memory, end = begin + bytes;
    const uintptr_t from = soon ? begin & ~(uintptr_t)PAGES : (begin + PAGES) & ~(uintptr_t)PAGES;
    const uintptr_t to = soon ? end : end & ~(uintptr_t)PAGES;
    if (from >= to || !offload_find(self, memory, &job.fd, &job.at) || !start_thread(c)) return;
    job.at += (off_t)(from - begin);
    job.memory = (char *)memory + (from - begin);
    job.bytes = to - from;
    (void)add_job(c, &job);
}

static int settle(offload_copies *c, const nrl_offload_copy *copy)
{
    pthread_mutex_lock(&c->lock);
    while (copy->pending)
        pthread_cond_wait(&c->done, &c->lock);
    const int error = copy->error;
    pthread_mutex_unlock(&c->lock);
    return error;
}

nrl_status offload_copy_wait(void *self, nrl_stream *stream, nrl_offload_copy *copy)
{
    (void)stream;
    const int error = settle(offload_copies_of(self), copy);
    if (!error) return NRL_OK;
    return nrl_fail(offload_status(error), "cannot keep activations in a file (train.offload.activations): %s",
                    strerror(error));
}

void offload_copy_free(void *self, nrl_offload_copy *copy)
{
    offload_copies *c = offload_copies_of(self);
    (void)settle(c, copy);
    copy->error = 0;
    copy->next = c->idle;
    c->idle = copy;
}

offload_copies *offload_copies_create(cpu_offload *self)
{
    offload_copies *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->self = self;
    c->fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->added, NULL);
    pthread_cond_init(&c->done, NULL);
    return c;
}

void offload_copies_close(offload_copies *c)
{
    if (c->has_thread) {
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        pthread_cond_signal(&c->added);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
    }
    if (c->fd >= 0) close(c->fd);
    for (nrl_offload_copy *copy = c->idle, *next; copy; copy = next) {
        next = copy->next;
        free(copy);
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->added);
    pthread_cond_destroy(&c->done);
    free(c->jobs);
    free(c);
}
