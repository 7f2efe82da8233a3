/*
 * test_store.c - the store of ranks: its calls through client and server, directories in the
 * format of a FileStore, prefixes, late servers, and hostile clients.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "support/store.h"
#include "tcp.h"
#include "socket.h"
#include "wire.h"
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define PATIENCE_S 60.0 /* for what comes at once, unless the machine is very busy */

typedef struct {
    tcp_server *server;
    nrl_store *store;
} pair;

static nrl_status open_at(const char *address, int32_t port, tcp_server **out)
{
    return tcp_server_open(&(tcp_server_setup){.address = address, .port = port}, out);
}

static pair open_pair(void)
{
    pair p;
    assert_int_equal(open_at("127.0.0.1", 0, &p.server), NRL_OK);
    assert_int_equal(test_store_connect(tcp_server_port(p.server), PATIENCE_S, &p.store), NRL_OK);
    return p;
}

static void close_pair(pair p)
{
    store_close(p.store);
    tcp_server_close(p.server);
}

static void expect_stored(nrl_store *s, const char *key, const char *want)
{
    void *value;
    size_t size;
    assert_int_equal(nrl_store_get(s, key, PATIENCE_S, &value, &size), NRL_OK);
    assert_int_equal(size, strlen(want));
    assert_memory_equal(value, want, size);
    free(value);
}

static void what_is_set_is_got(void **state)
{
    (void)state;
    pair p = open_pair();
    int64_t sum;
    bool found, all;
    void *value;
    size_t size;
    assert_int_equal(nrl_store_set(p.store, "a", "hello", 5), NRL_OK);
    expect_stored(p.store, "a", "hello");
    assert_int_equal(nrl_store_add(p.store, "n", 5, &sum), NRL_OK);
    assert_int_equal(nrl_store_add(p.store, "n", -7, &sum), NRL_OK);
    assert_int_equal(sum, -2);
    expect_stored(p.store, "n", "-2");
    assert_int_equal(store_try_get(p.store, "none", &found, &value, &size), NRL_OK);
    assert_false(found);
    const char *keys[] = {"a", "n", "none"};
    assert_int_equal(store_all_there(p.store, keys, 2, &all), NRL_OK);
    assert_true(all);
    assert_int_equal(store_all_there(p.store, keys, 3, &all), NRL_OK);
    assert_false(all);
    char *values[2];
    assert_int_equal(store_get_all(p.store, keys, 2, values), NRL_OK);
    assert_string_equal(values[0], "hello");
    assert_string_equal(values[1], "-2");
    free(values[0]);
    free(values[1]);
    assert_int_equal(nrl_store_get(p.store, "none", 0.2, &value, &size), NRL_ERR_PEER);
    assert_non_null(strstr(nrl_error_text(), "'none'"));
    expect_stored(p.store, "a", "hello"); /* the cancelled wait left nothing behind */
    close_pair(p);
}

static void expect_missing(nrl_store *s, const char *key)
{
    void *value;
    size_t size;
    bool found;
    assert_int_equal(store_try_get(s, key, &found, &value, &size), NRL_OK);
    assert_false(found);
}

static void what_is_removed_is_gone(void **state)
{
    (void)state;
    pair p = open_pair();
    nrl_store *run;
    assert_int_equal(store_open_prefix(p.store, "run", NULL, NULL, &run), NRL_OK);
    assert_int_equal(nrl_store_set(p.store, "a", "1", 1), NRL_OK);
    assert_int_equal(nrl_store_set(run, "a", "2", 1), NRL_OK);
    assert_int_equal(store_remove(run, "a"), NRL_OK);
    expect_missing(run, "a");
    expect_stored(p.store, "a", "1");
    assert_int_equal(store_remove(run, "a"), NRL_OK); /* again */
    assert_int_equal(nrl_store_set(run, "a", "3", 1), NRL_OK);
    expect_stored(run, "a", "3");
    store_close(run);
    close_pair(p);
}

