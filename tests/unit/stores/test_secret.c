/*
 * test_secret.c - a store of a job with a secret: clients that prove it are served; others can
 * neither read, change nor delay anything, whatever they send. And how a store without a secret
 * treats clients that do not join.
 */
#include "base/secret.h"
#include "base/clock.h"
#include "support/store.h"
#include "tcp.h"
#include "socket.h"
#include "table.h"
#include "wire.h"
#include <ifaddrs.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netdb.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_S 10
#define HELLO_S 10.0 /* the server's */
#define SLACK_S 20.0 /* of a busy machine */

static secret_key ours, another;

static int make_secrets(void **state)
{
    (void)state;
    nrl_job_secret_derive("correct horse battery", 21, "job", &ours);
    nrl_job_secret_derive("correct horse battery", 21, "job 2", &another);
    assert_memory_not_equal(ours.key, another.key, sizeof ours.key);
    return 0;
}

static tcp_server *open_server(const secret_key *secret)
{
    tcp_server *server;
    const tcp_server_setup s = {.address = "127.0.0.1", .secret = secret};
    assert_int_equal(tcp_server_open(&s, &server), NRL_OK);
    return server;
}

static nrl_status connect_with(tcp_server *server, const secret_key *secret, nrl_store **out)
{
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", (int)tcp_server_port(server));
    return test_store_open(address, secret, PATIENCE_S, out);
}

/* A bare connection that has sent so much. */
static int raw(tcp_server *server, const void *bytes, size_t size)
{
    int fd;
    double deadline = clock_seconds() + PATIENCE_S;
    assert_int_equal(socket_connect("127.0.0.1", tcp_server_port(server), deadline, &fd), NRL_OK);
    if (size) assert_int_equal(socket_send(fd, bytes, size, deadline), NRL_OK);
    return fd;
}

/* Nothing more comes, and the end within `seconds`. */
static void expect_end(int fd, double seconds)
{
    char byte;
    assert_int_equal(socket_receive(fd, &byte, 1, clock_seconds() + seconds, NULL), NRL_ERR_PEER);
    assert_null(strstr(nrl_error_text(), "does not respond"));
    close(fd);
}

static void who_knows_the_secret_is_served(void **state)
{
    (void)state;
    tcp_server *server = open_server(&ours);
    nrl_store *a, *b;
    void *value;
    size_t size;
    assert_int_equal(connect_with(server, &ours, &a), NRL_OK);
    assert_int_equal(connect_with(server, &ours, &b), NRL_OK);
    assert_int_equal(nrl_store_set(a, "k", "value", 5), NRL_OK);
    assert_int_equal(nrl_store_get(b, "k", PATIENCE_S, &value, &size), NRL_OK);
    assert_memory_equal(value, "value", 5);
    free(value);
    store_close(a);
    store_close(b);
    tcp_server_close(server);
}

static void a_difference_is_told_at_once(void **state)
{
    (void)state;
    static const struct {
        bool server, client;
        const char *want;
    } cases[] = {
        {true, true, "has a different secret than this process"},
        {true, false, "requires the job's secret, but this process has none"},
        {false, true, "has no secret, but this process has one"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tcp_server *server = open_server(cases[i].server ? &ours : NULL);
        nrl_store *store;
        double since = clock_seconds();
        assert_int_equal(connect_with(server, cases[i].client ? &another : NULL, &store), NRL_ERR_CONFIG);
        if (!strstr(nrl_error_text(), cases[i].want)) fail_msg("%s", nrl_error_text());
        assert_true(clock_seconds() - since < PATIENCE_S / 2);
        tcp_server_close(server);
    }
}

#define N(n) n "\0\0\0\0\0\0\0"
#define VALIDATE "\0\xce\xf7\x85\x3c"

/* Answers are a refusal or nothing; the value stays as it is. */
static void strangers_see_and_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size, answer;
    } tries[] = {
        {"\1" N("\2") "/k" N("\1") "x", 20, 0}, /* SET without hello */
        {"\x11", 1, 0},                         /* LIST_KEYS */
        {VALIDATE "\x11", 6, 4},                /* behind a VALIDATE */
        {VALIDATE "\1" N("\2") "/k" N("\1") "x", 25, 4},
        {"\x41"
         "00000000000000000000000000000000",
         33, 0}, /* a proof without a challenge */
        {"\x40"
         "00000000000000000000000000000000\x11",
         34, 65}, /* a hello, and a request */
        {"\x40"
         "00000000000000000000000000000000"
         "\x41"
         "00000000000000000000000000000000",
         66, 66}, /* a wrong proof */
        {"\x40"
         "00000000000000000000000000000000"
         "\x40"
         "00000000000000000000000000000000",
         66, 65}, /* a second hello */
    };
    tcp_server *server = open_server(&ours);
    nrl_store *store;
    char answer[80];
    void *value;
    size_t size;
    assert_int_equal(connect_with(server, &ours, &store), NRL_OK);
    assert_int_equal(nrl_store_set(store, "k", "value", 5), NRL_OK);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        int fd = raw(server, tries[i].bytes, tries[i].size);
        if (tries[i].answer)
            assert_int_equal(socket_receive(fd, answer, tries[i].answer, clock_seconds() + PATIENCE_S, NULL), NRL_OK);
        if (tries[i].answer == 66) assert_int_equal(answer[65], 0);
        expect_end(fd, PATIENCE_S);
    }
    assert_int_equal(nrl_store_get(store, "k", PATIENCE_S, &value, &size), NRL_OK);
    assert_memory_equal(value, "value", 5);
    free(value);
    store_close(store);
    tcp_server_close(server);
}

