/*
 * offload.c - the extension "offload": memory that is mapped from a file without a name, for what a step reads and
 * writes once. A thread reads ahead of the use and writes behind it.
 *
 * Uses repeat in the same order each step, so the order of the first step predicts all others. Around the position in
 * this order, pages are mapped AHEAD bytes in advance; what lies LAG uses behind leaves the memory of the process, and
 * is written to the file. It stays in the page cache as long as the machine has memory to spare, so that a step that
 * fits reads nothing from the disk.
 */
#define _GNU_SOURCE /* sync_file_range, O_TMPFILE */
#include "base/units.h"
#include "offload.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { AHEAD = 96 << 20, LAG = 3, TMPFS = 0x01021994, CHUNK = 32 << 20 };

typedef struct {
    int fd;
    char *base;
    size_t bytes;
} offload_file;

typedef struct {
    char *at;
    size_t bytes;
    int file;
} offload_range;

struct cpu_offload {
    nrl_offload table;
    offload_copies *copies;
    uintptr_t page;
    pthread_mutex_t lock;
    pthread_cond_t used;
    pthread_t thread;
    bool has_thread, stop, tight, told;
    offload_file *files;
    int n_files;
    size_t total;
    /* Use number u is of order[u % n]; in the first step n grows with each use. */
    offload_range *order;
    int64_t n, room, uses;
    int64_t unmapped;                    /* the next use whose pages leave the memory of the process */
    int64_t brought, written, forgotten; /* the thread's next use to read ahead, to write, to take out of the cache */
};

/* ---- the file ---- */

nrl_status offload_status(int error)
{
    bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return full ? NRL_ERR_FULL : error == ENOMEM ? NRL_ERR_MEMORY : NRL_ERR_IO;
}

nrl_status offload_refuse_host(void)
{
    return nrl_fail(NRL_ERR_CONFIG, "train.offload: host: backend 'cpu' computes in host memory; expected disk");
}

nrl_status offload_open_file(cpu_offload *o, const char *folder, int *fd)
{
    char path[4096];
    struct statfs where;
    int n = snprintf(path, sizeof path, "%s", folder);
    if (n >= (int)sizeof path - 16) return nrl_fail(NRL_ERR_IO, "the path '%.60s...' is too long", folder);
    /* A measurement has no output directory; the one above it is on the same disk. */
    while (access(path, F_OK) && n > 0) {
        while (n > 0 && path[--n] != '/')
            ;
        path[n] = 0;
    }
    if (!n) n = snprintf(path, sizeof path, "%s", *folder == '/' ? "/" : ".");
    *fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd < 0) {
        snprintf(path + n, sizeof path - (size_t)n, "/.offload-XXXXXX");
        *fd = mkostemp(path, O_CLOEXEC);
        if (*fd < 0)
            return nrl_fail(NRL_ERR_IO, "cannot create a file for train.offload in '%s': %s", folder, strerror(errno));
        unlink(path);
    }
    if (!o->told && !fstatfs(*fd, &where) && where.f_type == TMPFS) {
        o->told = true;
        nrl_warn("train.offload: '%s' is a file system in memory, so nothing leaves it\nhint: train.offload.folder on "
                 "a disk",
                 folder);
    }
    return NRL_OK;
}

static nrl_status map_file(cpu_offload *o, const char *folder, size_t bytes, offload_file *out)
{
    char asked[SIZE_TEXT];
    *out = (offload_file){.bytes = bytes};
    NRL_TRY(offload_open_file(o, folder, &out->fd));
    int error = posix_fallocate(out->fd, 0, (off_t)bytes);
    if (!error) {
        out->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, out->fd, 0);
        if (out->base != MAP_FAILED) return NRL_OK;
        error = errno;
    }
    close(out->fd);
    return nrl_fail(offload_status(error), "cannot reserve %s for train.offload in '%s': %s",
                    size_text((double)bytes, asked), folder, strerror(error));
}

/* ---- the thread ---- */

