/*
 * test_failure.c - ranks that leave, stay silent or send invalid data: every request that needs
 * them fails soon, with the rank and the call in its error, and nothing else is affected.
 */
#include "fake.h"
#include <signal.h>
#include <sys/wait.h>

static const ranks_options tcp23 = {.dialect = TCP23, .address = "127.0.0.1"};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- a fake rank 1 of two ---- */

typedef struct {
    char folder[64];
    void (*play)(int fd);
    bool empty;
} fake_part;

static void *fake_thread(void *arg)
{
    const fake_part *f = arg;
    nrl_store *store;
    if (test_store_open(f->folder, NULL, 20, &store)) return NULL;
    int fd = fake_join(store, 1, 2, f->empty);
    if (fd >= 0) {
        f->play(fd);
        close(fd);
    }
    store_close(store);
    return NULL;
}

/* Rank 0 is the plugin: opens it beside the fake, hands it to `body`, closes it. */
static void beside(void (*play)(int fd), bool empty, const ranks_options *o, void (*body)(void *self))
{
    fake_part f = {.play = play, .empty = empty};
    pthread_t thread;
    nrl_store *store;
    void *self, *options = ranks_plugin_options(o);
    ranks_folder_make(f.folder);
    assert_int_equal(test_store_open(f.folder, NULL, 20, &store), NRL_OK);
    pthread_create(&thread, NULL, fake_thread, &f);
    nrl_status st = gloo.open(options, store, 0, 2, 20, &self);
    if (st) printf("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
    body(self);
    gloo.close(self);
    pthread_join(thread, NULL);
    store_close(store);
    free(options);
    ranks_folder_remove(f.folder);
}

static nrl_status sum_of_1000(void *self)
{
    float data[1000] = {0};
    return RANKS_DO(self, all_reduce, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .receive = data,
                    .count = 1000);
}

static void expect_failure(void *self, const char *words)
{
    double start = now();
    assert_int_equal(sum_of_1000(self), NRL_ERR_PEER);
    if (!strstr(nrl_error_text(), words)) printf("'%s' is not in: %s\n", words, nrl_error_text());
    assert_non_null(strstr(nrl_error_text(), words));
    assert_non_null(strstr(nrl_error_text(), "rank 1"));
    assert_non_null(strstr(nrl_error_text(), "all_reduce 0 of 4000 bytes"));
    assert_int_equal(gloo.failed_peer(self), 1);
    assert_true(now() - start < 60);
    assert_int_equal(sum_of_1000(self), NRL_ERR_PEER); /* and so does every later call, at once */
    assert_non_null(strstr(nrl_error_text(), "rank 1"));
}

static void close_after_a_header(int fd)
{
    wire_header h;
    fake_hear(fd, &h);
}
static void reset_after_a_header(int fd)
{
    wire_header h;
    struct linger now_please = {1, 0};
    fake_hear(fd, &h);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now_please, sizeof now_please);
}
static void body_closed(void *self)
{
    expect_failure(self, "connection");
}

static void a_peer_that_closes_fails_the_call(void **state)
{
    (void)state;
    beside(close_after_a_header, false, &tcp23, body_closed);
    beside(reset_after_a_header, false, &tcp23, body_closed);
}

/* ---- nonsense ---- */