/* What a rank once sent does not serve another: the server's challenge is new each time. */
static void a_recorded_proof_is_worth_nothing(void **state)
{
    (void)state;
    unsigned char hello[33] = {STORE_HELLO}, proof[33] = {STORE_PROOF}, nonces[64] = {0}, answer[65], yes;
    tcp_server *server = open_server(&ours);
    for (int again = 0; again < 2; again++) {
        double deadline = clock_seconds() + PATIENCE_S;
        int fd = raw(server, hello, sizeof hello);
        assert_int_equal(socket_receive(fd, answer, sizeof answer, deadline, NULL), NRL_OK);
        memcpy(nonces + 32, answer + 1, 32);
        assert_true(secret_verify(&ours, STORE_SERVER_LABEL, nonces, sizeof nonces, answer + 33));
        if (!again) secret_prove(&ours, STORE_CLIENT_LABEL, nonces, sizeof nonces, proof + 1);
        assert_int_equal(socket_send(fd, proof, sizeof proof, deadline), NRL_OK);
        assert_int_equal(socket_receive(fd, &yes, 1, deadline, NULL), NRL_OK);
        assert_int_equal(yes, !again);
        close(fd);
    }
    tcp_server_close(server);
}

static void await_clients(tcp_server *server, int32_t n)
{
    for (int i = 0; tcp_server_clients(server) != n; i++) {
        assert_true(i < 1000);
        clock_sleep(0.01);
    }
}

/* Of those who say nothing the oldest go; ranks are served beside them, and the end does not wait for them. */
static void silent_connections_are_few_and_delay_nobody(void **state)
{
    (void)state;
    enum { SILENT = 400, KEPT = 256 };
    for (int with = 0; with < 2; with++) {
        tcp_server *server = open_server(with ? &ours : NULL);
        int fds[SILENT];
        nrl_store *store;
        for (int i = 0; i < SILENT; i++)
            fds[i] = raw(server, NULL, 0);
        assert_int_equal(connect_with(server, with ? &ours : NULL, &store), NRL_OK);
        for (int i = 0; i < SILENT - KEPT; i++)
            expect_end(fds[i], PATIENCE_S);
        await_clients(server, 1);
        store_close(store);
        await_clients(server, 0);
        for (int i = SILENT - KEPT; i < SILENT; i++)
            close(fds[i]);
        tcp_server_close(server);
    }
}

static void who_says_no_hello_in_time_is_dropped(void **state)
{
    (void)state;
    tcp_server *server = open_server(&ours);
    double since = clock_seconds();
    int silent = raw(server, NULL, 0), slow = raw(server, "\x40 half a hello", 14);
    expect_end(silent, HELLO_S + SLACK_S);
    assert_true(clock_seconds() - since >= HELLO_S - 1);
    expect_end(slow, HELLO_S + SLACK_S);
    tcp_server_close(server);
}

static void keys_and_bytes_have_an_end(void **state)
{
    (void)state;
    tcp_table t = {0};
    char key[16];
    for (int i = 0; i <= STORE_TABLE_KEYS; i++) {
        int n = snprintf(key, sizeof key, "%d", i);
        bool fits = tcp_table_set(&t, (tcp_text){key, (size_t)n}, (tcp_text){"", 0}, false);
        if (fits != (i < STORE_TABLE_KEYS)) fail_msg("key %d", i);
    }
    assert_true(t.refused);
    assert_true(tcp_table_set(&t, (tcp_text){"0", 1}, (tcp_text){"new", 3}, false)); /* one that is there */
    tcp_table_free(&t);
    char *big = calloc(1, NRL_STORE_MAX_VALUE);
    int taken = 0;
    for (int i = 0; i < STORE_TABLE_BYTES / NRL_STORE_MAX_VALUE; i++) {
        int n = snprintf(key, sizeof key, "%d", i);
        taken += tcp_table_set(&t, (tcp_text){key, (size_t)n}, (tcp_text){big, NRL_STORE_MAX_VALUE}, false);
    }
    assert_int_equal(taken, STORE_TABLE_BYTES / NRL_STORE_MAX_VALUE - 1);
    assert_true(t.refused && t.bytes <= STORE_TABLE_BYTES);
    tcp_table_free(&t);
    free(big);
}

