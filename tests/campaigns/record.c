/*
 * record.c - records the calls with which a command and its children change files below a
 * directory, in one order.
 *
 *   record LOG DIR COMMAND [ARGUMENT...]
 *
 * LOG has one line per event, with fields separated by tabs; LOG.data has the bytes that were
 * written:
 *
 *   create PATH                     a new, empty file
 *   write  PATH OFFSET SIZE AT      bytes AT .. AT + SIZE of LOG.data
 *   size   PATH SIZE                the file was truncated or extended
 *   mkdir  PATH | unlink PATH | rmdir PATH
 *   rename FROM TO | exchange A B | link FROM TO
 *   sync   PATH BEGAN               a file or directory; BEGAN is the number of events at the start of the call
 *   say    AT SIZE                  bytes of LOG.data that any process wrote to standard output
 *
 * System calls are traced rather than library calls, so that stdio and libraries are included. A
 * seccomp filter lets other calls run at full speed. A call that changes a file below DIR in a way
 * that has no event here ends the recording with exit code 3: a log is complete or is not written.
 * Exit code 77: this machine does not allow tracing. Otherwise the exit code is that of the
 * command.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* As the kernel writes it (linux/ptrace.h, which does not go with sys/ptrace.h). */
typedef struct {
    uint8_t op; /* 1 entry, 2 exit, 3 seccomp */
    uint8_t pad[3];
    uint32_t arch;
    uint64_t instruction, stack;
    union {
        struct {
            uint64_t nr, args[6];
        } seccomp;
        struct {
            int64_t value;
            uint8_t is_error;
        } exit;
    };
} syscall_info;

/* The calls that are stopped at. What is not listed cannot change a file. */
static const int traced[] = {
#ifdef SYS_open
    SYS_open,      SYS_creat,    SYS_mkdir,          SYS_rename,   SYS_unlink,   SYS_rmdir,     SYS_link,
    SYS_symlink,
#endif
    SYS_openat,    SYS_openat2,  SYS_mkdirat,        SYS_unlinkat, SYS_linkat,   SYS_symlinkat, SYS_renameat2,
#ifdef SYS_renameat
    SYS_renameat,
#endif
    SYS_write,     SYS_pwrite64, SYS_writev,         SYS_pwritev,  SYS_pwritev2, SYS_ftruncate, SYS_truncate,
    SYS_fallocate, SYS_fsync,    SYS_fdatasync,      SYS_sync,     SYS_syncfs,   SYS_mmap,      SYS_copy_file_range,
    SYS_sendfile,  SYS_splice,   SYS_io_uring_setup, SYS_io_submit};
enum { N_TRACED = sizeof traced / sizeof *traced };

/* A thread between the start and the end of a call. */
typedef struct {
    pid_t tid; /* 0: this slot is free */
    bool in_call, is_waiting;
    uint64_t nr, args[6];
    long began;                        /* events at the start of the call */
    char path[PATH_MAX], to[PATH_MAX]; /* of calls that take names, absolute */
    bool existed;
} thread;

static thread *threads;
static size_t n_threads;
static FILE *log_file, *data_file;
static const char *folder;
static size_t folder_size;
static long n_events, n_bytes;
static pid_t busy;          /* the thread whose call is being recorded, 0 = none */
static const char *refused; /* why this log is not complete */
static char refusal[2 * PATH_MAX];

static void fail(const char *what)
{
    fprintf(stderr, "record: cannot %s: %s\n", what, strerror(errno));
    exit(errno == EPERM || errno == ENOSYS || errno == EACCES ? 77 : 3);
}

static thread *thread_of(pid_t tid)
{
    thread *spare = NULL;
    for (size_t i = 0; i < n_threads; i++) {
        if (threads[i].tid == tid) return &threads[i];
        if (!threads[i].tid) spare = &threads[i];
    }
    if (!spare) {
        threads = realloc(threads, (n_threads + 1) * sizeof *threads);
        if (!threads) fail("allocate memory");
        spare = &threads[n_threads++];
    }
    memset(spare, 0, sizeof *spare);
    spare->tid = tid;
    return spare;
}

