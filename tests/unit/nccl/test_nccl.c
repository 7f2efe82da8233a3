/*
 * test_nccl.c - the nccl collective with a fake NCCL: the rules of every collective, and the
 * behavior if a rank is missing, NCCL fails, or an exchange never ends.
 */
#include "group.h"
#include "support/store.h"
#include "testing/conformance/collective.h"
#include "fake_nccl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static nccl_options options = {.timeout = 30, .device = -1};
static const nccl_api *api = &fake_api;

static nrl_status open_fake(const void *o, nrl_store *store, int32_t rank, int32_t world, double timeout_s, void **self)
{
    (void)o;
    return nccl_open_with(api, &fake_driver, &options, store, rank, world, timeout_s, self);
}

#define ENTRY(name) .name = nccl_##name,
static const nrl_collective table = {.open = open_fake,
                                     .split = nccl_split,
                                     .close = nccl_close,
                                     .abort = nccl_abort,
                                     NCCL_OPERATIONS(ENTRY).wait = nccl_wait,
                                     .fence = nccl_fence,
                                     .release = nccl_release,
                                     .failed_peer = nccl_failed_peer,
                                     .info = nccl_info,
                                     .by_order = true,
                                     .connect = nccl_connect};

static void nothing_is_left(void)
{
    assert_int_equal(fake.n_wrong, 0);
    assert_int_equal(fake.live_streams, 0);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(fake.live_memory, 0);
    assert_int_equal(fake.live_contexts, 0);
}

static void check_part(const char *name, void (*part)(member *), int32_t least, int32_t most)
{
    const conformance_setup setup = {.options = &options, .store = test_store_kind("tcp").table};
    conformance_report *report = calloc(1, sizeof *report);
    for (int32_t world = least; world <= most; world++) {
        fake_reset();
        fake.only_device = 1; /* operands are the host's: they must have been copied */
        collective_end end = collective_run(&table, &setup, world, report, name, part);
        for (int64_t i = 0; i < report->n_rules; i++)
            if (report->rules[i].failed)
                fail_msg("%s, %d ranks: %s: %s", name, world, report->rules[i].rule, report->rules[i].text);
        assert_int_equal(end, COLLECTIVE_WENT_THROUGH);
        nothing_is_left();
    }
    assert_true(report->checked > 0);
    free(report);
}

static void it_keeps_the_rules_of_every_collective(void **state)
{
    (void)state;
    check_part("moves", collective_moves, 2, 4);
    check_part("uneven", collective_uneven, 2, 4);
    check_part("sums", collective_sums, 2, 4);
    check_part("bits", collective_bits, 2, 4);
    check_part("shares", collective_shares, 2, 4);
    check_part("messages", collective_messages, 2, 4);
    check_part("requests", collective_requests, 2, 3);
    check_part("groups", collective_groups, 4, 4);
}

/* ---- ranks as threads, for what goes wrong ---- */

enum { RANKS = 3 };
static const double LONG = 30;   /* seconds that calls may wait here; none does */
static const double SOON = 15;   /* half of it, and time enough on a busy machine */
static const double WHOLE = 2.5; /* where the whole time-out passes; rank 0 calls the roll in most of it */

typedef struct rank_of rank_of;
struct rank_of {
    pthread_t thread, aborter;
    nrl_store *store;
    int32_t rank;
    double timeout;
    void (*body)(rank_of *r, void *self);
    nrl_status st;
    char text[300];
    double took;
};

static void note_error(rank_of *r, nrl_status st)
{
    r->st = st;
    if (st) snprintf(r->text, sizeof r->text, "%s", nrl_error_text());
}

static void *run_rank(void *user)
{
    rank_of *r = user;
    void *self = NULL;
    double start = nccl_clock();
    note_error(r, open_fake(NULL, r->store, r->rank, RANKS, r->timeout, &self));
    if (!r->st && r->body) r->body(r, self);
    r->took = nccl_clock() - start;
    nccl_close(self);
    return NULL;
}

