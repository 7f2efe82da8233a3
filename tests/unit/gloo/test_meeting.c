/*
 * test_meeting.c - how ranks of the gloo collective find each other, failures in that phase, and
 * resources left afterwards; requests used from several threads; the rate limit.
 */
#include "fake.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Opens `rank` of `world` in a folder, alone. */
static nrl_status open_alone(const char *folder, const ranks_options *o, int32_t rank, int32_t world, double timeout_s)
{
    nrl_store *store;
    void *self, *options = ranks_plugin_options(o);
    assert_int_equal(test_store_open(folder, NULL, 20, &store), NRL_OK);
    nrl_status st = gloo.open(options, store, rank, world, timeout_s, &self);
    if (st == NRL_OK) gloo.close(self);
    store_close(store);
    free(options);
    return st;
}

static void ranks_that_do_not_come_are_named(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++) {
        char folder[64];
        const ranks_options o = {.dialect = d};
        ranks_folder_make(folder);
        double start = now();
        assert_int_equal(open_alone(folder, &o, 1, 4, 0.3), NRL_ERR_PEER);
        assert_non_null(strstr(nrl_error_text(), "rank 0, rank 2, rank 3"));
        assert_true(now() - start < 60);
        ranks_folder_remove(folder);
    }
}

static void another_dialect_is_told_from_a_missing_rank(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++) {
        char folder[64];
        uint8_t value[400];
        struct sockaddr_storage a[2] = {{.ss_family = AF_INET}, {.ss_family = AF_INET}};
        const wire_dialect *other = &wire_dialects[d == WIRE_TCP23 ? WIRE_UV : WIRE_TCP23];
        const ranks_options o = {.dialect = d};
        nrl_store *store;
        ranks_folder_make(folder);
        assert_int_equal(test_store_open(folder, NULL, 20, &store), NRL_OK);
        wire_value_put(other, 1, 2, "host", a, value);
        assert_int_equal(nrl_store_set(store, "1", value, wire_value_size(other, 2, "host")), NRL_OK);
        assert_int_equal(open_alone(folder, &o, 0, 2, 5), NRL_ERR_CONFIG);
        assert_non_null(strstr(nrl_error_text(), "rank 1 published a value"));
        assert_non_null(strstr(nrl_error_text(), wire_dialects[d].name));
        store_close(store);
        ranks_folder_remove(folder);
    }
}

/* ---- addresses ---- */

static void text_body(ranks_one *r)
{
    nrl_collective_info before = {0}, after = {0};
    float data[1000] = {0};
    gloo.info(r->self, &before);
    CHECK(r, strstr(before.text, r->shared) != NULL);
    CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .receive = data,
                      .count = 1000) == NRL_OK);
    gloo.info(r->self, &after);
    CHECK(r, after.bytes_sent - before.bytes_sent > 4000 && after.bytes_sent - before.bytes_sent < 7000);
    CHECK(r, after.bytes_received > 4000);
}

static void interface_address_and_environment_choose_where_to_listen(void **state)
{
    const ranks_options interface = {.dialect = TCP23, .interface = "lo", .family = 1};
    const ranks_options address = {.dialect = UV, .address = "127.0.0.1"};
    const ranks_options none = {.dialect = TCP22, .family = 1}, wrong = {.dialect = TCP23, .interface = "nix0"};
    (void)state;
    assert_true(ranks_run(2, &interface, text_body, "gloo, tcp23, lo 127.0.0.1"));
    assert_true(ranks_run(2, &address, text_body, "gloo, uv, lo 127.0.0.1"));
    setenv("GLOO_SOCKET_IFNAME", "lo", 1);
    assert_true(ranks_run(2, &none, text_body, "gloo, tcp22, lo 127.0.0.1"));
    setenv("GLOO_SOCKET_IFNAME", "nix1", 1);
    assert_int_equal(open_alone("/tmp", &none, 0, 2, 1), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "GLOO_SOCKET_IFNAME: no interface 'nix1'"));
    unsetenv("GLOO_SOCKET_IFNAME");
    assert_int_equal(open_alone("/tmp", &wrong, 0, 2, 1), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "interface: no interface 'nix0'"));
    assert_non_null(strstr(nrl_error_text(), "lo"));
    const ranks_options foreign = {.dialect = TCP23, .address = "192.0.2.1"};
    assert_int_equal(open_alone("/tmp", &foreign, 0, 2, 1), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "'192.0.2.1' is not an address of this machine"));
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool ok = fd >= 0 && bind(fd, (void *)&a, sizeof a) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

