/*
 * standin_nccl.c - see standin.h. Everything that ranks exchange is a file of the job's folder, whose name begins with
 * that of the communicator.
 */
#include "standin.h"
#include "api.h"
#include "support/local_collective.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, PATH = 256, INTERNAL_ERROR = 3, INVALID = 4 };

typedef struct {
    char path[PATH];
    int rank, size;
    void *stream; /* of its first call: the calls of a communicator are made on one */
    uint64_t n_calls, n_sent[RANKS], n_received[RANKS], n_splits;
    _Atomic bool joined, aborted;
    int color, key; /* of the split that goes on, and where its communicator is wanted */
    void **child;
} comm;

typedef enum { SEND = 100, RECEIVE } message_kind;

/* A call; kind is a local_kind or a message_kind. */
typedef struct {
    int kind;
    nrl_comm_args a;
    uint64_t number;
    bool posted, done;
} part;

typedef struct {
    standin_task task;
    comm *c;
    int n;
    part parts[2 * RANKS];
} batch;

static _Thread_local int depth;
static _Thread_local batch *open_batch;
static char last_words[1000];

/* ---- files ---- */

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Appears whole. */
static void put(const char *path, const void *head, size_t head_bytes, const void *data, size_t bytes)
{
    char temporary[PATH + 8];
    snprintf(temporary, sizeof temporary, "%s.part", path);
    FILE *f = fopen(temporary, "wb");
    if (!f || fwrite(head, 1, head_bytes, f) != head_bytes || (bytes && fwrite(data, 1, bytes, f) != bytes) ||
        fclose(f) || rename(temporary, path)) {
        fprintf(stderr, "stand-in for NCCL: cannot write %s: %s\n", path, strerror(errno));
        abort();
    }
}

/* What lies in a file, malloc'd; NULL: there is none yet. */
static void *get(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *all = malloc(*bytes + 1);
    if (fread(all, 1, *bytes, f) != *bytes) abort();
    fclose(f);
    return all;
}

static void fail(const char *text)
{
    snprintf(last_words, sizeof last_words, "%s", text);
    standin_deadlock = true;
    fprintf(stderr, "stand-in for NCCL: %s\n", last_words);
}

/* ---- deadlock ---- */

static standin_rank *ranks; /* of the job, in shared memory */
static int own_rank, n_ranks;

static bool all_wait(uint64_t *progress, uint64_t *polls)
{
    *progress = *polls = 0;
    for (int r = 0; r < n_ranks; r++) {
        const standin_rank *k = &ranks[r];
        if (!k->joined || k->gone || !k->host_waits || k->busy != k->waiting) return false;
        *progress += k->progress;
        *polls += k->polls;
    }
    return true;
}

/* A deadlock: for a second all ranks waited, looked again and made no progress. */
static void *watch(void *unused)
{
    const struct timespec pause_between = {0, 100000000};
    uint64_t progress = 0, polls = 0, first_progress = 0, first_polls = 0;
    int rounds = 0;
    (void)unused;
    while (rounds < 10 || polls < first_polls + 1000) {
        nanosleep(&pause_between, NULL);
        if (!all_wait(&progress, &polls) || (rounds && progress != first_progress)) {
            rounds = 0;
            continue;
        }
        if (!rounds++) {
            first_progress = progress;
            first_polls = polls;
        }
    }
    char text[sizeof ranks->text + 64];
    standin_describe(ranks[own_rank].text, sizeof ranks[own_rank].text);
    snprintf(text, sizeof text, "deadlock: rank %d waits for: %s", own_rank, ranks[own_rank].text);
    fail(text);
    return NULL;
}

static void join_job(const char *folder, int rank, int world)
{
    char path[PATH];
    pthread_t thread;
    snprintf(path, sizeof path, "%.200s.ranks", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)(RANKS * sizeof *ranks))) abort();
    ranks = mmap(NULL, RANKS * sizeof *ranks, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (ranks == MAP_FAILED) abort();
    own_rank = rank;
    n_ranks = world;
    ranks[rank].busy = standin_own->busy; /* no stream has work yet */
    standin_own = &ranks[rank];
    standin_own->joined = true;
    if (!pthread_create(&thread, NULL, watch, NULL)) pthread_detach(thread);
}

__attribute__((destructor)) static void leave_job(void)
{
    standin_own->gone = true;
}

/* ---- joining and splitting ---- */

int ncclGetVersion(int *v)
{
    *v = 22809;
    return NCCL_SUCCESS;
}

int ncclGetUniqueId(nccl_id *id)
{
    static int n;
    const char *folder = getenv("FAKE_NCCL_FOLDER");
    memset(id, 0, sizeof *id);
    if (!folder || strlen(folder) > 80) return INVALID;
    snprintf(id->bytes, sizeof id->bytes, "%.80s/%d-%d", folder, (int)getpid(), n++);
    return NCCL_SUCCESS;
}