/* Ranks [first, RANKS) run. */
static void run_ranks(rank_of *ranks, int32_t first, double timeout, void (*body)(rank_of *, void *))
{
    store_server *server;
    assert_int_equal(test_store_serve(0, NULL, &server), NRL_OK);
    for (int32_t i = first; i < RANKS; i++) {
        ranks[i] = (rank_of){.rank = i, .timeout = timeout, .body = body};
        assert_int_equal(test_store_connect(test_store_port(server), LONG, &ranks[i].store), NRL_OK);
    }
    for (int32_t i = first; i < RANKS; i++)
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    for (int32_t i = first; i < RANKS; i++) {
        pthread_join(ranks[i].thread, NULL);
        store_close(ranks[i].store);
    }
    store_server_close(server);
}

static nrl_comm_args sum_of(float *v)
{
    return (nrl_comm_args){.size = sizeof(nrl_comm_args),
                           .dtype = NRL_DTYPE_F32,
                           .reduce = NRL_REDUCE_OP_SUM,
                           .send = v,
                           .receive = v,
                           .count = 1};
}

/* A sum over all ranks, begun; `meanwhile` happens; then it is waited for. */
static void sum_and(rank_of *r, void *self, void (*meanwhile)(rank_of *r, void *self), double seconds)
{
    float v = 1;
    nrl_comm_args a = sum_of(&v);
    nrl_request *request;
    bool done = false;
    note_error(r, nccl_all_reduce(self, &a, &request));
    if (r->st) return;
    if (meanwhile) meanwhile(r, self);
    note_error(r, nccl_wait(self, request, seconds, &done));
    if (!r->st && !done) snprintf(r->text, sizeof r->text, "not done");
    nccl_release(self, request);
}

static void sum_once(rank_of *r, void *self)
{
    sum_and(r, self, NULL, 0.2);
}

/* Every rank runs `body` and ends with `status` in less than `most` seconds, with words about it. */
static void all_end(double timeout, void (*body)(rank_of *, void *), nrl_status status, const char *words, double most)
{
    rank_of ranks[RANKS];
    run_ranks(ranks, 0, timeout, body);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].st, status);
        if (!strstr(ranks[i].text, words)) fail_msg("'%s' is not in: %s", words, ranks[i].text);
        assert_true(ranks[i].took < most);
    }
}

static void all_go_well(void (*body)(rank_of *, void *))
{
    fake_reset();
    all_end(LONG, body, NRL_OK, "", SOON);
    nothing_is_left();
}

static void a_missing_rank_is_named_by_all_others(void **state)
{
    rank_of ranks[RANKS] = {0};
    (void)state;
    fake_reset();
    store_server *server;
    assert_int_equal(test_store_serve(0, NULL, &server), NRL_OK);
    for (int32_t i = 0; i < 2; i++) { /* rank 2 does not come */
        ranks[i] = (rank_of){.rank = i, .timeout = i ? LONG : 2};
        assert_int_equal(test_store_connect(test_store_port(server), LONG, &ranks[i].store), NRL_OK);
    }
    assert_int_equal(pthread_create(&ranks[1].thread, NULL, run_rank, &ranks[1]), 0);
    void *host; /* of rank 1: rank 0 would name it too if it were not there yet */
    size_t size;
    assert_int_equal(nrl_store_get(ranks[0].store, "nccl/here/1", LONG, &host, &size), NRL_OK);
    free(host);
    assert_int_equal(pthread_create(&ranks[0].thread, NULL, run_rank, &ranks[0]), 0);
    for (int32_t i = 0; i < 2; i++) {
        pthread_join(ranks[i].thread, NULL);
        store_close(ranks[i].store);
        assert_int_equal(ranks[i].st, NRL_ERR_PEER);
        assert_non_null(strstr(ranks[i].text, "rank 2"));
        assert_true(ranks[i].took < SOON);
    }
    store_server_close(server);
    nothing_is_left();
}

static void a_rank_that_nccl_waits_for_costs_the_time_out_only(void **state)
{
    (void)state;
    fake_reset();
    fake.init_rank_gone = 1;
    all_end(WHOLE, NULL, NRL_ERR_PEER, "joining the other ranks took more than", SOON);
    assert_int_equal(fake.n_aborts, RANKS);
    nothing_is_left();
}

