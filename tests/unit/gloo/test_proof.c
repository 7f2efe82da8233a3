/*
 * test_proof.c - ranks of a job with a secret: they prove it on every connection, in every dialect,
 * and a client without a proof is not accepted as a rank even if it has a valid rank number.
 */
#include "fake.h"
#include "base/secret.h"

enum { STRANGERS = 6 };

typedef struct {
    int32_t rank, world;
    const ranks_options *options;
    store_server *server;
    const secret_key *secret;
    char problem[400];
} proof_rank;

static secret_key ours;

static nrl_status connect_to(const proof_rank *r, nrl_store **store)
{
    return test_store_open(store_server_address(r->server), r->secret, 20, store);
}

static nrl_status sum(void *self, int32_t world)
{
    float x[4] = {1, 2, 3, 4};
    NRL_TRY(RANKS_DO(self, all_reduce, .dtype = NRL_DTYPE_F32, .reduce = NRL_REDUCE_OP_SUM, .send = x, .receive = x,
                     .count = 4));
    return x[3] == 4 * (float)world ? NRL_OK : nrl_fail(NRL_ERR_BUG, "a sum of %g", x[3]);
}

static void *run_rank(void *arg)
{
    proof_rank *r = arg;
    nrl_store *store = NULL;
    void *options = ranks_plugin_options(r->options), *self = NULL;
    nrl_status st = connect_to(r, &store);
    if (!st) st = gloo.open(options, store, r->rank, r->world, 20, &self);
    if (!st) st = sum(self, r->world);
    if (st) snprintf(r->problem, sizeof r->problem, "%s", nrl_error_text());
    if (self) gloo.close(self);
    store_close(store);
    free(options);
    return NULL;
}

static store_server *open_server(void)
{
    store_server *server;
    assert_int_equal(test_store_serve(0, &ours, &server), NRL_OK);
    return server;
}

static void ranks_prove_the_secret_in_every_dialect(void **state)
{
    (void)state;
    for (int64_t dialect = TCP22; dialect <= UV; dialect++) {
        const ranks_options o = {.dialect = dialect, .address = "127.0.0.1"};
        store_server *server = open_server();
        proof_rank r[5];
        pthread_t threads[5];
        for (int32_t i = 0; i < 5; i++) {
            r[i] = (proof_rank){i, 5, &o, server, &ours, ""};
            pthread_create(&threads[i], NULL, run_rank, &r[i]);
        }
        for (int32_t i = 0; i < 5; i++) {
            pthread_join(threads[i], NULL);
            assert_string_equal(r[i].problem, "");
        }
        store_server_close(server);
    }
}

/* A connection to where rank 0 listens. */
static int reach_rank_0(nrl_store *store)
{
    void *value;
    size_t size;
    wire_peer zero;
    assert_int_equal(nrl_store_get(store, "0", 20, &value, &size), NRL_OK);
    assert_null(wire_value_get(&wire_dialects[WIRE_TCP23], 1, 0, 2, value, size - 32, &zero));
    free(value);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (void *)&zero.address, sizeof(struct sockaddr_in)), 0);
    return fd;
}

/* They come before rank 1, say that they are it, and hear nothing. */
static void strangers_are_no_rank(void **state)
{
    (void)state;
    const ranks_options o = {.dialect = TCP23, .address = "127.0.0.1"};
    store_server *server = open_server();
    proof_rank r[2] = {{0, 2, &o, server, &ours, ""}, {1, 2, &o, server, &ours, ""}};
    pthread_t threads[2];
    nrl_store *store;
    int fds[STRANGERS];
    uint8_t said[200] = {1};
    static const size_t sizes[STRANGERS] = {8, 72, 200, 0, 4, 71};
    pthread_create(&threads[0], NULL, run_rank, &r[0]);
    assert_int_equal(connect_to(&r[1], &store), NRL_OK);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = reach_rank_0(store);
        assert_int_equal(send(fds[i], said, sizes[i], MSG_NOSIGNAL), (ssize_t)sizes[i]);
    }
    pthread_create(&threads[1], NULL, run_rank, &r[1]);
    for (int32_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_string_equal(r[i].problem, "");
    }
    for (int i = 0; i < STRANGERS; i++) {
        struct pollfd p = {.fd = fds[i], .events = POLLIN};
        assert_int_equal(poll(&p, 1, 10000), 1);
        assert_true(read(fds[i], said, sizeof said) <= 0);
        close(fds[i]);
    }
    store_close(store);
    store_server_close(server);
}

/* Rank 1 is reached, but does not know what it should. */
static void *be_somebody_else(void *arg)
{
    proof_rank *r = arg;
    nrl_store *store;
    uint8_t said[200] = {0};
    if (connect_to(r, &store)) return NULL;
    int fd = fake_join_with(store, 1, 2, false, 32);
    if (fd >= 0) {
        (void)!send(fd, said, 32, MSG_NOSIGNAL);
        while (read(fd, said, sizeof said) > 0)
            continue;
        close(fd);
    }
    store_close(store);
    return NULL;
}

static void a_rank_that_does_not_know_the_secret_is_refused(void **state)
{
    (void)state;
    const ranks_options o = {.dialect = TCP23, .address = "127.0.0.1"};
    store_server *server = open_server();
    proof_rank r[2] = {{0, 2, &o, server, &ours, ""}, {1, 2, &o, server, &ours, ""}};
    pthread_t threads[2];
    void *options = ranks_plugin_options(&o), *self;
    nrl_store *store;
    pthread_create(&threads[1], NULL, be_somebody_else, &r[1]);
    assert_int_equal(connect_to(&r[0], &store), NRL_OK);
    assert_int_equal(gloo.open(options, store, 0, 2, 2, &self), NRL_ERR_PEER);
    if (!strstr(nrl_error_text(), "rank 1 does not know the job's secret") &&
        !strstr(nrl_error_text(), "rank 1 did not connect within"))
        fail_msg("%s", nrl_error_text());
    pthread_join(threads[1], NULL);
    store_close(store);
    free(options);
    store_server_close(server);
}

static void foreign_ranks_and_a_secret_exclude_each_other(void **state)
{
    (void)state;
    const ranks_options o = {.dialect = TCP23, .peers = 1, .address = "127.0.0.1"};
    store_server *server = open_server();
    proof_rank r = {0, 2, &o, server, &ours, ""};
    run_rank(&r);
    if (!strstr(r.problem, "peers: gloo admits ranks that cannot prove the job's secret")) fail_msg("%s", r.problem);
    store_server_close(server);
}

static int prepare(void **state)
{
    nrl_job_secret_derive("correct horse battery", 21, "job", &ours);
    return ranks_load(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_prove_the_secret_in_every_dialect),
        cmocka_unit_test(strangers_are_no_rank),
        cmocka_unit_test(a_rank_that_does_not_know_the_secret_is_refused),
        cmocka_unit_test(foreign_ranks_and_a_secret_exclude_each_other),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