static bool is_below(const char *path)
{
    return !strncmp(path, folder, folder_size) && (path[folder_size] == '/' || !path[folder_size]);
}

__attribute__((format(printf, 1, 2))) static void event(const char *format, ...)
{
    va_list a;
    va_start(a, format);
    vfprintf(log_file, format, a);
    va_end(a);
    putc('\n', log_file);
    n_events++;
}

static void refuse(const char *what, const char *path)
{
    if (refused) return;
    snprintf(refusal, sizeof refusal, "%s of %s has no event", what, path);
    refused = refusal;
}

/* ---- the traced process's memory, descriptors and names ---- */

static bool read_memory(pid_t tid, uint64_t from, void *to, size_t size)
{
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)from, size};
    return process_vm_readv(tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

/* To the end of the text; pages are read one by one as the next one may not be mapped. */
static void read_text(pid_t tid, uint64_t from, char text[PATH_MAX])
{
    size_t n = 0;
    while (n < PATH_MAX - 1) {
        size_t part = 4096 - (from + n) % 4096;
        if (part > PATH_MAX - 1 - n) part = PATH_MAX - 1 - n;
        if (!read_memory(tid, from + n, text + n, part)) break;
        if (memchr(text + n, 0, part)) return;
        n += part;
    }
    text[n] = 0;
}

static void link_of(pid_t tid, const char *what, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/%s", (int)tid, what);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = 0;
}

static void path_of_fd(pid_t tid, int fd, char path[PATH_MAX])
{
    char what[32];
    snprintf(what, sizeof what, "fd/%d", fd);
    link_of(tid, what, path);
}

/* The absolute name that the call means; links in the folder of it are followed, the name itself is not. */
static void name_of(pid_t tid, int at, uint64_t address, char path[PATH_MAX])
{
    char given[PATH_MAX], joined[2 * PATH_MAX], real[PATH_MAX];
    read_text(tid, address, given);
    if (*given == '/')
        *path = 0;
    else if (at == AT_FDCWD)
        link_of(tid, "cwd", path);
    else
        path_of_fd(tid, at, path);
    snprintf(joined, sizeof joined, "%s/%s", path, given);
    for (size_t n = strlen(joined); n > 1 && joined[n - 1] == '/';)
        joined[--n] = 0;
    char *slash = strrchr(joined, '/');
    *slash = 0;
    if (!realpath(*joined ? joined : "/", real)) *real = 0;
    size_t n = strlen(real);
    snprintf(path, PATH_MAX, "%.*s/%.*s", (int)(n == 1 ? 0 : n), real, NAME_MAX, slash + 1);
}

static int64_t position_of(pid_t tid, int fd)
{
    char path[64];
    long long at = -1;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)tid, fd);
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "pos: %lld", &at) != 1) at = -1;
    if (f) fclose(f);
    return at;
}

/* Appends `size` bytes of the process to the data; they may be spread. */
static void keep_bytes(pid_t tid, const struct iovec *v, size_t n, size_t size)
{
    for (size_t i = 0; i < n && size > 0; i++) {
        size_t part = v[i].iov_len < size ? v[i].iov_len : size;
        char *bytes = malloc(part + 1);
        if (!bytes || !read_memory(tid, (uintptr_t)v[i].iov_base, bytes, part)) fail("read what was written");
        if (fwrite(bytes, 1, part, data_file) != part) fail("write the log");
        free(bytes);
        size -= part;
        n_bytes += (long)part;
    }
}

/* ---- a call that starts ---- */

/* The descriptor's file is below the folder; its path. */
static bool is_ours(const thread *t, int fd, char path[PATH_MAX])
{
    path_of_fd(t->tid, fd, path);
    return is_below(path);
}