static void nccls_own_words_are_told(void **state)
{
    (void)state;
    fake_reset();
    fake.init_code = FAKE_SYSTEM_ERROR;
    all_end(LONG, NULL, NRL_ERR_PEER, "joining the other ranks failed: unhandled error", SOON);
    nothing_is_left();
    fake_reset();
    fake.id_code = FAKE_SYSTEM_ERROR;
    all_end(LONG, NULL, NRL_ERR_PEER, "cannot create an id", SOON);
    nothing_is_left();
    fake_reset();
    fake.call_code = FAKE_INVALID;
    all_end(LONG, sum_once, NRL_ERR_PEER, "all_reduce failed: unhandled error: the stand-in's last words", SOON);
    fake.n_wrong = 0;
    nothing_is_left();
}

static void an_old_nccl_and_too_few_devices_are_said(void **state)
{
    rank_of ranks[RANKS];
    (void)state;
    fake_reset();
    fake.version = 21600;
    all_end(LONG, NULL, NRL_ERR_PLUGIN, "", SOON);
    nothing_is_left();
    fake_reset();
    fake.n_devices = 2; /* for three ranks of one machine */
    run_ranks(ranks, 0, WHOLE, NULL);
    assert_int_equal(ranks[2].st, NRL_ERR_CONFIG);
    assert_non_null(strstr(ranks[2].text, "device 2"));
    nothing_is_left();
}

static void a_wait_ends_when_its_time_is_up(void **state)
{
    (void)state;
    fake_reset();
    fake.stay = 1;
    all_end(LONG, sum_once, NRL_OK, "not done", SOON);
    nothing_is_left();
}

static pthread_barrier_t all_have_begun;

/* The exchange never ends; then every communicator reports why, so none may still be joining. */
static void report_trouble(rank_of *r, void *self)
{
    (void)r;
    (void)self;
    pthread_barrier_wait(&all_have_begun);
    fake.async_code = FAKE_REMOTE_ERROR;
}

static void wait_for_trouble(rank_of *r, void *self)
{
    sum_and(r, self, report_trouble, LONG);
}

static void an_error_in_the_background_ends_a_wait(void **state)
{
    (void)state;
    fake_reset();
    fake.stay = 1;
    pthread_barrier_init(&all_have_begun, NULL, RANKS);
    all_end(LONG, wait_for_trouble, NRL_ERR_PEER, "all_reduce failed: remote process exited", SOON);
    pthread_barrier_destroy(&all_have_begun);
    assert_true(fake.n_aborts == RANKS); /* none is finalized in peace */
    nothing_is_left();
}

static void *abort_soon(void *self)
{
    struct timespec t = {0, 100000000};
    nanosleep(&t, NULL);
    nccl_abort(self);
    return NULL;
}

static void begin_abort(rank_of *r, void *self)
{
    pthread_create(&r->aborter, NULL, abort_soon, self);
}

static void wait_for_abort(rank_of *r, void *self)
{
    float v = 1;
    nrl_comm_args a = sum_of(&v);
    nrl_request *none;
    sum_and(r, self, begin_abort, LONG);
    if (!r->aborter) return; /* the sum did not begin */
    pthread_join(r->aborter, NULL);
    if (nccl_all_reduce(self, &a, &none) != NRL_ERR_PEER) r->st = NRL_ERR_BUG; /* nothing starts any more */
}

static void an_abort_from_another_thread_ends_what_is_in_flight(void **state)
{
    (void)state;
    fake_reset();
    fake.stay = 1;
    all_end(LONG, wait_for_abort, NRL_ERR_PEER, "aborted by this rank", SOON);
    assert_int_equal(fake.n_aborts, RANKS);
    assert_int_equal(fake.n_destroys, 0);
    nothing_is_left();
}

static void wait_for_abort_of_two(rank_of *r, void *self)
{
    void *half;
    note_error(r, nccl_split(self, 0, r->rank, &half));
    if (!r->st) wait_for_abort(r, self);
}

/* An abort of one communicator waits until the kernels of others end, which they do when these are aborted. */
static void communicators_are_aborted_together(void **state)
{
    (void)state;
    fake_reset();
    fake.stay = 1;
    fake.n_abort_together = 2 * RANKS;
    all_end(LONG, wait_for_abort_of_two, NRL_ERR_PEER, "aborted by this rank", SOON);
    assert_int_equal(fake.n_aborts, 2 * RANKS);
    nothing_is_left();
}

