/*
 * fake_nccl.c - see fake_nccl.h. One lock for everything; objects live until fake_reset.
 */
#include "fake_nccl.h"
#include "support/local_collective.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 8, TOKENS = 4096, MOST_MS = 60000 };

fake_state fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int depth;         /* of ncclGroupStart */
static _Thread_local int n_in_group;    /* messages; they do not wait for each other */
static _Thread_local const int *behind; /* what the group's stream had before it */
static int next_id = 1;

/* ---- what is kept ---- */

typedef struct kept kept;
struct kept {
    kept *next;
};
static kept *all;

static void *keep(size_t size)
{
    kept *k = calloc(1, sizeof *k + size);
    k->next = all;
    all = k;
    return k + 1;
}

typedef struct op op;
typedef struct comm comm;
struct op {
    op *next;
    uint64_t number;
    int kind, arrived, done;
    nrl_comm_args operands[RANKS];
    int color[RANKS], key[RANKS];
    void **out[RANKS];
};
typedef struct message message;
struct message {
    message *next;
    int from, to, is_send, done, matched;
    const int *behind; /* what its stream must have ended before it; NULL: nothing */
    const void *send;
    void *receive;
    size_t bytes;
};
typedef struct hub hub;
struct hub {
    hub *next;
    int id, world, joined, finalized;
    op *ops;
    message *messages, **last;
};
struct comm {
    hub *hub;
    int rank, aborted;
    uint64_t calls;
    op *splitting;
};
static hub *hubs;

typedef struct {
    const int *token[TOKENS]; /* done flags of what was started */
    int n;
} stream;
typedef struct {
    stream seen;
} event;

void fake_reset(void)
{
    while (all) {
        kept *k = all;
        all = k->next;
        free(k);
    }
    hubs = NULL;
    fake = (fake_state){.version = 22809, .n_devices = 8, .init_rank_gone = -1, .connects = 1};
}

static int wrong(void)
{
    fake.n_wrong++;
    return FAKE_INVALID;
}

static void start(void *s, const int *token)
{
    stream *on = s;
    if (on->n == TOKENS) { /* forget what has ended */
        int n = 0;
        for (int i = 0; i < on->n; i++)
            if (!*on->token[i]) on->token[n++] = on->token[i];
        on->n = n;
    }
    if (on->n < TOKENS) on->token[on->n++] = token;
}

/* ---- device memory ---- */

enum { BLOCKS = 256 };
static struct {
    const char *begin;
    size_t bytes;
} blocks[BLOCKS];

/* Under lock. */
static void need_device(const void *p, size_t bytes)
{
    const char *at = p;
    if (!fake.only_device || !p || !bytes) return;
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].begin && at >= blocks[i].begin && at + bytes <= blocks[i].begin + blocks[i].bytes) return;
    fake.n_wrong++;
}

/* ---- joining ---- */

static hub *hub_of(int id, int world)
{
    for (hub *h = hubs; h; h = h->next)
        if (h->id == id) return h;
    hub *h = keep(sizeof *h);
    h->id = id;
    h->world = world;
    h->last = &h->messages;
    h->next = hubs;
    hubs = h;
    return h;
}

static comm *new_comm(hub *h, int rank)
{
    comm *c = keep(sizeof *c);
    c->hub = h;
    c->rank = rank;
    return c;
}

static int fake_version(int *v)
{
    *v = fake.version;
    return 0;
}

static int fake_unique_id(nccl_id *id)
{
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    memcpy(id->bytes, &next_id, sizeof next_id);
    next_id++;
    pthread_mutex_unlock(&lock);
    return fake.id_code;
}