static void ipv6_serves_as_well(void **state)
{
    (void)state;
    if (!has_ipv6()) {
        print_message("skipped: this machine has no IPv6 loopback address\n");
        skip();
    }
    for (int d = 0; d < 3; d++) {
        const ranks_options o = {.dialect = d, .address = "::1"};
        assert_true(ranks_run(3, &o, text_body, "lo ::1"));
    }
}

/* ---- who knocks ---- */

/* Rank 1 of 2; before it comes, others knock at rank 0's door. */
static void *after_strangers(void *arg)
{
    nrl_store *store;
    void *value;
    size_t size;
    wire_peer zero;
    int knocks[60];
    if (test_store_open(arg, NULL, 20, &store)) return NULL;
    if (nrl_store_get(store, "0", 20, &value, &size)) return NULL;
    (void)!wire_value_get(&wire_dialects[WIRE_TCP23], 1, 0, 2, value, size, &zero);
    free(value);
    for (int i = 0; i < 60; i++) {
        static const int64_t numbers[] = {-1, 0, 2, INT64_MAX, INT64_MIN, 5000000000};
        knocks[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(knocks[i], (void *)&zero.address, sizeof(struct sockaddr_in))) break;
        if (i % 3) (void)!send(knocks[i], &numbers[i % 6], i % 3 == 1 ? 8 : 5, MSG_NOSIGNAL);
    }
    usleep(50000);
    for (int i = 0; i < 60; i++)
        if (i % 2) close(knocks[i]); /* a place is free again for who is awaited */
    int fd = fake_join(store, 1, 2, false);
    wire_header h;
    bool heard = fd >= 0 && fake_hear(fd, &h);
    for (int i = 0; i < 60; i++)
        if (i % 2 == 0) close(knocks[i]);
    if (fd >= 0) close(fd);
    store_close(store);
    return heard ? arg : NULL;
}

static void strangers_at_the_door_change_nothing(void **state)
{
    const ranks_options o = {.dialect = TCP23, .address = "127.0.0.1"};
    (void)state;
    for (int i = 0; i < 4; i++) { /* who connects is a matter of ports */
        char folder[64];
        nrl_store *store;
        void *self, *heard, *options = ranks_plugin_options(&o);
        pthread_t thread;
        ranks_folder_make(folder);
        assert_int_equal(test_store_open(folder, NULL, 20, &store), NRL_OK);
        pthread_create(&thread, NULL, after_strangers, folder);
        nrl_status st = gloo.open(options, store, 0, 2, 20, &self);
        if (st) printf("%s\n", nrl_error_text());
        assert_int_equal(st, NRL_OK);
        assert_int_equal(RANKS_DO(self, barrier), NRL_ERR_PEER); /* it hears a header and goes */
        pthread_join(thread, &heard);
        assert_non_null(heard);
        gloo.close(self);
        store_close(store);
        free(options);
        ranks_folder_remove(folder);
    }
}

/* A rank that publishes no numbers may connect when it is first used. */
typedef struct {
    char folder[64];
    int delay_ms;
} late_part;