/* Operands are waited for on the device: a stream by an event of it, an event directly. */
static void follow_streams(rank_of *r, void *self)
{
    float v = 1;
    nrl_comm_args a = sum_of(&v);
    void *stream, *event;
    nrl_request *request;
    bool done;
    (void)fake_driver.stream_create(&stream, 0, 0);
    (void)fake_driver.event_create(&event, 0);
    a.stream = stream;
    note_error(r, nccl_all_reduce(self, &a, &request));
    if (!r->st) note_error(r, nccl_fence(self, request, stream));
    if (!r->st) note_error(r, nccl_wait(self, request, LONG, &done));
    nccl_release(self, request);
    a.stream = NULL;
    a.after = event;
    note_error(r, nccl_all_reduce(self, &a, &request));
    if (!r->st) note_error(r, nccl_wait(self, request, LONG, &done));
    nccl_release(self, request);
    if (v != RANKS * RANKS) r->st = NRL_ERR_BUG;
    (void)fake_driver.stream_destroy(stream);
    (void)fake_driver.event_destroy(event);
}

static void operands_are_waited_for_on_the_device(void **state)
{
    (void)state;
    all_go_well(follow_streams);
    assert_int_equal(fake.n_fences, 3 * RANKS);
}

static void split_and_sum(rank_of *r, void *self)
{
    float v = (float)(r->rank + 1);
    nrl_comm_args a = sum_of(&v);
    nrl_request *request;
    void *half = NULL;
    bool done = false;
    note_error(r, nccl_split(self, r->rank % 2, r->rank, &half));
    if (r->st) return;
    note_error(r, nccl_all_reduce(half, &a, &request));
    if (!r->st) note_error(r, nccl_wait(half, request, LONG, &done));
    if (!r->st) nccl_release(half, request);
    if (v != (r->rank % 2 ? 2 : 1 + 3)) r->st = NRL_ERR_BUG;
    nccl_close(half);
}

static void a_split_group_may_come_after_its_parent_is_ready(void **state)
{
    rank_of ranks[RANKS];
    (void)state;
    fake_reset();
    fake.child_late_ms = 5;
    run_ranks(ranks, 0, LONG, split_and_sum);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(ranks[i].st, NRL_OK);
    nothing_is_left();
}

typedef struct {
    float out, in;
    nrl_request *sent, *received;
} letter;

/* A message to one rank, and one from another, begun in this order. */
static void post(rank_of *r, void *self, letter *l, int32_t to, int32_t from)
{
    nrl_comm_args a = {.size = sizeof a, .dtype = NRL_DTYPE_F32, .count = 1, .peer = to};
    l->out = (float)(10 * r->rank + to);
    l->in = -1;
    a.send = &l->out;
    note_error(r, nccl_send(self, &a, &l->sent));
    if (r->st) return;
    a = (nrl_comm_args){.size = sizeof a, .dtype = NRL_DTYPE_F32, .count = 1, .peer = from, .receive = &l->in};
    note_error(r, nccl_recv(self, &a, &l->received));
}

static bool arrive(rank_of *r, void *self, letter *l, int32_t from, double seconds)
{
    bool sent, received;
    if (!r->st) note_error(r, nccl_wait(self, l->received, seconds, &received));
    if (!r->st) note_error(r, nccl_wait(self, l->sent, seconds, &sent));
    if (!r->st && received && l->in != (float)(10 * from + r->rank)) r->st = NRL_ERR_BUG;
    nccl_release(self, l->sent);
    nccl_release(self, l->received);
    return !r->st && sent && received;
}

static void send_around(rank_of *r, void *self)
{
    const int32_t next = (r->rank + 1) % RANKS, before = (r->rank + RANKS - 1) % RANKS;
    letter up, down;
    float v = 1;
    nrl_comm_args a = sum_of(&v);
    nrl_request *sum;
    bool done;
    note_error(r, nccl_connect(self));
    if (!r->st) post(r, self, &up, next, before);
    if (!r->st) post(r, self, &down, before, next);
    if (!r->st) note_error(r, nccl_all_reduce(self, &a, &sum));
    if (r->st) return;
    note_error(r, nccl_wait(self, sum, LONG, &done));
    nccl_release(self, sum);
    if (!arrive(r, self, &up, before, LONG) || !arrive(r, self, &down, next, LONG) || v != RANKS) r->st = NRL_ERR_BUG;
}