static void a_large_value_passes_and_a_larger_one_is_refused(void **state)
{
    (void)state;
    pair p = open_pair();
    char *big = mem_alloc(NRL_STORE_MAX_VALUE + 1);
    void *value;
    size_t size;
    memset(big, 'x', NRL_STORE_MAX_VALUE);
    assert_int_equal(nrl_store_set(p.store, "big", big, NRL_STORE_MAX_VALUE), NRL_OK);
    assert_int_equal(nrl_store_get(p.store, "big", PATIENCE_S, &value, &size), NRL_OK);
    assert_int_equal(size, NRL_STORE_MAX_VALUE);
    assert_memory_equal(value, big, size);
    assert_int_equal(nrl_store_set(p.store, "big", big, NRL_STORE_MAX_VALUE + 1), NRL_ERR_BUG);
    free(value);
    free(big);
    close_pair(p);
}

/* ---- several threads ---- */

enum { RACERS = 8 };

typedef struct {
    nrl_store *store;
    int index;
    char *seen;
} racer;

static void *race(void *user)
{
    racer *r = user;
    char mine[16];
    snprintf(mine, sizeof mine, "rank %d", r->index);
    return store_set_once(r->store, "word", mine, &r->seen) ? r : NULL;
}

static void of_many_who_compare_and_set_one_wins_and_all_see_it(void **state)
{
    (void)state;
    pair p = open_pair();
    pthread_t threads[RACERS];
    racer racers[RACERS];
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (racer){p.store, i, NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    for (int i = 0; i < RACERS; i++)
        assert_string_equal(racers[i].seen, racers[0].seen);
    for (int i = 0; i < RACERS; i++)
        free(racers[i].seen);
    close_pair(p);
}

static void *wait_for_late(void *user)
{
    nrl_store *s = user;
    void *value;
    size_t size;
    if (nrl_store_get(s, "late", 20, &value, &size)) return s;
    free(value);
    return NULL;
}

static void a_get_that_waits_holds_up_nobody(void **state)
{
    (void)state;
    pair p = open_pair();
    pthread_t thread;
    void *bad;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_late, p.store), 0);
    for (int i = 0; i < 50; i++) {
        int64_t n;
        assert_int_equal(nrl_store_add(p.store, "beats", 1, &n), NRL_OK);
        assert_int_equal(n, i + 1);
    }
    assert_int_equal(nrl_store_set(p.store, "late", "x", 1), NRL_OK);
    pthread_join(thread, &bad);
    assert_null(bad);
    close_pair(p);
}

/* ---- who comes late, who never comes ---- */

static void *open_late(void *user)
{
    pair *p = user;
    int32_t port = (int32_t)(intptr_t)p->store;
    clock_sleep(0.5);
    return open_at("127.0.0.1", port, &p->server) ? p : NULL;
}

static void a_server_may_start_after_its_clients(void **state)
{
    (void)state;
    tcp_server *early;
    assert_int_equal(open_at("127.0.0.1", 0, &early), NRL_OK);
    int32_t port = tcp_server_port(early);
    tcp_server_close(early);
    pair p = {NULL, (nrl_store *)(intptr_t)port};
    pthread_t thread;
    void *bad;
    assert_int_equal(pthread_create(&thread, NULL, open_late, &p), 0);
    nrl_store *store;
    assert_int_equal(test_store_connect(port, PATIENCE_S, &store), NRL_OK);
    pthread_join(thread, &bad);
    assert_null(bad);
    store_close(store);
    tcp_server_close(p.server);
    assert_int_equal(test_store_connect(port, 0.3, &store), NRL_ERR_PEER);
    assert_non_null(strstr(nrl_error_text(), "within 0.3 s"));
}

static void a_port_that_is_taken_is_told(void **state)
{
    (void)state;
    pair p = open_pair();
    tcp_server *second;
    assert_int_equal(open_at("127.0.0.1", tcp_server_port(p.server), &second), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "is in use"));
    close_pair(p);
}