static void *late_rank(void *arg)
{
    const late_part *l = arg;
    nrl_store *store;
    wire_header h;
    if (test_store_open(l->folder, NULL, 20, &store)) return NULL;
    int fd = fake_join(store, 1, 2, true);
    /* a barrier of two: one empty message each way */
    fake_say(fd, WIRE_SEND_READY, 7ull << 56, 0, NULL);
    fake_say(fd, WIRE_RECV_READY, 7ull << 56, 0, NULL);
    while (fake_hear(fd, &h)) {
        if (h.opcode == WIRE_RECV_READY) fake_say(fd, WIRE_DATA, h.slot, 0, NULL);
        if (h.opcode == WIRE_DATA) break;
    }
    while (fake_hear(fd, &h))
        continue;
    close(fd);
    store_close(store);
    return NULL;
}

static void a_rank_may_connect_late(void **state)
{
    const ranks_options o = {.dialect = TCP23, .address = "127.0.0.1", .peers = 1};
    (void)state;
    for (int i = 0; i < 6; i++) {
        late_part l;
        nrl_store *store;
        void *self, *options = ranks_plugin_options(&o);
        pthread_t thread;
        ranks_folder_make(l.folder);
        assert_int_equal(test_store_open(l.folder, NULL, 20, &store), NRL_OK);
        pthread_create(&thread, NULL, late_rank, &l);
        nrl_status st = gloo.open(options, store, 0, 2, 20, &self);
        if (st) printf("%s\n", nrl_error_text());
        assert_int_equal(st, NRL_OK);
        st = RANKS_DO(self, barrier);
        if (st) printf("%s\n", nrl_error_text());
        assert_int_equal(st, NRL_OK);
        gloo.close(self);
        pthread_join(thread, NULL);
        store_close(store);
        free(options);
        ranks_folder_remove(l.folder);
    }
}

/* ---- what is left behind ---- */

static int count_in(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d) closedir(d);
    return n;
}

/* The number that stays for a tenth of a second: a joined thread is listed for a moment more. */
static int count_threads(void)
{
    int n = 0;
    for (int same = 0; same < 10; same++) {
        const int found = count_in("/proc/self/task");
        if (found != n) same = 0;
        n = found;
        usleep(10000);
    }
    return n;
}

static void one_barrier(ranks_one *r)
{
    char path[64], target[64];
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
    for (int fd = 3; fd < 200 && r->rank == 0; fd++) { /* sockets do not survive an exec */
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target);
        int flags = fcntl(fd, F_GETFD);
        if (n > 6 && memcmp(target, "socket", 6) == 0 && flags >= 0) CHECK(r, flags & FD_CLOEXEC);
    }
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
}

static void closing_leaves_no_descriptor_and_no_thread(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++) {
        const ranks_options o = {.dialect = d};
        assert_true(ranks_run(3, &o, one_barrier, NULL)); /* libuv's own of the process are open now */
        int fds = count_in("/proc/self/fd"), threads = count_threads();
        assert_true(ranks_run(3, &o, one_barrier, NULL));
        assert_int_equal(count_in("/proc/self/fd"), fds);
        for (int i = 0; i < 3000 && count_in("/proc/self/task") > threads; i++)
            usleep(10000);
        assert_true(count_in("/proc/self/task") <= threads);
    }
}

/* ---- threads, early releases, the rate ---- */

typedef struct {
    void *self;
    nrl_request *request;
    nrl_status status;
} waiter;

static void *wait_there(void *arg)
{
    waiter *w = arg;
    w->status = ranks_end(w->self, w->request);
    return NULL;
}

static void waiters_body(ranks_one *r)
{
    enum { THREADS = 4, COUNT = 20000 };
    pthread_t threads[THREADS];
    waiter w[THREADS];
    float *data = malloc(THREADS * COUNT * sizeof *data);
    for (int round = 0; round < 20; round++) {
        for (int t = 0; t < THREADS; t++) {
            nrl_comm_args a = {.size = sizeof a,
                               .dtype = NRL_DTYPE_F32,
                               .reduce = NRL_REDUCE_OP_SUM,
                               .receive = data + t * COUNT,
                               .count = t % 2 ? COUNT : 1};
            for (int i = 0; i < COUNT; i++)
                data[t * COUNT + i] = (float)t;
            w[t].self = r->self;
            CHECK(r, gloo.all_reduce(r->self, &a, &w[t].request) == NRL_OK);
        }
        for (int t = 0; t < THREADS; t++)
            pthread_create(&threads[t], NULL, wait_there, &w[t]);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
        for (int t = 0; t < THREADS; t++)
            CHECK(r, w[t].status == NRL_OK && data[t * COUNT] == (float)(t * r->size));
    }
    free(data);
}