static void take_name(thread *t)
{
    const uint64_t *a = t->args;
    switch (t->nr) {
#ifdef SYS_open
    case SYS_open:
    case SYS_creat:
    case SYS_mkdir:
    case SYS_unlink:
    case SYS_rmdir:
        name_of(t->tid, AT_FDCWD, a[0], t->path);
        break;
    case SYS_rename:
    case SYS_link:
    case SYS_symlink:
        name_of(t->tid, AT_FDCWD, a[0], t->path);
        name_of(t->tid, AT_FDCWD, a[1], t->to);
        break;
#endif
    case SYS_truncate:
        name_of(t->tid, AT_FDCWD, a[0], t->path);
        break;
    case SYS_openat:
    case SYS_openat2:
    case SYS_mkdirat:
    case SYS_unlinkat:
        name_of(t->tid, (int)a[0], a[1], t->path);
        break;
    case SYS_symlinkat:
        name_of(t->tid, (int)a[1], a[2], t->to);
        break;
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
    case SYS_linkat:
        name_of(t->tid, (int)a[0], a[1], t->path);
        name_of(t->tid, (int)a[2], a[3], t->to);
        break;
    default:
        break;
    }
    struct stat s;
    t->existed = *t->path && lstat(t->path, &s) == 0;
}

/* A call on a descriptor that may be of a file below the folder. */
static int descriptor_of(const thread *t)
{
    switch (t->nr) {
    case SYS_mmap:
        return (int)t->args[4];
    case SYS_copy_file_range:
    case SYS_splice:
        return (int)t->args[2];
    default:
        return (int)t->args[0];
    }
}

/* Two calls at once could be seen to end in the other order than they took effect: what concerns the folder is
 * let into the kernel one by one. Others are not, as a pipe may make them wait for each other. */
static bool is_exclusive(thread *t)
{
    char path[PATH_MAX];
    take_name(t);
    if (*t->path || *t->to) return is_below(t->path) || is_below(t->to);
    return is_ours(t, descriptor_of(t), path);
}

static void let_begin(thread *t)
{
    t->in_call = true;
    t->is_waiting = false;
    t->began = n_events;
    if (ptrace(PTRACE_SYSCALL, t->tid, NULL, NULL) && errno != ESRCH) fail("let a call begin");
}

static void call_begins(thread *t, const syscall_info *info)
{
    t->nr = info->seccomp.nr;
    memcpy(t->args, info->seccomp.args, sizeof t->args);
    t->path[0] = t->to[0] = 0;
    t->is_waiting = is_exclusive(t);
    if (!t->is_waiting) let_begin(t);
}

/* The next one of those that wait, where none is in the kernel. */
static void next_begins(void)
{
    for (size_t i = 0; i < n_threads && !busy; i++) {
        if (!threads[i].tid || !threads[i].is_waiting) continue;
        busy = threads[i].tid;
        take_name(&threads[i]); /* the one before may have made it */
        let_begin(&threads[i]);
    }
}

/* ---- a call that has succeeded ---- */

static void opened(thread *t, int flags, int fd)
{
    char path[PATH_MAX];
    path_of_fd(t->tid, fd, path);
    if (!is_below(path)) return;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        refuse("a file without a name", path);
    else if (flags & O_CREAT && !t->existed)
        event("create\t%s", path);
    else if (flags & O_TRUNC)
        event("size\t%s\t0", path);
}

static void open_flags(const thread *t, int fd)
{
    uint64_t flags = t->args[2];
#ifdef SYS_open
    if (t->nr == SYS_creat) flags = O_CREAT | O_TRUNC;
    if (t->nr == SYS_open) flags = t->args[1];
#endif
    if (t->nr == SYS_openat2 && !read_memory(t->tid, t->args[2], &flags, sizeof flags)) fail("read open_how");
    thread copy = *t;
    opened(&copy, (int)flags, fd);
}