static comm *new_comm(const char *path, int rank, int size)
{
    comm *c = calloc(1, sizeof *c);
    snprintf(c->path, sizeof c->path, "%s", path);
    c->rank = rank;
    c->size = size;
    return c;
}

int ncclCommInitRankConfig(void **out, int world, nccl_id id, int rank, nccl_config *config)
{
    char path[PATH + 32];
    if (config->blocking || config->magic != 0xcafebeef || world > RANKS) return INVALID;
    comm *c = *out = new_comm(id.bytes, rank, world);
    if (!ranks) join_job(id.bytes, rank, world);
    snprintf(path, sizeof path, "%s.join-%d", c->path, rank);
    put(path, "", 0, NULL, 0);
    return NCCL_IN_PROGRESS;
}

int ncclCommSplit(void *self, int color, int key, void **out, nccl_config *config)
{
    comm *c = self;
    char path[PATH + 64];
    const int own[] = {color, key};
    if (config->blocking || c->child) return INVALID;
    c->child = out;
    c->color = color;
    snprintf(path, sizeof path, "%s.split-%d-%d", c->path, (int)c->n_splits, c->rank);
    put(path, own, sizeof own, NULL, 0);
    return NCCL_IN_PROGRESS;
}

static bool have_joined(comm *c)
{
    char path[PATH + 32];
    for (int r = 0; r < c->size && !c->joined; r++) {
        snprintf(path, sizeof path, "%s.join-%d", c->path, r);
        if (!is_there(path)) return false;
    }
    c->joined = true;
    return true;
}

static bool have_split(comm *c)
{
    int given[RANKS][2], rank = 0, size = 0, own_key = 0;
    for (int r = 0; r < c->size; r++) {
        char path[PATH + 64];
        size_t bytes;
        snprintf(path, sizeof path, "%s.split-%d-%d", c->path, (int)c->n_splits, r);
        void *all = get(path, &bytes);
        if (!all) return false;
        memcpy(given[r], all, sizeof given[r]);
        free(all);
        if (r == c->rank) own_key = given[r][1];
    }
    for (int r = 0; r < c->size; r++) {
        if (given[r][0] != c->color) continue;
        size++;
        rank += given[r][1] < own_key || (given[r][1] == own_key && r < c->rank);
    }
    if (c->color >= 0) {
        char path[PATH];
        snprintf(path, sizeof path, "%.200s.%d-%d", c->path, (int)c->n_splits, c->color);
        comm *child = new_comm(path, rank, size);
        child->joined = true;
        __atomic_store_n(c->child, child, __ATOMIC_RELEASE);
    }
    c->child = NULL;
    c->n_splits++;
    return true;
}

int ncclCommGetAsyncError(void *self, int *code)
{
    comm *c = self;
    *code = NCCL_SUCCESS;
    if (standin_deadlock)
        *code = INTERNAL_ERROR;
    else if (!have_joined(c) || (c->child && !have_split(c)))
        *code = NCCL_IN_PROGRESS;
    return NCCL_SUCCESS;
}

int ncclCommCount(void *self, int *n)
{
    *n = ((comm *)self)->size;
    return NCCL_SUCCESS;
}

int ncclCommUserRank(void *self, int *n)
{
    *n = ((comm *)self)->rank;
    return NCCL_SUCCESS;
}

int ncclCommFinalize(void *self)
{
    (void)self;
    return NCCL_IN_PROGRESS;
}

/* Communicators are small, and tasks may name them: they live as long as the process. */
int ncclCommDestroy(void *self)
{
    (void)self;
    return NCCL_SUCCESS;
}

int ncclCommAbort(void *self)
{
    ((comm *)self)->aborted = true;
    return NCCL_SUCCESS;
}

/* ---- buffers ---- */

int ncclMemAlloc(void **out, size_t bytes)
{
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *out ? NCCL_SUCCESS : INTERNAL_ERROR;
}

int ncclMemFree(void *memory)
{
    free(memory);
    return NCCL_SUCCESS;
}

int ncclCommRegister(void *self, void *buffer, size_t bytes, void **handle)
{
    comm *c = self;
    *handle = buffer;
    return c->aborted || !bytes ? INVALID : NCCL_SUCCESS;
}

int ncclCommDeregister(void *self, void *handle)
{
    comm *c = self;
    return c->aborted || !handle ? INVALID : NCCL_SUCCESS;
}

/* ---- calls ---- */

static size_t bytes_of(const nrl_comm_args *a)
{
    return (size_t)a->count * nrl_dtype_size((nrl_dtype)a->dtype);
}