static void names_and_ipv6_reach_a_server_on_all_interfaces(void **state)
{
    (void)state;
    tcp_server *server;
    nrl_store *store;
    assert_int_equal(open_at(NULL, 0, &server), NRL_OK);
    int32_t port = tcp_server_port(server);
    char name[32], numeric[32];
    snprintf(name, sizeof name, "tcp://localhost:%d", (int)port);
    snprintf(numeric, sizeof numeric, "[::1]:%d", (int)port);
    assert_int_equal(test_store_open(name, NULL, PATIENCE_S, &store), NRL_OK);
    store_close(store);
    int v6 = socket(AF_INET6, SOCK_STREAM, 0); /* a machine may have none */
    if (v6 >= 0) close(v6);
    if (v6 >= 0 && !test_store_open(numeric, NULL, 1, &store)) {
        assert_int_equal(nrl_store_set(store, "k", "v", 1), NRL_OK);
        store_close(store);
    }
    tcp_server_close(server);
}

static void a_server_that_goes_is_noticed(void **state)
{
    (void)state;
    pair p = open_pair();
    int64_t n;
    tcp_server_close(p.server);
    assert_int_equal(nrl_store_add(p.store, "n", 1, &n), NRL_ERR_PEER);
    assert_int_equal(nrl_store_add(p.store, "n", 1, &n), NRL_ERR_PEER);
    store_close(p.store);
}

/* ---- prefixes and folders ---- */

static bool stop_now(void *user)
{
    (*(int *)user)++;
    nrl_fail(NRL_ERR_PEER, "rank 3 was lost");
    return true;
}

static void a_prefix_stands_before_keys_and_can_stop_a_wait(void **state)
{
    (void)state;
    pair p = open_pair();
    nrl_store *outer, *inner;
    void *value;
    size_t size;
    int asked = 0;
    assert_int_equal(store_open_prefix(p.store, "job", NULL, NULL, &outer), NRL_OK);
    assert_int_equal(store_open_prefix(outer, "gloo", stop_now, &asked, &inner), NRL_OK);
    assert_int_equal(nrl_store_set(inner, "0", "x", 1), NRL_OK);
    expect_stored(p.store, "job/gloo/0", "x");
    double begin = clock_seconds();
    assert_int_equal(nrl_store_get(inner, "1", 30, &value, &size), NRL_ERR_PEER);
    assert_non_null(strstr(nrl_error_text(), "rank 3"));
    assert_int_equal(asked, 1);
    assert_true(clock_seconds() - begin < 10);
    store_close(inner);
    store_close(outer);
    close_pair(p);
}

static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

static void a_folder_has_glooss_names_and_serves_once(void **state)
{
    (void)state;
    /* names that libgloo's FileStore gave these keys */
    static const char *const names[][2] = {
        {"0", "2297668033614959926"},
        {"1", "10159970873491820195"},
        {"2", "4551451650890805270"},
        {"rank_0", "7977090932840177126"},
        {"rank_1", "9306828491353259261"},
        {"pfx/0", "4835472239587388804"},
        {"default_pg/0/0/rank_0", "10054003783589134849"},
    };
    char folder[] = "/tmp/nrl-store-XXXXXX";
    nrl_store *s;
    int64_t n;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(test_store_open(folder, NULL, 20, &s), NRL_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat st;
        char *path = mem_printf("%s/%s", folder, names[i][1]);
        assert_int_equal(nrl_store_set(s, names[i][0], "value", 5), NRL_OK);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, 5);
        expect_stored(s, names[i][0], "value");
        free(path);
    }
    assert_int_equal(nrl_store_set(s, "0", "again", 5), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "serves one run"));
    assert_int_equal(store_remove(s, "0"), NRL_OK);
    expect_missing(s, "0");
    assert_int_equal(nrl_store_add(s, "n", 1, &n), NRL_ERR_CONFIG);
    assert_false(store_counts(s));
    store_close(s);
    remove_folder(folder);
    assert_int_equal(test_store_open(folder, NULL, 20, &s), NRL_ERR_CONFIG);
}

/* ---- raw clients ---- */

static int raw(const pair *p, const void *bytes, size_t size)
{
    int fd;
    double deadline = clock_seconds() + 5;
    assert_int_equal(socket_connect("127.0.0.1", tcp_server_port(p->server), deadline, &fd), NRL_OK);
    assert_int_equal(socket_send(fd, bytes, size, deadline), NRL_OK);
    return fd;
}