static void wrote(const thread *t, int64_t size)
{
    char path[PATH_MAX];
    int fd = (int)t->args[0];
    struct iovec v[IOV_MAX] = {{(void *)(uintptr_t)t->args[1], (size_t)t->args[2]}};
    size_t n = 1;
    if (size <= 0) return;
    path_of_fd(t->tid, fd, path);
    bool ours = is_below(path);
    size_t ending = strlen(path) > 10 ? strlen(path) - 10 : 0;
    if (ours && !strcmp(path + ending, " (deleted)")) return; /* no crash brings it back */
    if (!ours && fd != STDOUT_FILENO) return;
    if (t->nr == SYS_writev || t->nr == SYS_pwritev || t->nr == SYS_pwritev2) {
        n = (size_t)t->args[2];
        if (n > IOV_MAX || !read_memory(t->tid, t->args[1], v, n * sizeof *v)) fail("read the vectors of a write");
    }
    int64_t at = t->nr == SYS_pwrite64 || t->nr == SYS_pwritev || t->nr == SYS_pwritev2
                     ? (int64_t)t->args[3]
                     : position_of(t->tid, fd) - size;
    long from = n_bytes;
    keep_bytes(t->tid, v, n, (size_t)size);
    if (ours)
        event("write\t%s\t%lld\t%lld\t%ld", path, (long long)at, (long long)size, from);
    else
        event("say\t%ld\t%lld", from, (long long)size);
}

static void named(const char *what, const thread *t)
{
    if (is_below(t->path)) event("%s\t%s", what, t->path);
}

static void renamed(const char *what, const thread *t)
{
    bool from = is_below(t->path), to = is_below(t->to);
    if (from && to)
        event("%s\t%s\t%s", what, t->path, t->to);
    else if (from || to)
        refuse("a rename across the folder's border", from ? t->path : t->to);
}

static void call_ended(thread *t, int64_t value)
{
    const uint64_t *a = t->args;
    char path[PATH_MAX];
    switch (t->nr) {
#ifdef SYS_open
    case SYS_open:
    case SYS_creat:
#endif
    case SYS_openat:
    case SYS_openat2:
        open_flags(t, (int)value);
        break;
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2:
        wrote(t, value);
        break;
    case SYS_ftruncate:
        if (is_ours(t, (int)a[0], path)) event("size\t%s\t%lld", path, (long long)a[1]);
        break;
    case SYS_truncate:
        if (is_below(t->path)) event("size\t%s\t%lld", t->path, (long long)a[1]);
        break;
    case SYS_fallocate: /* room that does not show changes nothing that a crash could leave */
        if (is_ours(t, (int)a[0], path) && (int)a[1] != FALLOC_FL_KEEP_SIZE) refuse("fallocate", path);
        break;
    case SYS_fsync:
    case SYS_fdatasync:
        if (is_ours(t, (int)a[0], path)) event("sync\t%s\t%ld", path, t->began);
        break;
    case SYS_sync:
    case SYS_syncfs: /* weaker is safer: as if it had done nothing */
        break;
    case SYS_mmap:
        if ((a[3] & MAP_TYPE) != MAP_PRIVATE && a[2] & PROT_WRITE && !(a[3] & MAP_ANONYMOUS) &&
            is_ours(t, (int)a[4], path))
            refuse("a shared mapping", path);
        break;
    case SYS_copy_file_range:
    case SYS_splice:
        if (is_ours(t, (int)a[2], path)) refuse("a copy in the kernel", path);
        break;
    case SYS_sendfile:
        if (is_ours(t, (int)a[0], path)) refuse("a copy in the kernel", path);
        break;
    case SYS_io_uring_setup:
    case SYS_io_submit:
        refuse("asynchronous input and output", folder);
        break;
#ifdef SYS_open
    case SYS_mkdir:
        named("mkdir", t);
        break;
    case SYS_unlink:
        named("unlink", t);
        break;
    case SYS_rmdir:
        named("rmdir", t);
        break;
    case SYS_rename:
        renamed("rename", t);
        break;
    case SYS_link:
        renamed("link", t);
        break;
    case SYS_symlink:
        if (is_below(t->to)) refuse("a symbolic link", t->to);
        break;
#endif
    case SYS_mkdirat:
        named("mkdir", t);
        break;
    case SYS_unlinkat:
        named(a[2] & AT_REMOVEDIR ? "rmdir" : "unlink", t);
        break;
#ifdef SYS_renameat
    case SYS_renameat:
        renamed("rename", t);
        break;
#endif
    case SYS_renameat2: /* RENAME_NOREPLACE is a rename once it has succeeded */
        renamed(a[4] & 2 /* RENAME_EXCHANGE */ ? "exchange" : "rename", t);
        break;
    case SYS_linkat:
        renamed("link", t);
        break;
    case SYS_symlinkat:
        if (is_below(t->to)) refuse("a symbolic link", t->to);
        break;
    default:
        break;
    }
}