/* A rank hears of it at once, and those who wait for the key are not left to their time-outs. */
static void a_set_that_finds_no_room_fails(void **state)
{
    (void)state;
    tcp_server *server = open_server(&ours);
    nrl_store *store;
    char *big = calloc(1, NRL_STORE_MAX_VALUE), key[16];
    nrl_status st = NRL_OK;
    assert_int_equal(connect_with(server, &ours, &store), NRL_OK);
    for (int i = 0; !st && i <= STORE_TABLE_BYTES / NRL_STORE_MAX_VALUE; i++) {
        snprintf(key, sizeof key, "%d", i);
        st = nrl_store_set(store, key, big, NRL_STORE_MAX_VALUE);
    }
    assert_int_equal(st, NRL_ERR_PEER);
    assert_string_equal(nrl_error_text(), "the ranks' store has no room for 8388608 bytes of '31'");
    assert_int_equal(nrl_store_set(store, "small", "x", 1), NRL_OK);
    free(big);
    store_close(store);
    tcp_server_close(server);
}

/* An IPv4 address of this machine beside loopback. */
static bool find_address(char text[64])
{
    struct ifaddrs *list;
    bool found = false;
    if (getifaddrs(&list)) return false;
    for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
        found = !getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), text, 64, NULL, 0, NI_NUMERICHOST) &&
                strncmp(text, "127.", 4) != 0;
    }
    freeifaddrs(list);
    return found;
}

/* A server at a port that no other program serves at loopback until *held is closed. */
static tcp_server *open_beside(const char *address, int *held)
{
    for (int i = 0; i < 20; i++) { /* another program may use the port at `address` */
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t n = sizeof a;
        tcp_server *server;
        *held = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(*held, (struct sockaddr *)&a, n), 0);
        assert_int_equal(getsockname(*held, (struct sockaddr *)&a, &n), 0);
        const tcp_server_setup s = {.address = address, .port = ntohs(a.sin_port), .secret = &ours};
        if (tcp_server_open(&s, &server) == NRL_OK) return server;
        close(*held);
    }
    fail_msg("no port at %s: %s", address, nrl_error_text());
    return NULL;
}

static void a_server_listens_at_its_address_alone(void **state)
{
    (void)state;
    char address[64];
    int fd, held;
    if (!find_address(address)) {
        print_message("skipped: this machine has no address beside loopback\n");
        skip();
    }
    tcp_server *server = open_beside(address, &held);
    int32_t port = tcp_server_port(server);
    assert_int_equal(socket_connect(address, port, clock_seconds() + PATIENCE_S, &fd), NRL_OK);
    close(fd);
    assert_int_equal(socket_connect("127.0.0.1", port, clock_seconds() + PATIENCE_S, &fd), NRL_ERR_PEER);
    tcp_server_close(server);
    close(held);
    /* What others call this machine may be none of its addresses (203.0.113.0/24 is nobody's). */
    const tcp_server_setup routed = {.address = "203.0.113.77", .secret = &ours};
    assert_int_equal(tcp_server_open(&routed, &server), NRL_OK);
    assert_int_equal(socket_connect("127.0.0.1", tcp_server_port(server), clock_seconds() + PATIENCE_S, &fd), NRL_OK);
    close(fd);
    tcp_server_close(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_knows_the_secret_is_served),
        cmocka_unit_test(a_difference_is_told_at_once),
        cmocka_unit_test(strangers_see_and_change_nothing),
        cmocka_unit_test(a_recorded_proof_is_worth_nothing),
        cmocka_unit_test(silent_connections_are_few_and_delay_nobody),
        cmocka_unit_test(who_says_no_hello_in_time_is_dropped),
        cmocka_unit_test(keys_and_bytes_have_an_end),
        cmocka_unit_test(a_set_that_finds_no_room_fails),
        cmocka_unit_test(a_server_listens_at_its_address_alone),
    };
    return cmocka_run_group_tests(tests, make_secrets, NULL);
}