static void wait_for_end(int fd)
{
    char b[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 60000) == 1 && read(fd, b, sizeof b) > 0)
        continue;
}
static void say_bytes(int fd, const void *bytes, size_t size)
{
    if (write(fd, bytes, size) == (ssize_t)size) wait_for_end(fd);
}
static void text_instead(int fd)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody else entirely\r\n\r\n";
    say_bytes(fd, text, sizeof text);
}
static void lengths_that_do_not_agree(int fd)
{
    uint64_t h[6] = {48, WIRE_DATA, 4ull << 56, 0, 1ull << 40, 0};
    say_bytes(fd, h, sizeof h);
}
static void an_absurd_length(int fd)
{
    uint64_t h[6] = {47, WIRE_DATA, 4ull << 56, 0, UINT64_MAX, 0};
    say_bytes(fd, h, sizeof h);
}
static void data_for_another_slot(int fd)
{
    fake_say(fd, WIRE_DATA, 12345, 4, "abc");
    wait_for_end(fd);
}
static uint64_t hear_receive(int fd, uint64_t *length)
{
    wire_header h = {0};
    while (fake_hear(fd, &h) && h.opcode != WIRE_RECV_READY)
        continue;
    *length = h.length;
    return h.slot;
}
static void too_much_data(int fd)
{
    uint64_t length, slot = hear_receive(fd, &length);
    char *data = calloc(1, length + 4);
    fake_say(fd, WIRE_DATA, slot, length + 4, data);
    wait_for_end(fd);
    free(data);
}
static void too_little_data(int fd)
{
    uint64_t length, slot = hear_receive(fd, &length);
    fake_say(fd, WIRE_DATA, slot, 4, "abc");
    wait_for_end(fd);
}
static void half_of_the_data(int fd)
{
    uint64_t length, slot = hear_receive(fd, &length);
    uint8_t h[48], data[8] = {0};
    const wire_header header = {WIRE_DATA, slot, length};
    wire_header_put(&wire_dialects[WIRE_TCP23], &header, h);
    if (write(fd, h, 48) != 48 || write(fd, data, 7) != 7) return;
}
static void a_receive_of_another_size(int fd)
{
    fake_say(fd, WIRE_RECV_READY, 4ull << 56, 8, NULL);
    wait_for_end(fd);
}
static void a_flood_of_notes(int fd)
{
    uint64_t h[6 * 512];
    for (uint64_t i = 0; i < 200; i++) {
        for (uint64_t k = 0; k < 512; k++)
            memcpy(h + 6 * k, (uint64_t[6]){48, WIRE_RECV_READY, (i << 20) + k, 0, 8, 0}, 48);
        if (send(fd, h, sizeof h, MSG_NOSIGNAL) != sizeof h) return;
    }
    wait_for_end(fd);
}

static void body_unknown(void *self)
{
    expect_failure(self, "unknown kind of message");
}
static void body_lengths(void *self)
{
    expect_failure(self, "length");
}
static void body_unasked(void *self)
{
    expect_failure(self, "no receive expects");
}
static void body_disagree(void *self)
{
    expect_failure(self, "disagree");
}
static void body_flood(void *self)
{
    expect_failure(self, "announced more than the limit");
}
static void body_note(void *self)
{
    assert_int_equal(sum_of_1000(self), NRL_ERR_PEER); /* the rank is sound, the call is not */
    assert_non_null(strstr(nrl_error_text(), "rank 1 receives 8 bytes where 1000 were expected"));
}

static void nonsense_closes_the_peer_and_is_named(void **state)
{
    (void)state;
    beside(text_instead, false, &tcp23, body_unknown);
    beside(lengths_that_do_not_agree, false, &tcp23, body_lengths);
    beside(an_absurd_length, false, &tcp23, body_lengths);
    beside(data_for_another_slot, false, &tcp23, body_unasked);
    beside(too_much_data, false, &tcp23, body_disagree);
    beside(too_little_data, false, &tcp23, body_disagree);
    beside(half_of_the_data, false, &tcp23, body_closed);
    beside(a_receive_of_another_size, false, &tcp23, body_note);
    beside(a_flood_of_notes, false, &tcp23, body_flood);
}

/* ---- silence ---- */

static void say_nothing(int fd)
{
    wait_for_end(fd);
}
static void body_bounded(void *self)
{
    float data[10] = {0};
    nrl_request *r;
    bool done = true;
    nrl_comm_args a = {
        .size = sizeof a, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .receive = data, .count = 10};
    assert_int_equal(gloo.all_reduce(self, &a, &r), NRL_OK);
    double start = now();
    assert_int_equal(gloo.wait(self, r, 0.2, &done), NRL_OK);
    assert_false(done);
    assert_true(now() - start > 0.15 && now() - start < 15);
    assert_int_equal(gloo.wait(self, r, 0, &done), NRL_OK);
    assert_false(done);
    assert_int_equal(gloo.failed_peer(self), -1);
    gloo.abort(self);
    assert_int_equal(gloo.wait(self, r, 10, &done), NRL_ERR_PEER);
    assert_true(done);
    assert_non_null(strstr(nrl_error_text(), "aborted"));
    gloo.release(self, r);
}
static void body_timeout(void *self)
{
    double start = now();
    assert_int_equal(sum_of_1000(self), NRL_ERR_PEER);
    assert_non_null(strstr(nrl_error_text(), "no progress for 0.3 s while waiting for rank 1"));
    assert_true(now() - start > 0.2 && now() - start < 15);
}