static const unsigned char valid[] = {STORE_VALIDATE, 0xce, 0xf7, 0x85, 0x3c};

/* `valid`, then the text. */
static int raw_request(const pair *p, const char *text, size_t size)
{
    char bytes[512];
    memcpy(bytes, valid, sizeof valid);
    memcpy(bytes + sizeof valid, text, size);
    return raw(p, bytes, sizeof valid + size);
}

static void expect_closed(int fd)
{
    char byte;
    assert_int_equal(socket_receive(fd, &byte, 1, clock_seconds() + 5, NULL), NRL_ERR_PEER);
    assert_non_null(strstr(nrl_error_text(), "lo")); /* closed or lost, not silent */
    assert_null(strstr(nrl_error_text(), "does not respond"));
    close(fd);
}

static void expect_bytes(int fd, const void *want, size_t size)
{
    char got[256];
    assert_int_equal(socket_receive(fd, got, size, clock_seconds() + 5, NULL), NRL_OK);
    assert_memory_equal(got, want, size);
}

#define N(n) n "\0\0\0\0\0\0\0"
#define ASK(p, text) raw_request(p, text, sizeof(text) - 1)
#define EXPECT(fd, text) expect_bytes(fd, text, sizeof(text) - 1)

static void every_request_of_the_protocol_is_answered(void **state)
{
    (void)state;
    pair p = open_pair();
    int fd = ASK(&p, "\x0d\1\2\3\4");
    EXPECT(fd, "\1\2\3\4");
#define NEXT(text) assert_int_equal(socket_send(fd, text, sizeof(text) - 1, clock_seconds() + 5), NRL_OK)
    NEXT("\1" N("\2") "/a" N("\1") "x");    /* SET /a x */
    NEXT("\x09" N("\2") "/a" N("\2") "yz"); /* APPEND */
    NEXT("\3" N("\2") "/a");                /* GET */
    EXPECT(fd, N("\3") "xyz");
    NEXT("\3" N("\2") "/0"); /* GET of nothing: empty */
    EXPECT(fd, N("\0"));
    NEXT("\2" N("\2") "/c" N("\1") "e" N("\1") "d"); /* COMPARE_SET, missing, expected given */
    EXPECT(fd, N("\1") "e");
    NEXT("\2" N("\2") "/c" N("\0") N("\1") "d");
    EXPECT(fd, N("\1") "d");
    NEXT("\2" N("\2") "/c" N("\1") "d" N("\1") "f");
    EXPECT(fd, N("\1") "f");
    NEXT("\5" N("\0")); /* CHECK of nothing: ready */
    EXPECT(fd, "\0");
    NEXT("\5" N("\2") N("\2") "/a" N("\2") "/b");
    EXPECT(fd, "\1");
    NEXT("\x0b" N("\2") N("\2") "/b" N("\1") "1" N("\2") "/d" N("\1") "2"); /* MULTI_SET */
    NEXT("\x0a" N("\2") N("\2") "/d" N("\2") "/b");                         /* MULTI_GET */
    EXPECT(fd, N("\1") "2" N("\1") "1");
    NEXT("\7"); /* GETNUMKEYS: a b c d init/ */
    EXPECT(fd, N("\5"));
    NEXT("\x08" N("\2") "/d");
    EXPECT(fd, N("\1"));
    NEXT("\x08" N("\2") "/d");
    EXPECT(fd, N("\0"));
    NEXT("\x0e" N("\2") "/q" N("\1") "1"); /* QUEUE_PUSH twice, LEN, POP */
    NEXT("\x0e" N("\2") "/q" N("\1") "2");
    NEXT("\x10" N("\2") "/q");
    EXPECT(fd, N("\2"));
    NEXT("\6" N("\1") N("\2") "/q"); /* WAIT sees the queue */
    EXPECT(fd, "\0");
    NEXT("\x0f" N("\2") "/q");
    EXPECT(fd, N("\2") N("\1") "1");
    NEXT("\x0f" N("\2") "/q");
    EXPECT(fd, N("\1") N("\1") "2");
    NEXT("\x0f" N("\2") "/q");
    EXPECT(fd, N("\0"));
    NEXT("\6" N("\1") N("\2") "/w\x0c"); /* WAIT, then CANCEL_WAIT */
    EXPECT(fd, "\1");
    NEXT("\x12" N("\2") "/r" N("\1")); /* BARRIER of one */
    EXPECT(fd, "\0");
    NEXT("\6" N("\1") N("\2") "/z\3" N("\2") "/z"); /* WAIT, and a GET behind it */
    assert_int_equal(nrl_store_set(p.store, "z", "!", 1), NRL_OK);
    EXPECT(fd, "\0" N("\1") "!");
    NEXT("\x11"); /* LIST_KEYS: a b c r z init/ */
    EXPECT(fd, N("\6"));
    close(fd);
    close_pair(p);
}

