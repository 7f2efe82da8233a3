/*
 * faults.h - injects faults between a program and the disk: one file of a test program, or of a
 * preloaded library, includes it, and its functions replace those of libc. Calls for files below
 * `fault_folder` are counted, recorded with their bytes, and may fail, be shortened or be held.
 */
#ifndef SUPPORT_FAULTS_H
#define SUPPORT_FAULTS_H
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef enum {
    FAULT_CREATE = 0,
    FAULT_WRITE,
    FAULT_SYNC, /* of a file or directory */
    FAULT_MAKE_FOLDER,
    FAULT_RENAME,
    FAULT_EXCHANGE,
    FAULT_REMOVE,
    FAULT_REMOVE_FOLDER,
    FAULT_KINDS
} fault_kind;

/* One successful call, in order. */
typedef struct {
    fault_kind kind;
    char *path, *to; /* to: the new name of a rename */
    char *bytes;     /* of a write */
    size_t size;
} fault_event;

static const char *fault_folder;   /* NULL: no call is observed */
static const char *fault_match;    /* a part of the path, NULL = any */
static int fault_kind_wanted = -1; /* a fault_kind, or any */
static long fault_at = -1;         /* which of those calls fails, from 0; -1 = none */
static int fault_error;            /* its errno */
static bool fault_stays;           /* later calls that match fail too */
static bool fault_short_writes, fault_no_exchange;
static bool fault_holds;          /* writes wait for fault_let_go, a minute at most */
static bool fault_waited_in_vain; /* and nothing let them go */
static long fault_count;          /* calls that matched */
static bool fault_recording;
static fault_event *fault_events;
static size_t fault_n_events;
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fault_gone_on = PTHREAD_COND_INITIALIZER;

#define FAULT_REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static inline bool fault_is_ours(const char *path)
{
    return fault_folder && path && !strncmp(path, fault_folder, strlen(fault_folder));
}

/* The errno with which this call must fail; 0 = it must not fail. */
static inline int fault_of(fault_kind kind, const char *path)
{
    if (!fault_is_ours(path) || (fault_match && !strstr(path, fault_match))) return 0;
    if (fault_kind_wanted >= 0 && fault_kind_wanted != (int)kind) return 0;
    pthread_mutex_lock(&fault_lock);
    long n = fault_count++;
    bool hit = fault_at >= 0 && (n == fault_at || (fault_stays && n > fault_at));
    pthread_mutex_unlock(&fault_lock);
    return hit ? fault_error : 0;
}

static inline void fault_record(fault_kind kind, const char *path, const char *to, const void *bytes, size_t size)
{
    if (!fault_recording || !fault_is_ours(path)) return;
    pthread_mutex_lock(&fault_lock);
    fault_events = realloc(fault_events, (fault_n_events + 1) * sizeof *fault_events);
    fault_event *e = &fault_events[fault_n_events++];
    *e = (fault_event){kind, strdup(path), to ? strdup(to) : NULL, size ? malloc(size) : NULL, size};
    if (size) memcpy(e->bytes, bytes, size);
    pthread_mutex_unlock(&fault_lock);
}

static inline const char *fault_path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    if (!fault_folder) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = 0;
    return path;
}

static inline void fault_hold(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 60;
    pthread_mutex_lock(&fault_lock);
    while (fault_holds && !fault_waited_in_vain)
        fault_waited_in_vain = pthread_cond_timedwait(&fault_gone_on, &fault_lock, &end) != 0;
    pthread_mutex_unlock(&fault_lock);
}

static inline void fault_let_go(void)
{
    pthread_mutex_lock(&fault_lock);
    fault_holds = false;
    pthread_cond_broadcast(&fault_gone_on);
    pthread_mutex_unlock(&fault_lock);
}