/* ---- the two processes ---- */

/* Stops at the calls of `traced`; the others do not even enter the tracer. */
static void install_filter(void)
{
    struct sock_filter code[N_TRACED + 3];
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < N_TRACED; i++)
        code[i + 1] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)traced[i], (uint8_t)(N_TRACED - i), 0);
    code[N_TRACED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[N_TRACED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    struct sock_fprog program = {N_TRACED + 3, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("give up privileges");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("install a filter of system calls");
}

static pid_t start(char **command)
{
    pid_t pid = fork();
    if (pid < 0) fail("start a process");
    if (pid > 0) return pid;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) fail("be traced");
    raise(SIGSTOP);
    install_filter();
    execvp(command[0], command);
    fprintf(stderr, "record: cannot run %s: %s\n", command[0], strerror(errno));
    _exit(127);
}

/* One stop of a thread. False: it stays stopped, or goes on already; else it goes on with *signal. */
static bool goes_on(pid_t tid, int status, bool is_new, int *signal)
{
    syscall_info info;
    thread *t = thread_of(tid);
    *signal = 0;
    if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8)) {
        if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof info, &info) <= 0) return true; /* killed meanwhile */
        call_begins(t, &info);
        return false;
    }
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
        bool told = ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof info, &info) > 0;
        if (told && t->in_call && info.op == 2 && !info.exit.is_error) call_ended(t, info.exit.value);
        t->in_call = false;
        if (busy == tid) busy = 0;
        return true;
    }
    bool is_birth = WSTOPSIG(status) == SIGSTOP && is_new; /* how a new thread begins to be traced */
    if (!(status >> 16) && !is_birth) *signal = WSTOPSIG(status);
    return true;
}

static bool is_known(pid_t tid)
{
    for (size_t i = 0; i < n_threads; i++)
        if (threads[i].tid == tid) return true;
    return false;
}

static int follow(pid_t main_pid)
{
    int code = 3, status, signal;
    for (;;) {
        next_begins();
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == EINTR) continue;
        if (tid < 0) return code; /* all have ended */
        if (!WIFSTOPPED(status)) {
            if (tid == main_pid) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            if (tid == busy) busy = 0;
            if (is_known(tid)) thread_of(tid)->tid = 0;
            continue;
        }
        if (!goes_on(tid, status, !is_known(tid), &signal)) continue;
        if (ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)signal) && errno != ESRCH) fail("let a thread go on");
    }
}

int main(int argc, char **argv)
{
    char name[PATH_MAX], real[PATH_MAX];
    int status;
    if (argc < 4) {
        fputs("usage: record LOG FOLDER COMMAND [ARGUMENT...]\n", stderr);
        return 2;
    }
    if (!realpath(argv[2], real)) fail("find the folder");
    folder = real;
    folder_size = strlen(real);
    snprintf(name, sizeof name, "%s.data", argv[1]);
    log_file = fopen(argv[1], "we");
    data_file = fopen(name, "we");
    if (!log_file || !data_file) fail("write the log");
    pid_t pid = start(argv + 3);
    if (waitpid(pid, &status, 0) != pid) fail("wait for the command");
    if (!WIFSTOPPED(status)) return 77;
    thread_of(pid);
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options)) fail("set what is traced");
    if (ptrace(PTRACE_CONT, pid, NULL, NULL)) fail("start the command");
    int code = follow(pid);
    if (fclose(log_file) || fclose(data_file)) fail("write the log");
    if (!refused) return code;
    fprintf(stderr, "record: %s\n", refused);
    unlink(argv[1]);
    return 3;
}