static void messages_of_neighbours_wait_for_nothing_else(void **state)
{
    (void)state;
    all_go_well(send_around);
}

static void send_unconnected(rank_of *r, void *self)
{
    const int32_t next = (r->rank + 1) % RANKS, before = (r->rank + RANKS - 1) % RANKS;
    letter up;
    post(r, self, &up, next, before);
    if (!r->st && arrive(r, self, &up, before, 0.2)) r->st = NRL_ERR_BUG;
}

/* Each waits with its send for a receive that is behind a send. */
static void without_ways_ranks_that_all_send_first_wait_for_ever(void **state)
{
    (void)state;
    fake_reset();
    fake.connects = 0; /* else no send would even return */
    all_end(LONG, send_unconnected, NRL_OK, "", SOON);
    nothing_is_left();
}

static void fail_on_a_way(rank_of *r, void *self)
{
    letter up;
    note_error(r, nccl_connect(self));
    if (r->st) return;
    if (r->rank) { /* rank 1 waits for a message that rank 0 does not send */
        nrl_comm_args a = {
            .size = sizeof a, .dtype = NRL_DTYPE_F32, .count = 1, .peer = r->rank - 1, .receive = &up.in};
        bool done;
        note_error(r, nccl_recv(self, &a, &up.received));
        report_trouble(r, self);
        if (!r->st) note_error(r, nccl_wait(self, up.received, LONG, &done));
        if (nccl_failed_peer(self) != r->rank - 1) r->st = NRL_ERR_BUG;
        nccl_release(self, up.received);
    } else {
        report_trouble(r, self);
    }
}

static void a_message_that_fails_names_the_other_rank(void **state)
{
    rank_of ranks[RANKS];
    (void)state;
    fake_reset();
    pthread_barrier_init(&all_have_begun, NULL, RANKS);
    run_ranks(ranks, 0, LONG, fail_on_a_way);
    pthread_barrier_destroy(&all_have_begun);
    assert_int_equal(ranks[1].st, NRL_ERR_PEER);
    assert_int_equal(ranks[2].st, NRL_ERR_PEER);
    assert_non_null(strstr(ranks[1].text, "recv failed"));
    nothing_is_left();
}

static void wrong_operands_are_refused(rank_of *r, void *self)
{
    float v = 1;
    nrl_request *request;
    nrl_comm_args a = sum_of(&v);
    bool right = true;
    a.dtype = NRL_DTYPE_I32;
    a.reduce = NRL_REDUCE_OP_AVERAGE;
    right = right && nccl_all_reduce(self, &a, &request) == NRL_ERR_CONFIG;
    a = sum_of(&v);
    a.peer = RANKS;
    right = right && nccl_broadcast(self, &a, &request) == NRL_ERR_BUG;
    a.count = -1;
    right = right && nccl_all_reduce(self, &a, &request) == NRL_ERR_BUG;
    a.dtype = 99;
    right = right && nccl_all_reduce(self, &a, &request) == NRL_ERR_BUG;
    r->st = right ? NRL_OK : NRL_ERR_PLUGIN;
}

static void what_nccl_cannot_do_never_reaches_it(void **state)
{
    (void)state;
    all_go_well(wrong_operands_are_refused);
}

/* A small exchange of the mesh. */
static void gather_numbers(rank_of *r, void *self)
{
    int64_t own = 7 + r->rank, all[RANKS] = {0};
    nrl_request *request;
    bool done;
    nrl_comm_args a = {.size = sizeof a, .dtype = NRL_DTYPE_I64, .send = &own, .receive = all, .count = 1};
    note_error(r, nccl_all_gather(self, &a, &request));
    if (!r->st) note_error(r, nccl_wait(self, request, LONG, &done));
    nccl_release(self, request);
    for (int i = 0; i < RANKS; i++)
        if (all[i] != 7 + i) r->st = NRL_ERR_BUG;
}

static void host_memory_is_copied_once_each_way(void **state)
{
    (void)state;
    all_go_well(gather_numbers);
    assert_int_equal(fake.n_copies_in, RANKS);
}

/* ---- registered buffers ---- */