static int fake_init(void **out, int world, nccl_id id, int rank, nccl_config *config)
{
    int number;
    memcpy(&number, id.bytes, sizeof number);
    if (config->blocking || config->magic != 0xcafebeef) return wrong();
    if (fake.init_code) return fake.init_code;
    pthread_mutex_lock(&lock);
    hub *h = hub_of(number, world);
    h->joined += rank != fake.init_rank_gone;
    *out = new_comm(h, rank);
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

/* Two ranks are connected in their first exchange: the call of one is in progress until the other makes its call. */
static bool waits_for_peer(const comm *c)
{
    for (const message *m = c->hub->messages; m; m = m->next) {
        const message *other = c->hub->messages;
        if ((m->is_send ? m->from : m->to) != c->rank) continue;
        while (other && (other->is_send == m->is_send || other->from != m->from || other->to != m->to))
            other = other->next;
        if (!other) return true;
    }
    return false;
}

static int fake_async_error(void *self, int *code)
{
    comm *c = self;
    pthread_mutex_lock(&lock);
    if (c->splitting && c->splitting->done) c->splitting = NULL;
    *code = c->hub->joined < c->hub->world || c->splitting || (fake.connects && waits_for_peer(c)) ? NCCL_IN_PROGRESS
                                                                                                   : fake.async_code;
    if (c->aborted) fake.n_wrong++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int fake_count(void *self, int *n)
{
    *n = ((comm *)self)->hub->world;
    return 0;
}

static int fake_user_rank(void *self, int *n)
{
    *n = ((comm *)self)->rank;
    return 0;
}

static int fake_finalize(void *self)
{
    pthread_mutex_lock(&lock);
    ((comm *)self)->hub->finalized++;
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

static int end(void *self, int *counter)
{
    comm *c = self;
    pthread_mutex_lock(&lock);
    if (c->aborted) fake.n_wrong++;
    c->aborted = 1;
    ++*counter;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Waits for the other ranks, which are on the same machine, to finalize theirs. */
static int fake_destroy(void *self)
{
    const comm *c = self;
    bool all_have = !fake.connects;
    for (int ms = 0; ms < MOST_MS && !all_have; ms++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        pthread_mutex_lock(&lock);
        all_have = c->hub->finalized >= c->hub->world;
        pthread_mutex_unlock(&lock);
    }
    if (!all_have) return wrong();
    return end(self, &fake.n_destroys);
}

/* Waits for the device, where kernels of other communicators may run until these are aborted. */
static int fake_abort(void *self)
{
    bool all_have_begun = false;
    pthread_mutex_lock(&lock);
    fake.n_in_abort++;
    pthread_mutex_unlock(&lock);
    for (int ms = 0; ms < MOST_MS && !all_have_begun; ms++) {
        pthread_mutex_lock(&lock);
        all_have_begun = fake.n_in_abort >= fake.n_abort_together;
        pthread_mutex_unlock(&lock);
        if (!all_have_begun) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (!all_have_begun) wrong();
    return end(self, &fake.n_aborts);
}

/* ---- operations ---- */

static int fake_group_start(void)
{
    if (!depth++) n_in_group = 0;
    return 0;
}

static int fake_group_end(void)
{
    return --depth < 0 ? wrong() : NCCL_IN_PROGRESS;
}

static op *op_of(comm *c, int kind)
{
    uint64_t number = c->calls++;
    for (op *o = c->hub->ops; o; o = o->next)
        if (o->number == number) return o->kind == kind ? o : NULL;
    op *o = keep(sizeof *o);
    o->number = number;
    o->kind = kind;
    o->next = c->hub->ops;
    c->hub->ops = o;
    return o;
}

/* Messages between two ranks meet in their order, each when its stream has come to it. */
static void let_messages_meet(hub *h)
{
    for (message *s = h->messages; s; s = s->next) {
        message *r = h->messages;
        if (!s->is_send || s->matched) continue;
        while (r && (r->is_send || r->matched || r->from != s->from || r->to != s->to))
            r = r->next;
        const message *earlier = h->messages;
        while (earlier != s &&
               (!earlier->is_send || earlier->matched || earlier->from != s->from || earlier->to != s->to))
            earlier = earlier->next;
        if (!r || earlier != s || (s->behind && !*s->behind) || (r->behind && !*r->behind)) continue;
        if (s->bytes != r->bytes) fake.n_wrong++;
        memcpy(r->receive, s->send, s->bytes < r->bytes ? s->bytes : r->bytes);
        s->matched = r->matched = 1;
        s->done = r->done = !fake.stay;
        let_messages_meet(h); /* others may have waited for these */
        return;
    }
}

static int collective(comm *c, int kind, const nrl_comm_args *a, void *on)
{
    if (!depth || c->aborted) return wrong();
    pthread_mutex_lock(&lock);
    op *o = op_of(c, kind);
    need_device(a->send, (size_t)a->count * nrl_dtype_size((nrl_dtype)a->dtype));
    need_device(a->receive, (size_t)a->count * nrl_dtype_size((nrl_dtype)a->dtype));
    if (o) {
        o->operands[c->rank] = *a;
        start(on, &o->done);
        if (++o->arrived == c->hub->world && !fake.stay)
            o->done = local_compute((local_kind)kind, c->hub->world, o->operands) == NRL_OK;
        let_messages_meet(c->hub);
    }
    pthread_mutex_unlock(&lock);
    return o ? NCCL_IN_PROGRESS : wrong();
}

static uint32_t dtype_of(int type)
{
    static const uint32_t of[] = {
        [NCCL_U8] = NRL_DTYPE_U8,   [NCCL_I32] = NRL_DTYPE_I32, [NCCL_I64] = NRL_DTYPE_I64,  [NCCL_F16] = NRL_DTYPE_F16,
        [NCCL_F32] = NRL_DTYPE_F32, [NCCL_F64] = NRL_DTYPE_F64, [NCCL_BF16] = NRL_DTYPE_BF16};
    return of[type];
}

static nrl_comm_args args(const void *send, void *receive, size_t n, int type, int reduction, int root)
{
    static const uint32_t reduce[] = {[NCCL_SUM] = NRL_REDUCE_OP_SUM,
                                      [NCCL_PRODUCT] = NRL_REDUCE_OP_PRODUCT,
                                      [NCCL_MAX] = NRL_REDUCE_OP_MAX,
                                      [NCCL_MIN] = NRL_REDUCE_OP_MIN,
                                      [NCCL_AVERAGE] = NRL_REDUCE_OP_AVERAGE};
    return (nrl_comm_args){.size = sizeof(nrl_comm_args),
                           .dtype = dtype_of(type),
                           .reduce = reduce[reduction],
                           .peer = root,
                           .send = send,
                           .receive = receive,
                           .count = (int64_t)n};
}

static int fake_all_reduce(const void *s, void *r, size_t n, int type, int reduction, void *c, void *on)
{
    nrl_comm_args a = args(s, r, n, type, reduction, 0);
    return fake.call_code ? fake.call_code : collective(c, LOCAL_ALL_REDUCE, &a, on);
}

static int fake_broadcast(const void *s, void *r, size_t n, int type, int root, void *c, void *on)
{
    nrl_comm_args a = args(NULL, r, n, type, 0, root);
    if (((comm *)c)->rank == root && s != r) memmove(r, s, n * nrl_dtype_size((nrl_dtype)a.dtype));
    return collective(c, LOCAL_BROADCAST, &a, on);
}

static int fake_reduce(const void *s, void *r, size_t n, int type, int reduction, int root, void *c, void *on)
{
    nrl_comm_args a = args(s, r, n, type, reduction, root);
    return collective(c, LOCAL_REDUCE, &a, on);
}

static int fake_all_gather(const void *s, void *r, size_t n, int type, void *c, void *on)
{
    nrl_comm_args a = args(s, r, n, type, 0, 0);
    return collective(c, LOCAL_ALL_GATHER, &a, on);
}

static int fake_reduce_scatter(const void *s, void *r, size_t n, int type, int reduction, void *c, void *on)
{
    nrl_comm_args a = args(s, r, n, type, reduction, 0);
    return collective(c, LOCAL_REDUCE_SCATTER, &a, on);
}

static int exchange(comm *c, message m, void *on)
{
    if (!depth || c->aborted || m.from == m.to) return wrong();
    pthread_mutex_lock(&lock);
    message *mine = keep(sizeof *mine);
    const stream *before = on;
    if (!n_in_group++) behind = before->n ? before->token[before->n - 1] : NULL;
    *mine = m;
    mine->behind = behind;
    need_device(m.is_send ? m.send : m.receive, m.bytes);
    *c->hub->last = mine;
    c->hub->last = &mine->next;
    start(on, &mine->done);
    let_messages_meet(c->hub);
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

static int fake_send(const void *from, size_t n, int type, int peer, void *self, void *on)
{
    comm *c = self;
    return exchange(c,
                    (message){.from = c->rank,
                              .to = peer,
                              .is_send = 1,
                              .send = from,
                              .bytes = n * nrl_dtype_size((nrl_dtype)dtype_of(type))},
                    on);
}

static int fake_recv(void *to, size_t n, int type, int peer, void *self, void *on)
{
    comm *c = self;
    return exchange(
        c,
        (message){.from = peer, .to = c->rank, .receive = to, .bytes = n * nrl_dtype_size((nrl_dtype)dtype_of(type))},
        on);
}

/* Ranks of a colour by key, then rank. */
static void make_children(const op *o, int world)
{
    for (int color = 0; color < 64; color++) {
        int member[RANKS], n = 0;
        for (int r = 0; r < world; r++)
            if (o->color[r] == color) member[n++] = r;
        for (int i = 1; i < n; i++)
            for (int k = i; k > 0 && o->key[member[k]] < o->key[member[k - 1]]; k--) {
                int swap = member[k];
                member[k] = member[k - 1];
                member[k - 1] = swap;
            }
        if (!n) continue;
        hub *h = hub_of(-(next_id++), n);
        h->joined = n;
        for (int i = 0; i < n; i++)
            __atomic_store_n(o->out[member[i]], new_comm(h, i), __ATOMIC_RELEASE);
    }
}

static void *make_children_late(void *user)
{
    const struct timespec wait = {0, fake.child_late_ms * 1000000L};
    op *o = user;
    nanosleep(&wait, NULL);
    pthread_mutex_lock(&lock);
    make_children(o, o->arrived);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int fake_split(void *self, int color, int key, void **out, nccl_config *config)
{
    comm *c = self;
    if (config->blocking || c->aborted) return wrong();
    pthread_mutex_lock(&lock);
    op *o = op_of(c, LOCAL_SPLIT);
    if (o) {
        o->color[c->rank] = color;
        o->key[c->rank] = key;
        o->out[c->rank] = out;
        c->splitting = o;
        if (++o->arrived == c->hub->world) {
            pthread_t late;
            if (!fake.child_late_ms)
                make_children(o, c->hub->world);
            else if (!pthread_create(&late, NULL, make_children_late, o))
                pthread_detach(late);
            o->done = 1;
        }
    }
    pthread_mutex_unlock(&lock);
    return o ? NCCL_IN_PROGRESS : wrong();
}

/* ---- registered buffers ---- */

static int fake_allocate(uintptr_t *out, size_t bytes);
static int fake_release(uintptr_t memory);

static int fake_buffer_alloc(void **out, size_t bytes)
{
    uintptr_t memory;
    if (fake.buffer_code) return fake.buffer_code;
    (void)fake_allocate(&memory, bytes);
    *out = (void *)memory;
    pthread_mutex_lock(&lock);
    fake.n_buffers++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int fake_buffer_free(void *memory)
{
    pthread_mutex_lock(&lock);
    if (fake.n_registered > --fake.n_buffers) wrong(); /* what is registered must not be freed */
    pthread_mutex_unlock(&lock);
    return fake_release((uintptr_t)memory);
}

static int fake_buffer_register(void *c, void *buffer, size_t bytes, void **handle)
{
    int code = fake.register_code;
    pthread_mutex_lock(&lock);
    need_device(buffer, bytes);
    if (((comm *)c)->aborted) code = wrong();
    if (!code) fake.n_registered++;
    pthread_mutex_unlock(&lock);
    *handle = buffer;
    return code;
}

static int fake_buffer_deregister(void *c, void *handle)
{
    pthread_mutex_lock(&lock);
    fake.n_registered--;
    int code = ((comm *)c)->aborted || !handle ? wrong() : 0;
    pthread_mutex_unlock(&lock);
    return code;
}

static const char *fake_error_text(int code)
{
    return code == FAKE_REMOTE_ERROR ? "remote process exited or there was a network error" : "unhandled error";
}

static const char *fake_last_error(void *c)
{
    (void)c;
    return "the stand-in's last words";
}

#define FAKE_ENTRY(member, symbol, arguments) .member = fake_##member,
const nccl_api fake_api = {NCCL_CALLS(FAKE_ENTRY) NCCL_BUFFER_CALLS(FAKE_ENTRY).error_text = fake_error_text,
                           .last_error = fake_last_error};

/* ---- the driver ---- */

static int fake_initialize(unsigned flags)
{
    (void)flags;
    return 0;
}

static int fake_device_count(int *n)
{
    *n = fake.n_devices;
    return 0;
}

static int count(int *counter, int by)
{
    pthread_mutex_lock(&lock);
    *counter += by;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int fake_context_retain(void **context, int device)
{
    *context = (void *)(uintptr_t)(device + 1);
    return count(&fake.live_contexts, 1);
}

static int fake_context_release(int device)
{
    (void)device;
    return count(&fake.live_contexts, -1);
}

static int fake_context_use(void *context)
{
    return context ? 0 : 201;
}

static int fake_allocate(uintptr_t *out, size_t bytes)
{
    *out = (uintptr_t)calloc(1, bytes);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BLOCKS; i++)
        if (!blocks[i].begin) {
            blocks[i].begin = (const char *)*out;
            blocks[i].bytes = bytes;
            break;
        }
    pthread_mutex_unlock(&lock);
    return count(&fake.live_memory, 1);
}

static int fake_release(uintptr_t memory)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].begin == (const char *)memory) blocks[i].begin = NULL;
    pthread_mutex_unlock(&lock);
    free((void *)memory);
    return count(&fake.live_memory, -1);
}

static int fake_allocate_host(void **out, size_t bytes)
{
    *out = calloc(1, bytes);
    return count(&fake.live_memory, 1);
}

static int fake_release_host(void *memory)
{
    free(memory);
    return count(&fake.live_memory, -1);
}

static int fake_copy_in(uintptr_t to, const void *from, size_t bytes, void *on)
{
    (void)on;
    memcpy((void *)to, from, bytes);
    return count(&fake.n_copies_in, 1);
}

static int fake_copy_out(void *to, uintptr_t from, size_t bytes)
{
    memcpy(to, (const void *)from, bytes);
    return 0;
}

static int fake_copy(uintptr_t to, uintptr_t from, size_t bytes, void *on)
{
    (void)on;
    memmove((void *)to, (const void *)from, bytes);
    return 0;
}

static int fake_stream_create(void **out, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    *out = calloc(1, sizeof(stream));
    return count(&fake.live_streams, 1);
}

static int fake_stream_destroy(void *s)
{
    free(s);
    return count(&fake.live_streams, -1);
}

static int fake_stream_fence(void *s, void *e, unsigned flags)
{
    (void)s, (void)e, (void)flags;
    return count(&fake.n_fences, 1);
}

static int fake_event_create(void **out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof(event));
    return count(&fake.live_events, 1);
}

static int fake_event_record(void *e, void *s)
{
    pthread_mutex_lock(&lock);
    ((event *)e)->seen = *(stream *)s;
    fake.n_records++;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int fake_event_query(void *e)
{
    int code = 0;
    pthread_mutex_lock(&lock);
    const stream *s = &((event *)e)->seen;
    for (int i = 0; i < s->n; i++)
        if (!*s->token[i]) code = DRIVER_NOT_READY;
    pthread_mutex_unlock(&lock);
    return code;
}

static int fake_event_destroy(void *e)
{
    free(e);
    return count(&fake.live_events, -1);
}

const nccl_driver fake_driver = {DRIVER_CALLS(FAKE_ENTRY)};