static void a_silent_peer_is_waited_for_as_long_as_asked(void **state)
{
    static const ranks_options limited = {.dialect = TCP23, .timeout = 0.3, .address = "127.0.0.1"};
    (void)state;
    beside(say_nothing, false, &tcp23, body_bounded);
    beside(say_nothing, false, &limited, body_timeout);
}

/* ---- slow, but not silent ---- */

static void slow_body(ranks_one *r)
{
    enum { COUNT = 1250000 }; /* 5 MB at 1 MB/s */
    float *data = calloc(COUNT, sizeof *data);
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
    double start = now();
    CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .receive = data,
                      .count = COUNT) == NRL_OK);
    CHECK(r, now() - start > 3.5); /* else it shows nothing */
    free(data);
}

static void a_slow_call_that_progresses_does_not_time_out(void **state)
{
    static const ranks_options o = {.dialect = TCP23, .timeout = 3, .rate_limit = 1, .address = "127.0.0.1"};
    (void)state;
    assert_true(ranks_run(2, &o, slow_body, NULL));
}

/* ---- abort ---- */

static atomic_int n_submitted, n_reported; /* ranks that have */

/* Until n ranks have, or a minute is over: then a rank has found something wrong. */
static void await_ranks(const atomic_int *ranks, int n)
{
    for (int i = 0; i < 6000 && atomic_load(ranks) < n; i++)
        usleep(10000);
}

static void *abort_soon(void *self)
{
    await_ranks(&n_submitted, 2);
    usleep(100000); /* data is on its way */
    gloo.abort(self);
    return NULL;
}
static void abort_body(ranks_one *r)
{
    enum { COUNT = 3000000 };
    float *data = calloc(COUNT, sizeof *data);
    pthread_t thread;
    nrl_comm_args a = {
        .size = sizeof a, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .receive = data, .count = COUNT};
    nrl_request *one, *two;
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
    if (r->rank == 0) { /* the others are on their way and need this rank */
        CHECK(r, gloo.barrier(r->self, &a, &one) == NRL_OK);
        pthread_create(&thread, NULL, abort_soon, r->self);
        CHECK(r, ranks_end(r->self, one) == NRL_ERR_PEER);
        CHECK(r, strstr(nrl_error_text(), "barrier 1") && strstr(nrl_error_text(), "aborted"));
        pthread_join(thread, NULL);
        CHECK(r, RANKS_DO(r->self, barrier) == NRL_ERR_PEER);
    } else {
        CHECK(r, gloo.all_reduce(r->self, &a, &one) == NRL_OK);
        CHECK(r, gloo.all_reduce(r->self, &a, &two) == NRL_OK);
        atomic_fetch_add(&n_submitted, 1);
        CHECK(r, ranks_end(r->self, two) == NRL_ERR_PEER);
        CHECK(r, strstr(nrl_error_text(), "all_reduce 2") && strstr(nrl_error_text(), "rank 0"));
        CHECK(r, ranks_end(r->self, one) == NRL_ERR_PEER);
        CHECK(r, gloo.failed_peer(r->self) == 0);
        atomic_fetch_add(&n_reported, 1);
        await_ranks(&n_reported, 2); /* who leaves would be named in the place of rank 0 */
    }
    free(data);
}

static void abort_from_another_thread_ends_everything_everywhere(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++) {
        const ranks_options o = {.dialect = d};
        atomic_store(&n_submitted, 0);
        atomic_store(&n_reported, 0);
        assert_true(ranks_run(3, &o, abort_body, NULL));
    }
}

/* ---- leaving ---- */