enum { NUMBERS = 1000 };

static int n_given; /* ranks that got a buffer */

/* Sums over a group of all ranks, in two buffers if there are any. */
static void sum_in_buffers(rank_of *r, void *self)
{
    void *group = NULL, *memory[2] = {0}, *stream;
    nrl_request *request;
    bool done;
    (void)fake_driver.stream_create(&stream, 0, 0);
    nrl_status st = nccl_split(self, 0, r->rank, &group);
    for (int i = 0; i < 2 && st == NRL_OK; i++)
        st = nccl_alloc(group, NUMBERS * sizeof(float), &memory[i]);
    if (st == NRL_OK && memory[0] && memory[1]) {
        float *x = memory[1];
        for (int i = 0; i < NUMBERS; i++)
            x[i] = (float)(i + r->rank);
        nrl_comm_args a = {.size = sizeof a,
                           .dtype = NRL_DTYPE_F32,
                           .reduce = NRL_REDUCE_OP_SUM,
                           .send = x,
                           .receive = x,
                           .count = NUMBERS,
                           .stream = stream};
        st = nccl_all_reduce(group, &a, &request);
        if (st == NRL_OK) st = nccl_wait(group, request, LONG, &done);
        if (st == NRL_OK) nccl_release(group, request);
        for (int i = 0; i < NUMBERS && st == NRL_OK; i++)
            if ((int)x[i] != RANKS * i + RANKS * (RANKS - 1) / 2) st = nrl_fail(NRL_ERR_BUG, "sum %d is %g", i, x[i]);
        __atomic_fetch_add(&n_given, 1, __ATOMIC_RELAXED);
    }
    note_error(r, st);
    (void)fake_driver.stream_destroy(stream);
    nccl_close(group);
}

static void sums_in_buffers(int given)
{
    options.register_buffers = true;
    n_given = 0;
    fake.only_device = 1;
    all_end(LONG, sum_in_buffers, NRL_OK, "", SOON);
    nothing_is_left();
    options.register_buffers = false;
    assert_int_equal(n_given, given);
    assert_int_equal(fake.n_buffers, 0);
    assert_int_equal(fake.n_registered, 0);
}

static void strategies_exchange_memory_that_nccl_allocated_and_registered(void **state)
{
    (void)state;
    fake_reset();
    sums_in_buffers(RANKS);
}

static void without_such_memory_they_take_their_own(void **state)
{
    (void)state;
    fake_reset();
    nccl_api old = fake_api; /* before 2.19 */
    old.buffer_alloc = NULL;
    old.buffer_free = NULL;
    old.buffer_register = NULL;
    old.buffer_deregister = NULL;
    api = &old;
    sums_in_buffers(0);
    api = &fake_api;
    fake_reset();
    fake.buffer_code = 1;
    sums_in_buffers(0);
    fake_reset();
    fake.register_code = 1;
    sums_in_buffers(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_keeps_the_rules_of_every_collective),
        cmocka_unit_test(a_missing_rank_is_named_by_all_others),
        cmocka_unit_test(a_rank_that_nccl_waits_for_costs_the_time_out_only),
        cmocka_unit_test(nccls_own_words_are_told),
        cmocka_unit_test(an_old_nccl_and_too_few_devices_are_said),
        cmocka_unit_test(a_wait_ends_when_its_time_is_up),
        cmocka_unit_test(an_error_in_the_background_ends_a_wait),
        cmocka_unit_test(an_abort_from_another_thread_ends_what_is_in_flight),
        cmocka_unit_test(communicators_are_aborted_together),
        cmocka_unit_test(operands_are_waited_for_on_the_device),
        cmocka_unit_test(a_split_group_may_come_after_its_parent_is_ready),
        cmocka_unit_test(messages_of_neighbours_wait_for_nothing_else),
        cmocka_unit_test(without_ways_ranks_that_all_send_first_wait_for_ever),
        cmocka_unit_test(a_message_that_fails_names_the_other_rank),
        cmocka_unit_test(what_nccl_cannot_do_never_reaches_it),
        cmocka_unit_test(host_memory_is_copied_once_each_way),
        cmocka_unit_test(strategies_exchange_memory_that_nccl_allocated_and_registered),
        cmocka_unit_test(without_such_memory_they_take_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