static void a_hostile_client_is_dropped_and_harms_nobody(void **state)
{
    (void)state;
    pair p = open_pair();
    expect_closed(raw(&p, "\1\0\0\0\0", 5));      /* no VALIDATE */
    expect_closed(raw(&p, "\0\1\2\3\4", 5));      /* a wrong one */
    expect_closed(ASK(&p, "\0\xce\xf7\x85\x3c")); /* a second one */
    expect_closed(ASK(&p, "\x13"));               /* unknown request */
    expect_closed(ASK(&p, "\xff"));
    expect_closed(ASK(&p, "\3\xff\xff\xff\xff\xff\xff\xff\xff")); /* a key of 2^64 - 1 bytes */
    expect_closed(ASK(&p, "\3\1\x20\0\0\0\0\0\0"));               /* of 8193 */
    expect_closed(ASK(&p, "\1" N("\1") "k\1\0\x80\0\0\0\0\0"));   /* a value of 8 MiB + 1 */
    expect_closed(ASK(&p, "\6\1\0\2\0\0\0\0\0"));                 /* 131073 keys */
    expect_closed(ASK(&p, "\4" N("\3") "nan" N("\1") "\1" N("\3") "nan" N("\1") "x\4" N("\3") "nan" N(
                              "\1") "........"));     /* ADD to what is no number */
    close(ASK(&p, "\1" N("\5") "ab"));                /* leaves in the middle */
    int idle = ASK(&p, "\6" N("\1") N("\5") "never"); /* waits for ever */
    expect_stored(p.store, "init/", "1");
    close(idle);
    close_pair(p);
}

static void a_client_that_reads_nothing_is_not_served_without_end(void **state)
{
    (void)state;
    pair p = open_pair();
    char *big = mem_alloc(1 << 20);
    assert_int_equal(nrl_store_set(p.store, "big", big, 1 << 20), NRL_OK);
    int fd = raw(&p, valid, sizeof valid);
    for (int i = 0; i < 2000; i++) /* 2 GiB of replies, were they made */
        send(fd, "\3" N("\4") "/big", 13, MSG_NOSIGNAL | MSG_DONTWAIT);
    expect_stored(p.store, "init/", "1");
    close(fd);
    free(big);
    close_pair(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_set_is_got),
        cmocka_unit_test(what_is_removed_is_gone),
        cmocka_unit_test(a_large_value_passes_and_a_larger_one_is_refused),
        cmocka_unit_test(of_many_who_compare_and_set_one_wins_and_all_see_it),
        cmocka_unit_test(a_get_that_waits_holds_up_nobody),
        cmocka_unit_test(a_server_may_start_after_its_clients),
        cmocka_unit_test(a_port_that_is_taken_is_told),
        cmocka_unit_test(names_and_ipv6_reach_a_server_on_all_interfaces),
        cmocka_unit_test(a_server_that_goes_is_noticed),
        cmocka_unit_test(a_prefix_stands_before_keys_and_can_stop_a_wait),
        cmocka_unit_test(a_folder_has_glooss_names_and_serves_once),
        cmocka_unit_test(every_request_of_the_protocol_is_answered),
        cmocka_unit_test(a_hostile_client_is_dropped_and_harms_nobody),
        cmocka_unit_test(a_client_that_reads_nothing_is_not_served_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