#define FAULT_TRY(kind, path)                                                                                          \
    do {                                                                                                               \
        int fault_ = fault_of(kind, path);                                                                             \
        if (fault_) {                                                                                                  \
            errno = fault_;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)

/* ---- replacements of libc functions ---- */

int open(const char *path, int flags, ...)
{
    va_list a;
    va_start(a, flags);
    mode_t mode = flags & O_CREAT ? va_arg(a, mode_t) : 0;
    va_end(a);
    if (flags & O_CREAT) FAULT_TRY(FAULT_CREATE, path);
    int fd = FAULT_REAL(open)(path, flags, mode);
    if (fd >= 0 && flags & O_CREAT) fault_record(FAULT_CREATE, path, NULL, NULL, 0);
    return fd;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    char buffer[PATH_MAX];
    const char *path = fault_path_of(fd, buffer);
    if (!fault_is_ours(path)) return FAULT_REAL(write)(fd, bytes, size);
    FAULT_TRY(FAULT_WRITE, path);
    fault_hold();
    if (fault_short_writes && size > 1) size = (size + 2) / 3;
    ssize_t n = FAULT_REAL(write)(fd, bytes, size);
    if (n > 0) fault_record(FAULT_WRITE, path, NULL, bytes, (size_t)n);
    return n;
}

int fsync(int fd)
{
    char buffer[PATH_MAX];
    const char *path = fault_path_of(fd, buffer);
    FAULT_TRY(FAULT_SYNC, path);
    int st = FAULT_REAL(fsync)(fd);
    if (st == 0) fault_record(FAULT_SYNC, path, NULL, NULL, 0);
    return st;
}

int mkdir(const char *path, mode_t mode)
{
    FAULT_TRY(FAULT_MAKE_FOLDER, path);
    int st = FAULT_REAL(mkdir)(path, mode);
    if (st == 0) fault_record(FAULT_MAKE_FOLDER, path, NULL, NULL, 0);
    return st;
}

int rename(const char *from, const char *to)
{
    FAULT_TRY(FAULT_RENAME, from);
    int st = FAULT_REAL(rename)(from, to);
    if (st == 0) fault_record(FAULT_RENAME, from, to, NULL, 0);
    return st;
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (fault_is_ours(from) && fault_no_exchange) {
        errno = EINVAL;
        return -1;
    }
    FAULT_TRY(FAULT_EXCHANGE, from);
    int st = FAULT_REAL(renameat2)(from_fd, from, to_fd, to, flags);
    if (st == 0) fault_record(FAULT_EXCHANGE, from, to, NULL, 0);
    return st;
}

int unlinkat(int fd, const char *name, int flags)
{
    char path[PATH_MAX], buffer[PATH_MAX];
    const char *folder = *name == '/' ? "" : fault_path_of(fd, buffer);
    if (snprintf(path, sizeof path, "%s%s%s", folder ? folder : "", *name == '/' ? "" : "/", name) < (int)sizeof path)
        FAULT_TRY(FAULT_REMOVE, path);
    int st = FAULT_REAL(unlinkat)(fd, name, flags);
    if (st == 0) fault_record(FAULT_REMOVE, path, NULL, NULL, 0);
    return st;
}

int rmdir(const char *path)
{
    FAULT_TRY(FAULT_REMOVE_FOLDER, path);
    int st = FAULT_REAL(rmdir)(path);
    if (st == 0) fault_record(FAULT_REMOVE_FOLDER, path, NULL, NULL, 0);
    return st;
}

/* ---- for the test ---- */

static inline void fault_none(void)
{
    fault_match = NULL;
    fault_kind_wanted = -1;
    fault_at = -1;
    fault_error = 0;
    fault_stays = fault_short_writes = fault_no_exchange = fault_recording = false;
    fault_holds = fault_waited_in_vain = false;
    fault_count = 0;
}

static inline void fault_forget(void)
{
    for (size_t i = 0; i < fault_n_events; i++) {
        free(fault_events[i].path);
        free(fault_events[i].to);
        free(fault_events[i].bytes);
    }
    free(fault_events);
    fault_events = NULL;
    fault_n_events = 0;
}

#endif