static void bring(const cpu_offload *o, const offload_range *r)
{
    char *begin = r->at - (uintptr_t)r->at % o->page;
    size_t bytes = (size_t)(r->at + r->bytes - begin);
    for (size_t done = 0; done < bytes; done += CHUNK) {
        size_t n = bytes - done < CHUNK ? bytes - done : CHUNK;
        /* Older kernels read ahead, and the pages are mapped when they are used. */
        if (madvise(begin + done, n, MADV_POPULATE_WRITE)) (void)madvise(begin + done, n, MADV_WILLNEED);
    }
}

/* The whole pages of a range, and where they are in its file; 0 = none. */
static size_t pages_of(const cpu_offload *o, const offload_range *r, char **begin, off_t *offset)
{
    char *end = r->at + r->bytes;
    *begin = r->at + (o->page - (uintptr_t)r->at % o->page) % o->page;
    end -= (uintptr_t)end % o->page;
    *offset = (off_t)(*begin - o->files[r->file].base);
    return end > *begin ? (size_t)(end - *begin) : 0;
}

static void write_behind(const cpu_offload *o, const offload_range *r)
{
    char *begin;
    off_t offset;
    size_t bytes = pages_of(o, r, &begin, &offset);
    if (bytes) (void)sync_file_range(o->files[r->file].fd, offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

/* Of a shared mapping: the pages stay in the cache. */
static void unmap(const cpu_offload *o, const offload_range *r)
{
    char *begin;
    off_t offset;
    size_t bytes = pages_of(o, r, &begin, &offset);
    if (bytes) (void)madvise(begin, bytes, MADV_DONTNEED);
}

static void forget(const cpu_offload *o, const offload_range *r)
{
    char *begin;
    off_t offset;
    size_t bytes = pages_of(o, r, &begin, &offset);
    const int fd = o->files[r->file].fd;
    if (!bytes || !o->tight) return;
    (void)sync_file_range(fd, offset, (off_t)bytes,
                          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(fd, offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}

bool offload_is_tight(uint64_t bytes)
{
    int64_t total, left;
    nrl_host_memory(&total, &left);
    return left >= 0 && (uint64_t)left < bytes + bytes / 2;
}

/* The next use to read ahead, or -1: at most AHEAD bytes, and nothing that is still being written. */
static int64_t next_to_bring(const cpu_offload *o)
{
    size_t bytes = 0;
    if (o->uses <= o->n) return -1; /* the order is not known yet */
    for (int64_t u = o->uses; u < o->uses + o->n - LAG - 1 && bytes < AHEAD; u++) {
        if (u >= o->brought) return u;
        bytes += o->order[u % o->n].bytes;
    }
    return -1;
}

static void *follow(void *user)
{
    cpu_offload *o = user;
    pthread_mutex_lock(&o->lock);
    while (!o->stop) {
        void (*work)(const cpu_offload *, const offload_range *) = NULL;
        int64_t u = next_to_bring(o);
        if (u >= 0) {
            work = bring;
            o->brought = u + 1;
        } else if (o->written < o->uses - 1) {
            work = write_behind;
            u = o->written++;
        } else if (o->forgotten < o->uses - LAG) {
            work = forget;
            u = o->forgotten++;
        } else {
            pthread_cond_wait(&o->used, &o->lock);
            continue;
        }
        const offload_range range = o->order[u % o->n];
        bool begins = work == forget && u % o->n == 0;
        pthread_mutex_unlock(&o->lock);
        if (begins) o->tight = offload_is_tight(o->total);
        work(o, &range);
        pthread_mutex_lock(&o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

bool offload_start_thread(pthread_t *thread, void *(*body)(void *), void *user)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool started = pthread_create(thread, NULL, body, user) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return started;
}

/* ---- the extension ---- */

static nrl_status offload_alloc(void *self, const char *folder, size_t bytes, void **out)
{
    cpu_offload *o = self;
    *out = NULL;
    if (!folder) return offload_refuse_host();
    if (!bytes) bytes = 1;
    offload_file *more = realloc(o->files, (size_t)(o->n_files + 1) * sizeof *more);
    if (!more) return nrl_fail(NRL_ERR_MEMORY, "no memory for the list of offloaded files");
    o->files = more;
    NRL_TRY(map_file(o, folder, bytes, &o->files[o->n_files]));
    o->total += bytes;
    *out = o->files[o->n_files++].base;
    return NRL_OK;
}

static int file_of(const cpu_offload *o, const char *at)
{
    for (int i = 0; i < o->n_files; i++)
        if (at >= o->files[i].base && at < o->files[i].base + o->files[i].bytes) return i;
    return -1;
}

uint64_t offload_mapped(const cpu_offload *o)
{
    return o->total;
}

bool offload_find(const cpu_offload *o, const void *memory, int *fd, off_t *at)
{
    const int file = file_of(o, memory);
    if (file < 0) return false;
    *fd = o->files[file].fd;
    *at = (off_t)((const char *)memory - o->files[file].base);
    return true;
}

static void offload_use(void *self, void *memory, size_t bytes)
{
    cpu_offload *o = self;
    const int file = file_of(o, memory);
    if (file < 0 || !bytes) return;
    pthread_mutex_lock(&o->lock);
    int64_t expected = o->n ? o->uses % o->n : 0, i = expected;
    while (i < o->n && o->order[i].at != memory)
        i++;
    for (int64_t k = 0; i == o->n && k < expected; k++)
        if (o->order[k].at == memory) i = k;
    if (i == o->n && o->uses == o->n) { /* the first step */
        if (o->n == o->room) {
            int64_t room = o->room ? 2 * o->room : 256;
            offload_range *more = realloc(o->order, (size_t)room * sizeof *more);
            if (more) o->order = more, o->room = room;
        }
        if (o->n < o->room) o->order[o->n++] = (offload_range){memory, bytes, file};
    } else if (i < o->n) {
        o->uses += (i - expected + o->n) % o->n;
    }
    if (i < o->n) o->uses++;
    /* Here rather than in the thread, so that what is resident does not depend on the disk. */
    for (; o->n > 0 && o->unmapped < o->uses - LAG; o->unmapped++)
        unmap(o, &o->order[o->unmapped % o->n]);
    /* Without a thread the kernel does what it can. */
    if (!o->has_thread) o->has_thread = offload_start_thread(&o->thread, follow, o);
    pthread_cond_signal(&o->used);
    pthread_mutex_unlock(&o->lock);
}

offload_copies *offload_copies_of(void *self)
{
    return ((cpu_offload *)self)->copies;
}

const nrl_offload *cpu_offload_open(cpu_offload **at)
{
    if (!*at) {
        cpu_offload *o = calloc(1, sizeof *o);
        if (!o) return NULL;
        if (!(o->copies = offload_copies_create(o))) {
            free(o);
            return NULL;
        }
        o->table = (nrl_offload){.size = sizeof o->table,
                                 .self = o,
                                 .alloc = offload_alloc,
                                 .use = offload_use,
                                 .copy_create = offload_copy_create,
                                 .copy_out = offload_copy_out,
                                 .copy_back = offload_copy_back,
                                 .copy_wait = offload_copy_wait,
                                 .copy_free = offload_copy_free,
                                 .expect = offload_expect};
        o->page = (uintptr_t)sysconf(_SC_PAGESIZE);
        pthread_mutex_init(&o->lock, NULL);
        pthread_cond_init(&o->used, NULL);
        *at = o;
    }
    return &(*at)->table;
}

void cpu_offload_close(cpu_offload *o)
{
    if (!o) return;
    if (o->has_thread) {
        pthread_mutex_lock(&o->lock);
        o->stop = true;
        pthread_cond_signal(&o->used);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
    }
    offload_copies_close(o->copies);
    for (int i = 0; i < o->n_files; i++) {
        munmap(o->files[i].base, o->files[i].bytes);
        close(o->files[i].fd);
    }
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->used);
    free(o->files);
    free(o->order);
    free(o);
}