static void message_path(const comm *c, const part *p, char *path)
{
    const bool sends = p->kind == SEND;
    snprintf(path, PATH + 64, "%s.message-%d-%d-%llu", c->path, sends ? c->rank : p->a.peer,
             sends ? p->a.peer : c->rank, (unsigned long long)p->number);
}

/* A message ends when the other side has taken it. */
static bool send_ended(const comm *c, part *p)
{
    char path[PATH + 64];
    message_path(c, p, path);
    if (!p->posted) put(path, "", 0, p->a.send, bytes_of(&p->a));
    p->posted = true;
    return !is_there(path);
}

static bool receive_ended(const comm *c, part *p)
{
    char path[PATH + 64], text[PATH + 200];
    size_t bytes;
    message_path(c, p, path);
    void *all = get(path, &bytes);
    if (!all) return false;
    if (bytes == bytes_of(&p->a)) {
        memcpy(p->a.receive, all, bytes);
        unlink(path);
    } else {
        snprintf(text, sizeof text, "wrong order: message %llu from rank %d to rank %d has %zu bytes, expected %zu",
                 (unsigned long long)p->number, p->a.peer, c->rank, bytes, bytes_of(&p->a));
        fail(text);
    }
    free(all);
    return true;
}

typedef struct {
    int kind;
    uint32_t dtype, reduce;
    int32_t peer;
    int64_t count;
} heading;

static heading heading_of(const part *p)
{
    return (heading){p->kind, p->a.dtype, p->a.reduce, p->a.peer, p->a.count};
}

static size_t sent_bytes(const part *p, int size)
{
    return p->kind == LOCAL_REDUCE_SCATTER ? (size_t)size * bytes_of(&p->a) : bytes_of(&p->a);
}

static void collective_path(const comm *c, uint64_t number, int r, char *path)
{
    snprintf(path, PATH + 64, "%s.call-%llu-%d", c->path, (unsigned long long)number, r);
}

/* From what all ranks have sent. */
static void compute(const comm *c, const part *p, char *const *all)
{
    const heading own = heading_of(p);
    nrl_comm_args operands[RANKS];
    char *scratch[RANKS] = {0};
    for (int r = 0; r < c->size; r++) {
        const size_t room = bytes_of(&p->a) * (size_t)(p->kind == LOCAL_ALL_GATHER ? c->size : 1);
        operands[r] = p->a;
        operands[r].send = all[r] + sizeof own;
        operands[r].receive = r == c->rank ? p->a.receive : (scratch[r] = malloc(room + 1));
        if (p->kind == LOCAL_BROADCAST && r == p->a.peer)
            memcpy(operands[r].receive, all[r] + sizeof own, bytes_of(&p->a));
        if (memcmp(all[r], &own, sizeof own)) fail("wrong order: ranks made different calls");
    }
    if (!standin_deadlock && local_compute((local_kind)p->kind, c->size, operands)) fail("a call cannot be computed");
    for (int r = 0; r < c->size; r++)
        free(scratch[r]);
}

static bool collective_ended(const comm *c, part *p)
{
    const heading own = heading_of(p);
    char path[PATH + 64], *all[RANKS] = {0};
    size_t bytes;
    bool ended = true;
    collective_path(c, p->number, c->rank, path);
    if (!p->posted) put(path, &own, sizeof own, p->a.send, p->a.send ? sent_bytes(p, c->size) : 0);
    p->posted = true;
    for (int r = 0; r < c->size && ended; r++) {
        collective_path(c, p->number, r, path);
        ended = is_there(path);
    }
    for (int r = 0; r < c->size && ended; r++) {
        collective_path(c, p->number, r, path);
        all[r] = get(path, &bytes);
    }
    if (ended) {
        compute(c, p, all);
        collective_path(c, p->number - 1, c->rank, path);
        unlink(path); /* who makes this call has ended the one before */
    }
    for (int r = 0; r < c->size; r++)
        free(all[r]);
    return ended;
}

/* All calls of a group go on beside each other; the group ends when all have. */
static standin_state run(standin_task *t)
{
    batch *b = (batch *)t;
    bool ended = true;
    for (int i = 0; i < b->n && !standin_deadlock && !b->c->aborted; i++) {
        part *p = &b->parts[i];
        if (!p->done)
            p->done = p->kind == SEND      ? send_ended(b->c, p)
                      : p->kind == RECEIVE ? receive_ended(b->c, p)
                                           : collective_ended(b->c, p);
        ended = ended && p->done;
    }
    return ended ? STANDIN_DONE : STANDIN_WAITS;
}