/* The last ranks are still exchanging when the first one has its result and goes. */
static void leave_body(ranks_one *r)
{
    for (int i = 0; i < 3; i++) {
        float data[50000] = {0};
        CHECK(r, RANKS_DO(r->self, broadcast, .dtype = NRL_DTYPE_F32, .receive = data, .count = 50000) == NRL_OK);
    }
}

static void who_is_finished_may_leave(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        const ranks_options o = {.dialect = i % 3, .peers = i % 2};
        assert_true(ranks_run(5, &o, leave_body, NULL));
    }
}

/* Ranks 0 and 1 stay until both have heard: who leaves after a failure has left, too. */
static void leaves_early(ranks_one *r)
{
    if (r->rank == 2) return; /* closes in good order */
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_ERR_PEER);
    CHECK(r, strstr(nrl_error_text(), "rank 2 has left"));
    CHECK(r, gloo.failed_peer(r->self) == 2);
    atomic_fetch_add(&n_reported, 1);
    await_ranks(&n_reported, 2);
}

static void who_is_needed_after_leaving_is_named(void **state)
{
    (void)state;
    atomic_store(&n_reported, 0);
    assert_true(ranks_run(3, &tcp23, leaves_early, NULL));
}

/* ---- a process killed ---- */

static void a_killed_process_is_named_by_the_others(void **state)
{
    enum { COUNT = 8000000 };
    char folder[64];
    (void)state;
    ranks_folder_make(folder);
    pid_t child[2];
    int verdict[2];
    char named = 0;
    assert_int_equal(pipe(verdict), 0);
    float *data = calloc(COUNT, sizeof *data);
    for (int32_t rank = 1; rank <= 2; rank++) {
        child[rank - 1] = fork();
        if (child[rank - 1]) continue;
        nrl_store *store;
        void *self, *options = ranks_plugin_options(&tcp23);
        if (test_store_open(folder, NULL, 20, &store) || gloo.open(options, store, rank, 3, 20, &self)) _exit(1);
        for (;;) {
            nrl_status st = RANKS_DO(self, all_reduce, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_MAX,
                                     .receive = data, .count = COUNT);
            if (!st) continue;
            named = st == NRL_ERR_PEER && strstr(nrl_error_text(), "rank 1") ? 'y' : 'n';
            if (write(verdict[1], &named, 1) == 1) pause(); /* one death at a time */
            _exit(1);
        }
    }
    nrl_store *store;
    void *self, *options = ranks_plugin_options(&tcp23);
    assert_int_equal(test_store_open(folder, NULL, 20, &store), NRL_OK);
    assert_int_equal(gloo.open(options, store, 0, 3, 20, &self), NRL_OK);
    double killed = 0;
    for (int i = 0;; i++) {
        if (i == 3) {
            kill(child[0], SIGKILL);
            killed = now();
        }
        nrl_status st = RANKS_DO(self, all_reduce, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_MAX, .receive = data,
                                 .count = COUNT);
        if (!st) continue;
        assert_int_equal(st, NRL_ERR_PEER);
        assert_non_null(strstr(nrl_error_text(), "rank 1"));
        break;
    }
    assert_true(killed > 0 && now() - killed < 60);
    assert_int_equal(gloo.failed_peer(self), 1);
    int status;
    waitpid(child[0], &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(read(verdict[0], &named, 1), 1);
    kill(child[1], SIGKILL);
    waitpid(child[1], &status, 0);
    assert_int_equal(named, 'y');
    close(verdict[0]);
    close(verdict[1]);
    gloo.close(self);
    store_close(store);
    free(options);
    free(data);
    ranks_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_killed_process_is_named_by_the_others), /* first: it forks, and no other thread has been started yet */
        cmocka_unit_test(a_peer_that_closes_fails_the_call),
        cmocka_unit_test(nonsense_closes_the_peer_and_is_named),
        cmocka_unit_test(a_silent_peer_is_waited_for_as_long_as_asked),
        cmocka_unit_test(a_slow_call_that_progresses_does_not_time_out),
        cmocka_unit_test(abort_from_another_thread_ends_everything_everywhere),
        cmocka_unit_test(who_is_finished_may_leave),
        cmocka_unit_test(who_is_needed_after_leaving_is_named),
    };
    return cmocka_run_group_tests(tests, ranks_load, NULL);
}