static void several_threads_may_wait_at_once(void **state)
{
    const ranks_options o = {.dialect = TCP23};
    (void)state;
    assert_true(ranks_run(3, &o, waiters_body, NULL));
}

static void release_body(ranks_one *r)
{
    float *data = calloc(200000, sizeof *data); /* lives until the last barrier */
    nrl_comm_args a = {
        .size = sizeof a, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .receive = data, .count = 200000};
    for (int i = 0; i < 5; i++) {
        nrl_request *request;
        CHECK(r, gloo.all_reduce(r->self, &a, &request) == NRL_OK);
        gloo.release(r->self, request);
        CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
    }
    usleep(300000); /* nobody waits: the progress thread alone */
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
    free(data);
}

static void a_request_released_early_still_ends(void **state)
{
    const ranks_options o = {.dialect = TCP23};
    (void)state;
    assert_true(ranks_run(2, &o, release_body, NULL));
}

static void rate_body(ranks_one *r)
{
    float *data = calloc(500000, sizeof *data); /* 2 MB at 20 MB/s: a tenth of a second */
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
    double start = now();
    CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .receive = data,
                      .count = 500000) == NRL_OK);
    double took = now() - start;
    CHECK(r, took > 0.08 && took < 60);
    free(data);
}

static void the_rate_limit_limits(void **state)
{
    const ranks_options o = {.dialect = TCP23, .rate_limit = 20};
    (void)state;
    assert_true(ranks_run(2, &o, rate_body, NULL));
}

static void wrong_body(ranks_one *r)
{
    float x = 0;
    CHECK(r, RANKS_DO(r->self, broadcast, .dtype = NRL_DTYPE_F32, .receive = &x, .count = 1, .peer = 2) == NRL_ERR_BUG);
    CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = 99, .receive = &x, .count = 1) == NRL_ERR_BUG);
    CHECK(r, RANKS_DO(r->self, all_reduce, .dtype = NRL_DTYPE_F64, .reduce = NRL_REDUCE_OP_SUM, .receive = &x,
                      .count = INT64_MAX / 2) == NRL_ERR_BUG);
    CHECK(r, RANKS_DO(r->self, send, .dtype = NRL_DTYPE_F32, .send = &x, .count = 1, .peer = r->rank) == NRL_ERR_BUG);
    CHECK(r, RANKS_DO(r->self, send, .dtype = NRL_DTYPE_F32, .send = &x, .count = 1, .peer = 1 - r->rank,
                      .tag = UINT64_MAX) == NRL_ERR_BUG);
    CHECK(r, RANKS_DO(r->self, barrier) == NRL_OK);
}

static void wrong_operands_are_refused(void **state)
{
    const ranks_options o = {.dialect = TCP23};
    (void)state;
    assert_true(ranks_run(2, &o, wrong_body, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_do_not_come_are_named),
        cmocka_unit_test(another_dialect_is_told_from_a_missing_rank),
        cmocka_unit_test(interface_address_and_environment_choose_where_to_listen),
        cmocka_unit_test(ipv6_serves_as_well),
        cmocka_unit_test(strangers_at_the_door_change_nothing),
        cmocka_unit_test(a_rank_may_connect_late),
        cmocka_unit_test(closing_leaves_no_descriptor_and_no_thread),
        cmocka_unit_test(several_threads_may_wait_at_once),
        cmocka_unit_test(a_request_released_early_still_ends),
        cmocka_unit_test(the_rate_limit_limits),
        cmocka_unit_test(wrong_operands_are_refused),
    };
    return cmocka_run_group_tests(tests, ranks_load, NULL);
}