static void describe(const standin_task *t, char *text, size_t room)
{
    const batch *b = (const batch *)t;
    const part *p = b->parts;
    while (p->done && p < b->parts + b->n - 1)
        p++;
    const char *name = strrchr(b->c->path, '/');
    snprintf(text, room, "%s %llu %s rank %d of communicator %s",
             p->kind == SEND      ? "send"
             : p->kind == RECEIVE ? "receive"
                                  : "call",
             (unsigned long long)p->number,
             p->kind == SEND      ? "to"
             : p->kind == RECEIVE ? "from"
                                  : "by",
             p->a.peer, name ? name + 1 : b->c->path);
}

int ncclGroupStart(void)
{
    depth++;
    return NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    batch *b = open_batch;
    if (--depth) return depth < 0 ? INVALID : NCCL_SUCCESS;
    open_batch = NULL;
    if (b && !standin_push(b->c->stream, &b->task)) return INVALID;
    return NCCL_IN_PROGRESS;
}

static int add(void *self, int kind, nrl_comm_args a, uint64_t *counter, void *on)
{
    comm *c = self;
    if (!depth || c->aborted) return INVALID;
    if (!c->stream) c->stream = on;
    if (!open_batch) {
        open_batch = calloc(1, sizeof *open_batch);
        *open_batch = (batch){.task = {.run = run, .describe = describe}, .c = c};
    }
    if (c->stream != on || open_batch->c != c || open_batch->n == 2 * RANKS) return INVALID;
    open_batch->parts[open_batch->n++] = (part){.kind = kind, .a = a, .number = (*counter)++};
    return NCCL_IN_PROGRESS;
}

static nrl_comm_args args(const void *send, void *receive, size_t n, int type, int reduction, int peer)
{
    static const uint32_t dtypes[] = {
        [NCCL_U8] = NRL_DTYPE_U8,   [NCCL_I32] = NRL_DTYPE_I32, [NCCL_I64] = NRL_DTYPE_I64,  [NCCL_F16] = NRL_DTYPE_F16,
        [NCCL_F32] = NRL_DTYPE_F32, [NCCL_F64] = NRL_DTYPE_F64, [NCCL_BF16] = NRL_DTYPE_BF16};
    static const uint32_t reductions[] = {[NCCL_SUM] = NRL_REDUCE_OP_SUM,
                                          [NCCL_PRODUCT] = NRL_REDUCE_OP_PRODUCT,
                                          [NCCL_MAX] = NRL_REDUCE_OP_MAX,
                                          [NCCL_MIN] = NRL_REDUCE_OP_MIN,
                                          [NCCL_AVERAGE] = NRL_REDUCE_OP_AVERAGE};
    return (nrl_comm_args){.size = sizeof(nrl_comm_args),
                           .dtype = dtypes[type],
                           .reduce = reductions[reduction],
                           .peer = peer,
                           .send = send,
                           .receive = receive,
                           .count = (int64_t)n};
}

int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, void *c, void *on)
{
    return add(c, LOCAL_ALL_REDUCE, args(s, r, n, type, op, 0), &((comm *)c)->n_calls, on);
}

int ncclBroadcast(const void *s, void *r, size_t n, int type, int root, void *c, void *on)
{
    const bool sends = ((comm *)c)->rank == root;
    return add(c, LOCAL_BROADCAST, args(sends ? s : NULL, r, n, type, 0, root), &((comm *)c)->n_calls, on);
}

int ncclReduce(const void *s, void *r, size_t n, int type, int op, int root, void *c, void *on)
{
    return add(c, LOCAL_REDUCE, args(s, r, n, type, op, root), &((comm *)c)->n_calls, on);
}

int ncclAllGather(const void *s, void *r, size_t n, int type, void *c, void *on)
{
    return add(c, LOCAL_ALL_GATHER, args(s, r, n, type, 0, 0), &((comm *)c)->n_calls, on);
}

int ncclReduceScatter(const void *s, void *r, size_t n, int type, int op, void *c, void *on)
{
    return add(c, LOCAL_REDUCE_SCATTER, args(s, r, n, type, op, 0), &((comm *)c)->n_calls, on);
}

int ncclSend(const void *from, size_t n, int type, int peer, void *c, void *on)
{
    return add(c, SEND, args(from, NULL, n, type, 0, peer), &((comm *)c)->n_sent[peer], on);
}

int ncclRecv(void *to, size_t n, int type, int peer, void *c, void *on)
{
    return add(c, RECEIVE, args(NULL, to, n, type, 0, peer), &((comm *)c)->n_received[peer], on);
}

const char *ncclGetErrorString(int code)
{
    return code == INVALID ? "invalid usage" : "internal error";
}

const char *ncclGetLastError(void *c)
{
    (void)c;
    return last_words;
}
