/*
 * tensorboard.c - scalars for TensorBoard: OUT/tensorboard/events.out.tfevents.*, one event per
 * record, with the tags of the transformers Trainer (train/loss, eval/loss).
 *
 * A resumed run writes another file that begins with a restart at its first step: readers drop what
 * earlier files have from there on. A new run removes the files that earlier runs left. An event is
 * written whole or not at all. If the file is removed during a run, the next record notices this and
 * begins another file.
 */
#include "event.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "events.out.tfevents.", suffix[] = ".nrl";

typedef struct {
    const char *folder;
} tensorboard_options;

static const nrl_option tensorboard_rows[] = {
    NRL_OPT_STR(tensorboard_options, folder, "tensorboard",
                "directory name in the run's directory; pass it, or a directory of runs, to `tensorboard --logdir`"),
};

typedef struct {
    nrl_status (*claim)(void *claim_user, const char *name);
    void *claim_user;
    int fd;
    char *folder, *path;
    event_bytes bytes;
    int64_t n_written; /* events written to the open file */
} tensorboard;

static nrl_status tensorboard_check(const void *options)
{
    const char *folder = ((const tensorboard_options *)options)->folder;
    if (*folder && !strchr(folder, '/') && strcmp(folder, ".") && strcmp(folder, "..")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "folder: '%s' is not a plain name; expected a name without '/'", folder);
}

static nrl_status failed(const char *path, int error)
{
    bool full = error == ENOSPC || error == EFBIG || error == EDQUOT;
    return nrl_fail(full ? NRL_ERR_FULL : NRL_ERR_IO, "%s: %s", path, strerror(error));
}

static char *join(const char *folder, const char *file)
{
    size_t n = strlen(folder) + strlen(file) + 2;
    char *path = malloc(n);
    if (path) snprintf(path, n, "%s/%s", folder, file);
    return path;
}

static bool is_ours(const char *name)
{
    size_t n = strlen(name), m = sizeof suffix - 1;
    return !strncmp(name, prefix, sizeof prefix - 1) && n > m && !strcmp(name + n - m, suffix);
}

static void remove_earlier(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_ours(e->d_name)) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
}

/* Readers take files in alphabetical order, so names begin with the seconds. */
static nrl_status create_file(tensorboard *t, long long seconds)
{
    char host[65] = "host", name[160];
    gethostname(host, sizeof host - 1);
    host[strcspn(host, "/")] = 0;
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "%s%010lld.%s.%ld.%03d%s", prefix, seconds, host, (long)getpid(), i, suffix);
        free(t->path);
        t->path = join(t->folder, name);
        if (!t->path) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'tensorboard'");
        t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (t->fd >= 0) return NRL_OK;
        if (errno != EEXIST) break;
    }
    return failed(t->path, errno);
}

/* Writes the built bytes to the file. A partial write is undone; if that fails, the file is given up. */
static nrl_status append(tensorboard *t)
{
    struct stat before;
    size_t done = 0;
    if (t->bytes.failed) {
        t->bytes.failed = false;
        return nrl_fail(NRL_ERR_MEMORY, "out of memory for an event");
    }
    if (fstat(t->fd, &before) != 0) return failed(t->path, errno);
    while (done < t->bytes.size) {
        ssize_t n = write(t->fd, t->bytes.bytes + done, t->bytes.size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int error = n < 0 ? errno : ENOSPC;
            if (done && ftruncate(t->fd, before.st_size) != 0) {
                close(t->fd);
                t->fd = -1;
            }
            return failed(t->path, error);
        }
        done += (size_t)n;
    }
    return NRL_OK;
}

static void tensorboard_close(void *self)
{
    tensorboard *t = self;
    if (t->fd >= 0) close(t->fd);
    free(t->bytes.bytes);
    free(t->folder);
    free(t->path);
    free(t);
}

static nrl_status claim_folder(tensorboard *t)
{
    if (t->claim) NRL_TRY(t->claim(t->claim_user, strrchr(t->folder, '/') + 1));
    if (mkdir(t->folder, 0777) != 0 && errno != EEXIST) return failed(t->folder, errno);
    return NRL_OK;
}

static nrl_status begin_file(tensorboard *t, int64_t resumed_step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    NRL_TRY(create_file(t, (long long)now.tv_sec));
    t->bytes.size = 0;
    event_version(&t->bytes, seconds);
    if (resumed_step > 0) event_restart(&t->bytes, seconds, resumed_step + 1);
    return append(t);
}

static nrl_status begin(tensorboard *t, const nrl_logger_run *run)
{
    if (run->size >= sizeof *run) {
        t->claim = run->claim;
        t->claim_user = run->claim_user;
    }
    NRL_TRY(claim_folder(t));
    if (run->resumed_step <= 0) remove_earlier(t->folder);
    return begin_file(t, run->resumed_step);
}

static nrl_status tensorboard_open(const void *options, const nrl_logger_run *run, void **self)
{
    tensorboard *t = calloc(1, sizeof *t);
    if (t) t->fd = -1;
    if (t) t->folder = join(run->out, ((const tensorboard_options *)options)->folder);
    nrl_status st = t && t->folder ? begin(t, run) : nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'tensorboard'");
    if (st == NRL_OK)
        *self = t;
    else if (t)
        tensorboard_close(t);
    return st;
}

/* Whether the path still leads to the open file. */
static bool is_there(const tensorboard *t)
{
    struct stat open_one, named;
    return t->fd >= 0 && !fstat(t->fd, &open_one) && !stat(t->path, &named) && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

static nrl_status begin_again(tensorboard *t)
{
    if (t->fd >= 0) {
        nrl_warn("%s was removed or replaced during the run; %lld records are lost", t->path, (long long)t->n_written);
        close(t->fd);
    }
    t->fd = -1;
    t->n_written = 0;
    NRL_TRY(claim_folder(t));
    return begin_file(t, 0);
}

static nrl_status tensorboard_write(void *self, const nrl_record *record)
{
    tensorboard *t = self;
    if (record->kind == NRL_RECORD_SAMPLES) return NRL_OK;
    if (!is_there(t)) NRL_TRY(begin_again(t));
    t->bytes.size = 0;
    event_scalars(&t->bytes, record);
    NRL_TRY(append(t));
    t->n_written++;
    return NRL_OK;
}

static const nrl_logger table = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, tensorboard_options, tensorboard_rows, "tensorboard", "0.1",
               "scalars for TensorBoard in OUT/tensorboard"),
    .plugin.check = tensorboard_check,
    .open = tensorboard_open,
    .write = tensorboard_write,
    .close = tensorboard_close,
};
NRL_EXPORT(table)
